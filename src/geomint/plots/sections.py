"""Poincaré sections as points in a plane."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from .figures import checked_path, new_figure, save_figure

MEMBERS = 300  # most trajectories with a colour of their own
DRAWN = 200_000  # most points


def drawn(section: Any, path: str | Path | None, x: str | None, y: str | None) -> Figure:
    """The points of a section in the plane of two coordinates, a colour for each trajectory."""
    path = None if path is None else checked_path(path)
    if x is None or y is None:
        most = _most_varied(section)
        x, y = x or f"q{most}", y or f"p{most}"
    across, up = (np.atleast_2d(section.coordinate(name)) for name in (x, y))
    figure = new_figure(6.4, 6.0)
    axes = figure.subplots()
    every = max(1, -(-across.size // DRAWN))
    colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.95, len(across)))
    if len(across) == 1:
        axes.plot(across[0, ::every], up[0, ::every], ".", ms=1.6, color="C0", mew=0)
    else:
        which = np.repeat(np.arange(len(across)), across.shape[1])[::every]
        shuffled = np.random.default_rng(0).permutation(len(which))  # no trajectory lies above all others
        flat = [z.ravel()[::every][shuffled] for z in (across, up)]
        axes.scatter(*flat, s=0.35, c=colors[which[shuffled]], lw=0, rasterized=True)
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.2)
    origin = getattr(section.run.system, "origin", None)
    count = f"{len(section)} points" + (f" of {len(across)} trajectories" if section.members else "")
    axes.set_title((f"{origin}: " if origin else "") + count, fontsize=10)
    if path is not None:
        save_figure(figure, path)
    return figure


def _most_varied(section: Any) -> str:
    """The index of the position that varies most over the points, as text."""
    lead = 2 if section.members else 1
    shape = section.q.shape[lead:]
    flat = section.q.reshape(-1, int(np.prod(shape)))
    spread = np.nanstd(flat, axis=0) if len(flat) else np.zeros(flat.shape[1])
    indices = list(itertools.product(*map(range, shape)))
    chosen = indices[int(np.argmax(spread))]
    return "[" + ", ".join(map(str, chosen)) + "]" if shape else ""
