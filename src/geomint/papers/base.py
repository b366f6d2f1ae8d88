"""What an experiment is, the numbers expected of it, and the registry that finds one by name."""

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
    """A measured number and the range it must lie in: low ≤ measured ≤ high. One of the bounds may be missing, not
    both.

    `expected` states that range in words. NaN is never in range. `rtol` is the relative difference to the number in
    docs/results.json that the tests accept. Where it is None (chaotic motion) or there is no lower bound (rounding
    errors), the digits differ between machines and only the range counts.
    """

    name: str
    measured: float
    low: float | None = None
    high: float | None = None
    expected: str = ""
    rtol: float | None = 0.02

    def __post_init__(self) -> None:
        for field in ("measured", "low", "high"):  # NumPy scalars become floats, which JSON can hold
            if (value := getattr(self, field)) is not None:
                object.__setattr__(self, field, float(value))
        if self.low is None and self.high is None:
            raise ValueError(
                f"the check {self.name!r} has no bound, so it cannot fail. Use Information for such a number."
            )
        if not self.expected:
            object.__setattr__(self, "expected", self.range)

    @classmethod
    def near(
        cls,
        name: str,
        measured: float,
        value: float,
        share: float = 0.05,
        expected: str = "",
        rtol: float | None = 0.02,
    ) -> Check:
        """A check that `measured` is `value` up to the relative difference `share`."""
        low, high = sorted((value * (1 - share), value * (1 + share)))
        return cls(name, measured, low, high, expected or f"{value:g} ± {100 * share:g} %", rtol)

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
        return f"≥ {self.low:g}" if self.low is not None else f"≤ {self.high:g}"

    def agrees(self, recorded: float) -> bool:
        """Whether a number recorded earlier is the same up to `rtol`, or at least in the same range."""
        if self.rtol is None or self.low is None:
            return dataclasses.replace(self, measured=recorded).ok
        return abs(self.measured - recorded) <= self.rtol * abs(recorded)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN or infinity: such a number is null, and `ok` is false."""
        measured = self.measured if math.isfinite(self.measured) else None
        return {
            "name": self.name,
            "measured": measured,
            "low": self.low,
            "high": self.high,
            "expected": self.expected,
            "ok": self.ok,
        }


@dataclasses.dataclass(frozen=True)
class Information:
    """A measured number without a range: wall times, and quantities of one chaotic run.

    It is printed without a verdict and does not count as a check. `rtol` as in `Check`.
    """

    name: str
    measured: float
    remark: str = ""
    rtol: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "measured", float(self.measured))

    def agrees(self, recorded: float) -> bool:
        return self.rtol is None or abs(self.measured - recorded) <= self.rtol * abs(recorded)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; a number that is not finite is null."""
        return {
            "name": self.name,
            "measured": self.measured if math.isfinite(self.measured) else None,
            "remark": self.remark,
        }


@dataclasses.dataclass
class Outcome:
    """The result of an experiment: its checks, the paper's figure drawn again, and numbers that are not checked."""

    checks: list[Check]
    figure: Figure
    information: list[Information] = dataclasses.field(default_factory=list)

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
    """Decorator: register a function of `quick` that returns an Outcome. `geomint reproduce` and the tests then run
    it."""

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
    """The result of running an experiment here; `error` says why there is no outcome."""

    experiment: Experiment
    quick: bool
    seconds: float
    checks: tuple[Check, ...] = ()
    information: tuple[Information, ...] = ()
    picture: Path | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and bool(self.checks) and builtins.all(check.ok for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        about = {
            "paper": self.experiment.paper,
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "figure": self.experiment.figure,
        }
        rows = {"checks": [x.to_dict() for x in self.checks], "information": [x.to_dict() for x in self.information]}
        found = {"ok": self.ok, **rows, "error": self.error}
        return {
            **about,
            "quick": self.quick,
            "seconds": round(self.seconds, 3),
            "picture": self.picture and str(self.picture),
            **found,
        }


def reproduce(experiment: Experiment, quick: bool, folder: Path) -> Reproduction:
    """Run one experiment and write its figure to folder/PAPER-EXPERIMENT.png. A GeomintError is reported as a
    failure, so that the other experiments still run."""
    from ..plots.figures import save_figure

    began = time.perf_counter()
    try:
        with unwatched():  # experiments exceed limits of methods on purpose, and check the energy themselves
            outcome = experiment(quick=quick)
        picture = save_figure(outcome.figure, folder / f"{experiment.paper}-{experiment.name}.png")
    except GeomintError as error:
        return Reproduction(experiment, quick, time.perf_counter() - began, error=str(error))
    rows = tuple(outcome.checks), tuple(outcome.information)
    return Reproduction(experiment, quick, time.perf_counter() - began, *rows, picture)
