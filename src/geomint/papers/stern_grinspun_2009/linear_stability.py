"""Linear stability: IMEX up to the limit of the slow force, for every fast frequency; windows of the impulse method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import models
from ...methods import IMEX, Impulse, Method, Verlet
from ...run import ensemble
from ..base import Outcome, experiment
from ..checks import Check
from .fpu_chain import EXCHANGE, PAPER
from .resonance import phase_planes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SLIDE = "Analysis of Linear Resonance Stability"
WINDOWS = np.arange(1, 5)


def swings(omega: np.ndarray, h: float, steps: int, speed: float) -> np.ndarray:
    """The largest |q| of IMEX on the model problem from q = 1, for each ω."""
    oscillator, ones = models.fast_slow_oscillator(), np.ones((len(omega), 1))
    start = oscillator.system, ones, speed * ones
    run = ensemble(*start, params={"omega": omega}, method=IMEX(), dt=h, t_end=steps * h)
    return np.max(np.abs(np.asarray(run.q)), axis=(1, 2))


def half_traces(method: Method, ratios: np.ndarray, h: float) -> np.ndarray:
    """Half the trace of one step as a matrix on (q, p), for each hω/π: stable below 1 in size."""
    oscillator, n = models.fast_slow_oscillator(), len(ratios)
    unit = np.repeat([[1.0], [0.0]], n, axis=0)
    omega = np.tile(np.pi * ratios / h, 2)
    run = ensemble(oscillator.system, unit, 1 - unit, params={"omega": omega}, method=method, dt=h, t_end=h)
    return 0.5 * (np.asarray(run.q)[:n, -1, 0] + np.asarray(run.p)[n:, -1, 0])


def window_widths(h: float) -> np.ndarray:
    """How far below hω = kπ the impulse method is unstable, k = 1 … 4, by bisection, in units of π."""
    low, high = WINDOWS - 0.5, WINDOWS - 1e-9
    for _ in range(40):
        middle = 0.5 * (low + high)
        unstable = np.abs(half_traces(Impulse(), middle, h)) > 1
        low, high = np.where(unstable, low, middle), np.where(unstable, middle, high)
    return WINDOWS - high


@experiment(
    PAPER,
    "linear-stability",
    "IMEX is stable for h < 2 whatever ω, as for the slow force alone; the impulse method has unstable windows",
    SLIDE,
)
def linear_stability(quick: bool) -> Outcome:
    """The theorem: for U = ½q², W = ½ω²q² IMEX is linearly stable if and only if h ≤ 2. It is Verlet with mass
    1 + (hω/2)² and stiffness 1 + ω², and h²(1 + ω²) ≤ 4 + h²ω² does not contain ω. At h = 2 itself the matrix of a step
    has the double eigenvalue −1 with one eigenvector: q grows linearly, so that the condition is h < 2."""
    omega, steps, h = np.geomspace(0.5, 1e3, 12), 2000, 0.1
    imex = {x: np.abs(half_traces(IMEX(), x * omega / np.pi, x)) for x in (1.99, 2.01)}
    verlet = {x: float(np.abs(half_traces(Verlet(), np.zeros(1), x)).max()) for x in (1.99, 2.01)}
    still, edge = swings(omega, 1.99, steps, 0.0).max(), swings(omega[:4], 2.0, steps, 1.0)
    a_step = edge / steps * (1 + omega[:4] ** 2) / 2
    inside, outside = 1 - imex[1.99].max(), imex[2.01].min() - 1
    theorem: dict[str, Any] = {"where": f"{SLIDE}, theorem"}
    step = "|½ trace of a step|"
    linear = "At h = 2 the double eigenvalue −1 has one eigenvector: q grows by h p/m a step, m = 1 + ω²."
    checks = [
        Check(f"IMEX, h = 1.99: 1 − largest {step}, ω to 1e3", inside, (1e-9, 0.02), paper="stable: ≥ 0", **theorem),
        Check("IMEX, h = 1.99: largest |q| in 2000 steps from rest", still, (0.99, 1.1), paper="stable", **theorem),
        Check(
            f"IMEX, h = 2.01: smallest {step}, ω to 1e3, less 1", outside, (1e-9, 0.02),
            paper="unstable: above 0", **theorem,
        ),
        Check(
            "IMEX, h = 2, start with p = 1: growth of |q| a step over h/m", a_step.min(), (0.95, 1.05),
            paper="stable for h = 2", verdict="corrected", note=linear, **theorem,
        ),
        Check(f"Verlet, hν = 1.99: {step}", verlet[1.99], (0.97, 1.0), paper="stable for hν ≤ 2", where=SLIDE),
        Check(f"Verlet, hν = 2.01: {step}", verlet[2.01], (1.01, 1.03), paper="unstable for hν > 2", where=SLIDE),
    ]  # fmt: skip
    widths = window_widths(h) * np.pi**2 * WINDOWS / h**2
    checks += [
        Check(
            f"impulse, h = 0.1: width of the window below hω = {k}π over h²/(kπ)", width, (0.99, 1.01),
            paper="resonance points at multiples of π", where=EXCHANGE,
        )
        for k, width in zip(WINDOWS, widths, strict=True)
    ]  # fmt: skip
    ratios = np.linspace(0.002, 4.5, 1200 if quick else 2400)
    coarse = 0.5
    traces = {"impulse": half_traces(Impulse(), ratios, coarse), "IMEX": half_traces(IMEX(), ratios, coarse)}
    most = np.abs(traces["IMEX"]).max()
    none: dict[str, Any] = {"paper": "no linear resonance instability", "where": SLIDE}
    checks.append(Check("IMEX, h = 0.5: largest half trace of a step, hω ≤ 4.5π", most, (0.5, 1.0), rtol=None, **none))
    parameters = {"frequencies": len(omega), "steps": steps, "h of the windows": h, "h of the figure": coarse}
    return Outcome(checks, draw_traces(ratios, traces), motion=phase_planes, parameters=parameters)


def draw_traces(ratios: np.ndarray, traces: dict[str, np.ndarray]) -> Figure:
    """Half the trace of a step against hω."""
    from ...plots.figures import new_figure

    figure = new_figure(9.0, 4.4)
    axes = figure.subplots()
    for label, color in (("impulse", "C3"), ("IMEX", "C2")):
        axes.plot(ratios, traces[label], lw=1.2, color=color, label=label)
    unstable = np.abs(traces["impulse"]) > 1
    axes.fill_between(ratios, -1.2, 1.2, where=unstable.tolist(), color="C3", alpha=0.2, lw=0, label="impulse unstable")
    for level in (-1, 1):
        axes.axhline(level, color="0.5", lw=0.8, ls="--")
    axes.set(
        xlim=(0, 4.5), ylim=(-1.2, 1.2), xlabel="hω/π", ylabel="half the trace of a step", title="U = ½q², h = 0.5"
    )
    axes.grid(alpha=0.25)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure
