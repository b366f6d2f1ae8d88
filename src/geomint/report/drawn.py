"""What the artists of a flat matplotlib Axes become: traces, shapes and annotations of plotly."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from matplotlib import transforms
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from .looks import NotConverted, words

BEHIND = 2  # shapes of a lower zorder lie under the lines


@dataclasses.dataclass
class Drawn:
    """What the artists of one Axes have become. A part is the kind and the number of a trace, shape or annotation.

    parts:   of each artist, by its id
    thinned: "5,000 of 80,000 points" of lines with more points than are drawn
    """

    axes: Axes
    x: str = "x"  # the names of the axes in plotly: x, x2, …
    y: str = "y"
    traces: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    shapes: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    annotations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    parts: dict[int, list[tuple[str, int]]] = dataclasses.field(default_factory=dict)
    unknown: list[str] = dataclasses.field(default_factory=list)
    thinned: list[str] = dataclasses.field(default_factory=list)

    def trace(self, artist: Any, **trace: Any) -> None:
        self.traces.append({"xaxis": self.x, "yaxis": self.y, "name": name_of(artist), **trace})
        self.parts.setdefault(id(artist), []).append(("trace", len(self.traces) - 1))

    def shape(self, artist: Any, **shape: Any) -> None:
        layer = "below" if artist.get_zorder() < BEHIND else "above"
        self.shapes.append({"layer": layer, **shape})
        self.parts.setdefault(id(artist), []).append(("shape", len(self.shapes) - 1))

    def annotation(self, **annotation: Any) -> None:
        self.annotations.append(annotation)

    def reference(self, artist: Any, transform: Any = None) -> tuple[str, str]:
        """What the two coordinates of an artist count in: data, or shares of the axes."""
        if transform is None:  # that of a patch without the size of its own path
            transform = artist.get_data_transform() if isinstance(artist, Patch) else artist.get_transform()
        # By identity: == compares the numbers of two transforms, which are equal where the limits are 0 and 1.
        if transform is self.axes.transAxes:
            return f"{self.x} domain", f"{self.y} domain"
        in_data = transform.contains_branch_seperately(self.axes.transData)
        blended = transforms.BlendedGenericTransform | transforms.BlendedAffine2D
        if not all(in_data) and not isinstance(transform, blended):
            raise NotConverted(f"{kind_of(artist)} in coordinates of their own")
        x, y = (name if data else f"{name} domain" for name, data in zip((self.x, self.y), in_data, strict=True))
        return x, y

    def in_data(self, artist: Any, transform: Any = None) -> None:
        """Only artists whose coordinates are those of the data have traces."""
        if self.reference(artist, transform) != (self.x, self.y):
            raise NotConverted(f"{kind_of(artist)} in coordinates of the axes")


def kind_of(artist: Any) -> str:
    return type(artist).__name__


def name_of(artist: Any) -> str:
    """The label of an artist; "" for those that matplotlib makes up."""
    label = str(artist.get_label() or "")
    return "" if label.startswith("_") else words(label)


def joined(pieces: list[np.ndarray]) -> np.ndarray:
    """Lines one after another, with a gap after each but the last."""
    gap = np.full((1, pieces[0].shape[1]), np.nan)
    return np.concatenate([part for piece in pieces for part in (piece, gap)][:-1])


def bar_beside(mappable: Any) -> dict[str, Any]:
    """The colour bar of what is coloured by numbers."""
    bar = mappable.colorbar
    if bar is None:
        return {"showscale": False}
    title = bar.ax.get_ylabel() or bar.ax.get_xlabel() or bar.ax.get_title()
    return {"showscale": True, "colorbar": {"title": {"text": words(title), "side": "right"}, "thickness": 12}}
