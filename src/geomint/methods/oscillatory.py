"""Fast and slow together: methods for V + W whose step resolves V alone.

    IMEX               trapezoidal rule for V, midpoint rule for W in the action: explicit kicks, implicit midpoint between
    RESPA              kicks by V, and between them several Verlet steps with W (multiple time steps)
    Impulse            kicks by V, and between them the exact flow of a quadratic W
    Trigonometric      the exact flow of a quadratic W, with filters for the slow force (Gautschi and its relatives)

For a quadratic W, found by itself, IMEX is Verlet with the mass M + (h²/4) Hess W: no resonance, stable for every frequency
as long as h is a stable step for V alone.

References: Stern, Grinspun, Multiscale Model. Simul. 7 (2009) 1779; Tuckerman, Berne, Martyna, J. Chem. Phys. 97 (1992) 1990;
García-Archilla, Sanz-Serna, Skeel, SIAM J. Sci. Comput. 20 (1998) 930; Hairer, Lubich, Wanner, chapter XIII.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..arithmetic import value
from ..checks import bounded, one_of, whole
from ..errors import InputError
from ..linalg import KINDS, Plan, fallback, newton
from ..linalg.elimination import Factored
from ..mechanics import Mechanics
from ..system import System
from .base import Carry, Method, State, Traits, register, setting
from .planning import concrete, plan_for, start_key
from .splitting import SMALL

UNSOLVED = 1
DENSE = 600  # coordinates up to which the fast part is diagonalised
O = TypeVar("O", bound="Oscillatory")

_TRAITS = Traits(2, symplectic=True, symmetric=True, reversible=True, energy="bounded", momentum_maps="all", needs=("fast",))


# --- what the fast part is ------------------------------------------------------------------------------------------
_quadratic: dict[Any, bool] = {}


def is_quadratic(starts: Sequence[tuple[Any, Any]]) -> bool:
    """Whether ∇W is an affine function of q, tried at random points around the starts, near and far."""
    key = tuple(start_key(system, q) for system, q in starts)
    if key not in _quadratic:
        while len(_quadratic) >= 64:
            _quadratic.pop(next(iter(_quadratic)))
        _quadratic[key] = all(_affine(*concrete(system, q, np.random.default_rng(1))) for system, q in starts)
    return _quadratic[key]


def _affine(system: System, q: np.ndarray) -> bool:
    random = np.random.default_rng(11)
    with jax.ensure_compile_time_eval():
        gradient = jax.jit(lambda x: Mechanics(system, q.shape).fast_gradient(x))
        base = np.asarray(gradient(jnp.asarray(q, float)))
        for size in (1e-2, 1.0, 30.0):
            a, b = (size * random.normal(size=q.shape) for _ in range(2))
            rise = [np.asarray(gradient(jnp.asarray(q + x))) - base for x in (a, b, a + b)]
            scale = max(1e-300, *(float(np.max(np.abs(x))) for x in rise), 1e-3 * float(np.max(np.abs(base))))
            if not float(np.max(np.abs(rise[0] + rise[1] - rise[2]))) < 1e-11 * scale:
                return False
    return True


def _stiffness_product(system: System, x: Array, v: Array) -> Array:
    """(M + Hess W) v, for the search of structure."""
    mech, v = Mechanics(system, x.shape), v.reshape(x.shape)
    return (mech.momentum(v) + mech.fast_hessian_product(x, v)).ravel()


class Oscillatory(Method):
    """What the family shares: the structure of M + Hess W, and whether W is quadratic, found before the run.

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
        return dataclasses.replace(self, plan=plan_for(_stiffness_product, starts, n, self.solver), quadratic=is_quadratic(starts))

    @property
    def linear_solver(self) -> str | None:
        return None if self.plan is None else self.plan.description


