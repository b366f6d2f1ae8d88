"""Driven systems: for every method that takes them, the order of the motion against scipy's DOP853 and the order of the
work balance H − H₀ − W; the slider-crank in points against angles; conformal symplecticity."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import geomint as gm
from geomint.analysis import measure
from geomint.analysis.measure import Point
from geomint.methods.base import demands

from .timing import table

T_END, INTERVAL = 4.0, 0.4
LOOKS = INTERVAL * np.arange(1, 11)
STEPS = {1: (0.02, 0.01), 2: (0.05, 0.025), 4: (0.1, 0.05), 6: (0.2, 0.1), 8: (0.4, 0.2)}  # by the order
FASTEST = {"Kapitza": 0.2}  # shorter by this share: the support is fast


class Problem(NamedTuple):
    """A system, its start, and the exact motion of its angle, or of its position."""

    system: Any
    q0: np.ndarray
    v0: np.ndarray
    exact: np.ndarray  # what `seen` shows, at `LOOKS`
    seen: Any  # of the positions and times of a run


def _exact(acceleration, x, v) -> np.ndarray:
    """x at `LOOKS`, of ẍ = a(t, x, ẋ)."""
    right = lambda t, y: np.concatenate([y[1:], np.atleast_1d(acceleration(t, *y))])
    return solve_ivp(right, (0, T_END), [x, v], method="DOP853", t_eval=LOOKS, rtol=1e-13, atol=1e-14).y[0]


def _crank_acceleration(t, theta, rate) -> float:
    """θ̈ of the slider-crank in θ alone: ½m(θ)θ̇² + U, the rod's angle eliminated, φ = −arcsin(sin θ/3)."""
    torque, slip, friction, rod = 2.0, 0.5, 0.2, 3.0
    s, c = np.sin(theta), np.cos(theta)
    root = np.sqrt(rod**2 - s**2)
    along = -s - s * c / root  # dx₁/dθ
    bend = -c - (c**2 - s**2) / root - s**2 * c**2 / root**3  # d²x₁/dθ²
    return (torque - slip * rate - friction * along**2 * rate - c - along * bend * rate**2) / (1 + along**2)


def problems() -> dict[str, Problem]:
    lift, fast = 0.1, 30.0
    pendulum = lambda t, x, v: -np.sin(x) - 0.3 * v + 0.8 * np.cos(1.7 * t)
    angle = lambda q, t: q[:, 0]
    points, angles = gm.models.driven_slider_crank(), gm.models.driven_slider_crank_angles()
    kapitza, relativistic = gm.models.kapitza_pendulum(), gm.models.relativistic_oscillator()
    motor = {"force": lambda q, t: 0.8 * jnp.cos(1.7 * t) + 0 * q}
    energy = lambda q: -jnp.cos(q[0])
    one, still = np.ones(1), np.zeros(1)
    crank = _exact(_crank_acceleration, 0.0, 0.0)
    upright = lambda t, x, v: (1 - lift * fast**2 * np.cos(fast * t)) * np.sin(x)  # x from the upright position
    free = lambda system, a: Problem(system, one, still, _exact(a, 1.0, 0.0), angle)
    return {
        "motor, damping": free(gm.System(energy, **motor, damping=0.3), pendulum),
        "motor, V(q, t)": free(
            gm.System(lambda q, t: (1 + 0.5 * jnp.sin(2 * t)) * energy(q), **motor),
            lambda t, x, v: -(1 + 0.5 * np.sin(2 * t)) * np.sin(x) + 0.8 * np.cos(1.7 * t),
        ),
        "motor, f(v)": free(
            gm.System(energy, force=lambda q, v, t: 0.8 * jnp.cos(1.7 * t) - 0.2 * v**3),
            lambda t, x, v: -np.sin(x) - 0.2 * v**3 + 0.8 * np.cos(1.7 * t),
        ),
        "Kapitza": Problem(
            kapitza.system,
            kapitza.q0,
            kapitza.v0,
            _exact(upright, 0.3, 0.0),
            lambda q, t: np.arctan2(q[:, 0, 0], q[:, 0, 1] - lift * np.cos(fast * t)),
        ),
        "slider-crank, points": Problem(
            points.system, points.q0, points.v0, crank, lambda q, t: np.arctan2(q[:, 0, 1], q[:, 0, 0])
        ),
        "slider-crank, angles": Problem(angles.system, angles.q0, angles.v0, crank, angle),
        "relativistic": Problem(
            relativistic.system,
            relativistic.q0,
            relativistic.v0,
            _exact(lambda t, x, v: -x * (1 - v * v) ** 1.5, 0.0, 0.9),
            angle,
        ),
    }


