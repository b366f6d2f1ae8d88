"""Points on spheres: the position equation in closed form."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..system.constraints import OnSphere
from ..system.mass import mass_is_matrix
from ..system.mechanics import Mechanics
from .position import Placed
from .solver import ConstraintSolver

DESCRIPTION = "closed form for points on spheres"


def fits_sphere(system: Any, shape: tuple[int, ...]) -> bool:
    """Whether all particles are on spheres, each with one mass for its coordinates: the constraint force is along the
    arm, and so must be the displacement."""
    mass, constraint = np.shape(system.mass), system.constraint
    if mass_is_matrix(system.mass, shape) or not isinstance(constraint, OnSphere):
        return False
    return constraint.particles is None and (not mass or mass[-1] == 1)


def on_sphere(mech: Mechanics, q: Array, free: Array, h: Array) -> Placed:
    """|X − a n|² = R² with n = q − c, X = free − c: a = C/(B + √(B² − C|n|²)), B = n·X, C = |X|² − R²; and
    h M⁻¹Gᵀμ = a n. |n|² is computed, since q satisfies |n|² = R² to rounding only."""
    sphere = mech.system.constraint
    arm, there = q - sphere.centre, free - sphere.centre
    arm_squared = jnp.sum(arm**2, axis=-1)
    b, c = jnp.sum(arm * there, axis=-1), jnp.sum(there**2, axis=-1) - sphere.radius**2
    root = b**2 - c * arm_squared
    a = c / (b + jnp.sqrt(root))
    mass = jnp.broadcast_to(mech.system.mass, q.shape)[..., 0]
    impulse = jnp.atleast_1d(0.5 * mass * a) * (1 / h)
    return Placed(impulse, mech.constraint_pull(q)(impulse), jnp.all(root > 0), jnp.zeros((), int))


class SphereSolver(ConstraintSolver):
    """The closed form; its plan serves the multipliers alone."""

    def place(self, mech: Any, q: Array, p: Array, h: Array, guess: Array) -> Placed:
        return on_sphere(mech, q, q + mech.displacement(p, h), h)

    def normal_part(self, mech: Mechanics, q: Array, p: Array) -> Array:
        arm = q - mech.system.constraint.centre
        ratio = jnp.sum(arm * p, axis=-1) / (2 * jnp.sum(arm**2, axis=-1))
        return mech.constraint_pull(q)(jnp.atleast_1d(ratio))
