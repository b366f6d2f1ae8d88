"""The exchange of energy between the stiff springs at hω = 5, by IMEX and by the trigonometric methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import RunStopped
from ...methods import (
    IMEX,
    Gautschi,
    ImplicitMidpoint,
    Impulse,
    Method,
    MollifiedImpulse,
    Trigonometric,
    Verlet,
)
from ..base import Outcome, experiment
from ..checks import Check
from .fpu_chain import OMEGA, PAPER, OscillatoryEnergies, draw_energies

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def largest_invariant(method: Method, dt: float) -> float:
    """The largest I up to t = 200; infinite where the run stops."""
    try:
        return float(OscillatoryEnergies("", method, dt, 200.0).total.max())
    except RunStopped:
        return float("inf")


def draw_slow_exchange(panels: list[OscillatoryEnergies], steps: np.ndarray, largest: dict[str, np.ndarray]) -> Figure:
    """The runs at h = .1 in two rows, and below them the largest I against the step."""
    from ...plots.figures import new_figure

    figure = new_figure(13.0, 9.0)
    columns = -(-len(panels) // 2)
    grid = figure.add_gridspec(3, columns, height_ratios=(1, 1, 1.15))
    first: Any = None
    for k, x in enumerate(panels):
        axes = first = figure.add_subplot(grid[divmod(k, columns)], sharex=first, sharey=first)
        draw_energies(axes, x)
        axes.tick_params(labelleft=k % columns == 0, labelbottom=k >= len(panels) - columns)
        if k % columns == 0:
            axes.set_ylabel("oscillatory energy")
        if k >= len(panels) - columns:
            axes.set_xlabel("time")
    first.set_ylim(0, 1.35)
    below = figure.add_subplot(grid[2, :])
    for (label, y), color in zip(largest.items(), ("C3", "C4"), strict=True):
        below.semilogy(steps * OMEGA / np.pi, np.minimum(y, 1e9), "o-", ms=3, lw=1.1, color=color, label=label)
    below.set(
        xlabel="hω/π",
        ylabel="largest I, t ≤ 200",
        ylim=(0.8, 3e9),
        title="The largest I against the step (at the top: the run stopped)",
    )
    below.grid(alpha=0.25)
    below.legend(frameon=False)
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"Fermi–Pasta–Ulam chain, ω = {OMEGA:g}, h = 0.1 (hω = 5)", fontsize=11)
    return figure


LEADS = {
    "implicit midpoint": 0.791,
    "Gautschi": 0.268,
    "mollified impulse": 0.947,
    "Hairer–Lubich": 0.690,
    "Hochbruck–Lubich": 0.907,
}


@experiment(
    PAPER,
    "slow-exchange",
    "At hω = 5 IMEX and the impulse method exchange energy, the filtered methods and midpoint do not",
    "Analysis of slow energy exchange",
)
def slow_exchange(quick: bool) -> Outcome:
    """The trigonometric family compared with IMEX. The impulse method shows the exchange too, but is resonant."""
    silent: dict[str, Method] = {
        "implicit midpoint": ImplicitMidpoint(),
        "Gautschi": Gautschi(),
        "mollified impulse": MollifiedImpulse(),
    }
    silent |= {"Hairer–Lubich": Trigonometric("hairer-lubich"), "Hochbruck–Lubich": Trigonometric("hochbruck-lubich")}
    shown: dict[str, Method] = {"IMEX": IMEX(), "impulse": Impulse(), **silent}
    runs = {label: OscillatoryEnergies(label, method, 0.1, 200.0) for label, method in shown.items()}
    reference = OscillatoryEnergies("reference", Verlet(), 0.001, 200.0, 20)
    checks = [
        Check.near(f"{label}: first time I₁ = I₃", runs[label].exchange_time, t, 0.01)
        for label, t in (("IMEX", 72.4), ("impulse", 75.4))
    ]
    checks += [
        Check.near(
            f"{label}: smallest I₁ − I₃",
            runs[label].lead.min(),
            LEADS[label],
            0.02,
            note=f"{LEADS[label]:g}, above 0: no exchange",
        )
        for label in silent
    ]
    kept = max(np.abs(runs[label].total - 1).max() for label in silent)
    checks.append(
        Check.near("the methods without exchange: largest |I − 1|", kept, 0.073, 0.1, note="0.073: I is kept")
    )
    # .25 is near hω = 4π, within the window of its resonance.
    steps = np.unique(np.append(np.linspace(0.05, 0.26, 8 if quick else 85), 0.25))
    largest = {
        label: np.array([largest_invariant(shown[label], float(h)) for h in steps]) for label in ("impulse", "IMEX")
    }
    at = int(np.argmax(steps == 0.25))
    checks.append(
        Check.near(
            "impulse, h = 0.25 (hω = 3.98π): largest I", largest["impulse"][at], 40.6, 0.05, note="40.6: resonance"
        )
    )
    checks.append(
        Check(
            "IMEX: largest I of all steps up to 0.18",
            largest["IMEX"][steps < 0.181].max(),
            (1.09, 1.32),
            note="1.11 … 1.26",
        )
    )
    information = [
        Check(
            "IMEX: largest I of all steps up to 0.26",
            largest["IMEX"].max(),
            verdict="information",
            note="chaotic at the longest steps",
            rtol=None,
        )
    ]
    return Outcome([*checks, *information], draw_slow_exchange([reference, *runs.values()], steps, largest))
