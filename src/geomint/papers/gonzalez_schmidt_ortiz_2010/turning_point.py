"""The time that an oscillator spends on its highest terrace (section 4.3, figure 4, and (57))."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..base import Outcome, experiment
from ..checks import Check
from .examples import oscillator, time_on_top
from .terraces import PAPER, shown, terraced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...view import Scene


def dense(n: float, most: float, points: int = 200_000) -> np.ndarray:
    """Heights with 1/2h from n to `most`, none of them a whole number, where the highest terrace is reached with
    speed zero."""
    return 0.5 / (n + (most - n) * (np.arange(points) + np.sqrt(0.1)) / points)


def share_above(time: float, n: float) -> float:
    """The share of heights with 1/2h between n and 2n for which the oscillator stays longer than `time` on its
    highest terrace."""
    return float(np.mean(time_on_top(dense(n, 2 * n)) > time))


@experiment(
    PAPER,
    "turning-point",
    "The time on the highest terrace: short but for a set of heights whose measure vanishes",
    "Figure 4",
)
def turning_point(quick: bool) -> Outcome:
    """x = sin t again. With θ the fractional part of 1/2h the time is about √(h/2θ): √h as a rule, and above any
    bound τ for θ < h/2τ², a share of the heights that vanishes with h. In (57) h/√(½ − kh) should be h/√(1 − 2kh)."""
    turns = np.random.default_rng(0).uniform(5, 100, 40 if quick else 400)
    heights = 0.5 / turns
    swings = [terraced(oscillator().system, [0.0], [1.0], h, 1.6 + time_on_top(h)) for h in heights]
    last = [int(np.argmax(x.events.codes == 3)) for x in swings]
    measured = np.array([x.events.times[i] - x.events.times[i - 1] for x, i in zip(swings, last, strict=True)])
    shares = {n: share_above(0.25, n) for n in (16, 64, 256, 1024)}
    checks = time_checks(heights, measured, shares)
    return Outcome(
        checks,
        draw_turning_point(heights, measured, shares),
        motion=moving_oscillator,
        parameters={"heights": len(turns), "1/2h": "5 … 100, at random", "seed": 0},
        left_out=("400 heights instead of 40",),
    )


def time_checks(heights: np.ndarray, measured: np.ndarray, shares: dict[int, float]) -> list[Check]:
    """The times on the highest terrace, and the shares of heights by n for which they are above ¼."""
    k = np.floor(0.5 / heights)
    simple = heights / np.sqrt(1 - 2 * k * heights)
    printed = heights / np.sqrt(0.5 - k * heights)
    return [
        Check(
            f"largest relative difference of {len(heights)} runs from (57)",
            np.abs(measured / time_on_top(heights) - 1).max(),
            (None, 1e-9),
            paper="(57), before its approximation",
            where="(57)",
            note="rounding, amplified",
        ),
        Check(
            "h/√(1 − 2kh) off it, in units of h",
            np.max(np.abs(simple / measured - 1) / heights),
            (0.45, 0.55),
            paper="Δt ≈ h/√(½ − kh)",
            where="(57)",
            verdict="corrected",
            note="Δt = h/√(1 − 2kh) (1 + O(h))",
        ),
        Check(
            "the approximation printed in (57) over the time measured, median",
            np.median(printed / measured),
            (1.39, 1.44),
            verdict="information",
            note="the printed form, as a control: too long by √2",
        ),
        Check(
            "median of (time on the highest terrace)/√h",
            np.median(measured / np.sqrt(heights)),
            (0.95, 1.05),
            paper="Δt(h) becomes vanishingly small but for a set of small measure",
            where="section 4.3, Fig. 4",
        ),
        *(
            Check(
                f"share of heights near 1/{3 * n} that give more than ¼",
                x * n / (np.log(2) / (4 * 0.25**2)),
                (0.97, 1.08),
                paper="the exceptional set has small measure",
                where="section 4.3, Fig. 4",
                note="in units of h/2τ², which vanishes with h; τ = ¼",
            )
            for n, x in shares.items()
        ),
    ]


def moving_oscillator(h: float = 0.099) -> Scene:
    """A ball on the terraces of ½x² beside one on the parabola, at a height at which it stays long on its highest
    terrace."""
    run = terraced(oscillator().system, [0.0], [1.0], h, 8.0, 239)
    t, x = np.asarray(run.t), np.asarray(run.q)[:, 0]
    both = np.stack([np.stack([x, h * np.floor(x**2 / (2 * h))], axis=1), np.stack([np.sin(t), np.sin(t) ** 2 / 2], 1)])
    edges = np.sqrt(2 * h * np.arange(int(0.5 / h) + 2))
    right = [(e, level * h) for k, e in enumerate(edges) for level in ((k - 1, k) if k else (0,))]
    stairs = np.array([(-e, y) for e, y in right[::-1]] + right)
    return shown(
        t,
        np.swapaxes(both, 0, 1),
        lines=[stairs],
        colors=(1, 0),
        names={"on terraces": 1, "in ½x²": 0},
        series={"x on terraces": (t, x), "sin t": (t, np.sin(t))},
        title="The turning point of an oscillator on terraces",
        subtitle=f"h = {h:g}; x to the right, the potential upwards",
    )


def draw_turning_point(heights: np.ndarray, measured: np.ndarray, shares: dict[int, float]) -> Figure:
    """Δt(h), and the share of heights for which it is long."""
    from ...plots.figures import new_figure

    figure = new_figure(12.0, 4.5)
    left, right = figure.subplots(1, 2, width_ratios=(1.8, 1))
    h = dense(5, 100)
    left.plot(h, time_on_top(h), lw=0.5, color="0.7", label="closed form")
    left.plot(heights, measured, "o", ms=3, color="C0", label="energy-stepping")
    left.plot(h, np.sqrt(h), "k--", lw=1.2, label="√h")
    left.set(
        xlabel="h",
        ylabel="Δt on the highest terrace",
        ylim=(0, 1.5),
        xlim=(0, 0.1),
        title="The time at the turning point of x = sin t",
    )
    left.legend(frameon=True, framealpha=0.9, fontsize=9, loc="upper right")
    n = np.array(list(shares))
    right.loglog(1 / (3 * n), list(shares.values()), "o", color="C0", label="share with Δt > ¼")
    right.loglog(1 / (3 * n), np.log(2) / (4 * 0.25**2 * n), "k--", lw=1, label="mean of h/2τ², τ = ¼")
    right.set(xlabel="h", ylabel="share of the heights", title="How many heights are slow")
    right.legend(frameon=False, fontsize=9)
    for axes in (left, right):
        axes.grid(alpha=0.25)
    return figure
