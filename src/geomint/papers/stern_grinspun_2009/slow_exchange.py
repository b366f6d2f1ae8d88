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
from .fpu_chain import EXCHANGE, OMEGA, PAPER, OscillatoryEnergies, chain_motion, draw_energies

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


EXACT = "exchange consistent with that of the exact solution, up to O(ω⁻³)"
ONLY = "the only trigonometric method sharing this property is Deuflhard/impulse"
STATED = {
    "IMEX": EXACT,
    "impulse": ONLY,
    "implicit midpoint": "not true for implicit midpoint",
    "Gautschi": ONLY,
    "mollified impulse": ONLY,
    "Hairer–Lubich": ONLY,
    "Hochbruck–Lubich": ONLY,
}


@experiment(
    PAPER,
    "slow-exchange",
    "At hω = 5 IMEX and the impulse method exchange energy, the filtered methods and midpoint do not",
    "Analysis of slow energy exchange",
)
def slow_exchange(quick: bool) -> Outcome:
    """The trigonometric family compared with IMEX. The theorem: the equations of slow exchange in the solution by IMEX
    are consistent with the exact ones; of the trigonometric methods this is true of the impulse method alone, which is
    resonant."""
    silent: dict[str, Method] = {
        "implicit midpoint": ImplicitMidpoint(),
        "Gautschi": Gautschi(),
        "mollified impulse": MollifiedImpulse(),
    }
    silent |= {"Hairer–Lubich": Trigonometric("hairer-lubich"), "Hochbruck–Lubich": Trigonometric("hochbruck-lubich")}
    shown: dict[str, Method] = {"IMEX": IMEX(), "impulse": Impulse(), **silent}
    runs = {label: OscillatoryEnergies(label, method, 0.1, 200.0) for label, method in shown.items()}
    reference = OscillatoryEnergies("Verlet, h = 0.001", Verlet(), 0.001, 200.0, 20)
    # .25 is near hω = 4π, within the window of its resonance.
    steps = np.unique(np.append(np.linspace(0.05, 0.26, 8 if quick else 85), 0.25))
    largest = {
        label: np.array([largest_invariant(shown[label], float(h)) for h in steps]) for label in ("impulse", "IMEX")
    }
    return Outcome(
        [*lead_checks(runs, tuple(silent)), *step_checks(steps, largest)],
        draw_slow_exchange([reference, *runs.values()], steps, largest),
        motion=chain_motion(MollifiedImpulse(), 0.1),
        parameters={"ω": OMEGA, "h": 0.1, "t ≤": 200.0, "steps tried": len(steps)},
        left_out=("77 further steps from 0.05 to 0.26",),
    )


def lead_checks(runs: dict[str, OscillatoryEnergies], silent: tuple[str, ...]) -> list[Check]:
    """Whether the first spring passes its energy on by t = 200; the converged solution does so at 77.4."""
    checks = [
        Check.near(
            f"{label}: first time I₁ = I₃", runs[label].exchange_time, t, 0.01,
            paper=STATED[label], where=EXCHANGE, note="The converged time is 77.4.",
        )
        for label, t in (("IMEX", 72.4), ("impulse", 75.4))
    ]  # fmt: skip
    checks += [
        Check.near(
            f"{label}: smallest I₁ − I₃", runs[label].lead.min(), LEADS[label], 0.02,
            paper=STATED[label], where=EXCHANGE, note="Above 0: there is no exchange.",
        )
        for label in silent
    ]  # fmt: skip
    kept = max(np.abs(runs[label].total - 1).max() for label in silent)
    hidden = "They all conserve I, so that I alone does not show the error."
    claim = "the methods without exchange: largest |I − 1|"
    return [*checks, Check.near(claim, kept, 0.073, 0.1, verdict="information", note=hidden)]


def step_checks(steps: np.ndarray, largest: dict[str, np.ndarray]) -> list[Check]:
    """The largest I over steps: windows of resonance of the impulse method, coupling of fast and slow in IMEX."""
    at = int(np.argmax(steps == 0.25))
    resonant: dict[str, Any] = {"paper": "suffers from resonance instability", "where": EXCHANGE}
    ours: dict[str, Any] = {"verdict": "information", "note": "Linear theory has no such limit; V is not linear here."}
    most = largest["IMEX"][steps < 0.181].max()
    return [
        Check.near("impulse, h = 0.25 (hω = 3.98π): largest I", largest["impulse"][at], 40.6, 0.05, **resonant),
        Check("IMEX: largest I of all steps up to 0.18", most, (1.09, 1.32), **ours),
        Check("IMEX: largest I of all steps up to 0.26", largest["IMEX"].max(), verdict="information", rtol=None),
    ]
