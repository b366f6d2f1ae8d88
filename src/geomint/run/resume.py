"""load, save and resume: runs that outlive their process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import methods
from ..engines import Clock, Layout, choose
from ..errors import ArchiveError, InputError
from ..system import Stated
from . import archive
from .fingerprint import fingerprint
from .grid import Grid, grid
from .inputs import initial_state
from .simulate import archive_meta, drive, prepared
from .sinks import Disk
from .trajectory import Checkpoint, Trajectory


def load(path: str | Path, system: Stated | None = None) -> Trajectory:
    """A run from its archive, finished or not. Arrays are memory maps: nothing is read before it is used.

    A run of gm.models knows its system; give `system` for others where velocities or plots of them are wanted.
    """
    contents = archive.read(path)
    if system is not None:
        _check_match(contents, system)
    else:
        system = _origin(contents)
    if not contents.leaves or system is None or not contents.meta.get("complete_name", True):
        return archive.trajectory(contents, system)
    return archive.trajectory(contents, system, Checkpoint(_template_filled(contents, system)[1], contents.step))


def resume(path: str | Path, system: Stated | None = None, t_end: float | None = None, progress: bool = False, method: methods.Method | None = None) -> Trajectory:
    """Continue an archived run from its last checkpoint, to its own t_end or to a later one, bit for bit as if it had
    never stopped. A method that holds functions, such as EnergyStepping(inside=...), must be given again."""
    contents = archive.read(path)
    system = _origin(contents) if system is None else system
    if system is None:
        raise InputError(f"{path}: this run is not of a model of geomint; state its system again: gm.resume({str(path)!r}, system=system).")
    _check_match(contents, system)
    if contents.sequence == 0:
        raise ArchiveError(f"{path} holds no checkpoint: the run was stopped before its first. Remove the file and start again.")
    old = Grid(*contents.meta["grid"])
    times = old if t_end is None else grid(old.dt, t_end, old.t0, old.save_every)
    if times.steps < contents.step:
        raise InputError(f"{path} has already reached t = {old.t0 + contents.step * old.dt:g}, beyond t_end = {t_end:g}.")
    if method is None and not contents.meta.get("complete_name", True):
        raise InputError(f"{path}: {contents.meta['method']} was given functions (inside=...), which an archive can't hold; give it again: gm.resume(..., method=method).")
    if method is not None and method.name != contents.meta["method"]:
        raise InputError(f"{path} was run with {contents.meta['method']}, not with {method.name}.")
    runner, carry = _template_filled(contents, system, times, method)
    if runner.logs:
        archive.truncate_events(contents.path, int(runner.method.events(carry)))
    about = {k: contents.meta[k] for k in ("seed", "compensated", "members")}
    if times.saves > contents.room:
        meta = archive_meta(system, runner, times, about, tuple(contents.meta["q_shape"]))
        writer = archive.enlarged(contents, meta, times.saves, carry)
    else:
        writer = contents.writer()
    sink = Disk(writer, runner.layout, times, about["members"])
    return drive(runner, carry, times, sink, progress, about, start=contents.step)


def _origin(contents: archive.Contents) -> Stated | None:
    """The system of a run of gm.models, made again from its expression."""
    if contents.meta["origin"] is None:
        return None
    from ..models import named  # the rooms below know this one, so it can't be imported above

    system = named(contents.meta["origin"]).system
    return system if fingerprint(system, tuple(contents.meta["q_shape"])) == contents.meta["fingerprint"] else None


def _check_match(contents: archive.Contents, system: Stated) -> None:
    meta = contents.meta
    if fingerprint(system, tuple(meta["q_shape"]), meta["spread"]) == meta["fingerprint"]:
        return
    here = archive._versions()
    differing = [f"{name} {meta['versions'][name]} → {here[name]}" for name in ("jax", "numpy") if meta["versions"].get(name) != here[name]]
    hint = f" The versions differ too ({', '.join(differing)}), which may change the traced program." if differing else ""
    raise ArchiveError(f"{contents.path}: the system given is not the one that was run (its energy, constraint, mass, params or symmetries differ).{hint}")


def _template_filled(contents: archive.Contents, system: Stated, times: Grid | None = None, method: methods.Method | None = None) -> Any:
    """The engine, begun on the first saved state only to learn the structure of the carry, and the archived carry in it."""
    meta = contents.meta
    times = times or Grid(*meta["grid"])
    clock = Clock.of(times.t0, times.dt)
    q, p = (jnp.asarray(np.asarray(contents.array(name)[0])) for name in ("q", "p"))
    method = prepared(method or methods.named(meta["method"]), system, np.asarray(q), meta["spread"])
    runner = choose(meta["engine"])(method, system, clock, meta["spread"])
    state = initial_state(q, p, times.t0, meta["seed"], meta["compensated"])
    if meta["members"]:
        state = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(q), *x.shape)) if x.shape[:1] != (len(q),) else x, state)
    template, seen = runner.begin(state)
    assert Layout.of(seen, meta["members"]) == runner.layout
    return runner, contents.carry_like(template)


def save(run: Trajectory, path: str | Path) -> Path:
    """Write a run in memory as an archive."""
    if run.system is None or run.checkpoint is None:
        raise InputError("this run can't be saved: it came from an archive without its system; copy the file instead.")
    clock = Clock.of(run.grid.t0, run.grid.dt)
    shape = run.q.shape[2:] if run.members else run.q.shape[1:]
    about = {"seed": run.seed, "compensated": run.compensated, "members": run.members}
    runner = choose(run.engine.split()[0])(run.method, run.system, clock, run.spread)
    columns = jax.tree.map(lambda x: np.moveaxis(np.asarray(x), 1, 0) if run.members else np.asarray(x), run.columns)
    done = Grid(run.grid.t0, run.grid.dt, (len(run) - 1) * run.grid.save_every, run.grid.save_every)
    writer = archive.create(path, archive_meta(run.system, runner, done, about, shape), jax.tree.map(lambda x: x[0], columns), run.checkpoint.carry, len(run))
    writer.append_columns(columns, np.asarray(run.t))
    if run.records is not None:
        writer.append_events(np.asarray(run.records))
    writer.checkpoint(run.checkpoint.carry, run.checkpoint.step, force=True)
    writer.close()
    return Path(path)
