"""``geomint reproduce``: run the papers' experiments and print what they measure beside what the papers say."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import InputError, Interrupted
from .output import console, table, to_json
from .verification import AsJson

if TYPE_CHECKING:
    from ..papers import Check, Experiment, Reproduction

STYLES = {
    "reproduced": "green",
    "corrected": "cyan",
    "contradicted": "magenta",
    "chaotic": "yellow",
    "information": "dim",
    "FAILED": "bold red",
}
RESULTS = "results.json"


def reproduce(
    selector: Annotated[
        str | None, typer.Argument(metavar="[PAPER[/EXPERIMENT]]", help="One paper, one experiment, or all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Reduced size; says which checks it leaves out.")] = False,
    jobs: Annotated[int, typer.Option(help="So many experiments at a time, each in a process of its own.")] = 1,
    as_json: AsJson = False,
    out: Annotated[Path, typer.Option(help="Where the figures and results.json go.")] = Path("out"),
) -> None:
    """Run the papers' experiments: measured numbers beside those of the papers, a verdict for each, and the figures.

    Exit 1 where a number is out of range. `geomint list papers` lists the experiments.
    """
    from .. import papers

    chosen = papers.find(selector)
    check_jobs(jobs)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: the folder can't be made ({error.strerror}).") from None
    clock, done = Clock(chosen, earlier_times(out / RESULTS, quick), jobs), []
    with Console(stderr=True).status("") as status:
        status.update(Text(clock.text(done)))
        with stoppable(papers.run_all(chosen, quick, out, jobs), done, chosen, out) as results:
            for each in results:
                done.append(each)
                if not as_json:
                    console().print(reproduction_table(each))
                status.update(Text(clock.text(done)))
    content = write_results(done, out)
    if as_json:
        typer.echo(to_json(content))
    else:
        print_summary(done, time.perf_counter() - clock.began)
    if not content["ok"]:
        raise typer.Exit(1)


def check_jobs(jobs: int) -> None:
    if jobs < 1:
        raise InputError(f"--jobs {jobs}: at least 1; this machine has {os.cpu_count()} cores.")


@contextlib.contextmanager
def stoppable(
    results: Generator[Any], done: Sequence[Any], chosen: Sequence[Experiment], folder: Path
) -> Iterator[Iterator[Any]]:
    """The results as they come. Ctrl-C ends the processes that still run, and says what there is by then."""
    try:
        yield results
    except KeyboardInterrupt:
        kept = f" Their figures are in {folder}; {RESULTS} is not written." if done else ""
        raise Interrupted(f"interrupted after {len(done)} of {len(chosen)} experiments.{kept}") from None
    finally:
        results.close()


def write_results(done: Sequence[Reproduction], folder: Path) -> dict[str, Any]:
    """results.json: what was found, and where and when."""
    from .. import papers

    good = all(each.ok for each in done)
    content = {"ok": good, "machine": papers.machine(), "experiments": [each.to_dict() for each in done]}
    (folder / RESULTS).write_text(to_json(content) + "\n", encoding="utf-8")
    return content


class Clock:
    """How many experiments are done, and the time that is left: from the times of an earlier run in the same folder,
    or else the mean time of those done."""

    def __init__(self, chosen: Sequence[Experiment], earlier: Mapping[str, float], jobs: int) -> None:
        self.chosen, self.earlier, self.jobs, self.began = chosen, earlier, jobs, time.perf_counter()

    def text(self, done: Sequence[Reproduction]) -> str:
        n = len(self.chosen)
        finished = {each.experiment.id for each in done}
        ahead = [each.id for each in self.chosen if each.id not in finished]
        running = ", ".join(ahead[: self.jobs])
        known = [self.earlier[name] for name in ahead if name in self.earlier]
        usual = [each.seconds for each in done] or list(self.earlier.values())
        text = f"experiment {min(len(done) + 1, n)} of {n}: {running} …"
        if not usual:
            return text
        left = (sum(known) + (len(ahead) - len(known)) * sum(usual) / len(usual)) / self.jobs
        return f"{text} about {shown_time(left)} left"


def shown_time(seconds: float) -> str:
    """40 s, 3 min."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def earlier_times(path: Path, quick: bool) -> dict[str, float]:
    """The times of experiments in the results of an earlier run of the same size; none where there are none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["experiments"]
        return {f"{e['paper']}/{e['experiment']}": float(e["seconds"]) for e in found if e["quick"] == quick}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def reproduction_table(done: Reproduction) -> Table:
    size = "reduced size" if done.quick else "full size"
    title = f"{done.experiment.id}  {done.experiment.title} ({size}, {done.seconds:.1f} s)"
    made = table(title, "claim", "paper", "measured", "range", "verdict", "note")
    for check in done.checks:
        add_row(made, check, check.claim)
    if done.error:
        made.add_row(Text("the experiment itself"), "–", "–", "–", Text("FAILED", style=STYLES["FAILED"]), "")
    left_out = f"left out by --quick: {'; '.join(done.left_out)}\n" if done.left_out else ""
    made.caption, made.caption_justify = Text(left_out + (done.error or f"figure: {done.picture}")), "left"
    return made


def add_row(made: Table, check: Check, name: str) -> None:
    paper = check.paper_text + (f" ({check.where})" if check.where else "")
    cells = name, paper, check.measured_text, check.range_text
    verdict = Text(check.outcome, style=STYLES[check.outcome])
    style = None if check.judged or not check.ok else "dim"
    made.add_row(*map(Text, cells), verdict, Text(check.note), style=style)


def print_summary(done: Sequence[Reproduction], seconds: float) -> None:
    """The failures again, in one table, and how many rows have which verdict."""
    failed = [each for each in done if not each.ok]
    if failed:
        made = table("out of range, again", "claim", "paper", "measured", "range", "verdict", "note")
        for each in failed:
            for check in each.failures:
                add_row(made, check, f"{each.experiment.id}: {check.claim}")
            if each.error:
                text = Text("FAILED", style=STYLES["FAILED"])
                made.add_row(Text(each.experiment.id), "–", "–", "–", text, Text(each.error))
        console().print(made)
        console().print(Text(f"failed: {', '.join(each.experiment.id for each in failed)}", style=STYLES["FAILED"]))
    counts = Counter(check.outcome for each in done for check in each.checks)
    line = Text(f"{len(done) - len(failed)} of {len(done)} experiments hold, in {shown_time(seconds)}: ")
    shown = [Text(f"{counts[name]} {name}", style=STYLES[name]) for name in STYLES if counts[name]]
    console().print(line.append(Text(", ").join(shown)))
