"""run(t): the state between saved points, by the method's own steps from the saved point before it.

From there whole steps are repeated, and the last one is shorter. So the state has the order of the method, and is the
image of the saved point under maps of the method: of a symplectic method a symplectic one, on a manifold a point of it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engines.block import Clock, march
from ..engines.grid import Grid
from ..errors import InputError
from ..methods import Method, State, protocols
from ..methods.protocols import EventDriven
from ..numerics.compensated import Compensated, value
from ..numerics.compilation import jit
from ..system.checks import as_array
from ..system.lagrangian import derive
from ..system.system import Stated
from .indexing import Point
from .trajectory import Trajectory


@jit
def _moved(method: Method, system: Stated, q: Array, p: Array, t: Array, steps: Array, dt: Array, rest: Array) -> Any:
    """q and p after so many steps of dt and one of length `rest`, for each of several states at times t."""

    def one(q: Array, p: Array, t: Array, steps: Array, rest: Array) -> tuple[Array, Array]:
        mech = derive(system, q.shape, t)
        # Sums are compensated, as far as one step: whether the run's were does not matter here.
        begin = lambda q, p, t, h: method.init(
            mech.at(t), State(Compensated.of(q), Compensated.of(p), t, jnp.zeros(2, jnp.uint32)), h
        )
        if isinstance(method, EventDriven):
            end = t + steps * dt + rest
            carry = march(method, mech, begin(q, p, t, dt), Clock(end, dt), 0, 0)[0]
            shown = method.between(mech, carry, end)
            return value(shown.q), value(shown.p)
        clock = Clock(t, dt)
        whole = march(method, mech, begin(q, p, t, dt), clock, 0, steps)[0]
        there = clock.time(steps)
        at_step = method.output(mech.at(there), whole)
        last = march(method, mech, begin(value(at_step.q), value(at_step.p), there, rest), Clock(there, rest), 0, 1)[0]
        shown = method.output(mech.at(there + rest), last)
        # A last step of length zero is none: methods may divide by it.
        pick = lambda new, old: jnp.where(rest > 0, value(new), value(old))
        return pick(shown.q, at_step.q), pick(shown.p, at_step.p)

    return jax.vmap(one)(q, p, t, steps, rest)


def state_at(run: Trajectory, t: Any) -> Point:
    """The state at time t, or at each of several times: a Point, with arrays where t is one."""
    if run.members:
        raise InputError("run(t) is the state of one trajectory, and this is an ensemble: take a member, run[0](t).")
    if run.system is None:
        raise InputError("run(t) repeats steps of the run: load it with gm.load(path, system=system).")
    if run.method.traits.stochastic:
        raise InputError(f"run(t) repeats steps, and {run.method.name} would draw other random numbers.")
    times = np.atleast_1d(as_array(t, "t")).astype(float)
    first, last = float(run.t[0]), float(run.t[-1])
    if times.ndim > 1 or not len(times):
        raise InputError("run(t) takes a time, or a list of times.")
    slack = 4 * np.finfo(float).eps * max(abs(first), abs(last))
    if times.min() < first - slack or times.max() > last + slack:
        raise InputError(f"run(t): t must be between {first:g} and {last:g}, the first and last saved points.")
    return _point(run, np.clip(times, first, last), np.ndim(t) == 0)


def _point(run: Trajectory, times: np.ndarray, single: bool) -> Point:
    q, p = _states(run, run.grid, times)
    system: Any = run.system
    mech = lambda x, s: derive(system, x.shape, s)
    seen = jax.vmap(
        lambda x, y, s: (mech(x, s).velocity_at(x, y), mech(x, s).energy(x, y), mech(x, s).kinetic_at(x, y))
    )
    v, energy, kinetic = (np.asarray(x) for x in seen(jnp.asarray(q), jnp.asarray(p), jnp.asarray(times)))
    if single:
        return Point(float(times[0]), q[0], p[0], v[0], energy[0], kinetic[0])
    return Point(times, q, p, v, energy, kinetic)  # pyright: ignore[reportArgumentType]


def _states(run: Trajectory, grid: Grid, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """q and p at these times: those of the run at its saved points, others by steps from the point before."""
    saved = np.asarray(run.t)
    before = np.searchsorted(saved, times, side="right") - 1
    q, p = np.array(run.q[before]), np.array(run.p[before])
    ahead = times - saved[before]
    exact = ahead <= 4 * np.finfo(float).eps * np.maximum(np.abs(times), np.abs(saved[before]))
    todo = np.flatnonzero(~exact)
    if not len(todo):
        return q, p
    steps = np.floor(ahead[todo] / grid.dt * (1 + 4 * np.finfo(float).eps)).astype(int)
    rest = np.maximum(ahead[todo] - steps * grid.dt, 0.0)
    method = protocols.prepare(run.method, [(run.system, np.asarray(run.q[0]))])
    if run.checkpoint is not None:
        method = protocols.with_same_choices(method, run.checkpoint.carry)
    arguments = (jnp.asarray(x) for x in (q[todo], p[todo], saved[before][todo], steps))
    moved = _moved(method, run.system, *arguments, jnp.asarray(grid.dt), jnp.asarray(rest))
    q[todo], p[todo] = (np.asarray(x) for x in moved)
    return q, p
