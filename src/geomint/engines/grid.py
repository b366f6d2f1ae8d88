"""The grid of times of a run: whole steps from t0 to t_end, saved every so many."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jax.core import Tracer

from ..errors import InputError
from ..system.checks import number, whole

MOST_STEPS = 2**53  # beyond, the integer n is not exact as a float
TRIED = 10**5  # candidates tried for a divisor of the number of steps


@dataclasses.dataclass(frozen=True)
class Grid:
    """Step n is at t0 + n·dt, n = 0 … steps; n = 0, save_every, 2 save_every, … are saved."""

    t0: float
    dt: float
    steps: int
    save_every: int

    @property
    def saves(self) -> int:
        """Saved points, the initial one included."""
        return self.steps // self.save_every + 1

    def times(self, first: int = 0, count: int | None = None) -> np.ndarray:
        """The times of saved points first, first + 1, …"""
        count = self.saves - first if count is None else count
        return self.t0 + np.arange(first, first + count) * self.save_every * self.dt

    @property
    def t_end(self) -> float:
        return self.t0 + self.steps * self.dt


def _number(name: str, x: Any) -> float:
    if isinstance(x, Tracer):
        raise InputError(
            f"{name} must be a plain number: it decides how many steps there are. "
            "Inside jax.jit or jax.grad, close over it."
        )
    return number(x, name)


def grid(dt: Any, t_end: Any, t0: Any = 0.0, save_every: Any = 1, only_t_end: bool = False) -> Grid:
    """The grid, or an error that names the nearest values that fit; with only_t_end, those of t_end alone."""
    dt, t_end, t0 = _number("dt", dt), _number("t_end", t_end), _number("t0", t0)
    save_every = whole(save_every, "save_every", least=1)
    if dt <= 0:
        raise InputError(f"dt must be positive, not {dt:g}.")
    if t_end < t0:
        raise InputError(f"t_end = {t_end:g} lies before t0 = {t0:g}.")
    exact = (t_end - t0) / dt if t_end - t0 < MOST_STEPS * dt else math.inf
    if exact >= MOST_STEPS:
        message = f"from t0 = {t0:g} to t_end = {t_end:g} there are more than 2**53 steps of dt = {dt:g}"
        raise InputError(f"{message}; take a larger dt or an earlier t_end.")
    steps = round(exact)
    # The quotient contains rounding errors of t_end, t0 and dt, a few units in the last place each.
    times_rounding = 4 * np.finfo(float).eps * max(abs(t_end), abs(t0)) / dt
    if abs(exact - steps) > 1e-6 + times_rounding:
        below, above = max(1, math.floor(exact)), math.ceil(exact)
        steps_of_dt = [_digits((t_end - t0) / n, dt / n) for n in (above, below)]
        raise InputError(
            f"t_end − t0 = {t_end - t0:g} is {exact:.6g} steps of dt = {dt:g}, not a whole number. Nearest that fit: "
            f"t_end = {_digits(t0 + below * dt, dt)} or {_digits(t0 + above * dt, dt)}"
            + ("." if only_t_end else f"; or dt = {' or '.join(steps_of_dt)}.")
        )
    if steps % save_every:
        ends = [t0 + k * save_every * dt for k in (steps // save_every, steps // save_every + 1) if k]
        later = f"t_end = {' or '.join(_digits(end, dt) for end in ends)}"
        what = f"save_every = {save_every} does not divide the {steps} steps of the run. Nearest that"
        if only_t_end:
            raise InputError(f"{what} fit: {later}.")
        raise InputError(f"{what} do: {_divisors_near(save_every, steps)}; or {later}.")
    return Grid(t0, dt, steps, save_every)


def whole_saves(t_end: float, dt: float, save_every: int) -> float:
    """The default t_end of a model, moved to a whole number of saves. Bad input is returned as it is and refused
    later."""
    if not (dt > 0 and save_every >= 1 and t_end / dt < 2**53):
        return t_end
    saves = round(t_end / (dt * save_every))
    if saves:
        return saves * save_every * dt
    return max(1, round(t_end / dt)) * dt  # a single save would lie far beyond the model's t_end


def _digits(x: float, dt: float) -> str:
    """x with as many digits as it takes to be a whole number of steps when it is read again."""
    return next((text for n in (12, 15) if abs(float(text := f"{x:.{n}g}") - x) < 1e-9 * dt), repr(x))


def _divisors_near(k: int, n: int) -> str:
    below = next((d for d in range(min(k, n), max(0, min(k, n) - TRIED), -1) if n % d == 0), 1)
    above = next((d for d in range(k, min(n, k + TRIED) + 1) if n % d == 0), n)
    return f"{below} or {above}" if below != above else f"{below}"
