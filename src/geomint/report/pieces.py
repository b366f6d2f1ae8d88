"""Parts that all pages have: the frame, verdicts, tables of claims, facts."""

from __future__ import annotations

import html
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..papers import Check, Reproduction

FAILED = "FAILED"
SYMBOLS = {
    "reproduced": "✓",
    "corrected": "✎",
    "contradicted": "≠",
    "chaotic": "≈",
    "information": "i",
    FAILED: "✗",
}
MEANINGS = {
    "reproduced": "the paper’s statement holds; its number, where it gives one, lies in the range",
    "corrected": "the paper has a slip (a sign, a factor, an index, a unit); measured is the corrected form",
    "contradicted": "the paper’s statement does not hold; its number lies outside the range",
    "chaotic": "the paper shows one chaotic trajectory; the range is that of an ensemble",
    "information": "no statement of the paper: a control or a wall time; proves nothing",
    FAILED: "the measured number is out of its range, or the experiment stopped: an error in geomint or in the check",
}
ASSETS = "assets"


def escaped(text: Any) -> str:
    return html.escape(str(text), quote=True)


def frame(title: str, body: str, plots: bool = False, nav: str = "") -> str:
    """A whole page. Everything it loads lies in the folder of the site."""
    scripts = ("plotly.min.js", "report.js") if plots else ("report.js",)
    loaded = "\n".join(f'<script defer src="{ASSETS}/{name}"></script>' for name in scripts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escaped(title)}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{ASSETS}/report.css">
{loaded}
</head>
<body>
<a class="skip" href="#main">To the content</a>
<header class="bar"><a class="home" href="index.html">geomint <span>report</span></a>{nav}</header>
<main id="main">
{body}
</main>
</body>
</html>
"""


def badge(verdict: str, count: int | None = None) -> str:
    """A verdict as a symbol and a word, with how many there are."""
    number = "" if count is None else f"<b>{count}</b> "
    symbol = f'<span aria-hidden="true">{SYMBOLS[verdict]}</span>'
    return f'<span class="badge v-{verdict.lower()}">{symbol} {number}{verdict}</span>'


def verdicts(done: Reproduction) -> Counter[str]:
    """How many rows have which verdict; an experiment that stopped counts as one that failed."""
    counts = Counter(check.outcome for check in done.checks)
    if done.error is not None:
        counts[FAILED] += 1
    return counts


def badges(counts: Mapping[str, int]) -> str:
    return (
        '<span class="badges">'
        + " ".join(badge(name, counts[name]) for name in SYMBOLS if counts.get(name))
        + "</span>"
    )


def claim_row(check: Check, notes: bool, about: str = "") -> str:
    """A row of a table of claims. The roles keep it a table where a narrow screen shows it as a block."""
    where = f' <span class="where">{escaped(check.where)}</span>' if check.where else ""
    cells = [
        ("claim", "", escaped(check.claim)),
        ("paper" + " absent" * (check.paper is None and not where), "paper", escaped(check.paper_text) + where),
        ("number", "measured", escaped(check.measured_text)),
        ("number", "range", escaped(check.range_text)),
        ("verdict", "", badge(check.outcome)),
    ]
    cells += [("note", "", escaped(check.note))] if notes else []
    shown = "".join(
        f'<td role="cell" class="{kind}"' + (f' data-name="{name}"' if name else "") + f">{text}</td>"
        for kind, name, text in cells
    )
    failed = "" if check.ok else " failed"
    return f'<tr role="row" class="row{failed}" data-verdict="{check.outcome}"{about}>{shown}</tr>'


def claim_table(label: str, body: str, notes: bool) -> str:
    """A table of claims that scrolls in its own box where it is too wide."""
    names = ["claim", "paper", "measured", "range", "verdict"] + ["note"] * notes
    heads = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in names)
    return (
        f'<div class="scroll" role="region" aria-label="{escaped(label)}" tabindex="0"><table role="table" '
        f'class="claims{" noted" if notes else ""}"><thead role="rowgroup"><tr role="row">{heads}</tr></thead>{body}'
        "</table></div>"
    )


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """Names and values."""
    rows = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="facts">{rows}</dl>' if rows else ""


def of_machine(machine: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Where and when numbers were measured."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return [
        ("measured", machine["date"]),
        ("machine", f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"),
        ("versions", f"Python {machine['python']}, {versions}"),
    ]


def duration(seconds: float) -> str:
    """4.2 s, 3 min 20 s."""
    if seconds < 99.5:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def relative(path: Any, folder: Any) -> str:
    """A file of the site as a link."""
    return os.path.relpath(path, folder).replace(os.sep, "/")


def plural(count: int, name: str) -> str:
    return f"{count} {name}" + ("" if count == 1 else "s")


def links(nav: Sequence[tuple[str, str, str]]) -> str:
    """(relation, page, title) of the pages before and after this one."""
    arrows = {"prev": "← {}", "next": "{} →"}
    made = "".join(
        f'<a rel="{rel}" href="{escaped(page)}" title="{escaped(title)}">{arrows[rel].format(word)}</a>'
        for rel, page, title in nav
        for word in [{"prev": "previous", "next": "next"}[rel]]
    )
    return f'<nav aria-label="Experiments">{made}</nav>'
