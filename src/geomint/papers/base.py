"""What an experiment of a paper is, the numbers expected of it, and the registry that finds one by name."""

from __future__ import annotations

import builtins
import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import GeomintError, InputError, nearest
from ..run.instability import unwatched

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Check:
    """A measured number beside what is expected of it: low ≤ measured ≤ high, either of which may be missing.

    `expected` is that range in words, for the reader; NaN is never in range.
    """

    name: str
    measured: float
    low: float | None = None
    high: float | None = None
    expected: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "measured", float(self.measured))
        if not self.expected:
            object.__setattr__(self, "expected", self.range)

    @property
    def ok(self) -> bool:
        if math.isnan(self.measured):
            return False
        return (self.low is None or self.measured >= self.low) and (self.high is None or self.measured <= self.high)

    @property
    def range(self) -> str:
        """The bounds as text."""
        if self.low is not None and self.high is not None:
            return f"{self.low:g} … {self.high:g}"
        if self.low is not None:
            return f"≥ {self.low:g}"
        return "any number" if self.high is None else f"≤ {self.high:g}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN or infinity: those are null, and `ok` tells."""
        measured = self.measured if math.isfinite(self.measured) else None
        return {"name": self.name, "measured": measured, "low": self.low, "high": self.high, "expected": self.expected, "ok": self.ok}


@dataclasses.dataclass
class Outcome:
    """What an experiment gave: its checks and the paper's figure, drawn again."""

    checks: list[Check]
    figure: Figure

    @property
    def ok(self) -> bool:
        """All checks hold, and there is at least one."""
        return bool(self.checks) and builtins.all(check.ok for check in self.checks)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One experiment of one paper; call it with quick=True for a reduced size with the same checks."""

    paper: str
    name: str
    title: str
    figure: str  # where in the paper
    function: Callable[..., Outcome]

    @property
    def id(self) -> str:
        return f"{self.paper}/{self.name}"

    def __call__(self, quick: bool = False) -> Outcome:
        return self.function(quick=quick)


_experiments: dict[str, Experiment] = {}


def experiment(paper: str, name: str, title: str, figure: str) -> Callable[[Callable[..., Outcome]], Experiment]:
    """Decorator for a function of `quick` that returns an Outcome: registration gives it its place in `geomint reproduce`
    and in the tests."""

    def join(function: Callable[..., Outcome]) -> Experiment:
        made = Experiment(paper, name, title, figure, function)
        if made.id in _experiments:
            raise ValueError(f"there are two experiments {made.id}.")
        _experiments[made.id] = made
        return made

    return join


def all() -> tuple[Experiment, ...]:
    """Every experiment, paper by paper in the order of registration."""
    return tuple(sorted(_experiments.values(), key=lambda e: e.paper))


def find(selector: str | None = None) -> tuple[Experiment, ...]:
    """The experiments of "PAPER", the one of "PAPER/EXPERIMENT", or all."""
    if selector is None:
        return all()
    paper, slash, name = selector.strip().partition("/")
    papers = {e.paper for e in all()}
    if paper not in papers:
        raise InputError(f"there is no paper {paper!r}." + nearest(paper, papers))
    of_paper = tuple(e for e in all() if e.paper == paper)
    if not slash:
        return of_paper
    chosen = tuple(e for e in of_paper if e.name == name)
    if not chosen:
        raise InputError(f"{paper} has no experiment {name!r}." + nearest(name, [e.name for e in of_paper]))
    return chosen


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """An experiment as it was run here; `error` says why there is no outcome."""

    experiment: Experiment
    quick: bool
    seconds: float
    checks: tuple[Check, ...] = ()
    picture: Path | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and bool(self.checks) and builtins.all(check.ok for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        about = {"paper": self.experiment.paper, "experiment": self.experiment.name, "title": self.experiment.title, "figure": self.experiment.figure}
        found = {"ok": self.ok, "checks": [check.to_dict() for check in self.checks], "error": self.error}
        return {**about, "quick": self.quick, "seconds": round(self.seconds, 3), "picture": self.picture and str(self.picture), **found}


def reproduce(experiment: Experiment, quick: bool, folder: Path) -> Reproduction:
    """Run one experiment and write its figure to folder/PAPER-EXPERIMENT.png. One that stops with an error of geomint is
    reported as failed, so that it does not keep others from running."""
    from ..plots import save_figure

    began = time.perf_counter()
    try:
        with unwatched():  # experiments take methods beyond their limits on purpose, and judge the energy by their checks
            outcome = experiment(quick=quick)
        picture = save_figure(outcome.figure, folder / f"{experiment.paper}-{experiment.name}.png")
    except GeomintError as error:
        return Reproduction(experiment, quick, time.perf_counter() - began, error=str(error))
    return Reproduction(experiment, quick, time.perf_counter() - began, tuple(outcome.checks), picture)
