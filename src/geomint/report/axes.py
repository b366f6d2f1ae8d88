"""An axis of a flat matplotlib Axes in plotly: its scale, limits, label and ticks."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes

from .looks import words

OWN = (ticker.FixedFormatter, ticker.FuncFormatter, ticker.StrMethodFormatter, ticker.FormatStrFormatter)


def axis_layout(axes: Axes, name: str) -> tuple[dict[str, Any], list[str]]:
    """The axis "x" or "y", and what of it has no form in plotly."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    scale = axis.get_scale()
    limits = axes.get_xlim() if name == "x" else axes.get_ylim()
    unknown = [] if scale in ("linear", "log") else [f"the scale {scale!r}"]
    exponent = np.log10 if scale == "log" else np.asarray
    made: dict[str, Any] = {
        "type": "log" if scale == "log" else "linear",
        "range": [float(x) for x in exponent(limits)],
        "title": {"text": words(axis.get_label_text())},
    }
    if not axes.axison or not axis.get_visible():
        made["visible"] = False
    return made | _ticks(axis, sorted(limits)), unknown


def _ticks(axis: Any, limits: list[float]) -> dict[str, Any]:
    """Ticks that were set by hand; plotly places all others itself, also when it is zoomed."""
    locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
    if isinstance(locator, ticker.NullLocator):
        return {"showticklabels": False, "ticks": "", "showgrid": False}
    if not isinstance(locator, ticker.FixedLocator) and not isinstance(formatter, OWN):
        return {}
    room = 1e-9 * (limits[1] - limits[0])
    places = [float(x) for x in axis.get_majorticklocs() if limits[0] - room <= x <= limits[1] + room]
    if not places:
        return {"showticklabels": False, "ticks": "", "showgrid": False}
    labels = [words(text) for text in formatter.format_ticks(places)]
    return {"tickmode": "array", "tickvals": places, "ticktext": labels}
