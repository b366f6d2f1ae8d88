"""SHAKE: Verlet on the manifold g(q) = 0, in two-step form.

References: Ryckaert, Ciccotti, Berendsen, J. Comput. Phys. 23 (1977) 327; Leimkuhler, Skeel, J. Comput. Phys. 112
(1994) 117; Hairer, Lubich, Wanner, section VII.1.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ..manifold import ConstraintSolver, Placed
from ..numerics.compensated import value
from ..numerics.module import Module
from ..system.mechanics import Mechanics
from . import driven
from .base import ALL, Carry, State, Traits, register
from .constrained import NOT_SOLVED, Constrained
from .driven import with_work
from .protocols import HasHistory


class ShakeCarry(Module):
    """What Shake carries at q_n."""

    q: Any
    before: Any  # p_{n−½}
    after: Any  # p_{n+½}
    multipliers: Any  # λ_n, not of driven systems
    last: Any  # guess for the next solve that the solve at q_n gives, by unit of time
    second_last: Any  # and that at q_{n−1}
    status: Any
    work: Any = None  # of driven systems: before and after the kick at q_n


class _Half(NamedTuple):
    """A momentum between two positions."""

    p: Any
    placed: Placed
    work: Any  # of the kick and of the constraint, of driven systems


@register()
class Shake(Constrained, HasHistory):
    """SHAKE: q_{n+1} − 2q_n + q_{n−1} = −h²M⁻¹(∇U(q_n) + G(q_n)ᵀλ_n), 0 = g(q_{n+1}), with p_n = M(q_{n+1} −
    q_{n−1})/2h.

    The positions are RATTLE's, and λ_n is the mean of RATTLE's two; the momenta differ from RATTLE's by a part normal
    to the manifold. Carried are p_{n−½} and p_{n+½}, which rounding harms less than differences of positions. Of a
    driven system p_{n−½} is projected at q_n before the kick of length h; the work shown is the mean of those before
    and after it.
    """

    @property
    def traits(self) -> Traits:
        return Traits(
            2, symplectic=True, symmetric=True, reversible=True, energy="bounded", momentum_maps="all",
            constrained=True, free=False, tangent=False, steps=2, needs=("constraint",), takes=ALL, forces=1,
        )  # fmt: skip

    def _half(self, mech: Mechanics, q: Any, p: Any, kick: Array, h: Array, guess: Array) -> _Half:
        """p + kick·(f − Gᵀλ) such that a drift by h ends on the manifold, and the solution."""
        here, solver = value(q), self.solver_for(mech, q)
        if not mech.driven:
            p = p + kick * mech.force(here)
            placed = solver.place(mech, here, value(p), h, guess * kick)
            return _Half(p - placed.normal_impulse, placed, None)
        first = solver.projection_impulse(mech, here, value(p))
        p = p - mech.constraint_force(here, first)
        added = driven.kick(mech, here, p, kick, project=lambda x: self.tangent(mech, here, x))
        p = p + added.impulse
        placed = solver.place(mech, here, value(p), h, guess * kick)
        work = added.work + jnp.sum((first + placed.impulse) * mech.constraint_time_rate(here))
        return _Half(p - placed.normal_impulse, placed, work)

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        q, solver = state.q, self.solver_for(mech, state.q)
        # Of two roots, as on a sphere, the one near the exact multipliers is meant.
        start_guess = solver.first_guess(mech, value(q), value(state.p))
        before, first, half_back = self._half(mech, q, state.p, -0.5 * dt, -dt, start_guess)
        after, second, _ = self._half(mech, q, before, dt, dt, start_guess)
        guess, multipliers = self._by_length(solver, second, dt)
        status = jnp.where(first.converged & second.converged, 0, NOT_SOLVED)
        work = (half_back, -half_back) if mech.driven else None
        return ShakeCarry(q, before, after, multipliers, guess, guess, status, work)

    @staticmethod
    def _by_length(solver: ConstraintSolver, placed: Placed, dt: Array) -> tuple[Array, Array]:
        """A guess for the next step, and λ."""
        return solver.guess(placed.impulse, placed.normal_impulse) * (1 / dt), placed.impulse * (1 / dt)

    def step(self, mech: Mechanics, carry: ShakeCarry, dt: Array) -> ShakeCarry:
        between, solver = carry.after, self.solver_for(mech, carry.q)
        q = carry.q + mech.displacement(between, dt)
        q = q + solver.polish(value(q))
        guessed = 2 * carry.last - carry.second_last
        after, placed, added = self._half(mech.after(dt), q, between, dt, dt, guessed)
        work = (carry.work[1], carry.work[1] + added) if mech.driven else None
        guess, multipliers = self._by_length(solver, placed, dt)
        failed = (carry.status == 0) & ~placed.converged
        return ShakeCarry(
            q, between, after, multipliers, guess, carry.last, jnp.where(failed, NOT_SOLVED, carry.status), work
        )

    def output(self, mech: Mechanics, carry: ShakeCarry) -> State:
        p = 0.5 * (value(carry.before) + value(carry.after))
        if mech.driven:
            return with_work(self.state_with_multipliers(mech, carry.q, p), 0.5 * (carry.work[0] + carry.work[1]))
        return State(carry.q, p, extras={"multipliers": carry.multipliers})

    def reverse(self, carry: ShakeCarry) -> ShakeCarry:
        work = None if carry.work is None else carry.work[::-1]
        return dataclasses.replace(carry, before=carry.after, after=carry.before, second_last=carry.last, work=work)

    def status(self, carry: ShakeCarry) -> Array:
        return carry.status
