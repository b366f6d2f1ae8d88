"""The site: experiments run one after another or in several processes, a page for each, and the start page."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import shutil
import time
import traceback
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import GeomintError, InputError
from ..papers.base import Experiment, Outcome
from ..papers.runner import Reproduction, machine, reproduced, run_all
from .experiment_page import experiment_page, motion_path, page_name
from .index_page import Entry, index_page
from .pieces import ASSETS, relative
from .plots import plots_html, thumbnail

FIGURES = "figures"
FOLDER = Path(__file__).parent
Neighbours = Sequence[tuple[str, str, str]]


def prepare(folder: Path) -> None:
    """The folder with what all pages load: plotly, our script and our style."""
    if importlib.util.find_spec("plotly") is None:
        raise InputError("the plots of the report need plotly: pip install 'geomint[report]'.")
    from plotly.offline import get_plotlyjs

    try:
        for part in (ASSETS, FIGURES, "motion"):
            (folder / part).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {folder}: the folder can't be made ({error.strerror}).") from None
    (folder / ASSETS / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")
    for name in ("report.js", "report.css"):
        shutil.copyfile(FOLDER / name, folder / ASSETS / name)


def write_pages(chosen: Sequence[Experiment], quick: bool, folder: Path, jobs: int = 1) -> Generator[Entry]:
    """Run experiments and write the page of each; yields what the start page needs, as they end."""
    prepare(folder)
    task = functools.partial(write_page, neighbours=neighbours_of(chosen))
    yield from run_all(chosen, quick, folder, jobs, task)


def write_index(chosen: Sequence[Experiment], entries: Sequence[Entry], folder: Path, began: float) -> Path:
    """The start page, in the order of the papers; `began` is the time.perf_counter() of the start."""
    order = {each.id: k for k, each in enumerate(chosen)}
    ordered = sorted(entries, key=lambda entry: order[entry.done.experiment.id])
    path = folder / "index.html"
    path.write_text(index_page(ordered, machine(), time.perf_counter() - began), encoding="utf-8")
    return path


def neighbours_of(chosen: Sequence[Experiment]) -> dict[str, Neighbours]:
    """(relation, page, title) of the experiments before and after each."""
    pages = [(page_name(each.paper, each.name), each.title) for each in chosen]
    made: dict[str, Neighbours] = {}
    for k, each in enumerate(chosen):
        before = [("prev", *pages[k - 1])] if k else []
        made[each.id] = [*before, *([("next", *pages[k + 1])] if k + 1 < len(pages) else [])]
    return made


def write_page(experiment: Experiment, quick: bool, folder: Path, neighbours: Mapping[str, Neighbours]) -> Entry:
    """Run one experiment and write its page, in the process that has its figure.

    Any error is reported on the page and counts as a failure: the pages of an hour's other experiments are kept.
    """
    began, trace = time.perf_counter(), ""
    entry, plots, motion = Entry(Reproduction(experiment, quick, 0.0)), "", ""
    outcome: Outcome | None = None
    try:
        done, outcome = reproduced(experiment, quick, folder / FIGURES)
        entry = entry._replace(done=done)
        if outcome is not None and done.picture is not None:
            small = relative(thumbnail(done.picture), folder)
            plots, unknown = plots_html(outcome.figure, done.picture, folder)
            motion = _animation(experiment, outcome, folder)
            entry = entry._replace(thumbnail=small, animated=bool(motion), pictures=unknown)
    except Exception as error:
        known = isinstance(error, GeomintError)
        trace = "" if known else traceback.format_exc()
        told = str(error) if known else f"{type(error).__name__}: {error}"
        told = told if outcome is None else f"the page of the experiment: {told}"
        seconds = entry.done.seconds or time.perf_counter() - began
        entry = entry._replace(done=dataclasses.replace(entry.done, seconds=seconds, error=told))
    text = experiment_page(entry.done, machine(), neighbours.get(experiment.id, ()), plots, motion, trace)
    (folder / page_name(experiment.paper, experiment.name)).write_text(text, encoding="utf-8")
    return entry


def _animation(experiment: Experiment, outcome: Outcome, folder: Path) -> str:
    """The page of the animation as a link, "" where there is no motion."""
    if outcome.motion is None:
        return ""
    path = motion_path(folder, experiment.paper, experiment.name)
    scene: Any = outcome.motion()
    scene.write(path)
    return relative(path, folder)
