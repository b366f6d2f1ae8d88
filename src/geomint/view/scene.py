"""Scene: moving points with what joins them, as an HTML page."""

from __future__ import annotations

import base64
import dataclasses
import functools
import html
import json
import sys
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..system.checks import as_path

SECONDS = 12.0  # that an animation takes at speed 1
LEVELS = 65535
NARROW = 8  # a plane motion this many times as long as wide is drawn with two scales
FOLDER = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Page:
    """A page with an animation: a notebook shows it, `write` makes a file of it.

    html:  the text of the page
    path:  the file, where it has been written
    """

    html: str
    path: Path | None = None

    def write(self, path: str | Path) -> Page:
        """The page as a file."""
        path = as_path(path, "path")
        path = path if path.suffix else path.with_suffix(".html")
        if path.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"an animation is an HTML page, x.html, not {str(path)!r}; movie() writes films.")
        if not path.parent.is_dir():
            raise InputError(f"{path}: the folder {path.parent} does not exist.")
        path.write_text(self.html, encoding="utf-8")
        return dataclasses.replace(self, path=path)

    def open(self) -> Page:
        """The page in the browser of this machine, from its file or a temporary one."""
        page = self
        if page.path is None:
            with tempfile.NamedTemporaryFile(prefix="geomint-", suffix=".html", delete=False) as file:
                page = self.write(file.name)
        assert page.path is not None
        webbrowser.open(page.path.absolute().as_uri())
        return page

    def at_the_prompt(self) -> Page:
        """At Python's own prompt, which shows no pages, opened and named."""
        if hasattr(sys, "ps1") and "IPython" not in sys.modules:
            page = self.open()
            print(f"the animation is in {page.path}", file=sys.stderr)
            return page
        return self

    def _repr_html_(self) -> str:
        inside = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{inside}" style="width:100%;height:560px;border:0" title="animation"></iframe>'

    def __repr__(self) -> str:
        where = f" in {self.path}" if self.path else ", write it with .write('run.html')"
        return f"<geomint animation, {len(self.html) / 1e6:.2g} MB{where}>"


