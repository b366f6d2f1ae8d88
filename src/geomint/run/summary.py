"""The results of a reduced ensemble: `run.reduced`, and what is known of every single member."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ArchiveError, InputError
from ..io.fingerprint import of_function
from ..system.system import Stated
from .radial import RadialDistribution
from .reductions import Column, Histogram, Mean, Quantiles, Reduction, Reductions, checked

KINDS: dict[str, type[Reduction]] = {kind.__name__: kind for kind in (Mean, Quantiles, Histogram, RadialDistribution)}
WHOLE = ("members", "counts")  # results that are whole numbers


class Reduced:
    """The results of one reduction, as attributes; the leading axis is that of saved points.

    Mean         mean, standard_deviation (saved, *shape)
    Quantiles    quantiles (saved, levels, *shape); levels
    Histogram    counts (saved, bins, *shape); edges
    RadialDistribution    counts, distribution (saved, bins); edges
    members      (saved,): how many members counted; those that had failed, or whose quantity was not finite, did not
    """

    def __init__(self, about: str, results: dict[str, Any], settings: dict[str, Any]):
        self.about, self.results, self.settings = about, results, settings

    def __getattr__(self, name: str) -> Any:
        held = {**self.__dict__.get("results", {}), **self.__dict__.get("settings", {})}
        if name in held:
            return held[name]
        raise AttributeError(f"this reduction has no {name!r}; it has {', '.join(sorted(held))}.")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.results, *self.settings]

    def __repr__(self) -> str:
        shapes = (f"{name} {np.shape(x)}" for name, x in {**self.results, **self.settings}.items())
        return f"<{self.about}: {', '.join(shapes)}>"


@dataclasses.dataclass
class Summary:
    """All reductions of a run, and what a restart needs besides the carry."""

    reduced: dict[str, Reduced]
    members_left: Any  # (saved,)
    failed_at: np.ndarray  # of each member: the first saved index at which it had failed, or −1
    kept: np.ndarray  # the members whose rows were kept
    start: tuple[np.ndarray, np.ndarray]  # (q, p) of all members at the start
    stated: dict[str, Any]  # the reductions, as an archive states them

    @property
    def rows(self) -> dict[str, Any]:
        """The columns of an archive that have results of reductions."""
        return {"reduced": {name: r.results for name, r in self.reduced.items()}, "members_left": self.members_left}

    @property
    def fixed(self) -> dict[str, np.ndarray]:
        """What an archive has besides rows and checkpoints."""
        return fixed_datasets(self.reduced, self.kept, self.start)


def describe_reductions(
    reductions: Reductions, system: Stated, q_shape: tuple[int, ...], spread: str
) -> dict[str, Any]:
    """The reductions as JSON, without functions and arrays; of a function there is a fingerprint."""
    of = lambda r: (
        {"of": r.of.name}
        if isinstance(r.of, Column)
        else {"of": None, "program": of_function(r.of, system, q_shape, spread)}
    )
    return {name: {"kind": type(r).__name__, **of(r)} for name, r in reductions.items()}


def fixed_datasets(
    reductions: Mapping[str, Reduction | Reduced], kept: np.ndarray, start: tuple[Any, Any]
) -> dict[str, np.ndarray]:
    """What an archive of a reduced run has besides rows and checkpoints, by the path of the dataset."""
    settings = {f"reduced/{name}/{key}": x for name, r in reductions.items() for key, x in r.settings.items()}
    return {**settings, "kept": kept, "start/q": np.asarray(start[0]), "start/p": np.asarray(start[1])}


def settings_of(name: str, held: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The settings of a reduction, from what `fixed_datasets` returned."""
    return {path.split("/")[-1]: x for path, x in held.items() if path.startswith(f"reduced/{name}/")}


def whole_numbers(columns: dict[str, Any]) -> dict[str, Any]:
    """Columns of a reduced run, with counts as integers again: a packed row has floating-point numbers only."""
    results = {
        name: {key: np.asarray(x, np.int64) if key in WHOLE else x for key, x in held.items()}
        for name, held in columns.get("reduced", {}).items()
    }
    return {**columns, "reduced": results, "members_left": np.asarray(columns["members_left"], np.int64)}


def extract_summary(
    columns: dict[str, Any], failed_at: Any, described: dict[str, Any], held: dict[str, np.ndarray]
) -> Summary:
    """Move all but the rows of kept members out of the columns, into a Summary.

    described, held: what `describe_reductions` and `fixed_datasets` returned, or what an archive has of them.
    """
    columns.update(whole_numbers(columns))
    results, members_left, reduced = columns.pop("reduced"), columns.pop("members_left"), {}
    for name, about in described.items():
        about_it = f"{about['kind']} of {about['of'] or 'a function'}"
        reduced[name] = Reduced(about_it, results[name], settings_of(name, held))
    return Summary(
        reduced, members_left, np.asarray(failed_at), held["kept"], (held["start/q"], held["start/p"]), described
    )


def reductions_of_archive(
    path: Any, described: dict[str, Any], held: dict[str, np.ndarray], reduce: Any, *of_run: Any
) -> Reductions:
    """The reductions of an archive, made again; or those that the user gave again, checked to be the same.

    of_run: system, shape of q, spread.
    """
    if reduce is None:
        lacking = [name for name, about in described.items() if about["of"] is None]
        if lacking:
            raise InputError(
                f"{path}: the reductions {', '.join(lacking)} are of functions, which an archive can't hold; give all "
                "reductions again: gm.resume(..., reduce=reduce)."
            )
        return {
            name: KINDS[about["kind"]].restored(about["of"], settings_of(name, held))
            for name, about in described.items()
        }
    reductions = checked(reduce)
    here = describe_reductions(reductions, *of_run)
    if _as_text(here) != _as_text(described):
        raise ArchiveError(
            f"{path}: reduce is not what the run began with: {_as_text(here)} here, {_as_text(described)} on file."
        )
    for name, about in here.items():
        if about != described[name]:
            raise ArchiveError(
                f"{path}: the function of reduce[{name!r}] is not the one that the run began with (or another version "
                "of JAX traces it otherwise)."
            )
    for name, reduction in reductions.items():
        for key, x in reduction.settings.items():
            if not np.array_equal(x, held[f"reduced/{name}/{key}"]):
                raise ArchiveError(f"{path}: the {key} of reduce[{name!r}] are not those that the run began with.")
    return reductions


def _as_text(described: dict[str, Any]) -> str:
    return (
        ", ".join(f"{name}: {about['kind']} of {about['of'] or 'a function'}" for name, about in described.items())
        or "none"
    )
