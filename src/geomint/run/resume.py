"""resume: continue an archived run from its last checkpoint, bit for bit as if it had never stopped.

1. Read the archive (io/reader.py). Its newest intact checkpoint says which rows count.
2. Set the run up again (restore.py): the system, the method and the engine, and the carry of the checkpoint.
3. Open the archive for writing, as it is or, for a later t_end, as a larger copy; discard newer rows and events.
4. Drive the engine from the step of the checkpoint (drive.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .. import methods
from ..engines.grid import Grid, grid
from ..engines.tiles import Engine, Tiled
from ..errors import ArchiveError, GeomintError, InputError
from ..io import archive
from ..io.frame_files import existing_archive_of, frames_path, reopened_frames
from ..io.index import Index, read_index, rewrite_index
from ..io.reader import reached
from ..io.sinks import Disk, DiskWithFrames
from ..methods import Carry, protocols
from ..numerics.keywords import checked_keywords
from ..system.checks import as_path, flag
from ..system.system import Stated, checked_system
from .defaults import method_of_model
from .devices import devices_of
from .drive import archive_meta, drive
from .executors import checked_executor
from .prepare import prepared
from .reductions import Reduction
from .restore import matching, method_of, reopened, restore_engine, system_of
from .sharded import run_index
from .shards import Job
from .summary import reductions_of_archive
from .trajectory import Trajectory


class Given(NamedTuple):
    """What the caller of resume gave again, where an archive can't hold it."""

    system: Stated | None = None
    method: methods.Method | None = None
    reduce: Mapping[str, Reduction] | None = None


class Ready(NamedTuple):
    """All that a run needs to go on."""

    system: Stated
    engine: Engine
    carry: Carry
    events: int | None  # number of events up to the checkpoint; None where the run does not log single events


@checked_keywords
def resume(
    path: str | Path,
    system: Stated | None = None,
    t_end: float | None = None,
    progress: bool = False,
    method: methods.Method | None = None,
    mesh: Any = None,
    reduce: Mapping[str, Reduction] | None = None,
    executor: Any = None,
) -> Trajectory:
    """Continue an archived run from its last checkpoint, bit for bit as if it had never stopped: to its own t_end or to
    another one that is not before the checkpoint. A method that holds functions, such as EnergyStepping(inside=...),
    must be given again.

    mesh:    for an ensemble, as in gm.ensemble: any devices, whatever the run began with.
    reduce:  for an ensemble that was reduced by functions: the same reductions again, since an archive can't hold
             functions. Reductions of saved quantities need not be given.
    executor: for an ensemble in shards, as in gm.ensemble: any executor, whatever the run began with. None: the shards
             run one after another in this process.
    """
    path, progress = existing_archive_of(as_path(path, "path")), flag(progress, "progress")
    if system is not None:
        checked_system(system)
    if method is not None:
        method = methods.as_method(method)
    devices, executor = devices_of(mesh), checked_executor(executor)
    given = Given(system, method, reduce)
    index = read_index(path)
    if index is not None:
        if mesh is not None:
            raise InputError(f"{path} is an ensemble in shards; executor= distributes them, not mesh=.")
        return _continue_shards(index, t_end, progress, given, executor)
    contents = archive.read(path)
    if executor is not None or "shard" in contents.meta:
        raise InputError(_not_in_shards(contents))
    if mesh is not None and not contents.meta["members"]:
        raise InputError(f"{path} holds one trajectory; mesh= shares the members of an ensemble.")
    if reduce is not None and "reduce" not in contents.meta:
        raise InputError(f"{path} was run without reduce=; a reduction begins with the run.")
    return _continue_run(contents, t_end, progress, given, devices)


def _continue_run(
    contents: archive.Contents, t_end: float | None, progress: bool, given: Given, devices: Any
) -> Trajectory:
    path, meta = contents.path, contents.meta
    times = _times(contents, t_end, contents.step)
    ready = _set_up(contents, times, given, devices)
    if ready.engine.engine_name != meta["engine"]:
        warnings.warn(
            f"{path} was run by the {meta['engine']} engine, which is not available here: {ready.engine.described} "
            "goes on, and the last bits may differ from those of an uninterrupted run.",
            stacklevel=3,
        )
    about = {"seed": contents.seed, **{k: meta[k] for k in ("compensated", "members")}}
    sink = _sink(contents, times, ready, about)
    return drive(ready.engine, ready.carry, times, sink, progress, about, start=contents.step)


def _times(contents: archive.Contents | Index, t_end: float | None, reached_step: int) -> Grid:
    """The grid of the run, or that to another t_end, which is not before the step that the run has reached."""
    old = Grid(*contents.meta["grid"])
    times = old if t_end is None else grid(old.dt, t_end, old.t0, old.save_every, only_t_end=True)
    if times.steps < reached_step:
        at = old.t0 + reached_step * old.dt
        raise InputError(f"{contents.path} has already reached t = {at:g}, beyond t_end = {times.t_end:g}.")
    return times


def _not_in_shards(contents: archive.Contents) -> str:
    if "shard" in contents.meta:
        return f"{contents.path} is one shard of a run; resume the index beside the folder {contents.path.parent}."
    return f"{contents.path} is not in shards; executor= is for runs that began with ensemble(..., executor=...)."


