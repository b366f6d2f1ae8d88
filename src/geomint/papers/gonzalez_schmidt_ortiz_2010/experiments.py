"""Gonzalez, Schmidt, Ortiz: Energy-stepping integrators in Lagrangian mechanics, Int. J. Numer. Meth. Engng 82 (2010) 205.

V becomes V_h = h⌊V/h⌋, constant on terraces, and the motion in V_h is computed exactly: straight flights, and where a flight meets an edge of
its terrace a climb, a descent or a reflection. Here are the small problems: a planet over terraces (figure 1), and the three examples
in which terraces do not converge (section 4.1, figures 3 and 4). Everywhere the cause is the same: a motion that reaches an edge slowly, or
not at all, since it runs along it. The argon cluster of section 5.1 is in a module of its own.

`offset=0` makes the edges those of the paper, multiples of h. Where V has its least value on an edge, as in example 4.1, the motion touches
that edge each time it passes: such runs are ended before they do.
"""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import models
from ...methods import EnergyStepping
from ...run import Trajectory, simulate
from ..base import Check, Information, Outcome, experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "gonzalez-schmidt-ortiz-2010"


def terraced(
    system: Any,
    q0: Any,
    v0: Any,
    height: float,
    t_end: float,
    looks: int = 1,
    t0: float = 0.0,
    offset: float | None = 0.0,
) -> Trajectory:
    """Energy-stepping, looked at `looks` times. That it warns of trapped stretches is expected here: experiments report them as numbers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="EnergyStepping was trapped")
        return simulate(
            system,
            q0,
            v0,
            method=EnergyStepping(float(height), offset=offset),
            dt=(t_end - t0) / looks,
            t0=t0,
            t_end=t_end,
        )


def rate(heights: Any, errors: Any) -> float:
    """The slope of log error over log h."""
    return float(np.polyfit(np.log(heights), np.log(errors), 1)[0])


# --- a planet over terraces -------------------------------------------------------------------------------------------
ECCENTRICITY, MOMENTUM = 0.6, 0.8


@functools.cache
def planet() -> models.Model:
    return models.kepler(ECCENTRICITY)


def radial_period(h: float) -> tuple[float, int]:
    """The time between two reflections far from the sun, in closed form, and the number of events in it. The planet starts with
    speed 1 at r = 1 in the middle of level 0; on level k its speed is v = √(1 − 2kh), and from r it needs √(r²v² − L²)/v² back
    to where it was nearest to the sun. It crosses each edge inwards and outwards, and is reflected once."""
    edge = lambda k: 1 / (1 + 0.5 * h - k * h)  # the radius at which level k begins
    half, k = 0.0, 0
    while edge(k) * np.sqrt(1 - 2 * k * h) > MOMENTUM:  # down to the level on which it turns
        k -= 1
    innermost = k
    while True:
        square = 1 - 2 * k * h
        outer = edge(k + 1) ** 2 * square - MOMENTUM**2
        half += (np.sqrt(outer) - np.sqrt(max(edge(k) ** 2 * square - MOMENTUM**2, 0.0))) / square
        if outer / edge(k + 1) ** 2 <= 2 * h:  # too slow outwards for one more step
            return 2 * half, 2 * (k - innermost) + 1
        k += 1


class Orbit:
    """The planet from the end of the small axis. Neither perihelion nor aphelion would do: there it moves along an edge, as in example 4.3."""

    def __init__(self, h: float, periods: int):
        self.h, self.periods = h, periods
        self.run = terraced(
            planet().system, [-ECCENTRICITY, MOMENTUM], [-1.0, 0.0], h, 2 * np.pi * periods, 500 * periods, offset=None
        )
        momentum = next(iter(self.run.momentum_maps.values())).ravel()
        self.energy_error = np.abs(self.run.energy / self.run.energy[0] - 1)
        self.momentum_error = np.abs(momentum / momentum[0] - 1)
        events = self.run.events
        self.far = events.times[events.codes == 3]  # one reflection a revolution, or else it is caught

    def checks(self) -> list[Check]:
        period, events = radial_period(self.h)
        apart = np.abs(np.diff(self.far) / period - 1)
        between = np.diff(np.flatnonzero(self.run.events.codes == 3))
        name = f"h = {self.h:g}"
        return [
            Check(f"{name}: largest relative error of T + V_h", self.energy_error.max(), None, 3e-13, "rounding"),
            Check(
                f"{name}: largest relative error of the angular momentum",
                self.momentum_error.max(),
                None,
                3e-13,
                "rounding",
            ),
            Check(f"{name}: from aphelion to aphelion, off the closed form", apart.max(), None, 1e-11, "rounding"),
            Check(
                f"{name}: revolutions whose number of events is not that of the closed form",
                np.sum(between != events),
                0,
                0,
                "none",
            ),
            Check(f"{name}: longest row of reflections", self.run.events["longest"], 1, 1, "1: nowhere caught"),
        ]

    def information(self) -> list[Information]:
        return [
            Information(
                f"h = {self.h:g}: events in {self.periods} periods of the ellipse", len(self.run.events), rtol=0.01
            )
        ]


@experiment(
    PAPER,
    "kepler-terraces",
    "A planet over the terraces of −1/r: a rosette of straight flights with energy and angular momentum to rounding",
    "Figure 1",
)
def kepler_terraces(quick: bool) -> Outcome:
    """V_h depends on r alone, as V does. So the angular momentum stays, the radial motion has a period, which a sum over terraces gives in closed
    form, and the orbit is a rosette. The period tests the times of events; energy and momenta would be kept with wrong ones too."""
    orbits = [Orbit(h, 10 if quick else 100) for h in (0.1, 0.02)]
    return Outcome(
        [check for x in orbits for check in x.checks()],
        draw_kepler(orbits),
        [row for x in orbits for row in x.information()],
    )


def draw_kepler(orbits: list[Orbit]) -> Figure:
    """The potential in three forms, the orbit over the terraces, and what is kept."""
    from ...plots.figures import new_figure

    figure = new_figure(14.0, 4.7)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1.15, 1.1))
    r, h = np.linspace(0.3, 2.0, 2000), 0.4
    nodes = np.linspace(0.3, 2.0, 8)
    left.step(
        -1 / np.minimum(-h, h * np.arange(-9, 0)),
        h * np.arange(-9, 0) - h,
        where="pre",
        color="C0",
        lw=1.3,
        label="terraces, h = 0.4",
    )
    left.plot(nodes, -1 / nodes, "s-", ms=3.5, lw=1.1, color="C2", label="linear between nodes")
    left.plot(r, -1 / r, "k--", lw=1.1, label="−1/r")
    left.set(xlim=(0.3, 2.0), ylim=(-3.4, 0), xlabel="r", ylabel="potential", title="The potential")
    left.legend(frameon=False, fontsize=9, loc="lower right")
    draw_rosette(middle, orbits[0])
    for x, color in zip(orbits, ("C3", "C0"), strict=True):
        t = x.run.t / (2 * np.pi)
        right.semilogy(t, np.maximum(x.energy_error, 1e-17), lw=0.9, color=color, label=f"$T + V_h$, h = {x.h:g}")
        right.semilogy(
            t, np.maximum(x.momentum_error, 1e-17), lw=0.9, ls=":", color=color, label=f"angular momentum, h = {x.h:g}"
        )
    right.set(
        xlabel="periods of the ellipse",
        ylabel="relative error",
        xlim=(0, orbits[0].periods),
        ylim=(1e-17, 1e-10),
        title="What is kept",
    )
    right.legend(frameon=False, fontsize=9, loc="upper left")
    for axes in (left, right):
        axes.grid(alpha=0.25)
    return figure


def draw_rosette(axes: Axes, x: Orbit, revolutions: int = 2) -> None:
    """The edges between terraces, the ellipse, and the polygon."""
    angle = np.linspace(0, 2 * np.pi, 300)
    for k in range(-20, 9):
        if (edge := 1 + 0.5 * x.h - k * x.h) > 0.3:
            axes.plot(np.cos(angle) / edge, np.sin(angle) / edge, lw=0.5, color="0.75", zorder=0)
    axes.plot(np.cos(angle) - ECCENTRICITY, MOMENTUM * np.sin(angle), "k--", lw=1, label="exact")
    some = x.run.t <= x.far[0] + revolutions * radial_period(x.h)[0]
    axes.plot(*x.run.q[some].T, lw=1.2, color="C3", label=f"on terraces, h = {x.h:g}")
    axes.plot(0, 0, "o", color="gold", mec="0.3", ms=8)
    axes.set(aspect="equal", xlim=(-2.0, 2.0), ylim=(-1.75, 2.1), title="The orbit")
    axes.legend(framealpha=0.95, fontsize=9, loc="lower left")


# --- where terraces do not converge -----------------------------------------------------------------------------------
@functools.cache
def oscillator() -> models.Model:
    return models.harmonic_oscillator()


@functools.cache
def bowl() -> models.Model:
    """One system for every γ."""
    return models.harmonic_bowl()


def time_on_top(h: Any) -> Any:
    """(57) as it is before it is simplified: how long the oscillator is on its highest terrace until it is reflected."""
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

    def __init__(self, speed: float, part: float, k: int, t_end: float = 10.0, looks: int = 1000):
        self.h, self.speed = 1 / (2 * (k + part)), speed
        self.radius = float(np.sqrt(2 * (k + 1) * self.h))  # of the first edge outside
        self.run = terraced(bowl().system, [1.0, 0.0], [0.0, speed], self.h, t_end, looks)
        self.exact = np.stack([np.cos(self.run.t), speed * np.sin(self.run.t)], axis=1)

    @property
    def error(self) -> float:
        return float(np.max(np.abs(self.run.q - self.exact)))

    @property
    def caught(self) -> bool:
        """Whether the first edge throws it back; since nothing but the angle has changed then, all others do."""
        return bool(self.run.events.codes[0] == 3)


def caught_grid(quick: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """θ, γ, and whether the bowl catches it at k = 100."""
    part, speed = np.meshgrid(np.linspace(0.025, 0.975, 6 if quick else 20), np.linspace(0.25, 2.5, 7 if quick else 25))
    caught = [Ring(float(g), float(x), 100, 0.5, 1).caught for x, g in zip(part.flat, speed.flat, strict=True)]
    return part, speed, np.reshape(caught, part.shape)


@experiment(
    PAPER,
    "examples-4",
    "Three harmonic motions that terraces of any height miss, and the condition under which they do",
    "Figure 3, examples 4.1 to 4.3",
)
def examples(quick: bool) -> Outcome:
    """4.1: heights h_k chosen so that the oscillator takes the time ½ up its highest terrace and ½ back, however narrow it is; heights with 1 − 2kh = h converge.
    4.2: along an edge, or between two, for ever: (1, t), where the paper has (0, t). 4.3: a body that sets out along an edge meets the next one
    outside with γ²·2h(1 − θ) of (q̇·n)², and climbs it only if that is above 2h|n|², θ the fractional part of 1/2h. So it is caught on a circle if
    γ²(1 − θ) < 1: for all γ < 1, as the paper says, and for many heights with γ > 1 too."""
    counts = 4 ** np.arange(2, 5 if quick else 7)
    slow, usual = [Swing(slow_height(int(k))) for k in counts], [Swing(1 / (2 * k + 1)) for k in counts]
    trough = models.harmonic_trough()
    along = terraced(trough.system, trough.q0, trough.v0, 0.0123, 50.0, 1000)
    straight = np.stack([np.ones_like(along.t), along.t], axis=1)
    rings = {
        label: [Ring(g, x, int(k)) for k in counts]
        for label, g, x in (
            ("γ = 0.5, θ = 0.5", 0.5, 0.5),
            ("γ = 1.5, θ = 0.9", 1.5, 0.9),
            ("γ = 1.5, θ = 0.1", 1.5, 0.1),
        )
    }
    first, second, free = rings.values()
    radii = np.linalg.norm(first[-1].run.q, axis=1)
    part, speed, caught = caught_grid(quick)
    number = speed**2 * (1 - part)
    off = np.abs([x.on_top / time_on_top(x.h) - 1 for x in (*slow, *usual)])
    checks = [
        Check("4.1: time on the highest terrace, off (57)", off.max(), None, 1e-6, "rounding, amplified", rtol=None),
        Check(
            "4.1, smallest h with ½ up the highest terrace: error",
            slow[-1].error,
            0.395,
            0.41,
            "0.40: does not converge",
        ),
        Check(
            "4.1, 1 − 2kh = h: rate of the error", rate([x.h for x in usual], [x.error for x in usual]), 0.47, 0.51, "½"
        ),
        Check("4.2: events", len(along.events), 0, 0, "none"),
        Check("4.2: largest distance from (1, t)", np.abs(along.q - straight).max(), None, 1e-12, "rounding"),
        Check("4.2: error", np.abs(along.q[:, 0] - np.cos(along.t)).max(), 1.99, 2.0, "2: does not converge"),
        Check(
            "4.3, γ = 0.5: climbs and descents", first[-1].run.events["up"] + first[-1].run.events["down"], 0, 0, "none"
        ),
        Check(
            "4.3, γ = 0.5: width of the ring that it stays in, in units of h",
            (radii.max() - radii.min()) / first[-1].h,
            0.49,
            0.501,
            "1 − θ = ½",
        ),
        Check("4.3, γ = 0.5: error", first[-1].error, 1.99, 2.01, "2: does not converge"),
        Check.near("4.3, γ = 1.5, θ = 0.9: error", second[-1].error, 2.378, 0.005, "2.378: does not converge"),
        Check(
            "4.3, γ = 1.5, θ = 0.1: rate of the error",
            rate([x.h for x in free], [x.error for x in free]),
            0.45,
            0.52,
            "½",
        ),
        Check(
            f"4.3: pairs (γ, θ) of {caught.size} that γ²(1 − θ) < 1 misjudges",
            np.sum((caught != (number < 1)) & (np.abs(number - 1) > 0.02)),
            0,
            0,
            "none",
        ),
    ]
    return Outcome(checks, draw_examples(slow, usual, along, first[0], (part, speed, caught)))


def draw_examples(
    slow: list[Swing],
    usual: list[Swing],
    along: Trajectory,
    ring: Ring,
    grid: tuple[np.ndarray, np.ndarray, np.ndarray],
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
    """Heights with 1/2h from n to `most`, none of them a whole number: there the highest terrace is reached with no speed."""
    return 0.5 / (n + (most - n) * (np.arange(points) + np.sqrt(0.1)) / points)


def share_above(time: float, n: float) -> float:
    """The share of heights with 1/2h between n and 2n that leave the oscillator for longer than `time` on its highest terrace."""
    return float(np.mean(time_on_top(dense(n, 2 * n)) > time))


@experiment(
    PAPER,
    "turning-point",
    "The time on the highest terrace: short but for a set of heights whose measure vanishes",
    "Figure 4",
)
def turning_point(quick: bool) -> Outcome:
    """x = sin t again. With θ the fractional part of 1/2h the time is about √(h/2θ): √h as a rule, and above any bound τ for θ < h/2τ², a share
    of the heights that vanishes with h. In (57) h/√(½ − kh) should be h/√(1 − 2kh)."""
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
            None,
            1e-9,
            "rounding, amplified",
        ),
        Check("h/√(1 − 2kh) off it, in units of h", np.max(np.abs(simple / measured - 1) / heights), 0.45, 0.55, "½"),
        Check("median of (time on the highest terrace)/√h", np.median(measured / np.sqrt(heights)), 0.95, 1.05, "1"),
        *(
            Check(
                f"share of heights near 1/{3 * n} that give more than ¼",
                x * n / (np.log(2) / (4 * 0.25**2)),
                0.97,
                1.08,
                "1, in units of h/2τ²",
            )
            for n, x in shares.items()
        ),
    ]
    return Outcome(checks, draw_turning_point(heights, measured, shares))


def draw_turning_point(heights: np.ndarray, measured: np.ndarray, shares: dict[int, float]) -> Figure:
    """Δt(h), and how seldom it is long."""
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
