"""``geomint report``: the papers' experiments as a folder of web pages."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from .output import console
from .reproduction import (
    RESULTS,
    STYLES,
    Clock,
    check_jobs,
    earlier_times,
    print_summary,
    shown_time,
    stoppable,
    write_results,
)

if TYPE_CHECKING:
    from ..papers import Reproduction


def report(
    selector: Annotated[
        str | None, typer.Argument(metavar="[PAPER[/EXPERIMENT]]", help="One paper, one experiment, or all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Reduced size; says which checks it leaves out.")] = False,
    jobs: Annotated[int, typer.Option(help="So many experiments at a time, each in a process of its own.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the pages and results.json go.")] = Path("report"),
    open_it: Annotated[bool, typer.Option("--open", help="Open the start page in the browser.")] = False,
) -> None:
    """Run the papers' experiments and write a site that needs no network: numbers beside those of the papers,
    interactive plots, animations, code.

    Exit 1 where a number is out of range or an experiment stops; it has its page all the same.
    """
    from .. import papers
    from ..report import write_index, write_pages

    chosen = papers.find(selector)
    check_jobs(jobs)
    clock, entries = Clock(chosen, earlier_times(out / RESULTS, quick), jobs), []
    done: list[Reproduction] = []
    with Console(stderr=True).status("") as status:
        status.update(Text(clock.text(done)))
        with stoppable(write_pages(chosen, quick, out, jobs), done, chosen, out) as results:
            for entry in results:
                entries.append(entry)
                done.append(entry.done)
                console().print(_line(entry.done))
                status.update(Text(clock.text(done)))
    page = write_index(chosen, entries, out, clock.began)
    content = write_results(done, out)
    print_summary(done, time.perf_counter() - clock.began)
    typer.echo(f"the start page is {page}")
    if open_it:
        typer.launch(page.absolute().as_uri())
    if not content["ok"]:
        raise typer.Exit(1)


def _line(done: Reproduction) -> Text:
    """One experiment that is done."""
    mark = Text("✓ ", style=STYLES["reproduced"]) if done.ok else Text("✗ ", style=STYLES["FAILED"])
    return mark.append(Text(f"{done.experiment.id}, {shown_time(done.seconds)}"))
