"""The page of one experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .pieces import badge, badges, claim_row, claim_table, duration, escaped, facts, frame, links, of_machine, verdicts
from .prose import module_doc, paper_title, prose, source

if TYPE_CHECKING:
    from ..papers import Reproduction


def page_name(paper: str, name: str) -> str:
    return f"{paper}-{name}.html"


def experiment_page(
    done: Reproduction,
    machine: dict[str, Any],
    neighbours: Sequence[tuple[str, str, str]],
    plots: str = "",
    motion: str = "",
    trace: str = "",
) -> str:
    """The page: `plots` is the HTML of the plots, `motion` the name of the page with the animation, `trace` what
    Python printed where the experiment stopped by an error of the program."""
    each = done.experiment
    nav = links(neighbours)
    sections = [
        ("plots", "Plots", plots),
        ("motion", "Motion", _motion(each.title, motion)),
        ("claims", "Claims", _claims(done)),
        ("run", "The run", _run(done, machine)),
        ("code", "Code", _code(each.function)),
    ]
    present = [(anchor, title, text) for anchor, title, text in sections if text]
    contents = "".join(f'<a href="#{anchor}">{title}</a>' for anchor, title, _ in present)
    body = [
        f'<p class="over">{escaped(paper_title(each.function, each.paper))}</p>',
        f"<h1>{escaped(each.title)}</h1>",
        f'<p class="lead"><span class="where">{escaped(each.figure)}</span> {badges(verdicts(done))}</p>',
        f'<nav class="contents" aria-label="On this page">{contents}</nav>',
        _error(done.error, trace),
        f'<div class="prose">{prose(each.function.__doc__)}{_background(each.function)}</div>',
        *(f'<section id="{anchor}"><h2>{title}</h2>{text}</section>' for anchor, title, text in present),
        f'<footer class="ends">{nav}</footer>',
    ]
    return frame(f"{each.title} · geomint report", "\n".join(filter(None, body)), plots=bool(plots), nav=nav)


def _background(function: Any) -> str:
    text = module_doc(function)
    return f'<details class="background"><summary>About the problem</summary>{prose(text)}</details>' if text else ""


def _error(error: str | None, trace: str) -> str:
    if error is None:
        return ""
    more = f"<details><summary>Where</summary><pre>{escaped(trace)}</pre></details>" if trace else ""
    return f'<div class="error" role="alert">{badge("FAILED")}<p>{escaped(error)}</p>{more}</div>'


def _motion(title: str, motion: str) -> str:
    if not motion:
        return ""
    return (
        f'<iframe class="motion" src="{motion}" title="Animation: {escaped(title)}" loading="lazy"></iframe>'
        f'<p class="small"><a href="{motion}">The animation alone</a></p>'
    )


def _claims(done: Reproduction) -> str:
    left_out = "".join(f"<li>{escaped(text)}</li>" for text in done.left_out)
    omitted = (
        f'<div class="left-out"><p>Left out by <code>--quick</code>:</p><ul>{left_out}</ul></div>' if left_out else ""
    )
    if not done.checks:
        return omitted
    notes = any(check.note for check in done.checks)
    rows = "".join(claim_row(check, notes) for check in done.checks)
    table = claim_table(f"Claims of {done.experiment.title}", f'<tbody role="rowgroup">{rows}</tbody>', notes)
    return table + omitted


def _run(done: Reproduction, machine: dict[str, Any]) -> str:
    size = "reduced (--quick)" if done.quick else "full"
    again = f"geomint reproduce {done.experiment.id}" + (" --quick" if done.quick else "")
    about = [("size", size), ("run time", duration(done.seconds)), *of_machine(machine), ("again", again)]
    parameters = facts((name, _short(value)) for name, value in done.parameters)
    return (f"<h3>Parameters</h3>{parameters}<h3>Circumstances</h3>" if parameters else "") + facts(about)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray | list | tuple):
        return ", ".join(_short(item) for item in np.asarray(value, dtype=object).ravel().tolist())
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def _code(function: Any) -> str:
    text, where = source(function)
    if not text:
        return ""
    box = f'<pre class="code" tabindex="0" role="region" aria-label="Code"><code>{text}</code></pre>'
    return f'<p class="small">{escaped(where)}</p>{box}'


def motion_path(folder: Path, paper: str, name: str) -> Path:
    return folder / "motion" / page_name(paper, name)
