"""Energy-stepping with the paper's edges, and what the experiments share.

`offset=0` puts the edges at multiples of h, as in the paper. Where the minimum of V lies on an edge, as in example 4.1,
the motion touches that edge at each pass; such runs end before they reach it.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from ...methods import EnergyStepping
from ...run import Trajectory, simulate

if TYPE_CHECKING:
    from ...view import Scene

PAPER = "gonzalez-schmidt-ortiz-2010"


def terraced(
    system: Any,
    q0: Any,
    v0: Any,
    height: float,
    t_end: float,
    samples: int = 1,
    t0: float = 0.0,
    offset: float | None = 0.0,
) -> Trajectory:
    """Energy-stepping, sampled `samples` times. Its warning of traps is expected here and suppressed: experiments
    report them as numbers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="EnergyStepping was trapped")
        return simulate(
            system,
            q0,
            v0,
            method=EnergyStepping(float(height), offset=offset),
            dt=(t_end - t0) / samples,
            t0=t0,
            t_end=t_end,
        )


def rate(heights: Any, errors: Any) -> float:
    """The slope of log error over log h."""
    return float(np.polyfit(np.log(heights), np.log(errors), 1)[0])


FRAMES = 240  # of an animation


def shown(t: Any, positions: Any, until: float | None = None, **about: Any) -> Scene:
    """The animation of points (times, points, 2 or 3), up to the time `until`; `about` is passed to Scene."""
    from ...view import Scene

    t, positions = np.asarray(t), np.asarray(positions)
    last = len(t) if until is None else int(np.searchsorted(t, until, side="right"))
    chosen = np.unique(np.linspace(0, last - 1, min(last, FRAMES)).astype(int))
    return Scene(t[chosen], positions[chosen], **about)