# --- IMEX -----------------------------------------------------------------------------------------------------------
class Heavier(eqx.Module):
    """Mechanics with the mass M + (h²/4) Hess W in place of M, for drifts."""

    mech: Mechanics
    factored: Factored
    one_mass: ClassVar[bool] = False

    def velocity(self, p: Any) -> Array:
        p = value(p)
        return self.factored.solve(p.ravel()).reshape(p.shape)

    def displacement(self, p: Any, h: Array) -> Array:
        return h * self.velocity(p)

    def constraint(self, q: Any) -> Array:
        return self.mech.constraint(q)

    def constraint_pull(self, q: Any) -> Callable[[Array], Array]:
        return self.mech.constraint_pull(q)


@register()
class IMEX(Oscillatory):
    """Variational implicit-explicit method: p⁺ = p − (h/2)∇V(q); the midpoint rule with W from (q, p⁺) to (q', p⁻);
    p' = p⁻ − (h/2)∇V(q').

    For a quadratic W this is p ← p + (h/2)f(q), q ← q + h(M + (h²/4)Hess W)⁻¹p, p ← p + (h/2)f(q), f = −∇(V + W): one
    factorisation for each length of step. Otherwise the midpoint is found by Newton's method, with the structure of Hess W.
    Not unconditionally stable for a W that is not quadratic.
    """

    failures: ClassVar[dict[int, str]] = {UNSOLVED: "Newton's method for the implicit midpoint of the fast part did not converge; try a smaller dt"}

    def heavier(self, mech: Mechanics, q: Array, h: Array) -> Heavier:
        """The modified mass, factored for steps of length h; its W is quadratic, so any q will do."""
        apply = lambda v: (mech.momentum(v.reshape(q.shape)) + 0.25 * h**2 * mech.fast_hessian_product(q, v.reshape(q.shape))).ravel()
        return Heavier(mech, (self.plan or fallback(q.size)).factor(apply, q.dtype))

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        q = value(state.q)
        if not self.quadratic:
            return state.q, state.p, mech.slow_force(q), jnp.zeros((), int)
        force = None if q.size <= SMALL else mech.force(q)
        return state.q, state.p, force, self.heavier(mech, q, dt).factored

    def rescale(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        q, p, force, _ = carry
        return (q, p, force, self.heavier(mech, value(q), dt).factored) if self.quadratic else carry

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        q, p, force, rest = carry
        p = p + 0.5 * dt * (mech.force(q) if force is None else force)
        if self.quadratic:
            q = q + Heavier(mech, rest).displacement(p, dt)
            again = mech.force(q)
            return q, p + 0.5 * dt * again, None if force is None else again, rest
        here, plan = value(q), self.plan or fallback(value(q).size)
        start = mech.displacement(p, dt)
        # M d = h p⁺ − (h²/2)∇W(q + d/2) for d = q' − q.
        residual = lambda d: mech.momentum(d - start) + 0.5 * dt**2 * mech.fast_gradient(here + 0.5 * d)
        linear_solve = lambda apply, r: plan.solve(lambda v: apply(v.reshape(here.shape)).ravel(), r.ravel()).x.reshape(here.shape)
        move, converged = newton(residual, jnp.zeros_like(here), jnp.max(jnp.abs(here)), linear_solve)
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
    """Verlet-I/r-RESPA: half a kick by V, `inner` Verlet steps of length h/inner with W, half a kick by V.

    Unstable where the inner steps turn the fast motion by a multiple of π, near hω = π, 2π, … for many of them: resonance.
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


# --- the exact flow of a quadratic fast part ------------------------------------------------------------------------
def sinc(x: Array) -> Array:
    """sin x / x."""
    return jnp.sinc(x / jnp.pi)


Filter = Callable[[Array], Array]
# name -> (ψ, φ) of q' = cos(hΩ)q + h sinc(hΩ)v + ½h²Ψg(Φq); symmetric, with ψ₁ = ψ/sinc and ψ₀ = cos ψ₁. Symplectic where ψ = sinc φ.
FILTERS: dict[str, tuple[Filter, Filter]] = {
    "gautschi": (lambda x: sinc(x / 2) ** 2, jnp.ones_like),
    "deuflhard": (sinc, jnp.ones_like),
    "garcia-archilla": (lambda x: sinc(x) ** 2, sinc),
    "hochbruck-lubich": (lambda x: sinc(x / 2) ** 2, lambda x: sinc(x) * (1 + jnp.sin(x / 2) ** 2 / 3)),
    "hairer-lubich": (lambda x: sinc(x) ** 2, jnp.ones_like),
    "grimm-hochbruck": (lambda x: sinc(x) ** 3, sinc),
}
SYMPLECTIC = ("deuflhard", "garcia-archilla")


class Flow(eqx.Module):
    """Functions of hΩ for one h, Ω² = M⁻¹ Hess W, on arrays of the shape of q: numbers for each coordinate where Ω is
    diagonal, matrices where not."""

    functions: dict[str, Array]
    shift: Array  # the rest position of W: the oscillation is about it

    def apply(self, name: str, x: Array) -> Array:
        f = self.functions[name]
        return f * x if f.ndim == x.ndim and f.shape == x.shape else (f @ x.ravel()).reshape(x.shape)


@register({"filter": "hochbruck-lubich"}, {"filter": "hairer-lubich"}, {"filter": "grimm-hochbruck"})
class Trigonometric(Oscillatory):
    """q' = cos(hΩ)q + Ω⁻¹sin(hΩ)v + ½h²Ψg,   v' = −Ω sin(hΩ)q + cos(hΩ)v + ½h(Ψ₀g + Ψ₁g'),   g = −M⁻¹∇V(Φq),

    for a quadratic fast part, by the name of its filters ψ, φ; `gm.methods.FILTERS` lists them. Exact where V = 0.
    """

    filter: str = setting(one_of(*FILTERS), "hairer-lubich")

    @property
    def traits(self) -> Traits:
        symplectic = self.filter in SYMPLECTIC
        return dataclasses.replace(_TRAITS, symplectic=symplectic, momentum_maps="all" if symplectic else None, needs=("fast", "quadratic fast"), forces=1)

    def prepare(self, starts: Sequence[tuple[Any, Any]]) -> Any:
        ready = super().prepare(starts)
        if not ready.quadratic:
            raise InputError(f"{self.name} follows the exact flow of a quadratic fast part, and this one is not quadratic; use IMEX or RESPA.")
        if np.size(starts[0][1]) > DENSE and not _diagonal(ready.plan):
            raise InputError(f"{self.name} diagonalises the fast part, here of {np.size(starts[0][1])} coordinates, more than {DENSE}; use IMEX, which need not.")
        return ready

    def flow(self, mech: Mechanics, q: Array, h: Array) -> Flow:
        """Everything that a step of length h applies."""
        psi, phi = FILTERS[self.filter]
        first = lambda x: psi(x) / sinc(x)
        table: dict[str, Filter] = {
            "cos": jnp.cos, "sinc": lambda x: h * sinc(x), "sin": lambda x: x * jnp.sin(x) / h, "psi": lambda x: 0.5 * h**2 * psi(x),
            "psi0": lambda x: 0.5 * h * jnp.cos(x) * first(x), "psi1": lambda x: 0.5 * h * first(x), "phi": phi,
        }  # fmt: skip
        zero = jnp.zeros_like(q)
        pull = mech.fast_gradient(zero)
        if _diagonal(self.plan):
            stiffness = mech.fast_hessian_product(zero, jnp.ones_like(q))
            omega = jnp.sqrt(jnp.maximum(mech.velocity(stiffness), 0.0))
            shift = -pull / jnp.where(stiffness > 0, stiffness, 1.0)
            return Flow({name: f(h * omega) for name, f in table.items()}, shift)
        n = q.size
        flat = lambda f: lambda v: f(v.reshape(q.shape)).ravel()
        matrix = jax.vmap(flat(lambda v: mech.fast_hessian_product(zero, v)))(jnp.eye(n, dtype=q.dtype))
        mass = jax.vmap(flat(mech.momentum))(jnp.eye(n, dtype=q.dtype))
        lower = jnp.linalg.cholesky(mass)
        half = jax.scipy.linalg.solve_triangular(lower, matrix, lower=True)
        squares, modes = jnp.linalg.eigh(jax.scipy.linalg.solve_triangular(lower, half.T, lower=True))
        # A motion without force has no frequency at all, or rounding would hold it by a weak spring.
        squares = jnp.where(squares > 1e-12 * jnp.max(squares), squares, 0.0)
        omega = jnp.sqrt(squares)
        # Ω = L⁻ᵀ V ω Vᵀ Lᵀ on positions and velocities.
        left = jax.scipy.linalg.solve_triangular(lower, modes, lower=True, trans=1)
        right = (lower @ modes).T
        stiff = jnp.where(squares > 0, 1 / jnp.where(squares > 0, squares, 1.0), 0.0)
        shift = -(left * stiff) @ (left.T @ pull.ravel())
        origin = jnp.zeros((), q.dtype)
        # f(0) apart: what a force does not reach is then moved exactly.
        function = lambda f: f(origin) * jnp.eye(n, dtype=q.dtype) + (left * (f(h * omega) - f(origin))) @ right
        return Flow({name: function(f) for name, f in table.items()}, shift.reshape(q.shape))

    def warn(self, system: System, q: Any, dt: float) -> None:
        """ψ₁ = ψ/sinc has poles where hω is a multiple of π, unless ψ has the same zeros."""
        if self.filter not in ("gautschi", "hochbruck-lubich"):
            return
        mech = Mechanics(system, np.shape(q))
        flow = self.flow(mech, jnp.asarray(q, float), jnp.asarray(dt, float))
        if not float(jnp.max(jnp.abs(flow.functions["psi1"]))) < 50 * dt:
            warnings.warn(f"hω is near a multiple of π, where {self.name} has a pole; change dt a little, or take Trigonometric('hairer-lubich').", stacklevel=4)

    def _slow(self, mech: Mechanics, flow: Flow, q: Any) -> Array:
        """g(Φq)."""
        return mech.velocity(mech.slow_force(flow.shift + flow.apply("phi", value(q) - flow.shift)))

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        flow = self.flow(mech, value(state.q), dt)
        return state.q, state.p, self._slow(mech, flow, state.q), flow

    def rescale(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        q, p, _, _ = carry
        flow = self.flow(mech, value(q), dt)
        return q, p, self._slow(mech, flow, q), flow

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        q, p, slow, flow = carry
        x, v = value(q) - flow.shift, mech.velocity(p)
        moved = flow.apply("cos", x) + flow.apply("sinc", v) + flow.apply("psi", slow)
        turned = flow.apply("cos", v) - flow.apply("sin", x) + flow.apply("psi0", slow)
        q = q + (moved - x)
        slow = self._slow(mech, flow, q)
        p = p + mech.momentum(turned + flow.apply("psi1", slow) - v)
        return q, p, slow, flow

    def output(self, mech: Mechanics, carry: Carry) -> State:
        return State(carry[0], carry[1])


def _diagonal(plan: Plan | None) -> bool:
    return plan is not None and plan.kind == "blocks" and plan.order is not None and plan.order.shape[1] == 1


class _Fixed(Trigonometric):
    """A trigonometric method by its own name."""

    filter: str = eqx.field(static=True, default="deuflhard", init=False)


@register()
class Impulse(_Fixed):
    """Deuflhard's impulse method: kicks by V, and between them the exact flow of W. Resonant where hω is a multiple of π."""


@register()
class MollifiedImpulse(_Fixed):
    """The impulse method with the slow force of averaged positions, ψ = sinc², φ = sinc (García-Archilla, Sanz-Serna, Skeel)."""

    filter: str = eqx.field(static=True, default="garcia-archilla", init=False)


@register()
class Gautschi(_Fixed):
    """Gautschi's method, ψ(x) = sinc²(x/2), φ = 1: exact where the slow force is constant."""

    filter: str = eqx.field(static=True, default="gautschi", init=False)
