"""load, save and resume: runs that outlive their process."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import methods
from ..engines import Clock, choose
from ..engines.grid import Grid, grid
from ..engines.scalar.scalar_engine import ScalarEngine
from ..engines.tiles import Tiled
from ..errors import ArchiveError, GeomintError, InputError
from ..io import archive
from ..io.fingerprint import fingerprint
from ..io.sinks import Disk
from ..system.checks import as_path, flag
from ..system.system import Stated, checked_system
from .inputs import initial_state
from .loop import ALONE
from .processes import Alone, chosen, first
from .reducing import Marked, Reducing, bare
from .reductions import Reduction
from .shared import opened
from .simulate import archive_meta, drive, prepared
from .summary import again
from .trajectory import Checkpoint, Trajectory


def load(path: str | Path, system: Stated | None = None) -> Trajectory:
    """A run from its archive, finished or not. Arrays are memory maps: nothing is read before it is used.

    A run of gm.models knows its system; give `system` for others where velocities or plots of them are wanted.
    """
    path = as_path(path, "path")
    if system is not None:
        checked_system(system)
    contents = archive.read(path)
    if system is not None:
        _check_match(contents, system)
    return Archived(contents, system)


class Archived(Trajectory):
    """A run on disk. Loading it only maps the file. Its system (of gm.models), its checkpoint and its events are made
    when they are first used, since the expression of a model in a file says nothing of the time and memory it takes."""

    def __init__(self, contents: archive.Contents, system: Stated | None):
        self.__dict__.update(archive.trajectory(contents, system).__dict__)
        self._contents = contents
        for name in ("checkpoint", "records") if system is not None else ("system", "checkpoint", "records"):
            del self.__dict__[name]  # so that the properties below are asked

    @functools.cached_property
    def system(self) -> Stated | None:
        return _origin(self._contents)

    @functools.cached_property
    def checkpoint(self) -> Checkpoint | None:
        contents = self._contents
        if not contents.leaves or self.system is None or not contents.meta.get("complete_name", True):
            return None
        return Checkpoint(bare(_template_filled(contents, self.system)[1]), contents.step)

    @property
    def solver(self) -> str | None:
        """The linear solver that was used, where the method needed one and the archive names it."""
        return self._contents.meta.get("solver")

    @functools.cached_property
    def records(self) -> np.ndarray | None:
        return archive.records_of(self._contents, self.checkpoint)


def resume(
    path: str | Path, system: Stated | None = None, t_end: float | None = None, progress: bool = False, method: methods.Method | None = None, mesh: Any = None,
    reduce: Mapping[str, Reduction] | None = None,
) -> Trajectory:  # fmt: skip
    """Continue an archived run from its last checkpoint, to its own t_end or to a later one, bit for bit as if it had
    never stopped. A method that holds functions, such as EnergyStepping(inside=...), must be given again.

    mesh:    for an ensemble, as in gm.ensemble: any devices of any number of processes, whatever the run began with.
    reduce:  for an ensemble that was reduced by functions: the same reductions again, which an archive can't hold. Those of saved
             quantities need not be given.
    """
    path, progress = as_path(path, "path"), flag(progress, "progress")
    if system is not None:
        checked_system(system)
    if method is not None:
        method = methods.as_method(method)
    devices, team = chosen(mesh)
    with team:
        contents = archive.read(path)
        if mesh is not None and not contents.meta["members"]:
            raise InputError(f"{path} holds one trajectory; mesh= shares the members of an ensemble.")
        # All have read it before one of them writes.
        if team.agree("archive read", [contents.sequence, contents.step], first) != [contents.sequence, contents.step]:
            raise ArchiveError(f"{path} is not the same file for all processes.")
        if reduce is not None and "reduce" not in contents.meta:
            raise InputError(f"{path} was run without reduce=; a reduction begins with the run.")
        return _continued(contents, system, t_end, progress, method, reduce, devices, team)


def _continued(
    contents: archive.Contents,
    system: Stated | None,
    t_end: float | None,
    progress: bool,
    method: methods.Method | None,
    reduce: Any,
    devices: Any,
    team: Alone,
) -> Trajectory:
    path, meta = contents.path, contents.meta
    old = Grid(*meta["grid"])
    times = old if t_end is None else grid(old.dt, t_end, old.t0, old.save_every, only_t_end=True)
    if times.steps < contents.step:
        raise InputError(
            f"{path} has already reached t = {old.t0 + contents.step * old.dt:g}, beyond t_end = {times.t_end:g}."
        )
    system, runner, carry, events = _set_up(contents, times, system, method, reduce, devices, team)
    if runner.described.split()[0] != meta["engine"]:
        warnings.warn(
            f"{path} was run by the {meta['engine']} engine, which is not to be had here: {runner.described} goes on, and the last bits may differ from those of an uninterrupted run.",
            stacklevel=3,
        )
    about = {"seed": contents.seed, **{k: contents.meta[k] for k in ("compensated", "members")}}

    def writer() -> archive.Writer:
        if times.saves <= contents.room:
            return contents.writer()
        # The engine of the file says what form its carry has, even where another one goes on.
        meta = {
            **archive_meta(system, runner, times, about, tuple(contents.meta["q_shape"])),
            "engine": contents.meta["engine"],
        }
        return archive.enlarged(contents, meta, times.saves, contents.leaves)

    if isinstance(runner, Tiled):
        plain = not isinstance(runner, Reducing)
        sink = Disk(
            opened(team, writer, runner.start, runner.stop, runner.members, alike=not plain),
            runner.layout,
            times,
            plain,
            runner.whole,
        )
    else:
        sink = Disk(writer(), runner.layout, times, False)
        sink.back_to(contents.rows, events)
    return drive(runner, carry, times, sink, progress, about, start=contents.step, team=team)


def _set_up(
    contents: archive.Contents, times: Grid, system: Stated | None, method: methods.Method | None, reduce: Any,
    devices: Any, team: Alone,
) -> tuple[Stated, Any, Any, int | None]:  # fmt: skip
    """All that a run needs to go on: its system, the engine, the carry and the number of events; or an error that says
    what is missing."""
    path, meta = contents.path, contents.meta
    system = _origin(contents) if system is None else system
    if system is None:
        made = "this run is not of a model of geomint"
        if meta["origin"] is not None:
            made = f"{meta['origin']:.100} is not the system of this run here"
        raise InputError(f"{path}: {made}; state its system again: gm.resume({str(path)!r}, system=system).")
    _check_match(contents, system)
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
        reductions = again(path, meta["reduce"], contents.fixed(), reduce, *of_run)
    runner, carry = _template_filled(contents, system, times, method, devices, reductions, team)
    events = int(runner.method.events(carry)) if runner.logs else None
    if events is not None:
        archive.check_events(path, events)
    return system, runner, carry, events


def obstacle(contents: archive.Contents) -> str | None:
    """Why gm.resume(path), with nothing else given, would refuse to go on with a run; None where it would go on."""
    try:
        archive.check_writable(contents.path)
        _set_up(contents, Grid(*contents.meta["grid"]), None, None, None, (None,), ALONE)
    except GeomintError as error:
        return str(error)
    return None


def _origin(contents: archive.Contents) -> Stated | None:
    """The system of a run of gm.models, made again from its expression; None where that gives another system."""
    if contents.meta["origin"] is None:
        return None
    from ..models import named  # the rooms below know this one, so it can't be imported above

    shape = tuple(contents.meta["q_shape"])
    try:
        system = named(contents.meta["origin"], coordinates=math.prod(shape)).system
        return system if fingerprint(system, shape) == contents.meta["fingerprint"] else None
    except Exception:  # the expression comes from a file: whatever it leads to, it is not this system
        return None


def _check_match(contents: archive.Contents, system: Stated) -> None:
    meta = contents.meta
    if _fingerprint_here(system, meta) == meta["fingerprint"]:
        return
    here = archive._versions()
    differing = [
        f"{name} {meta['versions'][name]} → {here[name]}"
        for name in ("jax", "numpy")
        if meta["versions"].get(name) != here[name]
    ]
    hint = (
        f" The versions differ too ({', '.join(differing)}), which may change the traced program." if differing else ""
    )
    raise ArchiveError(
        f"{contents.path}: the system given is not the one that was run (its energy, constraint, mass, params, symmetries or derivatives by hand differ).{hint}"
    )


def _fingerprint_here(system: Stated, meta: dict[str, Any]) -> str | None:
    """None where the system can't be traced with positions and params of these shapes."""
    try:
        return fingerprint(system, tuple(meta["q_shape"]), meta["spread"])
    except Exception:  # of the user's functions
        return None


