"""An Axes3D of matplotlib in plotly: lines, points, and surfaces of triangles."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpl_toolkits.mplot3d.art3d import Line3D, Path3DCollection, Poly3DCollection, Text3D

from .artists import line_look
from .drawn import kind_of, name_of
from .looks import PIXELS, NotConverted, colour, numbers, unseen, words

FAR = 2.1  # distance of the camera, in sizes of the box


def space_traces(axes: Any) -> tuple[list[dict[str, Any]], list[int], list[str]]:
    """The traces of an Axes3D, the id of the artist of each, and what could not be converted."""
    traces, owners, unknown = [], [], []
    for artist in sorted([*axes.lines, *axes.collections, *axes.patches, *axes.texts, *axes.images], key=_order):
        if not artist.get_visible():
            continue
        try:
            traces.append({"scene": "scene", "name": name_of(artist), **_trace(artist)})
            owners.append(id(artist))
        except NotConverted as missing:
            unknown.append(str(missing))
    return traces, owners, unknown


def _order(artist: Any) -> float:
    return artist.get_zorder()


def _trace(artist: Any) -> dict[str, Any]:
    if isinstance(artist, Line3D):
        return _line(artist)
    if isinstance(artist, Path3DCollection):
        at = artist._offsets3d  # type: ignore[attr-defined]  # there is no public name for them
        look = {"color": colour(artist.get_facecolor()[0]), "size": PIXELS * float(artist.get_sizes()[0]) ** 0.5}
        return {"type": "scatter3d", "mode": "markers", **_coordinates(at), "marker": look}
    if isinstance(artist, Poly3DCollection):
        return _surface(artist)
    if isinstance(artist, Text3D):
        x, y, z = artist.get_position_3d()
        data = {name: numbers([value]) for name, value in zip("xyz", (x, y, z), strict=True)}
        return {"type": "scatter3d", "mode": "text", "text": [words(artist.get_text())], **data}
    raise NotConverted(kind_of(artist))


def _coordinates(at: Any) -> dict[str, Any]:
    return {name: numbers(values) for name, values in zip("xyz", at, strict=True)}


def _line(line: Line3D) -> dict[str, Any]:
    look = line_look(line)
    if "marker" in look:  # plotly has fewer symbols and no outlines of their own in space
        look["marker"] = {"color": look["marker"]["color"], "size": 0.7 * look["marker"]["size"]}
    if "line" in look:
        width = look["line"]["width"] * 1.5  # plotly draws lines in space thinner
        look["line"] = {"color": look["line"]["color"], "width": width, "dash": look["line"]["dash"].split(",")[0]}
    return {"type": "scatter3d", **_coordinates(line.get_data_3d()), **look}


def _surface(faces: Poly3DCollection) -> dict[str, Any]:
    """Polygons cut into triangles that have one corner in common."""
    kept: Any = getattr(faces, "_faces", None)
    if kept is None:  # matplotlib before 3.10
        raise NotConverted("surfaces of this version of matplotlib")
    absent: Any = getattr(faces, "_invalid_vertices", False)
    corners, i, j, k, tones = [], [], [], [], []
    original: Any = getattr(faces, "_facecolor3d", faces.get_facecolor())
    shades = np.atleast_2d(original)
    count = 0
    for n, face in enumerate(np.asarray(kept, float)):
        used = face if absent is False else face[~np.asarray(absent)[n]]
        corners.append(used)
        for m in range(1, len(used) - 1):
            i.append(count)
            j.append(count + m)
            k.append(count + m + 1)
            tones.append(colour(shades[n % len(shades)]))
        count += len(used)
    if all(unseen(each) for each in tones):
        raise NotConverted("surfaces without faces")
    index = {"i": i, "j": j, "k": k}
    return {
        "type": "mesh3d",
        **_coordinates(np.concatenate(corners).T),
        **index,
        "facecolor": tones,
        "flatshading": True,
    }


def space_layout(axes: Any) -> dict[str, Any]:
    """Limits, labels, proportions and the direction of sight."""
    limits = {"x": axes.get_xlim3d(), "y": axes.get_ylim3d(), "z": axes.get_zlim3d()}
    labels = {"x": axes.get_xlabel(), "y": axes.get_ylabel(), "z": axes.get_zlabel()}
    scene: dict[str, Any] = {}
    for name in "xyz":
        low, high = limits[name]
        scene[f"{name}axis"] = {"range": [float(low), float(high)], "title": {"text": words(labels[name]) or name}}
        scene[f"{name}axis"]["visible"] = bool(axes._axis3don)
    elevation, azimuth = np.radians([axes.elev, axes.azim])
    away = FAR * np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    scene["camera"] = {"eye": dict(zip("xyz", map(float, away), strict=True))}
    box = np.asarray(axes._box_aspect, float)
    scene["aspectmode"] = "manual"
    scene["aspectratio"] = dict(zip("xyz", map(float, box / box.max()), strict=True))
    return {"scene": scene}
