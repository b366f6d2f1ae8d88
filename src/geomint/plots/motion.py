"""The motion in a figure: paths in the plane and in space, or coordinates over time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecBase

from ..errors import InputError
from ..fem.elastic import elastic_body
from ..rigid.assembly import Assembly
from ..system.checks import shown
from ..system.constraints import Orthogonal
from ..system.lagrangian import LagrangianSystem
from ..system.spaces import SO3, Poses, space_of
from .figures import AXES, LINES, PATHS, POINTS, axis_label, chosen, envelope, graded, legend

NARROW = 8  # paths this many times as long as wide are drawn with two scales
FLAT = 1e-3  # paths in space thinner than this share of their length are drawn as a plane curve


def q_shape(run: Any) -> tuple[int, ...]:
    return run.q.shape[2:] if run.members else run.q.shape[1:]


def is_space(run: Any) -> bool:
    shape = q_shape(run)
    if not shape or shape[-1] not in (2, 3):
        return False
    stated = run.system
    if elastic_body(stated) is not None:
        return True
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
    """A space or a plane in which paths are drawn."""

    title: str
    labels: tuple[str, ...]
    of: Callable[[np.ndarray], np.ndarray]  # positions → points of it, both along the last axis

    @property
    def spatial(self) -> bool:
        return len(self.labels) == 3

    @property
    def subplot(self) -> dict[str, str]:
        """The settings of its axes."""
        return {"projection": "3d"} if self.spatial else {}


def views(run: Any) -> list[View]:
    """The plane, or space; for charges in a magnetic field in space the meridian plane too, where orbits that turn
    around the axis are bananas and mirrors are seen from the side."""
    d = q_shape(run)[-1]
    own = View(" in space" if d == 3 else "", tuple("xyz"[:d]), lambda q: q[..., :d])
    if d == 2 or getattr(run.system, "magnetic_field", None) is None:
        return [own]
    meridian = lambda q: np.stack([np.hypot(q[..., 0], q[..., 1]), q[..., 2]], axis=-1)
    return [own, View(" in the plane of z and R = √(x² + y²)", ("R", "z"), meridian)]


def checked_labels(run: Any, labels: Sequence[str] | None, paths: bool) -> list[str] | None:
    """The user's names: one for each particle where paths are drawn, otherwise one for each coordinate."""
    if labels is None:
        return None
    shape = q_shape(run)
    count = math.prod(shape[:-1]) if paths else math.prod(shape)
    if isinstance(labels, str) or len(labels) != count or not all(isinstance(name, str) for name in labels):
        what = "particles" if paths else "coordinates"
        raise InputError(f"labels must be {count} names, those of the {what}, not {shown(labels)}.")
    return list(labels)


def drawn_points(run: Any) -> tuple[Callable[[np.ndarray], np.ndarray], str]:
    """The points of q whose paths are drawn, and a title: of a rotation matrix the image of the last axis of the body,
    of poses and of bodies with joints the centres of mass."""
    space = space_of(run.system)
    if isinstance(run.system, Assembly):
        centres = np.asarray(run.system.layout.directors.starts[:-1])
        return lambda q: q[..., centres, :], "Paths of the centres of mass"
    if isinstance(getattr(run.system, "constraint", None), Orthogonal) or isinstance(space, SO3):
        return lambda q: q[..., -1], "Path of the last axis of the body"
    if isinstance(space, Poses):
        return lambda q: q[..., 0, :], "Path of the centre of mass"
    return lambda q: q, "Paths"