@dataclasses.dataclass(frozen=True)
class Scene:
    """What an animation shows.

    times:      of the frames
    positions:  of the points in each of them, (frames, points, 2 or 3)
    bonds:      pairs of points that a line joins; numbers from `points` on are those of `fixed`
    triangles:  triples of points, the faces of surfaces
    fixed:      points that stay: hinges
    colors:     for each point the number of a colour; points of one kind share it
    radii:      of the points, in the unit of the positions; 0 draws the smallest
    names:      {name: number of a colour}, shown as a key
    values:     a number for each point in each frame, which colours points and faces: a stress
    value_name: what the values are
    series:     {name: (times, numbers)}, drawn over time beside the scene
    box:        (low corner, high corner) of a box that is drawn
    trail:      so many frames of the past are drawn as paths; 0 for none
    dots:       whether points are drawn
    title, subtitle: texts above
    """

    times: Any
    positions: Any
    bonds: Sequence[tuple[int, int]] = ()
    triangles: Any = ()
    fixed: Any = ()
    colors: Sequence[int] | None = None
    radii: Any = None
    names: Mapping[str, int] = dataclasses.field(default_factory=dict)
    values: Any = None
    value_name: str = "value"
    series: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)
    box: tuple[Any, Any] | None = None
    trail: int = 0
    dots: bool = True
    title: str = "geomint"
    subtitle: str = ""

    def __post_init__(self) -> None:
        q = np.asarray(self.positions, float)
        if q.ndim != 3 or q.shape[2] not in (2, 3) or not q.size or len(np.asarray(self.times)) != len(q):
            raise InputError(
                f"Scene: positions must have the shape (frames, points, 2 or 3), with a time for each frame, not "
                f"{q.shape} with {len(np.asarray(self.times))} times."
            )
        ends = np.asarray([*np.ravel(np.asarray(self.bonds, int)), *np.ravel(np.asarray(self.triangles, int))], int)
        if ends.size and (ends.min() < 0 or ends.max() >= q.shape[1] + len(self.fixed)):
            raise InputError("Scene: bonds and triangles join points by their numbers, and one of them has none.")
        object.__setattr__(self, "positions", q)

    @functools.cached_property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and highest coordinates of all that is shown, with room for the points."""
        d = self.positions.shape[2]
        all_points = [self.positions.reshape(-1, d), np.reshape(np.asarray(self.fixed, float), (-1, d))]
        all_points += [] if self.box is None else [np.reshape(np.asarray(self.box, float), (2, d))]
        joined = np.concatenate(all_points)
        joined = joined[np.all(np.isfinite(joined), axis=1)]
        low, high = (joined.min(axis=0), joined.max(axis=0)) if len(joined) else (-np.ones(d), np.ones(d))
        room = float(np.max(self.radius))
        whole = max(float(np.max(high - low)), 1e-300)
        flat = np.maximum(0.0, 1e-3 * whole - (high - low)) / 2
        return low - room - flat, high + room + flat

    @functools.cached_property
    def radius(self) -> np.ndarray:
        """The radius of each point; by default a share of the extent of the motion, smaller where there are many."""
        count = self.positions.shape[1]
        if self.radii is not None:
            return np.broadcast_to(np.asarray(self.radii, float), (count,))
        finite = np.where(np.isfinite(self.positions), self.positions, 0.0)
        extent = float(np.max(np.ptp(finite.reshape(-1, finite.shape[2]), axis=0)))
        return np.full(count, 0.022 * extent * min(1.0, (100 / count) ** (1 / 3)))

    def to_dict(self) -> dict[str, Any]:
        """What viewer.js reads, as JSON."""
        low, high = self.limits
        frames, points, dimension = self.positions.shape
        span = np.where(high > low, high - low, 1.0)
        shares = np.clip((np.nan_to_num(self.positions, nan=0.0) - low) / span, 0, 1)
        wide = span[0] / span[1] if dimension == 2 else 1.0
        numbers = lambda x: [float(y) for y in np.ravel(x)]
        made: dict[str, Any] = {
            "frames": frames, "points": points, "dimension": dimension, "times": numbers(self.times),
            "low": numbers(low), "high": numbers(low + span), "positions": _packed(shares),
            "bonds": np.asarray(self.bonds, int).reshape(-1, 2).tolist(),
            "triangles": np.asarray(self.triangles, int).reshape(-1, 3).tolist(),
            "fixed": np.reshape(np.asarray(self.fixed, float), (-1, dimension)).tolist(),
            "colors": [0] * points if self.colors is None else [int(c) for c in self.colors],
            "radii": numbers(self.radius), "names": list(self.names.items()), "trail": int(self.trail),
            "dots": bool(self.dots), "thick": 1.0 if points < 200 else 0.4, "seconds": SECONDS, "values": None,
            "stretch": 1.0 if 1 / NARROW < wide < NARROW else float(wide),
            "box": None if self.box is None else [numbers(x) for x in self.box],
            "series": [_line(name, t, y) for name, (t, y) in self.series.items()],
        }  # fmt: skip
        if self.values is not None:
            least, most = float(np.nanmin(self.values)), float(np.nanmax(self.values))
            shades = (np.nan_to_num(np.asarray(self.values, float), nan=least) - least) / ((most - least) or 1.0)
            made |= {"values": _packed(shades), "valueName": self.value_name, "valueRange": [least, most]}
        return made

    def page(self) -> Page:
        """The animation as a page that needs nothing else."""
        data = json.dumps(_finite(self.to_dict()), separators=(",", ":")).replace("</", "<\\/")
        script = (FOLDER / "viewer.js").read_text("utf-8")
        style = (FOLDER / "viewer.css").read_text("utf-8")
        text = (FOLDER / "page.html").read_text("utf-8")
        parts = {"title": html.escape(self.title), "subtitle": html.escape(self.subtitle)}
        for name, part in {**parts, "style": style, "script": script, "scene": data}.items():
            text = text.replace("{{" + name + "}}", part)
        return Page(text)

    def write(self, path: str | Path) -> Page:
        """The page as a file."""
        return self.page().write(path)


def _line(name: str, t: Any, y: Any) -> dict[str, Any]:
    """A quantity over time, where it is finite."""
    t, y = (np.asarray(x, float) for x in (t, y))
    known = np.isfinite(y)
    return {"name": name, "t": t[known].tolist(), "y": y[known].tolist()}


def _packed(shares: np.ndarray) -> str:
    return base64.b64encode(np.round(shares * LEVELS).astype("<u2").tobytes()).decode()


def _finite(x: Any) -> Any:
    """Without NaN and infinities, which JSON has not."""
    if isinstance(x, dict):
        return {k: _finite(y) for k, y in x.items()}
    if isinstance(x, list):
        return [_finite(y) for y in x]
    return 0.0 if isinstance(x, float) and not np.isfinite(x) else x
