"""The classical Runge–Kutta method: a method without structure, for comparison and to test the measurements."""

from __future__ import annotations

from jaxtyping import Array

from ..numerics.compensated import value
from ..system.mechanics import Mechanics
from .base import Carry, Method, Traits, register


@register()
class RungeKutta4(Method):
    """Order 4 in q and p, explicit; not symplectic, not symmetric, its energy drifts. Linear momentum is kept (every
    Runge–Kutta method keeps linear invariants), angular momentum is not.

    Reference: Kutta 1901; Hairer, Lubich, Wanner, section II.1.1.
    """

    @property
    def traits(self) -> Traits:
        return Traits(
            4, symplectic=False, symmetric=False, reversible=False, energy=None, momentum_maps="linear", forces=4
        )

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        q, p = carry
        x, y = value(q), value(p)
        v1, f1 = mech.velocity(y), mech.force(x)
        v2, f2 = mech.velocity(y + dt / 2 * f1), mech.force(x + dt / 2 * v1)
        v3, f3 = mech.velocity(y + dt / 2 * f2), mech.force(x + dt / 2 * v2)
        v4, f4 = mech.velocity(y + dt * f3), mech.force(x + dt * v3)
        return q + dt / 6 * (v1 + 2 * v2 + 2 * v3 + v4), p + dt / 6 * (f1 + 2 * f2 + 2 * f3 + f4)
