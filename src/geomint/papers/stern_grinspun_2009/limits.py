"""The limits of IMEX: long times at large steps, and a fast part that is not quadratic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import models
from ...methods import IMEX
from ...run import ensemble, simulate
from ...view.of_run import scene_of
from ..base import Outcome, experiment
from ..checks import Check
from .fpu_chain import FRAMES, OMEGA, PAPER, chain_motion, stiff_springs

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# --- long times -------------------------------------------------------------------------------------------------------
class ShiftedStarts:
    """The oscillatory energy I along runs of IMEX to t = 4000. The first run has the given start; those of the others
    are shifted by 1e-13 at random: at large steps the motion is chaotic, so that only the distribution over the starts
    is meaningful."""

    def __init__(self, dt: float, members: int, save_every: int):
        chain, self.dt = stiff_springs(), dt
        shifts = (
            1e-13
            * np.random.default_rng(4).normal(size=(members, *chain.q0.shape))
            * (np.arange(members) > 0)[:, None, None]
        )
        steps = round(4000.0 / dt) // save_every * save_every
        run = ensemble(
            chain.system,
            chain.q0 + shifts,
            chain.v0 + 0 * shifts,
            method=IMEX(),
            dt=dt,
            t_end=steps * dt,
            save_every=save_every,
        )
        with np.errstate(over="ignore"):
            self.parts = 0.5 * (np.asarray(run.p)[:, :, 1] ** 2 + OMEGA**2 * np.asarray(run.q)[:, :, 1] ** 2)
        self.t, self.total = np.asarray(run.t), self.parts.sum(axis=2)
        self.late = self.total[:, self.t > 3000].mean(axis=1)  # NaN where a run stopped

    @property
    def astray(self) -> float:
        """The share of starts whose mean I after t = 3000 is off 1 by more than 5 %, runs that stopped included."""
        return float(np.mean(~(np.abs(self.late - 1) < 0.05)))


@experiment(
    PAPER,
    "fpu-long",
    "FPU chain to t = 4000: the invariant is conserved at h = 0.1, and not at h = 0.3",
    "FPU: IMEX for T = 4000",
)
def fpu_long(quick: bool) -> Outcome:
    """The time scale ω², for many starts that differ by 1e-13. At h = .1 all of them conserve I. At h = .3 the
    motion is chaotic: the mean of I at the end is between .4 and 8, and nearly no start conserves it. Both are
    cheap, so that the quick run is the full one."""
    small, large = ShiftedStarts(0.1, 32, 4), ShiftedStarts(0.3, 128, 3)
    finite = large.late[np.isfinite(large.late)]
    low, middle, high = np.quantile(finite, [0.1, 0.5, 0.9])
    where: dict[str, Any] = {"where": "FPU, T = 4000", "rtol": None}
    right: dict[str, Any] = where | {"paper": "qualitatively correct, hω = 5"}
    wild: dict[str, Any] = where | {"paper": "the method has begun to blow up", "verdict": "chaotic"}
    ours: dict[str, Any] = {"verdict": "information", "rtol": None, "note": "An extreme of the ensemble."}
    share = float(np.std(np.abs(large.late - 1) < 0.05)) / np.sqrt(len(large.late))  # of the estimated share
    name, late = "h = 0.3, 128 starts:", "after t = 3000"
    checks = [
        Check("h = 0.1, 32 starts: smallest I", small.total.min(), (0.90, 0.94), **right),
        Check("h = 0.1, 32 starts: largest I", small.total.max(), (1.08, 1.14), **right),
        Check(f"h = 0.1, 32 starts: share whose mean I {late} is off 1 by 5 %", small.astray, (0.0, 0.0), **right),
        Check(f"h = 0.1, 32 starts: largest |mean I − 1| {late}", np.abs(small.late - 1).max(), (None, 0.005), **right),
        Check(f"{name} share whose mean I {late} is off 1 by 5 %", large.astray, (0.8, 1.0), spread=share, **wild),
        Check(f"{name} median of the mean I {late}", middle, (1.2, 2.4), spread=(high - low) / 2, **wild),
        Check(f"{name} 9th decile of the mean I {late} over the first", high / low, (3.0, 20.0), **wild),
        Check(f"{name} smallest mean I {late}", finite.min(), **ours),
        Check(f"{name} largest mean I {late}", finite.max(), **ours),
        Check(f"{name} runs that stopped before t = 4000", np.sum(~np.isfinite(large.late)), **ours),
    ]
    return Outcome(
        checks,
        draw_long(small, large),
        motion=chain_motion(IMEX(), 0.3),
        parameters={
            "ω": OMEGA,
            "t ≤": 4000.0,
            "starts at h = 0.1": 32,
            "starts at h = 0.3": 128,
            "shift": 1e-13,
            "seed": 4,
        },
    )


def draw_long(small: ShiftedStarts, large: ShiftedStarts) -> Figure:
    """I of the first start over time at both steps, and the distribution of its late mean over the starts."""
    from ...plots.figures import envelope, new_figure

    figure = new_figure(13.0, 5.2)
    grid = figure.add_gridspec(2, 2, width_ratios=(2.2, 1))
    upper, lower = (figure.add_subplot(grid[row, 0]) for row in range(2))
    for axes, x, top in ((upper, small, 1.25), (lower, large, 5.0)):
        lines = {"I": x.total[0], "I₁": x.parts[0, :, 0], "I₂": x.parts[0, :, 1], "I₃": x.parts[0, :, 2]}
        for (name, y), color in zip(lines.items(), ("0.6", "C0", "C1", "C2"), strict=True):
            axes.plot(*envelope(x.t, y), lw=0.8, color=color, label=name)
        axes.set(xlim=(0, x.t[-1]), ylim=(0, top), ylabel="oscillatory energy")
        axes.set_title(f"IMEX, h = {x.dt:g} (hω = {x.dt * OMEGA:g}), one start", fontsize=10)
        axes.grid(alpha=0.25)
    lower.set_xlabel("time")
    figure.legend(*lower.get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False)
    right = figure.add_subplot(grid[:, 1])
    for x, color in ((small, "C0"), (large, "C3")):
        y = np.sort(x.late[np.isfinite(x.late)])
        right.plot(
            np.concatenate([[y[0]], y]),
            np.arange(len(y) + 1) / len(x.late),
            drawstyle="steps-post",
            lw=1.4,
            color=color,
            label=f"h = {x.dt:g}, {len(x.late)} starts",
        )
    right.axvline(1, color="0.5", lw=0.8, ls="--")
    right.set(
        xscale="log",
        ylim=(0, 1),
        xlabel="mean I after t = 3000",
        ylabel="share of starts below",
        title="Starts shifted by 1e-13",
    )
    right.set_xticks([0.5, 1, 2, 5], ["0.5", "1", "2", "5"])
    right.set_xticks([], minor=True)
    right.legend(frameon=False, fontsize=9, loc="lower right")
    right.grid(alpha=0.25)
    return figure


# --- a fast part that is not quadratic --------------------------------------------------------------------------------
def stiff_energy_errors(h: float, products: np.ndarray, t_end: float = 20.0) -> np.ndarray:
    """The largest |ΔH| of IMEX on the stiff double pendulum up to `t_end`, for each h²ω; infinite where a run stops."""
    pendulum, ones = models.stiff_double_pendulum(), np.ones(len(products))
    place = lambda x: x * ones[:, None, None]
    params = {"omega": products / h**2, "gravity": ones}
    starts = place(pendulum.q0), place(pendulum.v0)
    run = ensemble(pendulum.system, *starts, params=params, method=IMEX(), dt=h, t_end=t_end)
    errors = np.max(np.abs(run.energy_error), axis=1)
    return np.where(np.isfinite(errors), errors, np.inf)


@experiment(
    PAPER,
    "stiff-pendulum",
    "IMEX with a fast part that is not quadratic: the energy error depends on h²ω",
    "beyond the slides",
)
def stiff_pendulum(quick: bool) -> Outcome:
    """Two masses on stiff springs, whose directions turn. The largest error of the energy is .048 (h²ω)² for every
    h: the step is limited although the method is implicit in W. At hω = 250 the energy grows without bound although
    Newton's method converges."""
    from ...plots.figures import new_figure

    products = np.array([0.5, 1.0, 2.0, 3.0, 5.0])
    found = {h: stiff_energy_errors(h, products) for h in ((0.05,) if quick else (0.1, 0.05, 0.025))}
    ours: dict[str, Any] = {"verdict": "information", "note": "0.048 (h²ω)², where V's own error is small"}
    checks = [
        Check.near(
            f"h = {h:g}, h²ω = {x:g}: largest |ΔH|, t ≤ 20", error, 0.048 * x**2, 0.12 if x > 0.5 else 0.6, **ours
        )
        for h, errors in found.items()
        for x, error in zip(products, errors, strict=True)
    ]
    grown = stiff_energy_errors(0.05, np.array([12.5]))[0]
    coupled = "oscillatory coupling is a drawback of implicit midpoint methods for large steps"
    linear = "The unconditional stability of the slides' summary is that of a quadratic W."
    name = "h = 0.05, ω = 5000 (hω = 250): largest |ΔH|, t ≤ 20"
    said: dict[str, Any] = {"paper": coupled, "where": "FPU, T = 4000", "note": linear, "rtol": None}
    checks.append(Check(name, grown, (1e3, None), **said))
    figure = new_figure(6.5, 4.4)
    axes = figure.subplots()
    for k, (h, errors) in enumerate(found.items()):
        axes.loglog(products, errors, ("o", "s", "^")[k], ms=6, mfc="none", color=f"C{k}", label=f"h = {h:g}")
    axes.loglog(products, 0.048 * products**2, "k--", lw=1, label="0.048 (h²ω)²")
    axes.set(xlabel="h²ω", ylabel="largest |H − H(0)|, t ≤ 20", title="IMEX on the stiff double pendulum")
    axes.set_xticks(products, [f"{x:g}" for x in products])
    axes.set_xticks([], minor=True)
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    pendulum = models.stiff_double_pendulum()
    moving = lambda: scene_of(
        simulate(pendulum.system, pendulum.q0, pendulum.v0, method=IMEX(), dt=0.05, t_end=20.0), frames=FRAMES
    )
    parameters = {"h": tuple(found), "h²ω": tuple(products), "t ≤": 20.0, "V": "gravity 1"}
    return Outcome(checks, figure, motion=moving, parameters=parameters, left_out=("h = 0.1 and 0.025",))
