"""The order of a method, measured: the exponent r of the error c·hʳ as h → 0."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import RunStopped
from ..methods import Method
from ..run import simulate
from ..run.instability import unwatched
from ..system.spaces import differences
from ..system.system import Stated
from .reference import Point, reference

FEWEST = 6  # steps to fit a slope to


class Order(NamedTuple):
    order: float  # the smaller of the two slopes
    slopes: tuple[float, float]  # in q and p
    uncertainties: tuple[float, float]  # of the slopes
    steps: tuple[float, ...]
    errors: tuple[tuple[float, float], ...]  # in q and p, root mean square over the sampled times, relative
    closest: float  # the smallest error of all steps, the larger one of q and p


class Sampling(NamedTuple):
    """At which times the error is sampled, and by which factors the step is reduced."""

    times: int  # sampled times
    coarsest: int  # dt between two of them: the number of steps there at the largest step
    fineness: int  # consecutive steps differ by the factor 1 + 1/fineness, as far as whole numbers allow
    refinements: int  # the step shrinks by 2^(refinements/2) in all


def _sampling(method: Method, system: Stated) -> Sampling:
    """Parasitic components of a multistep method oscillate and fade late, just above round-off: it is sampled over a
    longer time, at more times, with steps closer to each other. On a manifold they are larger and need the longest
    time. For other methods terms of higher order grow with time and hide the leading one. At high order few steps lie
    above round-off, so that steps must be closer to each other."""
    if method.traits.steps > 2:
        return Sampling(64 if system.constraint is None else 128, 1, 32, 12)
    return Sampling(16, 2, max(4, 2 * method.traits.order), 14)


@unwatched()
def order(
    method: Method, system: Stated, at: Point, dt: float, refinements: int | None = None, engine: str = "auto"
) -> Order:
    """The exponent r of the error c·hʳ as h → 0, in q and in p. The step shrinks from dt by 2^(refinements/2) in all,
    or until the error is round-off.

    The reference runs on the same engine. Sums are compensated, which lowers round-off far enough for the order of an
    eighth-order method to show.
    """
    multistep = method.traits.steps > 2
    times, coarsest, fineness, usual = _sampling(method, system)
    refinements = usual if refinements is None else refinements
    exact, floor = reference(system, at, coarsest * dt * np.arange(1, times + 1), dt, engine)
    # g(q) = 0 holds to round-off, so that multipliers are known to eps/h²; their errors add up in p along the run.
    floors = (floor, max(floor, 1e-13) if multistep and system.constraint is not None else floor)
    steps, errors, n, closest = [], [], coarsest, np.inf
    while n <= coarsest * 2 ** (refinements / 2):
        h = coarsest * dt / n
        every, n = n, n + max(1, n // fineness)
        settings = {"dt": h, "t_end": times * coarsest * dt, "save_every": every}
        try:
            run = simulate(system, at.q, p0=at.p, method=method, compensated=True, engine=engine, **settings)
        except RunStopped:  # not stable yet
            continue
        apart = (differences(system, run.q[1:], exact.q), run.p[1:] - exact.p)
        pair = [np.ravel(x) / np.max(np.abs(y)) for x, y in zip(apart, exact, strict=True)]
        closest = min(closest, max(map(_size, pair)))
        if not max(np.max(np.abs(error)) for error in pair) < 0.1:  # not convergent yet
            continue
        if all(_size(error) < least for error, least in zip(pair, floors, strict=True)):
            break
        steps.append(h)
        errors.append(pair)
    power = 2 if method.traits.symmetric and not system.driven else 1
    found = [fitted_slope(np.array(steps), [e[i] for e in errors], floors[i], power) for i in range(2)]
    slopes, uncertainties = zip(*found, strict=True)
    sizes = tuple((_size(q), _size(p)) for q, p in errors)
    return Order(float(np.min(slopes)), slopes, uncertainties, tuple(steps), sizes, closest)


def _size(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(error**2)))


def fitted_slope(steps: np.ndarray, errors: list[np.ndarray], floor: float, power: int) -> tuple[float, float]:
    """r and its uncertainty from the expansion e(h) = hʳ(e₀ + hᵐe₁ + …), m = 2 for symmetric methods, 1 for others.

    Errors e(h) are vectors over all sampled times and coordinates. Projected on the error at the finest step h₀ of a
    window of steps, rounding and oscillations average out, and  log⟨e(h), e(h₀)⟩ = c + r log h + d hᵐ + O(h²ᵐ)  is
    fitted by least squares. The uncertainty is the standard error of r, together with the square of the change of r by
    the term dhᵐ, which is the size of the next term. Windows end within twice the finest step above the floor and span
    a factor √2 … 4; the one with the smallest uncertainty is used. (NaN, ∞) where there is none.
    """
    above = next((k for k, error in enumerate(errors) if _size(error) < floor), len(errors))
    best = (np.nan, np.inf)
    for end in range(FEWEST, above + 1):
        for begin in range(end - FEWEST + 1):
            h = steps[begin:end] / steps[end - 1]
            along = np.array([e @ errors[end - 1] for e in errors[begin:end]])
            if steps[end - 1] > 2 * steps[above - 1] or not 1.4 < h[0] < 4 or np.min(along) <= 0:
                continue
            terms = np.stack([np.ones_like(h), np.log(h), h**power], axis=1)
            fit, square, *_ = np.linalg.lstsq(terms, np.log(along))
            scatter = np.sqrt(square[0] / (len(h) - 3) * np.linalg.inv(terms.T @ terms)[1, 1])
            change = fit[1] - np.polyfit(np.log(h), np.log(along), 1)[0]
            if (uncertainty := np.hypot(scatter, change**2)) < best[1]:
                best = (float(fit[1]), float(uncertainty))
    return best
