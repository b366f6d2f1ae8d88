"""Fast and slow together, with the exact flow of a quadratic fast part W: Gautschi's method and its relatives.

With ∇W(q) = M(Ω²(q − a) + b) about any point a, x = q − a and g = −M⁻¹∇V, a step is

    u = v + ½hψ₁(hΩ) g(Φq)
    q' = a + cos(hΩ) x + h sinc(hΩ) u − h² c₂(hΩ) b
    v' = cos(hΩ) u − hΩ² sinc(hΩ) x − h sinc(hΩ) b + ½hψ₁(hΩ) g(Φq')
    Φq = a + φ(hΩ) x − h² χ(hΩ) b

with c₂ = (1 − cos)/x² and χ = (1 − φ)/x²: kicks by filtered slow forces, and between them the motion of W alone.
Where W has a rest position, a + φx − h²χb is φ applied to the distance from it. All functions are even, so they are
written as functions of z = (hω)², an eigenvalue of h²M⁻¹Hess W. A negative stiffness gives a negative z and
hyperbolic functions; a constant force along a motion without stiffness gives z = 0 and a parabola.

References: Hairer, Lubich, Wanner, Geometric Numerical Integration, chapter XIII.2, where the filters are methods (A)
to (E) and (G); García-Archilla, Sanz-Serna, Skeel, SIAM J. Sci. Comput. 20 (1998) 930; Grimm, Hochbruck, J. Phys. A
39 (2006) 5495; Stumpff's functions: Battin, An Introduction to the Mathematics and Methods of Astrodynamics, chapter
4.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError, outside
from ..numerics.cache import BoundedCache
from ..numerics.compensated import value
from ..numerics.linalg.discovery import over_members, start_key
from ..system.checks import one_of
from ..system.mechanics import Mechanics
from ..system.system import System
from .base import State, Traits, register, setting
from .oscillatory import _TRAITS, Oscillatory, deviates_from_quadratic, is_quadratic
from .protocols import CanFail, DependsOnStepLength, WarnsOfStep
from .trigonometric_flow import (
    FILTERS,
    SYMPLECTIC,
    AffineCheck,
    Flow,
    applied,
    flow_functions,
    functions_of,
    has_free,
    inverse,
    is_diagonal,
    largest_kick,
    nonzero,
)

NOT_QUADRATIC = 1
DENSE = 600  # coordinates up to which the fast part is diagonalised


# --- the methods ----------------------------------------------------------------------------------------------------
_with_free: BoundedCache[bool] = BoundedCache(64)


class TrigonometricCarry(NamedTuple):
    """The carry."""

    q: Any
    p: Any
    kick: Array  # ½hψ₁g(Φq)
    flow: Flow
    check: tuple[AffineCheck, Array] | None  # the check of W and its status; None where the jaxpr proves W quadratic


@register({"filter": "hochbruck-lubich"}, {"filter": "hairer-lubich"}, {"filter": "grimm-hochbruck"})
class Trigonometric(Oscillatory, CanFail, DependsOnStepLength, WarnsOfStep):
    """q' = cos(hΩ)q + Ω⁻¹sin(hΩ)v + ½h²Ψg,   v' = −Ω sin(hΩ)q + cos(hΩ)v + ½h(Ψ₀g + Ψ₁g'),   g = −M⁻¹∇V(Φq),

    for a quadratic fast part, by the name of its filters ψ, φ; `gm.methods.FILTERS` lists them, as functions of
    (hω)². Exact where V = 0, also with a constant force and with negative stiffness in W (hyperbolic functions). If
    the fast part turns out during the run not to be quadratic, the run stops.
    """

    failures: ClassVar[Mapping[int, str]] = {
        NOT_QUADRATIC: "the fast part is quadratic near the start only: its gradient is no longer affine here; "
        "use IMEX or RESPA"
    }
    filter: str = setting(one_of(*FILTERS), "hairer-lubich")
    free: bool | None = eqx.field(static=True, default=None, kw_only=True, metadata={"found": True})

    @property
    def traits(self) -> Traits:
        symplectic = self.filter in SYMPLECTIC
        maps, needs = "all" if symplectic else None, ("fast", "quadratic fast")
        kept = {"symplectic": symplectic, "volume": True, "momentum_maps": maps}
        return dataclasses.replace(_TRAITS, **kept, needs=needs, forces=1)

    def prepare(self, starts: Sequence[tuple[Any, Any]]) -> Any:
        ready = super().prepare(starts)
        if not ready.quadratic and not is_quadratic(starts):
            what = "follows the exact flow of a quadratic fast part, and this one is not quadratic"
            raise InputError(f"{self.name} {what}; use IMEX or RESPA.")
        n = np.size(starts[0][1])
        if n > DENSE and not is_diagonal(ready.plan):
            what = f"diagonalises the fast part, here of {n} coordinates, more than {DENSE}"
            raise InputError(f"{self.name} {what}; use IMEX, which need not.")
        if ready.free is not None or is_diagonal(ready.plan):
            return ready
        look = lambda: any(has_free(*start, ready.plan) for start in starts)
        key = ready.plan, *(start_key(*start) for start in starts)
        return dataclasses.replace(ready, free=_with_free.get_or_make(key, look))

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        others = super().misfits(system, q, own_params)
        return (
            others
            if self.quadratic
            else others | np.asarray(over_members(deviates_from_quadratic, own_params, system, q))
        )

    def flow(self, mech: Mechanics, a: Array, h: Array) -> Flow:
        """All matrices and vectors that a step of length h uses. `a` is any point; W is expanded about it."""
        diagonal, filters = is_diagonal(self.plan), FILTERS[self.filter]
        wanted, stiff_projection = flow_functions(self.filter), None
        if self.free:
            stiff_projection, softness = functions_of((nonzero, inverse), mech, a, h, self.plan)
            if self.quadratic:  # b has rounding errors along free motions: look where the fast forces in it vanish
                a = jax.lax.stop_gradient(a - h**2 * applied(softness, mech.velocity(mech.fast_gradient(a))))
        cosine_minus_one, sine, restoring, fall, kick, *average = functions_of(wanted, mech, a, h, self.plan)
        constant = mech.velocity(mech.fast_gradient(a) - (mech.fast_hessian_product(a, a) if diagonal else 0.0))
        averaged = None
        if filters.chi is not None:
            averaged = average[0], (0.0 if diagonal else a) - h**2 * applied(average[1], constant)
        centre = None if diagonal else a
        displacement_by_b, velocity_by_b = -(h**2) * applied(fall, constant), -h * applied(sine, constant)
        return Flow(
            centre,
            cosine_minus_one,
            h * sine,
            restoring / h,
            0.5 * h * kick,
            displacement_by_b,
            velocity_by_b,
            averaged,
            stiff_projection,
        )

    def warn(self, system: System, q: Any, dt: float) -> None:
        """ψ₁ = ψ/sinc has poles where hω is a multiple of π, unless ψ has the same zeros."""
        if self.filter not in ("gautschi", "hochbruck-lubich"):
            return
        if not float(largest_kick(system, np.asarray(q, float), dt, self.filter, self.plan)) < 100:
            what = f"hω is near a multiple of π, where {self.name} has a pole"
            warnings.warn(f"{what}; change dt a little, or take Trigonometric('hairer-lubich').", stacklevel=outside())

    def _kick(self, mech: Mechanics, flow: Flow, q: Any) -> Array:
        """½hψ₁g(Φq)."""
        return applied(flow.kick, mech.velocity(mech.slow_force(flow.positions(value(q)))))

    def init(self, mech: Mechanics, state: State, dt: Array) -> TrigonometricCarry:
        # The flow is the same about any point, so nothing depends on this one.
        a = jax.lax.stop_gradient(value(state.q))
        flow = self.flow(mech, a, dt)
        check = None if self.quadratic else (AffineCheck.of(mech, a), jnp.zeros((), int))
        return TrigonometricCarry(state.q, state.p, self._kick(mech, flow, state.q), flow, check)

    def rescale(self, mech: Mechanics, carry: TrigonometricCarry, dt: Array) -> TrigonometricCarry:
        flow = self.flow(mech, jax.lax.stop_gradient(value(carry.q)), dt)
        return carry._replace(kick=self._kick(mech, flow, carry.q), flow=flow)

    def step(self, mech: Mechanics, carry: TrigonometricCarry, dt: Array) -> TrigonometricCarry:
        q, p, kick, flow, check = carry
        x, u = flow.displacement(value(q)), mech.velocity(p) + kick
        stretched, rate = flow.without_free(x), flow.without_free(u)
        q = q + (applied(flow.cosine_minus_one, stretched) + applied(flow.sinc, u) + flow.displacement_by_b)
        velocity_change = applied(flow.cosine_minus_one, rate) - applied(flow.restoring, stretched) + flow.velocity_by_b
        after = self._kick(mech, flow, q)
        if check is not None:
            affine, status = check
            check = affine, jnp.where((status == 0) & affine.violated(mech, value(q)), NOT_QUADRATIC, status)
        return TrigonometricCarry(q, p + mech.momentum((velocity_change + kick) + after), after, flow, check)

    def output(self, mech: Mechanics, carry: TrigonometricCarry) -> State:
        return State(carry.q, carry.p)

    def status(self, carry: TrigonometricCarry) -> Array | None:
        return None if carry.check is None else carry.check[1]


class _Fixed(Trigonometric):
    """A trigonometric method by its own name."""

    filter: str = eqx.field(static=True, default="deuflhard", init=False)


@register()
class Impulse(_Fixed):
    """Deuflhard's impulse method: kicks by V, and between them the exact flow of W. Resonant where hω is a multiple
    of π."""


@register()
class MollifiedImpulse(_Fixed):
    """The impulse method with the slow force of averaged positions, ψ = sinc², φ = sinc (García-Archilla, Sanz-Serna,
    Skeel)."""

    filter: str = eqx.field(static=True, default="garcia-archilla", init=False)


@register()
class Gautschi(_Fixed):
    """Gautschi's method, ψ(x) = sinc²(x/2), φ = 1: exact where the slow force is constant."""

    filter: str = eqx.field(static=True, default="gautschi", init=False)
