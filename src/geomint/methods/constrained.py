"""On the manifold g(q) = 0: SHAKE, RATTLE, and RATTLE over any symmetric splitting.

    M q̈ = −∇U(q) − G(q)ᵀλ,   0 = g(q),   G = ∂g/∂q.

A kick is the exact flow of U on the tangent bundle {g(q) = 0, G M⁻¹p = 0}; a drift moves along the manifold,

    p ← p − G(q)ᵀμ,   q ← q + τ M⁻¹p   with μ such that g(q) = 0,

followed by a projection of p onto the tangent space. Both are symplectic there, the drift is symmetric and of order 2; so is
every palindromic sequence of them. What a projection removes from p would be absorbed by the next μ: positions do not depend
on it. It is therefore left until the state is shown, and a step costs what it does in SHAKE.

References: Ryckaert, Ciccotti, Berendsen, J. Comput. Phys. 23 (1977) 327; Andersen, J. Comput. Phys. 52 (1983) 24;
Leimkuhler, Skeel, J. Comput. Phys. 112 (1994) 117; Fernández-Pendás, Akhmatskaya, Sanz-Serna, J. Comput. Phys. 327 (2016)
434; Hairer, Lubich, Wanner, section VII.1.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..arithmetic import value
from ..checks import bounded, choice, number, one_of
from ..errors import InputError
from ..linalg import KINDS, Plan
from ..linalg.structure import fallback, least_squares
from ..manifold import Manifold, closed_form, closed_plan
from ..mechanics import Mechanics
from ..system import System
from .base import Carry, Method, State, Traits, as_method, register, setting
from .oscillatory import IMEX, Heavier
from .planning import concrete, plan_for, start_key
from .splitting import TABLES, KickDrift, Splitting, Stages, Verlet, in_turn

OFF = 1
SMALL = 32  # coordinates up to which a force is evaluated twice rather than carried
TINY = 6  # constraints up to which a dense matrix is written out; beyond, a band pays
DEPENDENT = 1e-12  # smallest eigenvalue of G M⁻¹Gᵀ, relative to the largest, below which constraints count as dependent
SOLVERS = (*KINDS, "sweep", "newton")
C = TypeVar("C", bound="Constrained")


class Constrained(Method):
    """What methods on a manifold share: the constraint solver, looked for before the run, and its failures.

    solver:      "auto" finds the structure of G M⁻¹Gᵀ, and closed forms for gm.OnSphere and gm.Orthogonal; "newton" finds
                 the structure and uses no closed form; "blocks", "banded", "dense", "matrix-free" demand one;
                 "least-squares" admits dependent constraints; "sweep" is the classical iteration of SHAKE
    relaxation:  of the sweep; 1 is Gauss–Seidel, values up to 2 over-relax
    """

    failures: ClassVar[dict[int, str]] = {OFF: "no point with g(q) = 0 was found for the next position"}
    solver: str = setting(one_of(*SOLVERS), "auto", kw_only=True)
    relaxation: float = setting(bounded(number, above=0.0, below=2.0), 1.0, static=False, kw_only=True)
    manifold: Manifold | None = eqx.field(default=None, kw_only=True, metadata={"found": True})

    def held(self, mech: Mechanics, q: Any) -> Manifold:
        """The solver found before the run, or a dense one."""
        return self.manifold or Manifold("newton", fallback(jax.eval_shape(mech.constraint, value(q)).size))

    def tangent(self, mech: Mechanics, q: Any, p: Any) -> Any:
        """p without its part that would leave the manifold."""
        q = value(q)
        return p - mech.constraint_force(q, self.held(mech, q).tangent(mech, q, value(p)))

    def shown(self, mech: Mechanics, q: Any, p: Any) -> State:
        """The state with the multipliers that belong to it."""
        return State(q, p, extras={"multipliers": self.held(mech, q).multipliers(mech, value(q), value(p))})

    # --- before and after a run -------------------------------------------------------------------------------------
    def prepare(self: C, starts: Sequence[tuple[Any, Any]]) -> C:
        if self.manifold is not None or starts[0][0].constraint is None:
            return self
        return dataclasses.replace(self, manifold=find_manifold(self.solver, self.relaxation, starts))

    def for_straight_code(self: C, many: bool) -> C:
        if self.manifold is None or not many:
            return self
        plan = dataclasses.replace(self.manifold.plan, fewest=True)
        return dataclasses.replace(self, manifold=dataclasses.replace(self.manifold, plan=plan))

    @property
    def linear_solver(self) -> str | None:
        return None if self.manifold is None else self.manifold.plan.description

    def explain(self, status: int, mech: Mechanics, q: Any, dt: float) -> str:
        plan = None if self.manifold is None else self.manifold.plan
        smallest, among = dependence(mech.system, np.asarray(q), plan)
        if smallest < 1e-9:  # a straight chain of ten thousand links has 2e-8
            return f": {_named(among)} depend on each other there (smallest eigenvalue of G M⁻¹Gᵀ {smallest:.1e} of the largest), so that they do not determine the motion. Remove one of them, or start away from a singular position"
        return f": Newton's method did not converge. The step is too long for the curvature of the constraint; try dt = {dt / 4:g}"


# --- the solver of a system -----------------------------------------------------------------------------------------
def gram_product(system: System, q: Array, multipliers: Array) -> Array:
    """G M⁻¹Gᵀ λ."""
    mech = Mechanics(system, q.shape)
    return mech.constraint_rate(q, mech.velocity(mech.constraint_force(q, multipliers)))


_manifolds: dict[Any, Any] = {}


def find_manifold(solver: str, relaxation: Any, starts: Sequence[tuple[Any, Any]]) -> Manifold:
    """The constraint solver for a system, from a look at it near its starts."""
    key = (solver, *(start_key(system, q) for system, q in starts))
    if key not in _manifolds:
        while len(_manifolds) >= 64:
            _manifolds.pop(next(iter(_manifolds)))
        _manifolds[key] = _look(solver, starts)
    way, plan, among = _manifolds[key]
    if among is not None:
        warnings.warn(f"{_named(among)} depend on each other at q0: the multipliers are the smallest that hold them (least squares).", stacklevel=5)
    return Manifold(way, plan, relaxation)


def _look(solver: str, starts: Sequence[tuple[Any, Any]]) -> tuple[str, Plan, list[int] | None]:
    system, q = concrete(*starts[0], np.random.default_rng(3))
    m = jax.eval_shape(lambda x: Mechanics(system, q.shape).constraint(x), q).size
    way = closed_form(system, q.shape) if solver == "auto" else None
    if way is not None:
        return way, closed_plan(m, way), None
    kind = "auto" if solver in ("newton", "sweep") else solver
    plan = plan_for(gram_product, starts, m, kind, TINY)
    way = "sweep" if solver == "sweep" else "newton"
    if plan.kind in ("least-squares", "matrix-free") or isinstance(starts[0][1], Tracer):
        return way, plan, None
    smallest, among = dependence(system, q, plan)
    return (way, plan, None) if smallest > DEPENDENT else (way, least_squares(m), among)


@functools.partial(jax.jit, static_argnums=0)
def _inverse_iteration(plan: Plan, system: System, q: Array, start: Array) -> tuple[Array, Array]:
    """The smallest eigenvalue of G M⁻¹Gᵀ relative to the largest, by inverse iteration a little off the spectrum."""
    apply = lambda d: gram_product(system, q, d)
    unit = lambda x: x / jnp.sqrt(jnp.sum(x**2))
    largest = jnp.sqrt(jnp.sum(apply(jax.lax.fori_loop(0, 20, lambda _, x: unit(apply(x)), unit(start))) ** 2))
    shifted = lambda d: apply(d) + 1e-14 * largest * d
    solve = (lambda x: plan.solve(shifted, x).x) if plan.kind == "matrix-free" else plan.factor(shifted, q.dtype).solve
    vector = jax.lax.fori_loop(0, 6, lambda _, x: unit(solve(x)), unit(start))
    return jnp.sum(vector * apply(vector)) / largest, vector


def dependence(system: System, q: np.ndarray, plan: Plan | None) -> tuple[float, list[int]]:
    """How far the constraints are from depending on each other at q, and which ones come nearest to it."""
    with jax.ensure_compile_time_eval():
        here = jnp.asarray(q, float)
        m = Mechanics(system, here.shape).constraint(here).size
        if plan is None or plan.kind == "least-squares":
            plan = fallback(m)
        smallest, vector = _inverse_iteration(plan, system, here, jnp.asarray(np.random.default_rng(5).normal(size=m)))
        size = np.abs(np.asarray(vector))
    if not np.all(np.isfinite(size)):
        return 0.0, list(range(m))
    return abs(float(smallest)), [int(i) for i in np.nonzero(size > 1e-3 * size.max())[0]]


def _named(among: list[int]) -> str:
    listed = ", ".join(map(str, among[:8])) + (", …" if len(among) > 8 else "")
    return f"constraints {listed}" if len(among) > 1 else f"constraint {listed} (its gradient vanishes, or others)"


# --- the methods ----------------------------------------------------------------------------------------------------
class Moving(eqx.Module):
    """What Rattle carries."""

    q: Any
    p: Any  # not yet projected
    last: Any  # impulses of the constraint in the last step, by drift: a first guess for the next
    before: Any  # and in the one before
    lengths: tuple[Any, Any]  # of the last two steps, where lengths vary
    status: Any
    force: tuple[Any, ...]
    inertia: Any  # factors of the heavier mass, for IMEX


@register({}, {"base": Verlet(form="drift")}, {"base": "two-stage"}, {"base": IMEX()})
class Rattle(Constrained):
    """RATTLE: a splitting on the constraint manifold, constrained after every drift. Order 2, symmetric, symplectic.

    base: any symmetric splitting (Verlet(), Verlet(form="drift"), Splitting("two-stage"), …) or the name of one. A
    two-stage base gains 1.3 to 1.5 in energy error for the same number of forces; none gives a higher order, for which
    there is Composition(Rattle(), order=8).

    base=IMEX() moves a quadratic fast part implicitly on the manifold: drifts with the mass M + (h²/4) Hess W.
    """

    base: KickDrift | IMEX = Verlet()

    def __init__(self, base: Any = None, *, solver: str = "auto", relaxation: float = 1.0, manifold: Manifold | None = None):
        base = Verlet() if base is None else Splitting(choice(base, "base", "Rattle", TABLES)) if isinstance(base, str) else as_method(base, "Rattle: base")
        if not isinstance(base, (KickDrift, IMEX)) or not base.traits.symmetric:
            raise InputError(f"Rattle(base={base.name}): base is a symmetric splitting, such as Verlet() or Splitting('two-stage'), or IMEX().")
        self.base, self.solver, self.relaxation, self.manifold = base, solver, relaxation, manifold

    @property
    def traits(self) -> Traits:
        return dataclasses.replace(self.base.traits, order=2, constrained=True, free=False, needs=("constraint", *self.base.traits.needs))

    def prepare(self, starts: Sequence[tuple[Any, Any]]) -> Rattle:
        if not isinstance(self.base, IMEX):
            return super().prepare(starts)
        base = self.base.prepare(starts)
        if not base.quadratic:
            raise InputError(f"{self.name} needs a quadratic fast part, and this one is not; use Rattle() with shorter steps.")
        # The inverse of the heavier mass has no structure, nor has G M⁻¹Gᵀ with it.
        kind = "dense" if self.solver in ("auto", "newton") else self.solver
        return Rattle(base, solver=self.solver, relaxation=self.relaxation, manifold=self.manifold or find_manifold(kind, self.relaxation, starts))

    @property
    def _stages(self) -> Stages:
        return Verlet().stages if isinstance(self.base, IMEX) else self.base.stages

    @property
    def _drifts(self) -> int:
        return sum(kind == "drift" for kind, _ in self._stages)

    def _carries_force(self, q: Array) -> bool:
        return self._stages[0][0] == "kick" and q.size > SMALL

    def _inertia(self, mech: Mechanics, q: Array, dt: Array) -> Any:
        """Factors of the heavier mass where the base is IMEX."""
        return self.base.heavier(mech, q, dt).factored if isinstance(self.base, IMEX) else None

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        q, manifold = value(state.q), self.held(mech, state.q)
        if manifold.way in ("sphere", "rotation"):  # which need no guess
            multipliers = jnp.zeros(jax.eval_shape(mech.constraint, q).shape, q.dtype)
        else:
            multipliers = manifold.multipliers(mech, q, value(state.p))
        shares = jnp.asarray([0.5] + [1.0] * (self._drifts - 1), q.dtype) / self._drifts
        impulses = jnp.multiply.outer(shares * dt, multipliers)
        force = (mech.force(q),) if self._carries_force(q) else ()
        length = jnp.zeros((), q.dtype)
        return Moving(state.q, state.p, impulses, impulses, (length, length), jnp.zeros((), int), force, self._inertia(mech, q, dt))

    def rescale(self, mech: Mechanics, carry: Moving, dt: Array) -> Moving:
        # The first impulse of a step also holds what the projection at the end of the step before would have removed: it
        # goes with half the sum of two lengths. No trend can be read from steps of different lengths.
        last, before = carry.lengths
        whole = last + before
        usable = jnp.abs(whole) > 1e-3 * jnp.abs(last)
        factor = jnp.where(usable, (dt + last) / jnp.where(usable, whole, 1.0), 1.0)
        impulses = carry.last.at[0].multiply(factor)
        lengths = (jnp.asarray(dt, last.dtype), last)
        return dataclasses.replace(carry, last=impulses, before=impulses, lengths=lengths, inertia=self._inertia(mech, value(carry.q), dt))

    def step(self, mech: Mechanics, carry: Moving, dt: Array) -> Moving:
        manifold = self.held(mech, carry.q)
        moved = mech if carry.inertia is None else Heavier(mech, carry.inertia)

        def kick(moving: Carry, h: Array) -> Carry:
            q, p, impulses, i, status, force = moving
            return q, p + h * (force[0] if force else mech.force(q)), impulses, i, status, force

        def drift(moving: Carry, h: Array) -> Carry:
            q, p, impulses, i, status, force = moving
            here = value(q)
            placed = manifold.place(moved, here, value(p), h, impulses[i])
            p = p - mech.constraint_pull(here)(placed.impulse)
            q = q + moved.displacement(p, h)
            q = q + manifold.polish(value(q)) if manifold.way == "rotation" else q
            impulses = placed.impulse[None] if self._drifts == 1 else jax.lax.dynamic_update_index_in_dim(impulses, placed.impulse, i, 0)
            force = (mech.force(q),) if force else ()
            return q, p, impulses, i + 1, jnp.where((status == 0) & ~placed.converged, OFF, status), force

        guess = 2 * carry.last - carry.before
        moving = (carry.q, carry.p, guess, jnp.zeros((), int), carry.status, carry.force)
        q, p, impulses, _, status, force = in_turn(self._stages, kick, drift, moving, dt, cheap_drift=False)
        return Moving(q, p, impulses, carry.last, carry.lengths, status, force, carry.inertia)

    def output(self, mech: Mechanics, carry: Moving) -> State:
        return self.shown(mech, carry.q, self.tangent(mech, carry.q, carry.p))

    def status(self, carry: Moving) -> Array:
        return carry.status


@register()
class Shake(Constrained):
    """SHAKE: q_{n+1} − 2q_n + q_{n−1} = −h²M⁻¹(∇U(q_n) + G(q_n)ᵀλ_n), 0 = g(q_{n+1}), with p_n = M(q_{n+1} − q_{n−1})/2h.

    The positions are RATTLE's, and λ_n is the mean of RATTLE's two; the momenta differ from RATTLE's by a part normal to the
    manifold. Carried are p_{n−½} and p_{n+½}, which rounding harms less than differences of positions.
    """

    @property
    def traits(self) -> Traits:
        return Traits(
            2, symplectic=True, symmetric=True, reversible=True, energy="bounded", momentum_maps="all",
            constrained=True, free=False, tangent=False, steps=2, needs=("constraint",), forces=1,
        )  # fmt: skip

    def _half(self, mech: Mechanics, q: Any, p: Any, kick: Array, h: Array, guess: Array) -> tuple[Any, Array, Array]:
        """p + kick·(f − Gᵀλ) such that a drift by h ends on the manifold; and λ."""
        here = value(q)
        p = p + kick * mech.force(here)
        placed = self.held(mech, q).place(mech, here, value(p), h, guess * kick)
        return p - mech.constraint_pull(here)(placed.impulse), placed.impulse * (1 / kick), placed.converged

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        q = state.q
        # Of two roots, as on a sphere, the one near the exact multipliers is meant.
        near = self.held(mech, q).multipliers(mech, value(q), value(state.p))
        before, _, first = self._half(mech, q, state.p, -0.5 * dt, -dt, near)
        after, multipliers, second = self._half(mech, q, before, dt, dt, near)
        status = jnp.where(first & second, 0, OFF)
        return q, before, after, (multipliers, multipliers), status

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        q, _, between, (last, before), status = carry
        q = q + mech.displacement(between, dt)
        q = q + self.held(mech, q).polish(value(q))
        after, found, converged = self._half(mech, q, between, dt, dt, 2 * last - before)
        return q, between, after, (found, last), jnp.where((status == 0) & ~converged, OFF, status)

    def output(self, mech: Mechanics, carry: Carry) -> State:
        q, before, after, (multipliers, _), _ = carry
        return State(q, 0.5 * (value(before) + value(after)), extras={"multipliers": multipliers})

    def reverse(self, carry: Carry) -> Carry:
        q, before, after, (last, _), status = carry
        return q, after, before, (last, last), status

    def status(self, carry: Carry) -> Array:
        return carry[4]
