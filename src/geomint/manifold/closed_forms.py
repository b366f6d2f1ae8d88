"""Closed forms of the position equation: points on spheres, and rotation matrices."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.linalg import Plan, newton
from ..numerics.linalg.structure import dense
from ..system.constraints import UPPER, WEIGHTS, OnSphere, Orthogonal
from ..system.mechanics import Mechanics
from ..system.system import mass_is_matrix
from .place import Placed


def closed_form(system: Any, shape: tuple[int, ...]) -> str | None:
    """The closed form that fits a system's constraint and mass, if one does."""
    mass = np.shape(system.mass)
    if mass_is_matrix(mass, shape):
        return None
    if isinstance(system.constraint, OnSphere) and system.constraint.particles is None:
        # The force is along the arm; so must be the displacement: one mass for all coordinates of a particle.
        return "sphere" if not mass or mass[-1] == 1 else None
    if isinstance(system.constraint, Orthogonal):
        return "rotation" if len(mass) < 2 or mass[-2] == 1 else None
    return None


def closed_plan(n: int, way: str) -> Plan:
    """For closed forms the plan serves the multipliers alone."""
    description = {"sphere": "closed form for points on spheres", "rotation": "quaternions for rotation matrices"}[way]
    return dataclasses.replace(dense(n), description=description)


def on_sphere(mech: Mechanics, q: Array, free: Array, h: Array) -> Placed:
    """|X − a n|² = R² with n = q − c, X = free − c: a = C/(B + √(B² − C R²)), B = n·X, C = |X|² − R²; and h M⁻¹Gᵀμ = a n."""
    sphere = mech.system.constraint
    arm, there = q - sphere.centre, free - sphere.centre
    reach = jnp.sum(arm**2, axis=-1)
    b, c = jnp.sum(arm * there, axis=-1), jnp.sum(there**2, axis=-1) - sphere.radius**2
    root = b**2 - c * reach
    a = c / (b + jnp.sqrt(root))
    mass = jnp.broadcast_to(mech.system.mass, q.shape)[..., 0]
    impulse = jnp.atleast_1d(0.5 * mass * a) * (1 / h)
    return Placed(impulse, mech.constraint_pull(q)(impulse), jnp.all(root > 0), jnp.zeros((), int))


def rotation(mech: Mechanics, q: Array, free: Array, h: Array) -> Placed:
    """Q D = X D − qΛ with Λ symmetric: R = qᵀQ has the skew part of R D that B = qᵀX D has. In quaternions, with e₀ from
    |e| = 1 and D = diag(d):   2e₀e₁(d₂ + d₃) + 2e₂e₃(d₂ − d₃) = B₃₂ − B₂₃ and cyclic. (Hairer, Lubich, Wanner, VII.5.3.)"""
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
