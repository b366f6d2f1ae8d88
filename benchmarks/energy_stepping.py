"""Energy-stepping on seven argon atoms: events a second, compared with a loop by hand in numba; 1000 clusters at
once.

By hand: pairs written out, the jet (V, V', V'') along the ray from r² = α + 2βt + γt², an exit by the root of the
parabola at the last trial, repeated until V is on the edge to rounding. It has no proof that no earlier exit
was missed, no log and no saves: a lower bound of the cost. Trajectories are chaotic, so that only rates and means are
compared.
"""

from __future__ import annotations

import functools
import warnings

import numba
import numpy as np

import geomint as gm

from .timing import best_times, table

E0 = 10.519254 * 24932.594
PARTS = (100, 60, 30)
SPAN = 1.0  # nanoseconds
MEMBERS = 1000
MODEL = gm.models.argon_cluster()


# --- by hand ----------------------------------------------------------------------------------------------------------
@numba.njit(fastmath=False, error_model="numpy")
def _jet(x, v, t, epsilon, sigma2):
    """V and its first two derivatives along x + t v."""
    f, slope, bend = 0.0, 0.0, 0.0
    for i in range(7):
        for j in range(i):
            dx, dy = x[2 * i] - x[2 * j], x[2 * i + 1] - x[2 * j + 1]
            ux, uy = v[2 * i] - v[2 * j], v[2 * i + 1] - v[2 * j + 1]
            dx, dy = dx + t * ux, dy + t * uy
            per = 1.0 / (dx * dx + dy * dy)
            rate, turn = 2.0 * (dx * ux + dy * uy) * per, 2.0 * (ux * ux + uy * uy) * per
            y = (sigma2 * per) ** 3
            f += y * (y - 1.0)
            slope -= 3.0 * y * (2.0 * y - 1.0) * rate
            bend += 3.0 * y * ((14.0 * y - 4.0) * rate * rate - (2.0 * y - 1.0) * turn)
    return 4.0 * epsilon * f, 4.0 * epsilon * slope, 4.0 * epsilon * bend


@numba.njit(fastmath=False, error_model="numpy")
def _root(w, rate, bend):
    """The first positive root of w + rate t + ½ bend t², or infinity."""
    under = rate * rate - 2.0 * w * bend
    if under < 0.0:
        return np.inf
    root = np.sqrt(under)
    if rate < 0.0:
        return 2.0 * w / (root - rate)
    return (rate + root) / -bend if bend < 0.0 else np.inf


@numba.njit(fastmath=False, error_model="numpy")
def _gradient(x, n, epsilon, sigma2):
    """The gradient of the potential into n."""
    for k in range(14):
        n[k] = 0.0
    for i in range(7):
        for j in range(i):
            dx, dy = x[2 * i] - x[2 * j], x[2 * i + 1] - x[2 * j + 1]
            per = 1.0 / (dx * dx + dy * dy)
            y = (sigma2 * per) ** 3
            g = -24.0 * epsilon * y * (2.0 * y - 1.0) * per
            n[2 * i] += g * dx
            n[2 * i + 1] += g * dy
            n[2 * j] -= g * dx
            n[2 * j + 1] -= g * dy


@numba.njit(fastmath=False, error_model="numpy")
def _impulse(v, n, jump):
    """Refraction of v at a jump of the potential with normal n, or reflection, for which it returns True."""
    across, k2 = 0.0, 0.0
    for k in range(14):
        across += n[k] * v[k]
        k2 += n[k] * n[k]
    reflects = across * across <= 2.0 * jump * k2
    if reflects:
        impulse = -2.0 * across / k2
    else:
        impulse = -2.0 * jump / (across + np.sign(jump) * np.sqrt(across * across - 2.0 * jump * k2))
    for k in range(14):
        v[k] += impulse * n[k]
    return reflects


@numba.njit(fastmath=False, error_model="numpy")
def _step_back(g, rate, curve):
    """Where the parabola that is g < 0 here, and falls, was 0; −∞ where it does not fall."""
    if rate < 0.0:
        return 2.0 * g / (np.sqrt(max(rate * rate - 2.0 * g * curve, 0.0)) - rate)
    return -np.inf


