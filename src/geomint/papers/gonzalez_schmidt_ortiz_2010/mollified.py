"""Theorem 2.1: energy-stepping is the limit of motions in smooth staircases.

With a smooth S that is 0 below −1 and 1 above 1, S' ≥ 0 the mollifier of (22), the terraces become

    χ_ε(V) = h Σ_k S((V − k h)/ε),

and their edges ramps of the width 2ε in V. Here S(s) = ½(1 + tanh(2s/(1 − s²))) for |s| < 1, all of whose derivatives
vanish at ±1.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ...methods import Composition, Verlet
from ...run import Trajectory, simulate
from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check
from .terraces import PAPER, rate, shown, terraced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...view import Scene

HEIGHT, END = 0.25, 6.0
START, VELOCITY = np.array([0.9, 0.35]), np.array([-0.35, 0.9])
AWAY = 0.05  # the r of theorem 2.1: velocities are compared at times this far from all events


def bowl(q: Any) -> Any:
    return 0.5 * (q[0] ** 2 + 2 * q[1] ** 2)


def staircase(q: Any, params: Any) -> Any:
    """χ_ε(V)."""
    V = bowl(q) / HEIGHT
    edge = jnp.floor(V + 0.5)  # the nearest one
    s = (V - edge) * HEIGHT / params["width"]
    inside = jnp.abs(s) < 1
    ramp = 0.5 * (1 + jnp.tanh(2 * jnp.where(inside, s, 0.0) / (1 - jnp.where(inside, s, 0.0) ** 2)))
    return HEIGHT * (edge - 1 + jnp.where(inside, ramp, s > 0))


@functools.cache
def terraces_of_bowl() -> System:
    return System(bowl)


class Mollified:
    """The motion in χ_ε(V) by a composition of order 8, and its distances from energy-stepping at the same times."""

    def __init__(self, share: float):
        self.share, width = share, share * HEIGHT
        samples = int(np.ceil(END / (0.2 * width)))
        system = System(staircase, params={"width": jnp.asarray(width)})
        times: dict[str, Any] = {"dt": END / samples / 8, "t_end": END, "save_every": 8}
        self.run = simulate(system, START, VELOCITY, method=Composition(Verlet(), order=8), **times)
        self.limit = terraced(terraces_of_bowl(), START, VELOCITY, HEIGHT, END, samples)
        t, events = np.asarray(self.run.t), self.limit.events.times
        speed = np.linalg.norm(self.run.v - self.limit.v, axis=1)
        away = np.min(np.abs(t[:, None] - events), axis=1) > AWAY
        self.position = float(np.max(np.linalg.norm(self.run.q - self.limit.q, axis=1)))
        self.power = {p: float(np.mean(speed**p) * END) ** (1 / p) for p in (1, 2, 4)}  # in L^p
        self.uniform = float(np.max(speed[away]))
        level = np.floor(0.5 * np.sum(np.asarray(self.run.q) ** 2 * [1, 2], axis=1) / HEIGHT)
        self.other_levels = int(np.sum(level[away] != self.limit.level[away]))
        self.energy_error = float(np.max(np.abs(self.run.energy_error)))


@experiment(
    PAPER,
    "mollified-terraces",
    "Energy-stepping is the limit of smooth staircases: positions converge like ε, velocities like ε^(1/p) in L^p",
    "Theorem 2.1",
)
def mollified_terraces(quick: bool) -> Outcome:
    """Theorem 2.1: where ∇V ≠ 0 and (n·q̇)² is neither 0 nor 2h nᵀM⁻¹n at any edge, the motions in χ_ε(V) converge to
    the energy-stepping trajectory: q in W^{1,p} for p < ∞, and q̇ uniformly but for neighbourhoods of the events.

    The theorem states no rate. A ramp is crossed in a time O(ε), which delays the motion by O(ε), and in which the
    velocity is wrong by O(1): the rates are 1 for q, 1/p for q̇ in L^p, and 1 for q̇ away from events. The motion goes
    up, down, and is reflected.
    """
    found = [Mollified(share) for share in 0.01 / 2.0 ** np.arange(3 if quick else 5)]
    widths = np.array([x.share for x in found])
    last = found[-1]
    return Outcome(
        theorem_checks(found, widths),
        draw_mollified(found),
        motion=moving_points,
        parameters={
            "V": "½(x² + 2y²)",
            "h": HEIGHT,
            "ε/h": widths.tolist(),
            "t_end": END,
            "q0": START.tolist(),
            "v0": VELOCITY.tolist(),
            "steps": len(last.run.t) * 8 - 8,
        },
        left_out=("widths down to 0.0006 h",),
    )


def theorem_checks(found: list[Mollified], widths: np.ndarray) -> list[Check]:
    where, own, last = "Theorem 2.1", "the theorem states no rate; ", found[-1]
    events = last.limit.events
    rates: list[tuple[str, list[float], tuple[float, float], str, str]] = [
        ("of the positions, uniformly", [x.position for x in found], (0.9, 1.1), "converge uniformly", "1"),
        ("of the velocities away from events", [x.uniform for x in found], (0.85, 1.15), "converge uniformly", "1"),
        *(
            (
                f"of the velocities in L^{p}",
                [x.power[p] for x in found],
                (0.85 / p, 1.15 / p),
                "converge for all p < ∞",
                f"1/{p}",
            )
            for p in (1, 2, 4)
        ),
    ]
    return [
        *(
            Check(f"rate {name}", rate(widths, errors), bounds, paper=says, where=where, note=f"{own}it is {true}")
            for name, errors, bounds, says, true in rates
        ),
        Check(
            f"largest distance of the positions, ε = {last.share:g} h",
            last.position,
            (None, 3 * last.share),
            paper="converge to energy-stepping",
            where=where,
        ),
        Check(
            f"times away from events at which the levels differ, ε = {last.share:g} h",
            last.other_levels,
            (0, 0),
            paper="the physical solutions are selected",
            where="section 2.2, (ii)",
            note=f"{events['up']} steps up, {events['down']} down, {events['reflected']} reflections",
        ),
        Check(
            "kinds of events that occur",
            sum(events[kind] > 0 for kind in ("up", "down", "reflected")),
            (3, 3),
            verdict="information",
        ),
        Check(
            "largest error of the energy in the smooth staircases",
            max(x.energy_error for x in found),
            (None, 1e-6),
            verdict="information",
            note="the steps resolve the ramps",
        ),
    ]


def moving_points(share: float = 0.3) -> Scene:
    """Energy-stepping, and the motions in two smooth staircases."""
    wide, narrow = Mollified(share), Mollified(0.05)
    t = np.linspace(0, END, 240)
    place = lambda run: np.stack([np.interp(t, run.t, x) for x in np.asarray(run.q).T], axis=-1)
    speed = lambda run: np.interp(t, run.t, np.linalg.norm(run.v, axis=1))
    runs = {
        f"ε = {share:g} h": wide.run,
        f"ε = {narrow.share:g} h": narrow.run,
        "energy-stepping": narrow.limit,
    }
    angle = np.linspace(0, 2 * np.pi, 61)
    ellipses = [
        np.sqrt(2 * k * HEIGHT) * np.stack([np.cos(angle), np.sin(angle) / np.sqrt(2)], axis=1) for k in range(1, 6)
    ]
    return shown(
        t,
        np.stack([place(run) for run in runs.values()], axis=1),
        lines=ellipses,
        colors=(2, 0, 1),
        names={name: color for name, color in zip(runs, (2, 0, 1), strict=True)},
        series={f"speed, {name}": (t, speed(run)) for name, run in runs.items()},
        trail=60,
        title="Smooth staircases and their limit",
        subtitle="the ellipses are the edges of the terraces",
    )


def draw_mollified(found: list[Mollified]) -> Figure:
    """The motion over the terraces, the speed at an event, and the convergence."""
    from ...plots.figures import new_figure

    figure = new_figure(14.0, 4.7)
    left, middle, right = figure.subplots(1, 3)
    last, wide = found[-1], Mollified(0.06)
    angle = np.linspace(0, 2 * np.pi, 300)
    for k in range(1, 7):
        r = np.sqrt(2 * k * HEIGHT)
        left.plot(r * np.cos(angle), r * np.sin(angle) / np.sqrt(2), color="0.8", lw=0.8, zorder=0)
    left.plot(*np.asarray(last.limit.q).T, color="C3", lw=1.6, label="energy-stepping")
    left.plot(*np.asarray(wide.run.q).T, color="C0", lw=1.1, ls="--", label=f"smooth, ε = {wide.share:g} h")
    left.set(aspect="equal", xlim=(-1.45, 1.45), ylim=(-1.25, 1.35), title="The motion over the edges (grey)")
    left.legend(frameon=True, framealpha=0.9, fontsize=9, loc="upper left", ncols=2)
    draw_event(middle, [wide, *found[:: max(1, len(found) // 2)]], last.limit)
    widths = np.array([x.share for x in found])
    for label, errors, order, style in (
        ("q, uniformly", [x.position for x in found], 1.0, "oC0"),
        ("q̇ away from events", [x.uniform for x in found], 1.0, "sC2"),
        ("q̇ in L¹", [x.power[1] for x in found], 1.0, "vC4"),
        ("q̇ in L²", [x.power[2] for x in found], 0.5, "^C1"),
        ("q̇ in L⁴", [x.power[4] for x in found], 0.25, "DC3"),
    ):
        right.loglog(widths, errors, style[0], ms=5, color=style[1:], label=label)
        right.loglog(widths, errors[-1] * (widths / widths[-1]) ** order, "--", lw=0.9, color=style[1:])
    right.set(xlabel="ε/h", ylabel="distance from energy-stepping", title="Convergence (dashed: slopes 1, ½, ¼)")
    right.legend(frameon=False, fontsize=9)
    for axes in (middle, right):
        axes.grid(alpha=0.25)
    return figure


def draw_event(axes: Any, found: list[Mollified], limit: Trajectory) -> None:
    """The speed over the first events, for several widths."""
    for x, color in zip(found, ("C0", "C2", "C4", "C1", "C5"), strict=False):
        axes.plot(x.run.t, np.linalg.norm(x.run.v, axis=1), color=color, lw=1.1, label=f"ε = {x.share:g} h")
    axes.step(limit.t, np.linalg.norm(limit.v, axis=1), "k--", lw=1, label="energy-stepping")
    some = np.asarray(limit.t) < 2.0
    speed = np.linalg.norm(np.asarray(limit.v)[some], axis=1)
    axes.set(xlabel="time", ylabel="speed", xlim=(0, 2), title="The speed: jumps become ramps")
    axes.set_ylim(speed.min() - 0.1, speed.max() + 0.35)
    axes.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)
