"""Rotation matrices: the position equation in quaternions."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.linalg import newton
from ..system.constraints import UPPER, WEIGHTS, Orthogonal
from ..system.mass import mass_is_matrix
from ..system.mechanics import Mechanics
from .position import Placed
from .solver import ConstraintSolver

DESCRIPTION = "quaternions for rotation matrices"


def fits_rotation(system: Any, shape: tuple[int, ...]) -> bool:
    """Whether q holds rotation matrices with one mass for each column."""
    mass = np.shape(system.mass)
    if mass_is_matrix(system.mass, shape) or not isinstance(system.constraint, Orthogonal):
        return False
    return len(mass) < 2 or mass[-2] == 1


def rotation(mech: Mechanics, q: Array, free: Array, h: Array) -> Placed:
    """Q D = X D − qΛ with Λ symmetric: R = qᵀQ has the skew part of R D that B = qᵀX D has. In quaternions, with e₀
    from |e| = 1 and D = diag(d):   2e₀e₁(d₂ + d₃) + 2e₂e₃(d₂ − d₃) = B₃₂ − B₂₃ and cyclic. (Hairer, Lubich, Wanner,
    VII.5.3.)"""
    d = jnp.broadcast_to(mech.system.mass, q.shape)[..., 0, :]
    b = jnp.swapaxes(q, -1, -2) @ free * d[..., None, :]
    skew = b - jnp.swapaxes(b, -1, -2)
    right = jnp.stack([skew[..., 2, 1], skew[..., 0, 2], skew[..., 1, 0]], axis=-1)
    turn = lambda x: jnp.roll(x, -1, axis=-1)
    sums, differences = turn(d) + turn(turn(d)), turn(d) - turn(turn(d))

    def residual(e: Array) -> Array:
        zeroth = jnp.sqrt(1 - jnp.sum(e**2, axis=-1, keepdims=True))
        return 2 * zeroth * e * sums + 2 * turn(e) * turn(turn(e)) * differences - right

    def linear_solve(apply: Any, r: Array) -> Array:
        columns = jnp.stack([apply(jnp.broadcast_to(unit, r.shape)) for unit in jnp.eye(3, dtype=r.dtype)], axis=-1)
        return jnp.linalg.solve(columns, r[..., None])[..., 0]

    e, converged = newton(residual, right / (2 * sums), jnp.ones((), q.dtype), linear_solve)
    zeroth = jnp.sqrt(1 - jnp.sum(e**2, axis=-1))[..., None, None]
    x, y, z = e[..., 0], e[..., 1], e[..., 2]
    zero = jnp.zeros_like(x)
    cross = jnp.stack(
        [jnp.stack([zero, -z, y], -1), jnp.stack([z, zero, -x], -1), jnp.stack([-y, x, zero], -1)], axis=-2
    )
    turned = jnp.eye(3, dtype=q.dtype) + 2 * zeroth * cross + 2 * cross @ cross
    symmetric = b - turned * d[..., None, :]
    symmetric = 0.5 * (symmetric + jnp.swapaxes(symmetric, -1, -2))
    # Gᵀμ = qΛ for the six equations of the upper triangle: Λ_ii = 2μ_ii, Λ_ij = √2 μ_ij.
    multipliers = symmetric[..., *UPPER] * np.where(WEIGHTS == 1, 0.5, 1 / WEIGHTS)
    impulse = multipliers.reshape(-1) * (1 / h)
    return Placed(impulse, mech.constraint_pull(q)(impulse), converged, jnp.zeros((), int))


class RotationSolver(ConstraintSolver):
    """The quaternion step; its plan serves the multipliers alone."""

    polishes: ClassVar[bool] = True

    def place(self, mech: Any, q: Array, p: Array, h: Array, guess: Array) -> Placed:
        return rotation(mech, q, q + mech.displacement(p, h), h)

    def polish(self, q: Array) -> Array:
        """½Q(I − QᵀQ)."""
        return 0.5 * q @ (jnp.eye(3, dtype=q.dtype) - jnp.swapaxes(q, -1, -2) @ q)
