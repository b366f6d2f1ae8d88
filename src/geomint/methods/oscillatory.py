"""Fast and slow together: methods for V + W whose step resolves V alone.

    IMEX     trapezoidal rule for V and midpoint rule for W in the action: explicit kicks by V, and between them an
             implicit midpoint step with W
    RESPA    kicks by V, and between them several Verlet steps with W (multiple time steps)

Methods with the exact flow of a quadratic W are in `trigonometric`.

For a W that is a polynomial of degree two, as its jaxpr shows, IMEX is Verlet with the mass M + (h²/4) Hess W:
no resonance, stable for every frequency as long as h is a stable step for V alone.

References: Stern, Grinspun, Multiscale Model. Simul. 7 (2009) 1779; Tuckerman, Berne, Martyna, J. Chem. Phys. 97
(1992) 1990; Hairer, Lubich, Wanner, chapter XIII.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.cache import BoundedCache
from ..numerics.compensated import value
from ..numerics.compilation import concrete_evaluation, jit
from ..numerics.linalg import KINDS, Plan, fallback
from ..numerics.linalg.discovery import concrete, not_covered, plan_for, start_key
from ..numerics.linalg.elimination import Factored
from ..numerics.linalg.structure import matrix_free_plan
from ..numerics.module import Module
from ..numerics.polynomials import degree
from ..system.checks import bounded, one_of, whole
from ..system.mechanics import Mechanics
from ..system.system import System
from .base import Carry, Method, State, Traits, register, setting
from .implicit import solved_by_plan
from .protocols import CanFail, DependsOnStepLength, FindsStructure
from .splitting import SMALL, OnManifold, Stages, Verlet

UNSOLVED = 1
# Units of rounding by which ∇W may differ from an affine function, relative; up to 250 were measured.
AFFINE_TOLERANCE = 1e4
O = TypeVar("O", bound="Oscillatory")

_TRAITS = Traits(
    2, symplectic=True, symmetric=True, reversible=True, energy="bounded", momentum_maps="all", needs=("fast",)
)


# --- what the fast part is ------------------------------------------------------------------------------------------
_sampled: BoundedCache[bool] = BoundedCache(64)
_proved: BoundedCache[bool] = BoundedCache(64)


def quadratic_everywhere(system: Any, q: Any) -> bool:
    """Whether the jaxpr of W proves that W is a polynomial of degree at most two: for all q, all params and all members
    of an ensemble."""
    by_hand = "fast_gradient" in system.overrides

    def gradient_or_energy(x: Array, stated: Any) -> Array:
        mech = Mechanics(stated, x.shape)
        return mech.fast_gradient(x) if by_hand else mech.fast_potential(x)

    where = jax.ShapeDtypeStruct(np.shape(q), jnp.result_type(float))
    leaves = tuple((np.shape(x), jnp.result_type(x)) for x in jax.tree.leaves(system))
    key = jax.tree.structure(system), leaves, where.shape
    return _proved.get_or_make(key, lambda: degree(gradient_or_energy, where, system) <= (1 if by_hand else 2))


def is_quadratic(starts: Sequence[tuple[Any, Any]]) -> bool:
    """Whether ∇W is an affine function of q: proved from its jaxpr, or else sampled at random points near and far from
    the starts."""
    if quadratic_everywhere(*starts[0]):
        return True
    look = lambda: all(_affine(*concrete(*start, np.random.default_rng(1))) for start in starts)
    return _sampled.get_or_make(tuple(start_key(system, q) for system, q in starts), look)


def _affine(system: System, q: np.ndarray) -> bool:
    with concrete_evaluation():
        return not deviates_from_quadratic(system, jnp.asarray(q, float))


@jit
def _deviation_from_affine(system: System, q: Array) -> Array:
    """How far ∇W is from an affine function around q, relative to its changes: the largest |∇W(q+a) + ∇W(q+b) −
    ∇W(q+a+b) − ∇W(q)| for displacements a, b near and far, in units of q and in units of 1."""
    gradient = Mechanics(system, q.shape).fast_gradient
    unit = jnp.max(jnp.abs(q), initial=0.0)
    units = jnp.stack([jnp.where(unit > 0, unit, 1.0), jnp.maximum(unit, 1.0)])
    lengths = jnp.multiply.outer(units, np.array([1e-2, 1.0, 30.0])).ravel()
    random = np.random.default_rng(11).normal(size=(lengths.size, 2, *q.shape))
    base = gradient(q)

    def at(length: Array, directions: Any) -> Array:
        a, b = length * directions
        rise = jax.vmap(gradient)(q + jnp.stack([a, b, a + b])) - base
        scale = jnp.maximum(jnp.max(jnp.abs(rise)), jnp.maximum(1e-3 * jnp.max(jnp.abs(base)), jnp.finfo(q.dtype).tiny))
        return jnp.max(jnp.abs(rise[0] + rise[1] - rise[2])) / scale

    worst = jnp.max(jax.vmap(at)(lengths, random))
    return jnp.where(jnp.isfinite(worst), worst, jnp.inf)


def deviates_from_quadratic(system: System, q: Array) -> Array:
    """Whether W is seen not to be quadratic around q."""
    return ~(_deviation_from_affine(system, q) < AFFINE_TOLERANCE * jnp.finfo(q.dtype).eps)


def _stiffness_product(system: System, x: Array, v: Array) -> Array:
    """(M + Hess W) v, for the search of structure."""
    mech, v = Mechanics(system, x.shape), v.reshape(x.shape)
    return (mech.momentum(v) + mech.fast_hessian_product(x, v)).ravel()


class Oscillatory(FindsStructure):
    """What the family shares: the structure of M + Hess W, and whether W is quadratic everywhere, found before the run.

    solver:  "auto", or "blocks", "banded", "dense", "matrix-free" to override what is found
    """

    solver: str = setting(one_of(*KINDS), "auto", kw_only=True)
    plan: Plan | None = eqx.field(static=True, default=None, kw_only=True, metadata={"found": True})
    quadratic: bool | None = eqx.field(static=True, default=None, kw_only=True, metadata={"found": True})

    @property
    def traits(self) -> Traits:
        return _TRAITS

    def prepare(self: O, starts: Sequence[tuple[Any, Any]]) -> O:
        if self.plan is not None:
            return self
        n = int(np.prod(np.shape(starts[0][1])))
        quadratic = quadratic_everywhere(*starts[0]) if self.quadratic is None else self.quadratic
        return dataclasses.replace(self, plan=plan_for(_stiffness_product, starts, n, self.solver), quadratic=quadratic)

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        return not_covered(_stiffness_product, self.plan, system, q, own_params)

    @property
    def linear_solver(self) -> str | None:
        return None if self.plan is None else self.plan.description


# --- IMEX -----------------------------------------------------------------------------------------------------------
class StepLength(Module):
    """In place of factors, where the modified mass is too large to be factored: conjugate gradients need h only."""

    h: Array


class ModifiedMass(Module):
    """Mechanics with the mass M + (h²/4) Hess W in place of M, for drifts."""

    mech: Mechanics
    factored: Factored | StepLength
    one_mass: ClassVar[bool] = False

    def velocity(self, p: Any) -> Array:
        p = value(p)
        if isinstance(self.factored, StepLength):
            apply = _modified(self.mech, jnp.zeros_like(p), self.factored.h)
            diagonal = self.mech.inertia.diagonal(p.shape).ravel()
            return matrix_free_plan(p.size).solve(apply, p.ravel(), diagonal).x.reshape(p.shape)
        return self.factored.solve(p.ravel()).reshape(p.shape)

    def displacement(self, p: Any, h: Array) -> Array:
        return h * self.velocity(p)

    def after(self, h: Array) -> ModifiedMass:
        return self  # IMEX takes no system that depends on the time

    def constraint(self, q: Any) -> Array:
        return self.mech.constraint(q)

    def constraint_pull(self, q: Any) -> Callable[[Array], Array]:
        return self.mech.constraint_pull(q)


def _modified(mech: Mechanics, q: Array, h: Array) -> Callable[[Array], Array]:
    """v → (M + (h²/4) Hess W) v on flat vectors; W is quadratic, so any q will do."""

    def apply(v: Array) -> Array:
        v = v.reshape(q.shape)
        return (mech.momentum(v) + 0.25 * h**2 * mech.fast_hessian_product(q, v)).ravel()

    return apply


@register()
class IMEX(Oscillatory, OnManifold, CanFail, DependsOnStepLength):
    """Variational implicit-explicit method: p⁺ = p − (h/2)∇V(q); the midpoint rule with W from (q, p⁺) to (q', p⁻);
    p' = p⁻ − (h/2)∇V(q').

    If the jaxpr of W proves that W is quadratic, this is p ← p + (h/2)f(q), q ← q + h(M + (h²/4)Hess W)⁻¹p,
    p ← p + (h/2)f(q), f = −∇(V + W): one factorisation for each length of step. Otherwise the midpoint is found by
    Newton's method, with the structure of Hess W. Not unconditionally stable for a W that is not quadratic.
    """

    failures: ClassVar[Mapping[int, str]] = {
        UNSOLVED: "Newton's method for the implicit midpoint of the fast part did not converge; try a smaller dt"
    }

    @property
    def stages(self) -> Stages:
        return Verlet().stages

    def drift_mass(self, mech: Mechanics, q: Array, dt: Array) -> Any:
        return self.modified_mass(mech, q, dt).factored

    def drift_mechanics(self, mech: Mechanics, mass: Any) -> Any:
        return ModifiedMass(mech, mass)

    def prepared_on_manifold(self, starts: Sequence[tuple[Any, Any]], caller: str) -> IMEX:
        ready = self.prepare(starts)
        if not ready.quadratic:
            what = "needs a fast part that JAX traces as a polynomial of degree two in q, and this one is not"
            raise InputError(f"{caller} {what}; use Rattle() with shorter steps.")
        # Always a copy, even where nothing had to be found: Rattle.prepare takes the same object to mean that the mass
        # of the drifts is M, which it is not here.
        return dataclasses.replace(ready)

    def modified_mass(self, mech: Mechanics, q: Array, h: Array) -> ModifiedMass:
        """The modified mass, factored for steps of length h."""
        plan = self.plan or fallback(q.size)
        if plan.kind == "matrix-free":
            return ModifiedMass(mech, StepLength(jnp.asarray(h, q.dtype)))
        return ModifiedMass(mech, plan.factor(_modified(mech, q, h), q.dtype))

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        q = value(state.q)
        if not self.quadratic:
            return state.q, state.p, mech.slow_force(q), jnp.zeros((), int)
        force = None if q.size <= SMALL else mech.force(q)
        return state.q, state.p, force, self.modified_mass(mech, q, dt).factored

    def rescale(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        q, p, force, _ = carry
        return (q, p, force, self.modified_mass(mech, value(q), dt).factored) if self.quadratic else carry

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        q, p, force, rest = carry
        p = p + 0.5 * dt * (mech.force(q) if force is None else force)
        if self.quadratic:
            q = q + ModifiedMass(mech, rest).displacement(p, dt)
            again = mech.force(q)
            return q, p + 0.5 * dt * again, None if force is None else again, rest
        here, plan = value(q), self.plan or fallback(value(q).size)
        start = mech.displacement(p, dt)
        # M d = h p⁺ − (h²/2)∇W(q + d/2) for d = q' − q.
        residual = lambda d: mech.momentum(d - start) + 0.5 * dt**2 * mech.fast_gradient(here + 0.5 * d)
        move, converged = solved_by_plan(mech, plan, residual, jnp.zeros_like(here), here)
        inner = mech.fast_gradient(here + 0.5 * move)
        q = q + (start - 0.5 * dt**2 * mech.velocity(inner))
        force = mech.slow_force(q)
        return q, p + (0.5 * dt * force - dt * inner), force, jnp.where(converged, rest, UNSOLVED)

    def output(self, mech: Mechanics, carry: Carry) -> State:
        return State(carry[0], carry[1])

    def status(self, carry: Carry) -> Array | None:
        return None if self.quadratic else carry[3]


# --- multiple time steps --------------------------------------------------------------------------------------------
@register({"inner": 4})
class RESPA(Method):
    """Verlet-I/r-RESPA: half a kick by V, `inner` Verlet steps of length h/inner with W (in drift form), half a kick
    by V.

    Resonant (unstable) where the inner steps advance the phase of the fast motion by a multiple of π; for many inner
    steps this is near hω = π, 2π, …
    """

    inner: int = setting(bounded(whole, least=1, most=10**6), 4)

    @property
    def traits(self) -> Traits:
        return dataclasses.replace(_TRAITS, forces=1)

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        return state.q, state.p, mech.slow_force(state.q)

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        q, p, force = carry
        h = dt / self.inner
        p = p + 0.5 * dt * force

        def small(_: int, moving: Carry) -> Carry:
            q, p = moving
            q = q + mech.displacement(p, 0.5 * h)
            p = p + h * mech.fast_force(q)
            return q + mech.displacement(p, 0.5 * h), p

        q, p = jax.lax.fori_loop(0, self.inner, small, (q, p))
        force = mech.slow_force(q)
        return q, p + 0.5 * dt * force, force

    def output(self, mech: Mechanics, carry: Carry) -> State:
        return State(carry[0], carry[1])
