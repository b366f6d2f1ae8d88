"""The frozen argon cluster of section 5.1: seven atoms in the plane for 100 nanoseconds.

Lengths are in nanometres, times in nanoseconds, energies in ε, the depth of the Lennard-Jones well; E₀ = |E| =
10.519254 ε.

The motion is chaotic: two runs that differ by rounding are unrelated after some tens of picoseconds. Invariants and
statistics are checked, never a trajectory.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ... import models
from ...methods import Verlet
from ...run import Trajectory, simulate
from ...system.lagrangian import derive
from ..base import Outcome, experiment
from ..checks import Check
from .terraces import PAPER, shown, terraced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...view import Scene

PARTS = (100, 60, 30)  # heights are E₀ over these
COLORS: dict[int, str] = dict(zip(PARTS, ("C0", "C2", "C3"), strict=True))
FEMTOSECOND, PICOSECOND = 1e-6, 1e-3
STARTS = 9  # rotated copies of the paper's start; together an ensemble
PAPER_STEPS = {100: 56.98, 60: 87.56, 30: 124.88}  # fs, the mean steps
WHOLE_RUN = {100: (45, 64), 60: (72, 104), 30: (105, 165)}  # fs, over 100 ns; one trap of 3e5 reflections adds 15 %
STEP_RANGES = {
    100: (45, 56),
    60: (72, 92),
    30: (120, 155),
}  # fs, medians over single nanoseconds, which scatter by 3 %

VERLET: dict[float, tuple[tuple[float, float | None], str, str]] = {  # step in fs: range of the error, the paper, note
    56.98: ((0.04, 0.13), "remarkable energy behavior", ""),
    87.56: ((0.13, 0.45), "becomes unstable", "the error is bounded within 1 ns"),
    124.88: ((2.0, None), "blows up", "atoms leave: the energy changes by some ε and then stays; nothing overflows"),
}


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


def rotation(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


@functools.cache
def nanoseconds(parts: int) -> list[Trajectory]:
    """A nanosecond from each of nine rotated copies of the start. The motions are equal but for rounding, and soon
    unrelated."""
    turns = [rotation(angle) for angle in range(1, STARTS)]
    return [
        long_run(parts, 1.0),
        *(terraced(cluster().system, cluster().q0 @ turn, cluster().v0 @ turn, height(parts), 1.0) for turn in turns),
    ]


def verlet(step: float, ns: float, save_every: int = 1, angle: float = 0.0) -> Trajectory:
    """Velocity Verlet with a step in femtoseconds, up to the last saved point before the end; from the start turned by
    an angle."""
    dt, turn = step * FEMTOSECOND, rotation(angle)
    times = {"dt": dt, "t_end": int(ns / dt) // save_every * save_every * dt, "save_every": save_every}
    return simulate(cluster().system, cluster().q0 @ turn, cluster().v0 @ turn, method=Verlet("kick"), **times)


# --- energy -----------------------------------------------------------------------------------------------------------
def mean_steps(parts: int, quick: bool) -> np.ndarray:
    """Mean steps in fs over single nanoseconds: of the run of 100 ns, or of nine starts in the quick form. A
    nanosecond in which the cluster is trapped is an outlier, so that the median is checked."""
    if not quick:
        return 1e6 / np.histogram(long_run(parts, 100.0).events.times, bins=100, range=(0.0, 100.0))[0]
    return np.array([1e6 / len(run.events) for run in nanoseconds(parts)])


def half_width(x: np.ndarray) -> float:
    """Half the distance between the quartiles."""
    return float(0.5 * np.diff(np.quantile(x, [0.25, 0.75]))[0])


def kept(parts: int, ns: float) -> list[Check]:
    """What energy-stepping conserves to rounding, and T + V, which varies by one terrace."""
    run, name = long_run(parts, ns), f"E₀/{parts}, {ns:g} ns"
    turning = run.momentum_maps["rotation"].ravel()
    about: dict[str, Any] = {"paper": "conserved exactly", "where": "Theorem 3.1, Fig. 6"}
    return [
        Check(
            f"{name}: largest |ΔE|/E₀ of T + V_h",
            np.abs(run.energy_error).max() / -start_energy(),
            (None, 1e-13),
            **about,
        ),
        Check(
            f"{name}: total momentum over Σ|p|",
            np.abs(run.momentum_maps["translation"]).max() / np.abs(cluster().v0).sum(),
            (None, 1e-12),
            **about,
        ),
        Check(
            f"{name}: relative change of the angular momentum",
            np.abs(turning / turning[0] - 1).max(),
            (None, 1e-11),
            **about,
        ),
        Check(
            f"{name}: largest T + V less T + V_h, over h",
            (run.smooth_energy - run.energy).max() / height(parts),
            (0.99, 1 + 1e-9),
            verdict="information",
            note="the energy with the smooth V varies by one terrace",
            rtol=None,
        ),
    ]


def steps_checks(parts: int, quick: bool) -> tuple[list[Check], list[Check]]:
    """Mean steps over single nanoseconds and over 100; and their extremes."""
    steps, where = mean_steps(parts, quick), "section 5.1"
    checks = [
        Check(
            f"E₀/{parts}: mean step over 1 ns, median of {len(steps)}, fs",
            np.median(steps),
            STEP_RANGES[parts],
            paper=PAPER_STEPS[parts],
            where=where,
            verdict="chaotic",
            note="± half the distance of the quartiles; traps, in which steps are longer, raise single runs",
            spread=half_width(steps),
            rtol=None,
        )
    ]
    if not quick:
        checks.append(
            Check(
                f"E₀/{parts}: mean step over 100 ns, fs",
                1e8 / len(long_run(parts, 100.0).events),
                WHOLE_RUN[parts],
                paper=PAPER_STEPS[parts],
                where=where,
                verdict="chaotic",
                note="six runs gave 49 … 52 fs at E₀/100; one trap of 3e5 reflections would give the paper's 57",
                spread=np.std(steps) / np.sqrt(len(steps)),
                rtol=None,
            )
        )
    return checks, [
        Check(f"E₀/{parts}: {which} mean step of a nanosecond, fs", x, verdict="information", rtol=None)
        for which, x in (("smallest", steps.min()), ("largest", steps.max()))
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
    start = Check(
        "E/ε at the start",
        start_energy() / epsilon(),
        (-10.519264, -10.519244),
        paper="−10.519",
        where="section 5.1",
        rtol=1e-5,
    )
    checks, information = [start], []
    for parts in PARTS:
        steps, extremes = steps_checks(parts, quick)
        checks += [*steps, *kept(parts, ns)]
        information += extremes
    errors, early_error = verlet_errors()
    errors += [] if quick else [verlet_growth(ns)]
    shown_steps = {
        step: verlet(step, 1.0 if step > 100 else ns, 1 if quick or step > 100 else 100)
        for step in PAPER_STEPS.values()
    }
    return Outcome(
        [*checks, *errors, *information, early_error],
        draw_energy({parts: long_run(parts, ns) for parts in PARTS}, shown_steps),
        motion=lambda: moving_atoms(100, 10 * PICOSECOND),
        parameters={"heights": "E₀/100, E₀/60, E₀/30", "ns": ns, "Verlet, fs": list(PAPER_STEPS.values())},
        left_out=("100 ns instead of 1", "mean steps over 100 ns", "Verlet at 87.56 fs over 100 ns"),
    )


def verlet_errors() -> tuple[list[Check], Check]:
    """The largest errors of the energy over a nanosecond of Verlet, medians over nine rotated starts; and over the
    first 0.1 ns of its longest step."""
    checks = []
    for step, (bounds, says, note) in VERLET.items():
        runs = [verlet(step, 1.0, 1, angle) for angle in range(STARTS)]
        errors = np.array([np.abs(run.energy_error).max() for run in runs]) / epsilon()
        claim, middle = f"Verlet, {step:g} fs, 1 ns: largest error of the energy over ε", np.median(errors)
        about: dict[str, Any] = {
            "where": "section 5.1, Fig. 6",
            "note": note,
            "spread": half_width(errors),
            "rtol": None,
        }
        checks.append(Check(claim, middle, bounds, says, verdict="chaotic", **about))
    early = verlet(124.88, 0.1)
    early_error = Check(
        "Verlet, 124.88 fs, 0.1 ns: largest error of the energy over ε",
        np.abs(early.energy_error).max() / epsilon(),
        verdict="information",
        rtol=None,
    )
    return checks, early_error


def verlet_growth(ns: float, starts: int = 3) -> Check:
    """How far the energy of Verlet at the middle step is off over the whole time, for some rotated starts."""
    runs = [verlet(87.56, ns, 100, angle) for angle in range(starts)]
    errors = np.array([np.abs(run.energy_error).max() for run in runs]) / epsilon()
    return Check(
        f"Verlet, 87.56 fs, {ns:g} ns: largest error of the energy over ε, median of {starts}",
        np.median(errors),
        (1.0, None),
        paper="becomes unstable",
        where="section 5.1, Fig. 6",
        verdict="chaotic",
        note="the energy rises within some tens of nanoseconds, until atoms leave",
        spread=half_width(errors),
        rtol=None,
    )


def moving_atoms(parts: int, t_end: float) -> Scene:
    """The atoms by energy-stepping, from the start."""
    run = terraced(cluster().system, cluster().q0, cluster().v0, height(parts), t_end, 1200)
    return atoms_of(run, f"Seven argon atoms, h = E₀/{parts}", f"{t_end / PICOSECOND:g} ps")


def atoms_of(run: Trajectory, title: str, subtitle: str) -> Scene:
    """The atoms of a run; times in picoseconds."""
    t, base = np.asarray(run.t) / PICOSECOND, float(run.t[0]) / PICOSECOND
    energies = {"T + V_h": run.energy / epsilon(), "T + V": run.smooth_energy / epsilon()}
    return shown(
        t - base,
        run.q,
        colors=range(7),
        radii=0.1,
        series={f"{name}, ε": (t - base, y) for name, y in energies.items()},
        trail=30,
        title=title,
        subtitle=subtitle,
    )


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
