"""The three harmonic motions for which energy-stepping does not converge (section 4.1, figures 3 and 4).

The cause is the same in all three: a motion that reaches an edge slowly, or moves along it and never reaches it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import models
from ...run import Trajectory
from ..base import Outcome, experiment
from ..checks import Check
from .terraces import PAPER, rate, terraced

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@functools.cache
def oscillator() -> models.Model:
    return models.harmonic_oscillator()


@functools.cache
def bowl() -> models.Model:
    """One system for every γ."""
    return models.harmonic_bowl()


def time_on_top(h: Any) -> Any:
    """(57) before its simplification: the time that the oscillator spends on its highest terrace until it is
    reflected."""
    k = np.floor(0.5 / h)
    return (np.sqrt(2 * (k + 1) * h) - np.sqrt(2 * k * h)) / np.sqrt(1 - 2 * k * h)


def slow_height(k: int, time: float = 0.5) -> float:
    """The h near 1/2k with 1 − 2kh = (h/time)²: the speed on the highest terrace is of the order of its width."""
    return 1 / (k + np.sqrt(k**2 + time**-2))


class Swing:
    """Example 4.1: x = sin t up to t = 2.5, past the turning point."""

    def __init__(self, h: float):
        self.h = h
        self.run = terraced(oscillator().system, [0.0], [1.0], h, 2.5, 500)
        self.error = float(np.max(np.abs(self.run.q[:, 0] - np.sin(self.run.t))))
        back = int(np.argmax(self.run.events.codes == 3))
        self.on_top = float(self.run.events.times[back] - self.run.events.times[back - 1])


class Ring:
    """Example 4.3: the bowl from (1, 0) with the velocity (0, γ), k terraces and the part θ of one above the bottom."""

    def __init__(self, speed: float, part: float, k: int, t_end: float = 10.0, samples: int = 1000):
        self.h, self.speed = 1 / (2 * (k + part)), speed
        self.radius = float(np.sqrt(2 * (k + 1) * self.h))  # of the first edge outside
        self.run = terraced(bowl().system, [1.0, 0.0], [0.0, speed], self.h, t_end, samples)
        self.exact = np.stack([np.cos(self.run.t), speed * np.sin(self.run.t)], axis=1)

    @property
    def error(self) -> float:
        return float(np.max(np.abs(self.run.q - self.exact)))

    @property
    def caught(self) -> bool:
        """Whether the first edge reflects it. Then only the angle has changed, so that all later edges reflect it
        too."""
        return bool(self.run.events.codes[0] == 3)


class CaughtGrid(NamedTuple):
    """Whether example 4.3 is caught at k = 100, over a grid of θ and γ."""

    part: np.ndarray  # θ
    speed: np.ndarray  # γ
    caught: np.ndarray


def caught_grid(quick: bool) -> CaughtGrid:
    part, speed = np.meshgrid(np.linspace(0.025, 0.975, 6 if quick else 20), np.linspace(0.25, 2.5, 7 if quick else 25))
    caught = [Ring(float(g), float(x), 100, 0.5, 1).caught for x, g in zip(part.flat, speed.flat, strict=True)]
    return CaughtGrid(part, speed, np.reshape(caught, part.shape))


@experiment(
    PAPER,
    "examples-4",
    "Three harmonic motions that terraces of any height miss, and the condition under which they do",
    "Figure 3, examples 4.1 to 4.3",
)
def examples(quick: bool) -> Outcome:
    """Three motions.

    4.1: for heights h_k the oscillator takes the time ½ up its highest terrace and ½ back, however narrow the terrace
    is; heights with 1 − 2kh = h converge. 4.2: along an edge, or between two, for all times: (1, t), where the paper
    has (0, t). 4.3: a body that starts along an edge meets the next one outside with (q̇·n)² = γ²·2h(1 − θ), and
    passes it only if that is above 2h|n|², θ the fractional part of 1/2h. It is caught on a circle if γ²(1 − θ) < 1:
    for all γ < 1, as the paper says, and for many heights with γ > 1 too.
    """
    counts = 4 ** np.arange(2, 5 if quick else 7)
    slow, usual = [Swing(slow_height(int(k))) for k in counts], [Swing(1 / (2 * k + 1)) for k in counts]
    trough = models.harmonic_trough()
    along = terraced(trough.system, trough.q0, trough.v0, 0.0123, 50.0, 1000)
    rings = {
        label: [Ring(g, x, int(k)) for k in counts]
        for label, g, x in (
            ("γ = 0.5, θ = 0.5", 0.5, 0.5),
            ("γ = 1.5, θ = 0.9", 1.5, 0.9),
            ("γ = 1.5, θ = 0.1", 1.5, 0.1),
        )
    }
    first, second, free = rings.values()
    grid = caught_grid(quick)
    checks = [*swing_checks(slow, usual), *trough_checks(along), *ring_checks(first, second, free, grid)]
    return Outcome(checks, draw_examples(slow, usual, along, first[0], grid))


def swing_checks(slow: list[Swing], usual: list[Swing]) -> list[Check]:
    off = np.abs([x.on_top / time_on_top(x.h) - 1 for x in (*slow, *usual)])
    return [
        Check(
            "4.1: time on the highest terrace, off (57)", off.max(), (None, 1e-6), note="rounding, amplified", rtol=None
        ),
        Check(
            "4.1, smallest h with ½ up the highest terrace: error",
            slow[-1].error,
            (0.395, 0.41),
            note="0.40: does not converge",
        ),
        Check(
            "4.1, 1 − 2kh = h: rate of the error",
            rate([x.h for x in usual], [x.error for x in usual]),
            (0.47, 0.51),
            note="½",
        ),
    ]


def trough_checks(along: Trajectory) -> list[Check]:
    straight = np.stack([np.ones_like(along.t), along.t], axis=1)
    return [
        Check("4.2: events", len(along.events), (0, 0)),
        Check("4.2: largest distance from (1, t)", np.abs(along.q - straight).max(), (None, 1e-12)),
        Check("4.2: error", np.abs(along.q[:, 0] - np.cos(along.t)).max(), (1.99, 2.0), note="2: does not converge"),
    ]


def ring_checks(first: list[Ring], second: list[Ring], free: list[Ring], grid: CaughtGrid) -> list[Check]:
    radii = np.linalg.norm(first[-1].run.q, axis=1)
    number = grid.speed**2 * (1 - grid.part)
    caught = grid.caught
    return [
        Check(
            "4.3, γ = 0.5: climbs and descents",
            first[-1].run.events["up"] + first[-1].run.events["down"],
            (0, 0),
        ),
        Check(
            "4.3, γ = 0.5: width of the ring that it stays in, in units of h",
            (radii.max() - radii.min()) / first[-1].h,
            (0.49, 0.501),
            note="1 − θ = ½",
        ),
        Check("4.3, γ = 0.5: error", first[-1].error, (1.99, 2.01), note="2: does not converge"),
        Check.near("4.3, γ = 1.5, θ = 0.9: error", second[-1].error, 2.378, 0.005, note="2.378: does not converge"),
        Check(
            "4.3, γ = 1.5, θ = 0.1: rate of the error",
            rate([x.h for x in free], [x.error for x in free]),
            (0.45, 0.52),
            note="½",
        ),
        Check(
            f"4.3: pairs (γ, θ) of {caught.size} that γ²(1 − θ) < 1 misjudges",
            np.sum((caught != (number < 1)) & (np.abs(number - 1) > 0.02)),
            (0, 0),
        ),
    ]


def draw_examples(
    slow: list[Swing],
    usual: list[Swing],
    along: Trajectory,
    ring: Ring,
    grid: CaughtGrid,
) -> Figure:
    """One panel for each example, and the map of the third."""
    from ...plots.figures import new_figure

    figure = new_figure(12.5, 9.0)
    (upper, trough), (circle, chart) = figure.subplots(2, 2)
    upper.plot(usual[0].run.t, np.sin(usual[0].run.t), "k--", lw=1.1, label="exact")
    for x, color, text in (
        (slow[0], "C3", "½ up to the last edge"),
        (slow[-1], "C1", "the same"),
        (usual[-1], "C0", "1 − 2kh = h"),
    ):
        upper.plot(x.run.t, x.run.q[:, 0], lw=1.2, color=color, label=f"h = {x.h:.2g}, {text}")
    upper.set(xlabel="time", ylabel="x", xlim=(0, 2.5), ylim=(0, 1.15), title="Example 4.1: the turning point")
    upper.legend(frameon=False, fontsize=9, loc="lower center")
    some = along.t <= 15
    trough.plot(along.t[some], np.cos(along.t[some]), "k--", lw=1.1, label="exact")
    trough.plot(along.q[some, 1], along.q[some, 0], lw=1.4, color="C0", label="on terraces of any height")
    trough.set(xlabel="y", ylabel="x", xlim=(0, 15), ylim=(-1.2, 1.6), title="Example 4.2: along the trough")
    trough.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)
    angle = np.linspace(0, 2 * np.pi, 300)
    circle.plot(
        ring.radius * np.cos(angle), ring.radius * np.sin(angle), lw=0.6, color="0.6", label="next edge outside"
    )
    circle.plot(np.cos(angle), ring.speed * np.sin(angle), lw=1.3, color="C3", label=f"exact, γ = {ring.speed:g}")
    circle.plot(*ring.run.q.T, lw=1.3, color="C0", label=f"on terraces, h = {ring.h:.2g}")
    circle.set(
        aspect="equal",
        xlim=(-1.9, 1.9),
        ylim=(-1.25, 1.25),
        xlabel="x",
        ylabel="y",
        title="Example 4.3: the bowl (figure 3)",
    )
    circle.legend(frameon=False, fontsize=9, loc="center")
    part, speed, caught = grid
    for where, color, text in ((caught, "C3", "caught on the circle"), (~caught, "C0", "climbs")):
        chart.plot(part[where], speed[where], "o", ms=5, color=color, label=text)
    x = np.linspace(0, 0.9, 200)
    chart.plot(x, 1 / np.sqrt(1 - x), "k-", lw=1.2, label="γ²(1 − θ) = 1")
    chart.set(
        xlabel="θ, the fractional part of 1/2h",
        ylabel="γ",
        xlim=(0, 1),
        ylim=(0.1, 2.65),
        title="Example 4.3: heights that fail",
    )
    chart.legend(framealpha=1.0, fontsize=9, loc="upper left")
    for axes in (upper, trough, circle, chart):
        axes.grid(alpha=0.25)
    return figure


# --- the turning point ------------------------------------------------------------------------------------------------
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
    k = np.floor(turns)
    simple = heights / np.sqrt(1 - 2 * k * heights)
    shares = {n: share_above(0.25, n) for n in (16, 64, 256, 1024)}
    checks = [
        Check(
            f"largest relative difference of {len(turns)} runs from (57)",
            np.abs(measured / time_on_top(heights) - 1).max(),
            (None, 1e-9),
            note="rounding, amplified",
        ),
        Check(
            "h/√(1 − 2kh) off it, in units of h",
            np.max(np.abs(simple / measured - 1) / heights),
            (0.45, 0.55),
            note="½",
        ),
        Check(
            "median of (time on the highest terrace)/√h", np.median(measured / np.sqrt(heights)), (0.95, 1.05), note="1"
        ),
        *(
            Check(
                f"share of heights near 1/{3 * n} that give more than ¼",
                x * n / (np.log(2) / (4 * 0.25**2)),
                (0.97, 1.08),
                note="1, in units of h/2τ²",
            )
            for n, x in shares.items()
        ),
    ]
    return Outcome(checks, draw_turning_point(heights, measured, shares))


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
