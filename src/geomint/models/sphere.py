"""Bodies on a sphere with forces that depend on their distance along it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np

from ..errors import InputError, nearest
from ..system.checks import function
from ..system.constraints import OnSphere
from ..system.mechanics import real_array
from ..system.symmetries import Rotation
from ..system.system import System
from .base import PAIRS, Model, Seed, count, model

# Potentials of a pair by the cosine c = ⟨x_i, x_j⟩ of their distance ϑ along the sphere.
PAIR_POTENTIALS: dict[str, Callable] = {
    "gravity": lambda c: -c / jnp.sqrt(1 - c**2),  # −cot ϑ, which takes the place of −1/r on a sphere
    "coulomb": lambda c: 1 / jnp.sqrt(2 - 2 * c),  # 1/|x_i − x_j|
}


@model
def sphere_bodies(
    n: Annotated[int, count(2, PAIRS)] = 2, pair_potential: str | Callable | None = None, seed: Seed = 0
) -> Model:
    """n unit masses on the unit sphere: U = Σ_{i<j} u(cos ϑ_ij), cos ϑ_ij = ⟨x_i, x_j⟩, |x_i| = 1.

    pair_potential: u(c), a function of the cosine written with jax.numpy, or the name of one: "gravity" is u = −cot
    ϑ, the default for two bodies; "coulomb" is u = 1/|x_i − x_j|, the default for more.

    Two bodies start as in Console, Hairer and Lubich (2013), example 2, with H = −.2118; more on a spiral that covers
    the sphere evenly, with velocities drawn by the seed.
    """
    if pair_potential is None:
        pair_potential = "gravity" if n == 2 else "coulomb"
    if isinstance(pair_potential, str) and pair_potential not in PAIR_POTENTIALS:
        raise InputError(
            f"sphere_bodies(pair_potential={pair_potential!r}): no such potential."
            + nearest(pair_potential, PAIR_POTENTIALS)
        )
    of_cosine = PAIR_POTENTIALS[pair_potential] if isinstance(pair_potential, str) else pair_potential
    function(of_cosine, "pair_potential", "sphere_bodies", of="the cosine, or the name of one")
    i, j = np.triu_indices(n, 1)

    def potential(q):
        cosines = jnp.sum(q[i] * q[j], axis=1)
        return jnp.sum(real_array("pair_potential(c)", of_cosine(cosines)))

    q0, v0 = from_spherical([0.8, 0.5], [0.6, 1.5], [1.1, -0.8], [-0.2, 0.0]) if n == 2 else _spread(n, seed)
    system = System(potential, constraint=OnSphere(), symmetries=(Rotation(),))
    return Model(system, q0, v0, "sphere_bodies", f"{n} bodies on the unit sphere", dt=0.02, t_end=40.0)


def from_spherical(
    longitude: Any, colatitude: Any, longitude_rate: Any, colatitude_rate: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Positions x = (cos φ sin θ, sin φ sin θ, cos θ) and velocities ẋ from φ, θ and their rates, each of shape
    (n,)."""
    phi, theta, phi_rate, theta_rate = np.broadcast_arrays(
        *(np.asarray(x, float) for x in (longitude, colatitude, longitude_rate, colatitude_rate))
    )
    east = np.stack([-np.sin(phi), np.cos(phi), np.zeros_like(phi)], axis=-1)
    south = np.stack([np.cos(phi) * np.cos(theta), np.sin(phi) * np.cos(theta), -np.sin(theta)], axis=-1)
    position = np.stack([np.cos(phi) * np.sin(theta), np.sin(phi) * np.sin(theta), np.cos(theta)], axis=-1)
    return position, (phi_rate * np.sin(theta))[..., None] * east + theta_rate[..., None] * south


def _spread(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points on equal bands of latitude, each a golden angle further round; tangent velocities, normal with deviation
    ½."""
    k = np.arange(n)
    theta = np.arccos(1 - (2 * k + 1) / n)
    phi_speed, theta_speed = 0.5 * np.random.default_rng(seed).standard_normal((2, n))
    return from_spherical(k * np.pi * (3 - np.sqrt(5)), theta, phi_speed / np.sin(theta), theta_speed)
