"""What an experiment is and what it returns, and the registry that finds one by name."""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError, nearest
from .checks import Check

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..view import Scene


@dataclasses.dataclass
class Outcome:
    """The result of an experiment.

    checks:      its rows, in the order of the paper; of different claims
    figure:      the paper's figure drawn again
    motion:      makes the animation of the motion, where there is one; `geomint report` calls it
    parameters:  what the numbers depend on: steps, sizes, seeds
    left_out:    claims that only the full size checks, in words
    """

    checks: list[Check]
    figure: Figure
    motion: Callable[[], Scene] | None = None
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    left_out: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """All rows hold, and at least one says something of the paper."""
        return holds(self.checks)


def holds(checks: Sequence[Check]) -> bool:
    """All rows are in range, and at least one says something of the paper."""
    return builtins.any(check.judged for check in checks) and builtins.all(check.ok for check in checks)


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

    def __reduce__(self) -> tuple[Callable[[str], Experiment], tuple[str]]:
        return _of_name, (self.id,)  # pickled by its name: the decorator has taken the place of the function


_experiments: dict[str, Experiment] = {}


def _of_name(name: str) -> Experiment:
    return _experiments[name]


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