@numba.njit(fastmath=False, error_model="numpy")
def _events(x, v, height, base, epsilon, sigma2, until):
    """(events, reflections, evaluations) up to a time; x and v in place."""
    t, events, reflections, jets = 0.0, 0, 0, 1
    f, slope, bend = _jet(x, v, 0.0, epsilon, sigma2)
    level = np.floor((f - base) / height)
    low = (f - base) / height - level
    n = np.empty(14)
    while True:
        a, wa, ra, ba = 0.0, low, slope / height, bend / height
        reach = np.inf
        rising = False
        for _ in range(60):
            down, up = _root(wa, ra, ba), _root(1.0 - wa, -ra, -ba)
            step = min(down, up, 0.25 * 0.341 / np.max(np.abs(v)))
            if a + step >= reach or not step > 0.0:
                step = 0.5 * (reach - a)
            b = a + step
            f, slope, bend = _jet(x, v, b, epsilon, sigma2)
            jets += 1
            w = (f - base) / height - level
            if -1e-12 < w < 1.0 + 1e-12 and min(abs(w), abs(1.0 - w)) < 1e-12 and (slope > 0.0) == (w > 0.5):
                a, rising = b, w > 0.5
                break
            if w < 0.0 or w > 1.0:  # beyond: back, by the parabola there, or by halves
                reach, rising = b, w > 1.0
                g, rate, curve = (
                    (1.0 - w, -slope / height, -bend / height) if rising else (w, slope / height, bend / height)
                )
                back = _step_back(g, rate, curve)
                if abs(back) < 1e-13 * b or a + 1e-16 > b:
                    a = b
                    break
                if a < b + back < b:
                    f, slope, bend = _jet(x, v, b + back, epsilon, sigma2)
                    jets += 1
                    w = (f - base) / height - level
                    if abs(1.0 - w if rising else w) < 1e-12:
                        a = b + back
                        break
                    if 0.0 < w < 1.0:
                        a, wa, ra, ba = b + back, w, slope / height, bend / height
                    else:
                        reach = b + back
                continue
            a, wa, ra, ba = b, w, slope / height, bend / height
        if t + a > until:
            return events, reflections, jets
        t += a
        for k in range(14):
            x[k] += a * v[k]
        _gradient(x, n, epsilon, sigma2)
        events += 1
        if _impulse(v, n, height if rising else -height):
            reflections += 1
            low = 1.0 if rising else 0.0
        else:
            level += 1.0 if rising else -1.0
            low = 0.0 if rising else 1.0
        f, slope, bend = _jet(x, v, 0.0, epsilon, sigma2)
        jets += 1


def by_hand(parts: int, span: float = SPAN) -> tuple[int, int, int, float]:
    """events, reflections, evaluations, and the relative error of T + V_h."""
    k, height = MODEL.system.params, E0 / parts
    x, v = MODEL.q0.ravel().copy(), MODEL.v0.ravel().copy()
    start = _jet(x, v, 0.0, float(k["epsilon"]), 0.341**2)[0]
    kinetic = 0.5 * v @ v
    counted = _events(x, v, height, start - 0.5 * height, float(k["epsilon"]), 0.341**2, span)
    steps = (kinetic - 0.5 * v @ v) / height  # a whole number of terraces
    return *counted, abs(steps - round(steps)) * height / E0


# --- geomint ----------------------------------------------------------------------------------------------------------
def geomint_run(parts: int, span: float = SPAN, search: str = "hermite"):
    return gm.simulate(
        MODEL.system, MODEL.q0, MODEL.v0, method=gm.EnergyStepping(E0 / parts, search=search), dt=0.01, t_end=span
    )


def geomint_ensemble(parts: int, span: float):
    q0s = MODEL.q0 + 1e-3 * np.random.default_rng(0).normal(size=(MEMBERS, 7, 2))
    return gm.ensemble(
        MODEL.system, q0s, np.stack([MODEL.v0] * MEMBERS), method=gm.EnergyStepping(E0 / parts), dt=0.01, t_end=span
    )


def main() -> None:
    warnings.filterwarnings("ignore", message="EnergyStepping was trapped")
    rows = []
    for parts in PARTS:
        variants = {
            "hand": functools.partial(by_hand, parts),
            "geomint": functools.partial(geomint_run, parts),
            "proved": functools.partial(geomint_run, parts, 0.1, "interval"),
        }
        times = best_times(variants, rounds=5)
        hand, run, proof = by_hand(parts), geomint_run(parts), geomint_run(parts, 0.1, "interval")
        assert hand[3] < 1e-11, f"the loop by hand does not conserve the energy: {hand[3]:.1e}"
        rate = {
            "hand": hand[0] / times["hand"],
            "geomint": len(run.events) / times["geomint"],
            "proved": len(proof.events) / times["proved"],
        }
        rows.append(
            (
                f"E0/{parts}, by hand",
                f"{rate['hand']:,.0f} events/s",
                f"{hand[2] / hand[0]:.2f} jets an event, {1e6 * SPAN / hand[0]:.0f} fs a step",
            )
        )
        rows.append(
            (
                f"E0/{parts}, geomint",
                f"{rate['geomint']:,.0f} events/s",
                f"×{rate['hand'] / rate['geomint']:.2f}; "
                f"{run.events.counts['jets'] / len(run.events):.2f} jets an event, "
                f"{1e6 * SPAN / len(run.events):.0f} fs a step",
            )
        )
        rows.append(
            (
                f"E0/{parts}, search='interval'",
                f"{rate['proved']:,.0f} events/s",
                f"×{rate['hand'] / rate['proved']:.2f}; "
                f"{proof.events.counts['jets'] / len(proof.events):.2f} jets an event",
            )
        )
    span = 0.02
    seconds = best_times({"ensemble": lambda: geomint_ensemble(60, span)}, rounds=2)["ensemble"]
    run = geomint_ensemble(60, span)
    rows.append(
        (
            f"{MEMBERS} clusters at once, E0/60",
            f"{len(run.events) / seconds:,.0f} events/s",
            f"{np.sum(run.events.counts['jets']) / len(run.events):.2f} jets an event",
        )
    )
    table(f"energy-stepping: seven argon atoms, {SPAN:g} ns, saved every 10 ps", rows)


if __name__ == "__main__":
    main()
