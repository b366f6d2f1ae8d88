"""A planet over the terraces of −1/r (figure 1)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from ... import models
from ..base import Outcome, experiment
from ..checks import Check
from .terraces import PAPER, shown, terraced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...view import Scene


ECCENTRICITY, MOMENTUM = 0.6, 0.8


@functools.cache
def planet() -> models.Model:
    return models.kepler(ECCENTRICITY)


def radial_period(h: float) -> tuple[float, int]:
    """The time between two reflections far from the sun, in closed form, and the number of events in it.

    The planet starts with speed 1 at r = 1 in the middle of level 0; on level k its speed is v = √(1 − 2kh), and a
    flight from its point nearest to the sun to the radius r takes √(r²v² − L²)/v². It crosses each edge inwards and
    outwards, and is reflected once.
    """
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
    """The planet, started at the end of the minor axis. At perihelion or aphelion it would start along an edge, as
    in example 4.3."""

    def __init__(self, h: float, periods: int):
        self.h, self.periods = h, periods
        self.run = terraced(
            planet().system, [-ECCENTRICITY, MOMENTUM], [-1.0, 0.0], h, 2 * np.pi * periods, 500 * periods, offset=None
        )
        momentum = next(iter(self.run.momentum_maps.values())).ravel()
        self.energy_error = np.abs(self.run.energy / self.run.energy[0] - 1)
        self.momentum_error = np.abs(momentum / momentum[0] - 1)
        events = self.run.events
        self.far = events.times[events.codes == 3]  # one reflection in each revolution, unless the planet is caught

    def checks(self) -> list[Check]:
        period, events = radial_period(self.h)
        apart = np.abs(np.diff(self.far) / period - 1)
        between = np.diff(np.flatnonzero(self.run.events.codes == 3))
        name = f"h = {self.h:g}"
        return [
            Check(
                f"{name}: largest relative error of T + V_h",
                self.energy_error.max(),
                (None, 3e-13),
                paper="conserved exactly",
                where="Theorem 3.1",
            ),
            Check(
                f"{name}: largest relative error of the angular momentum",
                self.momentum_error.max(),
                (None, 3e-13),
                paper="conserved exactly",
                where="Theorem 3.1",
            ),
            Check(
                f"{name}: from aphelion to aphelion, off the closed form",
                apart.max(),
                (None, 1e-11),
                paper="trajectories are computed exactly",
                where="section 2.1",
                note="relative; the period of the radial motion in V_h is a sum over terraces",
            ),
            Check(
                f"{name}: revolutions whose number of events is not that of the closed form",
                np.sum(between != events),
                (0, 0),
                paper="trajectories are computed exactly",
                where="section 2.1",
            ),
            Check(
                f"{name}: longest row of reflections",
                self.run.events["longest"],
                (1, 1),
                verdict="information",
                note="one reflection in each revolution: the planet is nowhere caught along an edge",
            ),
        ]

    def information(self) -> list[Check]:
        return [
            Check(
                f"h = {self.h:g}: events in {self.periods} periods of the ellipse",
                len(self.run.events),
                verdict="information",
                rtol=0.01,
            )
        ]


@experiment(
    PAPER,
    "kepler-terraces",
    "A planet over the terraces of −1/r: a rosette of straight flights with energy and angular momentum to rounding",
    "Figure 1",
)
def kepler_terraces(quick: bool) -> Outcome:
    """V_h depends on r alone, as V does. So the angular momentum is conserved, the radial motion has a period,
    which a sum over terraces gives in closed form, and the orbit is a rosette. The period verifies the times of
    events; energy and momenta would be conserved with wrong times too."""
    orbits = [Orbit(h, 10 if quick else 100) for h in (0.1, 0.02)]
    return Outcome(
        [row for x in orbits for row in (*x.checks(), *x.information())],
        draw_kepler(orbits),
        motion=lambda: moving_planet(orbits[0]),
        parameters={
            "eccentricity": ECCENTRICITY,
            "heights": [x.h for x in orbits],
            "periods": orbits[0].periods,
            "start": "end of the minor axis",
        },
        left_out=("100 periods instead of 10",),
    )


def on_ellipse(t: np.ndarray) -> np.ndarray:
    """The planet in −1/r at the times after its start at the end of the minor axis, by Kepler's equation."""
    mean = np.pi / 2 - ECCENTRICITY + t
    angle = mean.copy()
    for _ in range(50):
        angle -= (angle - ECCENTRICITY * np.sin(angle) - mean) / (1 - ECCENTRICITY * np.cos(angle))
    return np.stack([np.cos(angle) - ECCENTRICITY, MOMENTUM * np.sin(angle)], axis=-1)


def moving_planet(x: Orbit, periods: float = 3.0) -> Scene:
    """The planet on terraces beside the planet in −1/r."""
    q = np.asarray(x.run.q)
    angle = np.linspace(0, 2 * np.pi, 37)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    both = np.stack([q, on_ellipse(np.asarray(x.run.t)), np.zeros_like(q)], axis=1)
    return shown(
        x.run.t,
        both,
        2 * np.pi * periods,
        lines=[edge * circle for edge in (1 / (1 + (0.5 - k) * x.h) for k in range(-14, 7, 2)) if edge > 0.25],
        colors=(1, 0, 4),
        names={"on terraces": 1, "in −1/r": 0, "sun": 4},
        series={"V_h": (x.run.t, x.run.energy - x.run.kinetic), "V": (x.run.t, x.run.smooth_energy - x.run.kinetic)},
        trail=80,
        title="A planet over the terraces of −1/r",
        subtitle=f"h = {x.h:g}, {periods:g} periods of the ellipse",
    )


def draw_kepler(orbits: list[Orbit]) -> Figure:
    """The potential in three forms, the orbit over the terraces, and the errors of the invariants."""
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
