"""A shard: some members of an ensemble, run as one task of an executor into an archive of their own.

A shard is made of whole tiles of the whole ensemble, runs the programs of the whole ensemble (the same tiles, the same
buffers, the method as the client has prepared it), and its members have the random numbers of their numbers in the
whole ensemble. So no number depends on the shards. A task that starts again, because its worker was lost or the run was
interrupted, finds the archive of its shard and goes on from the checkpoint in it.
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..engines import Clock, choose
from ..engines.grid import Grid
from ..engines.scalar.scalar_engine import ScalarEngine
from ..engines.tiles import ShardOf, Tiled
from ..errors import ArchiveBusy, ArchiveError, GeomintError
from ..io import archive
from ..io.index import STOP, Index, ShardPlace, open_shard, read_index, shard_entry
from ..io.sinks import Disk
from ..methods import Carry, Method, protocols
from ..system.system import Stated
from .archived import trajectory
from .drive import archive_meta
from .energy_scale import Extremes
from .inputs import check_energy, initial_state
from .instability import warn_of_instability
from .loop import Outcome, Sink, run_to_end
from .reducing_engine import Reducing
from .reductions import Reductions
from .relay import relayed_after_fork
from .restore import reopened
from .trajectory import Checkpoint, Trajectory
from .workers import opened

BUSY_SECONDS = 20.0  # a file that another process still writes may be that of a worker that is about to end
LOOK_SECONDS = 0.25  # between two looks whether the client asks to stop
MOST_SHARDS = 1000
SHARDS_PER_WORKER = 4
# Member-steps × coordinates of a shard: about ten seconds on one core. Smaller shards lose time in files and compiled
# programs; a lost worker repeats at most half a second, whatever the size.
SHARD_COST = 1e10


@dataclasses.dataclass(frozen=True)
class Job:
    """All that the shards of a run share."""

    index: Path
    system: Stated  # with the params of all members only where these are shared
    method: Method  # prepared
    times: Grid
    engine: str  # as the user gave it
    reductions: Reductions | None
    fingerprint: str


class ShardDone(NamedTuple):
    """How far a task got, and the warnings in it."""

    number: int
    step: int
    seconds: float
    warnings: list[tuple[type[Warning], str]]


class ShardBusy(GeomintError):
    """The file of a shard is being written by a process that is still alive; the client submits the task again."""


class _StopRequested(Exception):
    """The client has asked all tasks to stop; a checkpoint was written."""


def shard_size(shard: int | None, members: int, tile: int, work: float, workers: int) -> int:
    """Members of a shard: whole tiles. work: steps × coordinates of one member."""
    tiles = math.ceil(members / tile)
    if shard is None:
        by_cost = max(1, round(SHARD_COST / max(work, 1.0) / tile))
        about = min(by_cost, max(1, tiles // (SHARDS_PER_WORKER * workers)))
    else:
        about = max(1, round(shard / tile))
    return tile * max(about, math.ceil(tiles / MOST_SHARDS))


@relayed_after_fork
def run_shard(payload: bytes | Job, number: int, params: Any = None) -> ShardDone:
    """The task: begin a shard, or continue it from its checkpoint, or return at once where it is complete.

    params: those of the members of the shard, where members have their own.
    """
    with opened(payload) as job, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.perf_counter()
        step = _run(job, number, params)
        told = [(w.category, str(w.message)) for w in caught]
        return ShardDone(number, step, time.perf_counter() - began, list(dict.fromkeys(told)))


def _index(job: Job) -> Index:
    """The index; an error where this worker does not see it."""
    if not job.index.exists():
        raise ArchiveError(
            f"a worker can't see {job.index}. Give output= on a file system that all workers share.", job.index
        )
    index = read_index(job.index)
    if index is None:
        raise ArchiveError(f"{job.index} was replaced by another file.", job.index)
    return index


def _run(job: Job, number: int, params: Any) -> int:
    index = _index(job)
    place, until = index.shards[number], time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return _attempt(job, index, place, params)
        except ArchiveBusy as error:
            if time.monotonic() > until:
                raise ShardBusy(f"shard {number}: {error}") from None
            time.sleep(0.5)


def _attempt(job: Job, index: Index, place: ShardPlace, params: Any) -> int:
    held = _held(index, place)
    reached = 0 if held is None else held.step
    if reached >= job.times.steps or (index.folder / STOP).exists():
        return reached
    part = _Part.begun(job, index, place, params, held)
    try:
        return part.run(job, index.folder / STOP)
    finally:
        part.disk.close()


def _held(index: Index, place: ShardPlace) -> archive.Contents | None:
    """The archive of a shard; None where it has not begun. A file without a checkpoint is that of a process that was
    killed while it made it: it is removed."""
    if not place.path.exists():
        return None
    held = open_shard(index, place, continued=True)
    if held.sequence:
        return held
    archive.check_writable(place.path)
    place.path.unlink(missing_ok=True)
    return None


def shard_engine(
    job: Job, index: Index, place: ShardPlace, params: Any, archived_by: str | None = None, stops: bool = False
) -> Tiled:
    """The engine of a shard. archived_by: the engine of the archive that is continued. stops: it stops where all
    members of the shard have failed, and not as in a run, where they go on until those of all shards have."""
    meta, method = index.meta, job.method
    make = choose(job.engine, members=True) if archived_by is None else choose(archived_by)
    if archived_by is not None and issubclass(make, ScalarEngine):
        method = protocols.for_scalar_code(method, True)  # as in restore.py: the archived carry is that of this form
    system = job.system if params is None else job.system.with_params(params)
    clock, of = Clock.of(job.times.t0, job.times.dt), None if stops else ShardOf(place.start, index.members)
    count = place.stop - place.start
    arguments = make, method, system, clock, meta["spread"], count, (None,), meta["tile"], of
    if job.reductions is None:
        return Tiled(*arguments)
    kept = np.zeros(0, np.int64) if index.kept is None else index.kept
    here = kept[(kept >= place.start) & (kept < place.stop)] - place.start
    return Reducing(job.reductions, here, job.times.save_every, *arguments)


def begin_shard(engine: Tiled, job: Job, index: Index, place: ShardPlace) -> tuple[Carry, dict[str, Any]]:
    """The carry at the start, and what is saved there."""
    of = place.start, place.stop
    velocity = index.start("velocity", *of) if "start/velocity" in index.datasets else None
    q, p, seed = index.start("q", *of), index.start("p", *of), index.seed(*of)
    count, compensated = place.stop - place.start, index.meta["compensated"]
    state = initial_state(q, p, job.times.t0, seed, compensated, count, velocity, place.start)
    return engine.begin(state)


class _Part(NamedTuple):
    """A shard that is about to run."""

    engine: Tiled
    carry: Carry
    step: int
    disk: Disk
    about: dict[str, Any]

    @classmethod
    def begun(cls, job: Job, index: Index, place: ShardPlace, params: Any, held: archive.Contents | None) -> _Part:
        engine = shard_engine(job, index, place, params, None if held is None else held.meta["engine"])
        carry, seen = begin_shard(engine, job, index, place)
        seed = index.seed(place.start, place.stop)
        about = {"seed": seed, "compensated": index.meta["compensated"], "members": True}
        shape = tuple(index.meta["q_shape"])
        meta = lambda: {
            **archive_meta(engine.system, engine, job.times, about, shape, job.fingerprint),
            "shard": shard_entry(index, place),
        }
        disk = lambda writer: Disk(writer, engine.layout, job.times, engine.rows_per_member, engine.archived_carry)
        if held is not None:
            carry = held.carry_like(engine.archived_carry(carry))
            return cls(engine, carry, held.step, disk(reopened(held, job.times, meta)), about)
        own_params = index.meta["spread"] == "states and params"
        check_energy(engine.system, seen, place.start, own_params=own_params)
        row = engine.first_row(seen)
        fixed = {**({} if np.ndim(seed) == 0 else {"seeds": seed}), **engine.fixed_arrays}
        if place.path.exists():
            raise ArchiveBusy(f"{place.path} was made by another process meanwhile.", place.path)
        writer = archive.create(place.path, meta(), row, engine.archived_carry(carry), job.times.saves, fixed=fixed)
        made = disk(writer)
        made.first(row, carry)
        return cls(engine, carry, 0, made, about)

    def run(self, job: Job, stop: Path) -> int:
        sink = _StoppableSink(self.disk, Extremes(self.engine), stop)
        try:
            end = run_to_end(self.engine, self.carry, job.times, sink, self.step)
        except _StopRequested as stopped:
            return stopped.args[0]
        carry = self.engine.archived_carry(end.carry)
        self.disk.writer.checkpoint(carry, end.step, force=True)
        self.disk.writer.close()
        self._warn(job, carry, end, sink.extremes)
        return end.step

    def _warn(self, job: Job, carry: Carry, end: Outcome, extremes: Extremes) -> None:
        """The warnings of a run, about the members of this shard."""
        engine = self.engine
        checkpoint = Checkpoint(engine.method_carry(carry), end.step)
        protocols.warn_after_run(engine.method, checkpoint.carry)
        if job.reductions is None:
            run = trajectory(archive.read(self.disk.writer.path), engine.system, checkpoint, engine.method)
        else:
            run = Trajectory(
                engine.system, engine.method, job.times, job.times.times(), {}, spread=engine.spread,
                checkpoint=checkpoint, **self.about,
            )  # fmt: skip
        warn_of_instability(run, extremes)


class _StoppableSink(Sink):
    """The sink of a shard. It keeps the extremes of the energy, and stops the run where the client asks for it."""

    def __init__(self, disk: Disk, extremes: Extremes, stop: Path):
        self.disk, self.extremes, self.stop, self.looked = disk, extremes, stop, time.monotonic()

    def append(self, rows: np.ndarray) -> None:
        self.extremes.add(rows)
        self.disk.append(rows)

    def append_events(self, events: np.ndarray) -> None:
        self.disk.append_events(events)

    def checkpoint(self, carry: Carry, step: int) -> None:
        self.disk.checkpoint(carry, step)
        if time.monotonic() - self.looked < LOOK_SECONDS:
            return
        self.looked = time.monotonic()
        if self.stop.exists():
            self.disk.writer.checkpoint(self.disk.archived_carry(carry), step, force=True)
            raise _StopRequested(step)
