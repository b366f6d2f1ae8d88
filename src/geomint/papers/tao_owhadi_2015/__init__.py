"""Tao, Owhadi: Variational and linearly implicit integrators, with applications, IMA J. Numer. Anal. (2015).

Zhang and Skeel's method is velocity Verlet in a softened potential Ṽ, which costs one linear solve a step.

Start with `structure`: symplecticity, order, linear stability. `local_error` measures a single step, `step_limit` the
limit on penalised problems that the paper does not state, and `penalty` in which sense stiff springs converge to
constraints. `double_pendulum` and `chain` integrate pendula, `water` and `water_free` clusters of water with and
without a thermostat, `dna` the DNA model, and `lie_group` a magnetised body on SO(3). `common` has what they share. The
methods themselves are in `methods/filtered.py` and `methods/lie_verlet.py`.
"""
# ruff: noqa: I001 (experiments are listed in the order of these imports, that of the paper)

from . import structure, local_error, step_limit, penalty
from . import double_pendulum, chain, water, water_free, dna, lie_group

__all__ = [
    "chain",
    "dna",
    "double_pendulum",
    "lie_group",
    "local_error",
    "penalty",
    "step_limit",
    "structure",
    "water",
    "water_free",
]
