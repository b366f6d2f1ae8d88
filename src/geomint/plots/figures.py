"""Figures of runs: the motion, and the errors of energy, momentum maps and constraints over time.

Figures are drawn on their own Agg canvas: no display is needed, and no global list of figures keeps them alive.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecBase

from ..errors import InputError
from ..system.checks import as_path
from ..system.constraints import Orthogonal
from ..system.lagrangian import LagrangianSystem

POINTS = 5000  # most points drawn of a line; more are not visible
LINES = 8  # most lines in a panel of coordinates
PATHS = 50  # most particles, or members of an ensemble, that are drawn
WATCHED = 2  # most quantities of System(watch=...) that are drawn
NARROW = 8  # paths this many times as long as wide are drawn with two scales
_AXES = "xyz"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that belongs to no window."""
    figure = Figure(figsize=(width, height), layout="constrained")
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


def overview(run: Any, path: str | Path | None = None, *, space: bool | None = None) -> Figure:
    """The motion on the left; energy error, momentum maps and constraint residual over time on the right.

    space:  True: the last axis of q is a position in the plane or in space, drawn as paths (projected, in space).
            False: coordinates are drawn over time. By default it is guessed from the shape of q and from the system.
    """
    if len(run.t) == 0:
        raise InputError("there is nothing to draw: the run has no saved points.")
    path = None if path is None else checked_path(path)
    if run.summary is not None and (run.reduced or "q" not in run.columns):
        return _reductions(run, path)
    members = _chosen(len(run.q), PATHS) if run.members else None
    watched = _watched(run, members)
    paths = _is_space(run) if space is None else space
    strips = [] if paths else _coordinates(run)
    views = _views(run) if paths else []
    figure = new_figure(11.0, max(4.6, 2.3 * len(watched), 0.75 * len(strips), 3.4 * len(views)))
    left, right = figure.add_gridspec(1, 2)
    grid = right.subgridspec(len(watched), 1)
    if paths:
        places = left.subgridspec(len(views), 1)
        for row, view in enumerate(views):
            _draw_paths(figure.add_subplot(places[row, 0]), run, members, view)
    else:
        _draw_coordinates(figure, left.subgridspec(len(strips), 1, hspace=0.05), run, members, strips)
    shared: Axes | None = None
    for row, (title, label, lines) in enumerate(watched):
        axes = figure.add_subplot(grid[row, 0], sharex=shared)
        below = _axis(run, "time", "time") if row == len(watched) - 1 else None
        _draw_watched(axes, np.asarray(run.t), title, label, lines, below)
        shared = axes
    figure.suptitle(_caption(run, members), fontsize=10)
    if path is not None:
        save_figure(figure, path)
    return figure


# --- ensembles that were reduced --------------------------------------------------------------------------------------
def _reductions(run: Any, path: Path | None) -> Figure:
    """One panel for each reduction; of a quantity with several entries the first ones. The caption has the number
    of members left."""
    panels = [
        (name, held)
        for name, held in run.reduced.items()
        if held.members.size and np.size(next(iter(held.results.values())))
    ]
    if not panels:
        raise InputError("there is nothing to draw: nothing was reduced in this run.")
    figure, t = new_figure(8.0, 1.0 + 2.3 * len(panels)), np.asarray(run.t)
    rows = [figure.add_subplot(len(panels), 1, row + 1) for row in range(len(panels))]
    for axes, (name, held) in zip(rows, panels, strict=True):
        _draw_reduction(axes, t, held)
        axes.set_ylabel(name)
        axes.margins(x=0)
    rows[-1].set_xlabel(_axis(run, "time", "time"))
    left = run.members_left
    figure.suptitle(
        f"{_caption(run, None)}, {left[0]} members"
        + (f", of which {left[-1]} were left" if left[-1] < left[0] else ""),
        fontsize=10,
    )
    if path is not None:
        save_figure(figure, path)
    return figure


