"""The host loop: it runs an engine in chunks of about half a second until the end of the run.

Between two chunks it shows progress, reacts to Ctrl-C, hands rows and events to a sink (memory or an archive) and gives
the sink a chance to write a checkpoint. Chunks never change a result: every chunk runs the same compiled program, with
the numbers of steps and blocks as arguments, and time is t0 + n·dt from the integer n.

A chunk is `blocks` blocks of `steps` steps, with one row after each block. Usually a block is the steps between two
saves; where these take longer than a chunk, the chunk is a part of one block, and its row is only looked at.

When a saved row is not finite, or has a nonzero status, the loop repeats the good blocks of the chunk, keeps their
rows, and then finds the failing step by bisection. Between saves it does so only where the state is lost: an energy
that is not finite may become finite again before the next save, and where chunks end there depends on timing. A method
with a slower form for such steps (`Rescuable`) takes the failing step in that form, and the loop goes on; otherwise
the run ends with a `Failure`.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
import warnings
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from ..engines import Xla
from ..engines.grid import Grid
from ..engines.tiles import Engine
from ..methods import Carry, protocols

CHUNK_SECONDS = 0.5
FIRST_PACE = 2000.0  # steps a second that are assumed of a program that has not run yet
_pace: dict[Any, float] = {}  # measured steps a second, by the key of the compiled program


class Sink(Protocol):
    """What receives a run."""

    def append(self, rows: np.ndarray) -> None:
        """The next saved rows (n, width), or (members, n, width); a view that is not valid after the call."""

    def append_events(self, events: np.ndarray) -> None:
        """The next events (n, 3): time, level, kind."""

    def checkpoint(self, carry: Carry, step: int) -> None:
        """All that a restart needs, after every chunk. Rows and events received so far count from now on; an interrupt
        discards later ones."""


class Position(NamedTuple):
    """Where a run is: the carry after `step` steps."""

    carry: Carry
    step: int


class Chunk(NamedTuple):
    """`blocks` blocks of `steps` steps."""

    steps: int
    blocks: int

    @property
    def total(self) -> int:
        return self.steps * self.blocks


@dataclasses.dataclass
class Failure:
    """The first step that failed."""

    step: int
    status: int
    good: np.ndarray  # the row after the last good step
    bad: np.ndarray  # the row after the failing one


class Outcome(NamedTuple):
    """The end of a run: the last good position, and what stopped it, if anything did."""

    carry: Carry
    step: int
    failure: Failure | None


def run_to_end(engine: Engine, carry: Carry, grid: Grid, sink: Sink, start: int = 0, progress: bool = False) -> Outcome:
    """Run from step `start` to the end of the grid, or to the step that fails."""
    return HostLoop(engine, Position(carry, start), grid, sink, progress).run()


class HostLoop:
    """The state of the host loop between two chunks."""

    def __init__(self, engine: Engine, start: Position, grid: Grid, sink: Sink, progress: bool):
        self.engine, self.grid, self.sink = engine, grid, sink
        self.now, self.progress = start, progress
        self.last_good = start  # the last position at which a row was seen without any failure
        self.buffer = engine.buffer()
        if engine.key not in _pace and start.step < grid.steps:
            self._compile()
        self.rescue = Rescue(engine, grid, sink)
        self.pace = _pace.get(engine.key, FIRST_PACE)
        self.most_for_events = grid.steps  # bound on a chunk whose events must fit into the buffer
        self.most_after_rescue = grid.steps  # bound on a chunk after a rescued step: the next step may need the same
        from tqdm.auto import tqdm

        self.bar = tqdm(
            total=grid.steps,
            initial=start.step,
            unit="step",
            unit_scale=True,
            disable=not progress,
            desc=engine.method.name,
        )

    def _compile(self) -> None:
        """Run no steps at all, so that the first chunk is timed without compilation. Where progress is shown, say so if
        it takes longer than a second."""
        note = threading.Timer(1.0, lambda: print("compiling…", file=sys.stderr, flush=True))
        if self.progress:
            note.daemon = True
            note.start()
        try:
            self._run_no_steps()
        finally:
            note.cancel()

    def _run_no_steps(self) -> None:
        unused, self.buffer = self.engine.advance(self.now.carry, self.now.step, 0, 0, self.buffer)
        jax.block_until_ready(unused)

    def run(self) -> Outcome:
        start = self.now.step
        with self.bar:
            while self.now.step < self.grid.steps:
                failure = self._take(self._next_chunk())
                if failure is not None:
                    return Outcome(*self.now, failure)
        self.engine.recycle_buffer(self.buffer)
        if self.now.step > start:
            _pace[self.engine.key] = self.pace
        return Outcome(*self.now, None)

    def _next_chunk(self) -> Chunk:
        budget = max(1, min(self.most_for_events, self.most_after_rescue, int(self.pace * CHUNK_SECONDS)))
        return Chunk(*_chunk(self.grid, self.now.step, self.engine.row_capacity, budget))

    def _take(self, chunk: Chunk) -> Failure | None:
        """Run a chunk. A Failure where the run can't go on; None where its rows were kept, where its failing step was
        rescued, or where it has to be repeated because its events did not fit."""
        engine = self.engine
        began = time.perf_counter()
        carry, self.buffer = engine.advance(self.now.carry, self.now.step, chunk.steps, chunk.blocks, self.buffer)
        jax.block_until_ready(carry)
        end = Position(carry, self.now.step + chunk.total)
        at_save = end.step % self.grid.save_every == 0
        # Between saves, rows that the engine knows to be good are not copied from the device: a million members are a
        # gigabyte.
        unread = not at_save and engine.first_rows_known_good(self.buffer)
        rows = None if unread else engine.rows_of(self.buffer, chunk.blocks)  # may be a view
        seconds = max(time.perf_counter() - began, 1e-9)
        events = engine.events(self.buffer)
        if events is None:
            self._make_room_for_events(chunk)
            return None
        failed = None if rows is None else _first_bad(engine, rows)
        # Between saves only unrecoverable failures stop the run, because it depends on timing where a chunk ends there.
        energy_may_recover = (
            failed is not None and rows is not None and not at_save and not engine.all_unrecoverable(rows, self.buffer)
        )
        if failed is not None and not energy_may_recover:
            return self._stop_or_rescue(chunk, good_blocks=failed)
        self._keep(chunk, end, rows if at_save else None, events, seconds, energy_may_recover)
        return None

    def _make_room_for_events(self, chunk: Chunk) -> None:
        """The chunk had more events than the buffer holds: repeat it in shorter chunks, or with a larger buffer."""
        self.most_for_events = max(1, chunk.total // 2)
        if chunk.total == 1:
            self.engine.log_rows *= 8
            self.buffer = self.engine.buffer()

    def _keep(
        self,
        chunk: Chunk,
        end: Position,
        rows: np.ndarray | None,
        events: np.ndarray,
        seconds: float,
        energy_may_recover: bool,
    ) -> None:
        """Go on from the end of a chunk. energy_may_recover: its energy is not finite, but may be finite again at the
        next save."""
        self.now = end
        self.last_good = self.last_good if energy_may_recover else end
        if rows is not None:
            self.sink.append(rows)
        if len(events):
            self.sink.append_events(events)
        self.sink.checkpoint(end.carry, end.step)
        # The first pace is a guess: it grows at most tenfold, so that a slow system gets no chunk of many seconds.
        self.pace = min(chunk.total / seconds, 10 * self.pace)
        self.most_after_rescue = min(self.grid.steps, 8 * self.most_after_rescue)
        # Slowly, because a chunk whose events do not fit is lost work; but one burst of events must not shorten all
        # later chunks.
        self.most_for_events = min(self.grid.steps, self.most_for_events + self.most_for_events // 16 + 1)
        self.bar.update(chunk.total)

    def _stop_or_rescue(self, chunk: Chunk, good_blocks: int) -> Failure | None:
        """Keep the good blocks of a chunk. Then take the failing step in its slower form, or find it and stop."""
        before = self.now.step
        self.now = _keep_good(self.engine, self.now, self.grid, chunk.steps, good_blocks, self.sink)
        if self._grow(chunk.steps):
            return None
        rescued = self.rescue.step(self.now, chunk.steps)
        if rescued is None:
            # The energy may have ceased to be finite before this chunk, in a row between saves that was passed over.
            origin = self.now if good_blocks else self.last_good
            steps = self.now.step + chunk.steps - origin.step
            return _find_failure(self.engine, origin, steps, lost=False)
        self.bar.update(rescued.step - before)
        self.now = self.last_good = rescued
        self.most_after_rescue = 1
        return None

    def _grow(self, steps: int) -> bool:
        """Where the auxiliary state had not room enough in one of the next steps, go to the step before with more room.
        That step depends on the motion alone, so that chunks and restarts change nothing."""
        engine, start = self.engine, self.now
        if not isinstance(engine, Xla) or engine.auxiliary is None:
            return False
        after = lambda k: engine.advance(start.carry, start.step, k, 1, engine.buffer())[0] if k else start.carry
        if not engine.overflowed(after(steps)):
            return False
        good, bad = 0, steps
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if engine.overflowed(after(middle)) else (middle, bad)
        self.now = Position(engine.with_more_room(after(good), after(bad)), start.step + good)
        self.most_after_rescue = 1
        self.bar.update(good)
        self.sink.checkpoint(self.now.carry, self.now.step)
        return True


class Rescue:
    """Takes single steps that a method failed to take, in its slower form for such steps (`Rescuable.rescued`).

    Whether a step is taken in one form or the other depends on its carry and number alone, so that chunks and restarts
    change nothing. Members of an ensemble are not rescued one by one.
    """

    def __init__(self, engine: Engine, grid: Grid, sink: Sink):
        self.engine, self.grid, self.sink, self.warned = engine, grid, sink, False

    def step(self, start: Position, steps: int) -> Position | None:
        """Take the first of `steps` steps that loses the state in the slower form; the position after it. None where
        that fails too, or where only the energy is not finite, which no other form changes."""
        engine = self.engine
        if engine.spread != "one" or protocols.rescued(engine.method, 0) is None:
            return None
        if not _lost_after(engine, start, steps):
            return None
        failure = _find_failure(engine, start, steps, lost=True)
        method = protocols.rescued(engine.method, failure.status)
        if method is None:
            return None
        carry, between = start.carry, failure.step - 1 - start.step
        if between:
            carry, _ = engine.advance(carry, start.step, between, 1, engine.buffer())
        slower = Xla(method, engine.system, engine.clock)
        slower.set_buffer_shape(engine.layout, ())
        carry, buffer = slower.advance(carry, failure.step - 1, 1, 1, slower.buffer())
        row = slower.rows_of(buffer, 1)
        if slower.bad_rows(row).any():
            return None
        self._warn(slower, failure.step, row)
        if failure.step % self.grid.save_every == 0:
            self.sink.append(row)
        self.sink.checkpoint(carry, failure.step)
        return Position(carry, failure.step)

    def _warn(self, slower: Xla, step: int, row: np.ndarray) -> None:
        """Once for a run."""
        if not self.warned:
            self.warned = True
            when = f"step {step}, t = {self.grid.t0 + step * self.grid.dt:.12g}"
            reason = protocols.rescue_warning(slower.method, slower.system, slower.layout.unpack(row[0])["q"])
            warnings.warn(f"{slower.method.name}, {when}: {reason}", stacklevel=2)


def _chunk(grid: Grid, n: int, rows: int, budget: int) -> tuple[int, int]:
    """(steps, blocks) of the next chunk: whole blocks up to the budget, or a part of one that is longer than it."""
    to_save = grid.save_every - n % grid.save_every
    if to_save < grid.save_every or budget < grid.save_every:
        return min(to_save, budget), 1
    left = (grid.steps - n) // grid.save_every
    return grid.save_every, min(rows, budget // grid.save_every, left)


def _first_bad(engine: Engine, rows: np.ndarray) -> int | None:
    """The first row at which the run has failed: an ensemble only where all its members have."""
    bad = engine.bad_rows(rows)
    if bad.ndim == 2:
        bad = bad.all(axis=0)
    return int(np.argmax(bad)) if bad.any() else None


def _keep_good(engine: Engine, start: Position, grid: Grid, steps: int, good_blocks: int, sink: Sink) -> Position:
    """Repeat the good blocks of a chunk (the same program gives the same numbers); keep their rows and events."""
    carry, buffer = engine.advance(start.carry, start.step, steps, good_blocks, engine.buffer())
    end = Position(carry, start.step + steps * good_blocks)
    if good_blocks and end.step % grid.save_every == 0:
        sink.append(engine.rows_of(buffer, good_blocks))
    events = engine.events(buffer)
    if events is not None and len(events):
        sink.append_events(events)
    sink.checkpoint(end.carry, end.step)
    return end


def _lost_after(engine: Engine, start: Position, steps: int) -> bool:
    """Whether no trajectory can recover after so many steps."""
    buffer = engine.advance(start.carry, start.step, steps, 1, engine.buffer())[1]
    return engine.all_unrecoverable(engine.rows_of(buffer, 1), buffer)


def _find_failure(engine: Engine, origin: Position, steps: int, lost: bool) -> Failure:
    """The first of some steps after which the state is lost (lost=True), or at least the energy is not finite. By
    bisection: a lost state stays lost. An energy may become finite again between; then one of the steps is found after
    which it was not, not always the first."""
    after = lambda k: engine.advance(origin.carry, origin.step, k, 1, engine.buffer())
    last_row = lambda k: engine.rows_of(after(k)[1], 1)
    good, bad = 0, steps
    while bad - good > 1:
        middle = (good + bad) // 2
        failed = _lost_after(engine, origin, middle) if lost else _first_bad(engine, last_row(middle)) is not None
        good, bad = (good, middle) if failed else (middle, bad)
    carry, buffer = after(bad)
    row = engine.rows_of(buffer, 1)
    status = engine.status_after(carry, row)
    code = 0 if status is None else int(np.nan_to_num(np.max(status, initial=0)))
    return Failure(origin.step + bad, code, last_row(good)[..., 0, :], row[..., 0, :])
