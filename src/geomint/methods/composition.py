"""Compositions S(γ₁h)∘…∘S(γₛh) of a symmetric method: any even order, all structure of the base kept.

References: Yoshida, Phys. Lett. A 150 (1990) 262; Suzuki, Phys. Lett. A 146 (1990) 319; Kahan, Li, Math. Comput. 66
(1997) 1089; Hairer, Lubich, Wanner, section V.3.2.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError, nearest
from ..system.checks import choice, shown
from ..system.mechanics import Mechanics
from . import protocols
from .base import Carry, Method, State, Traits, as_method, register
from .lie_verlet import LieVerlet
from .order_conditions import composition_defect
from .protocols import ReplacesMomentum
from .rattle import Rattle
from .splitting import Verlet
from .wrapping import Wrapping


def _symmetric(half: list[float]) -> tuple[float, ...]:
    """γ₁, …, γ_k, middle, γ_k, …, γ₁ with the middle from Σγ = 1."""
    return (*half, 1 - 2 * sum(half), *reversed(half))


def _suzuki() -> tuple[float, ...]:
    gamma = 1 / (4 - 4 ** (1 / 3))
    return _symmetric([gamma, gamma])


def _polished(half: list[float], order: int) -> tuple[float, ...]:
    """The power-sum conditions Σγ³ = Σγ⁵ = … = 0 restored to round-off by least-norm corrections of the printed
    digits."""
    x = np.array(half)
    powers = [k for k in (3, 5, 7) if k < order]
    for _ in range(3):
        middle = 1 - 2 * x.sum()
        residual = np.array([2 * np.sum(x**k) + middle**k for k in powers])
        jacobian = np.array([2 * k * (x ** (k - 1) - middle ** (k - 1)) for k in powers])
        x = x - np.linalg.lstsq(jacobian, residual, rcond=None)[0]
    return _symmetric(x.tolist())


# (scheme, order) -> coefficients. Yoshida 4 and Suzuki 4 are formulas; the others are roots of the order conditions,
# printed in the sources to the digits below and checked here.
SCHEMES: dict[tuple[str, int], tuple[float, ...]] = {
    ("yoshida", 4): _symmetric([1 / (2 - 2 ** (1 / 3))]),
    ("suzuki", 4): _suzuki(),
    ("yoshida", 6): _symmetric([0.78451361047755726382, 0.23557321335935813368, -1.17767998417887100695]),
    ("kahan-li", 6): _symmetric(
        [0.39216144400731413928, 0.33259913678935943860, -0.70624617255763935981, 0.082213596293550800230]
    ),
    ("yoshida", 8): _polished(
        [
            0.914844246229740,
            0.253693336566229,
            -1.44485223686048,
            -0.158240635368243,
            1.93813913762276,
            -1.96061023297549,
            0.102799849391985,
        ],
        8,
    ),
    ("kahan-li", 8): _symmetric(
        [
            0.13020248308889008088,
            0.56116298177510838456,
            -0.38947496264484728641,
            0.15884190655515560090,
            -0.39590389413323757734,
            0.18453964097831570709,
            0.25837438768632204729,
            0.29501172360931029887,
        ]
    ),
}


for (_scheme, _order), _coefficients in SCHEMES.items():
    _defect = composition_defect(_coefficients, _order)
    assert _defect < 1e-13, f"composition {_scheme} {_order} violates an order condition by {_defect:.1e}"

DEFAULT = {4: "suzuki", 6: "kahan-li", 8: "kahan-li"}


@register(
    *({"base": Verlet(form="drift"), "order": order, "scheme": scheme} for scheme, order in SCHEMES),
    *({"base": Rattle(), "order": order} for order in DEFAULT),
    {"base": LieVerlet(), "order": 4},
)
class Composition(Wrapping, ReplacesMomentum):
    """A symmetric method of order 2 composed to order 4, 6 or 8.

    scheme: "yoshida" (3, 7, 15 stages), "suzuki" (order 4, 5 stages) or "kahan-li" (order 6 with 9 and order 8 with 17
    stages, errors far below Yoshida's). The default is Suzuki for order 4 and Kahan–Li above.
    """

    order: int = eqx.field(static=True, default=4)
    scheme: str = eqx.field(static=True, default="")

    def __init__(self, base: Any, order: int = 4, scheme: str | None = None):
        base = as_method(base, "Composition: base")
        if not base.traits.symmetric or base.traits.event_driven or base.traits.steps > 1:
            raise InputError(
                f"Composition raises the order of a symmetric one-step method, and {base.name} is not one."
            )
        order = choice(order, "order", "Composition", DEFAULT)
        scheme = DEFAULT[order] if scheme is None else scheme
        known = [s for s, o in SCHEMES if o == order]
        if not isinstance(scheme, str) or scheme not in known:
            raise InputError(
                f"Composition(order={order}, scheme={shown(scheme)}): there is no such scheme of that order."
                + nearest(str(scheme), known)
            )
        scheme = str(scheme)
        self.base, self.order, self.scheme = base, order, scheme

    @property
    def coefficients(self) -> tuple[float, ...]:
        return SCHEMES[self.scheme, self.order]

    @property
    def traits(self) -> Traits:
        base = self.base.traits
        forces = None if base.forces is None else base.forces * len(self.coefficients)
        return Traits(
            max(self.order, base.order),
            base.symplectic,
            True,
            base.reversible,
            base.energy,
            base.momentum_maps,
            base.constrained,
            base.free,
            base.tangent,
            needs=base.needs,
            lagrangian=base.lagrangian,
            takes=base.takes,
            conformal=base.conformal,
            forces=forces,
            volume=base.volume,
        )

    def with_base(self, base: Method) -> Composition:
        return Composition(base, self.order, self.scheme)

    def with_momentum(self, carry: Carry, p: Any) -> Carry:
        return protocols.with_momentum(self.base, carry, p)

    @property
    def longest_substep(self) -> float:
        return max(map(abs, self.coefficients))

    # --- one step ---------------------------------------------------------------------------------------------------
    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        return self.base.init(mech, state, self.coefficients[-1] * dt)

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        # A loop over the substeps, not straight-line code: XLA makes one small kernel of its body, which runs 3 to 8
        # times faster on small systems and compiles in a fifth of the time.
        def substep(moving: Carry, c: tuple[Array, Any]) -> tuple[Carry, None]:
            gamma, since = c
            here = mech if since is None else mech.after(since * dt)
            return self.base.step(here, protocols.rescale(self.base, here, moving, gamma * dt), gamma * dt), None

        starts = np.cumsum([0.0, *self.coefficients[:-1]])
        since = None if mech.time is None else jnp.asarray(starts, dt.dtype)
        return jax.lax.scan(substep, carry, (jnp.asarray(self.coefficients, dt.dtype), since))[0]
