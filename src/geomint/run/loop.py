"""The host loop: chunks of steps, between which progress is shown, Ctrl-C is heard, rows are kept and checkpoints made.

Chunking never changes a result: every chunk runs the same compiled program, with the numbers of steps as arguments.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Protocol

import jax
import numpy as np
from tqdm.auto import tqdm

from ..engines import Xla
from ..methods import Carry
from .grid import Grid

CHUNK_SECONDS = 0.5
_pace: dict[Any, float] = {}  # steps a second, of programs that have run


class Sink(Protocol):
    """What receives a run."""

    def append(self, rows: np.ndarray) -> None:
        """The next saved rows (n, width), or (members, n, width); a view that does not outlive the call."""

    def note(self, events: np.ndarray) -> None:
        """The next events (n, 3): time, level, kind."""

    def checkpoint(self, carry: Carry, step: int) -> None:
        """All that a restart needs, after every chunk."""


@dataclasses.dataclass
class Failure:
    """The first step that went wrong, and the carry of the last good save before it."""

    step: int
    status: int
    carry: Carry
    good: np.ndarray  # the row of the last good step
    bad: np.ndarray  # the row of the failing one


def run_to_end(engine: Xla, carry: Carry, grid: Grid, sink: Sink, start: int = 0, progress: bool = False) -> tuple[Carry, int, Failure | None]:
    """From step `start` to the end of the grid: the last carry, the step it stands at, and what stopped it if anything did."""
    n, buffer = start, engine.buffer()
    warm = engine.key in _pace
    if not warm and n < grid.steps:
        carry_unused, buffer = engine.advance(carry, n, 0, 0, buffer)  # compile, so that the first chunk can be timed
        jax.block_until_ready(carry_unused)
    pace, cap = _pace.get(engine.key, 2000.0), grid.steps
    with tqdm(total=grid.steps, initial=n, unit="step", unit_scale=True, disable=not progress, desc=engine.method.name) as bar:
        while n < grid.steps:
            steps, blocks = _chunk(grid, n, engine.rows, max(1, min(cap, int(pace * CHUNK_SECONDS))))
            began = time.perf_counter()
            moved, buffer = engine.advance(carry, n, steps, blocks, buffer)
            rows = np.asarray(buffer.rows)[..., :blocks, :]  # a view: sinks copy what they keep
            elapsed = max(time.perf_counter() - began, 1e-9)
            events = engine.events(buffer)
            if events is None:  # more of them than there is room for: the same again in shorter chunks, or with more room
                cap = max(1, steps * blocks // 2)
                if steps * blocks == 1:
                    engine.log_rows *= 8
                    buffer = engine.buffer()
                continue
            failed = _first_bad(engine, rows)
            if failed is not None:
                return _stop(engine, carry, grid, n, steps, failed, sink)
            n += steps * blocks
            carry = moved
            if n % grid.save_every == 0:
                sink.append(rows)
            if len(events):
                sink.note(events)
            sink.checkpoint(carry, n)
            # A first guess may be far off; it grows tenfold at most, so that a slow system is not overrun.
            pace = min(steps * blocks / elapsed, 10 * pace)
            bar.update(steps * blocks)
    engine.hand_back(buffer)
    if n > start:
        _pace[engine.key] = pace
    return carry, n, None


def _chunk(grid: Grid, n: int, rows: int, budget: int) -> tuple[int, int]:
    """(steps, blocks) of the next chunk: whole blocks up to the budget, or a part of one that is longer than it."""
    to_save = grid.save_every - n % grid.save_every
    if to_save < grid.save_every or budget < grid.save_every:
        return min(to_save, budget), 1
    left = (grid.steps - n) // grid.save_every
    return grid.save_every, min(rows, budget // grid.save_every, left)


def _bad(engine: Xla, rows: np.ndarray) -> np.ndarray:
    """Which rows are not finite or carry a failed status."""
    finite = np.isfinite(rows)
    bad = np.zeros(rows.shape[:-1], bool) if finite.all() else np.any(~finite, axis=-1)  # the second costs ten times the first
    status = engine.layout.unpack(rows).get("status")
    return np.asarray(bad) if status is None else np.asarray(bad | (status != 0))


def _first_bad(engine: Xla, rows: np.ndarray) -> int | None:
    bad = _bad(engine, rows)
    if bad.ndim == 2:  # an ensemble goes on while one member is well
        bad = bad.all(axis=0)
    return int(np.argmax(bad)) if bad.any() else None


def _stop(engine: Xla, carry: Carry, grid: Grid, n: int, steps: int, good_blocks: int, sink: Sink) -> tuple[Carry, int, Failure]:
    """Replay from the last good chunk to keep its good rows, and find the failing step by bisection: the same program,
    so the same numbers."""
    carry, buffer = engine.advance(carry, n, steps, good_blocks, engine.buffer())
    n += steps * good_blocks
    if good_blocks and n % grid.save_every == 0:
        sink.append(np.asarray(buffer.rows)[..., :good_blocks, :])
    events = engine.events(buffer)
    if events is not None and len(events):
        sink.note(events)
    sink.checkpoint(carry, n)
    last_row = lambda k: np.asarray(engine.advance(carry, n, k, 1, engine.buffer())[1].rows)[..., :1, :]
    good, bad = 0, steps
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if _first_bad(engine, last_row(middle)) is not None else (middle, bad)
    row = last_row(bad)
    status = engine.layout.unpack(row).get("status")
    code = 0 if status is None else int(np.nan_to_num(np.max(status)))
    return carry, n, Failure(n + bad, code, carry, last_row(good)[..., 0, :], row[..., 0, :])