def _template_filled(contents: archive.Contents, system: Stated, times: Grid | None = None, method: methods.Method | None = None, devices: Any = (None,), reductions: Any = None, team: Alone = ALONE) -> Any:  # fmt: skip
    """The engine, begun on the first saved state only to learn the structure of the carry, and the archived carry in it."""
    try:
        return _begun(contents, system, times or Grid(*contents.meta["grid"]), method, devices, reductions, team)
    except (GeomintError, MemoryError):
        raise
    except Exception as error:  # of a file whose description fits no run
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise ArchiveError(f"{contents.path}: its run can't be set up again ({why}).", contents.path) from error


def _begun(
    contents: archive.Contents, system: Stated, times: Grid, method: methods.Method | None, devices: Any,
    reductions: Any, team: Alone,
) -> Any:  # fmt: skip
    meta = contents.meta
    clock = Clock.of(times.t0, times.dt)
    held = contents.fixed()
    q, p = (
        jnp.asarray(held[f"start/{name}"] if "reduce" in meta else np.asarray(contents.array(name)[0]))
        for name in ("q", "p")
    )
    method = prepared(method or archive.method_of(contents), system, np.asarray(q), meta["spread"])
    make = choose(meta["engine"])
    if issubclass(make, ScalarEngine):  # the carry on file has that form, whether or not the engine covers the run here too
        method = method.for_straight_code(bool(meta["members"]))
    if not meta["members"]:
        runner = make(method, system, clock, meta["spread"])
        return runner, contents.carry_like(
            runner.begin(initial_state(q, p, times.t0, meta["seed"], meta["compensated"]))[0]
        )
    members = len(q)
    stated = (
        make,
        method,
        system,
        clock,
        meta["spread"],
        members,
        devices,
        meta.get("tile", members),
    )  # without tiles before there were any
    runner = (
        Tiled(*stated) if reductions is None else Reducing(reductions, held["kept"], times.save_every, team, *stated)
    )
    template, _ = runner.begin(initial_state(q, p, times.t0, contents.seed, meta["compensated"], members))
    whole = runner.whole(template)
    if "reduce" in meta and reductions is None:  # to look at, not to go on
        whole = Marked(whole, np.zeros(members, np.int32))
    return runner, contents.carry_like(whole, slice(runner.start, runner.stop))


