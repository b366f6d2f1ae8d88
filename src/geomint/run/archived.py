"""The Trajectory of an archive: its arrays are memory maps."""

# Archived makes some attributes of Trajectory when they are first used.
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from ..engines.grid import Grid
from ..io import archive
from ..methods import Method, protocols
from ..system.system import Stated
from .restore import method_of, restore_engine, system_of
from .summary import extract_summary
from .trajectory import Checkpoint, Trajectory


class Archived(Trajectory):
    """A run on disk. Loading it only maps the file. Its system (of gm.models), its checkpoint and its events are made
    when they are first used, since the expression of a model in a file may take any time and memory."""

    def __init__(self, contents: archive.Contents, system: Stated | None):
        self.__dict__.update(trajectory(contents, system).__dict__)
        self._contents = contents
        for name in ("checkpoint", "records") if system is not None else ("system", "checkpoint", "records"):
            del self.__dict__[name]  # so that the properties below are used

    @functools.cached_property
    def system(self) -> Stated | None:
        return system_of(self._contents)

    @functools.cached_property
    def checkpoint(self) -> Checkpoint | None:
        contents = self._contents
        if not contents.leaves or self.system is None or not contents.meta.get("complete_name", True):
            return None
        return Checkpoint(restore_engine(contents, self.system).carry, contents.step)

    @property
    def solver(self) -> str | None:
        """The linear solver that was used, where the method needed one and the archive names it."""
        return self._contents.meta.get("solver")

    @functools.cached_property
    def records(self) -> np.ndarray | None:
        return records_of(self._contents, self.checkpoint, self.method)


def trajectory(
    contents: archive.Contents,
    system: Any = None,
    checkpoint: Checkpoint | None = None,
    method: Method | None = None,
) -> Trajectory:
    """The Trajectory of an archive. method: that of the run, where it is known; it may not be registered."""
    meta, method = contents.meta, method or method_of(contents)
    columns = contents.arrays()
    t = columns.pop("t")
    summary = None
    if "reduce" in meta:
        failed_at = contents.leaves[-1] if contents.leaves else ()
        summary = extract_summary(columns, failed_at, meta["reduce"], contents.fixed)
    if meta["members"]:
        columns = jax.tree.map(lambda x: np.moveaxis(x, 0, 1), columns)
    return Trajectory(
        system,
        method,
        Grid(*meta["grid"]),
        t,
        columns,
        members=meta["members"],
        spread=meta["spread"],
        seed=contents.seed,
        compensated=meta["compensated"],
        engine=meta["engine"],
        checkpoint=checkpoint,
        records=records_of(contents, checkpoint, method),
        path=contents.path,
        summary=summary,
    )


def records_of(contents: archive.Contents, checkpoint: Checkpoint | None, method: Method) -> np.ndarray | None:
    """The single events of a run, where its method and the checkpoint say how many there are."""
    if checkpoint is None or not method.traits.event_driven or contents.meta["spread"] != "one":
        return None
    return archive.read_events(contents.path, int(protocols.events(method, checkpoint.carry)))
