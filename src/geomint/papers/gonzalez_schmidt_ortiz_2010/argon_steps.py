"""How fast energy-stepping converges on the argon cluster, how long its steps are, and how they end.

The motion is chaotic: two runs that differ by rounding are unrelated after some tens of picoseconds. The paper's rate
of convergence rests on (68), the difference of two norms of whole runs over 1 ns. It compares long-time averages of
two unrelated runs, whose scatter does not tend to zero with h. Here the error is the norm of the difference over 1 ps,
where runs still agree, and a median over 24 starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ...methods import Composition, Verlet
from ...methods.flight import REFLECTED, STRETCH
from ...run import simulate
from ...system.lagrangian import derive
from ..base import Outcome, experiment
from ..checks import Check
from .argon import COLORS, FEMTOSECOND, PARTS, PICOSECOND, cluster, height, long_run, nanoseconds, verlet
from .terraces import PAPER, rate, terraced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# --- convergence ------------------------------------------------------------------------------------------------------
def norm(q: Any, v: Any, unit: float = PICOSECOND) -> float:
    """The norm (67), up to a factor. In nanometres and nanoseconds, the units of the paper's table I, the
    velocities dominate the positions."""
    return float(np.sqrt(np.sum(np.square(q)) + np.sum(np.square(np.asarray(v) * unit))))


class Convergence:
    """Errors over 1 ps and steps, for each height: medians over 24 starts, 10 ps apart on a Verlet run of 10 fs."""

    def __init__(self, parts: np.ndarray, starts: int = 24):
        self.parts = parts
        between = simulate(
            cluster().system,
            cluster().q0,
            cluster().v0,
            method=Verlet("kick"),
            dt=10 * FEMTOSECOND,
            t_end=0.01 * (starts - 1),
            save_every=1000,
        )
        self.errors, self.mean, self.longest = (
            np.zeros((len(parts), starts)),
            np.zeros(len(parts)),
            np.zeros((len(parts), starts)),
        )
        for j, (q, v) in enumerate(zip(between.q, between.v, strict=True)):
            exact = simulate(
                cluster().system, q, v, method=Composition(Verlet(), order=8), dt=2 * FEMTOSECOND, t_end=PICOSECOND
            )
            for i, n in enumerate(parts):
                run = terraced(cluster().system, q, v, height(n), PICOSECOND, 500)
                self.errors[i, j] = norm(run.q - exact.q, run.v - exact.v) / norm(exact.q, exact.v)
                self.mean[i] += len(run.events) / starts
                self.longest[i, j] = np.diff(run.events.times, prepend=0.0, append=PICOSECOND).max() / FEMTOSECOND
        self.heights, self.mean = 1 / parts, PICOSECOND / FEMTOSECOND / self.mean


def norm_differences(parts: np.ndarray) -> tuple[np.ndarray, float]:
    """(68) over 1 ns in nanoseconds, sampled every 10 fs, for each height; and for Verlet at 5 fs, where it should
    be nearly zero."""
    long = lambda run: norm(run.q, run.v, 1.0)
    reference = long(verlet(10, 1.0))
    found = [
        abs(long(terraced(cluster().system, cluster().q0, cluster().v0, height(n), 1.0, 100_000)) / reference - 1)
        for n in parts
    ]
    return np.array(found), abs(long(verlet(5, 1.0, 2)) / reference - 1)


@experiment(
    PAPER,
    "argon-convergence",
    "Argon: the error over 1 ps falls like √h, the mean step like h, the longest like √h",
    "Figure 8",
)
def argon_convergence(quick: bool) -> Outcome:
    """The true error in the norm (67), median over 24 starts. The paper's (68) is drawn beside it: over 1 ns it is a
    difference of averages of unrelated runs, and does not even order the heights."""
    x = Convergence(100 * 8 ** np.arange(3) if quick else 50 * 2 ** np.arange(11))
    checks = [
        Check("rate of the error over 1 ps", rate(x.heights, np.median(x.errors, axis=1)), (0.48, 0.6), note="about ½"),
        Check("rate of the mean step", rate(x.heights, x.mean), (0.97, 1.03), note="1"),
        Check("rate of the longest step", rate(x.heights, np.median(x.longest, axis=1)), (0.45, 0.56), note="½"),
    ]
    differences = None if quick else (parts := 50 * 2 ** np.arange(6), *norm_differences(parts))
    return Outcome(checks, draw_convergence(x, differences))


def draw_convergence(x: Convergence, differences: tuple[np.ndarray, np.ndarray, float] | None) -> Figure:
    """Errors on the left, steps on the right."""
    from ...plots.figures import new_figure

    figure = new_figure(11.5, 4.8)
    left, right = figure.subplots(1, 2)
    middle = np.median(x.errors, axis=1)
    low, high = np.quantile(x.errors, [0.25, 0.75], axis=1)
    left.fill_between(x.heights, low, high, color="C0", alpha=0.2, lw=0, label="half of the starts")
    left.loglog(x.heights, middle, "o-", color="C0", lw=1, label="true error over 1 ps, median")
    left.loglog(x.heights, middle[0] * np.sqrt(x.heights / x.heights[0]), "k--", lw=1, label="slope ½")
    if differences is not None:
        parts, found, floor = differences
        left.loglog(1 / parts, found, "x", color="C3", label="(68) over 1 ns")
        left.axhline(floor, color="C3", lw=0.9, ls=":", label="(68) for Verlet at 5 fs against 10 fs")
    left.set(xlabel="h/E₀", ylabel="relative error", title="Convergence")
    for y, color, style, name, order in (
        (x.mean, "C0", "*", "mean", 1.0),
        (np.median(x.longest, axis=1), "C3", "o", "longest in 1 ps, median", 0.5),
    ):
        right.loglog(x.heights, y, style, color=color, ms=7, label=name)
        right.loglog(
            x.heights, y[-1] * (x.heights / x.heights[-1]) ** order, "--", lw=1, color=color, label=f"slope {order:g}"
        )
    right.set(xlabel="h/E₀", ylabel="time step, fs", title="Steps")
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8)
    return figure


# --- steps and traps
# -------------------------------------------------------------------------------------------------- Medians over
# nanoseconds of the share of events that reflect and of the share of the time in traps. Means would be those of a few
# long traps. Medians of nine nanoseconds scatter by a half.
REFLECTIONS = {100: (0.19, 0.3), 60: (0.33, 0.48), 30: (0.64, 0.83)}
TRAPPED = {100: (0.005, 0.16), 60: (0.03, 0.25), 30: (0.1, 0.55)}


def approach(parts: int, picoseconds: float) -> tuple[np.ndarray, np.ndarray]:
    """|n·q̇|/√h just before each event, n = ∇V/|∇V|, and whether the event is a reflection. Flights are straight,
    so that a saved point within a flight gives the position at its end; the few flights without one are left out."""
    samples = round(10 * picoseconds * parts)  # about fifty in a flight
    run = terraced(cluster().system, cluster().q0, cluster().v0, height(parts), picoseconds * PICOSECOND, samples)
    times, before = run.events.times, np.searchsorted(run.t, run.events.times) - 1
    within = run.t[before] > np.concatenate([[0.0], times[:-1]])
    late, v = (times - run.t[before])[within, None, None], run.v[before][within]
    mech: Any = derive(cluster().system, cluster().q0.shape)
    slope = np.asarray(jax.vmap(mech.force)(jnp.asarray(run.q[before][within] + late * v)))
    speed = np.abs(np.sum(slope * v, axis=(1, 2))) / np.linalg.norm(slope, axis=(1, 2))
    return speed / np.sqrt(height(parts)), run.events.codes[within] == REFLECTED


def transversality(quick: bool) -> list[Check]:
    """Definition 4.1 requires that the smallest |n·q̇|/√h over the events tends to infinity as h → 0. A reflection
    has (n·q̇)² ≤ 2h for unit masses, so that one reflection for each h contradicts it."""
    found = {parts: approach(parts, 2.0) for parts in ((100, 800) if quick else (100, 800, 6400))}
    largest = max(float(speed[reflected].max(initial=0.0)) for speed, reflected in found.values())
    checks = [
        Check(
            "largest |n·q̇|/√h at a reflection, all heights",
            largest,
            (1.0, np.sqrt(2) + 1e-6),
            note="at most √2",
            rtol=None,
        )
    ]
    return checks + [
        Check(
            f"E₀/{parts}, 2 ps: smallest |n·q̇|/√h at an event",
            speed.min(),
            (0.0, np.sqrt(2)),
            note="below √2; Definition 4.1 asks that it grows without bound",
            rtol=None,
        )
        for parts, (speed, _) in found.items()
    ]


class Flights:
    """Flights between events, and stretches of events in which the cluster is trapped."""

    def __init__(self, times: np.ndarray, codes: np.ndarray, begin: float = 0.0):
        self.lengths = np.diff(times, prepend=begin) / FEMTOSECOND  # each ends in an event
        reflected = codes == REFLECTED
        ends = np.flatnonzero(np.diff(np.concatenate([[False], reflected, [False]]).astype(int)))
        rows = np.stack([ends[::2], ends[1::2]], axis=1)  # of reflections
        self.rows = rows[:, 1] - rows[:, 0]
        self.trapped = rows[self.rows >= STRETCH]
        self.inside = np.zeros(len(times), bool)
        for first, end in self.trapped:
            self.inside[first + 1 : end] = True
        self.reflected = float(np.mean(reflected))
        self.share = float(self.lengths[self.inside].sum() / self.lengths.sum())  # of the time that is spent in traps


class Statistics(Flights):
    """Of a run; and of single nanoseconds, of which one may be trapped from end to end: those of the run where it has
    a hundred, otherwise of runs that begin in other directions."""

    def __init__(self, parts: int, quick: bool):
        self.parts, self.run = parts, long_run(parts, 1.0 if quick else 100.0)
        events = self.run.events
        super().__init__(events.times, events.codes)
        self.counts: dict[str, Any] = events.counts
        if quick:
            self.nanoseconds = [Flights(run.events.times, run.events.codes) for run in nanoseconds(parts)]
        else:
            pieces = (
                np.split(x, np.searchsorted(events.times, np.arange(1.0, 100.0))) for x in (events.times, events.codes)
            )
            self.nanoseconds = [
                Flights(times, codes, float(k)) for k, (times, codes) in enumerate(zip(*pieces, strict=True))
            ]

    def median(self, of: Callable[[Flights], float]) -> float:
        """The median over the nanoseconds."""
        return float(np.median([of(x) for x in self.nanoseconds]))

    def checks(self) -> list[Check]:
        name, counts = f"E₀/{self.parts}", self.counts
        climbed = int(self.run.level[-1] - self.run.level[0])
        reflected, trapped = self.median(lambda x: x.reflected), self.median(lambda x: x.share)
        return [
            Check(
                f"{name}: up, less down, less levels climbed", counts["up"] - counts["down"] - climbed, (0, 0), note="0"
            ),
            Check(
                f"{name}: reflected, share of the events of a nanosecond, median",
                reflected,
                REFLECTIONS[self.parts],
                rtol=None,
            ),
            Check(
                f"{name}: share of the time in stretches of {STRETCH} reflections and more, median",
                trapped,
                TRAPPED[self.parts],
                rtol=None,
            ),
            Check(
                f"{name}: evaluations of V, V', V'' for an event",
                counts["jets"] / counts["events"],
                (2.2, 3.2),
                note="2.3 … 3.0",
                rtol=None,
            ),
            Check(
                f"{name}: stretches that the method counted, less those in its log",
                counts["stretches"] - len(self.trapped),
                (0, 0),
                note="0",
            ),
        ]

    def information(self) -> list[Check]:
        rows = {
            "events": len(self.lengths),
            "reflected, share of all events": self.reflected,
            "share of the time in stretches, whole run": self.share,
        }
        rows |= {
            "shortest flight, fs": self.lengths.min(),
            f"stretches of {STRETCH} reflections and more": len(self.trapped),
            "reflections in the longest of them": self.rows.max(),
        }
        return [
            Check(f"E₀/{self.parts}: {name}", x, verdict="information", note="chaotic", rtol=None)
            for name, x in rows.items()
        ]


@experiment(
    PAPER,
    "step-statistics",
    "Argon: how long flights are, how they end, and the stretches in which the cluster is trapped along an edge",
    "Sections 2, 4.2 and 5.1",
)
def step_statistics(quick: bool) -> Outcome:
    """In a trap the cluster moves along an edge: V rises to the edge, too slowly to pass it, is reflected, falls by
    a part of h, and rises again, hundreds to hundreds of thousands of times. Energy and momenta are conserved there
    as everywhere; the motion is not that of the smooth V. The paper calls traps exceedingly unlikely and its
    trajectories transversal; a quarter to three quarters of the events are reflections."""
    found = [Statistics(parts, quick) for parts in PARTS]
    checks = [check for x in found for check in x.checks()] + transversality(quick)
    checks.append(
        Check(
            "all heights: stretches of reflections",
            sum(len(x.trapped) for x in found),
            (1, None),
            note="at least one",
            rtol=None,
        )
    )
    return Outcome([*checks, *(row for x in found for row in x.information())], draw_statistics(found))


def draw_statistics(found: list[Statistics]) -> Figure:
    """Flight times, kinds of events, sequences of reflections, and V in a trap."""
    from ...plots.figures import new_figure

    figure = new_figure(12.0, 8.0)
    (flights, kinds), (rows, trap) = figure.subplots(2, 2)
    for x in found:
        color, label = COLORS[x.parts], f"h = E₀/{x.parts}"
        flights.hist(
            x.lengths,
            bins=np.arange(0, 600, 5),
            density=True,
            histtype="step",
            lw=1.2,
            color=color,
            label=f"{label}, mean {x.lengths.mean():.1f} fs",
        )
        length = np.sort(x.rows)[::-1]
        rows.loglog(length, np.arange(1, len(length) + 1), drawstyle="steps-post", lw=1.2, color=color, label=label)
    flights.set(
        yscale="log", ylim=(1e-7, 0.1), xlabel="flight time, fs", ylabel="density", title="Flights", xlim=(0, 600)
    )
    rows.axvline(STRETCH, color="k", lw=0.8, ls="--")
    rows.set(
        xlabel="reflections in a row",
        ylabel="number of rows that long or longer",
        title="Rows of reflections (dashed: a trap)",
    )
    draw_kinds(kinds, found)
    draw_trap(trap, max(found, key=lambda x: x.rows.max()))
    for axes in (flights, rows):
        axes.legend(frameon=False, fontsize=9)
        axes.grid(alpha=0.25)
    return figure


def draw_kinds(axes: Axes, found: list[Statistics]) -> None:
    """Shares of the events, one bar for each height."""
    for row, x in enumerate(found):
        inside = int(x.inside.sum())
        shares = {
            "up": x.counts["up"],
            "down": x.counts["down"],
            "reflected": x.counts["reflected"] - inside,
            "reflected, in a trap": inside,
        }
        left = 0.0
        for (label, count), color in zip(shares.items(), ("C4", "C1", "0.75", "0.35"), strict=True):
            share = count / x.counts["events"]
            axes.barh(row, share, left=left, color=color, label=label if row == 0 else None)
            if share > 0.03:
                axes.text(
                    left + share / 2,
                    row,
                    f"{100 * share:.0f} %",
                    ha="center",
                    va="center",
                    fontsize=9,
                    color="w" if color == "0.35" else "k",
                )
            left += share
    axes.set_yticks(range(len(found)), [f"E₀/{x.parts}" for x in found])
    axes.set(xlim=(0, 1), ylim=(-0.6, len(found) + 0.2), xlabel="share of the events", title="How flights end")
    axes.legend(frameon=False, fontsize=9, ncols=4, loc="upper center")


def draw_trap(axes: Axes, x: Statistics) -> None:
    """V over 4 ps, from a saved point of the run within its longest trap."""
    if not len(x.trapped):
        return
    begin, end = x.run.events.times[x.trapped[np.argmax(x.trapped[:, 1] - x.trapped[:, 0])] - [0, 1]]
    at = int(np.argmin(np.abs(x.run.t - 0.5 * (begin + end))))
    run = terraced(cluster().system, x.run.q[at], x.run.v[at], height(x.parts), 4 * PICOSECOND, 2000)
    above = (run.smooth_energy - run.energy) / height(x.parts) + run.level - run.level[0]
    axes.plot(run.t / PICOSECOND, above, lw=1.1, color=COLORS[x.parts])
    for edge in range(2):
        axes.axhline(edge, color="k", lw=0.8, ls="--")
    axes.set(
        xlabel="time, ps",
        ylabel="V above its terrace, in h",
        ylim=(min(-0.1, above.min() - 0.1), max(1.1, above.max() + 0.1)),
        xlim=(0, 4),
    )
    axes.set_title(f"Inside the longest trap ({x.rows.max():,} reflections, h = E₀/{x.parts})")
    axes.grid(alpha=0.25)
