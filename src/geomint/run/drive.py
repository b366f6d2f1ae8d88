"""drive: run the host loop and turn its outcome into a Trajectory or an error, for simulate, ensemble and resume."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engines.grid import Grid
from ..engines.tiles import Engine
from ..io import archive
from ..io.fingerprint import fingerprint
from ..io.sinks import Disk
from ..methods import Carry, Method, protocols
from ..system.spaces import velocity_shape
from ..system.system import Stated
from .archived import trajectory
from .defaults import method_of_model
from .energy_scale import Extremes
from .failures import interrupted, run_stopped
from .instability import warn_of_instability
from .loop import Outcome, Position, Sink, run_to_end
from .trajectory import Checkpoint, Trajectory
from .until import unwrapped


def archive_meta(
    system: Stated,
    engine: Engine,
    times: Grid,
    about: dict[str, Any],
    q_shape: tuple[int, ...],
    of_system: str | None = None,
) -> dict[str, Any]:
    """The JSON of an archive: all that is needed to set the run up again, but its functions.

    of_system: the fingerprint of the system, where it is known.
    """
    solver = protocols.linear_solver(engine.method)
    return {
        **about,
        "seed": about["seed"] if np.ndim(about["seed"]) == 0 else None,
        "method": engine.method.name,
        "complete_name": engine.method.complete_name,
        **({} if engine.method.complete_name else {"functions_of_model": _of_model(engine.method, system, q_shape)}),
        "grid": [times.t0, times.dt, times.steps, times.save_every],
        "engine": engine.engine_name,
        "origin": system.origin,
        "fingerprint": of_system or fingerprint(system, q_shape, engine.spread),
        "q_shape": list(q_shape),
        **({} if (of_p := velocity_shape(system, q_shape)) == q_shape else {"p_shape": list(of_p)}),
        "spread": engine.spread,
        **engine.archive_entries,
        **({"solver": solver} if solver else {}),
    }


def _of_model(method: Method, system: Stated, q_shape: tuple[int, ...]) -> bool:
    """Whether the functions that the method holds are those of the method of the system's model."""
    usual = method_of_model(system.origin, q_shape)
    return usual is not None and usual.functions == method.functions


def drive(
    engine: Engine,
    carry: Carry,
    times: Grid,
    sink: Any,
    progress: bool,
    about: dict[str, Any],
    start: int = 0,
) -> Trajectory:
    """Run to the end, or as far as the run goes. Errors carry the Trajectory of what was saved.

    about: seed, compensated and members, as `Trajectory` and archives have them.
    """
    try:
        return _driven(engine, Position(carry, start), times, sink, progress, about)
    finally:
        sink.close()  # after any error: an archive that stays open can't be resumed


def _driven(
    engine: Engine, start: Position, times: Grid, sink: Any, progress: bool, about: dict[str, Any]
) -> Trajectory:
    recorder = _Recorder(sink, start, Extremes(engine))
    stopped_by_user = False
    try:
        end = run_to_end(engine, start.carry, times, recorder, start.step, progress)
    except KeyboardInterrupt:
        stopped_by_user = True
        end = Outcome(*recorder.newest, None)
        # The interrupt may have come between the rows or events of a chunk and its checkpoint: discard what is newer.
        events = int(protocols.events(engine.method, end.carry)) if engine.logs else None
        sink.truncate(end.step // times.save_every + 1, events)
    carry = engine.archived_carry(end.carry)
    run = _collect(engine, times, sink, Position(carry, end.step), about)
    protocols.warn_after_run(engine.method, engine.method_carry(carry))
    run, end = unwrapped(engine, end, run)
    if stopped_by_user:
        raise interrupted(times, run, end.step)
    if end.failure is not None:
        raise run_stopped(engine, times, run, end.failure)
    warn_of_instability(run, recorder.extremes)
    return run


class _Recorder:
    """A sink in front of the sink of the run. It remembers the newest checkpoint, for Ctrl-C, and the extremes of the
    energy, for the warning of instability."""

    def __init__(self, sink: Sink, start: Position, extremes: Extremes):
        self.append_events, self.sink, self.newest, self.extremes = sink.append_events, sink, start, extremes

    def append(self, rows: np.ndarray) -> None:
        self.extremes.add(rows)
        self.sink.append(rows)

    def checkpoint(self, carry: Carry, step: int) -> None:
        self.newest = Position(carry, step)
        self.sink.checkpoint(carry, step)


def _collect(engine: Engine, times: Grid, sink: Any, end: Position, about: dict[str, Any]) -> Trajectory:
    """The Trajectory of all that the sink has; `end` has the carry as an archive keeps it."""
    if isinstance(sink, Disk):
        sink.finish_checkpoint(end.carry, end.step)
        sink.close()
        held = archive.read(sink.writer.path)
        checkpoint = Checkpoint(engine.method_carry(end.carry), end.step)
        run = trajectory(held, engine.system, checkpoint, engine.method)
        run.engine = engine.described
        return run
    columns, summary = engine.results(sink.columns, end.carry)
    return Trajectory(
        engine.system,
        engine.method,
        times,
        times.times(0, sink.count),
        columns,
        spread=engine.spread,
        engine=engine.described,
        checkpoint=Checkpoint(engine.method_carry(end.carry), end.step),
        records=sink.events if engine.logs else None,
        summary=summary,
        **about,
    )
