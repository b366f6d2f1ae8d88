"""A matplotlib figure as panels: one interactive plot for each Axes, placed as in the figure.

Each panel is a plot of its own, so that a page can put panels side by side on a desk and one below another on a phone.
Axes that lie over one another (twins, insets) share a panel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .artists import converted
from .axes import axis_layout
from .drawn import Drawn
from .legends import Entry, figure_entries, panel_entries
from .looks import words
from .space import space_layout, space_traces

CLOSE = 0.03  # of the figure: edges of axes this close are one line of the grid


@dataclasses.dataclass
class Panel:
    """One plot of a page.

    axes:     the Axes it shows, the largest first
    cell:     (first row, last row, first column, last column) in the grid of the figure, from 1; the last is excluded
    title:    above it
    plot:     {"data": …, "layout": …} for plotly
    legend:   what its colours and lines mean; parts are (panel, kind, number)
    linked:   {"x": …, "y": …}: panels of one number are zoomed together along that axis
    unknown:  artists without a form in plotly; a panel with any is shown as a picture
    """

    axes: Sequence[Any]
    cell: tuple[int, int, int, int]
    title: str
    plot: dict[str, Any]
    legend: list[Entry] = dataclasses.field(default_factory=list)
    legend_title: str = ""
    linked: dict[str, int] = dataclasses.field(default_factory=dict)
    unknown: list[str] = dataclasses.field(default_factory=list)
    thinned: list[str] = dataclasses.field(default_factory=list)
    parts: dict[int, list[tuple[str, int]]] = dataclasses.field(default_factory=dict)

    @property
    def spatial(self) -> bool:
        return "scene" in self.plot["layout"]


@dataclasses.dataclass
class Converted:
    """A figure as panels.

    columns, rows:  shares of the width and of the height of the grid's columns and rows
    """

    panels: list[Panel]
    columns: list[float]
    rows: list[float]
    proportion: float  # height of the figure over its width
    title: str = ""
    legend: list[Entry] = dataclasses.field(default_factory=list)

    @property
    def unknown(self) -> dict[str, int]:
        """How many artists of each kind could not be converted."""
        names = [name for panel in self.panels for name in panel.unknown]
        return {name: names.count(name) for name in dict.fromkeys(names)}


def panels_of(figure: Figure) -> Converted:
    """The panels of a figure. The figure is drawn first, since its layout and its ticks are found when it is drawn."""
    figure.canvas.draw()
    groups = _groups([axes for axes in figure.axes if axes.get_visible() and not hasattr(axes, "_colorbar")])
    boxes = np.array([_box(group[0]) for group in groups]).reshape(-1, 4)
    columns, across = _grid(boxes[:, 0], boxes[:, 2])
    rows, down = _grid(1 - boxes[:, 3], 1 - boxes[:, 1])
    made = []
    for number, group in enumerate(groups):
        cell = (*down[number], *across[number])
        made.append(_panel(group, cell))
    _link(made)
    for number, panel in enumerate(made):
        panel.legend, panel.legend_title = panel_entries(panel.axes, number, panel.parts, panel.plot["data"])
    width, height = figure.get_size_inches()
    title = figure.get_suptitle()
    return Converted(made, columns, rows, height / width, words(title), figure_entries(figure, made))


def _box(axes: Axes) -> tuple[float, float, float, float]:
    return axes.get_position(original=True).extents  # before equal scales shrink it


def _groups(many: Sequence[Axes]) -> list[list[Axes]]:
    """Axes that lie over one another, the largest first."""
    groups: list[list[Axes]] = []
    for axes in many:
        x0, y0, x1, y1 = _box(axes)
        for group in groups:
            a0, b0, a1, b1 = _box(group[0])
            inside = min(x1, a1) - max(x0, a0), min(y1, b1) - max(y0, b0)
            if min(inside) > 0 and inside[0] * inside[1] > 0.5 * (x1 - x0) * (y1 - y0):
                group.append(axes)
                break
        else:
            groups.append([axes])
    return groups


def _grid(starts: Any, ends: Any) -> tuple[list[float], list[tuple[int, int]]]:
    """The lines of a grid at the starts of the intervals, as the shares of its tracks, and the first and last line of
    each interval."""
    lines: list[float] = []
    for start in np.sort(starts):
        if not lines or start - lines[-1] > CLOSE:
            lines.append(float(start))
    last = float(np.max(ends))
    spans = []
    for start, end in zip(starts, ends, strict=True):
        first = int(np.argmin(np.abs(np.array(lines) - start)))
        after = [k for k, line in enumerate(lines) if k > first and line > end - CLOSE]
        spans.append((first + 1, (after[0] if after else len(lines)) + 1))
    gaps = [line - max(end for end in ends if end < line + CLOSE) for line in lines[1:]]
    edges = [
        *lines,
        last + max(0.0, min([0.1, *gaps]) if gaps else 0.0),
    ]  # all tracks but the last have a gap after them
    return [round(float(size), 4) for size in np.diff(edges)], spans


def _panel(group: Sequence[Any], cell: tuple[int, int, int, int]) -> Panel:
    first = group[0]
    title = words(
        " ".join(part for part in (first.get_title("left"), first.get_title(), first.get_title("right")) if part)
    )
    if hasattr(first, "get_zlim3d"):
        traces, owners, unknown = space_traces(first)
        unknown += [] if len(group) == 1 else ["axes over others"]
        parts: dict[int, list[tuple[str, int]]] = {}
        for number, owner in enumerate(owners):
            parts.setdefault(owner, []).append(("trace", number))
        return Panel(group, cell, title, {"data": traces, "layout": space_layout(first)}, unknown=unknown, parts=parts)
    panel = Panel(group, cell, title, {"data": [], "layout": {"shapes": [], "annotations": []}})
    for number, axes in enumerate(group):
        _add(panel, axes, first, "" if number == 0 else str(number + 1))
    return panel


def _add(panel: Panel, axes: Axes, first: Axes, suffix: str) -> None:
    """One Axes of a panel: over the whole of it for a twin, in a part of it for an inset."""
    drawn: Drawn = converted(axes, f"x{suffix}", f"y{suffix}")
    layout, data = panel.plot["layout"], panel.plot["data"]
    panel.unknown += drawn.unknown
    panel.thinned += drawn.thinned
    panel.unknown += [f"{type(child).__name__} in axes" for child in axes.child_axes]
    starts = {"trace": len(data), "shape": len(layout["shapes"])}
    for owner, parts in drawn.parts.items():
        panel.parts[owner] = [(kind, starts[kind] + number) for kind, number in parts]
    data += drawn.traces
    layout["shapes"] += drawn.shapes
    layout["annotations"] += drawn.annotations
    layout["barmode"] = "overlay"
    for name in "xy":
        made, unknown = axis_layout(axes, name)
        panel.unknown += unknown
        layout[f"{name}axis{suffix}"] = made | _over(axes, first, name, suffix)
    if axes.get_aspect() != "auto":
        scaled = {"scaleanchor": f"x{suffix}", "scaleratio": float(axes.get_aspect())}  # type: ignore[arg-type]
        layout[f"yaxis{suffix}"] |= scaled | {"constrain": "domain"}
        layout[f"xaxis{suffix}"] |= {"constrain": "domain"}


def _over(axes: Axes, first: Axes, name: str, suffix: str) -> dict[str, Any]:
    """Where an axis of plotly lies within its panel."""
    if not suffix:
        return {}
    outer, inner = _box(first), _box(axes)
    k = 0 if name == "x" else 1
    size = outer[k + 2] - outer[k]
    domain = [(inner[k] - outer[k]) / size, (inner[k + 2] - outer[k]) / size]
    other = f"{'y' if name == 'x' else 'x'}{suffix}"
    if not np.allclose(inner, outer, atol=1e-6):
        return {"domain": [float(np.clip(x, 0, 1)) for x in domain], "anchor": other}
    side = (axes.yaxis if name == "y" else axes.xaxis).get_ticks_position()
    shown = {"overlaying": name, "anchor": other, "side": side if side in ("right", "top") else None, "showgrid": False}
    if (axes.get_shared_x_axes() if name == "x" else axes.get_shared_y_axes()).joined(axes, first):
        return {"overlaying": name, "matches": name, "anchor": other, "visible": False}
    return {key: value for key, value in shown.items() if value is not None}


def _link(panels: Sequence[Panel]) -> None:
    """Panels whose axes are shared are zoomed together, and a label that only one of them has is that of all."""
    for name in "xy":
        for panel in panels:
            if panel.spatial:
                continue
            first = panel.axes[0]
            shared = first.get_shared_x_axes() if name == "x" else first.get_shared_y_axes()
            mates = [k for k, each in enumerate(panels) if each.axes[0] is first or shared.joined(first, each.axes[0])]
            if len(mates) < 2:
                continue
            panel.linked[name] = mates[0]
            own = panel.plot["layout"][f"{name}axis"]
            if not own["title"]["text"]:
                other = [panels[k].plot["layout"][f"{name}axis"]["title"]["text"] for k in mates]
                own["title"]["text"] = next((label for label in other if label), "")
