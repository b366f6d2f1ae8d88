"""The host loop: chunks of steps, between which progress is shown, Ctrl-C is heard, rows are kept and checkpoints made.

Chunking never changes a result: every chunk runs the same compiled program, with the numbers of steps as arguments.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from typing import Any, Protocol

import jax
import numpy as np
from tqdm.auto import tqdm

from ..engines import Xla, sound
from ..engines.grid import Grid
from ..engines.tiles import Engine
from ..methods import Carry, protocols
from .processes import Alone
from .reducing import Reducing, bare, statuses

CHUNK_SECONDS = 0.5
ALONE = Alone()
AGREED = "after the same step on all processes"
_pace: dict[Any, float] = {}  # steps a second, of programs that have run


class Sink(Protocol):
    """What receives a run."""

    def append(self, rows: np.ndarray) -> None:
        """The next saved rows (n, width), or (members, n, width); a view that does not outlive the call."""

    def note(self, events: np.ndarray) -> None:
        """The next events (n, 3): time, level, kind."""

    def checkpoint(self, carry: Carry, step: int) -> None:
        """All that a restart needs, after every chunk. Rows and events count from now on; an interrupt takes back those after it."""


@dataclasses.dataclass
class Failure:
    """The first step that went wrong."""

    step: int
    status: int
    good: np.ndarray  # the row of the last good step
    bad: np.ndarray  # the row of the failing one


def run_to_end(
    engine: Engine, carry: Carry, grid: Grid, sink: Sink, start: int = 0, progress: bool = False, team: Alone = ALONE
) -> tuple[Carry, int, Failure | None]:
    """From step `start` to the end of the grid: the last carry, the step it stands at, and what stopped it if anything did.

    The processes of a team take the same chunks, as long as the first of them says, and stop after the same step.
    """
    n, buffer = start, engine.buffer()
    good = carry, n  # where all was well for the last time
    warm = engine.key in _pace
    if not warm and n < grid.steps:
        carry_unused, buffer = engine.advance(carry, n, 0, 0, buffer)  # compile, so that the first chunk can be timed
        jax.block_until_ready(carry_unused)
    rescue, cautious = Rescue(engine, grid, sink), grid.steps
    pace, cap, room = _pace.get(engine.key, 2000.0), grid.steps, team.agree("room for rows", engine.rows, min)
    bar = tqdm(
        total=grid.steps,
        initial=n,
        unit="step",
        unit_scale=True,
        disable=not progress or team.index > 0,
        desc=engine.method.name,
    )
    with bar, team.interruptions() as interrupted:
        while n < grid.steps:
            ask = (interrupted(), _chunk(grid, n, room, max(1, min(cap, cautious, int(pace * CHUNK_SECONDS)))))
            stop, (steps, blocks) = team.agree("chunk", ask, lambda asked: (any(a[0] for a in asked), asked[0][1]))
            if stop:
                raise KeyboardInterrupt(AGREED)
            began = time.perf_counter()
            moved, buffer = engine.advance(carry, n, steps, blocks, buffer)
            jax.block_until_ready(moved)
            # Between saves the rows stay where they are if all is well there; a million members are a gigabyte.
            unread = team.count == 1 and (n + steps * blocks) % grid.save_every != 0 and engine.well(buffer)
            rows = None if unread else engine.kept(buffer, blocks)  # may be a view: sinks copy what they keep
            elapsed = team.agree(
                "seconds", max(time.perf_counter() - began, 1e-9), max
            )  # of the process with the most to do
            events = engine.events(buffer)
            if (
                events is None
            ):  # more of them than there is room for: the same again in shorter chunks, or with more room
                cap = max(1, steps * blocks // 2)
                if steps * blocks == 1:
                    engine.log_rows *= 8
                    buffer = engine.buffer()
                continue
            failed = None if rows is None else _first_bad(engine, rows, team)
            # Between saves only unrecoverable failures stop the run, because where a chunk ends there is a matter of timing.
            passing = (
                failed is not None
                and (n + steps * blocks) % grid.save_every != 0
                and not team.agree("lost", _lost(engine, rows, buffer), all)
            )
            if failed is not None and not passing:
                carry, n = _keep_good(engine, carry, grid, n, steps, failed, sink)
                retaken = rescue.step(carry, n, steps, team)
                if retaken is None:
                    # The energy may have ceased to be finite before this chunk, where a look between two saves passed over it.
                    origin, first = (carry, n) if failed else good
                    return carry, n, _find_failure(engine, origin, first, n + steps - first, team, lost=False)
                onward, failure = retaken
                bar.update(failure.step - n)
                good, cautious = (onward, failure.step), 1  # the next step may need the same
                carry, n = good
                continue
            n += steps * blocks
            carry = moved
            good = good if passing else (carry, n)
            if rows is not None and n % grid.save_every == 0:
                sink.append(rows)
            if len(events):
                sink.note(events)
            sink.checkpoint(carry, n)
            # A first guess may be far off; it grows tenfold at most, so that a slow system is not overrun.
            pace, cautious = min(steps * blocks / elapsed, 10 * pace), min(grid.steps, 8 * cautious)
            bar.update(steps * blocks)
    engine.hand_back(buffer)
    if n > start:
        _pace[engine.key] = pace
    return carry, n, None


class Rescue:
    """Single steps that a method failed to take, taken by its form for such steps (`Rescuable.rescued`).

    Each step of a run is a function of its carry alone, by the one form or by the other, so that chunks and restarts
    change nothing. Members of an ensemble are not rescued one by one.
    """

    def __init__(self, engine: Engine, grid: Grid, sink: Sink):
        self.engine, self.grid, self.sink, self.told = engine, grid, sink, False

    def step(self, carry: Carry, n: int, steps: int, team: Alone) -> tuple[Carry, Failure] | None:
        """The first of some steps from step n on that loses the state, taken again: the carry after it, and what had
        failed. None where it can't be taken, or where the energy alone is not finite, which no other form changes."""
        if (
            self.engine.spread != "one"
            or protocols.rescued(self.engine.method, 0) is None
            or not _lost_after(self.engine, carry, n, steps, team)
        ):
            return None
        failure = _find_failure(self.engine, carry, n, steps, team, lost=True)
        method = protocols.rescued(self.engine.method, failure.status)
        if method is None:
            return None
        between = failure.step - 1 - n
        if between:
            carry, _ = self.engine.advance(carry, n, between, 1, self.engine.buffer())
        other = Xla(method, self.engine.system, self.engine.clock)
        other.make_room(self.engine.layout, ())
        carry, buffer = other.advance(carry, failure.step - 1, 1, 1, other.buffer())
        row = other.kept(buffer, 1)
        if _bad(other, row).any():
            return None
        if not self.told:
            self.told = True
            when = f"step {failure.step}, t = {self.grid.t0 + failure.step * self.grid.dt:.12g}"
            remark = protocols.remark(method, other.system, other.layout.unpack(row[0])["q"])
            warnings.warn(f"{method.name}, {when}: {remark}", stacklevel=2)
        if failure.step % self.grid.save_every == 0:
            self.sink.append(row)
        self.sink.checkpoint(carry, failure.step)
        return carry, failure


