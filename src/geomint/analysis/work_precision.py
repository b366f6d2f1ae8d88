"""The error of a method with a number of steps, and what a step costs: the points of a work-precision diagram.

`Motion` is a motion known from an independent reference (reference.py); `Motion.measured` is one point.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engines import Clock, choose
from ..errors import GeomintError, MeasurementError, RunStopped
from ..methods import Method, protocols
from ..numerics.compilation import jit
from ..run import Trajectory, simulate
from ..run.energy_scale import excess
from ..run.inputs import initial_state
from ..run.instability import unwatched
from ..system.lagrangian import derive
from ..system.system import Stated
from .measure import momentum_deviation
from .reference import Point, reference

SAMPLES = 20  # times at which a motion is compared with the reference
STEPS_OF_MODEL = 2000  # most steps of the model over which errors are measured, where t_end is not given
SHORTEST = 40  # of these steps: below, no motion is known
TIMED = 0.02  # CPU seconds that are timed for the cost of a step
REPEATED = 3  # measurements of it, of which the fastest counts: others include what else the machine did
FORCES = 400  # that are timed together
MOST_STEPS = 10**7  # of one measurement
SECONDS = 10.0  # of one measurement; methods that would take longer have no point there


@dataclasses.dataclass(frozen=True)
class Measured:
    """One method with one step.

    error:            the largest error of a coordinate at 20 times, relative to the largest displacement from the start
    energy_error:     the largest |H − H(0)|; where forces act, that of H − work
    energy_drift:     of the energy per unit of time, by least squares
    momentum:         the largest deviation of a momentum map, relative to Σ|p||ξ|; NaN without symmetries
    constraint:       the largest |g(q)|; NaN without a constraint
    seconds:          CPU time per unit of simulated time
    """

    method: str
    order: int
    dt: float
    steps: int
    error: float
    energy_error: float
    energy_drift: float
    momentum: float
    constraint: float
    seconds: float
    engine: str

    @property
    def usable(self) -> bool:
        """Whether the motion is computed at all."""
        return bool(self.error < 0.3)


class Motion:
    """A motion that is known at `SAMPLES` times up to t_end.

    system, start:  what moves, with lengths that are not stated measured at the start
    exact:          the positions at these times
    accuracy:       of the reference
    size:           the largest displacement from the start
    """

    def __init__(self, system: Stated, start: Point, t_end: float, dt: float):
        self.system, self.start, self.t_end = system, start, t_end
        times = t_end * np.arange(1, SAMPLES + 1) / SAMPLES
        exact, self.accuracy = reference(system, start, times, min(dt, t_end / SAMPLES))
        self.exact = np.asarray(exact.q)
        self.size = float(np.max(np.abs(self.exact - np.asarray(start.q))))
        if not self.size > 0:
            raise MeasurementError("nothing moves from this start, so nothing can be measured; start elsewhere.")
        self._seconds: dict[Any, tuple[float, str]] = {}  # of a step, by method and, for iterations, by the step
        self._points: dict[tuple[str, int], Measured] = {}

    @property
    def points(self) -> list[Measured]:
        """All that was measured."""
        return list(self._points.values())

    def measured(self, method: Method, steps: int) -> Measured:
        """The method with about so many steps up to t_end: a multiple of the number of samples."""
        every = max(1, round(steps / SAMPLES))
        key = method.name, every
        if key not in self._points:
            self._points[key] = self._measured(method, every)
        return self._points[key]

    def timed_again(self, method: Method, point: Measured) -> Measured:
        """The point with the smaller of its cost and that of another measurement."""
        seconds, _ = cpu_seconds(self.system, self.start, method, point.dt, point.steps)
        return dataclasses.replace(point, seconds=min(point.seconds, seconds / point.dt))

    def _measured(self, method: Method, every: int) -> Measured:
        steps = SAMPLES * every
        dt = self.t_end / steps
        seconds, engine = self.seconds_per_step(method, dt, steps)
        run = self._run(method, dt, every, engine) if seconds * steps < SECONDS else None
        nothing = dict.fromkeys(("error", "energy_error", "energy_drift", "momentum", "constraint"), math.nan)
        errors = nothing if run is None else self._errors(run, every)
        return Measured(
            method.name, method.traits.order, dt, steps, **errors, seconds=seconds / dt, engine=engine.split()[0]
        )

    @unwatched()
    def _run(self, method: Method, dt: float, every: int, engine: str) -> Trajectory | None:
        """The run, with all steps where they fit into memory: they show the drift of the energy. None where it stops,
        or where its energy error exceeds the scale of the energy."""
        dense = every * SAMPLES * self.exact[0].size < 10**6
        settings = {"dt": dt, "t_end": self.t_end, "save_every": 1 if dense else every, "engine": engine.split()[0]}
        try:
            run = simulate(self.system, self.start.q, p0=self.start.p, method=method, **settings)
        except (RunStopped, GeomintError):
            return None
        return run if excess(run) is None else None

    def _errors(self, run: Trajectory, every: int) -> dict[str, float]:
        rows = slice(run.grid.steps // SAMPLES // run.grid.save_every, None, every // run.grid.save_every)
        apart = np.asarray(run.q[rows]) - self.exact
        energy = np.asarray(run.balance_error)
        momentum = momentum_deviation(run, self.start)
        residual = np.asarray(run.constraint_residual)
        return {
            "error": float(np.max(np.abs(apart)) / self.size),
            "energy_error": float(np.max(np.abs(energy))),
            "energy_drift": float(np.polyfit(run.t, energy, 1)[0]),
            "momentum": max(momentum.values(), default=math.nan),
            "constraint": float(np.max(np.abs(residual))) if residual.size else math.nan,
        }

    def seconds_per_step(self, method: Method, dt: float, steps: int) -> tuple[float, str]:
        """CPU seconds of a step, by the engine that "auto" chooses for long runs, and the name of that engine. The cost
        of a step of an explicit method does not depend on its length, and is measured once."""
        key = method.name if method.traits.forces is not None and self.system.constraint is None else (method.name, dt)
        if key not in self._seconds:
            self._seconds[key] = cpu_seconds(self.system, self.start, method, dt, steps)
        return self._seconds[key]


def cpu_seconds(system: Stated, start: Point, method: Method, dt: float, steps: int) -> tuple[float, str]:
    """CPU seconds of a step on the first `steps` steps of a motion, and the engine. The compiled program is called
    directly, without the host loop, so that short runs are timed without its overhead."""
    ready = protocols.prepare(method, [(system, start.q)])
    runner = choose("auto")(ready, system, Clock.of(0.0, dt), run_steps=math.inf)
    carry, _ = runner.begin(initial_state(np.asarray(start.q), np.asarray(start.p), 0.0, 0, compensated=False))
    buffer = runner.buffer()

    def timed(count: int, calls: int) -> float:
        nonlocal buffer
        began = time.process_time()
        for _ in range(calls):
            end, buffer = runner.advance(carry, 0, count, 1, buffer)
            jax.block_until_ready(end)
        return time.process_time() - began

    timed(1, 1)  # compiles
    count, calls = min(steps, 64), 1
    taken = timed(count, calls)
    while taken < TIMED / 4 and (count < steps or calls < 1000):
        count, calls = (min(steps, 4 * count), 1) if count < steps else (count, 4 * calls)
        taken = timed(count, calls)
    # The overhead of a call, which long runs do not have, is that of a call of no steps.
    repeats = REPEATED if taken < SECONDS / 10 else 1
    taken = min(taken, *(timed(count, calls) for _ in range(repeats)))
    idle = min(timed(0, calls) for _ in range(repeats)) if calls > 1 or count < 1000 else 0.0
    return max(taken - idle, 0.05 * taken) / (count * calls), runner.described


def cost_of_force(system: Stated, start: Point) -> float:
    """CPU seconds of a force, compiled by itself."""
    q = np.asarray(start.q, float)
    times = []
    for _ in range(REPEATED):
        began = time.process_time()
        jax.block_until_ready(_forces(system, q, FORCES))
        times.append(time.process_time() - began)
    return min(times) / FORCES


@jit
def _forces(system: Stated, q: Array, count: Any) -> Array:
    """So many forces, one after another."""
    mech = derive(system, q.shape, jnp.zeros(()))
    return jax.lax.fori_loop(0, count, lambda _, x: x + 1e-300 * mech.force(x), q)


def known_motion(system: Stated, start: Point, t_end: float | None, longest: float, dt: float) -> Motion:
    """The motion up to t_end; where it is not given, up to `longest`, or as far as two references agree: errors of a
    chaotic motion grow without bound."""
    if t_end is not None:
        return Motion(system, start, t_end, dt)
    length = min(longest, STEPS_OF_MODEL * dt)
    while True:
        try:
            return Motion(system, start, length, dt)
        except MeasurementError:
            if length <= SHORTEST * dt:
                raise
            length = max(SHORTEST * dt, length / 4)
