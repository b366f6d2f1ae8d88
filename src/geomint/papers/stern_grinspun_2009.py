"""Stern, Grinspun: Implicit-explicit variational integration of highly oscillatory problems, Multiscale Model. Simul. 7
(2009) 1779.

The Fermi–Pasta–Ulam chain hands the energy of its stiff springs

    I_j = ½ (p₁ⱼ² + ω² q₁ⱼ²),     I = I₁ + I₂ + I₃,

from the first to the last on the time scale ω, while their sum I is an adiabatic invariant. A method that does not
resolve the fast frequency must still keep both: the exchange is what the mollified and the fully implicit methods lose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import models
from ..methods import Composition, ImplicitMidpoint, Method, Verlet
from ..run import simulate
from .base import Check, Outcome, experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = "stern-grinspun-2009"
OMEGA = 50.0


class OscillatoryEnergies:
    """I_j and I of a run of the chain over time."""

    def __init__(self, label: str, method: Method, dt: float, t_end: float, save_every: int = 1):
        self.label, self.dt = label, dt
        chain = models.fpu(omega=OMEGA)
        steps = round(t_end / dt) // save_every * save_every  # the last saved point at or just before t_end
        run = simulate(chain.system, chain.q0, chain.v0, method=method, dt=dt, t_end=steps * dt, save_every=save_every)
        self.t = np.asarray(run.t)
        self.parts = 0.5 * (np.asarray(run.p)[:, 1] ** 2 + OMEGA**2 * np.asarray(run.q)[:, 1] ** 2)
        self.total = self.parts.sum(axis=1)

    @property
    def lead(self) -> np.ndarray:
        """I₁ − I₃: positive until the first spring has handed its energy on."""
        return self.parts[:, 0] - self.parts[:, 2]

    @property
    def exchange_time(self) -> float:
        """The first time at which I₁ = I₃, between saved points by a straight line; NaN where it does not come."""
        after = int(np.argmax(self.lead < 0))
        if self.lead[after] >= 0:
            return float("nan")
        before = after - 1
        return float(self.t[before] + (self.t[after] - self.t[before]) * self.lead[before] / (self.lead[before] - self.lead[after]))


def draw_exchange(panels: list[OscillatoryEnergies]) -> Figure:
    """I₁, I₂, I₃ and I over time, one panel for each run."""
    from ..plots import envelope, new_figure  # matplotlib is loaded only when something is drawn

    figure = new_figure(4.2 * len(panels), 3.6)
    top = max(1.2, *(1.05 * float(np.nanmax(x.total)) for x in panels))
    first: Any = None
    for k, x in enumerate(panels):
        axes = first = figure.add_subplot(1, len(panels), k + 1, sharey=first)
        lines = {"I = I₁ + I₂ + I₃": x.total, "I₁": x.parts[:, 0], "I₂": x.parts[:, 1], "I₃": x.parts[:, 2]}  # the sum behind its parts
        for (name, y), color in zip(lines.items(), ("0.6", "C0", "C1", "C2"), strict=True):
            axes.plot(*envelope(x.t, y), lw=0.8, color=color, label=name)
        axes.set(xlim=(x.t[0], x.t[-1]), ylim=(0, min(top, 2.2)), xlabel="time", title=x.label)
        axes.grid(alpha=0.25)
        axes.tick_params(labelleft=k == 0)
        if k == 0:
            axes.set_ylabel("oscillatory energy")
            handles = axes.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"Fermi–Pasta–Ulam chain, three stiff springs, ω = {OMEGA:g}", fontsize=11)
    return figure


@experiment(PAPER, "fpu-baselines", "FPU chain: slow energy exchange, resolved and missed by the usual methods", "FPU: reference, Störmer/Verlet, midpoint")
def fpu_baselines(quick: bool) -> Outcome:
    """The exchange by a converged reference; Verlet at a step that resolves the stiff springs poorly (hω = 1.5) loses the
    invariant, and the implicit midpoint rule, stable at hω = 5, loses the exchange."""
    reference = Composition(Verlet(), order=8)
    exact = OscillatoryEnergies("reference", reference, 0.02, 200.0, 5) if quick else OscillatoryEnergies("reference", reference, 0.005, 200.0, 20)
    verlet = OscillatoryEnergies("Störmer/Verlet, h = 0.03", Verlet(), 0.03, 200.0)
    midpoint = OscillatoryEnergies("implicit midpoint, h = 0.1", ImplicitMidpoint(), 0.1, 200.0)
    checks = [
        Check("reference: smallest I", exact.total.min(), 0.93, 0.945, "about 0.938"),
        Check("reference: largest I", exact.total.max(), 1.055, 1.07, "about 1.062"),
        Check("reference: first time I₁ = I₃", exact.exchange_time, 75.0, 81.0, "about 78"),
        Check("Verlet, h = 0.03: largest I", verlet.total.max(), 1.5, None, "above 1.5: the invariant is lost"),
        Check("midpoint, h = 0.1: smallest I₁ − I₃", midpoint.lead.min(), 0.0, None, "above 0: no exchange"),
    ]
    return Outcome(checks, draw_exchange([exact, verlet, midpoint]))
