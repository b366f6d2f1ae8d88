"""RATTLE: splittings on the manifold g(q) = 0.

    M q̈ = −∇U(q) − G(q)ᵀλ,   0 = g(q),   G = ∂g/∂q.

A kick is the exact flow of U on the tangent bundle {g(q) = 0, G M⁻¹p = 0}; a drift moves along the manifold,

    p ← p − G(q)ᵀμ,   q ← q + τ M⁻¹p   with μ such that g(q) = 0,

followed by a projection of p onto the tangent space. Both are symplectic there, the drift is symmetric and of order
2; so is every palindromic sequence of them. What a projection removes from p would be absorbed by the next μ:
positions do not depend on it. It is therefore postponed to the output, and a step costs what it does in SHAKE.

Where the constraint moves, g(q, t) = 0, a drift from t to t + τ takes G at t and ends on g(q, t + τ) = 0, and momenta
are projected onto G M⁻¹p + ∂g/∂t = 0. Driven systems (see `driven`) are projected before each kick, since forces and
their work depend on the velocity. With the damping D = γM the step scales dq ∧ dp by exp(−γh) on the manifold; any
other damping is a force of v there.

References: Andersen, J. Comput. Phys. 52 (1983) 24; Leimkuhler, Skeel, J. Comput. Phys. 112 (1994) 117;
Fernández-Pendás, Akhmatskaya, Sanz-Serna, J. Comput. Phys. 327 (2016) 434; Hairer, Lubich, Wanner, section VII.1.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..manifold import ConstraintSolver
from ..manifold.drift import drift
from ..numerics.compensated import value
from ..numerics.module import Module
from ..system.checks import choice
from ..system.mechanics import Mechanics
from . import driven
from .base import Carry, State, Traits, as_method, register
from .constrained import NOT_SOLVED, Constrained
from .driven import with_work
from .oscillatory import IMEX
from .protocols import DependsOnStepLength, InterruptsDrift, Middle
from .splitting import TABLES, OnManifold, Splitting, Verlet, apply_stages

SMALL = 32  # coordinates up to which a force is evaluated twice rather than carried


class RattleCarry(Module):
    """What Rattle carries."""

    q: Any
    p: Any  # not yet projected
    last: Any  # guesses that the drifts of the last step give for those of the next: the normal impulses G(q)ᵀμ
    before: Any  # and those of the step before
    lengths: tuple[Any, Any]  # of the last two steps, where lengths vary
    status: Any
    force: tuple[Any, ...]
    inertia: Any  # factors of the mass of drifts, where the base has another one than M
    work: Any = None  # of driven systems


class _StepState(NamedTuple):
    """What moves within a step."""

    q: Any
    p: Any
    guesses: Any
    drifts: Any  # how many were made
    status: Any
    force: tuple[Any, ...]
    work: Any


def _as_base(base: Any) -> OnManifold:
    """A symmetric splitting, from a method, the name of a scheme, or None for Verlet."""
    if base is None:
        return Verlet()
    if isinstance(base, str):
        return Splitting(choice(base, "base", "Rattle", TABLES))
    base = as_method(base, "Rattle: base")
    if not isinstance(base, OnManifold) or not base.traits.symmetric:
        fits = "a symmetric splitting, such as Verlet() or Splitting('two-stage'), or IMEX()"
        raise InputError(f"Rattle(base={base.name}): base is {fits}.")
    return base


@register({}, {"base": Verlet(form="drift")}, {"base": "two-stage"}, {"base": IMEX()})
class Rattle(Constrained, DependsOnStepLength, InterruptsDrift):
    """RATTLE: a splitting on the constraint manifold, constrained after every drift. Order 2, symmetric, symplectic.

    base: any symmetric splitting (Verlet(), Verlet(form="drift"), Splitting("two-stage"), …) or the name of one. A
    two-stage base gains 1.3 to 1.5 in energy error for the same number of forces; none gives a higher order, for which
    there is Composition(Rattle(), order=8).

    base=IMEX() moves a quadratic fast part implicitly on the manifold: drifts with the mass M + (h²/4) Hess W.
    """

    base: OnManifold = Verlet()

    def __init__(
        self,
        base: Any = None,
        *,
        solver: str = "auto",
        relaxation: float = 1.0,
        constraint_solver: ConstraintSolver | None = None,
    ):
        self.base, self.solver, self.relaxation = _as_base(base), solver, relaxation
        self.constraint_solver = constraint_solver

    @property
    def traits(self) -> Traits:
        base = self.base.traits
        return dataclasses.replace(base, order=2, constrained=True, free=False, needs=("constraint", *base.needs))

    def prepare(self, starts: Sequence[tuple[Any, Any]]) -> Rattle:
        base = self.base.prepared_on_manifold(starts, self.name)
        if base is self.base:
            return super().prepare(starts)
        # The inverse of the mass of the drifts has no structure, nor has G M⁻¹Gᵀ with it.
        choice = "dense" if self.solver in ("auto", "newton") else self.solver
        found = self.constraint_solver or self.find_solver(choice, starts)
        return Rattle(base, solver=self.solver, relaxation=self.relaxation, constraint_solver=found)

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        return self.base.misfits(system, q, own_params) | super().misfits(system, q, own_params)

    @property
    def _drifts(self) -> int:
        return sum(kind == "drift" for kind, _ in self.base.stages)

    def _carries_force(self, q: Array) -> bool:
        return self.base.stages[0][0] == "kick" and q.size > SMALL

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        q, solver = value(state.q), self.solver_for(mech, state.q)
        # The first drift of a later step also makes up for the projection that the step before left out, which
        # doubles its normal impulse; at the start nothing was left out. The second step extrapolates from this half, so
        # that good guesses begin with the third step.
        shares = jnp.asarray([0.5] + [1.0] * (self._drifts - 1), q.dtype) / self._drifts
        guesses = jnp.multiply.outer(shares * dt, solver.first_guess(mech, q, value(state.p)))
        force = (mech.force(q),) if self._carries_force(q) and not mech.driven else ()
        length, inertia = jnp.zeros((), q.dtype), self.base.drift_mass(mech, q, dt)
        work = length if mech.driven else None
        start = (state.q, state.p, guesses, guesses, (length, length), jnp.zeros((), int), force, inertia, work)
        return RattleCarry(*start)

    def rescale(self, mech: Mechanics, carry: RattleCarry, dt: Array) -> RattleCarry:
        # The first normal impulse of a step is proportional to half the sum of the lengths of that step and the one
        # before; those of its later drifts to its own length. Where such a length vanishes (h followed by −h, or the
        # start), the guess stays. `before` is set equal to `last`: steps of different lengths give no trend to
        # extrapolate.
        last, before = carry.lengths
        whole = last + before
        usable = jnp.abs(whole) > 1e-3 * jnp.abs(last)
        first = jnp.where(usable, (dt + last) / jnp.where(usable, whole, 1.0), 1.0)
        later = jnp.where(last != 0, dt / jnp.where(last != 0, last, 1.0), 1.0)
        first = later if mech.driven else first  # whose momenta are projected: no part of the step before is left
        factors = jnp.stack([first] + [later] * (self._drifts - 1))
        guesses = carry.last * factors.reshape((-1,) + (1,) * (carry.last.ndim - 1))
        lengths = (jnp.asarray(dt, last.dtype), last)
        inertia = self.base.drift_mass(mech, value(carry.q), dt)
        return dataclasses.replace(carry, last=guesses, before=guesses, lengths=lengths, inertia=inertia)

    def step(self, mech: Mechanics, carry: RattleCarry, dt: Array) -> RattleCarry:
        in_drifts = self.base.drift_mechanics(mech, carry.inertia)
        kick, move = functools.partial(self._kick, mech), functools.partial(self._move, mech, in_drifts)
        begin = self._begun(carry, 2 * carry.last - carry.before)
        timed = mech.time is not None
        end = apply_stages(self.base.stages, kick, move, begin, dt, cheap_drift=False, timed=timed)
        return self._ended(carry, end)

    @staticmethod
    def _begun(carry: RattleCarry, guesses: Any) -> _StepState:
        nothing = jnp.zeros((), int)
        return _StepState(carry.q, carry.p, guesses, nothing, carry.status, carry.force, carry.work)

    @staticmethod
    def _ended(carry: RattleCarry, end: _StepState) -> RattleCarry:
        kept = (carry.last, carry.lengths, end.status, end.force, carry.inertia, end.work)
        return RattleCarry(end.q, end.p, end.guesses, *kept)

    def _kick(self, mech: Mechanics, s: _StepState, h: Array, since: Any) -> _StepState:
        if mech.driven:
            return self._driven_kick(mech.after(since), s, h)
        return s._replace(p=s.p + h * (s.force[0] if s.force else mech.force(s.q)))

    def _move(self, mech: Mechanics, in_drifts: Any, s: _StepState, h: Array, since: Any) -> _StepState:
        solver, here = self.solver_for(mech, s.q), in_drifts.after(since)
        q, p, placed = drift(solver, here, s.q, s.p, h, s.guesses[s.drifts])
        work = s.work
        if mech.moving:
            work = work + jnp.sum(placed.impulse * here.constraint_time_rate(s.q))
        found = solver.guess(placed.impulse, placed.normal_impulse)
        one = len(s.guesses) == 1
        guesses = found[None] if one else jax.lax.dynamic_update_index_in_dim(s.guesses, found, s.drifts, 0)
        status = jnp.where((s.status == 0) & ~placed.converged, NOT_SOLVED, s.status)
        return _StepState(q, p, guesses, s.drifts + 1, status, (mech.force(q),) if s.force else (), work)

    # --- interrupted in the middle of the drift ---------------------------------------------------------------------
    @property
    def has_one_drift(self) -> bool:
        return isinstance(self.base, Verlet) and self.base.has_one_drift

    def init_interrupted(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        carry = self.init(mech, state, dt)
        guesses = jnp.concatenate([0.5 * carry.last, 0.5 * carry.last])  # of two drifts, each of half the length
        return dataclasses.replace(carry, last=guesses, before=guesses)

    def step_interrupted(self, mech: Mechanics, carry: RattleCarry, dt: Array, middle: Middle) -> tuple[Carry, Any]:
        half, timed = 0.5 * dt, mech.time is not None
        # Random momenta have no trend that could be extrapolated from the step before.
        s = self._kick(mech, self._begun(carry, carry.last), half, jnp.zeros_like(dt) if timed else None)
        force = s.force
        s = self._move(mech, mech, s._replace(force=()), half, jnp.zeros_like(dt) if timed else None)
        p, more = middle(s.q, s.p)
        s = self._move(mech, mech, s._replace(p=p, force=force), half, half if timed else None)
        return self._ended(carry, self._kick(mech, s, half, dt if timed else None)), more

    def _driven_kick(self, mech: Mechanics, s: _StepState, h: Array) -> _StepState:
        p, pushed = self.projected(mech, s.q, s.p)
        added = driven.kick(mech, s.q, p, h, project=lambda x: self.tangent(mech, s.q, x))
        return s._replace(p=p + added.impulse, work=s.work + pushed + added.work)

    def output(self, mech: Mechanics, carry: RattleCarry) -> State:
        if not mech.driven:
            return self.state_with_multipliers(mech, carry.q, self.tangent(mech, carry.q, carry.p))
        p, pushed = self.projected(mech, carry.q, carry.p)
        return with_work(self.state_with_multipliers(mech, carry.q, p), carry.work + pushed)

    def status(self, carry: RattleCarry) -> Array:
        return carry.status
