"""A drift along the manifold, for any method that moves by kicks and drifts."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Array

from ..numerics.compensated import value
from .position import Placed
from .solver import ConstraintSolver


class Drifted(NamedTuple):
    """The state after a drift, p not yet projected onto the tangent space, and how the position was found."""

    q: Any
    p: Any
    placed: Placed


def drift(solver: ConstraintSolver, mech: Any, q: Any, p: Any, h: Array, guess: Array) -> Drifted:
    """p ← p − G(q)ᵀμ, q ← q + h M⁻¹p with μ such that g(q) = 0. `mech` needs the mass and the constraint only."""
    placed = solver.place(mech, value(q), value(p), h, guess)
    p = p - placed.normal_impulse
    q = q + mech.displacement(p, h)
    q = q + solver.polish(value(q)) if solver.polishes else q
    return Drifted(q, p, placed)
