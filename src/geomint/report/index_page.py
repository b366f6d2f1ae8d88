"""The start page: papers × figures, and all claims with filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .experiment_page import page_name
from .pieces import (
    FAILED,
    MEANINGS,
    SYMBOLS,
    badge,
    badges,
    claim_row,
    claim_table,
    duration,
    escaped,
    facts,
    frame,
    of_machine,
    plural,
    verdicts,
)  # fmt: skip
from .prose import paper_title

if TYPE_CHECKING:
    from ..papers import Reproduction


class Entry(NamedTuple):
    """What the start page needs of an experiment whose page is written.

    done:       its rows, without the figure
    thumbnail:  a small picture of the figure, as a link; "" without one
    animated:   whether its page has an animation
    pictures:   artists that have no form in plotly, and how many there are
    """

    done: Reproduction
    thumbnail: str = ""
    animated: bool = False
    pictures: dict[str, int] = {}


def index_page(entries: Sequence[Entry], machine: dict[str, Any], seconds: float) -> str:
    """The page, with experiments in the order in which they are given."""
    papers = list(dict.fromkeys(entry.done.experiment.paper for entry in entries))
    total: Counter[str] = sum((verdicts(entry.done) for entry in entries), Counter())
    sections = "".join(_paper([e for e in entries if e.done.experiment.paper == paper]) for paper in papers)
    holding = sum(entry.done.ok for entry in entries)
    size = "Reduced size (<code>--quick</code>). " if any(entry.done.quick for entry in entries) else "Full size. "
    rows = sum(total.values())
    body = f"""
<h1>The papers, measured again</h1>
<p class="lead">{plural(len(entries), "experiment")} from {plural(len(papers), "paper")}, {plural(rows, "claim")}.
{size}<strong>{holding} of {len(entries)}</strong> experiments hold.</p>
{_failures(entries)}
<div class="total">{"".join(_stat(name, total[name]) for name in SYMBOLS if total[name])}</div>
<details class="meanings"><summary>What the verdicts mean</summary><dl>{_meanings()}</dl></details>
{facts([*of_machine(machine), ("duration", duration(seconds))])}
{_filters(papers, entries, total)}
{sections}
<section id="claims"><h2>All claims</h2>
<p class="small"><output id="count" aria-live="polite">{plural(rows, "claim")}</output> · the same as data:
<a href="results.json">results.json</a></p>
{claim_table("All claims", "".join(_rows(entry) for entry in entries), notes=False)}</section>"""
    return frame("geomint report", body)


def _stat(name: str, count: int) -> str:
    return (
        f'<div class="stat v-{name.lower()}"><b>{count}</b><span><span aria-hidden="true">{SYMBOLS[name]}</span> '
        f"{name}</span></div>"
    )


def _meanings() -> str:
    return "".join(f"<div><dt>{badge(name)}</dt><dd>{text}</dd></div>" for name, text in MEANINGS.items())


def _failures(entries: Sequence[Entry]) -> str:
    """The experiments that do not hold, first of all."""
    bad = [entry for entry in entries if not entry.done.ok]
    if not bad:
        return ""
    made = "".join(f"<li>{_link(entry)}: {escaped(_why(entry))}</li>" for entry in bad)
    return f'<div class="error" role="alert">{badge(FAILED)}<ul>{made}</ul></div>'


def _why(entry: Entry) -> str:
    failures = entry.done.failures
    return entry.done.error or "; ".join(check.claim for check in failures) or "no row says anything of the paper"


def _link(entry: Entry) -> str:
    each = entry.done.experiment
    return f'<a href="{page_name(each.paper, each.name)}">{escaped(each.title)}</a>'


def _filters(papers: Sequence[str], entries: Sequence[Entry], total: Counter[str]) -> str:
    options = "".join(f'<option value="{escaped(paper)}">{escaped(paper)}</option>' for paper in papers)
    chips = "".join(
        f'<label class="chip"><input type="checkbox" name="verdict" value="{name}">{badge(name, total[name])}</label>'
        for name in SYMBOLS
        if total[name]
    )
    return (
        '<form id="filters" aria-label="Filters"><label>paper <select name="paper"><option value="">all</option>'
        f'{options}</select></label><fieldset><legend>only</legend>{chips}</fieldset><label>words <input type="search" '
        'name="words" placeholder="energy, Fig. 3 …"></label><button type="reset">Show all</button></form>'
    )


def _paper(entries: Sequence[Entry]) -> str:
    first = entries[0].done.experiment
    counts: Counter[str] = sum((verdicts(entry.done) for entry in entries), Counter())
    cards = "".join(_card(entry) for entry in entries)
    return (
        f'<section class="paper" data-paper="{escaped(first.paper)}">'
        f"<h2>{escaped(paper_title(first.function, first.paper))}</h2>"
        f'<p class="lead">{badges(counts)}</p><div class="cards">{cards}</div></section>'
    )


def _card(entry: Entry) -> str:
    each, counts = entry.done.experiment, verdicts(entry.done)
    picture = (
        f'<img loading="lazy" src="{entry.thumbnail}" alt="Figure of {escaped(each.title)}">'
        if entry.thumbnail
        else '<span class="blank">no figure</span>'
    )
    extra = " · animated" if entry.animated else ""
    page = page_name(each.paper, each.name)
    words = " ".join([each.id, each.title, each.figure, *(check.claim for check in entry.done.checks)])
    return (
        f'<article class="card{"" if entry.done.ok else " failed"}" data-verdicts="{" ".join(sorted(counts))}" '
        f'data-words="{escaped(words.lower())}">'
        f'<a class="thumb" href="{page}" tabindex="-1" aria-hidden="true">{picture}</a>'
        f'<h3>{_link(entry)}</h3><p class="where">{escaped(each.figure)}</p>{badges(counts)}'
        f'<p class="small">{duration(entry.done.seconds)}{extra}</p></article>'
    )


def _rows(entry: Entry) -> str:
    """The rows of an experiment, under its title."""
    each = entry.done.experiment
    about = f' data-words="{escaped((each.title + " " + each.figure + " " + each.id).lower())}"'
    rows = "".join(claim_row(check, False, about) for check in entry.done.checks)
    if entry.done.error is not None:
        rows += (
            f'<tr role="row" class="row failed" data-verdict="{FAILED}"{about}><td role="cell" class="claim" '
            f'colspan="4">{escaped(entry.done.error)}</td><td role="cell" class="verdict">{badge(FAILED)}</td></tr>'
        )
    about_button = f'hidden aria-expanded="true" aria-label="Rows of {escaped(each.title)}"'
    head = (
        '<tr role="row" class="group"><th role="rowheader" scope="rowgroup" colspan="5">'
        f'<button type="button" {about_button}><span>{len(entry.done.checks)}</span></button>{_link(entry)} '
        f'<span class="where">{escaped(each.figure)}</span></th></tr>'
    )
    return f'<tbody role="rowgroup" data-paper="{escaped(each.paper)}">{head}{rows}</tbody>'
