"""How flights of the argon cluster end, and the stretches in which it is trapped along an edge (sections 2, 4.2, 5.1).

In a trap V rises to an edge, too slowly to pass it; the motion is reflected, V falls by a part of h and rises again,
hundreds to hundreds of thousands of times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ...methods.flight import REFLECTED, STRETCH
from ...run import Trajectory
from ...system.lagrangian import derive
from ..base import Outcome, experiment
from ..checks import Check
from .argon import (
    COLORS,
    FEMTOSECOND,
    PARTS,
    PICOSECOND,
    atoms_of,
    cluster,
    half_width,
    height,
    long_run,
    nanoseconds,
)
from .terraces import PAPER, terraced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Medians over nanoseconds of the share of events that reflect and of the share of the time in traps. Means would be
# those of a few long traps. Medians of nine nanoseconds scatter by a half.
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
    about: dict[str, Any] = {"where": "Definition 4.1, section 5.1", "verdict": "contradicted", "rtol": None}
    checks = [
        Check(
            "largest |n·q̇|/√h at a reflection, all heights",
            largest,
            (1.0, np.sqrt(2) + 1e-6),
            paper="tends to ∞ for h → 0 at every event: “convergent, transversal”",
            note="at most √2 at a reflection, by (19): a single one for each h contradicts transversality",
            **about,
        )
    ]
    return checks + [
        Check(
            f"E₀/{parts}, 2 ps: smallest |n·q̇|/√h at an event",
            speed.min(),
            (0.0, np.sqrt(2)),
            paper="tends to ∞ for h → 0",
            note="it does not grow",
            **about,
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

    def each(self, of: Callable[[Flights], float]) -> np.ndarray:
        """A number of each nanosecond."""
        return np.array([of(x) for x in self.nanoseconds])

    def checks(self) -> list[Check]:
        name, counts = f"E₀/{self.parts}", self.counts
        climbed = int(self.run.level[-1] - self.run.level[0])
        reflected, trapped = self.each(lambda x: x.reflected), self.each(lambda x: x.share)
        about: dict[str, Any] = {"verdict": "information", "rtol": None}
        own: dict[str, Any] = {"verdict": "information"}
        return [
            Check(
                f"{name}: reflected, share of the events of a nanosecond, median",
                np.median(reflected),
                REFLECTIONS[self.parts],
                note="reflections are ordinary events of section 2.1.3; each has |n·q̇|/√h ≤ √2, see Definition 4.1 "
                "below; ± half the distance of the quartiles",
                spread=half_width(reflected),
                **about,
            ),
            Check(
                f"{name}: share of the time in stretches of {STRETCH} reflections and more, median",
                np.median(trapped),
                TRAPPED[self.parts],
                note="of reflections along one edge; not the motions within a jump surface that section 2.1 calls "
                "exceedingly unlikely; ± half the distance of the quartiles",
                spread=half_width(trapped),
                **about,
            ),
            Check(
                f"{name}: up, less down, less levels climbed", counts["up"] - counts["down"] - climbed, (0, 0), **own
            ),
            Check(
                f"{name}: evaluations of V, V', V'' for an event",
                counts["jets"] / counts["events"],
                (2.2, 3.2),
                rtol=None,
                **own,
            ),
            Check(
                f"{name}: stretches that the method counted, less those in its log",
                counts["stretches"] - len(self.trapped),
                (0, 0),
                **own,
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
        return [Check(f"E₀/{self.parts}: {name}", x, verdict="information", rtol=None) for name, x in rows.items()]


@experiment(
    PAPER,
    "step-statistics",
    "Argon: how long flights are, how they end, and the stretches in which the cluster is trapped along an edge",
    "Sections 2, 4.2 and 5.1",
)
def step_statistics(quick: bool) -> Outcome:
    """In a trap the cluster moves along an edge: V rises to the edge, too slowly to pass it, is reflected, falls by
    a part of h, and rises again, hundreds to hundreds of thousands of times. Energy and momenta are conserved there
    as everywhere; the motion is not that of the smooth V. Section 2.1 of the paper
    excludes only motions within a jump surface as exceedingly unlikely; its Definition 4.1 asks for transversal
    trajectories, which those with reflections are not: a quarter to three quarters of the events."""
    found = [Statistics(parts, quick) for parts in PARTS]
    checks = [check for x in found for check in x.checks()] + transversality(quick)
    checks.append(
        Check(
            "all heights: stretches of reflections",
            sum(len(x.trapped) for x in found),
            (1, None),
            verdict="information",
            note="of reflections along one edge, each an event of its own; not the motions within a jump surface that "
            "section 2.1 calls exceedingly unlikely",
            rtol=None,
        )
    )
    trap = max(found, key=lambda x: x.rows.max())
    return Outcome(
        [*checks, *(row for x in found for row in x.information())],
        draw_statistics(found),
        motion=lambda: atoms_of(in_trap(trap), f"Trapped along an edge, h = E₀/{trap.parts}", "4 ps"),
        parameters={"heights": "E₀/100, E₀/60, E₀/30", "ns": 1.0 if quick else 100.0, "trap, reflections": STRETCH},
        left_out=("100 ns instead of 9 times 1", "transversality at E₀/6400"),
    )


def in_trap(x: Statistics) -> Trajectory:
    """4 ps from a saved point of the run within its longest trap."""
    begin, end = x.run.events.times[x.trapped[np.argmax(x.trapped[:, 1] - x.trapped[:, 0])] - [0, 1]]
    at = int(np.argmin(np.abs(x.run.t - 0.5 * (begin + end))))
    return terraced(cluster().system, x.run.q[at], x.run.v[at], height(x.parts), 4 * PICOSECOND, 2000)


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
    run = in_trap(x)
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
