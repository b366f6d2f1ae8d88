"""Hard spheres in a box: elastic collisions with the walls and with each other, no other force."""

from __future__ import annotations

import functools
from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..methods import EnergyStepping
from ..system.system import System
from .base import PAIRS, Dimension, Model, NotNegative, Positive, Seed, count, model


@functools.cache  # equal arguments give the same function: compiled programs are cached by function
def apart(n: int, distance: float):
    """c(q) = |x_i − x_j|² − d² for the pairs i < j: quadratic in time along a straight flight, so that a hit is the
    root of a quadratic."""
    i, j = np.triu_indices(n, 1)
    return lambda q: jnp.sum((q[i] - q[j]) ** 2, axis=1) - distance**2


@functools.cache
def between_walls(box: float, radius: float):
    """c(q) = (x − r, L − r − x) for all coordinates x: linear."""

    def c(q: Array) -> Array:
        x = q.ravel()
        return jnp.concatenate([x - radius, box - radius - x])

    return c


@model
def hard_spheres(
    n: Annotated[int, count(1, PAIRS)] = 16, box: Positive = 8.0, radius: Positive = 0.5, dimension: Dimension = 2,
    temperature: NotNegative = 1.0, seed: Seed = 0,
) -> Model:  # fmt: skip
    """n spheres of unit mass and the given radius in the square or cube [0, box]^dimension. V = 0; the motion stays
    where

        |x_i − x_j|² − (2r)² ≥ 0 for i < j,     r ≤ x ≤ box − r for every coordinate,

    the two functions in `inside` of the model and of its method, EnergyStepping. A method that is not given them lets
    the spheres pass through each other and through the walls. They start in the middles of equal cells, with Maxwell
    velocities at this temperature (k_B = 1)."""
    rows = next(k for k in range(1, n + 1) if k**dimension >= n)
    if not box > 2 * radius * rows:
        raise InputError(
            f"hard_spheres(n={n}, box={box:g}, radius={radius:g}): "
            f"{rows} rows of spheres need a box larger than {2 * radius * rows:g}."
        )
    cells = np.stack(np.meshgrid(*[np.arange(rows)] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)[:n]
    v0 = np.sqrt(temperature) * np.random.default_rng(seed).normal(size=(n, dimension))
    inside = (apart(n, 2 * radius), between_walls(box, radius))
    return Model(
        System(),
        (cells + 0.5) * box / rows,
        v0,
        "hard_spheres",
        f"{n} hard spheres in a box",
        EnergyStepping(1.0, inside=inside),
        dt=0.05,
        t_end=10.0,
        inside=inside,
    )
