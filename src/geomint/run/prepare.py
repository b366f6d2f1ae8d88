"""Before a run: a method checks the system and finds its structure; for an ensemble, from a sample of its members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..io.frame_files import check_format
from ..methods import Method, as_method, protocols
from ..system.checks import as_path, flag
from ..system.system import Stated, checked_system

SAMPLE = 6  # members of an ensemble from which a method finds the structure of all of them
ROUNDS = 6  # attempts; each may double the sample, by members whose structure differs from what was found


def checked_settings(output: Any, progress: Any, compensated: Any) -> tuple[Path | None, bool, bool]:
    """The arguments output, progress and compensated of simulate and ensemble."""
    path = None if output is None else as_path(output, "output")
    if path is not None:
        check_format(path)
    return path, flag(progress, "progress"), flag(compensated, "compensated")


def checked_method(system: Any, method: Any) -> Method:
    """The method, after a check that it can integrate the system."""
    checked_system(system)
    method = as_method(method)
    if method.traits.event_driven != isinstance(method, protocols.EventDriven):
        raise InputError(
            f"{method.name}: a method that chooses its own times has traits.event_driven and inherits from "
            "gm.methods.protocols.EventDriven; this one does only one of both."
        )
    method.check(system)
    return method


def prepared(method: Method, system: Stated, q: Any, spread: str) -> Method:
    """The method with what it found about the system (`FindsStructure`). For an ensemble it looks at a sample of
    members, which grows by members that do not fit what was found."""
    if spread == "one":
        return protocols.prepare(method, [(system, q)])
    if getattr(system, "auxiliary", None) is not None:
        raise InputError(
            "gm.ensemble does not take systems with neighbour lists: run the members one by one with gm.simulate, or "
            "leave System(auxiliary=...) out, which compares all pairs."
        )
    if not isinstance(method, protocols.FindsStructure):
        return method
    own_params = spread == "states and params"
    sample, others = _spread_out(np.arange(len(q)), SAMPLE), None
    for _ in range(ROUNDS):
        starts = [(system.member(i) if own_params else system, q[i]) for i in sample]
        try:
            ready = protocols.prepare(method, starts)
        except InputError as error:
            if others is None:
                raise
            raise InputError(f"{error} Found at member {others[0]} of the ensemble, or at one like it.") from None
        others = np.flatnonzero(protocols.misfits(ready, system, q, own_params)) if len(sample) < len(q) else sample[:0]
        if not len(others):
            return ready
        sample = np.union1d(sample, _spread_out(others, len(sample)))
    raise InputError(
        f"{method.name}: the members of this ensemble differ in the structure of their matrices (Hessians, or "
        "gradients of constraints), which a sample of them does not cover; give the method solver='dense' or "
        "solver='matrix-free', or solver='least-squares' where constraints depend on each other."
    )


def sampled(members: int) -> list[int]:
    """Members of an ensemble that are checked for all of them."""
    return _spread_out(np.arange(members), SAMPLE).tolist()


def _spread_out(members: np.ndarray, count: int) -> np.ndarray:
    """At most `count` of them, evenly from the first to the last."""
    return members[np.unique(np.linspace(0, len(members) - 1, count).round().astype(int))]
