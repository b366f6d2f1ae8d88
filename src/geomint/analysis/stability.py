"""Linear stability, computed from a method's own step on the harmonic oscillator.

One step of a method on a linear system is a matrix. Where all its eigenvalues lie in the unit disc, the motion stays
bounded; where one lies outside, the motion grows like ρⁿ, ρ the spectral radius. The matrix is the derivative of the
step that a run makes, not a formula for it.

    without a fast part    q̈ = −q, over the step h, which is hω
    with one               V = ½q², W = ½ω²q², over hω at a fixed h, or over h at a fixed ω

Methods for constrained systems only: the same oscillator as two bodies of mass ½ constrained to move together, with the
springs on the first alone, so that the constraint transmits forces. The motion along the constraint is tested.

One-step methods: the 2×2 derivative of (q, p). Where its determinant is 1, as it is for symplectic and for symmetric
methods, the test is |trace| ≤ 2, which is smooth in hω: resonance windows between the points of the grid are found as
its maxima. Methods with a history: the derivative of the whole carry. Its eigenvalues are the roots of ρ(ζ) +
(hω)²σ(ζ), and zeros and ones for what is only stored. Their windows are found only where a point of the grid lies
inside.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from ..errors import InputError
from ..methods import Method, State, as_method, protocols
from ..numerics.compilation import jit
from ..numerics.keywords import checked_keywords
from ..system.checks import number, whole
from ..system.lagrangian import derive
from ..system.system import System
from .measure import step_jacobian

BATCH = 1024  # steps and frequencies at a time: one shape, so that a method is compiled once
PARTS = 8  # into which an interval is cut in each round of a search
ROUNDS = 14  # 8¹⁴ cuts an interval of the grid down to round-off
TRACE = 1e-12  # |trace|/2 may exceed 1 by this
RADIUS = 1e-7  # a spectral radius may, since double eigenvalues are known to √eps only
ROUNDING = 10 * float(np.finfo(float).eps)  # times (hω)², the condition of implicit stages: error of a matrix by them
MOST = 10**6  # points, and hω: beyond, a diagram takes too much memory
LISTED = 8  # resonances named by str()

Range = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class StabilityDiagram:
    """Where a method is stable; `str` prints it, `plot` draws it.

    method:       its name
    frequencies:  hω (with `omega`: h), ascending
    growth:       the spectral radius there, the factor by which the motion grows in a step
    unstable:     the intervals in which it grows, with ends accurate to about 1e-7; the last may end at the largest
                  frequency
    h, omega:     of a method with a fast part: the step, or the frequency, that was held fixed
    """

    method: str
    frequencies: np.ndarray
    growth: np.ndarray
    unstable: tuple[Range, ...]
    h: float | None = None
    omega: float | None = None

    @property
    def limit(self) -> float:
        """The method is stable from 0 to here; inf where it is stable up to the largest frequency."""
        return self.unstable[0][0] if self.unstable else math.inf

    @property
    def resonances(self) -> tuple[Range, ...]:
        """The unstable intervals beyond which it is stable again."""
        return tuple(i for i in self.unstable if i[1] < self.frequencies[-1])

    @property
    def last(self) -> float:
        """From here on the method is unstable: the limit, apart from resonances; inf where there is none."""
        return self.unstable[-1][0] if self.unstable and self.unstable[-1][1] >= self.frequencies[-1] else math.inf

    @property
    def variable(self) -> str:
        """What the frequencies are."""
        return "hω" if self.omega is None else "h"

    def __str__(self) -> str:
        held = (
            f" at h = {self.h:g}" if self.h is not None else f" at ω = {self.omega:g}" if self.omega is not None else ""
        )
        if not self.unstable:
            return f"{self.method}{held}: stable for every {self.variable} up to {self.frequencies[-1]:.6g}"
        if self.unstable[0] == (0.0, self.frequencies[-1]):
            return f"{self.method}{held}: unstable for every {self.variable} up to {self.frequencies[-1]:.6g}"
        lines = [f"{self.method}{held}: stable for {self.variable} up to {self.limit:.6g}"]
        lines += [
            f"  resonance {a:.6g} … {b:.6g} (width {b - a:.2g}, growth up to {self._worst(a, b):.6g} a step)"
            for a, b in self.resonances[:LISTED]
        ]
        if len(self.resonances) > LISTED:
            lines.append(f"  and {len(self.resonances) - LISTED} more")
        if self.resonances and math.isfinite(self.last):
            lines.append(f"  unstable from {self.last:.6g} on")
        return "\n".join(lines)

    def _worst(self, low: float, high: float) -> float:
        inside = (self.frequencies >= low) & (self.frequencies <= high)
        return float(np.max(self.growth[inside], initial=1.0))

    def plot(self, path: str | Path | None = None) -> Any:
        """The growth factor, with the unstable intervals shaded; written to `path` where one is given."""
        from ..plots.figures import checked_path, new_figure, save_figure

        path = None if path is None else checked_path(path)
        figure = new_figure(8.0, 3.4)
        axes = figure.subplots()
        top = min(2.0, max(1.001, 1.05 * float(np.nanmax(np.where(np.isfinite(self.growth), self.growth, 2.0))) - 0.05))
        low = min(1.0, float(np.nanmin(self.growth)))
        for a, b in self.unstable:
            axes.axvspan(a, b, color="C3", alpha=0.18, lw=0.8)
        axes.plot(self.frequencies, np.minimum(self.growth, 10.0), color="C0", lw=1.4)
        wide = min(self.frequencies[-1], 1.25 * self.last) or self.frequencies[-1]  # beyond there is nothing to see
        axes.set(
            xlim=(0, wide),
            ylim=(low - 0.08 * (top - low), top),
            xlabel=self.variable,
            ylabel="growth a step",
            title=str(self).splitlines()[0],
        )
        axes.title.set_fontsize(10)
        axes.grid(alpha=0.25)
        if path is not None:
            save_figure(figure, path)
        return figure


@checked_keywords
def stability_diagram(
    method: Method,
    *,
    largest: float | None = None,
    points: int = 2000,
    h: float | None = None,
    omega: float | None = None,
) -> StabilityDiagram:
    """Where a method is stable on the harmonic oscillator, computed from its own step.

    largest:  the largest hω (with `omega`: h); by default 20, or 4.5π for methods with a fast part, or 4 where h varies
    points:   of the grid; for one-step methods narrower resonance windows are found too
    h:        of a method with a fast part: the step, in units of the slow frequency, held fixed while ω varies (.1)
    omega:    instead: the fast frequency held fixed while h varies
    """
    method = as_method(method)
    traits = method.traits
    if traits.event_driven:
        raise InputError(f"{method.name} chooses its own times; there is no step whose stability could be asked for.")
    if traits.stochastic:
        raise InputError(f"{method.name} draws random numbers; ask for the stability of its base.")
    fast = "fast" in traits.needs
    if not fast and (h is not None or omega is not None):
        raise InputError(
            f"h and omega are for methods with a fast part, and {method.name} has none: its diagram is over hω."
        )
    if h is not None and omega is not None:
        raise InputError("give h or omega, not both: the other one varies.")
    callee = "stability_diagram"
    h = 0.1 if fast and h is None and omega is None else h
    usual = 4.0 if omega is not None else 4.5 * math.pi if fast else 20.0
    h, omega = (None if x is None else number(x, name, callee, above=0.0) for x, name in ((h, "h"), (omega, "omega")))
    end = number(usual if largest is None else largest, "largest", callee, above=0.0, most=MOST)
    points = whole(points, "points", callee, least=3, most=MOST)
    grid = np.linspace(0, end, points + 1)[1:]
    grid = np.concatenate([grid[0] * 0.5 ** np.arange(20, 0, -1), grid])  # the limit may lie before the first point
    if fast and omega is None:
        # Resonances are expected at multiples of π. Exactly there some filters are 0/0 and rounding decides.
        grid = np.union1d(grid, np.pi * np.arange(1, int(end / np.pi) + 1) - 1e-6)
    growth = functools.partial(_growth, *_problem(method, fast), h, omega)
    x, excess, radius = grid, *growth(grid)
    if traits.steps <= 2:
        x, excess, radius = _with_peaks(growth, x, excess, radius)
    unstable = _intervals(growth, x, excess > 0)
    inner = _between(
        *(np.array([i[side] for i in unstable if i[1] - i[0] < 20 * end / points]) for side in (0, 1))
    ).ravel()
    if len(inner):  # resolve narrow windows
        x, kept = np.unique(np.concatenate([x, inner]), return_index=True)
        radius = np.concatenate([radius, growth(inner)[1]])[kept]
    return StabilityDiagram(method.name, x, radius, unstable, h, omega)


# --- the linear problem and the matrix of a step ----------------------------------------------------------------------
def _slow(q: Array, square: Array) -> Array:
    return 0.5 * q[0] ** 2


def _fast(q: Array, square: Array) -> Array:
    return 0.5 * square * q[0] ** 2


def _equal_positions(q: Array, square: Array) -> Array:
    return jnp.diff(q)


def _problem(method: Method, fast: bool) -> tuple[Method, System, Array]:
    """The prepared method, the oscillator, and a position: one body, or two constrained ones; their total mass is 1."""
    at = jnp.ones(1 if method.traits.free else 2)
    constraint = None if method.traits.free else _equal_positions
    system = System(
        potential=_slow, fast=_fast if fast else None, constraint=constraint, mass=1 / at.size, params=jnp.asarray(1.0)
    )
    method.check(system)
    return protocols.prepare(method, [(system, np.asarray(at))]), system, at


@jit
def _one_step(method: Method, system: System, at: Array, h: Array, omega: Array) -> Array:
    """The derivative of a step, for each h and ω; of tied bodies, that of the motion they share."""

    def matrix(h: Array, w: Array) -> Array:
        whole = step_jacobian(method, system.with_params(w**2), at, 0.5 * at, h)
        return whole.reshape(2, at.size, 2, at.size).sum((1, 3)) / at.size

    return jax.vmap(matrix)(h, omega)


@jit
def _of_history(method: Method, system: System, at: Array, h: Array, omega: Array) -> Array:
    """The derivative of a step with respect to all floats of the carry."""

    def matrix(h: Array, w: Array) -> Array:
        mech = derive(system.with_params(w**2), at.shape)
        # At rest the derivative with respect to tables that the carry may hold vanishes.
        rest = jnp.zeros_like(at)
        carry = method.init(mech, State(rest, rest, jnp.zeros(()), jnp.zeros(2, jnp.uint32)), h)
        floats, others = _split_floats(carry)
        flat, unravel = ravel_pytree(floats)
        step = lambda y: ravel_pytree(_split_floats(method.step(mech, _merge_floats(unravel(y), others), h))[0])[0]
        return jax.jacfwd(step)(flat)

    return jax.vmap(matrix)(h, omega)


def _split_floats(tree: Any) -> tuple[list[Any], Any]:
    leaves, structure = jax.tree.flatten(tree)
    is_float = [jnp.issubdtype(jnp.result_type(x), jnp.floating) for x in leaves]
    return [x for x, yes in zip(leaves, is_float, strict=True) if yes], (leaves, is_float, structure)


def _merge_floats(floats: list[Any], others: Any) -> Any:
    leaves, is_float, structure = others
    new = iter(floats)
    return jax.tree.unflatten(structure, [next(new) if yes else x for x, yes in zip(leaves, is_float, strict=True)])


def _growth(
    method: Method, system: System, at: Array, h: float | None, omega: float | None, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The excess over the stability bound (positive where unstable) and the spectral radius, at each x."""
    if h is not None:
        steps, frequencies = np.full_like(x, h), x / h
    else:
        steps, frequencies = x, np.full_like(x, 1.0 if omega is None else omega)
    make = _one_step if method.traits.steps <= 2 else _of_history
    batches = np.pad(np.stack([steps, frequencies]), ((0, 0), (0, -len(x) % BATCH)), mode="edge").reshape(2, -1, BATCH)
    matrices = np.concatenate([np.asarray(make(method, system, at, *pair)) for pair in batches.swapaxes(0, 1)])[
        : len(x)
    ]
    rounding = ROUNDING * (steps * frequencies) ** 2
    return _planar(matrices, rounding) if matrices.shape[-1] == 2 else _general(matrices, rounding)


