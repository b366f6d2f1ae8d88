"""The work-precision diagram of a comparison of methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from .figures import checked_path, new_figure, save_figure

MARKERS = "osD^v<>pPX*h"


def diagram(comparison: Any, path: str | Path | None = None) -> Figure:
    """The error over the CPU time per unit of simulated time, a line for each method."""
    path = None if path is None else checked_path(path)
    figure = new_figure(7.2, 5.2 + 0.11 * len(comparison.methods))
    axes = figure.subplots()
    for k, method in enumerate(comparison.methods):
        line = comparison.line(method)
        if not line:
            continue
        label = f"{method} (order {line[0].order})"
        marker, color = MARKERS[k % len(MARKERS)], f"C{k % 10}"
        error = [max(row.error, 1e-16) for row in line]
        axes.loglog([row.seconds for row in line], error, marker=marker, color=color, ms=5, lw=1.3, label=label)
    axes.set(xlabel="CPU time per unit of simulated time [s]", ylabel="error, relative to the displacement")
    axes.set_title(f"{comparison.system}, up to t = {comparison.t_end:g}", fontsize=10)
    axes.grid(alpha=0.25, which="both", lw=0.5)
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, borderaxespad=0)
    if path is not None:
        save_figure(figure, path)
    return figure
