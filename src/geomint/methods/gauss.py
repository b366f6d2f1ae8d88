"""Gauss collocation: symplectic, symmetric implicit Runge–Kutta methods of order 2s, and the implicit midpoint rule.

For M q̈ = f(q) the stages are positions alone: with v = M⁻¹p and Â = A²,

    Q_i = q + c_i h v + h² Σ_j Â_ij M⁻¹f(Q_j),   p' = p + h Σ_i b_i f(Q_i),   q' = q + h v + h² Σ_j (bᵀA)_j M⁻¹f(Q_j).

Reference: Hairer, Lubich, Wanner, sections II.1.3 and VI.4.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.compensated import value
from ..numerics.linalg import fixed_point, newton
from ..system.checks import one_of
from ..system.mechanics import Mechanics
from .base import Carry, State, Traits, register, setting
from .protocols import CanFail

DENSE_LIMIT = (
    200  # unknowns up to which Newton's matrix is formed; beyond it the stages are found by fixed-point iteration
)


@functools.cache
def tableau(stages: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(A, b, c) of the Gauss method, from the Legendre nodes; the order and symplecticity conditions are asserted."""
    nodes, weights = np.polynomial.legendre.leggauss(stages)
    c, b = (nodes + 1) / 2, weights / 2
    powers = np.arange(1, stages + 1)
    vandermonde = c[:, None] ** (powers - 1)
    a = (c[:, None] ** powers / powers) @ np.linalg.inv(vandermonde)
    assert np.allclose(b @ c[:, None] ** np.arange(2 * stages), 1 / np.arange(1, 2 * stages + 1), rtol=0, atol=1e-15)
    defect = b[:, None] * a + (b[:, None] * a).T - np.outer(b, b)
    a = a - defect / (2 * b[:, None])  # symplectic to the last bit that rounding leaves
    assert np.max(np.abs(defect)) < 1e-14
    return a, b, c


@register({"stages": 1}, {"stages": 2}, {"stages": 3}, {"stages": 4})
class Gauss(CanFail):
    """Gauss collocation with 1 to 4 stages, order 2·stages.

    The stages are solved to round-off: by Newton's method for up to 200 unknowns, by fixed-point iteration beyond,
    which converges only for h²‖M⁻¹U''‖ of order one.
    """

    stages: int = setting(one_of(1, 2, 3, 4), 2)
    failures = {
        1: "the equations of the implicit stages were not solved: the iteration did not converge. Try a smaller dt"
    }

    @property
    def traits(self) -> Traits:
        return Traits(
            2 * self.stages, symplectic=True, symmetric=True, reversible=True, energy="bounded", momentum_maps="all"
        )

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        return state.q, state.p, jnp.zeros((), int)

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        q, p, status = carry
        a, b, c = (jnp.asarray(x, value(q).dtype) for x in tableau(self.stages))
        v = mech.velocity(p)
        along = lambda weights, x: jnp.tensordot(weights, x, axes=1)
        straight = value(q) + jnp.multiply.outer(c * dt, v)
        acceleration = jax.vmap(lambda position: mech.velocity(mech.force(position)))
        # Unknown: Z_i = Q_i − q − c_i h v
        residual = lambda z: z - dt**2 * along(a @ a, acceleration(straight + z))
        start = jnp.multiply.outer(0.5 * (c * dt) ** 2, mech.velocity(mech.force(q)))
        scale = jnp.max(jnp.abs(straight))
        solver = newton if start.size <= DENSE_LIMIT else fixed_point
        z, converged = solver(residual, start, scale)
        forces = jax.vmap(mech.force)(straight + z)
        accelerations = jax.vmap(mech.velocity)(forces)
        p = p + dt * along(b, forces)
        q = q + (dt * v + dt**2 * along(b @ a, accelerations))
        return q, p, jnp.where(converged, status, 1)

    def status(self, carry: Carry) -> Array:
        return carry[2]


@register()
class ImplicitMidpoint(Gauss):
    """q' = q + hM⁻¹(p + p')/2, p' = p + h f((q + q')/2): the one-stage Gauss method, order 2, stable for every hω."""

    stages: int = eqx.field(static=True, default=1, init=False)
