"""simulate: one trajectory, from what the user wrote to a Trajectory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..engines import Clock, Layout, begin, choose
from ..engines.grid import Grid, grid
from ..engines.tiles import Engine, Tiled
from ..errors import GeomintError, InputError, Interrupted, ProcessLost, RunStopped
from ..io import archive
from ..io.fingerprint import fingerprint
from ..io.sinks import Disk, Memory, check_memory
from ..methods import Method, State, as_method, protocols
from ..numerics.compensated import value
from ..numerics.compilation import warn_of_outer_jit
from ..system.checks import as_path, flag
from ..system.index_check import check_indices
from ..system.lagrangian import LagrangianMechanics, derive
from ..system.mechanics import Mechanics
from ..system.system import Stated, System, checked_system
from .gradients import check_way, moved
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
from .instability import Extremes, warn_of_instability
from .loop import AGREED, ALONE, Failure, Sink, run_to_end
from .processes import Alone
from .reducing import Reducing, bare
from .summary import taken_from
from .trajectory import Checkpoint, Trajectory

SAMPLE = 6  # members of an ensemble that a method looks at before the run
ROUNDS = 6  # in which the sample may double, where other members do not fit


def simulate(
    system: Stated, q0: Any, v0: Any = None, *, p0: Any = None, method: Method, dt: float, t_end: float, t0: float = 0.0,
    save_every: int = 1, output: str | Path | None = None, progress: bool = False, engine: str = "auto",
    compensated: bool = False, seed: int = 0, gradient: str = "auto",
) -> Trajectory:  # fmt: skip
    """Move a system from (q0, v0) at t0 to t_end with a method, in steps of dt, keeping every `save_every`-th state.

    v0 or p0:     the velocity or the momentum at the start; at rest with neither.
    dt, t_end:    t_end − t0 is a whole number of steps; for event-driven methods dt is the interval between looks.
    output:       stream to this file, with checkpoints; memory stays flat however long the run.
    compensated:  sum the updates of q and p with compensation for rounding.
    engine:       "xla", the reference; "native", machine code for small systems, several times faster; "kernel", for ensembles on a GPU;
                  "auto" takes the faster one. Where an engine does not cover an operation or a size, it steps aside, and run.engine
                  says why.
    seed:         of stochastic methods.
    gradient:     how jax.grad goes back through the run: "backwards", by steps of −dt, for symmetric methods: nothing is stored, and
                  rounding decides how near the way back is to the way there; or "stored", the state at every save, for all.
                  "auto" runs symmetric methods backwards where no force does work.

    Inside jax.grad, jax.jit or jax.vmap the result holds traced arrays; q0, v0, p0, mass and params may be differentiated. No error can
    leave there: what a run saves after it has failed is not finite, and its gradients are NaN.
    """
    check_way(gradient)
    seed = check_seed(seed)
    output, progress, compensated = checked_settings(output, progress, compensated)
    method, times = _checked(system, method), grid(dt, t_end, t0, save_every)
    q, p = phase(system, q0, v0, p0)
    near = stated_velocity(system, "v0", v0)
    traced = is_traced(system, q, p, method)
    if not traced:
        check_on_manifold(system, q, p, "one")
    check_indices(system, q, p)
    method = prepared(method, system, q, "one")
    if traced:
        state = initial_state(q, p, times.t0, seed, compensated, near=near)
        return _traced(system, method, times, state, seed, compensated, output, gradient)
    warn_of_lost_digits(system, q.shape)
    protocols.warn(method, system, q, times.dt)
    protocols.check_start(method, system, q, p)
    if isinstance(system, System) and system.overrides:
        check_overrides(system, q)
    clock = Clock.of(times.t0, times.dt)
    runner = choose(engine)(method, system, clock)
    state = initial_state(q, p, times.t0, seed, compensated, near=near)
    carry, seen = runner.begin(state)
    check_energy(system, seen)
    about = {"seed": seed, "compensated": compensated, "members": False}
    if output is None:
        sink = Memory(runner.layout, seen, times.saves, members=False)
        return drive(runner, carry, times, sink, progress, about)
    writer = archive.create(output, archive_meta(system, runner, times, about, q.shape), seen, carry, times.saves)
    disk = Disk(writer, runner.layout, times, members=False)
    disk.first(seen, carry)
    return drive(runner, carry, times, disk, progress, about)


def checked_settings(output: Any, progress: Any, compensated: Any) -> tuple[Path | None, bool, bool]:
    """What simulate and ensemble take besides the system and the times."""
    path = None if output is None else as_path(output, "output")
    return path, flag(progress, "progress"), flag(compensated, "compensated")


def _checked(system: Any, method: Any) -> Method:
    checked_system(system)
    method = as_method(method)
    method.check(system)
    return method


def prepared(method: Method, system: Stated, q: Any, spread: str) -> Method:
    """The method after its look at the system; for an ensemble, at a sample of its members that stands for all of
    them."""
    if spread == "one":
        return protocols.prepare(method, [(system, q)])
    own_params = spread == "states and params"
    sample, others = _spread_out(np.arange(len(q)), SAMPLE), None
    for _ in range(ROUNDS):
        starts = [(system.member(i) if own_params else system, q[i]) for i in sample]
        try:
            ready = protocols.prepare(method, starts)
        except InputError as error:
            if others is None:
                raise
            raise InputError(f"{error} Found at member {others[0]} of the ensemble.") from None
        others = np.flatnonzero(protocols.misfits(ready, system, q, own_params)) if len(sample) < len(q) else sample[:0]
        if not len(others):
            return ready
        sample = np.union1d(sample, _spread_out(others, len(sample)))
    raise InputError(
        f"{method.name}: the members of this ensemble differ in the structure of their Hessians, which a sample of "
        "them does not cover; give the method solver='dense' or solver='matrix-free'."
    )


def _spread_out(members: np.ndarray, count: int) -> np.ndarray:
    """At most `count` of them, from the first to the last."""
    return members[np.unique(np.linspace(0, len(members) - 1, count).round().astype(int))]


def sampled(members: int) -> list[int]:
    """Members of an ensemble that are looked at for all of them."""
    return _spread_out(np.arange(members), SAMPLE).tolist()


def archive_meta(
    system: Stated, runner: Engine, times: Grid, about: dict[str, Any], q_shape: tuple[int, ...]
) -> dict[str, Any]:
    """What an archive says of itself."""
    return {
        **about, "seed": about["seed"] if np.ndim(about["seed"]) == 0 else None, "method": runner.method.name, "complete_name": runner.method.complete_name, "grid": [times.t0, times.dt, times.steps, times.save_every], "engine": runner.described.split()[0],
        "origin": system.origin, "fingerprint": fingerprint(system, q_shape, runner.spread), "q_shape": list(q_shape), "spread": runner.spread,
        **({"tile": runner.tile} if isinstance(runner, Tiled) else {}), **({"reduce": runner.stated} if isinstance(runner, Reducing) else {}),
        **({"solver": solver} if (solver := protocols.linear_solver(runner.method)) else {}),
    }  # fmt: skip


def drive(
    runner: Engine,
    carry: Any,
    times: Grid,
    sink: Any,
    progress: bool,
    about: dict[str, Any],
    start: int = 0,
    team: Alone = ALONE,
) -> Trajectory:
    """Run to the end, or as far as it goes; whatever happens, what was saved is in the Trajectory."""
    try:
        return _driven(runner, carry, times, sink, progress, about, start, team)
    finally:
        sink.close()  # whatever went wrong: an archive that stays open can't be resumed


def _driven(
    runner: Engine, carry: Any, times: Grid, sink: Any, progress: bool, about: dict[str, Any], start: int, team: Alone
) -> Trajectory:
    last: dict[str, Any] = {"carry": carry, "step": start}
    extremes = Extremes(runner)
    tap = _Tap(sink, last, extremes)
    failure, interrupted = None, False
    try:
        carry, step, failure = run_to_end(runner, carry, times, tap, start, progress, team)
    except KeyboardInterrupt as stop:
        if team.count > 1 and AGREED not in stop.args:
            raise
        carry, step, interrupted = last["carry"], last["step"], True
        # It may have come between the rows or events of a chunk and its carry: what belongs to no carry must not count.
        sink.back_to(step // times.save_every + 1, int(protocols.events(runner.method, carry)) if runner.logs else None)
    except ProcessLost as lost:
        raise _lost(lost, sink, times) from None
    carry = runner.whole(carry)
    try:
        run = _collect(runner, times, sink, carry, step, about)
    except ProcessLost as lost:
        raise _lost(lost, sink, times) from None
    protocols.review(runner.method, bare(carry))
    if interrupted:
        raise Interrupted(
            f"interrupted at step {step}, t = {times.t0 + step * times.dt:g}.",
            "What was saved is in the exception's .run" + _how_to_resume(run),
            run=run,
        )
    if failure is not None:
        raise _stopped(runner, times, run, failure)
    warn_of_instability(run, extremes)
    return run


class _Tap:
    """Remembers the newest carry on its way to the sink, for Ctrl-C, and the extremes of the energy."""

    def __init__(self, sink: Sink, last: dict[str, Any], extremes: Extremes):
        self.note, self.sink, self.last, self.extremes = sink.note, sink, last, extremes

    def append(self, rows: np.ndarray) -> None:
        self.extremes.look(rows)
        self.sink.append(rows)

    def checkpoint(self, carry: Any, step: int) -> None:
        self.last.update(carry=carry, step=step)
        self.sink.checkpoint(carry, step)


def _lost(lost: ProcessLost, sink: Any, times: Grid) -> ProcessLost:
    """The same error, with what is left and how to go on."""
    if not isinstance(sink, Disk):
        return ProcessLost(
            lost.reason, "The run was in memory only; with output= it could be resumed.", process=lost.process
        )
    path, step = sink.writer.path, archive.read(sink.writer.path).step
    kept = f"{path} is whole up to step {step}, t = {times.t0 + step * times.dt:g}: gm.resume({str(path)!r}, ...) continues it, on any number of processes."
    return ProcessLost(lost.reason, kept, process=lost.process, path=path)


def _collect(runner: Engine, times: Grid, sink: Any, carry: Any, step: int, about: dict[str, Any]) -> Trajectory:
    if isinstance(sink, Disk):
        sink.writer.checkpoint(carry, step, force=True)
        sink.writer.close()
        held = archive.read(sink.writer.path)
        everybody = jax.tree.unflatten(jax.tree.structure(carry), held.leaves)  # of all processes
        run = archive.trajectory(held, runner.system, Checkpoint(bare(everybody), step))
        run.method, run.engine = runner.method, runner.described  # with what it found out before the run
        return run
    columns, summary = sink.columns, None
    records = sink.events if runner.logs else None
    system, share = (
        (runner.own_system, (runner.start, runner.stop, runner.members))
        if isinstance(runner, Tiled)
        else (runner.system, None)
    )
    if isinstance(runner, Reducing):
        system, summary = runner.system, taken_from(columns, carry.failed, runner.stated, runner.fixed)
        columns = jax.tree.map(lambda x: np.moveaxis(x, 0, 1), columns)
    return Trajectory(
        system, runner.method, times, times.times(0, sink.count), columns, spread=runner.spread, engine=runner.described,
        checkpoint=Checkpoint(bare(carry), step), records=records, share=share, summary=summary, **about,
    )  # fmt: skip


def _how_to_resume(run: Trajectory) -> str:
    return f", and gm.resume({str(run.path)!r}, ...) continues it." if run.path else "."


def _stopped(runner: Engine, times: Grid, run: Trajectory, failure: Failure) -> RunStopped:
    """The error that says what, when, why and what to try."""
    when = f"at step {failure.step}, t = {times.t0 + failure.step * times.dt:.12g}"
    good = runner.layout.unpack(failure.good)
    if failure.status:
        what = protocols.failures(runner.method).get(failure.status, f"status {failure.status}")
        more = ""
        if runner.spread == "one":
            there = runner.layout.unpack(failure.bad)["q"]
            there = there if np.all(np.isfinite(there)) else good["q"]
            more = protocols.explain(runner.method, failure.status, derive(runner.system, there.shape), there, times.dt)
        message = f"{runner.method.name} stopped {when}: {what}{more} (dt = {times.dt:g})."
    else:
        message = f"{runner.method.name} turned non-finite {when}. {_why(runner, times, good, runner.layout.unpack(failure.bad))}"
    kept = f"The run up to t = {float(run.t[-1]):g} ({len(run)} saved points) is kept in the exception's .run"
    return RunStopped(
        message,
        kept + (f" and in {run.path}." if run.path else "."),
        run=run,
        step=failure.step,
        time=times.t0 + failure.step * times.dt,
        q=good.get("q"),
        p=good.get("p"),
    )


def _why(runner: Engine, times: Grid, good: dict[str, Any], bad: dict[str, Any]) -> str:
    """A look at the last good state and at the first bad one: is the force singular, has the energy no value, or did the step outgrow its
    stability limit?"""
    if runner.spread == "one" and all(
        np.all(np.abs(bad[name]) < 1e50) for name in ("q", "p")
    ):  # and not on the way to infinity
        mech = derive(runner.system, bad["q"].shape)
        if isinstance(mech, LagrangianMechanics) and not np.all(np.isfinite(mech.velocity_at(bad["q"], bad["p"]))):
            return ("No velocity v with ∂L/∂v(q, v) = p was found there, although q and p are finite: "
                    "p has left the range of ∂L/∂v, or ∂²L/∂v² is singular. Try a smaller dt.")  # fmt: skip
        return "The energy there is not finite, although q and p are: the motion has left the region where potential has a value (log of a negative number)."
    mech = derive(runner.system, good["q"].shape) if runner.spread == "one" else None
    if isinstance(mech, Mechanics) and not np.all(np.isfinite(mech.force(jnp.asarray(good["q"])))):
        return "The force at the last good state is not finite: the gradient of potential has a singularity there (sqrt or a norm at zero, a collision)."
    return f"The state grew beyond all bounds: the step dt = {times.dt:g} is probably too large for the fastest motion (try dt = {times.dt / 4:g}, or an implicit method), or the potential has no lower bound."


def _traced(
    system: Stated, method: Method, times: Grid, state: State, seed: int, compensated: bool, output: Any, gradient: str
) -> Trajectory:
    """The same run with its lengths known at compile time, so that gradients run through it."""
    if output is not None:
        raise GeomintError("output= can't be used inside jax.grad, jax.jit or jax.vmap: the run stays in memory there.")
    warn_of_outer_jit()
    check_memory(times.saves, 2 * value(state.q).size + 1)
    clock = Clock.of(times.t0, times.dt)
    carry, seen = begin(method, system, state, clock)
    carry, rows = moved(gradient, method, system, carry, clock, times)
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
    """NaN for all numbers from the first save on whose status is not 0. Inside a transformation no error can be raised, and a callback
    that warns would cost every call 50 µs and forbid jax.export. By a product, since a derivative is to be NaN as well."""
    if "status" not in columns:
        return columns
    worth = jnp.where(columns["status"] == 0, 1.0, jnp.nan)
    mark = lambda x: (
        x * worth.reshape(worth.shape + (1,) * (x.ndim - 1)).astype(x.dtype)
        if jnp.issubdtype(x.dtype, jnp.inexact)
        else x
    )
    return {name: x if name == "status" else jax.tree.map(mark, x) for name, x in columns.items()}