def _draw_reduction(axes: Axes, t: np.ndarray, held: Any) -> None:
    """A mean with a band of one standard deviation on each side, quantiles as lines, a histogram as shades over
    time."""
    kept = np.unique(np.linspace(0, len(t) - 1, min(len(t), POINTS)).astype(int))
    entries = lambda x, lead: np.asarray(x)[kept].reshape(len(kept), *np.shape(x)[1 : 1 + lead], -1)
    if "counts" in held.results:
        middle = (t[kept][1:] + t[kept][:-1]) / 2
        axes.pcolormesh(
            np.concatenate([t[:1], middle, t[-1:]]),
            held.edges,
            entries(held.counts, 1)[..., 0].T,
            shading="flat",
            cmap="Blues",
            rasterized=True,
        )
        return
    if "quantiles" in held.results:
        for k, level in enumerate(held.levels):
            axes.plot(
                t[kept],
                entries(held.quantiles, 1)[:, k, 0],
                color="C0",
                lw=0.9,
                alpha=1 - abs(2 * level - 1) * 0.7,
                label=f"{level:g}",
            )
    else:
        means, spreads = entries(held.mean, 0), entries(held.standard_deviation, 0)
        for k in range(min(LINES, means.shape[1])):
            axes.plot(t[kept], means[:, k], color=f"C{k}", lw=0.9)
            axes.fill_between(
                t[kept], means[:, k] - spreads[:, k], means[:, k] + spreads[:, k], color=f"C{k}", alpha=0.2, lw=0
            )
    axes.grid(alpha=0.25)
    _legend(axes, loc="center left", bbox_to_anchor=(1.01, 0.5))


# --- thinning ---------------------------------------------------------------------------------------------------------
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


