"""simulate: one trajectory, from what the user states to a Trajectory."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ..engines import Clock, Layout, begin, choose
from ..engines.grid import Grid, grid
from ..errors import GeomintError
from ..io import archive
from ..io.frame_files import archive_of, is_frames, new_frames, topology_for
from ..io.sinks import Disk, DiskWithFrames, Memory, check_memory
from ..methods import Method, State, protocols
from ..models import Model
from ..numerics.compensated import value
from ..numerics.compilation import warn_of_outer_jit
from ..numerics.frames import in_one_chunk
from ..numerics.keywords import checked_keywords
from ..system.constraints import measured_at
from ..system.index_check import check_indices
from ..system.system import Stated
from .defaults import of_model
from .drive import archive_meta, drive
from .gradients import checked_gradient, integrate_traced
from .inputs import (
    check_energy,
    check_on_manifold,
    check_overrides,
    check_seed,
    initial_state,
    is_traced,
    phase,
    stated_velocity,
    warn_of_lost_digits,
)
from .prepare import checked_method, checked_settings, prepared
from .trajectory import Checkpoint, Trajectory
from .until import check_first, stopping


@checked_keywords
def simulate(
    system: Stated | Model,
    q0: Any = None,
    v0: Any = None,
    *,
    p0: Any = None,
    method: Method | None = None,
    dt: float | None = None,
    t_end: float | None = None,
    t0: float = 0.0,
    save_every: int = 1,
    output: str | Path | None = None,
    progress: bool = False,
    engine: str = "auto",
    compensated: bool = False,
    seed: int = 0,
    gradient: str = "auto",
    until: Callable[..., Any] | None = None,
) -> Trajectory:
    """Integrate a system from (q0, v0) at t0 to t_end with a method in steps of dt; keep every `save_every`-th state.

    system:       a System or a LagrangianSystem; or a Model (gm.models.kepler(), …), which has q0, v0, method, dt and
                  t_end: gm.simulate(model) runs it, and what is given here takes the place of the model's.
    v0 or p0:     the velocity or the momentum at the start; at rest with neither.
    dt, t_end:    t_end − t0 is a whole number of steps. For event-driven methods dt is the interval between saves.
    output:       write the run to this file, with checkpoints; memory stays constant, whatever the length of the run.
                  A name in .xyz, .pdb, .h5md (of a system with atoms=gm.md.Atoms(...)) or .vtkhdf (elastic bodies, or
                  particles as points) is written for other programs, with the archive beside it (x.xyz.h5).
    compensated:  sum the updates of q and p with compensation for rounding.
    engine:       "xla", the reference; "native", machine code for small systems, several times faster; "kernel", for
                  ensembles on a GPU; "auto", the one with which the run is likely to end first, compiling included.
                  Where an engine does not cover an operation or a size, XLA runs instead, and run.engine says why.
    seed:         of stochastic methods.
    gradient:     how jax.grad goes back through the run. "backwards": by steps of −dt, for symmetric methods; nothing
                  is stored, and rounding limits how well the reversed run follows the run. "stored": from the state
                  at every save, for all methods. "auto": backwards for symmetric methods where no force does work.
    until:        f(q, p, t): the run, in memory, ends where the sign of f changes first, at the latest at t_end. The
                  last point is the state there, by a shorter step of the method, and run.stopped_at its time.

    Inside jax.grad, jax.jit or jax.vmap the result has traced arrays, and q0, v0, p0, mass and params may be
    differentiated. No error can be raised there: saved values after a failure are not finite, and gradients are NaN.
    """
    call = of_model("simulate", system, q0, v0, p0, method, dt, t_end, t0, save_every)
    seed, gradient = check_seed(seed), checked_gradient(gradient)
    path, progress, compensated = checked_settings(output, progress, compensated)
    method, times = checked_method(call.system, call.method), grid(call.dt, call.t_end, t0, save_every)
    q, p = phase(call.system.at_time(times.t0), call.q0, call.v0, p0)
    stated = measured_at(call.system, q)
    velocity = stated_velocity(stated, "v0", call.v0)
    traced = is_traced(stated, q, p, method)
    if not traced:
        check_on_manifold(stated, q, p, "one", times.t0)
    check_indices(stated, q, p)
    method = prepared(method, stated.at_time(times.t0), q, "one")
    method = stopping(method, until, traced, path)
    state = initial_state(q, p, times.t0, seed, compensated, velocity_guess=velocity)
    if traced:
        return _traced(stated, method, times, state, seed, compensated, path, gradient)
    _check_start(method, stated, q, p, times)
    return _run(stated, method, times, state, {"seed": seed, "compensated": compensated}, path, progress, engine)


def _check_start(method: Method, stated: Stated, q: Any, p: Any, times: Grid) -> None:
    """Warnings and errors on the system, the method and its step that need the numbers of the start."""
    warn_of_lost_digits(stated, q.shape)
    protocols.warn(method, stated.at_time(times.t0), q, times.dt)
    protocols.check_start(method, stated, q, p)
    check_first(method, stated, q, p, times.t0)
    check_overrides(stated, q, times.t0)


@in_one_chunk
def _run(
    system: Stated,
    method: Method,
    times: Grid,
    state: State,
    about: dict[str, Any],
    path: Path | None,
    progress: bool,
    engine: str,
) -> Trajectory:
    """Choose the engine, and run it into memory or into an archive."""
    topology = None
    if path is not None and is_frames(path):
        topology = topology_for(path, system, value(state.q).shape, f"output={path.name!r}")
    steps = math.inf if method.traits.event_driven else times.steps
    runner = choose(engine)(method, system, Clock.of(times.t0, times.dt), run_steps=steps)
    carry, seen = runner.begin(state)
    check_energy(system, seen)
    about = {**about, "members": False}
    if path is None:
        sink = Memory(runner.layout, seen, times.saves, members=False)
        return drive(runner, carry, times, sink, progress, about)
    shape = value(state.q).shape
    meta = archive_meta(system, runner, times, about, shape)
    if topology is not None:
        meta["frames"] = path.suffix.lower()
    writer = archive.create(archive_of(path), meta, seen, runner.archived_carry(carry), times.saves)
    arguments = writer, runner.layout, times, False, runner.archived_carry
    if topology is None:
        disk = Disk(*arguments)
    else:
        try:
            disk = DiskWithFrames(new_frames(path, topology), topology, *arguments)
        except BaseException:
            writer.abandon()
            raise
    disk.first(seen, carry)
    return drive(runner, carry, times, disk, progress, about)


def _traced(
    system: Stated, method: Method, times: Grid, state: State, seed: int, compensated: bool, output: Any, gradient: str
) -> Trajectory:
    """The run inside a JAX transformation: one compiled program that can be differentiated, without the host loop."""
    if getattr(system, "auxiliary", None) is not None:
        raise GeomintError(
            "systems with neighbour lists can't run inside jax.grad, jax.jit or jax.vmap; leave System(auxiliary=...) "
            "out there, which compares all pairs."
        )
    if output is not None:
        raise GeomintError("output= can't be used inside jax.grad, jax.jit or jax.vmap: the run stays in memory there.")
    warn_of_outer_jit()
    check_memory(times.saves, 2 * value(state.q).size + 1)
    clock = Clock.of(times.t0, times.dt)
    carry, seen = begin(method, system, state, clock)
    carry, rows = integrate_traced(gradient, method, system, carry, clock, times)
    columns = jax.tree.map(
        lambda first, rest: jnp.concatenate([first[None].astype(rest.dtype), rest]), seen, Layout.of(seen).unpack(rows)
    )
    return Trajectory(
        system,
        method,
        times,
        jnp.asarray(times.times()),
        _failures_marked(columns),
        seed=seed,
        compensated=compensated,
        checkpoint=Checkpoint(carry, times.steps),
    )


def _failures_marked(columns: dict[str, Any]) -> dict[str, Any]:
    """NaN for all numbers at saves whose status is not 0. Inside a transformation no error can be raised, and a
    callback that warns would cost 50 µs in every call and prevent jax.export. The numbers are multiplied by NaN, not
    replaced, so that derivatives become NaN as well."""
    if "status" not in columns:
        return columns
    factor = jnp.where(columns["status"] == 0, 1.0, jnp.nan)

    def mark(x: Any) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return x
        return x * factor.reshape(factor.shape + (1,) * (x.ndim - 1)).astype(x.dtype)

    return {name: x if name == "status" else jax.tree.map(mark, x) for name, x in columns.items()}
