"""Pictures of the reductions of an ensemble."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import InputError
from .figures import LINES, POINTS, axis_label, caption, legend, new_figure, save_figure


def reductions(run: Any, path: Path | None) -> Figure:
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
    rows[-1].set_xlabel(axis_label(run, "time", "time"))
    left = run.members_left
    figure.suptitle(
        f"{caption(run, None)}, {left[0]} members" + (f", of which {left[-1]} were left" if left[-1] < left[0] else ""),
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
    legend(axes, loc="center left", bbox_to_anchor=(1.01, 0.5))
