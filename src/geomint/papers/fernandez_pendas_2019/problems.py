"""What the experiments of the slides share: the two pendula, the bodies on a sphere, animations, and the name of the
source."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import models
from ...methods import Method
from ...models import Model
from ...run import simulate

if TYPE_CHECKING:
    from ...view import Scene

PAPER = "fernandez-pendas-2019"
EPS = float(np.finfo(float).eps)
FRAMES = 240  # of an animation

pendula: Any = functools.cache(
    lambda: {"triple pendulum": models.triple_pendulum(), "double pendulum": models.double_pendulum()}
)
spheres: Any = functools.cache(models.sphere_bodies)  # one system each, so that its programs are compiled once


def animated(model: Model, method: Method, dt: float, t_end: float, title: str) -> Scene:
    """The animation of a motion, with its energy error and the residual of the constraint."""
    import dataclasses

    from ...view.of_run import scene_of

    every = max(1, round(t_end / dt / FRAMES))
    steps = round(t_end / dt) // every * every
    run = simulate(model.system, model.q0, model.v0, method=method, dt=dt, t_end=steps * dt, save_every=every)
    return dataclasses.replace(scene_of(run, frames=FRAMES + 1), title=title, subtitle=f"{method.name}, h = {dt:g}")