def _chunk(grid: Grid, n: int, rows: int, budget: int) -> tuple[int, int]:
    """(steps, blocks) of the next chunk: whole blocks up to the budget, or a part of one that is longer than it."""
    to_save = grid.save_every - n % grid.save_every
    if to_save < grid.save_every or budget < grid.save_every:
        return min(to_save, budget), 1
    left = (grid.steps - n) // grid.save_every
    return grid.save_every, min(rows, budget // grid.save_every, left)


def _bad(engine: Engine, rows: np.ndarray) -> np.ndarray:
    """Which rows are not `sound`."""
    seen = engine.layout.unpack(rows)
    if isinstance(engine, Reducing):  # it has looked at the rows where they are
        return np.asarray(seen["members_left"] == 0)
    if np.isfinite(rows).all() and not np.any(seen.get("status", 0)):  # a look at each row costs ten times as much
        return np.zeros(rows.shape[:-1], bool)
    return ~sound(seen, rows.ndim - 1)


def _lost(engine: Engine, rows: Any, buffer: Any) -> bool:
    """Whether no member gets well again, as seen in the first row."""
    if isinstance(engine, Reducing):
        return not any(
            np.any(sound(engine.member_layout.unpack(x), 1, energy=False)) for x in engine.first_of_members(buffer)
        )
    return not np.any(sound(engine.layout.unpack(rows[..., 0, :]), rows.ndim - 2, energy=False))


def _first_bad(engine: Engine, rows: np.ndarray, team: Alone) -> int | None:
    bad = _bad(engine, rows)
    if bad.ndim == 2:  # an ensemble goes on while one member is well
        bad = bad.all(axis=0)
        places = team.agree(
            "failed", np.flatnonzero(bad).tolist(), lambda each: sorted(set.intersection(*map(set, each)))
        )
        return places[0] if places else None
    return int(np.argmax(bad)) if bad.any() else None


def _keep_good(
    engine: Engine, carry: Carry, grid: Grid, n: int, steps: int, good_blocks: int, sink: Sink
) -> tuple[Carry, int]:
    """Replay the good blocks of a chunk, the same program and so the same numbers, and keep their rows and events."""
    carry, buffer = engine.advance(carry, n, steps, good_blocks, engine.buffer())
    n += steps * good_blocks
    if good_blocks and n % grid.save_every == 0:
        sink.append(engine.kept(buffer, good_blocks))
    events = engine.events(buffer)
    if events is not None and len(events):
        sink.note(events)
    sink.checkpoint(carry, n)
    return carry, n


def _lost_after(engine: Engine, carry: Carry, n: int, steps: int, team: Alone) -> bool:
    buffer = engine.advance(carry, n, steps, 1, engine.buffer())[1]
    return team.agree("lost", _lost(engine, engine.kept(buffer, 1), buffer), all)


def _find_failure(engine: Engine, origin: Carry, first: int, steps: int, team: Alone, lost: bool) -> Failure:
    """The first of some steps after which the state is lost, or at least the energy is not finite: by bisection, since
    neither recovers before the end of the chunk."""
    after = lambda k: engine.advance(origin, first, k, 1, engine.buffer())
    last_row = lambda k: engine.kept(after(k)[1], 1)
    good, bad = 0, steps
    while bad - good > 1:
        middle = (good + bad) // 2
        failed = (
            _lost_after(engine, origin, first, middle, team)
            if lost
            else _first_bad(engine, last_row(middle), team) is not None
        )
        good, bad = (good, middle) if failed else (middle, bad)
    row = last_row(bad)
    status = (
        statuses(engine.method, bare(engine.whole(after(bad)[0])))
        if isinstance(engine, Reducing)
        else engine.layout.unpack(row).get("status")
    )
    code = 0 if status is None else int(np.nan_to_num(np.max(status, initial=0)))
    code = team.agree("status", code, max)
    return Failure(first + bad, code, last_row(good)[..., 0, :], row[..., 0, :])
