"""Colours, lines, markers and numbers of matplotlib in the words of plotly."""

from __future__ import annotations

import base64
import html
import re
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.markers import MarkerStyle

PIXELS = 4 / 3  # of a point, as in CSS
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
SYMBOLS = {
    "o": "circle", ".": "circle", ",": "circle", "s": "square", "D": "diamond", "d": "diamond-tall",
    "^": "triangle-up", "v": "triangle-down", "<": "triangle-left", ">": "triangle-right", "x": "x-thin-open",
    "X": "x", "+": "cross-thin-open", "P": "cross", "*": "star", "p": "pentagon", "h": "hexagon", "H": "hexagon2",
    "|": "line-ns-open", "_": "line-ew-open",
}  # fmt: skip
SMALLER = {".": 0.5, ",": 0.2}  # circles that are this share of the marker's size
MATH = {
    r"\omega": "ω", r"\Omega": "Ω", r"\beta": "β", r"\Delta": "Δ", r"\lambda": "λ", r"\times": "×", r"\cdot": "·",
    r"\theta": "θ", r"\pi": "π", r"\leq": "≤", r"\geq": "≥", r"\infty": "∞", r"\,": " ",
}  # fmt: skip


class NotConverted(Exception):
    """Something that has no form in plotly; the text says what."""


def numbers(values: Any) -> dict[str, str]:
    """An array as plotly reads it: the bytes of its floats, all digits kept, with NaN where there is none."""
    array = np.ascontiguousarray(np.ma.filled(np.ma.asarray(values, dtype=float), np.nan), dtype="<f8")
    made = {"dtype": "f8", "bdata": base64.b64encode(array.tobytes()).decode()}
    return made if array.ndim == 1 else made | {"shape": ", ".join(map(str, array.shape))}


def colour(value: Any, alpha: float | None = None) -> str:
    """A colour of CSS; `alpha` overrides its own opacity."""
    red, green, blue, opacity = to_rgba(value, alpha)
    parts = [round(255 * float(part)) for part in (red, green, blue)]
    if opacity >= 1:
        return "#{:02x}{:02x}{:02x}".format(*parts)
    return "rgba({},{},{},{:.3g})".format(*parts, opacity)


def tone(value: Any, alpha: float | None = None) -> str:
    """A colour of CSS for one that may be "none"."""
    return colour(value) if isinstance(value, str) and value == "none" else colour(value, alpha)


def unseen(css: str) -> bool:
    """Whether a colour of CSS is fully transparent."""
    return css.startswith("rgba") and css.endswith(",0)")


def dash(style: Any) -> str:
    """The dashes of a line, from its name or (offset, lengths in points)."""
    if isinstance(style, str):
        return DASHES.get(style, "solid")
    lengths = style[1]
    return "solid" if lengths is None else ",".join(f"{PIXELS * float(length):.3g}px" for length in lengths)


def marker(name: Any, size: float, face: str, edge: str, edge_width: float) -> dict[str, Any] | None:
    """A marker of one colour, or None where there is none. `size` is its height in points."""
    if name in ("None", "none", " ", "", None):
        return None
    symbol = SYMBOLS.get(name) if isinstance(name, str) else None
    if symbol is None:
        raise NotConverted(f"the marker {name!r}")
    thin = symbol.endswith("-open")
    hollow = not thin and unseen(face)
    made = {"symbol": symbol + ("-open" if hollow else ""), "size": PIXELS * size * SMALLER.get(name, 1.0)}
    made["color"] = edge if thin or hollow else face
    made["line"] = {"width": PIXELS * edge_width, "color": edge}
    return made


def symbol_of(path: Any) -> str:
    """The symbol of plotly for the path of a matplotlib marker."""
    for name, symbol in SYMBOLS.items():
        style = MarkerStyle(name)
        known = style.get_path().transformed(style.get_transform())
        corners, own = np.asarray(known.vertices, float), np.asarray(path.vertices, float)
        if corners.shape == own.shape and np.allclose(corners, own):
            return symbol
    raise NotConverted("markers of a shape of their own")


def colour_scale(mappable: Any) -> dict[str, Any]:
    """The colour map and the limits of something whose numbers are shown as colours."""
    norm = type(mappable.norm).__name__
    if norm not in ("Normalize", "NoNorm"):
        raise NotConverted(f"colours by {norm}")
    low, high = mappable.get_clim()
    steps = np.linspace(0, 1, 33)
    scale = [[float(x), colour(mappable.cmap(float(x)))] for x in steps]
    limits = {} if low is None or high is None else {"cmin": float(low), "cmax": float(high)}
    return {"colorscale": scale, **limits}


def words(text: str) -> str:
    """A label of matplotlib for plotly, which reads a little HTML: the simple formulas between dollars become sub- and
    superscripts."""
    parts = re.split(r"(?<!\\)\$", text)
    if len(parts) % 2 == 0:  # a single dollar is one
        return html.escape(text, quote=False).replace("\n", "<br>")
    made = [_formula(part) if k % 2 else html.escape(part, quote=False) for k, part in enumerate(parts)]
    return "".join(made).replace("\n", "<br>")


def _formula(text: str) -> str:
    text = html.escape(text, quote=False)
    for name, letter in MATH.items():
        text = text.replace(name, letter)
    text = re.sub(r"\\(?:mathrm|mathdefault|text|mathbf)\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"_(?:\{([^{}]*)\}|(\w))", lambda found: f"<sub>{found[1] or found[2]}</sub>", text)
    text = re.sub(r"\^(?:\{([^{}]*)\}|(\w))", lambda found: f"<sup>{found[1] or found[2]}</sup>", text)
    return re.sub(r"(?<![\w<])([A-Za-z])(?=[\s<=,)]|$)", r"<i>\1</i>", text.replace("-", "−"))
