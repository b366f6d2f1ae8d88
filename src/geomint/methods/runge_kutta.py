"""The classical Runge–Kutta method: a method without structure, for comparison and to test the measurements."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.compensated import value
from ..system.mechanics import Mechanics
from .base import ALL, Carry, Method, State, Traits, register
from .driven import DrivenCarry


def _depends_on_v(mech: Mechanics) -> bool:
    """Whether there may be forces of v or t besides those of the potential."""
    return mech.driven or mech.system.magnetic_field is not None


@register()
class RungeKutta4(Method):
    """Order 4 in q and p, explicit; not symplectic, not symmetric, its energy drifts. Linear momentum is kept (every
    Runge–Kutta method keeps linear invariants), angular momentum is not.

    Reference: Kutta 1901; Hairer, Lubich, Wanner, section II.1.1.
    """

    @property
    def traits(self) -> Traits:
        return Traits(
            4,
            symplectic=False,
            symmetric=False,
            reversible=False,
            energy=None,
            momentum_maps="linear",
            takes=(*ALL, "uniform field", "field"),
            forces=4,
        )

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        work = jnp.zeros((), value(state.q).dtype)
        return DrivenCarry(state.q, state.p, work) if _depends_on_v(mech) else (state.q, state.p)

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        if _depends_on_v(mech):
            return self._driven_step(mech, carry, dt)
        q, p = carry
        x, y = value(q), value(p)
        v1, f1 = mech.velocity(y), mech.force(x)
        v2, f2 = mech.velocity(y + dt / 2 * f1), mech.force(x + dt / 2 * v1)
        v3, f3 = mech.velocity(y + dt / 2 * f2), mech.force(x + dt / 2 * v2)
        v4, f4 = mech.velocity(y + dt * f3), mech.force(x + dt * v3)
        return q + dt / 6 * (v1 + 2 * v2 + 2 * v3 + v4), p + dt / 6 * (f1 + 2 * f2 + 2 * f3 + f4)

    def _driven_step(self, mech: Mechanics, carry: DrivenCarry, dt: Array) -> DrivenCarry:
        """The same with forces of v and t, and with the work as a further variable."""
        x, y = value(carry.q), value(carry.p)

        def slopes(s: Array, dx: Any, dy: Any) -> tuple[Array, Array, Array]:
            here, q, v = mech.after(s), x + dx, mech.velocity(y + dy)
            power = jnp.sum(here.nonconservative_force(q, v) * v) + here.energy_time_rate(q)
            return v, here.total_force(q, v), power

        v1, f1, w1 = slopes(0 * dt, 0.0, 0.0)
        v2, f2, w2 = slopes(dt / 2, dt / 2 * v1, dt / 2 * f1)
        v3, f3, w3 = slopes(dt / 2, dt / 2 * v2, dt / 2 * f2)
        v4, f4, w4 = slopes(dt, dt * v3, dt * f3)
        mean = lambda a, b, c, d: dt / 6 * (a + 2 * b + 2 * c + d)
        q, p = carry.q + mean(v1, v2, v3, v4), carry.p + mean(f1, f2, f3, f4)
        return DrivenCarry(q, p, carry.work + mean(w1, w2, w3, w4))

    def output(self, mech: Mechanics, carry: Carry) -> State:
        return carry.shown() if mech.driven else super().output(mech, carry)
