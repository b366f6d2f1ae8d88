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
from ..io.sinks import Disk
from ..methods import Carry, protocols
from ..system.checks import as_path, flag
from ..system.system import Stated, checked_system
from .devices import devices_of
from .drive import archive_meta, drive
from .reductions import Reduction
from .restore import check_match, restore_engine, system_of
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


def resume(
    path: str | Path,
    system: Stated | None = None,
    t_end: float | None = None,
    progress: bool = False,
    method: methods.Method | None = None,
    mesh: Any = None,
    reduce: Mapping[str, Reduction] | None = None,
) -> Trajectory:
    """Continue an archived run from its last checkpoint, bit for bit as if it had never stopped: to its own t_end or to
    another one that is not before the checkpoint. A method that holds functions, such as EnergyStepping(inside=...),
    must be given again.

    mesh:    for an ensemble, as in gm.ensemble: any devices, whatever the run began with.
    reduce:  for an ensemble that was reduced by functions: the same reductions again, since an archive can't hold
             functions. Reductions of saved quantities need not be given.
    """
    path, progress = as_path(path, "path"), flag(progress, "progress")
    if system is not None:
        checked_system(system)
    if method is not None:
        method = methods.as_method(method)
    devices = devices_of(mesh)
    contents = archive.read(path)
    if mesh is not None and not contents.meta["members"]:
        raise InputError(f"{path} holds one trajectory; mesh= shares the members of an ensemble.")
    if reduce is not None and "reduce" not in contents.meta:
        raise InputError(f"{path} was run without reduce=; a reduction begins with the run.")
    return _continue_run(contents, t_end, progress, Given(system, method, reduce), devices)


def _continue_run(
    contents: archive.Contents, t_end: float | None, progress: bool, given: Given, devices: Any
) -> Trajectory:
    path, meta = contents.path, contents.meta
    old = Grid(*meta["grid"])
    times = old if t_end is None else grid(old.dt, t_end, old.t0, old.save_every, only_t_end=True)
    if times.steps < contents.step:
        raise InputError(
            f"{path} has already reached t = {old.t0 + contents.step * old.dt:g}, beyond t_end = {times.t_end:g}."
        )
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


def _sink(contents: archive.Contents, times: Grid, ready: Ready, about: dict[str, Any]) -> Disk:
    """The archive, open for writing behind the rows and events that count. The writer stands behind these rows; the
    file of events has to be cut, which ensembles do not have."""
    system, engine, _, events = ready

    def open_archive() -> archive.Writer:
        if times.saves <= contents.room:
            return contents.writer()
        # The engine named in the file says what form its carry has, even where another engine continues the run.
        meta = archive_meta(system, engine, times, about, tuple(contents.meta["q_shape"]))
        return archive.enlarged(contents, {**meta, "engine": contents.meta["engine"]}, times.saves, contents.leaves)

    if isinstance(engine, Tiled):
        return Disk(open_archive(), engine.layout, times, engine.rows_per_member, engine.archived_carry)
    sink = Disk(open_archive(), engine.layout, times, False)
    sink.truncate(contents.rows, events)
    return sink


def _set_up(contents: archive.Contents, times: Grid, given: Given, devices: Any) -> Ready:
    """All that a run needs to go on; or an error that says what is missing."""
    path, meta = contents.path, contents.meta
    system, method = given.system, given.method
    system = system_of(contents) if system is None else system
    if system is None:
        made = "this run is not of a model of geomint"
        if meta["origin"] is not None:
            made = f"{meta['origin']:.100} is not the system of this run here"
        raise InputError(f"{path}: {made}; state its system again: gm.resume({str(path)!r}, system=system).")
    check_match(contents, system)
    if contents.sequence == 0:
        none = "holds no checkpoint: the run was stopped before its first. Remove the file and start again."
        raise ArchiveError(f"{path} {none}", path)
    if method is None and not meta.get("complete_name", True):
        held = f"{meta['method']} was given functions (inside=...), which an archive can't hold"
        raise InputError(f"{path}: {held}; give it again: gm.resume(..., method=method).")
    if method is not None and method.name != meta["method"]:
        raise InputError(f"{path} was run with {meta['method']}, not with {method.name}.")
    reductions = None
    if "reduce" in meta:
        of_run = system, tuple(meta["q_shape"]), meta["spread"]
        reductions = reductions_of_archive(path, meta["reduce"], contents.fixed, given.reduce, *of_run)
    engine, carry = restore_engine(contents, system, times, method, devices, reductions)
    events = int(protocols.events(engine.method, carry)) if engine.logs else None
    if events is not None:
        archive.check_events(path, events)
    return Ready(system, engine, carry, events)


def obstacle(contents: archive.Contents) -> str | None:
    """Why gm.resume(path), with nothing else given, would refuse to continue a run; None where it would continue it."""
    try:
        archive.check_writable(contents.path)
        _set_up(contents, Grid(*contents.meta["grid"]), Given(), (None,))
    except GeomintError as error:
        return str(error)
    return None
