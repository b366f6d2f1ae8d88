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
from .terraces import PAPER, rate, shown, terraced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...view import Scene


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
    return Outcome(
        checks,
        draw_examples(slow, usual, along, first[0], grid),
        motion=lambda: moving_ring(first[0]),
        parameters={
            "k of examples 4.1 and 4.3": counts.tolist(),
            "h of example 4.2": 0.0123,
            "grid of (γ, θ) at k = 100": grid.caught.shape,
        },
        left_out=("k up to 4096 instead of 256", "the condition for 500 pairs (γ, θ) instead of 42"),
    )


def moving_ring(x: Ring) -> Scene:
    """Example 4.3: caught on a polygon about the circle, beside the exact ellipse (figure 3)."""
    angle = np.linspace(0, 2 * np.pi, 121)
    circle = x.radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return shown(
        x.run.t,
        np.stack([np.asarray(x.run.q), x.exact], axis=1),
        lines=[circle],
        colors=(1, 0),
        names={"on terraces": 1, "in ½(x² + y²)": 0},
        trail=60,
        title="Example 4.3: caught along the edge of a terrace",
        subtitle=f"γ = {x.speed:g}, h = {x.h:.3g}; the circle is the next edge outside",
    )


def swing_checks(slow: list[Swing], usual: list[Swing]) -> list[Check]:
    off = np.abs([x.on_top / time_on_top(x.h) - 1 for x in (*slow, *usual)])
    return [
        Check(
            "4.1: time on the highest terrace, off (57)",
            off.max(),
            (None, 1e-6),
            paper="(57), before its approximation",
            where="Example 4.1, (57)",
            note="relative; rounding, amplified by 1/(1 − 2kh)",
            rtol=None,
        ),
        Check(
            "4.1, smallest h with ½ up the highest terrace: error",
            slow[-1].error,
            (0.395, 0.41),
            paper="does not converge to sin t",
            where="Example 4.1",
            note="heights with 1 − 2kh = (2h)²: the oscillator takes the time ½ up its highest terrace for every k",
        ),
        Check(
            "4.1, 1 − 2kh = h: rate of the error",
            rate([x.h for x in usual], [x.error for x in usual]),
            (0.47, 0.51),
            paper="converges for a proper choice of heights",
            where="Example 4.1",
            note="error = O(h^½)",
        ),
    ]


def trough_checks(along: Trajectory) -> list[Check]:
    straight = np.stack([np.ones_like(along.t), along.t], axis=1)
    about: dict[str, Any] = {"where": "Example 4.2"}
    return [
        Check("4.2: events", len(along.events), (0, 0), paper="uniform motion along y for every h", **about),
        Check(
            "4.2: largest distance from (1, t)",
            np.abs(along.q - straight).max(),
            (None, 1e-12),
            paper="q_h(t) = (0, t)",
            verdict="corrected",
            note="q_h(t) = (1, t): it starts at x = 1, as the paper states",
            **about,
        ),
        Check(
            "4.2: error",
            np.abs(along.q[:, 0] - np.cos(along.t)).max(),
            (1.99, 2.0),
            paper="does not converge to (cos t, t)",
            **about,
        ),
    ]


def ring_checks(first: list[Ring], second: list[Ring], free: list[Ring], grid: CaughtGrid) -> list[Check]:
    radii = np.linalg.norm(first[-1].run.q, axis=1)
    where = "Example 4.3"
    return [
        Check(
            "4.3, γ = 0.5: climbs and descents",
            first[-1].run.events["up"] + first[-1].run.events["down"],
            (0, 0),
            paper="bounces at every edge that it meets",
            where=where,
        ),
        Check(
            "4.3, γ = 0.5: width of the ring that it stays in, in units of h",
            (radii.max() - radii.min()) / first[-1].h,
            (0.49, 0.501),
            paper="a polygon about the unit circle, within h + o(h)",
            where=f"{where}, Fig. 3",
            note="1 − θ = ½, θ the fractional part of 1/2h",
        ),
        Check(
            "4.3, γ = 0.5: error",
            first[-1].error,
            (1.99, 2.01),
            paper="does not converge for γ < 1",
            where=f"{where}, Fig. 3",
        ),
        *condition_checks(second, free, grid),
    ]


def condition_checks(second: list[Ring], free: list[Ring], grid: CaughtGrid) -> list[Check]:
    """Which motions of example 4.3 are caught."""
    number, caught = grid.speed**2 * (1 - grid.part), grid.caught
    return [
        Check.near(
            "4.3, γ = 1.5, θ = 0.9: error",
            second[-1].error,
            2.378,
            0.005,
            verdict="information",
            note="it can fail for γ > 1 too, where γ²(1 − θ) < 1",
        ),
        Check(
            "4.3, γ = 1.5, θ = 0.1: rate of the error",
            rate([x.h for x in free], [x.error for x in free]),
            (0.45, 0.52),
            verdict="information",
            note="converges like h^½, since γ²(1 − θ) > 1",
        ),
        Check(
            f"4.3: pairs (γ, θ) of {caught.size} that γ²(1 − θ) < 1 misjudges",
            np.sum((caught != (number < 1)) & (np.abs(number - 1) > 0.02)),
            (0, 0),
            verdict="information",
            note="caught if and only if γ²(1 − θ) < 1, which contains the paper's γ < 1",
        ),
        Check(
            f"4.3: pairs (γ, θ) of {caught.size} with γ > 1 that are caught",
            int(np.sum(caught & (grid.speed > 1))),
            (1, None),
            verdict="information",
            note="the paper states γ < 1 as sufficient, which it is",
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
