"""Numerical resonances of r-RESPA and of the impulse method, and their absence in IMEX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import models
from ...methods import IMEX, RESPA, Impulse, Method
from ...run import ensemble, simulate
from ...run.instability import unwatched
from ...view import Scene
from ..base import Outcome, experiment
from ..checks import Check
from .fpu_chain import EXCHANGE, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure


STEP, INNER = 0.1, 32  # RESPA's inner steps are stable up to hω = 2·INNER
PEAKS = np.arange(1, 5)
RESPA_PEAKS = (
    2 * INNER / np.pi * np.sin(PEAKS * np.pi / (2 * INNER))
)  # in hω/π: where the inner Verlet steps turn by kπ


def energy_errors(method: Method, ratios: np.ndarray) -> np.ndarray:
    """The largest relative error of the energy up to t = 1000, for each hω/π."""
    oscillator, ones = models.fast_slow_oscillator(), np.ones((len(ratios), 1))
    largest = np.zeros(len(ratios))
    for every in (5, 8):  # two sampling intervals: one could always sample the oscillation at the same phase
        run = ensemble(
            oscillator.system,
            oscillator.q0 * ones,
            oscillator.v0 * ones,
            params={"omega": np.pi * ratios / STEP},
            method=method,
            dt=STEP,
            t_end=1000.0,
            save_every=every,
        )
        largest = np.maximum(largest, np.max(np.abs(run.energy_error / run.energy[:, :1]), axis=1))
    return largest


@experiment(
    PAPER,
    "resonance",
    "r-RESPA and the impulse method are resonant where hω is near a multiple of π, IMEX never is",
    "Coupled linear oscillators",
)
def resonance(quick: bool) -> Outcome:
    """V = ½q², W = ½ω²q², h = .1, to t = 1000. The impulse method is unstable for hω/π between k − h²/(kπ²) and k,
    a window of width .001/k: the grid contains the integers, the middles of the windows, and more points in the
    first."""
    windows = [peaks - share * STEP**2 / (PEAKS * np.pi**2) for peaks in (PEAKS, RESPA_PEAKS) for share in (0.0, 0.5)]
    near = np.linspace(0.9975, 1.0015, 41 if quick else 161)
    whole = np.linspace(4.5 / 1851, 4.5, 1851)[slice(None, None, 9 if quick else 1)]
    ratios = np.unique(np.concatenate([whole, near, *windows]))
    errors = {
        "r-RESPA": energy_errors(RESPA(INNER), ratios),
        "impulse": energy_errors(Impulse(), ratios),
        "IMEX": energy_errors(IMEX(), ratios),
    }
    at = lambda label, x: float(errors[label][np.argmin(np.abs(ratios - x))])
    slide = "Coupled Linear Oscillators"
    impulse: dict[str, Any] = {"paper": "suffers from resonance instability", "where": EXCHANGE}
    respa: dict[str, Any] = {"paper": "resonance near integer values of ωh/π", "where": slide}
    kicked = "At an integer the fast flow is ±1, and p grows by hq a step."
    checks = [
        Check(f"impulse at hω/π = {k}", at("impulse", k), (980 / k**2, 1040 / k**2), note=kicked, **impulse)
        for k in PEAKS
    ]
    checks += [
        Check(
            f"r-RESPA at hω/π = {x:.4f}, where its inner steps turn by {k}π", at("r-RESPA", x),
            (980 / k**2, 1040 / k**2), **respa, note="Its inner Verlet steps turn by less than hω.",
        )
        for k, x in zip(PEAKS, RESPA_PEAKS, strict=True)
    ]  # fmt: skip
    within = "hω/π between k − h²/(kπ²) and k: a grid of 2000 frequencies easily misses it."
    checks += [
        Check.near(
            f"impulse in the middle of window {k}", at("impulse", windows[1][k - 1]), value, 0.1, note=within, **impulse
        )
        for k, value in zip(PEAKS, (3.4e13, 4.1e6, 2.0e4, 1.4e3), strict=True)
    ]
    stable: dict[str, Any] = {"paper": "remains stable", "where": slide, "note": "h²/4, at every frequency"}
    checks.append(Check(f"IMEX: largest of all {len(ratios)} ω", errors["IMEX"].max(), (0.00249, 0.00251), **stable))
    return Outcome(
        checks,
        draw_resonance(ratios, errors, near),
        motion=phase_planes,
        parameters={"h": STEP, "t ≤": 1000.0, "frequencies": len(ratios), "inner steps of r-RESPA": INNER},
        left_out=(f"{1851 - 1851 // 9 + 120} further frequencies",),
    )


def phase_planes() -> Scene:
    """IMEX and the impulse method at hω = π in the plane of ωq and p."""
    omega = float(np.pi / STEP)
    oscillator = models.fast_slow_oscillator(omega=omega)
    run = lambda method: simulate(oscillator.system, [1.0], [0.0], method=method, dt=STEP, t_end=25.0)
    with unwatched():  # the energy of the impulse method grows, which is what is shown
        runs = {"IMEX": run(IMEX()), "impulse": run(Impulse())}
    path = lambda x: np.concatenate([omega * np.asarray(x.q), np.asarray(x.p)], axis=1)
    error = lambda x: np.asarray(x.energy_error / x.energy[0])
    return Scene(
        np.asarray(runs["IMEX"].t),
        np.stack([path(x) for x in runs.values()], axis=1),
        colors=(0, 1),
        names={"IMEX": 0, "impulse": 1},
        series={f"relative energy error, {name}": (x.t, error(x)) for name, x in runs.items()},
        trail=8,
        title="An oscillator with a slow and a fast spring at hω = π",
        subtitle="ωq to the right, p upwards; the impulse method gains energy, IMEX does not",
    )


def draw_resonance(ratios: np.ndarray, errors: dict[str, np.ndarray], near: np.ndarray) -> Figure:
    """All ω on the left, the first window on the right."""
    from ...plots.figures import new_figure

    figure = new_figure(11.5, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1), sharey=True)
    colors = {"r-RESPA": "C0", "impulse": "C3", "IMEX": "C2"}
    for label, error in errors.items():
        left.semilogy(
            ratios,
            error,
            lw=1.1,
            color=colors[label],
            label=label if label != "r-RESPA" else f"r-RESPA, {INNER} inner steps",
        )
        right.semilogy(ratios, error, ".-", ms=3, lw=1.1, color=colors[label])
    left.set(
        xlim=(0, 4.5),
        ylim=(1e-5, 1e15),
        xlabel="hω/π",
        ylabel="largest relative error of the energy",
        title=f"All ω, h = {STEP:g}, t ≤ 1000",
    )
    right.set(xlim=(near[0], near[-1]), xlabel="hω/π", title="The first resonance")
    right.set_xticks([0.998, 0.999, 1.0, 1.001])
    for axes in (left, right):
        axes.grid(alpha=0.25)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure
