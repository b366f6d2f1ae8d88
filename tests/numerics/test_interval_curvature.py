"""Ranges of the second derivative along a ray: potentials of all models, jumps, and the limit of a short ray."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.numerics.intervals import Interval, curvature, derivatives, evaluate, supported
from helpers.interval_cases import inside

# Many bodies compile and run long, and have the operations of a few.
FEW = {
    "lennard_jones_fluid": {"atoms": 32, "density": 0.9, "cutoff": 1.3},
    "elastic_sheet": {"nodes": 9},
    "morse_cluster": {"n": 4},
    "lennard_jones_cluster": {"n": 4},
    "n_body": {"n": 3},
    "dna": {"n": 5},
    "elastic_chain": {"n": 5},
    "elastic_cube": {"cells": 1},
}
# Their bounds have 18,000 operations of 65 kinds: XLA compiles them one by one in half the time of one program.
LONG = ("lennard_jones_fluid", "elastic_cube")
# colliding_balls has the potential of elastic_cube on another mesh, which takes as long again.
NAMES = [name for name in gm.models.all() if name != "colliding_balls"]


class Ray(NamedTuple):
    potential: Callable
    q: jax.Array
    v: jax.Array
    dt: float


@functools.cache
def ray(name):
    """The whole potential of a model, where it starts, and a direction; None where it has no potential. Models are made
    when a test needs them: all of them take seconds in every worker."""
    m = gm.models.all()[name](**FEW.get(name, {}))
    parts = [f for f in (getattr(m.system, "potential", None), getattr(m.system, "fast", None)) if f is not None]
    moves = np.any(m.v0) and np.shape(m.v0) == m.q0.shape  # velocities of rotations have other shapes
    v = m.v0 if moves else np.random.default_rng(1).normal(size=m.q0.shape)
    whole = lambda q: sum(m.system.call(f, q, t=0.4) for f in parts)
    return Ray(whole, jnp.asarray(m.q0), jnp.asarray(v), m.dt) if parts else None


def test_most_models_have_a_potential():
    assert sum(ray(name) is not None for name in NAMES) > 30


@pytest.mark.parametrize("name", NAMES)
def test_potentials_and_their_curvature_stay_in_their_range(name):
    if ray(name) is None:
        return  # free bodies, and Lagrangians
    potential, q, v, dt = ray(name)
    assert supported(derivatives(potential, q, v), 0.0) is None
    half, random, count = 0.02, np.random.default_rng(0), 1000 if q.size < 40 else 50
    second = jax.vmap(lambda t: derivatives(potential, q, v)(t)[0])

    bounds_of = jax.vmap(lambda t: curvature(potential, q, v, t[0], t[-1]))

    @jax.jit
    def all_of_it(box, points, times):
        bounds = None if name in LONG else bounds_of(times)
        return evaluate(potential, box), jax.vmap(potential)(points), bounds, jax.vmap(second)(times)

    widths = dt * np.array([0.01, 1.0, 20.0])
    starts = widths * random.uniform(-1, 1, 3)
    points = q + half * random.uniform(-1, 1, (count, *q.shape))
    times = np.linspace(starts, starts + widths, count, axis=1)
    found, values, bounds, seconds = all_of_it(Interval(q - half, q + half), points, times)
    assert inside(values, found)
    assert inside(np.transpose(seconds), bounds_of(jnp.asarray(times)) if bounds is None else bounds)


SMOOTH = ["argon_cluster", "kepler", "stiff_double_pendulum"]


@pytest.mark.parametrize("name", SMOOTH)
def test_curvature_converges(name):
    """Its width is that of the range of φ'' and O(h²), and so O(h); at a point it is φ'' up to rounding."""
    potential, q, v, dt = ray(name)
    bound, along = (
        jax.jit(lambda a, b: curvature(potential, q, v, a, b)),
        jax.jit(jax.vmap(derivatives(potential, q, v))),
    )
    start = 0.3 * dt
    rates, excess = [], []
    for h in dt * 2.0 ** -np.arange(0, 8):
        found, (second, third) = bound(start, start + h), along(np.linspace(start, start + h, 100))
        rates.append(float(found.high - found.low) / h / float(abs(third).max()))
        excess.append(float(found.high - found.low) - float(second.max() - second.min()))
        assert abs(0.5 * (found.low + found.high) - second[0]) <= 1.5 * h * abs(third).max() + 1e-12 * abs(second[0])
    assert max(rates) < 3
    assert rates[-1] < 1.05
    assert excess[-1] <= max(0.02 * excess[0], 1e-11 * float(abs(second).max()))
    found = bound(start, start)
    assert found.low <= second[0] <= found.high
    assert found.high - found.low <= 1e-10 * abs(second[0])


def test_a_jump_of_the_second_derivative_is_seen():
    """Here φ''' = 0 on both sides, and the mean value theorem does not hold across."""
    for contact in (
        lambda q: jnp.sum(jnp.maximum(q, 0.0) ** 2),
        lambda q: jnp.sum(jnp.where(q > 0, q**2, 0.0)),
        lambda q: 0.5 * jnp.sum(q**2 + q * jnp.abs(q)),
    ):
        bound = lambda a, b, f=contact: curvature(f, jnp.zeros(1), jnp.ones(1), a, b)
        assert inside([0.0, 2.0], bound(-1.0, 1.0))
        assert bound(0.1, 1.0) == pytest.approx((2, 2))
        assert bound(-1.0, -0.1) == pytest.approx((0, 0), abs=1e-13)


def test_a_jump_of_floor_is_seen():
    """⌊q⌋(3 − ⌊q⌋) q²/2 has the curvature 0, 2, 2, 0 on [0, 1], …, [3, 4]: the same at both ends, and φ''' = 0."""
    steps = lambda q: jnp.sum(jnp.floor(q) * (3 - jnp.floor(q)) * q**2 / 2)
    assert inside([0.0, 2.0], curvature(steps, jnp.zeros(1), jnp.ones(1), 0.5, 3.5))
    assert curvature(steps, jnp.zeros(1), jnp.ones(1), 1.1, 1.9) == pytest.approx((2, 2))


def test_an_angle_may_cross_its_cut():
    turn = lambda q: jnp.cos(3 * jnp.arctan2(q[1], q[0]))
    q, v = jnp.array([-1.0, -0.5]), jnp.array([0.1, 1.0])
    second = jax.vmap(lambda t: derivatives(turn, q, v)(t)[0])
    for a, b in ((0.0, 1.0), (0.45, 0.55), (0.6, 0.7)):
        found, values = curvature(turn, q, v, a, b), second(np.linspace(a, b, 500))
        assert inside(values, found)
    assert float(found.high - found.low) == pytest.approx(float(values.max() - values.min()), rel=0.1)
