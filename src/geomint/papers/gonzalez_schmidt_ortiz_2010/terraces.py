"""Energy-stepping with the paper's edges, and what the experiments share.

`offset=0` puts the edges at multiples of h, as in the paper. Where the minimum of V lies on an edge, as in example 4.1,
the motion touches that edge at each pass; such runs end before they reach it.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
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


FRAMES, GREY = 240, 7  # of an animation


def shown(
    t: Any,
    positions: Any,
    until: float | None = None,
    lines: Sequence[np.ndarray] = (),
    values: Any = None,
    **about: Any,
) -> Scene:
    """The animation of points (times, points, 2 or 3), up to the time `until`.

    lines:  paths of points (n, 2 or 3) that stay, such as edges of terraces, in grey
    values: a number for each point at each time
    about:  passed to Scene
    """
    from ...view import Scene

    t, x = np.asarray(t), np.asarray(positions)
    last = len(t) if until is None else int(np.searchsorted(t, until, side="right"))
    chosen = np.unique(np.linspace(0, last - 1, min(last, FRAMES)).astype(int))
    x = x[chosen]
    if values is not None:
        about["values"] = np.asarray(values)[chosen]
    if len(lines):
        points, still = x.shape[1], np.concatenate(lines)
        starts = points + np.cumsum([0, *(len(line) for line in lines)])
        extent = float(np.max(np.ptp(np.concatenate([x.reshape(-1, x.shape[2]), still]), axis=0)))
        about["bonds"] = [(k, k + 1) for a, b in itertools.pairwise(starts) for k in range(a, b - 1)]
        about["radii"] = [0.018 * extent] * points + [0.0] * len(still)
        about["colors"] = [*about.get("colors", range(points)), *[GREY] * len(still)]
        x = np.concatenate([x, np.broadcast_to(still, (len(x), *still.shape))], axis=1)
    return Scene(t[chosen], x, **about)
