"""simulate(until=f): a run that ends where the sign of f(q, p, t) changes.

The method of such a run is `Until` over the user's: its step fails where the sign has changed, so that the host loop
stops there as at any failing step. Here the last step is repeated with other lengths, by the compiled program of the
run, until the function is zero at its end.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..engines import Clock
from ..engines.block import Accompanied
from ..errors import InputError
from ..methods import Method, State, protocols
from ..methods.crossings import REACHED, Until, UntilCarry, Watching, starts_anew, value_of
from ..system.checks import function
from ..system.lagrangian import derive
from ..system.system import Stated
from .inputs import initial_state
from .loop import Outcome
from .trajectory import Checkpoint, Trajectory


def stopping(method: Method, until: Any, traced: bool, path: Any) -> Method:
    """The method that ends a run where until(q, p, t) changes its sign, or the method itself for None; an error where
    a run can't end early."""
    if until is None:
        return method
    if traced:
        raise InputError(
            "until= can't be used inside jax.grad, jax.jit or jax.vmap: the length of the run must be known."
        )
    if path is not None:
        raise InputError(
            "until= ends a run between two steps, and an archive holds whole steps only: leave output= out, and save "
            "the run afterwards with run.save(...)."
        )
    if method.traits.event_driven:
        raise InputError(f"until= needs a method with steps, and {method.name} chooses its own times.")
    return Until(method, function(until, "until", of="(q, p)"))


def check_first(method: Method, system: Stated, q: Any, p: Any, t0: float) -> None:
    """An error where the function of simulate(until=...) or section is not a number at the start: no change of its sign
    would ever be seen."""
    if isinstance(method, Watching):
        f = value_of(derive(system, np.shape(q), t0), method.called, method.function, State(q, p), jnp.asarray(t0))
        if not np.isfinite(f):
            raise InputError(f"{method.called}(q, p) is {f} at the start; state a function that is finite there.")


def unwrapped(engine: Any, end: Outcome, run: Trajectory) -> tuple[Trajectory, Outcome]:
    """The run and its outcome as those of the user's method; where the sign has changed, no failure, and the run ends
    with the state there."""
    method = engine.method
    if not isinstance(method, Until):
        return run, end
    run.method = method.base
    if run.checkpoint is not None:
        run.checkpoint = Checkpoint(_replaced(run.checkpoint.carry, lambda c: c.base), run.checkpoint.step)
    fails = protocols.status(method.base, _inner(end.carry).base) is not None
    if not fails:
        run.columns.pop("status", None)
    if end.failure is None or end.failure.status != REACHED:
        return run, end
    t, row = _located(engine, end, run)
    seen = engine.layout.unpack_typed(row)
    seen = {**seen, "status": np.zeros_like(seen["status"])} if fails else {k: seen[k] for k in run.columns}
    columns = jax.tree.map(lambda x, y: np.concatenate([x, np.asarray(y, x.dtype)[None]]), run.columns, seen)
    stopped = Trajectory(
        run.system,
        run.method,
        run.grid,
        np.append(run.t, t),
        columns,
        seed=run.seed,
        compensated=run.compensated,
        engine=run.engine,
        checkpoint=run.checkpoint,
    )
    stopped.stopped_at = t
    return stopped, end._replace(failure=None)


def _replaced(carry: Any, change: Callable[[UntilCarry], Any]) -> Any:
    """The carry with another one of the method."""
    if isinstance(carry, Accompanied):
        return dataclasses.replace(carry, carry=change(carry.carry))
    return change(carry)


def _located(engine: Any, end: Outcome, run: Trajectory) -> tuple[float, np.ndarray]:
    """The time at which the function is zero, and the row of the state there."""
    from scipy.optimize import brentq

    assert end.failure is not None
    grid, before = run.grid, end.failure.step - 1
    carry, buffer = engine.advance(end.carry, end.step, before - end.step, 1, engine.buffer())
    t, whole = grid.t0 + before * grid.dt, grid.dt
    shown = engine.layout.unpack(np.array(engine.rows_of(buffer, 1)[0]))
    anew = starts_anew(engine.method)
    carry = _replaced(carry, lambda c: c._replace(t0=np.asarray(t), step=np.zeros((), int), status=np.zeros((), int)))
    first = float(_inner(carry).value)

    def step(h: float) -> tuple[float, np.ndarray]:
        moved = copy.copy(engine)  # the same program with another clock
        moved.clock = Clock(np.asarray(t), np.asarray(h))
        start = carry
        if anew:
            start = moved.start(initial_state(shown["q"], shown["p"], t, run.seed, run.compensated))
        done, kept = moved.advance(start, 0, 1, 1, moved.buffer())
        return float(_inner(done).value), np.array(moved.rows_of(kept, 1)[0])

    last = step(whole)
    if last[0] == 0 or (first > 0) == (last[0] > 0):  # a method that starts anew may end on this side, by its error
        return t + whole, last[1]
    h: Any = brentq(lambda h: first if h == 0 else step(h)[0], 0.0, whole, xtol=1e-15 * whole, rtol=np.float64(8.9e-16))
    return t + h, step(h)[1]


def _inner(carry: Any) -> UntilCarry:
    return carry.carry if isinstance(carry, Accompanied) else carry
