"""The plots of an experiment's page: its figure as panels, with a picture of each panel that has no form in plotly."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from .legends import Entry
from .panels import Converted, Panel, panels_of
from .pieces import escaped, relative

WIDE = 1120  # pixels of the panels side by side
LOW, STRIP, HIGH = 230, 160, 520  # heights in pixels: the least, that where there are many rows, the most
PHONE = 220, 360  # heights on a phone, where a panel is 330 wide
DPI, THUMB = 130, 560


def plots_html(figure: Figure, picture: Path, folder: Path) -> tuple[str, dict[str, int]]:
    """The section of the plots, and the artists that could not be converted."""
    made = panels_of(figure)
    shown = [_panel_html(figure, made, number, picture, folder) for number in range(len(made.panels))]
    columns = " ".join(
        f"minmax(0,{100 * max(size, 0.05):g}fr)" for size in made.columns
    )  # below 1 in all, fr leaves room
    legend = '<div class="legend" data-legend="figure"></div>' if made.legend else ""
    title = f"<h3>{made.title}</h3>" if made.title else ""
    data = {"panels": [_data(panel) for panel in made.panels], "legend": [_entry(each) for each in made.legend]}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    whole = relative(picture, folder)
    return (
        f'{title}{legend}<div class="panels" style="--columns:{columns}">{"".join(shown)}</div>'
        f'<script type="application/json" id="plot-data">{text}</script>{_thinned(made)}'
        f'<details class="whole"><summary>The figure as one picture</summary><a href="{whole}"><img loading="lazy" '
        f'src="{whole}" alt="{escaped(_alt_of_figure(made))}"></a></details>'
    ), made.unknown


def _panel_html(figure: Figure, made: Converted, number: int, picture: Path, folder: Path) -> str:
    panel = made.panels[number]
    row, below, column, beyond = panel.cell
    share = sum(made.rows[row - 1 : below - 1]) * made.proportion
    width = sum(made.columns[column - 1 : beyond - 1])
    low, high = PHONE
    least = LOW if len(made.rows) <= 2 else STRIP
    tall = max(least, min(HIGH, round(share * WIDE)))
    narrow = min(high, max(low, round(330 * share / max(width, 0.05))))
    place = f"--cell:{row} / {column} / {below} / {beyond};--tall:{tall}px;--narrow:{narrow}px"
    title = f"<figcaption>{panel.title}</figcaption>" if panel.title else ""
    alt = escaped(_alt(panel))
    if panel.unknown:
        path = relative(_picture_of(figure, panel, number, picture), folder)
        why = escaped(", ".join(sorted(set(panel.unknown))))
        why = f"a picture: {why} has no form in plotly"
        inside = f'<img class="still" loading="lazy" src="{path}" alt="{alt}" title="{why}">'
        title = ""
    else:
        legend = f'<div class="legend" data-legend="{number}"></div>' if panel.legend else ""
        spare = ""
        if panel.spatial:  # for browsers without WebGL
            spare = f' data-still="{relative(_picture_of(figure, panel, number, picture), folder)}"'
        inside = f'{legend}<div class="plot"><div id="plot-{number}" role="img" aria-label="{alt}"{spare}></div></div>'
    return f'<figure class="panel" style="{place}">{title}{inside}</figure>'


def _picture_of(figure: Figure, panel: Panel, number: int, picture: Path) -> Path:
    """The part of the figure that shows a panel."""
    from matplotlib.transforms import Bbox

    path = picture.with_name(f"{picture.stem}-panel-{number + 1}.png")
    boxes = [axes.get_tightbbox() for axes in panel.axes]
    boxes += [bar.ax.get_tightbbox() for axes in panel.axes for bar in _bars(axes)]
    whole = Bbox.union([box for box in boxes if box is not None])
    box = whole.transformed(figure.dpi_scale_trans.inverted()).padded(0.05)
    figure.savefig(path, dpi=DPI, bbox_inches=box)
    return path


def _bars(axes: Any) -> list[Any]:
    return [each.colorbar for each in [*axes.collections, *axes.images] if getattr(each, "colorbar", None) is not None]


def thumbnail(picture: Path) -> Path:
    """A small copy of a picture for the start page, with 256 colours."""
    path = picture.with_name(f"{picture.stem}-small.png")
    with Image.open(picture) as whole:
        small = whole.convert("RGB")
        small.thumbnail((THUMB, 4 * THUMB), Image.Resampling.LANCZOS)
        small.quantize(256).save(path, optimize=True)
    return path


def _data(panel: Panel) -> dict[str, Any] | None:
    """What report.js draws; nothing for a panel that is a picture."""
    if panel.unknown:
        return None
    legend = [_entry(entry) for entry in panel.legend]
    return {**panel.plot, "legend": legend, "legendTitle": panel.legend_title, "linked": panel.linked}


def _entry(entry: Entry) -> dict[str, Any]:
    return {"name": entry.name, "sample": entry.sample, "parts": entry.parts}


def _plain(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", " ", text)).strip()


def _alt(panel: Panel) -> str:
    """What a plot shows, in words."""
    layout = panel.plot["layout"]
    scene = layout.get("scene", layout)
    names = [_plain(scene.get(f"{name}axis", {}).get("title", {}).get("text", "")) for name in "xyz"]
    over = f"{names[1]} over {names[0]}" if names[0] and names[1] else names[0] or names[1]
    lines = list(dict.fromkeys(_plain(entry.name) for entry in panel.legend))
    parts = [_plain(panel.title) or "plot", "a scene in space" if panel.spatial else over]
    return "; ".join(part for part in [*parts, "with " + ", ".join(lines) if lines else ""] if part)


def _alt_of_figure(made: Converted) -> str:
    return "The figure: " + "; ".join(filter(None, [_plain(made.title), *(_plain(p.title) for p in made.panels)]))


def _thinned(made: Converted) -> str:
    """Lines of which not all points are drawn."""
    lines = list(dict.fromkeys(text for panel in made.panels for text in panel.thinned))
    return (
        f'<p class="small">Long lines are drawn with fewer points that keep every peak: {", ".join(lines)}.</p>'
        if lines
        else ""
    )