def _continue_shards(index: Index, t_end: float | None, progress: bool, given: Given, executor: Any) -> Trajectory:
    """Continue all shards that are not complete; begin those that have not begun."""
    meta = index.meta
    times = _times(index, t_end, max(reached(place.path) for place in index.shards))
    job = _job(index, times, given)
    if times.steps != meta["grid"][2]:
        index = rewrite_index(index, {**meta, "grid": [times.t0, times.dt, times.steps, times.save_every]}, None)
    return run_index(index, job, executor, progress)


def _job(index: Index, times: Grid, given: Given) -> Job:
    """What the shards of a run share, set up again."""
    meta = index.meta
    stated = _stated_again(index, given)
    if given.reduce is not None and "reduce" not in meta:
        raise InputError(f"{index.path} was run without reduce=; a reduction begins with the run.")
    reductions = None
    if "reduce" in meta:
        of_run = stated.system, tuple(meta["q_shape"]), meta["spread"]
        reductions = reductions_of_archive(index.path, meta["reduce"], index.small, given.reduce, *of_run)
    index.check_start()
    method = prepared(stated.method or method_of(index), stated.system, index.start("q"), meta["spread"])
    return Job(index.path.absolute(), stated.system, method, times, meta["engine"], reductions, meta["fingerprint"])


def _sink(contents: archive.Contents, times: Grid, ready: Ready, about: dict[str, Any]) -> Disk:
    """The archive, open for writing behind the rows and events that count. The writer stands behind these rows; the
    file of events has to be cut, which ensembles do not have."""
    system, engine, _, events = ready
    ending, path = {k: contents.meta[k] for k in ("frames",) if k in contents.meta}, frames_path(contents)
    meta = lambda: {**archive_meta(system, engine, times, about, tuple(contents.meta["q_shape"])), **ending}
    writer = reopened(contents, times, meta)
    if isinstance(engine, Tiled):
        return Disk(writer, engine.layout, times, engine.rows_per_member, engine.archived_carry)
    arguments = writer, engine.layout, times, False, engine.archived_carry
    try:
        if path is None:
            sink = Disk(*arguments)
        else:
            sink = DiskWithFrames(*reopened_frames(path, writer.path, system, times.save_every), *arguments)
            writer.lock()  # again: where the lock belongs to the process, reading the archive has released it
        sink.truncate(contents.rows, events)
    except BaseException:
        writer.close()
        raise
    return sink


def _set_up(contents: archive.Contents, times: Grid, given: Given, devices: Any) -> Ready:
    """All that a run needs to go on; or an error that says what is missing."""
    path, meta = contents.path, contents.meta
    system, method = _stated_again(contents, given)
    if contents.sequence == 0:
        none = "holds no checkpoint: the run was stopped before its first. Remove the file and start again."
        raise ArchiveError(f"{path} {none}", path)
    reductions = None
    if "reduce" in meta:
        of_run = system, tuple(meta["q_shape"]), meta["spread"]
        reductions = reductions_of_archive(path, meta["reduce"], contents.fixed, given.reduce, *of_run)
    engine, carry = restore_engine(contents, system, times, method, devices, reductions)
    events = int(protocols.events(engine.method, carry)) if engine.logs else None
    if events is not None:
        archive.check_events(path, events)
    return Ready(system, engine, carry, events)


class StatedAgain(NamedTuple):
    """The system of an archived run, and the method where it had to be given."""

    system: Stated
    method: methods.Method | None


def _stated_again(contents: archive.Contents | Index, given: Given) -> StatedAgain:
    """The system made again or given; an error that says what has to be given."""
    path, meta = contents.path, contents.meta
    system, method = given.system, given.method
    system = system_of(contents) if system is None else system
    if system is None:
        made = "this run is not of a model of geomint"
        if meta["origin"] is not None:
            made = f"{meta['origin']:.100} is not the system of this run here"
        raise InputError(f"{path}: {made}; state its system again: gm.resume({str(path)!r}, system=system).")
    system = matching(contents, system)
    if method is None and meta.get("functions_of_model", False):
        usual = method_of_model(meta["origin"], tuple(meta["q_shape"]))
        method = usual if usual is not None and usual.name == meta["method"] else None
    if method is None and not meta.get("complete_name", True):
        held = f"{meta['method']} was given functions (inside=...), which an archive can't hold"
        raise InputError(f"{path}: {held}; give it again: gm.resume(..., method=method).")
    if method is not None and method.name != meta["method"]:
        raise InputError(f"{path} was run with {meta['method']}, not with {method.name}.")
    return StatedAgain(system, method)


def obstacle(contents: archive.Contents | Index) -> str | None:
    """Why gm.resume(path), with nothing else given, would refuse to continue a run; None where it would continue it."""
    try:
        if isinstance(contents, Index):
            _job(contents, Grid(*contents.meta["grid"]), Given())
            return None
        archive.check_writable(contents.path)
        _set_up(contents, Grid(*contents.meta["grid"]), Given(), (None,))
    except GeomintError as error:
        return str(error)
    return None
