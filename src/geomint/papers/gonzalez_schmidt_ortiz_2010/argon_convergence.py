"""How fast energy-stepping converges on the argon cluster, and how long its steps are (figure 8).

The motion is chaotic: two runs that differ by rounding are unrelated after some tens of picoseconds. The paper's rate
of convergence rests on (68), the difference of two norms of whole runs over 1 ns. It compares long-time averages of
two unrelated runs, whose scatter does not tend to zero with h. Here the error is the norm of the difference over 1 ps,
where runs still agree, and a median over 24 starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...methods import Composition, Verlet
from ...run import simulate
from ..base import Outcome, experiment
from ..checks import Check
from .argon import FEMTOSECOND, PICOSECOND, cluster, height, rotation, verlet
from .terraces import PAPER, rate, shown, terraced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...view import Scene


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


class Differences:
    """(68) over 1 ns in nanoseconds: the relative difference of the norms (67) of energy-stepping and of Verlet at
    10 fs, from rotated copies of one start. Rows are heights, columns starts."""

    def __init__(self, parts: Sequence[int], starts: int):
        self.parts, q0, v0 = np.array(parts), cluster().q0, cluster().v0
        mean_norm = lambda run: norm(run.q, run.v, 1.0) / np.sqrt(len(run.t))
        turns = [rotation(angle) for angle in range(starts)]
        go = lambda n, turn: mean_norm(terraced(cluster().system, q0 @ turn, v0 @ turn, height(n), 1.0, 10_000))
        self.reference = np.array([mean_norm(verlet(10, 1.0, 10, angle)) for angle in range(starts)])
        self.norms = np.array([[go(n, turn) for turn in turns] for n in parts])
        self.found = np.abs(self.norms / self.reference - 1)
        self.median = np.median(self.found, axis=1)
        finer = np.array([mean_norm(verlet(5, 1.0, 20, angle)) for angle in range(starts)])
        self.floor = float(np.median(np.abs(finer / self.reference - 1)))  # of Verlet at 5 fs, nearly exact

    def checks(self) -> list[Check]:
        """What a repetition at E₀/100 with other rounding changes; and the rate, where there are several heights."""
        at, where = int(np.flatnonzero(self.parts == 100)[0]), "(68), Fig. 8"
        again = np.std(self.norms[at]) / np.mean(self.reference) / self.median[at]
        checks = [
            Check(
                f"(68) at E₀/100: scatter over {len(self.reference)} runs that differ in rounding, over its median",
                again,
                (0.5, None),
                paper="an error, O(h^½)",
                where=where,
                verdict="chaotic",
                note="(68) compares averages of unrelated runs: equal motions differ by as much as it measures",
                rtol=None,
            )
        ]
        if len(self.parts) > 1:
            checks.append(
                Check(
                    f"rate of (68) over 1 ns, median of {len(self.reference)} starts",
                    rate(1 / self.parts, self.median),
                    (-0.35, 0.45),
                    paper="O(h^½)",
                    where=where,
                    verdict="chaotic",
                    note=f"(68) of Verlet at 5 fs, which is nearly exact, is {self.floor:.1e}; see the error over 1 ps",
                    rtol=None,
                )
            )
        return checks


@experiment(
    PAPER,
    "argon-convergence",
    "Argon: the error over 1 ps falls like √h, the mean step like h, the longest like √h",
    "Figure 8",
)
def argon_convergence(quick: bool) -> Outcome:
    """The true error in the norm (67), median over 24 starts. The paper's (68) is drawn beside it: over 1 ns it is a
    difference of averages of unrelated runs, which does not tend to zero with h."""
    x = Convergence(100 * 8 ** np.arange(3) if quick else 50 * 2 ** np.arange(11))
    where = "section 5.1, Fig. 8"
    checks = [
        Check(
            "rate of the error over 1 ps",
            rate(x.heights, np.median(x.errors, axis=1)),
            (0.48, 0.6),
            paper=0.5,
            where=where,
            note="of the norm of the difference, where the paper has the difference of norms (68); 24 starts",
        ),
        Check("rate of the mean step", rate(x.heights, x.mean), (0.97, 1.03), paper=1.0, where=where),
        Check(
            "rate of the longest step",
            rate(x.heights, np.median(x.longest, axis=1)),
            (0.45, 0.56),
            paper=0.5,
            where=where,
            note="the longest in 1 ps, median of 24 starts",
        ),
    ]
    differences = Differences((100,) if quick else (50, 100, 200, 400, 800), 9 if quick else 16)
    return Outcome(
        [*checks, *differences.checks()],
        draw_convergence(x, differences),
        motion=lambda: beside_the_exact(100),
        parameters={"E₀/h": x.parts.tolist(), "starts": x.errors.shape[1], "E₀/h for (68)": differences.parts.tolist()},
        left_out=("heights down to E₀/51,200", "the rate of (68)"),
    )


def beside_the_exact(parts: int) -> Scene:
    """The first 3 ps by energy-stepping, and exact."""
    go, (q, v) = cluster().system, (cluster().q0, cluster().v0)
    run = terraced(go, q, v, height(parts), 3 * PICOSECOND, 240)
    exact = simulate(
        go, q, v, method=Composition(Verlet(), order=8), dt=2.5 * FEMTOSECOND, t_end=3 * PICOSECOND, save_every=5
    )
    t = np.asarray(run.t) / PICOSECOND
    apart = np.max(np.linalg.norm(run.q - exact.q, axis=2), axis=1)
    return shown(
        t,
        np.concatenate([run.q, exact.q], axis=1),
        colors=[1] * 7 + [0] * 7,
        radii=0.06,
        names={f"energy-stepping, h = E₀/{parts}": 1, "exact": 0},
        series={"largest distance, nm": (t, apart)},
        trail=40,
        title="Seven argon atoms: energy-stepping and the exact motion",
        subtitle="3 ps; chaos magnifies the difference",
    )


def draw_convergence(x: Convergence, differences: Differences) -> Figure:
    """Errors on the left, steps on the right."""
    from ...plots.figures import new_figure

    figure = new_figure(11.5, 4.8)
    left, right = figure.subplots(1, 2)
    middle = np.median(x.errors, axis=1)
    low, high = np.quantile(x.errors, [0.25, 0.75], axis=1)
    left.fill_between(x.heights, low, high, color="C0", alpha=0.2, lw=0, label="half of the starts")
    left.loglog(x.heights, middle, "o-", color="C0", lw=1, label="true error over 1 ps, median")
    left.loglog(x.heights, middle[0] * np.sqrt(x.heights / x.heights[0]), "k--", lw=1, label="slope ½")
    for found in differences.found.T:
        left.loglog(1 / differences.parts, found, ".", ms=3, color="C3", alpha=0.5)
    left.loglog(1 / differences.parts, differences.median, "x", ms=8, color="C3", label="(68) over 1 ns, median")
    left.axhline(differences.floor, color="C3", lw=0.9, ls=":", label="(68) for Verlet at 5 fs against 10 fs")
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
