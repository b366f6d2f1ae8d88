"""Tao, Owhadi: Variational and linearly implicit integrators, with applications, IMA J. Numer. Anal. (2015).

Zhang and Skeel's method is velocity Verlet in a softened potential Ṽ, which costs one linear solve a step.

Start with `structure`: symplecticity, order, linear stability, and the step limit on penalised problems that the paper
does not state. `systems` integrates the double pendulum and the chain, `water` clusters of water, `dna` the DNA model,
`lie_group` a magnetised body on SO(3), and `penalty` measures in which sense stiff springs converge to constraints. The
methods themselves are in `methods/filtered.py` and `methods/lie_verlet.py`.
"""
# ruff: noqa: I001 (experiments are listed in the order of these imports, that of the paper)

from . import structure, systems, water, dna, lie_group, penalty

__all__ = ["dna", "lie_group", "penalty", "structure", "systems", "water"]