def _planar(j: np.ndarray, rounding: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`_growth` of 2×2 matrices, by trace and determinant; where the determinant is 1, by the trace alone."""
    with np.errstate(all="ignore"):
        straight, crossed = j[:, 0, 0] * j[:, 1, 1], j[:, 0, 1] * j[:, 1, 0]
        det, half = straight - crossed, 0.5 * (j[:, 0, 0] + j[:, 1, 1])
        size = np.maximum(1.0, np.maximum(np.abs(straight), np.abs(crossed)))
        preserved = np.abs(det - 1) < 1e-9 * size + rounding
        det = np.where(preserved, 1.0, det)
        apart = half**2 - det
        radius = np.where(apart > 0, np.abs(half) + np.sqrt(np.maximum(apart, 0)), np.sqrt(np.abs(det)))
        of_trace = np.abs(half) - 1 - TRACE - 1e-14 * np.sqrt(size)
        excess = np.where(preserved, of_trace, radius - 1 - RADIUS) - rounding
        radius = np.where(preserved & (excess <= 0), 1.0, radius)
    overflow = ~np.isfinite(j).all(axis=(1, 2))
    return np.where(overflow, np.inf, excess), np.where(overflow, np.inf, radius)


def _general(j: np.ndarray, rounding: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    finite = np.isfinite(j).all(axis=(1, 2), keepdims=True)
    radius = np.max(np.abs(np.linalg.eigvals(np.where(finite, j, 0.0))), axis=1)
    radius = np.where(np.ravel(finite), radius, np.inf)
    return radius - 1 - RADIUS - rounding, radius


# --- the search -------------------------------------------------------------------------------------------------------
Growth = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def _between(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """(intervals, PARTS + 1) points of each."""
    return low[:, None] + (high - low)[:, None] * np.linspace(0, 1, PARTS + 1)


def _with_peaks(
    growth: Growth, x: np.ndarray, excess: np.ndarray, radius: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Add to the grid the local maxima of the excess that are unstable although the grid points around them are not."""
    left, right = np.append(x[0], x[:-1]), np.append(x[1:], x[-1])
    around = np.pad(excess, 1, constant_values=-np.inf)
    peak = (excess <= 0) & (excess >= around[:-2]) & (excess >= around[2:])
    low, high = left[peak], right[peak]
    found: list[np.ndarray] = []
    for _ in range(ROUNDS // 2):
        if not len(low):
            break
        trial = _between(low, high)
        value = growth(trial.ravel())[0].reshape(trial.shape)
        best = np.argmax(value, axis=1)
        rows = np.arange(len(trial))
        done = value[rows, best] > 0
        found.append(trial[rows, best][done])
        low, high = (trial[rows, np.clip(best + side, 0, PARTS)][~done] for side in (-1, 1))
    more = np.concatenate(found) if found else np.zeros(0)
    if not len(more):
        return x, excess, radius
    more_excess, more_radius = growth(more)
    x, excess, radius = (np.concatenate(pair) for pair in ((x, more), (excess, more_excess), (radius, more_radius)))
    order = np.argsort(x)
    return x[order], excess[order], radius[order]


def _intervals(growth: Growth, x: np.ndarray, grows: np.ndarray) -> tuple[Range, ...]:
    """The unstable stretches of the grid, their ends found by cutting the intervals in which stability changes."""
    change = np.flatnonzero(grows[1:] != grows[:-1])
    low, high, before = x[change], x[change + 1], grows[change]
    for _ in range(ROUNDS):
        if not len(low):
            break
        trial = _between(low, high)
        state = growth(trial[:, 1:-1].ravel())[0].reshape(len(low), PARTS - 1) > 0
        flipped = np.concatenate([state != before[:, None], np.ones((len(low), 1), bool)], axis=1)
        first = np.argmax(flipped, axis=1)
        rows = np.arange(len(low))
        low, high = trial[rows, first], trial[rows, first + 1]
    ends = [float(e) for e in 0.5 * (low + high)]
    ends = [0.0] * bool(grows[0]) + ends + [float(x[-1])] * bool(grows[-1])
    return tuple(zip(ends[::2], ends[1::2], strict=True))
