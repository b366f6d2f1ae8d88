"""What all experiments of this paper use: the paper's methods, runs of a model, and the animation of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...methods import Method
from ...models import Model
from ...run import Trajectory, simulate
from ...view.of_run import scene_of

if TYPE_CHECKING:
    from ...view import Scene

PAPER = "console-hairer-lubich-2013"
A, B = (-0.7, 0.4), (-0.1, 0.4)  # the two methods of order 6 of example 1
FOUR, EIGHT = (0.5,), (-0.8, -0.4, 0.7)  # order 4: ours; order 8: the paper's, section 4.1
FRAMES = 240  # of an animation


def moved(model: Model, method: Method, dt: float, t_end: float, save_every: int = 1) -> Trajectory:
    """A run of the model to t_end, or to the nearest time that fits the step."""
    blocks = round(t_end / dt / save_every)
    return simulate(
        model.system, model.q0, model.v0, method=method, dt=dt, t_end=blocks * save_every * dt, save_every=save_every
    )


def largest(x: Any) -> float:
    return float(np.max(np.abs(x)))


def motion(model: Model, method: Method, dt: float, t_end: float) -> Callable[[], Scene]:
    """Makes the animation of a run of the model."""
    return lambda: scene_of(moved(model, method, dt, t_end), frames=FRAMES)
