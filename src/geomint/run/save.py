"""save: a run as an archive, which gm.load opens and gm.resume continues, or as frames for other programs."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..engines import Clock, choose
from ..engines.tiles import Engine, Tiled
from ..errors import InputError
from ..io import archive
from ..io.files import writing
from ..io.frame_files import is_frames, new_frames, topology_for
from ..io.frames import Frames, FrameTopology, Topology
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
    """Write a run as an archive, or as a file of frames where the name asks for one."""
    path = as_path(path, "path")
    if is_frames(path):
        return _save_frames(run, path)
    if run.system is not None and run.checkpoint is None:
        raise InputError(
            "this is a part of a run, without the state from which it could be resumed: save the whole run as an "
            "archive, or the part as .xyz, .pdb, .h5md or .vtkhdf."
        )
    if run.system is None or run.checkpoint is None:
        raise InputError("this run can't be saved: it came from an archive without its system; copy the file instead.")
    rows_kept = len(run.t)
    if run.stopped_at is not None:  # its last point is between two steps
        rows_kept -= 1
        told = f"{path} has the points up to t = {run.t[-2]:g}: the last one, of until=, is between two steps"
        warnings.warn(told, stacklevel=3)
    meta, carry, fixed = _archive_data(run, run.system, run.checkpoint)
    one_row = jax.tree.map(lambda x: x[0], _rows(run, slice(0, 1)))
    rows = max(1, COPIED_BYTES // max(1, sum(x.nbytes for x in jax.tree.leaves(one_row))))
    # With room for the whole grid of the run: one that was interrupted goes on to its own end.
    writer = archive.create(path, meta, one_row, carry, max(len(run.t), run.grid.saves), fixed=fixed)
    try:
        for a in range(0, rows_kept, rows):  # a few rows at a time: a run in shards may not fit into memory
            piece = slice(a, min(a + rows, rows_kept))
            writer.append_columns(_rows(run, piece), np.asarray(run.t[piece]))
        if run.records is not None:
            writer.append_events(np.asarray(run.records))
        writer.checkpoint(carry, run.checkpoint.step, force=True)
    except BaseException:
        writer.abandon()
        raise
    writer.close()
    return Path(path)


def frames_of(run: Trajectory, topology: FrameTopology, rows: slice) -> Frames:
    """Some saved points of one trajectory as frames. Those of a part of a run are numbered from 0."""
    columns = {name: np.asarray(run.columns[name][rows]) for name in ("q", "p", "energy")}
    return topology.frames(columns, np.asarray(run.t[rows]), rows.start or 0, run.grid.save_every)


def topology_of(run: Trajectory, what: str, path: Path | None = None) -> Any:
    """What frames of the run share, in a file of this name; in one of atoms, where there is none."""
    if run.members:
        raise InputError(f"{what} is of one trajectory, and the run is an ensemble: take a member, run[0].")
    if run.system is None:
        raise InputError(f"{what} needs the system of the run: load it with gm.load(path, system=system).")
    if path is not None:
        return topology_for(path, run.system, run.q.shape[1:], what)
    return Topology(run.system, run.q.shape[1:], what)


def _save_frames(run: Trajectory, path: Path) -> Path:
    topology = topology_of(run, path.name, path)
    file = new_frames(path, topology)
    try:
        rows = max(1, COPIED_BYTES // (16 * max(1, int(np.prod(run.q.shape[1:])))))
        with writing(path):
            for a in range(0, len(run.t), rows):
                file.append(frames_of(run, topology, slice(a, a + rows)))
            file.close()
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
            path.unlink(missing_ok=True)
        raise
    return path


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
