"""What the experiments share: the paper's double pendulum, where observables are read, and pictures of ropes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from ... import models
from ...analysis import measure
from ...analysis.measure import Point
from ...models import Model
from ...run import Trajectory
from ...system.lagrangian import derive
from ...view import Scene

PAPER = "tao-owhadi-2015"
OMEGA, BETA = 20.0, 0.4  # of the pendula

pendulum: Any = functools.cache(
    models.double_pendulum
)  # one system for all experiments, so that its programs are compiled once


def constrained_motion(model: Model, times: np.ndarray) -> Point:
    """The exact motion on the constraint, from the model's initial data."""
    q, v = jnp.asarray(model.q0, float), jnp.asarray(model.v0, float)
    return measure.independent_reference(
        model.system, Point(np.asarray(q), np.asarray(derive(model.system, q.shape).momentum(v))), times
    )


@functools.cache
def pendulum_motion() -> Point:
    """The exact motion of the pendulum on its constraint, every .01 until t = 50."""
    return constrained_motion(pendulum(), 0.01 * np.arange(5001))


def positions(run: Trajectory) -> np.ndarray:
    """The positions at which observables are evaluated: the filtered ones, if the method has them."""
    return np.asarray(run.columns.get("q_filtered", run.q))


def kept_energy(run: Trajectory) -> np.ndarray:
    """T + Ṽ, which filtered methods conserve, or T + V where the method has no Ṽ."""
    return np.asarray(run.columns.get("filtered_energy", run.energy))


def scene_of_ropes(
    t: np.ndarray,
    ropes: Mapping[str, np.ndarray],
    title: str,
    subtitle: str,
    series: Mapping[str, tuple[Any, Any]] | None = None,
) -> Scene:
    """Chains of rods that hang from the origin, (frames, masses, 2) each, over one another in colours of their own."""
    count = sum(q.shape[1] for q in ropes.values())
    bonds, colors = [], []
    for k, q in enumerate(ropes.values()):
        first = len(colors)
        bonds += [(first, count), *((i, i + 1) for i in range(first, first + q.shape[1] - 1))]
        colors += [k] * q.shape[1]
    return Scene(
        t,
        np.concatenate(list(ropes.values()), axis=1),
        bonds=bonds,
        fixed=((0.0, 0.0),),
        colors=colors,
        names={label: k for k, label in enumerate(ropes)},
        series=series or {},
        trail=30,
        title=title,
        subtitle=subtitle,
    )
