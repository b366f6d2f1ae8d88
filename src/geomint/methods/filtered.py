"""Coarse steps through stiffness: the linearly implicit variational family of Zhang, Skeel, Tao and Owhadi.

One idea covers the family. A *filter* replaces the force by a softened one, and velocity Verlet moves the result:

    p ← p + (h/2) F(x),   x ← x + h M⁻¹p,   p ← p + (h/2) F(x),        c = βh².

    Zhang–Skeel              (M + cH) a = −∇U,   F = M a − ½c² a·U'''·a = −∇Ũ,   Ũ = U − ½c ∇Uᵀ(M + cH)⁻¹∇U
    simplified Zhang–Skeel   the same a,         F = M a                          (not a gradient: not symplectic)
    stiff Zhang–Skeel        (M + cH_W) a = −∇(V + W),   F = M a                  (filters the fast part alone)
    pushforward Newmark      M a = −∇U(x + c a), F = M a = −∇Ũ,   Ũ the Moreau envelope of U

x is the canonical variable. What the softened system does to the original one is seen at q = x + c a(x): observables,
penalised constraints and multipliers are read there. Newmark's method in q is pushforward Newmark seen through that
map.

The filter depends on h: a composition makes it anew for every substep.

Hypotheses: M + cH positive definite; U of class C³ for Zhang–Skeel. On penalised problems Zhang–Skeel needs
h²ω ≲ .3, since Ũ contains about ω²g³/4; pushforward Newmark does not.

References: Zhang, Skeel, Appl. Numer. Math. 25 (1997) 297; Skeel, Zhang, Schlick, SIAM J. Sci. Comput. 18 (1997) 203;
Tao, Owhadi, IMA J. Numer. Anal. (2015).
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import outside
from ..numerics.compensated import value
from ..numerics.compilation import jit
from ..numerics.linalg import KINDS, Plan, fallback
from ..numerics.linalg.discovery import not_covered, plan_for
from ..system.checks import bounded, number, one_of
from ..system.mechanics import Mechanics
from ..system.system import System
from .base import Carry, State, Traits, register, setting
from .implicit import solved_by_plan
from .protocols import CanFail, DependsOnStepLength, FindsStructure, InterruptsDrift, Middle, WarnsOfStep

INDEFINITE, CHANGED, UNSOLVED = 1, 2, 3
SMALL = 32  # unknowns up to which the matrix is simply formed: it costs little, and no pattern has to be relied on
F = TypeVar("F", bound="Filtered")


class Filter(NamedTuple):
    """What a filter makes of a point x."""

    force: Array  # F(x)
    shift: Array  # c a(x): q = x + shift
    status: Array


class Filtered(FindsStructure, CanFail, DependsOnStepLength, WarnsOfStep, InterruptsDrift):
    """Kick, drift, kick with a filtered force."""

    failures: ClassVar[Mapping[int, str]] = {
        INDEFINITE: "M + βh²·Hess U is not positive definite",
        CHANGED: (
            "the sparsity of the Hessian is no longer the one found at the start; "
            "give solver='dense' or solver='matrix-free'"
        ),
        UNSOLVED: "Newton's method for the filtered acceleration did not converge; try a smaller dt",
    }
    beta: float = setting(bounded(number, least=0.0), 0.3, static=False)
    solver: str = setting(one_of(*KINDS), "auto")
    plan: Plan | None = eqx.field(static=True, default=None, metadata={"found": True})

    # --- the filter -------------------------------------------------------------------------------------------------
    def curvature(self, mech: Mechanics, x: Array, a: Array) -> Array:
        """H a: the Hessian product that is filtered."""
        return mech.hessian_product(x, a)

    @abc.abstractmethod
    def filter(self, mech: Mechanics, x: Array, h: Array) -> Filter:
        """F(x) and c a(x) for steps of length h."""

    def filtered_potential(self, mech: Mechanics, x: Array, shift: Array) -> Array | None:
        """Ũ(x), where F is its gradient."""
        return None

    def filtered_acceleration(self, mech: Mechanics, x: Array, h: Array) -> tuple[Array, Array]:
        """a with (M + cH) a = −∇U(x), and the status of that solve."""
        c = self.beta * h**2
        apply = lambda v: (mech.momentum(v.reshape(x.shape)) + c * self.curvature(mech, x, v.reshape(x.shape))).ravel()
        plan = self.plan or fallback(x.size)
        a, pivot = plan.solve(apply, mech.force(x).ravel(), mech.inertia.diagonal(x.shape).ravel())
        return a.reshape(x.shape), jnp.where(pivot > 0, 0, INDEFINITE)

    def status_of_pattern(self, status: Array, residual: Array, force: Array) -> Array:
        """The pattern of the Hessian was found at the start; a residual far above round-off says that it has
        changed."""
        if self.plan is None or not self.plan.assembled:
            return status
        off = jnp.max(jnp.abs(residual)) > 1e-8 * jnp.max(jnp.abs(force))
        return jnp.where((status == 0) & off, CHANGED, status)

    # --- the loop ---------------------------------------------------------------------------------------------------
    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        return self._begin(mech, state.q, state.p, dt, jnp.zeros((), int))

    def _begin(self, mech: Mechanics, x: Any, p: Any, h: Array, status: Array) -> Carry:
        force, shift, failed = self.filter(mech, value(x), h)
        return x, p, force, shift, jnp.maximum(status, failed)

    def rescale(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        x, p, _, _, status = carry
        return self._begin(mech, x, p, dt, status)

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        x, p, force, _, status = carry
        p = p + 0.5 * dt * force
        return self._second_kick(mech, x + mech.displacement(p, dt), p, status, dt)

    def _second_kick(self, mech: Mechanics, x: Any, p: Any, status: Array, dt: Array) -> Carry:
        force, shift, failed = self.filter(mech, value(x), dt)
        p = p + 0.5 * dt * force
        return x, p, force, shift, jnp.maximum(status, failed)

    @property
    def has_one_drift(self) -> bool:
        return True

    def step_interrupted(self, mech: Mechanics, carry: Carry, dt: Array, middle: Middle) -> tuple[Carry, Any]:
        x, p, force, _, status = carry
        p = p + 0.5 * dt * force
        x = x + mech.displacement(p, 0.5 * dt)
        p, more = middle(x, p)
        return self._second_kick(mech, x + mech.displacement(p, 0.5 * dt), p, status, dt), more

    def output(self, mech: Mechanics, carry: Carry) -> State:
        x, p, _, shift, _ = carry
        extras = {"q_filtered": value(x) + shift}
        soft = self.filtered_potential(mech, value(x), shift)
        if soft is not None:
            extras["filtered_energy"] = mech.kinetic(p) + soft
        return State(x, p, extras=extras)

    def status(self, carry: Carry) -> Array:
        return carry[4]

    # --- before and after a run -------------------------------------------------------------------------------------
    def prepare(self: F, starts: Sequence[tuple[Any, Any]]) -> F:
        if self.plan is not None:
            return self
        n = int(np.prod(np.shape(starts[0][1])))
        if self.solver == "auto" and n <= SMALL:
            return dataclasses.replace(self, plan=fallback(n))
        return dataclasses.replace(self, plan=plan_for(_operator(type(self)), starts, n, self.solver))

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        return not_covered(_operator(type(self)), self.plan, system, q, own_params)

    @property
    def linear_solver(self) -> str | None:
        return None if self.plan is None else self.plan.description

    def explain(self, status: int, mech: Mechanics, q: Any, dt: float) -> str:
        if status != INDEFINITE or not np.all(np.isfinite(self.curvature(mech, jnp.asarray(q), jnp.ones(np.shape(q))))):
            return ""
        lowest = _lowest_eigenvalue(
            lambda v: mech.momentum(v) + self.beta * dt**2 * self.curvature(mech, jnp.asarray(q), v), q
        )
        what = f"its smallest eigenvalue there is about {lowest:.3g}"
        return f": {what}. The potential has negative curvature there; try a smaller dt or beta"

    def warn(self, system: System, q: Any, dt: float) -> None:
        omega = getattr(system.fast, "omega", None)
        if (
            omega is not None
            and dt**2 * float(omega) > 0.3
            and self.traits.symplectic
            and not isinstance(self, PushforwardNewmark)
        ):
            warnings.warn(
                f"h²ω = {dt**2 * float(omega):.2g} is above .3: on a penalised system {self.name} becomes "
                f"unstable there. Take dt < {np.sqrt(0.3 / float(omega)):.2g}, a smaller omega, or PushforwardNewmark.",
                stacklevel=outside(),
            )
        if self.beta >= 0.25:
            return
        highest = float(
            highest_frequency(
                system, jnp.asarray(q, float), jnp.asarray(np.random.default_rng(0).normal(size=np.shape(q)))
            )
        )
        limit = 2 / np.sqrt(1 - 4 * self.beta)
        if dt * highest > limit:
            warnings.warn(
                f"hω = {dt * highest:.3g} for the fastest linear motion at q0, above the limit 2/√(1−4β) = "
                f"{limit:.3g} of {self.name}. Take dt < {limit / highest:.2g}, or beta ≥ ¼.",
                stacklevel=outside(),
            )


@functools.cache
def _operator(kind: type[Filtered]) -> Any:
    """(M + H) v as a function of (system, x, v), for the search of structure."""

    def product(system: System, x: Array, v: Array) -> Array:
        mech, v = Mechanics(system, x.shape), v.reshape(x.shape)
        return (mech.momentum(v) + kind.curvature(kind(), mech, x, v)).ravel()

    return product


def _lowest_eigenvalue(apply: Any, q: Any) -> float:
    """By Lanczos on the flat operator, or densely where it is small."""
    from scipy.sparse.linalg import aslinearoperator, eigsh

    n, shape = np.size(q), np.shape(q)
    flat = jit(lambda v: apply(v.reshape(shape)).ravel())
    if n <= 200:
        return float(np.linalg.eigvalsh(np.stack([flat(e) for e in jnp.eye(n)]))[0])
    operator = aslinearoperator(_Flat(flat, n))
    return float(eigsh(operator, k=1, which="SA", return_eigenvectors=False)[0])


class _Flat:
    """An operator in the form of scipy's eigsh (Lanczos)."""

    def __init__(self, apply: Any, n: int):
        self.apply, self.shape, self.dtype = apply, (n, n), np.dtype(float)

    def matvec(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(self.apply(jnp.asarray(v.ravel())))


@jit
def highest_frequency(system: System, q: Array, v: Array) -> Array:
    """The square root of the largest eigenvalue of M⁻¹H at q, by thirty rounds of the power method from v."""
    mech = Mechanics(system, q.shape)

    def round_(_: int, s: tuple[Array, Array]) -> tuple[Array, Array]:
        w = mech.velocity(mech.hessian_product(q, s[0]))
        size = jnp.sqrt(jnp.sum(w**2))
        return w / jnp.where(size > 0, size, 1.0), size

    return jnp.sqrt(jax.lax.fori_loop(0, 30, round_, (v, jnp.zeros((), q.dtype)))[1])


def _traits(**settings: Any) -> Traits:
    usual = {
        "symplectic": True,
        "symmetric": True,
        "reversible": True,
        "energy": "bounded",
        "momentum_maps": "all",
        "needs": ("hessian",),
    }
    return Traits(2, **(usual | settings))


@register()
class ZhangSkeel(Filtered):
    """The exactly symplectic linearly implicit method (Tao and Owhadi's integrator 1.1): one linear solve a step.

    The third-derivative term costs a derivative of a Hessian product; no tensor is formed.
    """

    @property
    def traits(self) -> Traits:
        return _traits()

    def filter(self, mech: Mechanics, x: Array, h: Array) -> Filter:
        c = self.beta * h**2
        a, status = self.filtered_acceleration(mech, x, h)
        along = lambda y: mech.hessian_product(y, a)
        hessian_product, third = jax.jvp(along, (x,), (a,))  # H a and a·U'''·a
        inertial = mech.momentum(a)
        force = mech.force(x)
        status = self.status_of_pattern(status, inertial + c * hessian_product - force, force)
        return Filter(inertial - 0.5 * c**2 * third, c * a, status)

    def filtered_potential(self, mech: Mechanics, x: Array, shift: Array) -> Array:
        # ½c ∇Uᵀ(M + cH)⁻¹∇U = −½ ∇U·(c a)
        return mech.potential(x) + 0.5 * jnp.sum(mech.gradient(x) * shift)


@register()
class SimplifiedZhangSkeel(Filtered):
    """Zhang–Skeel without the third-derivative term: as stable, but F is no gradient, so it is symplectic only in one
    dimension or where the eigenvectors of the Hessian are constant."""

    @property
    def traits(self) -> Traits:
        return _traits(symplectic=False, volume=True, momentum_maps="linear")

    def filter(self, mech: Mechanics, x: Array, h: Array) -> Filter:
        c = self.beta * h**2
        a, status = self.filtered_acceleration(mech, x, h)
        inertial = mech.momentum(a)
        if self.plan is not None and self.plan.assembled:
            force = mech.force(x)
            status = self.status_of_pattern(status, inertial + c * self.curvature(mech, x, a) - force, force)
        return Filter(inertial, c * a, status)


@register()
class StiffZhangSkeel(SimplifiedZhangSkeel):
    """Simplified Zhang–Skeel that filters only the fast part (integrator 2.6): the matrix is M + c·Hess W, block
    diagonal for molecules. Angular momentum is not kept (a torque of order βh²)."""

    @property
    def traits(self) -> Traits:
        return _traits(symplectic=False, volume=True, momentum_maps="linear", needs=("fast", "hessian"))

    def curvature(self, mech: Mechanics, x: Array, a: Array) -> Array:
        return mech.fast_hessian_product(x, a)


@register()
class PushforwardNewmark(Filtered):
    """Newmark's method (γ = ½) in its canonical variable: Verlet on the Moreau envelope of U. Nonlinearly implicit."""

    @property
    def traits(self) -> Traits:
        return _traits()

    def filter(self, mech: Mechanics, x: Array, h: Array) -> Filter:
        """M s = c f(x + s) by Newton's method, whose matrix M + c·Hess U(x + s) has the structure of the others."""
        c, plan = self.beta * h**2, self.plan or fallback(x.size)
        residual = lambda s: mech.momentum(s) - c * mech.force(x + s)
        # From zero: c M⁻¹f(x) would overshoot by cω² where the problem is stiff; the first Newton step is
        # Zhang–Skeel's.
        shift, converged = solved_by_plan(mech, plan, residual, jnp.zeros_like(x), x)
        return Filter(mech.force(x + shift), shift, jnp.where(converged, 0, UNSOLVED))

    def filtered_potential(self, mech: Mechanics, x: Array, shift: Array) -> Array:
        # U(q) + |q − x|²_M / 2c at q = x + shift, and M shift = c F
        return mech.potential(x + shift) + 0.5 * jnp.sum(mech.force(x + shift) * shift)


@register({}, {"newton_steps": 1})
class Newmark(PushforwardNewmark):
    """Newmark's method (γ = ½): q' = q + hv + h²((½−β)a + βa'), v' = v + (h/2)(a + a'), a = M⁻¹f(q).

    Pushforward Newmark seen in q = x + c a: variational, but it keeps another symplectic form than dq ∧ dp.
    `newton_steps=1` solves the implicit equation for a' by a single Newton step from q and goes on with the result:
    still consistent, no longer symmetric; on stiff problems it damps the motion to rest, which is the paper's warning.
    """

    newton_steps: int | None = setting(one_of(1, none=True), None)

    @property
    def traits(self) -> Traits:
        linear = self.newton_steps == 1
        return _traits(
            symplectic=False,
            symmetric=not linear,
            reversible=not linear,
            energy=None if linear else "bounded",
            momentum_maps="linear",
        )

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        return self._from_q(mech, state.q, state.p, dt, jnp.zeros((), int))

    def rescale(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        x, p, _, shift, status = carry
        return self._from_q(mech, x + shift, p, dt, status)

    def _from_q(self, mech: Mechanics, q: Any, p: Any, h: Array, status: Array) -> Carry:
        force = mech.force(q)
        if self.newton_steps == 1:
            return q, p, force, jnp.zeros_like(force), status
        shift = self.beta * h**2 * mech.velocity(force)
        return q - shift, p, force, shift, status

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        if self.newton_steps is None:
            return super().step(mech, carry, dt)
        q, p, force, shift, status = carry
        c, here = self.beta * dt**2, value(q)
        hessian = lambda v: mech.hessian_product(here, v.reshape(here.shape))
        apply = lambda v: mech.momentum(v.reshape(here.shape)).ravel() + c * hessian(v).ravel()
        # q' = q + move + c a' with M a' = f(q') linearised at q. The matrix of a Newton step need not be positive
        # definite, so the pivot is not checked.
        move = mech.displacement(p, dt) + (0.5 - self.beta) * dt**2 * mech.velocity(force)
        right = (mech.force(here) - hessian(move)).ravel()
        a, _ = (self.plan or fallback(here.size)).solve(apply, right, mech.inertia.diagonal(here.shape).ravel())
        if self.plan is not None and self.plan.assembled:
            status = self.status_of_pattern(status, apply(a) - right, right)
        a = a.reshape(here.shape)
        new_force = mech.momentum(a)
        return q + (move + c * a), p + 0.5 * dt * (force + new_force), new_force, shift, status

    def output(self, mech: Mechanics, carry: Carry) -> State:
        return State(value(carry[0]) + carry[3], carry[1])
