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
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..errors import InputError
from ..manifold import (
    DEPENDENT,
    Dependence,
    Manifold,
    Placed,
    closed_form,
    closed_plan,
    constrained_coordinates,
    dependence,
    gram_product,
    loses_rank,
    vanishing,
)
from ..numerics.cache import BoundedCache
from ..numerics.compensated import value
from ..numerics.linalg import KINDS, Plan
from ..numerics.linalg.discovery import concrete, over_members, plan_for, start_key
from ..numerics.linalg.structure import DENSE_LIMIT, fallback, least_squares
from ..system.checks import bounded, choice, number, one_of
from ..system.mechanics import Mechanics
from .base import Carry, Method, State, Traits, as_method, register, setting
from .oscillatory import IMEX, Heavier
from .splitting import TABLES, KickDrift, Splitting, Stages, Verlet, in_turn

OFF = 1
SMALL = 32  # coordinates up to which a force is evaluated twice rather than carried
TINY = 6  # constraints up to which a dense matrix is written out; beyond, a band pays
SINGULAR = 3e-5  # smallest singular value of G below which a position counts as singular; a straight chain of 10,000 links has 1e-4
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
        return p - self.held(mech, q).normal_part(mech, q, value(p))

    def shown(self, mech: Mechanics, q: Any, p: Any) -> State:
        """The state with the multipliers that belong to it."""
        return State(q, p, extras={"multipliers": self.held(mech, q).multipliers(mech, value(q), value(p))})

    # --- before and after a run -------------------------------------------------------------------------------------
    def prepare(self: C, starts: Sequence[tuple[Any, Any]]) -> C:
        if self.manifold is not None or starts[0][0].constraint is None:
            return self
        return dataclasses.replace(self, manifold=find_manifold(self.solver, self.relaxation, starts))

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        """Members that start where constraints depend on each other, which the solver found does not cover."""
        solver = self.manifold
        covered = solver is None or solver.way != "newton" or solver.plan.kind in ("least-squares", "matrix-free")
        if covered or solver.plan.n > DENSE_LIMIT:
            return np.zeros(len(q), bool)
        return np.asarray(over_members(loses_rank, own_params, system, q))

    def for_straight_code(self: C, many: bool) -> C:
        if self.manifold is None or not many:
            return self
        plan = dataclasses.replace(self.manifold.plan, fewest=True)
        return dataclasses.replace(self, manifold=dataclasses.replace(self.manifold, plan=plan))

    def rescued(self: C, status: int) -> C | None:
        stronger = None if self.manifold is None or status not in (0, OFF) else self.manifold.rescued()
        return None if stronger is None else dataclasses.replace(self, manifold=stronger)

    @property
    def linear_solver(self) -> str | None:
        return None if self.manifold is None else self.manifold.plan.description

    def remark(self, system: Any, q: Any) -> str:
        found = self._dependence(system, q)
        if found.smallest > SINGULAR:
            return "Newton's method did not converge with the sparsity found at the start; such steps are solved without it."
        return f"{found.named} depend on each other ({found.described}): a singular position, passed by least squares."

    def explain(self, status: int, mech: Mechanics, q: Any, dt: float) -> str:
        degenerate = vanishing(mech.system, np.asarray(q))
        if degenerate:
            return f": {degenerate}"
        found = self._dependence(mech.system, q)
        if found.smallest < SINGULAR:
            return (
                f": {found.named} depend on each other there ({found.described}), so that they do not determine the motion: a "
                "singular position. Remove a constraint that the others imply, or start away from such a position"
            )
        solved = self.manifold is None or self.manifold.way == "newton"
        what = "Newton's method did not converge" if solved else "no position on the constraint was found"
        return f": {what}. The step is too long for the curvature of the constraint; try dt = {dt / 4:g}"

    def _dependence(self, system: Any, q: Any) -> Dependence:
        q = np.asarray(q)
        m = jax.eval_shape(lambda x: Mechanics(system, q.shape).constraint(x), q).size
        return dependence(system, q, fallback(m) if self.manifold is None else self.manifold.plan)


# --- the solver of a system -----------------------------------------------------------------------------------------
_manifolds: BoundedCache[Any] = BoundedCache(64)


