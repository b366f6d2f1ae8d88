"""Quantities over time in a figure: the energy error, momentum maps, watched quantities, constraint residuals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .figures import AXES, LINES, axis_label, envelope, graded, legend

WATCHED = 3  # most quantities of System(watch=...) that are drawn
NEARLY_CONSTANT = 1e-5  # relative change below which the ticks of an axis would show the same number


Lines = list[tuple[str | None, Any, np.ndarray]]  # label, color, values over time


def watched_panels(run: Any, members: np.ndarray | None) -> list[tuple[str, str, Lines]]:
    """Title, axis label and lines of every panel over time."""
    pick = (lambda x: np.asarray(x)[None]) if members is None else (lambda x: np.asarray(x[members]))
    colors = graded(1 if members is None else len(members))

    def single(rows: np.ndarray) -> Lines:
        return [(None, c, y) for c, y in zip(colors, rows, strict=True)]

    energy, title, label = pick(run.energy), "Energy error", "H(t) − H(0)"
    for name in ("work", "heat"):  # of forces, and of a thermostat: the energy changes by these
        if name in run.columns:
            energy, label = energy - pick(run.columns[name]), f"{label} − {name}"
            title = f"{title.replace('Energy error', 'Error of energy')} − {name}"
    panels: list[tuple[str, str, Lines]] = [(title, axis_label(run, label, "energy"), single(energy - energy[:, :1]))]
    maps = _momentum_lines(run, pick, members)
    if maps:
        named = len(maps) == 1 or members is not None  # else a legend names the lines
        title = "Momentum map" + ("s" if len(maps) > 1 else "") + (": " + ", ".join(run.momentum_maps) if named else "")
        panels.append((title, "J(t) − J(0)", maps))
    for name, values in list(run.watched.items())[:WATCHED]:
        rows, label = pick(values), "as watched"
        if 0 < np.ptp(rows - rows[:, :1]) < NEARLY_CONSTANT * np.max(np.abs(rows)):
            rows, label = rows - rows[:, :1], "change from the start"
        panels.append((_as_title(name), label, _watched_lines(rows, colors, members)))
    if run.constraint_residual.shape[-1]:
        panels.append(("Constraint residual", "max |g(q)|", single(np.abs(pick(run.constraint_residual)).max(axis=-1))))
    return panels


def _as_title(name: str) -> str:
    """The name of a watched quantity, which may be an identifier."""
    return name[:1].upper() + name[1:].replace("_", " ")


def _watched_lines(rows: np.ndarray, colors: list[Any], members: np.ndarray | None) -> Lines:
    """The values of a watched quantity over time; of one with several entries the first ones."""
    if rows.ndim == 2:
        return [(None, c, y) for c, y in zip(colors, rows, strict=True)]
    flat, shape = rows.reshape(*rows.shape[:2], -1)[..., :LINES], rows.shape[2:]
    lines: Lines = []
    for m, k in itertools.product(range(len(flat)), range(flat.shape[-1])):
        color = f"C{k}" if members is None else colors[m]
        lines.append((_entry(k, shape) if members is None else None, color, flat[m, :, k]))
    return lines


def _entry(k: int, shape: tuple[int, ...]) -> str:
    """A name for the k-th entry: "x" of a vector in space, "1 y" of the second of several."""
    *before, last = (int(i) for i in np.unravel_index(k, shape))
    if not before and shape[-1] != 3:
        return f"entry {k}"
    return " ".join([*map(str, before), AXES[last] if shape[-1] == 3 else str(last)])


def _momentum_lines(run: Any, pick: Any, members: np.ndarray | None) -> Lines:
    lines: Lines = []
    for name, values in run.momentum_maps.items():
        rows = pick(values).reshape(*pick(run.energy).shape, -1)
        rows = rows - rows[:, :1]
        for m, k in itertools.product(range(len(rows)), range(rows.shape[-1])):
            component = f" {AXES[k]}" if rows.shape[-1] == 3 else (f" {k}" if rows.shape[-1] > 1 else "")
            color = f"C{len(lines) % 10}" if members is None else graded(len(members))[m]
            lines.append((name + component if members is None else None, color, rows[m, :, k]))
    return lines


def draw_watched(axes: Axes, t: np.ndarray, title: str, label: str, lines: Lines, below: str | None) -> None:
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
    legend(axes, loc="center left", bbox_to_anchor=(1.01, 0.5))