def _chosen(n: int, most: int) -> np.ndarray:
    """At most `most` of n, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))


# --- the motion -------------------------------------------------------------------------------------------------------
def _q_shape(run: Any) -> tuple[int, ...]:
    return run.q.shape[2:] if run.members else run.q.shape[1:]


def _is_space(run: Any) -> bool:
    shape = _q_shape(run)
    if not shape or shape[-1] not in (2, 3):
        return False
    stated = run.system
    if isinstance(stated, LagrangianSystem) and len(shape) == 1:
        return False  # angles and other coordinates, not a position
    # A fast part without spatial symmetry and without constraint: rows are modes or springs (fpu), not particles.
    modes = (
        stated is not None
        and getattr(stated, "fast", None) is not None
        and not stated.symmetries
        and stated.constraint is None
    )
    return not (len(shape) > 1 and modes)


class View(NamedTuple):
    """A plane in which paths are drawn."""

    title: str
    labels: tuple[str, str]
    of: Callable[[np.ndarray], np.ndarray]  # positions → points of the plane, both along the last axis


def _views(run: Any) -> list[View]:
    """The x–y plane, or the x–z plane where nearly all motion is along z (a drum); for charges in a magnetic field in
    space the meridian plane too, where orbits that turn around the axis are bananas and mirrors are seen from the
    side."""
    spatial = _q_shape(run)[-1] == 3
    if spatial and not run.members:
        q = np.asarray(run.q[_chosen(len(run.t), 100)])
        along = np.max(np.abs(q - q[:1]), axis=tuple(range(q.ndim - 1)))
        if along[2] > NARROW * max(along[0], along[1]):
            return [View(" projected on the x–z plane", ("x", "z"), lambda q: q[..., ::2])]
    plane = View(" projected on the x–y plane" if spatial else "", ("x", "y"), lambda q: q[..., :2])
    if not spatial or getattr(run.system, "magnetic_field", None) is None:
        return [plane]
    meridian = lambda q: np.stack([np.hypot(q[..., 0], q[..., 1]), q[..., 2]], axis=-1)
    return [plane, View(" in the plane of z and R = √(x² + y²)", ("R", "z"), meridian)]


def _draw_paths(axes: Axes, run: Any, members: np.ndarray | None, view: View) -> None:
    """One path in the plane for each particle (of each member)."""
    turns = isinstance(getattr(run.system, "constraint", None), Orthogonal)
    shape = _q_shape(run)[-1:] if turns else _q_shape(run)  # of a rotation matrix, the image of the last axis: q[:, -1]
    particles = int(np.prod(shape[:-1]))
    drawn = _chosen(particles, PATHS if members is None else max(1, 2 * PATHS // len(members)))
    times = _chosen(len(run.t), POINTS)
    colors = _colors(len(drawn) if members is None else len(members))
    for m, member in enumerate([None] if members is None else members):
        q = np.asarray(run.q[times] if member is None else run.q[member][times])
        q = view.of((q[..., -1] if turns else q).reshape(len(times), particles, shape[-1]))
        for k, particle in enumerate(drawn):
            color = colors[k if member is None else m]
            label = f"particle {particle}" if member is None and 1 < particles <= LINES else None
            width, alpha = (0.9, 0.9) if member is None else (0.5, 0.6)
            axes.plot(q[:, particle, 0], q[:, particle, 1], lw=width, alpha=alpha, color=color, label=label)
            axes.plot(*q[0, particle], "o", ms=4 if member is None else 2, color=color)
    width, height = (np.ptp(x) for x in (axes.dataLim.intervalx, axes.dataLim.intervaly))
    if width < NARROW * height and height < NARROW * width:
        axes.set_aspect("equal", adjustable="datalim")
    axes.set(**{f"{k}label": _axis(run, label, "length") for k, label in zip("xy", view.labels, strict=True)})
    part = f", {len(drawn)} of {particles} particles" if len(drawn) < particles else ""
    axes.set_title(
        ("Path of the last axis of the body" if turns else "Paths") + view.title + part + " (dots: start)", fontsize=10
    )
    _legend(axes, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=5)
    axes.grid(alpha=0.25)


def _coordinates(run: Any) -> list[tuple[int, str]]:
    """The coordinates to draw, by number and name: all of them where they are few."""
    names = [
        "q[" + ", ".join(map(str, index)) + "]" if index else "q"
        for index in itertools.product(*map(range, _q_shape(run)))
    ]
    return [(int(k), names[k]) for k in _chosen(len(names), LINES // 2 if run.members else LINES)]


def _draw_coordinates(
    figure: Figure, grid: GridSpecBase, run: Any, members: np.ndarray | None, strips: list[tuple[int, str]]
) -> None:
    """A strip for each coordinate over time, each on its own scale: stiff and soft ones differ by orders of
    magnitude."""
    t, total = np.asarray(run.t), int(np.prod(_q_shape(run)))
    drawn: list[Axes] = []
    for row, (k, name) in enumerate(strips):
        axes = figure.add_subplot(grid[row, 0])
        if members is None:
            axes.plot(*envelope(t, run.q.reshape(len(run.t), -1)[:, k]), lw=0.8, color=f"C{row}")
        else:
            for member, color in zip(members, _colors(len(members)), strict=True):
                axes.plot(*envelope(t, run.q[member].reshape(len(run.t), -1)[:, k]), lw=0.5, alpha=0.6, color=color)
        axes.set_ylabel(name)
        axes.margins(x=0)
        axes.grid(alpha=0.25)
        axes.tick_params(labelbottom=row == len(strips) - 1, labelsize=8 if len(strips) > 4 else None)
        axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4), useMathText=True)
        drawn.append(axes)
        if row == 0:
            axes.set_title(
                "Coordinates over time" if len(strips) == total else f"{len(strips)} of {total} coordinates over time",
                fontsize=10,
            )
    drawn[-1].set_xlabel(_axis(run, "time", "time"))
    figure.align_ylabels(drawn)


def _colors(n: int) -> list[Any]:
    """Up to ten distinct colors; a graded scale beyond."""
    if n <= 10:
        return [f"C{k}" for k in range(n)]
    return [matplotlib.colormaps["viridis"](x) for x in np.linspace(0, 0.92, n)]


def _legend(axes: Axes, **where: Any) -> None:
    """Names of the lines, outside the axes so that they hide nothing."""
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(fontsize=7, frameon=False, borderaxespad=0, **where)


# --- what is watched --------------------------------------------------------------------------------------------------
Lines = list[tuple[str | None, Any, np.ndarray]]  # label, color, values over time


def _watched(run: Any, members: np.ndarray | None) -> list[tuple[str, str, Lines]]:
    """Title, axis label and lines of every panel over time."""
    pick = (lambda x: np.asarray(x)[None]) if members is None else (lambda x: np.asarray(x[members]))
    colors = _colors(1 if members is None else len(members))

    def single(rows: np.ndarray) -> Lines:
        return [(None, c, y) for c, y in zip(colors, rows, strict=True)]

    energy, title, label = pick(run.energy), "Energy error", "H(t) − H(0)"
    for name in ("work", "heat"):  # of forces, and of a thermostat: the energy changes by these
        if name in run.columns:
            energy, label = energy - pick(run.columns[name]), f"{label} − {name}"
            title = f"{title.replace('Energy error', 'Error of energy')} − {name}"
    panels: list[tuple[str, str, Lines]] = [(title, _axis(run, label, "energy"), single(energy - energy[:, :1]))]
    maps = _momentum_lines(run, pick, members)
    if maps:
        named = len(maps) == 1 or members is not None  # else a legend names the lines
        title = "Momentum map" + ("s" if len(maps) > 1 else "") + (": " + ", ".join(run.momentum_maps) if named else "")
        panels.append((title, "J(t) − J(0)", maps))
    for name, values in list(run.watched.items())[:WATCHED]:
        rows = pick(values)
        if rows.ndim == 2:
            panels.append((name.capitalize(), "as watched", single(rows)))
    if run.constraint_residual.shape[-1]:
        panels.append(("Constraint residual", "max |g(q)|", single(np.abs(pick(run.constraint_residual)).max(axis=-1))))
    return panels


def _momentum_lines(run: Any, pick: Any, members: np.ndarray | None) -> Lines:
    lines: Lines = []
    for name, values in run.momentum_maps.items():
        rows = pick(values).reshape(*pick(run.energy).shape, -1)
        rows = rows - rows[:, :1]
        for m, k in itertools.product(range(len(rows)), range(rows.shape[-1])):
            component = f" {_AXES[k]}" if rows.shape[-1] == 3 else (f" {k}" if rows.shape[-1] > 1 else "")
            color = f"C{len(lines) % 10}" if members is None else _colors(len(members))[m]
            lines.append((name + component if members is None else None, color, rows[m, :, k]))
    return lines


def _draw_watched(axes: Axes, t: np.ndarray, title: str, label: str, lines: Lines, below: str | None) -> None:
    thin = len({str(color) for _, color, _ in lines}) > 10
    for name, color, y in lines:
        axes.plot(*envelope(t, y), label=name, color=color, lw=0.5 if thin else 0.9, alpha=0.6 if thin else 0.9)
    if all(not np.any(y) for _, _, y in lines):
        axes.set_ylim(-1e-16, 1e-16)  # exactly conserved: show a range of the size of round-off
    axes.set_title(title, fontsize=10)
    axes.set_ylabel(label)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3), useOffset=False, useMathText=True)
    axes.margins(x=0)
    axes.grid(alpha=0.25)
    axes.tick_params(labelbottom=below is not None)
    axes.locator_params(axis="x", nbins=6)
    if below is not None:
        axes.set_xlabel(below)
    _legend(axes, loc="center left", bbox_to_anchor=(1.01, 0.5))


def _axis(run: Any, what: str, quantity: str) -> str:
    """The label of an axis, with the unit where the system states its units."""
    units = getattr(getattr(run.system, "atoms", None), "units", None)
    return what if units is None else units.axis(what, quantity)


def _caption(run: Any, members: np.ndarray | None) -> str:
    origin = getattr(run.system, "origin", None)
    which = (
        ""
        if members is None
        else f", {len(members)} of {len(run.q)} members"
        if len(members) < len(run.q)
        else f", {len(run.q)} members"
    )
    return (f"{origin}: " if origin else "") + f"{run.method.name}, dt = {run.dt:g}, {len(run.t)} saved points{which}"