def find_manifold(solver: str, relaxation: Any, starts: Sequence[tuple[Any, Any]]) -> Manifold:
    """The constraint solver for a system, from a look at it near its starts."""
    key = (solver, *(start_key(system, q) for system, q in starts))
    constrained_ones = lambda: constrained_coordinates(*concrete(*starts[0], np.random.default_rng(3)))
    way, plan, found, constrained = _manifolds.get_or_make(key, lambda: (*_look(solver, starts), constrained_ones()))
    if found is not None:
        message = f"{found.named} depend on each other at q0 ({found.described}): the multipliers are the smallest that hold them."
        warnings.warn(message, stacklevel=5)
    return Manifold(way, plan, relaxation, constrained=constrained)


def _look(solver: str, starts: Sequence[tuple[Any, Any]]) -> tuple[str, Plan, Dependence | None]:
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
    looks = [dependence(*concrete(*start, np.random.default_rng(3)), plan) for start in starts]
    found = min(looks, key=lambda look: look.smallest)
    if found.smallest > DEPENDENT:
        return way, plan, None
    plan = least_squares(m)
    if plan.kind == "least-squares":
        plan = dataclasses.replace(
            plan, description=f"least squares in a basis of the normal space; at q0 {found.described}"
        )
    return way, plan, found


# --- the methods ----------------------------------------------------------------------------------------------------
class Moving(eqx.Module):
    """What Rattle carries."""

    q: Any
    p: Any  # not yet projected
    last: Any  # guesses that the drifts of the last step give for those of the next: the pulls G(q)ᵀμ of the constraint
    before: Any  # and those of the step before
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

    def __init__(
        self, base: Any = None, *, solver: str = "auto", relaxation: float = 1.0, manifold: Manifold | None = None
    ):
        base = (
            Verlet()
            if base is None
            else Splitting(choice(base, "base", "Rattle", TABLES))
            if isinstance(base, str)
            else as_method(base, "Rattle: base")
        )
        if not isinstance(base, (KickDrift, IMEX)) or not base.traits.symmetric:
            raise InputError(
                f"Rattle(base={base.name}): base is a symmetric splitting, such as Verlet() or Splitting('two-stage'), or IMEX()."
            )
        self.base, self.solver, self.relaxation, self.manifold = base, solver, relaxation, manifold

    @property
    def traits(self) -> Traits:
        return dataclasses.replace(
            self.base.traits, order=2, constrained=True, free=False, needs=("constraint", *self.base.traits.needs)
        )

    def prepare(self, starts: Sequence[tuple[Any, Any]]) -> Rattle:
        if not isinstance(self.base, IMEX):
            return super().prepare(starts)
        base = self.base.prepare(starts)
        if not base.quadratic:
            what = "needs a fast part that is a polynomial of degree two in q by its program, and this one is not"
            raise InputError(f"{self.name} {what}; use Rattle() with shorter steps.")
        # The inverse of the heavier mass has no structure, nor has G M⁻¹Gᵀ with it.
        kind = "dense" if self.solver in ("auto", "newton") else self.solver
        return Rattle(
            base,
            solver=self.solver,
            relaxation=self.relaxation,
            manifold=self.manifold or find_manifold(kind, self.relaxation, starts),
        )

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        return self.base.misfits(system, q, own_params) | super().misfits(system, q, own_params)

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
        shares = jnp.asarray([0.5] + [1.0] * (self._drifts - 1), q.dtype) / self._drifts
        guesses = jnp.multiply.outer(shares * dt, manifold.first_guess(mech, q, value(state.p)))
        force = (mech.force(q),) if self._carries_force(q) else ()
        length = jnp.zeros((), q.dtype)
        return Moving(
            state.q, state.p, guesses, guesses, (length, length), jnp.zeros((), int), force, self._inertia(mech, q, dt)
        )

    def rescale(self, mech: Mechanics, carry: Moving, dt: Array) -> Moving:
        # The first pull of a step also holds what the projection at the end of the step before would have removed: it
        # goes with half the sum of two lengths. No trend can be read from steps of different lengths.
        last, before = carry.lengths
        whole = last + before
        usable = jnp.abs(whole) > 1e-3 * jnp.abs(last)
        factor = jnp.where(usable, (dt + last) / jnp.where(usable, whole, 1.0), 1.0)
        guesses = carry.last.at[0].multiply(factor)
        lengths = (jnp.asarray(dt, last.dtype), last)
        return dataclasses.replace(
            carry, last=guesses, before=guesses, lengths=lengths, inertia=self._inertia(mech, value(carry.q), dt)
        )

    def step(self, mech: Mechanics, carry: Moving, dt: Array) -> Moving:
        manifold = self.held(mech, carry.q)
        moved = mech if carry.inertia is None else Heavier(mech, carry.inertia)

        def kick(moving: Carry, h: Array) -> Carry:
            q, p, guesses, i, status, force = moving
            return q, p + h * (force[0] if force else mech.force(q)), guesses, i, status, force

        def drift(moving: Carry, h: Array) -> Carry:
            q, p, guesses, i, status, force = moving
            here = value(q)
            placed = manifold.place(moved, here, value(p), h, guesses[i])
            p = p - placed.pull
            q = q + moved.displacement(p, h)
            q = q + manifold.polish(value(q)) if manifold.way == "rotation" else q
            found = manifold.guess(placed.impulse, placed.pull)
            guesses = found[None] if self._drifts == 1 else jax.lax.dynamic_update_index_in_dim(guesses, found, i, 0)
            force = (mech.force(q),) if force else ()
            return q, p, guesses, i + 1, jnp.where((status == 0) & ~placed.converged, OFF, status), force

        guess = 2 * carry.last - carry.before
        moving = (carry.q, carry.p, guess, jnp.zeros((), int), carry.status, carry.force)
        q, p, guesses, _, status, force = in_turn(self._stages, kick, drift, moving, dt, cheap_drift=False)
        return Moving(q, p, guesses, carry.last, carry.lengths, status, force, carry.inertia)

    def output(self, mech: Mechanics, carry: Moving) -> State:
        return self.shown(mech, carry.q, self.tangent(mech, carry.q, carry.p))

    def status(self, carry: Moving) -> Array:
        return carry.status


