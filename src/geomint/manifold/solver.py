"""What every constraint solver offers to the methods:

    position:   g(Q) = 0,   Q = q + h M⁻¹(p − G(q)ᵀμ)   for the impulse μ of the constraint in a drift of length h
    momentum:   (G M⁻¹Gᵀ) ν = G M⁻¹p + ∂g/∂t,   p ← p − Gᵀν

References: Ryckaert, Ciccotti, Berendsen, J. Comput. Phys. 23 (1977) 327; Barth, Kuczera, Leimkuhler, Skeel, J. Comput.
Chem. 16 (1995) 1192; Hairer, Lubich, Wanner, sections VII.1 and VII.5.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.linalg import Plan
from ..numerics.module import Module
from ..system.mechanics import Mechanics
from .gram import gram_solve
from .normal_space import normal_space, smallest_multipliers
from .position import Placed

ROUNDING = 1e3  # units of rounding of |p| up to which the normal part of p may be an effect of rounding alone


class ConstraintSolver(Module):
    """How one system's constraint is solved; `discovery.find_solver` chooses one before a run."""

    plan: Plan = eqx.field(static=True)  # structure of G M⁻¹Gᵀ
    polishes: ClassVar[bool] = False  # whether `polish` returns a correction; otherwise it adds no operation to a step
    failure: ClassVar[str] = "no position on the constraint was found"

    @property
    def accepts_dependent_constraints(self) -> bool:
        """Whether a whole run may go on with constraints that depend on each other; otherwise single steps only, by
        `rescued`."""
        return False

    @property
    def uses_normal_space(self) -> bool:
        """Whether momenta and multipliers are computed by an orthonormal basis of the normal space, which constraints
        that depend on each other have, instead of by (G M⁻¹Gᵀ)⁻¹, which they have not."""
        return self.plan.kind == "least-squares"

    # --- positions --------------------------------------------------------------------------------------------------
    @abc.abstractmethod
    def place(self, mech: Any, q: Array, p: Array, h: Array, guess: Array) -> Placed:
        """μ with g(q + h M⁻¹(p − G(q)ᵀμ)) = 0."""

    def guess(self, impulse: Array, normal_impulse: Array) -> Array:
        """The part of a solution, its μ or its normal impulse G(q)ᵀμ, from which the next solve starts; empty for
        closed forms."""
        return jnp.zeros(0, normal_impulse.dtype)

    def first_guess(self, mech: Any, q: Array, p: Array) -> Array:
        """The guess at the start of a motion, per unit of time."""
        return jnp.zeros(0, q.dtype)

    def guess_from_normal_impulse(self, mech: Any, q: Array, normal_impulse: Array) -> Array:
        """The guess where the normal impulse alone is known."""
        return self.guess(normal_impulse, normal_impulse)

    def polish(self, q: Array) -> Array:
        """A correction that keeps the rounding of a closed form from adding up."""
        return jnp.zeros((), q.dtype)

    def rescued(self) -> ConstraintSolver | None:
        """The solver for a step that this one failed to solve, or None where there is none."""
        return None

    def for_many_members(self) -> ConstraintSolver:
        """The same solver with the fewest operations rather than the shortest dependency chain."""
        return dataclasses.replace(self, plan=dataclasses.replace(self.plan, fewest=True))

    # --- momenta ----------------------------------------------------------------------------------------------------
    def normal_part(self, mech: Mechanics, q: Array, p: Array) -> Array:
        """Gᵀν with G M⁻¹(p − Gᵀν) + ∂g/∂t = 0."""
        if mech.moving:
            return mech.constraint_force(q, self.projection_impulse(mech, q, p))
        if self.uses_normal_space:
            return normal_space(mech, q, p).part(mech, p)
        pull, v = mech.constraint_pull(q), mech.velocity(p)
        noise = _noise(p, v) if mech.driven else 0.0  # only driven steps project momenta that are tangent already
        return pull(self.gram_solve(mech, q, mech.constraint_rate(q, v), noise))

    def projection_impulse(self, mech: Mechanics, q: Array, p: Array) -> Array:
        """ν of the projection of p."""
        v = mech.velocity(p)
        return self.gram_solve(mech, q, mech.velocity_constraint(q, v), _noise(p, v))

    def multipliers(self, mech: Mechanics, q: Array, p: Array) -> Array:
        """λ of the exact motion: (G M⁻¹Gᵀ) λ = G M⁻¹F + g''(v, v), F = −∇U + f − D v."""
        force = mech.total_force(q, mech.velocity(p)) if mech.driven else mech.force(q)
        right = mech.constraint_rate(q, mech.velocity(force)) + mech.constraint_curvature(q, mech.velocity(p))
        return self.gram_solve(mech, q, right)

    def gram_solve(self, mech: Mechanics, q: Array, right: Array, noise: Array | float = 0.0) -> Array:
        """x with (G M⁻¹Gᵀ) x = right; the smallest, where constraints depend on each other. `noise`: see gram."""
        if self.uses_normal_space:
            return smallest_multipliers(mech, q, right)
        return gram_solve(self.plan, mech, q, right, noise)


def _noise(p: Array, v: Array) -> Array:
    """A bound of wᵀM⁻¹w, w = Gᵀν, for the normal part w of a p that is tangent up to rounding: pᵀM⁻¹p times
    (ROUNDING·eps)²."""
    return (ROUNDING * jnp.finfo(p.dtype).eps) ** 2 * jnp.sum(p * v)


class IterativeSolver(ConstraintSolver):
    """A solver that iterates from a guess and ends where corrections of positions are at round-off."""

    # The coordinates that enter constraints, as places in q.ravel(); None for all. Only these decide how small the
    # rounding of a position is: a satellite's attitude is solved as well at 7e6 m from the origin as at the origin.
    constrained: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def first_guess(self, mech: Any, q: Array, p: Array) -> Array:
        multipliers = self.multipliers(mech, q, p)
        return self.guess(multipliers, mech.constraint_force(q, multipliers))