def _methods() -> list[Any]:
    """Every method that takes time or forces and has no random numbers, and compositions that are not registered."""
    listed = [m for m in gm.methods.all() if {"time", "force"} & set(m.traits.takes) and not m.traits.stochastic]
    return [*listed, gm.Composition(gm.Variational(), order=4), gm.Composition(gm.Boris(), order=4)]


def _errors(problem: Problem, method: Any, dt: float) -> tuple[float, float]:
    """The largest of what is seen, and the largest |H − H₀ − W|."""
    settings = {"dt": dt, "t_end": T_END, "save_every": round(INTERVAL / dt), "engine": "xla"}
    run = gm.simulate(problem.system, problem.q0, problem.v0, method=method, compensated=True, **settings)
    off = problem.seen(run.q[1:], run.t[1:]) - problem.exact
    work = run.work if problem.system.driven else 0.0
    return float(np.max(np.abs(np.sin(off / 2)))), float(np.max(np.abs(run.energy_error - work)))


def orders(method: Any, name: str, problem: Problem) -> str | None:
    """ "order of the motion / order of the balance", or None where the method refuses the system."""
    try:
        method.check(problem.system)
    except gm.InputError:
        return None
    steps = [dt * FASTEST.get(name, 1.0) for dt in STEPS[method.traits.order]]
    coarse, fine = (np.array(_errors(problem, method, dt)) for dt in steps)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.log2(coarse / fine)
    return " / ".join("exact" if x < 3e-14 else f"{s:.2f}" for s, x in zip(slope, fine, strict=True))


def measured_orders() -> None:
    for name, problem in problems().items():
        rows = []
        for method in _methods():
            seen = orders(method, name, problem)
            if seen is not None:
                rows.append((method.name, seen, f"order {method.traits.order}"))
        has = ", ".join(demands(problem.system)) or "conservative"
        table(f"{name} ({has}): order of the motion / of the balance of energy and work", rows)


def conformal() -> None:
    """|JᵀΩJ − exp(−γh)Ω| of one step with the damping D = γM."""
    mass, at = np.array([1.0, 3.0]), Point(np.array([1.0, 0.5]), np.array([0.3, -0.8]))
    energy = lambda q: -jnp.cos(q[0]) + 0.3 * jnp.cos(q[1] - q[0]) + 0.1 * q[1] ** 4
    free = gm.System(energy, mass=mass, damping=0.4 * mass)
    rods = gm.Distances([(None, 0), (0, 1)], [1.0, 1.5])
    held = gm.System(lambda q: jnp.sum(q[:, 1]), mass=2.0, constraint=rods, damping=0.8)
    q, v = gm.project(held, [[0.6, -0.8], [1.5, -2.0]], [[0.5, 0.0], [0.3, 0.3]])
    rows = []
    for base, system, where in ((gm.Verlet(), free, at), (gm.Rattle(), held, Point(q, 2 * v))):
        for method in (base, gm.Composition(base, order=4)):
            off = measure.symplecticity(method, system, where, 0.1, rate=0.4)
            rows.append((method.name, f"{off:.1e}", "target < 1e-12"))
    table("conformal symplecticity", rows)


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gm.InstabilityWarning)
        conformal()
        measured_orders()
