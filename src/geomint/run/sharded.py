"""ensemble(..., executor=E): the client's part of a sharded run, from the index to the result; and its continuation.

1. The index is written: the initial states of all members, and what describes the run (io/index.py).
2. Every shard is a task (shards.py), which runs into its own archive. executors.py submits them and repeats lost ones.
3. At the end the index is written again, with virtual datasets, and the result reads the shards (sharded_run.py).

Ctrl-C, a lost executor and an error in a task leave the checkpoints of all shards; gm.resume goes on from there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import jax
import numpy as np

from ..engines import Clock, choose
from ..engines.grid import Grid
from ..engines.tiles import Tiled
from ..errors import ArchiveError, GeomintError, InputError, Interrupted, ProcessLost, RunStopped
from ..io.index import STOP, Index, ShardPlace, create_index, open_shard, rewrite_index, with_rows
from ..io.layout import flat
from ..io.reader import reached
from ..io.sharded_arrays import OpenShards
from ..io.sinks import check_memory
from ..methods import Method
from ..system.checks import whole
from ..system.system import Stated
from .drive import archive_meta
from .executors import InThisProcess, TaskFailed, Tasks, run_tasks, worker_count
from .failures import kept_in, run_stopped
from .loop import Failure, run_to_end
from .reductions import Reductions
from .sharded_run import ShardedRun, bad_rows
from .shards import Job, ShardBusy, ShardDone, begin_shard, run_shard, shard_engine, shard_size
from .summary import describe_reductions, fixed_datasets
from .trajectory import Trajectory
from .workers import pickled

STOP_SECONDS = 30.0  # that tasks have to write a checkpoint and end
SEARCHED = 8  # shards in which the step of a failure is looked for


class Start(NamedTuple):
    """What the user stated, checked."""

    method: Method  # after it has found the structure of the system
    system: Stated
    spread: str  # "states", or "states and params" where params differ between members
    q: Any
    p: Any
    velocity_guess: Any  # velocities near those of p, where the user gave them


class Plan(NamedTuple):
    """How an ensemble is to be run."""

    times: Grid
    about: dict[str, Any]  # seed, compensated, members
    engine: str
    reductions: Reductions | None
    kept: np.ndarray
    shard: int | None


def run_sharded(start: Start, plan: Plan, executor: Any, path: Path | None, progress: bool) -> Trajectory:
    """Run an ensemble on an executor; into a temporary folder, and from there into memory, where there is no path."""
    if path is not None:
        index, job = _begin(start, plan, executor, path.absolute())
        try:
            return run_index(index, job, executor, progress)
        except InputError:
            if not any(reached(place.path) for place in index.shards):  # the corrected call finds its output free
                index.path.unlink(missing_ok=True)
                shutil.rmtree(index.folder, ignore_errors=True)
            raise
    saved = len(plan.kept) if plan.reductions is not None else len(start.q)
    check_memory(plan.times.saves, saved * (2 * int(np.prod(start.q.shape[1:])) + 1))
    folder = Path(tempfile.mkdtemp(prefix="geomint-"))
    try:
        index, job = _begin(start, plan, executor, folder / "run.h5")
        try:
            return in_memory(run_index(index, job, executor, progress))
        except RunStopped as stopped:
            run, of = in_memory(stopped.run), stopped
            raise RunStopped(of.reason, kept_in(run), run=run, step=of.step, time=of.time, q=of.q, p=of.p) from None
        except (ProcessLost, Interrupted) as error:
            reason = f"{error.reason} The run had no output=; with one it could be resumed."
            raise type(error)(reason) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _begin(start: Start, plan: Plan, executor: Any, path: Path) -> tuple[Index, Job]:
    """Write the index."""
    times, members, shape = plan.times, len(start.q), tuple(start.q.shape[1:])
    size = None if plan.shard is None else whole(plan.shard, "shard", least=1)
    clock, make = Clock.of(times.t0, times.dt), choose(plan.engine, members=True)
    engine = Tiled(make, start.method, start.system, clock, start.spread, members)
    meta = archive_meta(start.system, engine, times, plan.about, shape)
    states = np.asarray(start.q), np.asarray(start.p)
    fixed: dict[str, Any] = {"start/q": states[0], "start/p": states[1]}
    if start.velocity_guess is not None:
        fixed["start/velocity"] = np.broadcast_to(np.asarray(start.velocity_guess), states[0].shape)
    if np.ndim(plan.about["seed"]):
        fixed["seeds"] = plan.about["seed"]
    if plan.reductions is not None:
        meta["reduce"] = describe_reductions(plan.reductions, start.system, shape, start.spread)
        fixed |= fixed_datasets(plan.reductions, plan.kept, states)
    work = times.steps * float(np.prod(shape))
    index = create_index(path, meta, shard_size(size, members, engine.tile, work, worker_count(executor)), fixed)
    job = Job(path, start.system, start.method, times, plan.engine, plan.reductions, meta["fingerprint"])
    return index, job


# --- running the shards ---
def run_index(index: Index, job: Job, executor: Any, progress: bool) -> ShardedRun:
    """Run all shards that are not complete; the result of all of them."""
    (index.folder / STOP).unlink(missing_ok=True)
    run = _Shards(index, job, executor, progress)
    with run.stopping():
        run.go()
    return finish(index, job, run.told)


class _Shards:
    """The tasks of a sharded run, seen by the client."""

    def __init__(self, index: Index, job: Job, executor: Any, progress: bool):
        self.index, self.job, self.places = index, job, index.shards
        self.executor = InThisProcess() if executor is None else executor
        self.own_params = index.meta["spread"] == "states and params"
        # Params of all members are not sent with every task: each gets those of its members.
        sent = _without_params(job) if self.own_params else job
        shared = sent if executor is None else pickled(sent, executor)
        self.params = jax.tree.map(np.asarray, job.system.params) if self.own_params else None
        self.steps = [self._reached(place) for place in self.places]
        self.told: list[tuple[type[Warning], str]] = []
        self.tasks = Tasks(self.executor, run_shard, shared)
        from tqdm.auto import tqdm

        self.bar = tqdm(
            total=index.members * job.times.steps,
            initial=self._done(),
            unit="step",
            unit_scale=True,
            disable=not progress,
            desc=f"{job.method.name}, {len(self.places)} shards",
        )

    def _reached(self, place: ShardPlace) -> int:
        """The step of a shard; one that is complete, and gets no task, is checked."""
        step = reached(place.path)
        return step if step < self.job.times.steps else open_shard(self.index, place).step

    def _done(self) -> int:
        return sum((p.stop - p.start) * n for p, n in zip(self.places, self.steps, strict=True))

    def go(self) -> None:
        todo = [k for k, step in enumerate(self.steps) if step < self.job.times.steps]
        reach = lambda k: reached(self.places[k].path)
        with self.bar:
            run_tasks(self.tasks, self._arguments, todo, self._ended, reach, self._look, (ShardBusy,))

    def _arguments(self, number: int) -> tuple[Any, ...]:
        place = self.places[number]
        return (jax.tree.map(lambda x: x[place.start : place.stop], self.params),) if self.own_params else ()

    def _ended(self, number: int, done: ShardDone) -> None:
        self.steps[number] = done.step
        self.told += done.warnings
        self._show()

    def _look(self) -> None:
        """Read the progress of running tasks from their files, which every executor has."""
        if self.bar.disable:
            return
        for number in self.tasks.running.values():
            self.steps[number] = max(self.steps[number], reached(self.places[number].path))
        self._show()

    def _show(self) -> None:
        self.bar.update(self._done() - self.bar.n)

    @contextlib.contextmanager
    def stopping(self) -> Iterator[None]:
        """Where the run ends early, ask the tasks that still run to stop at a checkpoint, and say what is kept."""
        try:
            yield
        except TaskFailed as failed:
            self._stop()
            raise self._of_task(failed) from failed.error
        except ProcessLost as lost:
            raise self._lost(lost) from lost
        except KeyboardInterrupt:
            self._stop()
            raise Interrupted(f"interrupted; {self._kept()}", self._advice(), run=self._so_far()) from None
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        """Tasks that run write a checkpoint and end; those that wait end at once. They are cancelled only after that: a
        task of Dask that is cancelled goes on unseen."""
        stop = self.index.folder / STOP
        with contextlib.suppress(OSError):
            stop.touch()
        if self.tasks.wait(STOP_SECONDS):
            stop.unlink(missing_ok=True)
        self.tasks.cancel()

    def _of_task(self, failed: TaskFailed) -> BaseException:
        place, error = self.places[failed.number], failed.error
        if isinstance(error, ProcessLost):
            return self._lost(error)
        where = f"shard {place.number}, members {place.start} … {place.stop - 1}"
        if isinstance(error, GeomintError):
            error.args = (f"{error} (In {where}.)", *error.args[1:])
        else:
            error.add_note(f"In {where} of the ensemble.")
        return error

    def _lost(self, lost: ProcessLost) -> ProcessLost:
        return ProcessLost(f"{lost.reason} {self._kept()}", self._advice(), path=self.index.path)

    def _kept(self) -> str:
        steps = [reached(place.path) for place in self.places]
        complete = sum(n >= self.job.times.steps for n in steps)
        return f"{complete} of {len(steps)} shards are complete, {sum(n > 0 for n in steps) - complete} have begun."

    def _advice(self) -> str:
        return f"gm.resume({str(self.index.path)!r}, executor=...) continues it, with any executor."

    def _so_far(self) -> ShardedRun | None:
        with contextlib.suppress(GeomintError):
            return ShardedRun(self.index, self.job.system, self.job.method)
        return None


def _without_params(job: Job) -> Job:
    return Job(
        job.index, job.system.with_params(None), job.method, job.times, job.engine, job.reductions, job.fingerprint
    )


# --- the end of a run ---
def finish(index: Index, job: Job, told: list[tuple[type[Warning], str]]) -> ShardedRun:
    """The result of shards that are all complete, after the index was written with their rows."""
    for hidden in index.folder.glob(".[0-9]*.h5.*.part"):  # of workers that were killed while they made a file
        hidden.unlink(missing_ok=True)
    stopped = _rows_before_failure(index)
    rows = job.times.saves if stopped is None else stopped
    run = ShardedRun(dataclasses.replace(index, meta=with_rows(index.meta, rows)), job.system, job.method)
    run.index = run.shards.index = rewrite_index(index, index.meta, rows, _shown(run))
    for category, text in _one_of_each_kind(told).items() if stopped is None else ():
        warnings.warn(text, category, stacklevel=5)
    if stopped is not None:
        raise _run_stopped(run, job)
    return run


def _one_of_each_kind(told: list[tuple[type[Warning], str]]) -> dict[type[Warning], str]:
    """The first warning of each category, and in how many shards there were others."""
    texts: dict[type[Warning], list[str]] = {}
    for category, text in told:
        texts.setdefault(category, []).append(text)
    more = lambda count: f" (Of the members of one shard; so have {count} more shards warned.)" if count else ""
    return {category: found[0] + more(len(found) - 1) for category, found in texts.items()}


def _shown(run: ShardedRun) -> dict[str, Any]:
    """What h5py and xarray see in the index: virtual datasets over the shards, or the results of reductions."""
    shown: dict[str, Any] = {"t": run.t}
    if run.summary is not None:
        columns = jax.tree.map(lambda x: np.moveaxis(np.asarray(x), 0, 1), run.columns)
        return {**shown, **dict(flat(columns)), **dict(flat(run.summary.rows))}
    folder, saves = run.index.meta["index"]["folder"], len(run.t)

    def layout_of(name: str, x: Any) -> h5py.VirtualLayout:
        layout = h5py.VirtualLayout((saves, len(x), *x.shape[2:]), x.dtype)
        for place in run.shards.places:
            count = place.stop - place.start
            source = h5py.VirtualSource(f"{folder}/{place.path.name}", name, (run.grid.saves, count, *x.shape[2:]))
            layout[:, place.start : place.stop] = source[:saves]
        return layout

    return {**shown, **{name: functools.partial(layout_of, name, x) for name, x in flat(run.columns)}}


def _rows_before_failure(index: Index) -> int | None:
    """The number of good rows, where at some saved point all members of all shards have failed: there the ensemble
    stops. None where at every saved point some member is well, usually one of the first shard."""
    saves = Grid(*index.meta["grid"]).saves
    shards, all_bad = OpenShards(index), np.ones(saves, bool)
    for k in range(len(shards.places)):
        held = shards[k]
        if held.rows < saves:
            raise ArchiveError(f"{index.path}: shard {k} has {held.rows} of {saves} rows.", shards.places[k].path)
        if "reduce" in index.meta:
            all_bad &= np.asarray(held.array("members_left")).sum(axis=1) == 0
        else:
            all_bad &= bad_rows(held, saves).all(axis=1)
        if not all_bad.any():
            return None
    return int(np.argmax(all_bad))


class _NoSink:
    """Keeps nothing: for the search for a failing step."""

    def append(self, rows: np.ndarray) -> None: ...

    def append_events(self, events: np.ndarray) -> None: ...

    def checkpoint(self, carry: Any, step: int) -> None: ...


def _run_stopped(run: ShardedRun, job: Job) -> RunStopped:
    """The error of an ensemble of which all members have failed. The archives have no carry from before the failure, so
    that the step is found by running some of the shards that failed last again, up to the failure."""
    last, failures = len(run.t) - 1, []
    until = Grid(job.times.t0, job.times.dt, (last + 1) * job.times.save_every, job.times.save_every)
    some = [place for place in run.shards.places if _any_good(run, place.number, last)]
    for place in [some[k] for k in np.unique(np.linspace(0, len(some) - 1, min(SEARCHED, len(some))).astype(int))]:
        params = None
        if run.spread == "states and params":
            params = jax.tree.map(lambda x, p=place: np.asarray(x)[p.start : p.stop], job.system.params)
        engine = shard_engine(job, run.index, place, params, None, stops=True)
        carry, _ = begin_shard(engine, job, run.index, place)
        failure = run_to_end(engine, carry, until, _NoSink()).failure
        if failure is not None:
            failures.append((failure.step, failure, engine))
    if not failures:
        step = until.steps
        return RunStopped(f"all members have failed before step {step}.", run=run, step=step, time=until.t_end)
    step, failure, engine = max(failures, key=lambda found: found[0])
    error = run_stopped(engine, job.times, run, Failure(step, failure.status, failure.good, failure.bad))
    error.q, error.p = (np.asarray(run.columns[name][:, last]) if name in run.columns else None for name in ("q", "p"))
    return error


def _any_good(run: ShardedRun, number: int, row: int) -> bool:
    held = run.shards[number]
    if "reduce" in run.index.meta:
        return bool(np.asarray(held.array("members_left")[row]).sum())
    return not bad_rows(held, row + 1)[row].all()


def in_memory(run: Any) -> Trajectory:
    """A sharded run as one in memory, whose shards can be removed."""
    return Trajectory(
        run.system,
        run.method,
        run.grid,
        run.t,
        jax.tree.map(np.asarray, run.columns),
        members=True,
        spread=run.spread,
        seed=run.seed,
        compensated=run.compensated,
        engine=run.engine,
        checkpoint=run.checkpoint,
        summary=run.summary,
    )
