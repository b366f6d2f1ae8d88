"""load: a run from its archive, as a Trajectory whose arrays are memory maps."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from .. import methods
from ..engines.grid import Grid
from ..errors import ArchiveError
from ..io import archive
from ..methods import protocols
from .summary import taken_from
from .trajectory import Checkpoint, Trajectory


def trajectory(contents: archive.Contents, system: Any = None, checkpoint: Checkpoint | None = None) -> Trajectory:
    """An archive as a Trajectory whose arrays are memory maps."""
    meta = contents.meta
    columns = contents.arrays()
    t = columns.pop("t")
    summary = None
    if "reduce" in meta:
        failed_at = contents.leaves[-1] if contents.leaves else ()
        summary = taken_from(columns, failed_at, meta["reduce"], contents.fixed())
    if meta["members"]:
        columns = jax.tree.map(lambda x: np.moveaxis(x, 0, 1), columns)
    return Trajectory(
        system,
        method_of(contents),
        Grid(*meta["grid"]),
        t,
        columns,
        members=meta["members"],
        spread=meta["spread"],
        seed=contents.seed,
        compensated=meta["compensated"],
        engine=meta["engine"],
        checkpoint=checkpoint,
        records=records_of(contents, checkpoint),
        path=contents.path,
        summary=summary,
    )


def method_of(contents: archive.Contents) -> methods.Method:
    """The method, made again from its expression in the archive."""
    try:
        return methods.named(contents.meta["method"])
    except Exception as error:  # whatever an expression from a file leads to
        what = f"its method {contents.meta['method']!r:.100} is not one of this geomint ({str(error)[:200]})"
        raise ArchiveError(f"{contents.path}: {what}.", contents.path) from None


def records_of(contents: archive.Contents, checkpoint: Checkpoint | None) -> np.ndarray | None:
    """The single events of a run, where its method and the checkpoint tell how many there are."""
    method = method_of(contents)
    if checkpoint is None or not method.traits.event_driven or contents.meta["spread"] != "one":
        return None
    return archive.read_events(contents.path, int(protocols.events(method, checkpoint.carry)))
