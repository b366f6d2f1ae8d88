"""The frozen argon cluster of section 5.1: seven atoms in the plane for 100 nanoseconds.

Lengths are in nanometres, times in nanoseconds, energies in ε, the depth of the Lennard-Jones well; E₀ = |E| =
10.519254 ε.

The motion is chaotic: two runs that differ by rounding are unrelated after some tens of picoseconds. Invariants and
statistics are checked, never a trajectory.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ... import models
from ...analysis.measure import step_jacobian
from ...methods import EnergyStepping, Verlet
from ...run import Trajectory, simulate
from ...system.lagrangian import derive
from ..base import Outcome, experiment
from ..checks import Check
from .terraces import PAPER, terraced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = (100, 60, 30)  # heights are E₀ over these
COLORS: dict[int, str] = dict(zip(PARTS, ("C0", "C2", "C3"), strict=True))
FEMTOSECOND, PICOSECOND = 1e-6, 1e-3
PAPER_STEPS = {100: 56.98, 60: 87.56, 30: 124.88}  # fs, the mean steps
WHOLE_RUN = {100: (45, 64), 60: (72, 104), 30: (105, 165)}  # fs, over 100 ns; one trap of 3e5 reflections adds 15 %
STEP_RANGES = {
    100: (45, 56),
    60: (72, 92),
    30: (120, 155),
}  # fs, medians over single nanoseconds, which scatter by 3 %


@functools.cache
def cluster() -> models.Model:
    """One system for all runs, so that a method is compiled for it once."""
    return models.argon_cluster()


def epsilon() -> float:
    """The depth of the well."""
    return float(cluster().system.params["epsilon"])


@functools.cache
def start_energy() -> float:
    mech: Any = derive(cluster().system, cluster().q0.shape)
    return float(mech.energy(jnp.asarray(cluster().q0), jnp.asarray(cluster().v0)))  # masses are 1


def height(parts: float) -> float:
    return -start_energy() / parts


@functools.cache
def long_run(parts: int, ns: float) -> Trajectory:
    """Energy-stepping at the height E₀/parts, sampled 2000 times."""
    return terraced(cluster().system, cluster().q0, cluster().v0, height(parts), ns, 2000)


@functools.cache
def nanoseconds(parts: int) -> list[Trajectory]:
    """A nanosecond from each of nine rotated copies of the start. The motions are equal but for rounding, and soon
    unrelated."""
    turns = [np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) for angle in range(1, 9)]
    return [
        long_run(parts, 1.0),
        *(terraced(cluster().system, cluster().q0 @ turn, cluster().v0 @ turn, height(parts), 1.0) for turn in turns),
    ]


def verlet(step: float, ns: float, save_every: int = 1) -> Trajectory:
    """Velocity Verlet with a step in femtoseconds, up to the last saved point before the end."""
    dt = step * FEMTOSECOND
    times = {"dt": dt, "t_end": int(ns / dt) // save_every * save_every * dt, "save_every": save_every}
    return simulate(cluster().system, cluster().q0, cluster().v0, method=Verlet("kick"), **times)


# --- energy -----------------------------------------------------------------------------------------------------------
def mean_steps(parts: int, quick: bool) -> np.ndarray:
    """Mean steps in fs over single nanoseconds: of the run of 100 ns, or of nine starts in the quick form. A
    nanosecond in which the cluster is trapped is an outlier, so that the median is checked."""
    if not quick:
        return 1e6 / np.histogram(long_run(parts, 100.0).events.times, bins=100, range=(0.0, 100.0))[0]
    return np.array([1e6 / len(run.events) for run in nanoseconds(parts)])


def kept(parts: int, ns: float) -> list[Check]:
    """What energy-stepping conserves to rounding, and T + V, which varies by one terrace."""
    run, name = long_run(parts, ns), f"E₀/{parts}, {ns:g} ns"
    turning = run.momentum_maps["rotation"].ravel()
    return [
        Check(
            f"{name}: largest |ΔE|/E₀ of T + V_h",
            np.abs(run.energy_error).max() / -start_energy(),
            (None, 1e-13),
        ),
        Check(
            f"{name}: total momentum over Σ|p|",
            np.abs(run.momentum_maps["translation"]).max() / np.abs(cluster().v0).sum(),
            (None, 1e-12),
        ),
        Check(
            f"{name}: relative change of the angular momentum",
            np.abs(turning / turning[0] - 1).max(),
            (None, 1e-11),
        ),
        Check(
            f"{name}: largest T + V less T + V_h, over h",
            (run.smooth_energy - run.energy).max() / height(parts),
            (0.99, 1 + 1e-9),
            note="just below 1",
            rtol=None,
        ),
    ]


@experiment(
    PAPER,
    "argon-energy",
    "Argon for 100 ns: energy-stepping conserves the energy at steps at which Verlet does not, and ejects atoms",
    "Figure 6",
)
def argon_energy(quick: bool) -> Outcome:
    """Energy-stepping with three heights, and Verlet with the mean steps that the paper found for them. At 124.88
    fs Verlet ejects atoms from the cluster: the energy changes by a few ε and then stays, since the atoms no longer
    interact."""
    ns = 1.0 if quick else 100.0
    checks, information = (
        [Check("E/ε at the start", start_energy() / epsilon(), (-10.519264, -10.519244), note="−10.519254", rtol=1e-5)],
        [],
    )
    for parts in PARTS:
        steps, (low, high) = mean_steps(parts, quick), STEP_RANGES[parts]
        checks.append(
            Check(
                f"E₀/{parts}: mean step over 1 ns, median of {len(steps)}, fs",
                np.median(steps),
                (low, high),
                note=f"{low} … {high}; paper {PAPER_STEPS[parts]}",
                rtol=None,
            )
        )
        information += [
            Check(
                f"E₀/{parts}: {which} mean step of a nanosecond, fs",
                x,
                verdict="information",
                note="chaotic",
                rtol=None,
            )
            for which, x in (("smallest", steps.min()), ("largest", steps.max()))
        ]
        if not quick:
            checks.append(
                Check(
                    f"E₀/{parts}: mean step over 100 ns, fs",
                    ns * 1e6 / len(long_run(parts, ns).events),
                    WHOLE_RUN[parts],
                    note=f"paper {PAPER_STEPS[parts]}",
                    rtol=None,
                )
            )
        checks += kept(parts, ns)
    errors, early_error = verlet_errors()
    checks += errors
    information.append(early_error)
    shown = {
        step: verlet(step, 1.0 if step > 100 else ns, 1 if quick or step > 100 else 100)
        for step in PAPER_STEPS.values()
    }
    return Outcome([*checks, *information], draw_energy({parts: long_run(parts, ns) for parts in PARTS}, shown))


def verlet_errors() -> tuple[list[Check], Check]:
    """The largest errors of the energy over a nanosecond of Verlet; and over the first 0.1 ns of its longest step."""
    error = {step: np.abs(verlet(step, 1.0).energy_error) / epsilon() for step in PAPER_STEPS.values()}
    early = np.arange(len(error[124.88])) * 124.88 * FEMTOSECOND < 0.1
    checks = [
        Check(
            "Verlet, 56.98 fs, 1 ns: largest error of the energy over ε",
            error[56.98].max(),
            (0.04, 0.13),
            note="0.05 … 0.08",
            rtol=None,
        ),
        Check(
            "Verlet, 87.56 fs, 1 ns: largest error of the energy over ε",
            error[87.56].max(),
            (0.13, 0.45),
            note="0.17 … 0.27",
            rtol=None,
        ),
        Check(
            "Verlet, 124.88 fs, 1 ns: largest error of the energy over ε",
            error[124.88].max(),
            (2.0, None),
            note="above 10: atoms leave",
            rtol=None,
        ),
    ]
    early_error = Check(
        "Verlet, 124.88 fs, 0.1 ns: largest error of the energy over ε",
        error[124.88][early].max(),
        verdict="information",
        note="chaotic",
        rtol=None,
    )
    return checks, early_error


def draw_energy(stepping: dict[int, Trajectory], shown: dict[float, Trajectory]) -> Figure:
    """Four panels, as in the paper."""
    from ...plots.figures import envelope, new_figure

    figure = new_figure(11.0, 7.0)
    panels = figure.subplots(2, 2).ravel()
    for parts, run in stepping.items():
        panels[0].plot(*envelope(run.t, run.smooth_energy / epsilon(), 1500), lw=0.5, color=COLORS[parts], alpha=0.35)
        panels[0].plot(
            run.t,
            run.energy / epsilon(),
            lw=1.6,
            color=COLORS[parts],
            ls="--" if parts == 30 else "-",
            label=f"E₀/{parts}",
        )
    panels[0].set(title="Energy-stepping (faint: T + V)", ylim=(-10.68, -10.05))
    panels[0].legend(frameon=False, fontsize=9, loc="upper center", ncols=3, title="$T + V_h$ with h =")
    for axes, (step, run) in zip(panels[1:], shown.items(), strict=True):
        axes.plot(*envelope(run.t, run.energy / epsilon()), lw=0.7, color="C1")
        axes.axhline(start_energy() / epsilon(), color="k", lw=0.8, ls="--")
        axes.set(title=f"Verlet, {step:g} fs", xlim=(0, round(run.t[-1])))
    panels[1].set_ylim(-10.68, -10.05)
    for axes in panels:
        axes.grid(alpha=0.25)
    panels[0].set_xlim(0, stepping[100].t[-1])
    for axes in panels[2:]:
        axes.set_xlabel("time, ns")
    for axes in panels[::2]:
        axes.set_ylabel("energy/ε")
    return figure


# --- trajectories -----------------------------------------------------------------------------------------------------
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
    size = next(iter(found.values())).radius.mean()
    apart, again = reversal()
    checks = [
        Check("E₀/100, 20 events: JᵀΩJ − Ω over |J|²", symplecticity(), (None, 1e-13)),
        Check("E₀/100, 100 events and back: from the start, nm", apart, (None, 1e-10), note="rounding, amplified"),
        Check("E₀/100, 100 events and back: events on the way back", again, (100, 100), note="100"),
    ]
    for name, x in found.items():
        checks.append(
            Check(
                f"{name}: an atom's largest distance from the origin, nm",
                x.farthest,
                (0.4, 0.8),
                note="0.47 … 0.62: bound",
                rtol=None,
            )
        )
        checks.append(
            Check(
                f"{name}: shift of the centre, nm",
                np.abs(x.whole.q.mean(axis=1) - cluster().q0.mean(axis=0)).max(),
                (None, 5e-9),
                note="rounding, times 100 ns",
                rtol=None,
            )
        )
        if not quick and name != next(iter(found)):  # in 1 ns the cluster visits too few of its shapes for a mean
            checks.append(
                Check(
                    f"{name}: mean radius of the cluster over the reference's",
                    x.radius.mean() / size,
                    (0.98, 1.02),
                    note="1",
                    rtol=None,
                )
            )
    return Outcome(checks, draw_trajectories(found))


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
