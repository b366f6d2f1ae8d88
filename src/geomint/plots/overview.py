"""The figure of a run: the motion, and the errors of energy, momentum maps and constraints over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import InputError
from .figures import PATHS, at_the_prompt, axis_label, caption, checked_path, chosen, new_figure, save_figure
from .motion import checked_labels, coordinates, draw_coordinates, draw_paths, is_space, views
from .reductions import reductions
from .watched import draw_watched, watched_panels


def overview(
    run: Any, path: str | Path | None = None, *, space: bool | None = None, labels: Sequence[str] | None = None
) -> Figure:
    """The motion on the left; energy error, momentum maps, watched quantities and constraint residual over time on the
    right.

    space:  True: the last axis of q is a position in the plane or in space, drawn as paths. False: coordinates are
            drawn over time. By default it is guessed from the shape of q and from the system.
    labels: names of the particles where paths are drawn, otherwise of the coordinates
    """
    if len(run.t) == 0:
        raise InputError("there is nothing to draw: the run has no saved points.")
    path = None if path is None else checked_path(path)
    if run.summary is not None and (run.reduced or "q" not in run.columns):
        return reductions(run, path)
    paths = is_space(run) if space is None else space
    labels = checked_labels(run, labels, paths)
    members = chosen(len(run.q), PATHS) if run.members else None
    watched = watched_panels(run, members)
    strips = [] if paths else coordinates(run, labels)
    seen = views(run) if paths else []
    figure = new_figure(11.0, max(4.6, 2.3 * len(watched), 0.75 * len(strips), 3.4 * len(seen)))
    left, right = figure.add_gridspec(1, 2)
    grid = right.subgridspec(len(watched), 1)
    if paths:
        places = left.subgridspec(len(seen), 1)
        for row, view in enumerate(seen):
            draw_paths(figure.add_subplot(places[row, 0], **view.subplot), run, members, view, labels)
    else:
        draw_coordinates(figure, left.subgridspec(len(strips), 1, hspace=0.05), run, members, strips)
    shared: Axes | None = None
    for row, (title, label, lines) in enumerate(watched):
        axes = figure.add_subplot(grid[row, 0], sharex=shared)
        below = axis_label(run, "time", "time") if row == len(watched) - 1 else None
        draw_watched(axes, np.asarray(run.t), title, label, lines, below)
        shared = axes
    figure.suptitle(caption(run, members), fontsize=10)
    if path is not None:
        save_figure(figure, path)
    return figure if path is not None else at_the_prompt(figure)
