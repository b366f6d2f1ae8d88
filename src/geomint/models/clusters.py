"""Clusters of atoms in free space with pair potentials: V = Σ_{i<j} φ(|x_i − x_j|)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import md
from ..numerics.compilation import jit
from ..numerics.intervals import Interval, evaluate
from ..system.symmetries import Rotation, Translation
from ..system.system import System
from .base import PAIRS, Dimension, Model, NotNegative, Positive, Seed, count, model

Atoms = Annotated[int, count(2, PAIRS)]
SYMMETRIES = (Translation(), Rotation())
ARGON = md.Atoms("Ar")
ROUNDING = 1e-14  # a generous bound of the relative rounding of a squared distance
REACH = 2 ** (1 / 6)  # the minimum of the Lennard-Jones potential with σ = 1


# --- potentials of pairs ----------------------------------------------------------------------------------------------
def lennard_jones(squared: Array, k: Any) -> Array:
    """φ = 4ε ((σ/r)¹² − (σ/r)⁶) of r², which needs no square root; least at 2^(1/6) σ, where it is −ε."""
    x = (k["sigma"] ** 2 / squared) ** 3
    return 4 * k["epsilon"] * x * (x - 1)


def morse(squared: Array, k: Any) -> Array:
    """φ = ε ((1 − e^{−a(r − r₀)})² − 1) of r²; least at r₀, where it is −ε."""
    x = jnp.exp(-k["steepness"] * (jnp.sqrt(squared) - k["distance"]))
    return k["epsilon"] * x * (x - 2)


def sum_over_pairs(n: int, pair: Callable[[Array, Any], Array]) -> Callable[[Array, Any], Array]:
    """V(q, params) = Σ_{i<j} φ(|x_i − x_j|²), q of shape (n, dimension).

    The pairs are constants of the program, and no atom is paired with itself, so that nothing is divided by zero. Up
    to some dozens of atoms this is the fastest form of V and of its derivatives along a line. From about fifty atoms on
    the gradient is faster with a matrix of all distances, which needs no scatter.
    """
    i, j = np.triu_indices(n, 1)

    def potential(q, k):
        return jnp.sum(pair(jnp.sum((q[i] - q[j]) ** 2, axis=1), k))

    def curvature(q, v, start, stop, k):
        """Bounds of d²/dt² V(q + t v) = Σ φ''(s) ṡ² + φ'(s) s̈ over [start, stop]: the squared distance s is a
        parabola in t, whose range is known exactly."""
        apart, speed = q[i] - q[j], v[i] - v[j]
        square, half_rate, half_bend = (jnp.sum(x, axis=1) for x in (apart**2, apart * speed, speed**2))
        squared = lambda t: square + t * (2 * half_rate + t * half_bend)
        lowest = jnp.clip(-half_rate / jnp.where(half_bend > 0, half_bend, 1.0), start, stop)
        s = Interval(squared(lowest) * (1 - ROUNDING), jnp.maximum(squared(start), squared(stop)) * (1 + ROUNDING))
        rate = Interval(2 * (half_rate + start * half_bend), 2 * (half_rate + stop * half_bend))
        of = lambda x, y: jnp.sum(
            y**2 * jax.vmap(jax.grad(jax.grad(pair)), (0, None))(x, k)
            + 2 * half_bend * jax.vmap(jax.grad(pair), (0, None))(x, k)
        )
        return evaluate(of, s, rate)

    potential.curvature = curvature  # pyright: ignore[reportFunctionMemberAccess]
    named = md.PairPotential(lambda s: 1 / s, squared=True)
    potential.explain = named.explain  # pyright: ignore[reportFunctionMemberAccess]
    return potential


# --- initial data -----------------------------------------------------------------------------------------------------
def compact(n: int, dimension: int) -> np.ndarray:
    """n sites of the densest lattice (hexagonal, or face-centred cubic) with neighbours at distance 1: those closest to
    one site. Of equally close ones those further along a slanted direction are taken, so that they are adjacent."""
    basis = {2: [[1.0, 0.0], [0.5, np.sqrt(0.75)]], 3: np.sqrt(0.5) * np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]])}
    reach = (
        np.arange(-2 - n // 6, 3 + n // 6)
        if dimension == 2
        else np.arange(-3 - round(n ** (1 / 3)), 4 + round(n ** (1 / 3)))
    )
    sites = np.stack(np.meshgrid(*[reach] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension) @ np.asarray(
        basis[dimension]
    )
    slant = sites @ np.array([1.0, 0.3, 0.1])[:dimension]
    nearest = np.lexsort((-slant, np.round(np.sum(sites**2, axis=1), 9)))[:n]
    return sites[nearest] - sites[nearest].mean(axis=0)


@functools.cache
def relaxed(n: int, dimension: int, pair: Callable, settings: tuple[tuple[str, float], ...]) -> np.ndarray:
    """A compact piece of lattice, relaxed to a minimum near it of a potential whose pairs have their minimum at 1."""
    from scipy.optimize import minimize  # takes a while to load

    potential, shape = sum_over_pairs(n, pair), (n, dimension)
    energy: Any = jit(jax.value_and_grad(lambda x: potential(x.reshape(shape), dict(settings))))
    # Some symmetric pieces of a lattice are saddle points. A small perturbation lets 13 and 55 atoms relax to
    # icosahedra.
    start = compact(n, dimension) + 0.02 * np.random.default_rng(0).normal(size=shape)
    found = minimize(
        lambda x: tuple(map(np.asarray, energy(x))),
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"ftol": 0.0, "gtol": 1e-9, "maxiter": 10_000, "maxfun": 20_000},
    )
    q = found.x.reshape(shape)
    return q - q.mean(axis=0)


def shaken(q: np.ndarray, energy: float, seed: int) -> np.ndarray:
    """Velocities of unit masses without total momentum and angular momentum; the kinetic energy is ½ `energy` for
    each degree of freedom that is left. The same for the same seed."""
    v = np.random.default_rng(seed).normal(size=q.size)
    rigid = np.concatenate([np.asarray(s.generators(jnp.asarray(q))).reshape(-1, q.size) for s in SYMMETRIES]).T
    turning, _, rank, _ = np.linalg.lstsq(rigid, v, rcond=1e-9)
    v -= rigid @ turning
    return (v * np.sqrt(energy * (q.size - rank) / np.sum(v**2))).reshape(q.shape)


def _cluster(
    name: str,
    n: int,
    dimension: int,
    temperature: float,
    seed: int,
    pair: Callable,
    k: dict[str, float],
    reduced: dict[str, float],
    spacing: float,
) -> Model:
    """A cluster of unit masses, relaxed in units of the neighbour distance and of ε (`reduced`), with thermal
    velocities."""
    q0 = spacing * relaxed(n, dimension, pair, tuple(reduced.items()))
    v0 = shaken(q0, temperature * k["epsilon"], seed)
    forces = name.removesuffix("_cluster").replace("_", "-").title()
    description = f"{n} atoms {'in the plane' if dimension == 2 else 'in space'} with {forces} forces"
    # An atom with the kinetic energy ε/2 moves by one neighbour distance in 200 steps.
    dt = 0.005 * spacing / float(np.sqrt(k["epsilon"]))
    return Model(
        System(sum_over_pairs(n, pair), symmetries=SYMMETRIES, params=k, atoms=ARGON),
        q0,
        v0,
        name,
        description,
        dt=dt,
        t_end=4000 * dt,
    )


# --- models -----------------------------------------------------------------------------------------------------------
@model
def lennard_jones_cluster(
    n: Atoms = 13, dimension: Dimension = 3, epsilon: Positive = 1.0, sigma: Positive = 1.0,
    temperature: NotNegative = 0.1, seed: Seed = 0,
) -> Model:  # fmt: skip
    """n atoms of unit mass with Lennard-Jones forces,

        V = Σ_{i<j} 4ε ((σ/r_ij)¹² − (σ/r_ij)⁶),

    from a compact piece of the hexagonal (dimension=2) or face-centred cubic (3) lattice relaxed to a minimum of V
    near it, not necessarily the global one. The temperature is in units of ε; total momentum and angular momentum
    are zero."""
    return _cluster(
        "lennard_jones_cluster",
        n,
        dimension,
        temperature,
        seed,
        lennard_jones,
        {"epsilon": epsilon, "sigma": sigma},
        {"epsilon": 1.0, "sigma": 1 / REACH},
        REACH * sigma,
    )


@model
def morse_cluster(
    n: Atoms = 13, dimension: Dimension = 3, epsilon: Positive = 1.0, distance: Positive = 1.0,
    steepness: Positive = 6.0, temperature: NotNegative = 0.1, seed: Seed = 0,
) -> Model:  # fmt: skip
    """n atoms of unit mass with Morse's forces,

        V = Σ_{i<j} ε ((1 − e^{−a(r_ij − r₀)})² − 1),     r₀ = distance, a = steepness,

    which stay finite where atoms meet. With a r₀ = 6 the well is as wide as that of Lennard-Jones; the larger, the
    narrower. Initial data as those of lennard_jones_cluster."""
    k = {"epsilon": epsilon, "distance": distance, "steepness": steepness}
    return _cluster(
        "morse_cluster",
        n,
        dimension,
        temperature,
        seed,
        morse,
        k,
        {"epsilon": 1.0, "distance": 1.0, "steepness": steepness * distance},
        distance,
    )


# Gonzalez, Schmidt and Ortiz, table I: nanometres, and nanometres a nanosecond.
_ARGON_POSITIONS = np.array(
    [[0.0, 0.0], [0.02, 0.39], [0.34, 0.17], [0.36, -0.21], [-0.02, -0.40], [-0.35, -0.16], [-0.31, 0.21]]
)
_ARGON_VELOCITIES = np.array(
    [[-30.0, -20.0], [50.0, -90.0], [-70.0, -60.0], [90.0, 40.0], [80.0, 90.0], [-40.0, 100.0], [-80.0, -60.0]]
)


@model
def argon_cluster() -> Model:
    """Seven argon atoms in the plane, six about one (Biesiadecki and Skeel 1993; Gonzalez, Schmidt and Ortiz 2010,
    section 5.1).

    Lennard-Jones forces with σ = .341 nm and ε/k_B = 119.8 K. Lengths are in nanometres, times in nanoseconds, and
    the mass of an atom, 66.34e-27 kg, is 1: then ε = 24932.594 nm²/ns², and the energy of the initial data is
    −10.519254 ε. The total momentum is zero, the angular momentum is not. A step of 10 fs is dt = 1e-5."""
    boltzmann, mass = 1.380658e-23, 66.34e-27
    k = {"epsilon": 119.8 * boltzmann / mass, "sigma": 0.341}  # m²/s² is nm²/ns²
    system = System(sum_over_pairs(7, lennard_jones), symmetries=SYMMETRIES, params=k, atoms=ARGON)
    return Model(
        system,
        _ARGON_POSITIONS,
        _ARGON_VELOCITIES,
        "argon_cluster",
        "seven argon atoms in the plane, in nanometres and nanoseconds",
        dt=1e-5,
        t_end=0.1,
    )
