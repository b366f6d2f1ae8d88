"""The chain of ten pendula (Fig. 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import models
from ...analysis.penalty import penalize
from ...methods import Rattle, ZhangSkeel
from ...run import Trajectory, simulate
from ..base import Outcome, experiment
from ..checks import Check
from .common import BETA, OMEGA, PAPER, constrained_motion, kept_energy, positions, scene_of_ropes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEVIATIONS = {10: 0.0150, 50: 0.0338, 100: 0.0656}  # of Z&S by t
RATTLE_STEPS = (0.05, 0.025, 0.01)
RATTLE_DEVIATIONS = {10: 0.28, 50: 1.29, 100: 3.19}  # of RATTLE by t, over h²


@experiment(PAPER, "chain", "Ten pendula in a chain: Z&S on springs beside the constrained motion", "Fig. 3")
def chain(quick: bool) -> Outcome:
    """n = 10, ω = 20, β = .4, h = .05, V = +Σ yᵢ (printed with the other sign, as for the double pendulum). The Hessian
    is found to be banded, so that a step costs O(n)."""
    model: Any = models.chain(10)
    dt, t_end = 0.05, 50.0 if quick else 100.0
    exact = constrained_motion(model, dt * np.arange(round(t_end / dt) + 1))
    run = simulate(penalize(model.system, OMEGA), model.q0, model.v0, method=ZhangSkeel(beta=BETA), dt=dt, t_end=t_end)
    rattle = {
        h: simulate(model.system, model.q0, model.v0, method=Rattle(), dt=h, t_end=t_end, save_every=round(dt / h)).q
        for h in RATTLE_STEPS
    }
    largest = lambda q, other: np.max(np.abs(q - other), axis=(1, 2))
    apart = {"Z&S, h = 0.05": largest(positions(run), exact.q)} | {
        f"RATTLE, h = {h:g}": largest(q, exact.q) for h, q in rattle.items()
    }
    beside = largest(positions(run), rattle[0.01])
    checks = chain_checks(apart, beside, dt, (10, 50) if quick else (10, 50, 100))
    kept = kept_energy(run)[: round(50 / dt) + 1]
    claim, note = "Z&S: largest error of T + Ṽ, t ≤ 50", "Z&Ss has 0.0098"
    largest_error = np.max(np.abs(kept - kept[0]))
    checks.append(Check.near(claim, largest_error, 0.00225, 0.06, verdict="information", note=note))
    shown = slice(0, round(50 / dt) + 1, 4)
    ropes = {"constrained motion": exact.q[shown], "Z&S": positions(run)[shown]}
    about = "Z&S, h = 0.05, ω = 20, β = 0.4, over the constrained motion"
    return Outcome(
        checks,
        draw_chain(run, exact.q, apart),
        motion=lambda: scene_of_ropes(np.asarray(run.t)[shown], ropes, "Ten pendula", about),
        parameters={"n": 10, "ω": OMEGA, "β": BETA, "h": dt, "t_end": t_end},
        left_out=["deviations up to t = 100"] if quick else (),
    )


def chain_checks(apart: dict[str, np.ndarray], beside: np.ndarray, dt: float, times: tuple[int, ...]) -> list[Check]:
    """The largest deviations until each of the times."""
    until = lambda y, t: y[: round(t / dt) + 1].max()
    about: dict[str, Any] = {"paper": "good agreement between SHAKE and Z&S"}
    checks = [
        Check.near(
            f"Z&S against RATTLE (h = 0.01): largest deviation of a coordinate, t ≤ {t}",
            until(beside, t),
            DEVIATIONS[t],
            0.03,
            note="of a chain 22 long",
            **about,
        )
        for t in times
    ]
    checks += [
        Check.near(
            f"Z&S against the constrained motion, t ≤ {t}",
            until(apart["Z&S, h = 0.05"], t),
            DEVIATIONS[t],
            0.03,
            **about,
        )
        for t in times
    ]
    for h in RATTLE_STEPS:
        checks += [
            Check.near(
                f"RATTLE, h = {h:g}, against the constrained motion, t ≤ {t}",
                until(apart[f"RATTLE, h = {h:g}"], t),
                RATTLE_DEVIATIONS[t] * h**2,
                0.05,
                verdict="information",
                note=f"of order 2: {RATTLE_DEVIATIONS[t]:g} h²",
            )
            for t in times
        ]
    return checks


def draw_chain(run: Trajectory, exact: np.ndarray, apart: dict[str, np.ndarray]) -> Figure:
    """The coordinates of some links, the deviations from the exact motion, and the shape at four times."""
    from ...plots.figures import new_figure

    dt, t_end = run.dt, float(run.t[-1])
    figure = new_figure(12.0, 6.0)
    grid = figure.add_gridspec(2, 2, height_ratios=(1.6, 1), width_ratios=(2.6, 1))
    coordinates, deviation, shape = (
        figure.add_subplot(grid[0, 0]),
        figure.add_subplot(grid[1, 0]),
        figure.add_subplot(grid[:, 1]),
    )
    for k, link in enumerate((0, 2, 4, 6, 9)):
        coordinates.plot(run.t, exact[:, link, 0], color="k", lw=0.8, label="constrained" if k == 0 else None)
        coordinates.plot(
            run.t[::10], positions(run)[::10, link, 0], ".", ms=3.5, color=f"C{k}", label=f"pendulum {link + 1}"
        )
    coordinates.set(
        xlim=(0, t_end), ylim=(-12, 16), ylabel="x", title="Z&S at h = 0.05, ω = 20 (dots); constrained motion (lines)"
    )
    coordinates.legend(frameon=False, fontsize=8, ncols=6, loc="upper center", columnspacing=1.2, handletextpad=0.4)
    for k, (label, y) in enumerate(apart.items()):
        deviation.semilogy(run.t, np.where(y > 0, y, np.nan), lw=0.9, color=f"C{k}", label=label)
    deviation.set(xlim=(0, t_end), ylim=(1e-6, 3), xlabel="time", ylabel="largest deviation")
    deviation.legend(frameon=False, fontsize=8, ncols=4, loc="upper center")
    for k, t in enumerate((0, 10, 30, 50)):
        rope = np.concatenate([np.zeros((1, 2)), positions(run)[round(t / dt)]])
        shape.plot(rope[:, 0], rope[:, 1], "o-", ms=3, lw=1, color=f"C{k}", label=f"t = {t}")
    shape.set(xlabel="x", ylabel="y", title="The chain")
    shape.set_aspect("equal", adjustable="datalim")
    shape.legend(frameon=False, fontsize=8, loc="upper left")
    for axes in (coordinates, deviation, shape):
        axes.grid(alpha=0.25)
    return figure