class Swinging(eqx.Module):
    """What Shake carries at q_n."""

    q: Any
    before: Any  # p_{n−½}
    after: Any  # p_{n+½}
    multipliers: Any  # λ_n
    last: Any  # guess for the next solve that the solve at q_n gives, by unit of time
    second_last: Any  # and that at q_{n−1}
    status: Any


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

    def _half(self, mech: Mechanics, q: Any, p: Any, kick: Array, h: Array, guess: Array) -> tuple[Any, Placed]:
        """p + kick·(f − Gᵀλ) such that a drift by h ends on the manifold, and the solution."""
        here = value(q)
        p = p + kick * mech.force(here)
        placed = self.held(mech, q).place(mech, here, value(p), h, guess * kick)
        return p - placed.pull, placed

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        q, manifold = state.q, self.held(mech, state.q)
        # Of two roots, as on a sphere, the one near the exact multipliers is meant.
        near = manifold.first_guess(mech, value(q), value(state.p))
        before, first = self._half(mech, q, state.p, -0.5 * dt, -dt, near)
        after, second = self._half(mech, q, before, dt, dt, near)
        guess, multipliers = self._by_length(manifold, second, dt)
        status = jnp.where(first.converged & second.converged, 0, OFF)
        return Swinging(q, before, after, multipliers, guess, guess, status)

    @staticmethod
    def _by_length(manifold: Manifold, placed: Placed, dt: Array) -> tuple[Array, Array]:
        """A guess for the next step, and λ."""
        return manifold.guess(placed.impulse, placed.pull) * (1 / dt), placed.impulse * (1 / dt)

    def step(self, mech: Mechanics, carry: Swinging, dt: Array) -> Swinging:
        between, manifold = carry.after, self.held(mech, carry.q)
        q = carry.q + mech.displacement(between, dt)
        q = q + manifold.polish(value(q))
        after, placed = self._half(mech, q, between, dt, dt, 2 * carry.last - carry.second_last)
        guess, multipliers = self._by_length(manifold, placed, dt)
        failed = (carry.status == 0) & ~placed.converged
        return Swinging(q, between, after, multipliers, guess, carry.last, jnp.where(failed, OFF, carry.status))

    def output(self, mech: Mechanics, carry: Swinging) -> State:
        p = 0.5 * (value(carry.before) + value(carry.after))
        return State(carry.q, p, extras={"multipliers": carry.multipliers})

    def reverse(self, carry: Swinging) -> Swinging:
        return dataclasses.replace(carry, before=carry.after, after=carry.before, second_last=carry.last)

    def status(self, carry: Swinging) -> Array:
        return carry.status
