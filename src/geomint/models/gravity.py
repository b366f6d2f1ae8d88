"""Gravitation: two bodies, many bodies, the outer solar system."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..md import PairPotential
from ..system.symmetries import Rotation, Translation
from ..system.system import System
from .base import PAIRS, Model, NotNegative, Seed, count, model

WRITTEN_OUT = 12  # bodies up to which the machine code of a sum over index pairs is as fast as a PairPotential


def _pairs(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(n, 1)


def newtonian(masses: np.ndarray, constant: float, softening: float = 0.0):
    """V = −G Σ_{i<j} m_i m_j / √(|x_i − x_j|² + ε²)."""
    if len(masses) > WRITTEN_OUT:

        def of_pair(s, a, b):
            return -constant * a["mass"] * b["mass"] / jnp.sqrt(s + softening**2)

        return PairPotential(of_pair, squared=True, sites={"mass": masses})
    i, j = _pairs(len(masses))
    strength = constant * masses[i] * masses[j]

    def potential(q):
        apart = q[i] - q[j]
        return -jnp.sum(strength / jnp.sqrt(jnp.sum(apart**2, axis=1) + softening**2))

    return potential


@model
def kepler(eccentricity: float = 0.6) -> Model:
    """H = ½|p|² − 1/|q| in the plane, from the perihelion; period 2π, angular momentum √(1 − e²)."""
    e = eccentricity
    if not 0 <= e < 1:
        raise InputError(f"kepler(eccentricity={e:g}): an ellipse has an eccentricity from 0 up to, not including, 1.")
    system = System(lambda q: -1 / jnp.sqrt(jnp.sum(q**2)), symmetries=(Rotation((0, 1)),))
    return Model(
        system,
        np.array([1 - e, 0.0]),
        np.array([0.0, np.sqrt((1 + e) / (1 - e))]),
        "kepler",
        f"a planet on an ellipse of eccentricity {e:g}",
        dt=0.02,
        t_end=60.0,
    )


@model
def n_body(n: Annotated[int, count(2, PAIRS)] = 5, softening: NotNegative = 0.1, seed: Seed = 0) -> Model:
    """n bodies of unequal mass in space, G = 1, softened so that close encounters stay smooth; total momentum zero."""
    random = np.random.default_rng(seed)
    masses = 0.5 + random.random(n)
    q0 = random.normal(size=(n, 3))
    v0 = 0.3 * random.normal(size=(n, 3))
    v0 -= masses @ v0 / masses.sum()
    system = System(newtonian(masses, 1.0, softening), mass=masses[:, None], symmetries=(Translation(), Rotation()))
    return Model(system, q0, v0, "n_body", f"{n} bodies attracting each other", dt=0.002, t_end=20.0)


# Hairer, Lubich, Wanner, section I.2.4, table 2.2: masses relative to the sun (to which the inner planets are added),
# positions in astronomical units, velocities in astronomical units a day, on September 5, 1994, 0h00.
_SOLAR_MASSES = np.array(
    [1.00000597682, 0.000954786104043, 0.000285583733151, 0.0000437273164546, 0.0000517759138449, 1 / 1.3e8]
)
_SOLAR_POSITIONS = np.array([
    [0.0, 0.0, 0.0],
    [-3.5023653, -3.8169847, -1.5507963],
    [9.0755314, -3.0458353, -1.6483708],
    [8.3101420, -16.2901086, -7.2521278],
    [11.4707666, -25.7294829, -10.8169456],
    [-15.5387357, -25.2225594, -3.1902382],
])  # fmt: skip
_SOLAR_VELOCITIES = np.array([
    [0.0, 0.0, 0.0],
    [0.00565429, -0.00412490, -0.00190589],
    [0.00168318, 0.00483525, 0.00192462],
    [0.00354178, 0.00137102, 0.00055029],
    [0.00288930, 0.00114527, 0.00039677],
    [0.00276725, -0.00170702, -0.00136504],
])  # fmt: skip


@model
def outer_solar_system() -> Model:
    """The sun with Jupiter, Saturn, Uranus, Neptune and Pluto; days and astronomical units, G = 2.95912208286e-4.

    The energy is about −3e-8 in these units: compare its error with that.
    """
    system = System(
        newtonian(_SOLAR_MASSES, 2.95912208286e-4), mass=_SOLAR_MASSES[:, None], symmetries=(Translation(), Rotation())
    )
    return Model(
        system,
        _SOLAR_POSITIONS,
        _SOLAR_VELOCITIES,
        "outer_solar_system",
        "the sun and the five outer planets, in days",
        dt=50.0,
        t_end=200_000.0,
    )
