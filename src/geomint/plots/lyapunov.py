"""Lyapunov exponents over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .figures import LINES, PATHS, checked_path, new_figure, save_figure


def drawn(found: Any, path: str | Path | None) -> Figure:
    """The mean rates of growth from the start to each time: of one trajectory all that are positive, of an ensemble the
    largest of each member."""
    path = None if path is None else checked_path(path)
    figure = new_figure(7.2, 4.2)
    axes = figure.subplots()
    if found.running.ndim == 3:
        for rates in found.running[:PATHS, :, 0]:
            axes.loglog(found.t, np.where(rates > 0, rates, np.nan), lw=0.6, alpha=0.6, color="C0")
        axes.set_title(f"The largest exponent of {min(len(found.running), PATHS)} trajectories", fontsize=10)
    else:
        for k in range(min(LINES, found.running.shape[1])):
            rates = found.running[:, k]
            if np.any(rates > 0):
                axes.loglog(
                    found.t, np.where(rates > 0, rates, np.nan), lw=1.2, label=f"λ{k + 1} = {found.exponents[k]:.3g}"
                )
        axes.legend(frameon=False, fontsize=8)
        axes.set_title(f"Lyapunov exponents, {found.run.method.base.name}", fontsize=10)
    axes.set(xlabel="time", ylabel="mean rate of growth")
    axes.grid(alpha=0.25, which="both", lw=0.5)
    if path is not None:
        save_figure(figure, path)
    return figure
