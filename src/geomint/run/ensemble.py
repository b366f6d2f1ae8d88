"""ensemble: many trajectories of one system in one compiled program; the leading axis is the member."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from ..engines import Clock, Xla, choose
from ..engines.grid import Grid, grid
from ..engines.tiles import Tiled
from ..errors import GeomintError, InputError
from ..io import archive
from ..io.frame_files import is_frames
from ..io.sinks import Disk, Memory
from ..methods import Method, protocols
from ..models import Model
from ..numerics.frames import in_one_chunk
from ..numerics.keywords import checked_keywords
from ..system.checks import as_array, as_device_array, shown
from ..system.constraints import measured_at, needs_start
from ..system.index_check import check_indices
from ..system.system import Stated
from .defaults import Call, of_model
from .devices import devices_of
from .drive import archive_meta, drive
from .executors import checked_executor
from .inputs import (
    check_energy,
    check_on_manifold,
    check_overrides,
    initial_state,
    is_traced,
    phase,
    stated_velocity,
    warn_of_lost_digits,
)
from .members import ToArray, with_member_axis
from .prepare import checked_method, checked_settings, prepared, sampled
from .reducing_engine import Reducing
from .reductions import Reduction, checked
from .sharded import Plan, Start, run_sharded
from .trajectory import Trajectory


@checked_keywords
def ensemble(
    system: Stated | Model,
    q0s: Any = None,
    v0s: Any = None,
    *,
    p0s: Any = None,
    params: PyTree = None,
    method: Method | None = None,
    dt: float | None = None,
    t_end: float | None = None,
    t0: float = 0.0,
    save_every: int = 1,
    output: str | Path | None = None,
    progress: bool = False,
    engine: str = "auto",
    compensated: bool = False,
    seed: Any = 0,
    mesh: Any = None,
    executor: Any = None,
    shard: int | None = None,
    reduce: Mapping[str, Reduction] | None = None,
    keep: Iterable[int] | None = None,
) -> Trajectory:
    """As `simulate`, for q0s of shape (members, *q shape); the result's arrays are (members, saved, …).

    An array without the member axis is shared by all members: q0s, or v0s or p0s, where the other one of them has the
    axis, or where params= counts the members. A model in place of the system gives its q0 and v0, shared, and its
    method, dt and t_end, where the call has none.

    params:  replaces the system's params. A leaf whose leading length is the number of members has one value for each
             of them; other leaves are shared. A shared leaf of that length is to be given the member axis, with
             np.broadcast_to. Params of the system that all have the axis are treated as per-member too, with a warning
             where they could also be shared.
    seed:    an integer, into which members fold their number: member 3 of seed 5 has the same random numbers in every
             ensemble. Or one integer for each member, which then has those of gm.simulate with that seed.
    reduce:  {name: gm.Mean(...), gm.Quantiles(...), gm.Histogram(...) or gm.RadialDistribution(...)}: at every save
             the members are reduced to these statistics, run.reduced[name]; their own rows are kept neither in memory
             nor in `output`. A reduction is of a saved quantity by its name ("energy", "q", …), or of a function
             f(q, p) or f(q, p, params) of one member. Members that have failed do not count. The last states are in
             run.checkpoint.
    keep:    members whose own rows are kept as well, such as range(10): run.q is (kept, saved, …), in this order.
    engine:  as for `simulate`; "kernel" runs all members in one kernel of a GPU, and "auto" chooses it where JAX's
             default device is a GPU.
    progress, output: as for `simulate`; one file has all members.
    mesh:    the devices of this process that share the members: a jax.sharding.Mesh, or "all" for all of them. None:
             the default device. No number of the result depends on the mesh.
    executor: distributes the members over processes and machines: any object with the `submit` of concurrent.futures,
             such as a dask.distributed.Client, an MPIPoolExecutor or a ProcessPoolExecutor. The ensemble is cut into
             shards of `shard` members (rounded to whole tiles; None: by cost), each a task with an archive of its own
             in a folder beside `output`, which becomes an index of them. No number depends on the executor, the
             workers, the shards, or on workers that are lost.
    A member that fails keeps its good points and is named by `run.failed_at`; the run stops only when all have failed.
    """
    call = of_model("ensemble", system, q0s, v0s, p0s, method, dt, t_end, t0, save_every)
    workers, settings = (
        Workers(engine, mesh, executor, shard),
        RunSettings(output, progress, compensated, seed, reduce, keep),
    )
    return _ensemble(call, params, grid(call.dt, call.t_end, t0, save_every), workers, settings)


class Workers(NamedTuple):
    """Arguments of `ensemble`: what executes the members."""

    engine: str
    mesh: Any
    executor: Any
    shard: Any


class RunSettings(NamedTuple):
    """Arguments of `ensemble`: what is computed of the members, and where it is written."""

    output: Any
    progress: Any
    compensated: Any
    seed: Any
    reduce: Any
    keep: Any


@in_one_chunk
def _ensemble(call: Call, params: PyTree, times: Grid, workers: Workers, settings: RunSettings) -> Trajectory:
    """`ensemble`, after the defaults of a model."""
    if is_traced(call.system, call.q0, call.v0, call.p0, params):
        raise GeomintError(
            "ensemble can't run inside jax.grad, jax.jit or jax.vmap; there, use jax.vmap over gm.simulate."
        )
    path, progress, compensated = checked_settings(settings.output, settings.progress, settings.compensated)
    if path is not None and is_frames(path):
        raise InputError(
            f"output={path.name!r} is a file of frames, which holds one trajectory: write the ensemble to an archive, "
            f"output='run.h5', and then members with gm.load('run.h5')[0].save({path.name!r})."
        )
    executor, devices = _checked_workers(workers.executor, workers.mesh, workers.shard)
    make = choose(workers.engine, members=True)
    on_device = make.on_device and executor is None and len(devices) == 1
    to_array = functools.partial(as_array, copy=False)  # members are copied tile by tile
    if on_device:
        to_array = functools.partial(as_device_array, device=devices[0])
    start = _checked_start(call, params, times, to_array)
    about = {"seed": _seeds(settings.seed, len(start.q)), "compensated": compensated, "members": True}
    rows_of, reductions = _kept(settings.keep, len(start.q)), None
    if settings.reduce is not None or settings.keep is not None:
        reductions = checked({} if settings.reduce is None else settings.reduce)
    if executor is not None:
        plan = Plan(times, about, workers.engine, reductions, rows_of, workers.shard)
        return run_sharded(start, plan, executor, path, progress)
    runner = _engine(start, make, times, reductions, rows_of, devices)
    return _run(runner, start, times, about, path, progress)


def _checked_workers(executor: Any, mesh: Any, shard: Any) -> tuple[Any, Sequence[Any]]:
    """The executor, and the devices of this process that share the members where there is none."""
    executor, devices = checked_executor(executor), devices_of(mesh)
    if executor is None and shard is not None:
        raise InputError("shard= is for ensemble(..., executor=...), which cuts the members into shards.")
    if executor is not None and mesh is not None:
        raise InputError("give mesh= or executor=, not both: each worker of an executor uses its own device.")
    return executor, devices


def _engine(start: Start, make: type[Xla], times: Grid, reductions: Any, keep: Any, devices: Sequence[Any]) -> Tiled:
    arguments = make, start.method, start.system, Clock.of(times.t0, times.dt), start.spread, len(start.q), devices
    return Tiled(*arguments) if reductions is None else Reducing(reductions, keep, times.save_every, *arguments)


def _run(
    engine: Tiled, start: Start, times: Grid, about: dict[str, Any], path: Path | None, progress: bool
) -> Trajectory:
    """Run the engine into memory or into an archive."""
    system, members, seed = start.system, len(start.q), about["seed"]
    state = initial_state(start.q, start.p, times.t0, seed, about["compensated"], members, start.velocity_guess)
    carry, seen = engine.begin(state)
    check_energy(system, seen, own_params=start.spread == "states and params")
    seen, plain = engine.first_row(seen), engine.rows_per_member
    if path is None:
        sink = Memory(engine.layout, seen, times.saves, members=plain)
        return drive(engine, carry, times, sink, progress, about)
    fixed = {**({} if np.ndim(seed) == 0 else {"seeds": seed}), **engine.fixed_arrays}

    meta = archive_meta(system, engine, times, about, start.q.shape[1:])
    writer = archive.create(path, meta, seen, engine.archived_carry(carry), times.saves, fixed=fixed)
    disk = Disk(writer, engine.layout, times, members=plain, archived_carry=engine.archived_carry)
    disk.first(seen, carry)
    return drive(engine, carry, times, disk, progress, about)


def _seeds(seed: Any, members: int) -> Any:
    """An integer, or one for each member."""
    refusal = InputError(
        f"seed must be an integer of 64 bits, or one integer for each of the {members} members, not {shown(seed)}."
    )
    try:
        seeds = np.asarray(seed)
    except (TypeError, ValueError):
        raise refusal from None
    if seeds.dtype.kind not in "iu" or seeds.shape not in ((), (members,)):
        raise refusal
    return int(seed) if seeds.ndim == 0 else seeds


def _kept(keep: Iterable[int] | None, members: int) -> np.ndarray:
    """The members of keep=, whose own rows are kept, as indices from 0."""
    try:
        kept = np.asarray([] if keep is None else list(keep) if isinstance(keep, Iterable) else keep)
    except (TypeError, ValueError):
        kept = np.zeros((0, 0))
    if kept.ndim != 1 or (
        kept.size and (kept.dtype.kind not in "iu" or kept.min() < -members or kept.max() >= members)
    ):
        raise InputError(f"keep must list members by their numbers, 0 to {members - 1}, not {shown(keep)}.")
    return kept.astype(np.int64) % members


def _with_lengths(system: Stated, q: Any, p: Any, spread: str, t0: float) -> Stated:
    """The system, with lengths that are not stated from the first member, after a check of all members against the
    constraint."""
    measured = needs_start(system)
    system = measured_at(system, np.asarray(q[0])) if measured else system
    try:
        check_on_manifold(system, q, p, spread, t0)
    except InputError as error:
        if not measured:
            raise
        raise InputError(f"{error} Distances(pairs) without lengths has those of member 0 for all members.") from None
    return system


def _checked_start(call: Call, params: PyTree, times: Grid, to_array: ToArray) -> Start:
    """Check what the user stated, and let the method find the structure of the system."""
    method = checked_method(call.system, call.method)
    system, spread, q0s, v0s, p0s = with_member_axis(call, params, to_array)
    own_params = spread == "states and params"
    q, p = phase(system.at_time(times.t0), q0s, v0s, p0s, members=True, own_params=own_params, to_array=to_array)
    system = _with_lengths(system, q, p, spread, times.t0)
    sample = sampled(len(q))
    for i, one_q, one_p in zip(sample, *(np.asarray(x[np.array(sample)]) for x in (q, p)), strict=True):
        check_indices(system.member(i) if own_params else system, one_q, one_p)
    method = prepared(method, system.at_time(times.t0), q, spread)
    one = system if spread == "states" else system.member(0)
    warn_of_lost_digits(one, q.shape[1:])
    protocols.warn(method, one, q[0], times.dt)
    protocols.check_start(method, one, q, p, members=True)
    check_overrides(one, q[0], times.t0)
    return Start(method, system, spread, q, p, stated_velocity(system, "v0s", v0s, to_array))
