"""Each kind of artist of a flat matplotlib Axes in plotly.

A converter of our own: plotly.tools.mpl_to_plotly is no longer maintained and knows lines and bars only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib import collections, image, lines, patches, text, transforms
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.contour import ContourSet

from ..plots.figures import envelope
from .areas import add_areas, add_bars, add_image, add_mesh, add_patch
from .drawn import Drawn, bar_beside, joined, kind_of
from .looks import PIXELS, NotConverted, colour, colour_scale, dash, marker, numbers, symbol_of, tone, words

MOST = 8000  # points of a line; more are not seen, and a page of several such lines would be slow
STEPS = {"default": "linear", "steps": "vh", "steps-pre": "vh", "steps-post": "hv", "steps-mid": "hvh"}


def converted(axes: Axes, x: str = "x", y: str = "y") -> Drawn:
    """All artists of an Axes, in the order in which matplotlib draws them; `unknown` names those without a form."""
    made = Drawn(axes, x, y)
    bars = {id(bar): box for box in axes.containers if isinstance(box, BarContainer) for bar in box.patches}
    groups = (axes.images, axes.collections, axes.patches, axes.lines, axes.texts, axes.artists, axes.tables)
    artists = [artist for group in groups for artist in group if artist.get_visible()]
    done: set[int] = set()
    for artist in sorted(artists, key=lambda each: each.get_zorder()):
        whole: Any = bars.get(id(artist), artist)
        if id(whole) in done:
            continue
        done.add(id(whole))
        try:
            _converter(whole)(made, whole)
        except NotConverted as missing:
            made.unknown.append(str(missing))
    return made


def _converter(artist: Any) -> Callable[[Drawn, Any], None]:
    for kinds, convert in CONVERTERS:
        if isinstance(artist, kinds):
            return convert
    raise NotConverted(kind_of(artist))


def _line(made: Drawn, line: lines.Line2D) -> None:
    if isinstance(line, lines.AxLine):
        _endless(made, line)
        return
    x, y = (np.ma.filled(np.ma.asarray(a, float), np.nan) for a in (line.get_xdata(False), line.get_ydata(False)))
    if not len(x):
        return  # it is there for its entry in a legend
    look = line_look(line)
    reference = made.reference(line)
    if reference != (made.x, made.y):
        if len(x) != 2 or "line" not in look:
            raise NotConverted("lines in coordinates of the axes")
        ends = {"x0": float(x[0]), "x1": float(x[1]), "y0": float(y[0]), "y1": float(y[1])}
        made.shape(line, type="line", xref=reference[0], yref=reference[1], line=look["line"], **ends)
        return
    every = line.get_markevery()
    if every is not None and "marker" in look:
        if not isinstance(every, int):
            raise NotConverted("markers at chosen points")
        dots = look.pop("marker")
        made.trace(line, type="scatter", mode="markers", x=numbers(x[::every]), y=numbers(y[::every]), marker=dots)
        if "line" not in look:
            return
        look["mode"] = "lines"
    x, y = _thinned(made, x, y)
    if "line" in look:
        look["line"] = look["line"] | {"shape": STEPS[line.get_drawstyle()]}
    made.trace(line, type="scatter", x=numbers(x), y=numbers(y), **look)


def _endless(made: Drawn, line: lines.AxLine) -> None:
    """A line through the whole of the axes, which matplotlib cuts at the limits when it draws."""
    to_data = made.axes.transData.inverted()
    (x0, y0), (x1, y1) = to_data.transform(line.get_transform().transform([(0, 0), (1, 1)]))
    look = line_look(line)["line"]
    made.shape(line, type="line", xref=made.x, yref=made.y, line=look, x0=x0, y0=y0, x1=x1, y1=y1)


def _thinned(made: Drawn, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most MOST points: of a function of x those that keep every peak, of another curve each n-th."""
    if len(x) <= MOST:
        return x, y
    made.thinned.append(f"{MOST:,} of {len(x):,} points")
    if np.all(np.diff(x) >= 0) and np.all(np.isfinite(y)):
        return envelope(x, y, MOST)
    every = -(-len(x) // MOST)
    return x[::every], y[::every]


def line_look(line: lines.Line2D) -> dict[str, Any]:
    """mode, line and marker of a line."""
    alpha = line.get_alpha()
    look: dict[str, Any] = {}
    style: Any = line.get_linestyle()
    if style not in ("None", "none", " ", "") and line.get_linewidth() > 0:
        pattern: Any = getattr(line, "_unscaled_dash_pattern", None) if style not in (":", "-.", "-") else None
        named = style if pattern is None or pattern[1] is None else ("--" if len(pattern[1]) == 2 else pattern)
        shown = {"color": colour(line.get_color(), alpha), "width": PIXELS * line.get_linewidth(), "dash": dash(named)}
        look["line"] = shown
    face, edge = (tone(c, alpha) for c in (line.get_markerfacecolor(), line.get_markeredgecolor()))
    dots = marker(line.get_marker(), float(line.get_markersize()), face, edge, float(line.get_markeredgewidth()))
    if dots is not None:
        look["marker"] = dots
    look["mode"] = "+".join(name for name, key in (("lines", "line"), ("markers", "marker")) if key in look) or "none"
    return look


def _points(made: Drawn, dots: collections.PathCollection) -> None:
    made.in_data(dots, dots.get_offset_transform())
    dots.update_scalarmappable()
    at = np.ma.filled(np.ma.asarray(dots.get_offsets(), float), np.nan).reshape(-1, 2)
    symbol = symbol_of(dots.get_paths()[0])
    sizes = PIXELS * np.sqrt(np.asarray(dots.get_sizes(), float))
    look: dict[str, Any] = {"symbol": symbol, "size": float(sizes[0]) if len(sizes) == 1 else numbers(sizes)}
    faces, edges = np.atleast_2d(dots.get_facecolor()), np.atleast_2d(dots.get_edgecolor())
    values = dots.get_array()
    if values is not None:
        look |= {"color": numbers(values), **colour_scale(dots), **bar_beside(dots)}
    elif not faces.size and edges.size:
        look |= {"symbol": symbol + "-open", "color": colour(edges[0])}
    elif faces.size:
        look["color"] = colour(faces[0]) if len(faces) == 1 else [colour(face) for face in faces]
    made.trace(dots, type="scatter", mode="markers", x=numbers(at[:, 0]), y=numbers(at[:, 1]), marker=look)


def _segments(made: Drawn, many: collections.LineCollection) -> None:
    reference = made.reference(many)
    widths, colours = np.atleast_1d(many.get_linewidth()), np.atleast_2d(many.get_edgecolor())
    styles = many.get_linestyle()
    segments = [np.asarray(segment, float) for segment in many.get_segments()]
    if reference != (made.x, made.y):
        raise NotConverted("lines in coordinates of the axes")
    for k, each in enumerate(colours):
        own = [segment for j, segment in enumerate(segments) if j % len(colours) == k]
        if own:
            xy = joined(own)
            look = {"color": colour(each), "width": PIXELS * float(widths[k % len(widths)])}
            look["dash"] = dash(styles[k % len(styles)])
            made.trace(many, type="scatter", mode="lines", x=numbers(xy[:, 0]), y=numbers(xy[:, 1]), line=look)


def _text(made: Drawn, label: text.Text) -> None:
    written = label.get_text()
    if not written.strip():
        return
    note = isinstance(label, text.Annotation)
    shift: dict[str, Any] = {"showarrow": False}
    if note:
        x, y, (px, py) = *_coordinates(made, label, label.xycoords), label.xy
        shift = _arrow(made, label)
    else:
        (x, y), (px, py) = made.reference(label), label.get_position()
    across = {"left": "left", "right": "right"}.get(label.get_horizontalalignment(), "center")
    upwards = {"top": "top", "center": "middle", "center_baseline": "middle"}.get(
        label.get_verticalalignment(), "bottom"
    )
    at = {"x": _place(px, x, made.axes.get_xscale()), "y": _place(py, y, made.axes.get_yscale())}
    font = {
        "size": max(10.0, PIXELS * float(label.get_fontsize())),
        "color": colour(label.get_color(), label.get_alpha()),
    }
    turned = {"textangle": -label.get_rotation()} if label.get_rotation() else {}
    anchors = {"xanchor": across, "yanchor": upwards, "align": across}
    made.annotation(text=words(written), xref=x, yref=y, **at, font=font, **anchors, **turned, **shift)


def _coordinates(made: Drawn, note: text.Annotation, kind: Any) -> tuple[str, str]:
    known = {"data": (made.x, made.y), "axes fraction": (f"{made.x} domain", f"{made.y} domain")}
    if isinstance(kind, str) and kind in known:
        return known[kind]
    if isinstance(kind, transforms.Transform):
        return made.reference(note, kind)
    raise NotConverted(f"annotations in {kind!r}")


def _arrow(made: Drawn, note: text.Annotation) -> dict[str, Any]:
    """How the text of an annotation lies beside its point: in pixels, with an arrow or without."""
    kind = note.anncoords
    if isinstance(kind, str) and kind in ("offset points", "offset pixels"):
        unit = PIXELS if kind == "offset points" else 1.0
        dx, dy = (unit * float(part) for part in note.get_position())
    else:
        to_screen = {"data": made.axes.transData, "axes fraction": made.axes.transAxes}
        if not (isinstance(kind, str) and kind in to_screen and isinstance(note.xycoords, str)):
            raise NotConverted(f"annotations in {kind!r}")
        figure = made.axes.figure
        assert figure is not None
        ends = to_screen[kind].transform(note.get_position()) - to_screen[note.xycoords].transform(note.xy)
        dx, dy = ends * 96 / figure.dpi
    if note.arrowprops is None:
        return {"showarrow": False, "xshift": dx, "yshift": dy}
    ink = note.arrowprops.get("color", note.arrowprops.get("ec", "0.3"))
    return {"showarrow": True, "ax": dx, "ay": -dy, "arrowcolor": colour(ink), "arrowwidth": 1.2, "arrowhead": 2}


def _place(value: float, reference: str, scale: str) -> float:
    """A coordinate of an annotation, which on logarithmic axes is an exponent."""
    return float(np.log10(value)) if scale == "log" and not reference.endswith("domain") else float(value)


CONVERTERS: tuple[tuple[Any, Callable[[Drawn, Any], None]], ...] = (
    (lines.Line2D, _line),
    (collections.PathCollection, _points),
    (collections.LineCollection, _segments),
    (collections.QuadMesh, add_mesh),
    ((collections.PolyCollection, collections.PatchCollection, ContourSet), add_areas),
    (image.AxesImage, add_image),
    (BarContainer, add_bars),
    (patches.Patch, add_patch),
    (text.Text, _text),
)
