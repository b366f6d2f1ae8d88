"""Figures: an empty one, its file, lines thinned to what can be seen, colours and labels.

Figures are drawn on their own Agg canvas: no display is needed, and no global list of figures keeps them alive. A
notebook shows them by `_repr_png_`, and at Python's prompt `at_the_prompt` opens a picture.
"""

from __future__ import annotations

import io
import itertools
import os
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..errors import InputError
from ..system.checks import as_path

POINTS = 5000  # most points drawn of a line; more are not visible
LINES = 8  # most lines in a panel of coordinates
PATHS = 50  # most particles, or members of an ensemble, that are drawn
AXES = "xyz"


class Picture(Figure):
    """A figure that notebooks show."""

    def _repr_png_(self) -> bytes:
        written = io.BytesIO()
        self.savefig(written, dpi=100, format="png")
        return written.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that belongs to no window."""
    figure = Picture(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def checked_path(path: str | Path) -> Path:
    """The path of a picture (.png where the name has no ending), checked before any work is done for it."""
    path = as_path(path, "path")
    if not path.name or path.is_dir():
        raise InputError(f"path: {path} is a folder; give the name of a picture in it.")
    path = path if path.suffix else path.with_suffix(".png")
    known = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise InputError(
            f"a picture can't be written as {path.suffix!r} ({path}); "
            f"its name ends in one of {', '.join('.' + k for k in sorted(known))}."
        )
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist.")
    return path


def unused(path: Path) -> Path:
    """The path, or where it exists one with the next free number: fpu.png, fpu-2.png, …"""
    found = (path.with_stem(f"{path.stem}-{k}") for k in itertools.count(2))
    return path if not path.exists() else next(x for x in found if not x.exists())


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure; the ending of the name chooses the format, PNG (150 dpi) without one."""
    path = checked_path(path)
    figure.savefig(path, dpi=150)
    return path


def at_the_prompt(figure: Figure) -> Figure:
    """The figure; at Python's own prompt, which shows no pictures, also as a file that is opened where there is a
    display, and named."""
    if hasattr(sys, "ps1") and "IPython" not in sys.modules:
        with tempfile.NamedTemporaryFile(prefix="geomint-", suffix=".png", delete=False) as file:
            figure.savefig(file, dpi=100, format="png")
        displays = sys.platform in ("darwin", "win32") or any(os.environ.get(x) for x in ("DISPLAY", "WAYLAND_DISPLAY"))
        if displays:
            webbrowser.open(Path(file.name).as_uri())
        print(f"the picture is in {file.name}", file=sys.stderr)
    return figure


def envelope(t: Any, y: Any, points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most `points` points of y(t) that keep every peak: the smallest and largest value of each interval, in order.

    Taking every n-th point instead would alias an oscillation.
    """
    y = np.asarray(y)
    if len(y) <= points:
        return np.asarray(t), y
    width = -(-len(y) // (points // 2 - 1))
    whole = len(y) // width * width
    stretches = y[:whole].reshape(-1, width)
    ends = np.stack([stretches.argmin(axis=1), stretches.argmax(axis=1)], axis=1)
    index = (np.sort(ends, axis=1) + np.arange(0, whole, width)[:, None]).ravel()
    index = np.unique(np.concatenate([[0], index, [len(y) - 1]]))
    return np.asarray(t)[index], y[index]


def chosen(n: int, most: int) -> np.ndarray:
    """At most `most` of n, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))


def graded(n: int) -> list[Any]:
    """Up to ten distinct colors; a graded scale beyond."""
    if n <= 10:
        return [f"C{k}" for k in range(n)]
    return [matplotlib.colormaps["viridis"](x) for x in np.linspace(0, 0.92, n)]


def legend(axes: Axes, **where: Any) -> None:
    """Names of the lines, outside the axes so that they hide nothing."""
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(fontsize=7, frameon=False, borderaxespad=0, **where)


def axis_label(run: Any, what: str, quantity: str) -> str:
    """The label of an axis, with the unit where the system states its units."""
    units = getattr(getattr(run.system, "atoms", None), "units", None)
    return what if units is None else units.axis(what, quantity)


def caption(run: Any, members: np.ndarray | None) -> str:
    origin = getattr(run.system, "origin", None)
    which = (
        ""
        if members is None
        else f", {len(members)} of {len(run.q)} members"
        if len(members) < len(run.q)
        else f", {len(run.q)} members"
    )
    return (f"{origin}: " if origin else "") + f"{run.method.name}, dt = {run.dt:g}, {len(run.t)} saved points{which}"