def draw_paths(axes: Any, run: Any, members: np.ndarray | None, view: View, labels: list[str] | None) -> None:
    """One path for each particle (of each member)."""
    points, title = drawn_points(run)
    shape = points(np.empty(q_shape(run))).shape
    particles = int(np.prod(shape[:-1]))
    drawn = chosen(particles, PATHS if members is None else max(1, 2 * PATHS // len(members)))
    times = chosen(len(run.t), POINTS)
    colors = graded(len(drawn) if members is None else len(members))
    for m, member in enumerate([None] if members is None else members):
        q = np.asarray(run.q[times] if member is None else run.q[member][times])
        q = view.of(points(q).reshape(len(times), particles, shape[-1]))
        for k, particle in enumerate(drawn):
            color = colors[k if member is None else m]
            named = member is None and 1 < particles <= LINES
            label = (labels[particle] if labels else f"particle {particle}") if named else None
            width, alpha = (0.9, 0.9) if member is None else (0.5, 0.6)
            axes.plot(*q[:, particle].T, lw=width, alpha=alpha, color=color, label=label)
            axes.plot(*q[:1, particle].T, "o", ms=4 if member is None else 2, color=color)
    _set_aspect(axes, view)
    axes.set(**{f"{k}label": axis_label(run, label, "length") for k, label in zip(AXES, view.labels, strict=False)})
    part = f", {len(drawn)} of {particles} particles" if len(drawn) < particles else ""
    axes.set_title(f"{title}{view.title}{part} (dots: start)", fontsize=10)
    legend(axes, loc="upper center", bbox_to_anchor=(0.5, -0.08 if view.spatial else -0.13), ncols=5)
    axes.grid(alpha=0.25)


def _set_aspect(axes: Any, view: View) -> None:
    """Equal scales, unless the motion is much longer along one axis than along another."""
    if view.spatial:
        limits = [axes.get_xlim3d(), axes.get_ylim3d(), axes.get_zlim3d()]
        extent = np.ptp(np.array(limits), axis=1)
        if np.min(extent) < FLAT * np.max(extent):  # a plane curve: a scale of its own would show rounding
            limits = [_widened(x, np.max(extent) / NARROW) for x in limits]
            axes.set(xlim3d=limits[0], ylim3d=limits[1], zlim3d=limits[2])
            extent = np.ptp(np.array(limits), axis=1)
        axes.set_box_aspect(extent if np.max(extent) < NARROW * np.min(extent) else (1, 1, 1), zoom=0.92)
        axes.locator_params(nbins=5)
        axes.tick_params(labelsize=8)
        return
    width, height = (np.ptp(x) for x in (axes.dataLim.intervalx, axes.dataLim.intervaly))
    if width < NARROW * height and height < NARROW * width:
        axes.set_aspect("equal", adjustable="datalim")


def _widened(limits: tuple[float, float], least: float) -> tuple[float, float]:
    """The interval, or one of this length about its middle."""
    middle, half = 0.5 * (limits[0] + limits[1]), 0.5 * max(limits[1] - limits[0], least)
    return middle - half, middle + half


def coordinates(run: Any, labels: list[str] | None) -> list[tuple[int, str]]:
    """The coordinates to draw, by number and name: all of them where they are few."""
    names = labels or [
        "q[" + ", ".join(map(str, index)) + "]" if index else "q"
        for index in itertools.product(*map(range, q_shape(run)))
    ]
    return [(int(k), names[k]) for k in chosen(len(names), LINES // 2 if run.members else LINES)]


def draw_coordinates(
    figure: Figure, grid: GridSpecBase, run: Any, members: np.ndarray | None, strips: list[tuple[int, str]]
) -> None:
    """A strip for each coordinate over time, each on its own scale: stiff and soft ones differ by orders of
    magnitude."""
    t, total = np.asarray(run.t), int(np.prod(q_shape(run)))
    drawn: list[Axes] = []
    for row, (k, name) in enumerate(strips):
        axes = figure.add_subplot(grid[row, 0])
        if members is None:
            axes.plot(*envelope(t, run.q.reshape(len(run.t), -1)[:, k]), lw=0.8, color=f"C{row}")
        else:
            for member, color in zip(members, graded(len(members)), strict=True):
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
    drawn[-1].set_xlabel(axis_label(run, "time", "time"))
    figure.align_ylabels(drawn)
