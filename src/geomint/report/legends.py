"""Legends: which traces an entry stands for, and how its sample looks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import collections, lines, patches
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from .artists import line_look
from .looks import colour, words


@dataclasses.dataclass
class Entry:
    """An entry of a legend.

    name:    its text, as plotly writes text
    sample:  {"line", "marker", "fill"} of what is drawn beside it
    parts:   (panel, "trace" or "shape", number) of what it shows and hides; none where it only explains
    """

    name: str
    sample: dict[str, Any]
    parts: list[tuple[int, str, int]] = dataclasses.field(default_factory=list)


def panel_entries(
    group: Sequence[Any], number: int, parts: Mapping[int, list[tuple[str, int]]], data: Sequence[dict[str, Any]]
) -> tuple[list[Entry], str]:
    """The entries of the legends of a panel, and their title."""
    entries, title = [], ""
    for axes in group:
        legend = axes.get_legend()
        if legend is None or not legend.get_visible():
            continue
        title = title or words(legend.get_title().get_text())
        for text, handle, artists in _entries(legend, [axes]):
            own = [(number, *part) for artist in artists for part in _parts(artist, parts)]
            entries.append(Entry(text, sample(artists[0] if artists else handle), own))
        entries = [entry if entry.parts else _by_look(entry, number, data) for entry in entries]
    return entries, title


def figure_entries(figure: Figure, panels: Sequence[Any]) -> list[Entry]:
    """The entries of the figure's own legends: they stand for what has their label, or else their look, in all
    panels."""
    entries = []
    for legend in figure.legends:
        everywhere = [axes for panel in panels for axes in panel.axes]
        for text, handle, artists in _entries(legend, everywhere):
            entry = Entry(text, sample(artists[0] if artists else handle))
            for number, panel in enumerate(panels):
                own = [(number, *part) for artist in artists for part in _parts(artist, panel.parts)]
                entry.parts += own or _by_look(Entry(text, entry.sample), number, panel.plot["data"]).parts
            entries.append(entry)
    return entries


def _entries(legend: Legend, many: Sequence[Any]) -> list[tuple[str, Any, list[Any]]]:
    """(text, handle in the legend, artists of that label) of each entry."""
    known: dict[str, list[Any]] = {}
    for axes in many:
        for artist, label in zip(*axes.get_legend_handles_labels(), strict=True):
            known.setdefault(label, []).append(artist)
    handles: Sequence[Any] = legend.legend_handles
    texts = [text.get_text() for text in legend.get_texts()]
    return [(words(text), handle, known.get(text, [])) for text, handle in zip(texts, handles, strict=True)]


def _parts(artist: Any, parts: Mapping[int, list[tuple[str, int]]]) -> list[tuple[str, int]]:
    if id(artist) in parts:
        return parts[id(artist)]
    inside = list(artist) if isinstance(artist, ErrorbarContainer | tuple) else []
    flat = [piece for part in inside for piece in (part if isinstance(part, tuple | list) else [part])]
    return [part for piece in flat for part in parts.get(id(piece), [])]


def sample(artist: Any) -> dict[str, Any]:
    """What is drawn beside the text of an entry."""
    if isinstance(artist, lines.Line2D):
        return {key: value for key, value in line_look(artist).items() if key in ("line", "marker")}
    if isinstance(artist, ErrorbarContainer):
        return sample(artist.lines[0])
    if isinstance(artist, BarContainer):
        return sample(artist.patches[0]) if artist.patches else {}
    if isinstance(artist, patches.Patch):
        if artist.get_fill():
            return {"fill": colour(artist.get_facecolor())}
        return {"line": {"color": colour(artist.get_edgecolor()), "width": 1.5, "dash": "solid"}}
    if isinstance(artist, collections.LineCollection):
        return {"line": {"color": colour(artist.get_edgecolor()[0]), "width": 1.5, "dash": "solid"}}
    if isinstance(artist, collections.PathCollection) and len(artist.get_facecolor()):
        return {"marker": {"symbol": "circle", "size": 7, "color": colour(artist.get_facecolor()[0])}}
    if isinstance(artist, collections.Collection) and len(artist.get_facecolor()):
        return {"fill": colour(artist.get_facecolor()[0])}
    return {}


def _by_look(entry: Entry, number: int, data: Sequence[dict[str, Any]]) -> Entry:
    """An entry that explains a colour and dashes stands for the unnamed traces that have them."""
    wanted = _look(entry.sample)
    same = [(number, "trace", k) for k, trace in enumerate(data) if wanted and _look(trace) == wanted]
    return Entry(entry.name, entry.sample, same)


def _look(trace: Mapping[str, Any]) -> tuple[Any, ...] | None:
    line = trace.get("line", {})
    if line.get("width") and "fill" not in trace:
        return line.get("color"), line.get("dash")
    tone = trace.get("fill") if "line" not in trace else trace.get("fillcolor")
    tone = tone or trace.get("marker", {}).get("color")
    return (tone,) if isinstance(tone, str) else None
