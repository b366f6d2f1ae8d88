"""Trajectories of the argon cluster: after 100 ns, where only their kind can be compared (figure 7), and over some
events, which are symplectic and reversible to rounding (theorem 3.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...analysis.measure import step_jacobian
from ...methods import EnergyStepping, Verlet
from ...run import Trajectory, simulate
from ..base import Outcome, experiment
from ..checks import Check
from .argon import FEMTOSECOND, PARTS, PICOSECOND, atoms_of, cluster, height, long_run
from .terraces import PAPER, terraced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...view import Scene


class Window(NamedTuple):
    """A whole run, sampled seldom, and its last 50 ps, sampled every 10 fs."""

    whole: Trajectory
    end: Trajectory

    @property
    def radius(self) -> np.ndarray:
        """Root mean square of the distances of the atoms from their centre, over time."""
        q = self.whole.q - self.whole.q.mean(axis=1, keepdims=True)
        return np.sqrt(np.mean(np.sum(q**2, axis=2), axis=1))

    @property
    def farthest(self) -> float:
        return float(max(np.linalg.norm(run.q, axis=2).max() for run in self))


def windows(ns: float) -> dict[str, Window]:
    """The reference, Verlet at 10 fs, and energy-stepping with three heights. The last 50 ps start from a saved
    point of the run."""
    samples, dt = 2000, 10 * FEMTOSECOND
    reference = simulate(
        cluster().system,
        cluster().q0,
        cluster().v0,
        method=Verlet("kick"),
        dt=dt,
        t_end=ns,
        save_every=round(ns / dt / samples),
    )
    at = round((1 - 0.05 / ns) * samples)
    end = simulate(cluster().system, reference.q[at], reference.v[at], method=Verlet("kick"), dt=dt, t_end=0.05)
    found = {"Verlet, 10 fs": Window(reference, end)}
    for parts in PARTS:
        run = long_run(parts, ns)
        found[f"energy-stepping, E₀/{parts}"] = Window(
            run, terraced(cluster().system, run.q[at], run.v[at], height(parts), 0.05, 5000)
        )
    return found


def symplecticity(events: int = 20) -> float:
    """max |JᵀΩJ − Ω| over max |J|², with J the derivative of (q, p) after so many events at E₀/100. Momenta are in
    nanometres per picosecond: the blocks of J then have comparable sizes, and none hides the others."""
    q, p = jnp.asarray(cluster().q0), jnp.asarray(cluster().v0)
    times = long_run(100, 1.0).events.times
    jacobian = np.asarray(
        step_jacobian(
            EnergyStepping(height(100), offset=0.0),
            cluster().system,
            q,
            p,
            jnp.asarray(0.5 * (times[events - 1] + times[events])),
        )
    )
    scale = np.concatenate([np.ones(q.size), np.full(q.size, PICOSECOND)])
    jacobian = jacobian * scale[:, None] / scale
    omega = np.kron([[0, 1], [-1, 0]], np.eye(q.size))
    return float(np.max(np.abs(jacobian.T @ omega @ jacobian - omega)) / np.max(np.abs(jacobian)) ** 2)


def reversal(events: int = 100) -> tuple[float, int]:
    """The distance from the start after so many events forwards and as many backwards, and the number of events
    backwards."""
    times = long_run(100, 1.0).events.times
    half = float(0.5 * (times[events - 1] + times[events]))
    there = terraced(cluster().system, cluster().q0, cluster().v0, height(100), half)
    back = terraced(cluster().system, there.q[-1], -there.v[-1], height(100), half)
    return float(np.abs(back.q[-1] - cluster().q0).max()), len(back.events)


@experiment(
    PAPER,
    "argon-trajectories",
    "Argon after 100 ns: with every height the cluster is whole; events are symplectic and reversible",
    "Figure 7",
)
def argon_trajectories(quick: bool) -> Outcome:
    """The last 50 ps of each run. The positions of single atoms are random; that all seven are still together,
    about the point where they started, is not. Short pieces are exact: symplectic, and back at the start after
    reversal."""
    found = windows(1.0 if quick else 100.0)
    reference = next(iter(found))
    checks = [*event_checks(quick), *(row for name in found for row in window_checks(name, found, quick))]
    return Outcome(
        checks,
        draw_trajectories(found),
        motion=lambda: last_motion(found["energy-stepping, E₀/100"], "h = E₀/100"),
        parameters={"ns": 1.0 if quick else 100.0, "heights": "E₀/100, E₀/60, E₀/30", f"step of {reference}": "10 fs"},
        left_out=("symplecticity of 20 events", "100 ns instead of 1", "mean radius of the cluster over 100 ns"),
    )


def event_checks(quick: bool) -> list[Check]:
    """Theorem 3.1 over some events."""
    apart, again = reversal()
    derivative = () if quick else (symplecticity_check(),)
    return [
        *derivative,
        Check(
            "E₀/100, 100 events and back: from the start, nm",
            apart,
            (None, 1e-10),
            paper="time-reversible",
            where="Theorem 3.1",
            note="rounding, amplified by chaos",
        ),
        Check(
            "E₀/100, 100 events and back: events on the way back",
            again,
            (100, 100),
            paper="time-reversible",
            where="Theorem 3.1",
        ),
    ]


def symplecticity_check() -> Check:
    return Check(
        "E₀/100, 20 events: JᵀΩJ − Ω over |J|²",
        symplecticity(),
        (None, 1e-13),
        paper="symplectic",
        where="Theorem 3.1",
        note="J, the derivative of (q, p) after the events",
    )


def window_checks(name: str, found: dict[str, Window], quick: bool) -> list[Check]:
    """What all motions of the cluster have in common; the first of `found` is the reference."""
    reference, x, checks = next(iter(found)), found[name], []
    size = found[reference].radius.mean()
    checks.append(
        Check(
            f"{name}: an atom's largest distance from the origin, nm",
            x.farthest,
            (0.4, 0.8),
            paper="remain stable over long periods of time",
            where="Fig. 7",
            verdict="chaotic",
            note="all atoms stay bound",
            rtol=None,
        )
    )
    checks.append(
        Check(
            f"{name}: shift of the centre, nm",
            np.abs(x.whole.q.mean(axis=1) - cluster().q0.mean(axis=0)).max(),
            (None, 5e-9),
            paper="the center of mass of the cluster remains fixed",
            where="section 5.1",
            note="rounding, times the time",
            rtol=None,
        )
    )
    if not quick and name != reference:  # in 1 ns the cluster visits too few of its shapes for a mean
        checks.append(
            Check(
                f"{name}: mean radius of the cluster over the reference's",
                x.radius.mean() / size,
                (0.98, 1.02),
                paper="qualitatively as the reference",
                where="Fig. 7",
                verdict="chaotic",
                note="mean over the run; the spread is that of ten tenths of it",
                spread=np.std([part.mean() for part in np.array_split(x.radius, 10)]) / size,
                rtol=None,
            )
        )
    return checks


def last_motion(x: Window, name: str) -> Scene:
    """The first 20 of the last 50 ps."""
    run = terraced(cluster().system, x.end.q[0], x.end.v[0], height(100), 20 * PICOSECOND, 1200)
    return atoms_of(run, "Seven argon atoms at the end of the run", f"{name}, 20 ps")


def draw_trajectories(found: dict[str, Window]) -> Figure:
    """The paths of the atoms, and the hexagon they began at."""
    from ...plots.figures import new_figure

    figure = new_figure(10.0, 10.4)
    hexagon = cluster().q0[[1, 2, 3, 4, 5, 6, 1]]
    for axes, (name, x) in zip(figure.subplots(2, 2, sharex=True, sharey=True).ravel(), found.items(), strict=True):
        for atom in range(7):
            axes.plot(*x.end.q[:, atom].T, lw=0.5, color=f"C{atom}")
        axes.plot(*hexagon.T, "k--", lw=1.1)
        axes.set(aspect="equal", xlim=(-0.62, 0.62), ylim=(-0.62, 0.62))
        axes.set_title(name, fontsize=10)
        axes.grid(alpha=0.25)
    figure.supxlabel("x, nm")
    figure.supylabel("y, nm")
    figure.suptitle(f"The last 50 ps of {next(iter(found.values())).whole.t[-1]:g} ns; dashed: the start", fontsize=11)
    return figure
