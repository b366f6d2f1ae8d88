"""Areas of a flat matplotlib Axes in plotly: filled polygons, contours, bars, rectangles, meshes and images."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import collections, image, patches
from matplotlib.container import BarContainer
from matplotlib.path import Path

from .drawn import Drawn, bar_beside, joined, kind_of, name_of
from .looks import PIXELS, NotConverted, colour, colour_scale, dash, numbers, unseen


def add_areas(made: Drawn, many: collections.Collection) -> None:
    """Filled polygons, as fill_between and filled contours make them; and the lines of contours."""
    if many.get_offset_transform().contains_branch(made.axes.transData):
        raise NotConverted(kind_of(many))  # one shape at many points, as arrows of quiver
    made.in_data(many)
    many.update_scalarmappable()
    faces, edges = (np.atleast_2d(tones) for tones in (many.get_facecolor(), many.get_edgecolor()))
    widths, styles = np.atleast_1d(many.get_linewidth()), many.get_linestyle()
    for k, path in enumerate(many.get_paths()):
        pieces = polygons(made, path)
        if not pieces:
            continue
        face = colour(faces[k % len(faces)]) if faces.size else None
        edge = colour(edges[k % len(edges)]) if edges.size else None
        width = PIXELS * float(widths[k % len(widths)])
        _area(made, many, pieces, face, edge, width, dash(styles[k % len(styles)]))


def _area(made: Drawn, artist: Any, pieces: list[np.ndarray], face: Any, edge: Any, width: float, style: str) -> None:
    if face is not None and not unseen(face):
        pieces = [piece if np.array_equal(piece[0], piece[-1]) else np.vstack([piece, piece[:1]]) for piece in pieces]
        look = {"fill": "toself", "fillcolor": face, "hoveron": "points"}
    elif edge is not None:
        look = {}
    else:
        return
    outline = edge is not None and width > 0 and not unseen(edge)
    border = {"color": edge, "width": width, "dash": style} if outline else {"width": 0}
    xy = joined(pieces)
    data = {"x": numbers(xy[:, 0]), "y": numbers(xy[:, 1])}
    made.trace(artist, type="scatter", mode="lines", line=border, **look, **data)


def polygons(made: Drawn, path: Path, transform: Any = None) -> list[np.ndarray]:
    """The pieces of a path in the coordinates of the data; curves become polygons on the screen, and come back."""
    path = path if transform is None else path.transformed(transform)
    codes = path.codes
    vertices = np.array(path.vertices, float)
    if codes is None:
        return [vertices] if len(vertices) else []
    if not np.isin(codes, (Path.MOVETO, Path.LINETO, Path.CLOSEPOLY)).all():
        seen = made.axes.transData.transform_path(path)
        back = made.axes.transData.inverted()
        pieces = [np.asarray(piece) for piece in seen.to_polygons(closed_only=False)]
        return [back.transform(piece) for piece in pieces if len(piece)]
    kinds = np.asarray(codes)
    pieces = np.split(np.arange(len(kinds)), np.flatnonzero(kinds == Path.MOVETO)[1:])
    return [_piece(vertices[index], kinds[index]) for index in pieces if len(index) > 1]


def _piece(vertices: np.ndarray, codes: np.ndarray) -> np.ndarray:
    vertices[codes == Path.CLOSEPOLY] = vertices[0]  # what a closing vertex holds means nothing
    return vertices


def add_mesh(made: Drawn, mesh: collections.QuadMesh) -> None:
    made.in_data(mesh)
    corners = np.asarray(mesh.get_coordinates(), float)
    x, y = corners[0, :, 0], corners[:, 0, 1]
    values = mesh.get_array()
    if values is None or not (np.all(corners[..., 0] == x) and np.all(corners[..., 1] == y[:, None])):
        raise NotConverted("QuadMesh whose cells are no rectangles")
    if np.size(values) != (len(y) - 1) * (len(x) - 1):
        raise NotConverted("QuadMesh with shading between points")
    grid = np.ma.asarray(values, dtype=float).reshape(len(y) - 1, len(x) - 1)
    _heat(made, mesh, x, y, grid)


def _heat(made: Drawn, artist: Any, x: np.ndarray, y: np.ndarray, grid: Any) -> None:
    scale = colour_scale(artist)
    limits = {"zmin": scale.pop("cmin", None), "zmax": scale.pop("cmax", None)}
    data = {"x": numbers(x), "y": numbers(y), "z": numbers(grid)}
    made.trace(artist, type="heatmap", **data, **scale, **limits, **bar_beside(artist), zsmooth=False)


def add_image(made: Drawn, shown: image.AxesImage) -> None:
    grid = np.ma.asarray(shown.get_array(), dtype=float)
    if grid.ndim != 2:
        raise NotConverted("images of colours")
    left, right, bottom, top = shown.get_extent()
    x, y = np.linspace(left, right, grid.shape[1] + 1), np.linspace(bottom, top, grid.shape[0] + 1)
    _heat(made, shown, x, y, grid if shown.origin == "lower" else grid[::-1])


def add_bars(made: Drawn, bars: BarContainer) -> None:
    upright = bars.orientation != "horizontal"
    boxes = [bar for bar in bars.patches if bar.get_visible()]
    position = made.axes.get_xscale() if upright else made.axes.get_yscale()
    if position != "linear" or not all(isinstance(bar, patches.Rectangle) for bar in boxes):
        for bar in boxes:  # widths of plotly's bars on a logarithmic axis count decades
            add_patch(made, bar)
        return
    xy = np.array([[b.get_x(), b.get_y(), b.get_width(), b.get_height()] for b in boxes], float).reshape(-1, 4)
    middle, width, base, length = (
        (xy[:, 0] + xy[:, 2] / 2, xy[:, 2], xy[:, 1], xy[:, 3])
        if upright
        else (xy[:, 1] + xy[:, 3] / 2, xy[:, 3], xy[:, 0], xy[:, 2])
    )
    data = {"x": numbers(middle), "y": numbers(length)} if upright else {"y": numbers(middle), "x": numbers(length)}
    data |= {"base": numbers(base)} if np.any(base != 0) else {}
    first = boxes[0]
    tones = [colour(bar.get_facecolor()) for bar in boxes]
    edge = {"width": PIXELS * first.get_linewidth(), "color": colour(first.get_edgecolor())}
    look = {
        "color": tones[0] if len(set(tones)) == 1 else tones,
        "line": {"width": 0} if unseen(edge["color"]) else edge,
    }
    made.trace(bars, type="bar", orientation="v" if upright else "h", width=numbers(width), marker=look, **data)


def add_patch(made: Drawn, patch: patches.Patch) -> None:
    if isinstance(patch, patches.FancyArrowPatch | patches.ConnectionPatch):
        raise NotConverted(kind_of(patch))
    face = colour(patch.get_facecolor()) if patch.get_fill() else None
    edge = colour(patch.get_edgecolor())
    width, style = PIXELS * patch.get_linewidth(), dash(patch.get_linestyle())
    x, y = made.reference(patch)
    plain = isinstance(patch, patches.Rectangle) and patch.angle == 0 and not name_of(patch)
    if (x, y) != (made.x, made.y) or plain:
        if not isinstance(patch, patches.Rectangle):
            raise NotConverted(f"{kind_of(patch)} in coordinates of the axes")
        low, high = patch.get_xy(), (patch.get_x() + patch.get_width(), patch.get_y() + patch.get_height())
        ends = {"x0": float(low[0]), "x1": float(high[0]), "y0": float(low[1]), "y1": float(high[1])}
        border = {"width": 0 if unseen(edge) else width, "color": edge, "dash": style}
        made.shape(patch, type="rect", xref=x, yref=y, fillcolor=face or "rgba(0,0,0,0)", line=border, **ends)
        return
    pieces = polygons(made, patch.get_path(), patch.get_patch_transform())
    _area(made, patch, pieces, face, None if unseen(edge) else edge, width, style)
