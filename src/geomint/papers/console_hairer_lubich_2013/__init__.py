"""Console, Hairer, Lubich: Symmetric multistep methods for constrained Hamiltonian systems, Numer. Math. 124 (2013)
517.

Start with `coefficients`: what the methods are, and which of them are stable with constraints. `systems` integrates
the triple pendulum and the heavy top, `sphere` two bodies on a sphere. The methods themselves are in
`methods/multistep.py`.
"""
# ruff: noqa: I001 (experiments are listed in the order of these imports, that of the paper)

from . import coefficients, systems, sphere

__all__ = ["coefficients", "sphere", "systems"]
