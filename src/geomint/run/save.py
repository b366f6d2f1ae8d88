"""save: a run in memory as an archive, which gm.load opens and gm.resume continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..engines import Clock, choose
from ..engines.tiles import Engine, Tiled
from ..errors import InputError
from ..io import archive
from ..io.index import read_index
from ..methods import Carry
from ..system.checks import as_path
from ..system.system import Stated
from .drive import archive_meta
from .reducing_engine import Marked
from .trajectory import Checkpoint, Trajectory

COPIED_BYTES = 2**26  # that are copied at a time


class ArchiveData(NamedTuple):
    """What an archive of a run consists of, besides times and events."""

    meta: dict[str, Any]
    carry: Carry
    fixed: dict[str, Any]


def save(run: Trajectory, path: str | Path) -> Path:
    """Write a run in memory as an archive."""
    path = as_path(path, "path")
    if run.system is None or run.checkpoint is None:
        raise InputError("this run can't be saved: it came from an archive without its system; copy the file instead.")
    meta, carry, fixed = _archive_data(run, run.system, run.checkpoint)
    one_row = jax.tree.map(lambda x: x[0], _rows(run, slice(0, 1)))
    rows = max(1, COPIED_BYTES // max(1, sum(x.nbytes for x in jax.tree.leaves(one_row))))
    # With room for the whole grid of the run: one that was interrupted goes on to its own end.
    writer = archive.create(path, meta, one_row, carry, max(len(run), run.grid.saves), fixed=fixed)
    try:
        for a in range(0, len(run), rows):  # a few rows at a time: a run in shards may not fit into memory
            piece = slice(a, a + rows)
            writer.append_columns(_rows(run, piece), np.asarray(run.t[piece]))
        if run.records is not None:
            writer.append_events(np.asarray(run.records))
        writer.checkpoint(carry, run.checkpoint.step, force=True)
    except BaseException:
        writer.abandon()
        raise
    writer.close()
    return Path(path)


def _archive_data(run: Trajectory, system: Stated, checkpoint: Checkpoint) -> ArchiveData:
    q = run.q if run.summary is None else run.summary.start[0][:, None]
    shape = q.shape[2:] if run.members else q.shape[1:]
    about = {"seed": run.seed, "compensated": run.compensated, "members": run.members}
    # The engine says what form the carry has; in the archive of a loaded run, even where XLA has continued it.
    in_file = run.path and run.path.exists() and read_index(run.path) is None
    name = archive.read(run.path).meta["engine"] if in_file and run.path else run.engine.split()[0]
    # A loaded run knows its solver, although its method has not looked at the system.
    solver = {"solver": run.solver} if run.solver else {}
    engine = _engine(run, system, name, len(q))
    meta = {**archive_meta(system, engine, run.grid, about, shape), "engine": name, **solver}
    fixed = {} if np.ndim(run.seed) == 0 else {"seeds": run.seed}
    summary = run.summary
    if summary is None:
        return ArchiveData(meta, checkpoint.carry, fixed)
    return ArchiveData(
        {**meta, "reduce": summary.stated},
        Marked(checkpoint.carry, summary.failed_at),
        {**fixed, **summary.fixed},
    )


def _rows(run: Trajectory, rows: slice) -> dict[str, Any]:
    """Some rows of every column, time first."""
    members = lambda x: np.moveaxis(np.asarray(x[:, rows]), 1, 0)
    columns = jax.tree.map(members if run.members else lambda x: np.asarray(x[rows]), run.columns)
    if run.summary is not None:
        columns |= jax.tree.map(lambda x: np.asarray(x[rows]), run.summary.rows)
    return columns


def _engine(run: Trajectory, system: Stated, name: str, members: int) -> Engine:
    """An engine for the description of the run in the archive; it does not run."""
    make, clock = choose(name), Clock.of(run.grid.t0, run.grid.dt)
    if run.members:
        return Tiled(make, run.method, system, clock, run.spread, members, tile=getattr(run, "tile", None))
    return make(run.method, system, clock, run.spread)