def save(run: Trajectory, path: str | Path) -> Path:
    """Write a run in memory as an archive."""
    path = as_path(path, "path")
    if run.system is None or run.checkpoint is None:
        raise InputError("this run can't be saved: it came from an archive without its system; copy the file instead.")
    if run.share and run.share[:2] != (0, run.share[2]):
        raise InputError(
            f"this process has the members {run.share[0]} … {run.share[1] - 1} of {run.share[2]} only; gm.ensemble(..., output=...) writes all into one file."
        )
    clock = Clock.of(run.grid.t0, run.grid.dt)
    q = run.q if run.summary is None else run.summary.start[0][:, None]
    shape = q.shape[2:] if run.members else q.shape[1:]
    about = {"seed": run.seed, "compensated": run.compensated, "members": run.members}
    engine = (
        archive.read(run.path).meta["engine"] if run.path and run.path.exists() else run.engine.split()[0]
    )  # it says what form the carry has
    make = choose(engine)
    runner = (
        Tiled(make, run.method, run.system, clock, run.spread, len(q))
        if run.members
        else make(run.method, run.system, clock, run.spread)
    )
    columns = jax.tree.map(lambda x: np.moveaxis(np.asarray(x), 1, 0) if run.members else np.asarray(x), run.columns)
    meta, carry, fixed = {}, run.checkpoint.carry, {} if np.ndim(run.seed) == 0 else {"seeds": run.seed}
    if run.summary is not None:
        columns, meta, carry, fixed = (
            {**columns, **run.summary.rows},
            {"reduce": run.summary.stated},
            Marked(carry, run.summary.failed_at),
            {**fixed, **run.summary.fixed},
        )
    # The whole grid of the run, with room for it: one that was interrupted goes on to its own end.
    solver = {"solver": run.solver} if run.solver else {}  # of a loaded run, whose method has not looked at the system
    meta = {**archive_meta(run.system, runner, run.grid, about, shape), "engine": engine, **solver, **meta}
    writer = archive.create(
        path, meta, jax.tree.map(lambda x: x[0], columns), carry, max(len(run), run.grid.saves), fixed=fixed
    )
    try:
        writer.append_columns(columns, np.asarray(run.t))
        if run.records is not None:
            writer.append_events(np.asarray(run.records))
        writer.checkpoint(carry, run.checkpoint.step, force=True)
    except BaseException:
        writer.abandon()
        raise
    writer.close()
    return Path(path)
