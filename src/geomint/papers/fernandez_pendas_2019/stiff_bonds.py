"""Rigid bonds and the stiff springs that they stand for (slides on the motivation).

A molecule of three atoms in the plane with the bonds U = ½ α (|x_i − x_j| − L)², or with rods |x_i − x_j| = L in their
place. Over a fixed time the motions differ by O(1/α). Averages at a temperature do not become equal: springs leave the
angle between the bonds uniform for α → ∞, while rods weight it with √det(G M⁻¹Gᵀ) ∝ √(4 − cos²θ). Fixman's potential
removes the difference.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ...analysis.fixman import fixman
from ...errors import RunStopped
from ...methods import Composition, GeometricLangevin, Rattle, Verlet
from ...run import Trajectory, ensemble, simulate
from ...system.constraints import Distances
from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check
from .problems import FRAMES, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...view import Scene

END, CLOSE = 10.0, 0.02  # of the motion; how far from the motion with rods a method may be
BENT = np.deg2rad(100.0)  # the angle between the bonds at the start
START = np.array([[-1.0, 0.0], [0.0, 0.0], [-np.cos(BENT), np.sin(BENT)]])
WARMTH, FRICTION = 1.0, 1.0


def ends(q: Any, params: Any) -> Any:
    """A soft spring between the outer atoms."""
    return 0.5 * params["soft"] * (jnp.sqrt(jnp.sum((q[2] - q[0]) ** 2)) - 1.2) ** 2


def bonds(q: Any, params: Any) -> Any:
    """The slides' bonds, of length 1."""
    lengths = jnp.sqrt(jnp.sum(jnp.diff(q, axis=0) ** 2, axis=1))
    return ends(q, params) + 0.5 * params["alpha"] * jnp.sum((lengths - 1.0) ** 2)


def rods(soft: float = 1.0) -> System:
    params = {"soft": jnp.asarray(soft), "alpha": jnp.asarray(0.0)}
    return System(ends, constraint=Distances([(0, 1), (1, 2)], 1.0), params=params)


def springs(alpha: float, soft: float = 1.0) -> System:
    return System(bonds, params={"soft": jnp.asarray(soft), "alpha": jnp.asarray(alpha)})


def fastest(alpha: float) -> float:
    """The highest frequency of the bonds: √(3α) for a stretched molecule."""
    return float(np.sqrt(3 * alpha))


def turning() -> np.ndarray:
    """The velocity at the start: a rotation about the centre, which satisfies the constraint."""
    x = START - START.mean(axis=0)
    return 0.5 * np.stack([-x[:, 1], x[:, 0]], axis=1)


@functools.cache
def with_rods() -> Trajectory:
    """The exact motion with rods, sampled a hundred times in a unit of time."""
    method = Composition(Rattle(), order=8)
    return simulate(rods(), START, turning(), method=method, dt=0.01, t_end=END)


def with_springs(alpha: float) -> Trajectory:
    """The exact motion with springs at the same times."""
    steps = int(np.ceil(0.01 * fastest(alpha)))
    method = Composition(Verlet(), order=8)
    return simulate(
        springs(alpha), START, turning(), method=method, dt=0.01 / steps, t_end=END, save_every=steps, compensated=True
    )


def apart(run: Trajectory) -> float:
    """The largest distance of an atom from where it is with rods."""
    every = (len(with_rods().t) - 1) // (len(run.t) - 1)
    return float(np.max(np.linalg.norm(run.q - with_rods().q[::every], axis=-1)))


def longest_step(run: Callable[[float], Trajectory], candidates: np.ndarray) -> float:
    """The longest step with which the motion stays CLOSE to that with rods."""
    for dt in sorted(candidates, reverse=True):
        with contextlib.suppress(RunStopped):  # beyond the limit of stability
            if apart(run(float(dt))) < CLOSE:
                return float(dt)
    return np.nan


def allowed_steps(stiffnesses: np.ndarray) -> tuple[float, np.ndarray]:
    """The longest steps of RATTLE, and of Verlet on springs for each stiffness: the time between samples, .5, over
    whole numbers."""

    def go(system: System, method: Any) -> Callable[[float], Trajectory]:
        def one(dt: float) -> Trajectory:
            return simulate(system, START, turning(), method=method, dt=dt, t_end=END, save_every=round(0.5 / dt))

        return one

    rigid = longest_step(go(rods(), Rattle()), 0.5 / np.arange(1, 17))
    least = [0.5 * fastest(alpha) / 2.6 for alpha in stiffnesses]  # a little above the limit hω = 2 of Verlet
    parts = [np.unique(np.geomspace(n, 4 * n, 12).astype(int)) for n in least]
    soft = [longest_step(go(springs(alpha), Verlet()), 0.5 / n) for alpha, n in zip(stiffnesses, parts, strict=True)]
    return rigid, np.array(soft)


# --- averages ---------------------------------------------------------------------------------------------------------
def weighted_average() -> float:
    """⟨cos²θ⟩ with the weight √(4 − cos²θ) of rods."""
    c = np.cos(2 * np.pi * (np.arange(2000) + 0.5) / 2000)
    return float(np.sum(c**2 * np.sqrt(4 - c**2)) / np.sum(np.sqrt(4 - c**2)))


def average(system: System, base: Any, dt: float, t_end: float, members: int) -> tuple[float, float]:
    """⟨cos²θ⟩ of a freely jointed molecule at a temperature, and its standard error, from independent members."""
    method = GeometricLangevin(base, friction=FRICTION, temperature=WARMTH)
    every = round(0.5 / dt)
    run = ensemble(system, np.tile(START, (members, 1, 1)), method=method, dt=dt, t_end=t_end, save_every=every, seed=1)
    q = np.asarray(run.q)[:, 20:]  # from t = 10 on
    a, b = q[:, :, 1] - q[:, :, 0], q[:, :, 2] - q[:, :, 1]
    square = np.sum(a * b, axis=-1) ** 2 / (np.sum(a**2, axis=-1) * np.sum(b**2, axis=-1))
    means = square.mean(axis=1)
    return float(means.mean()), float(means.std() / np.sqrt(members))


def averages(quick: bool) -> dict[str, tuple[float, float]]:
    """Of rods, rods with Fixman's potential, and springs of several stiffnesses."""
    t_end, members = (60.0, 320) if quick else (210.0, 1024)
    found = {"rods": average(rods(0.0), Rattle(), 0.1, t_end, members)}
    found["rods and Fixman's potential"] = average(fixman(rods(0.0), WARMTH), Rattle(), 0.1, t_end, members)
    for alpha in () if quick else (100.0, 400.0, 1600.0):
        dt = 0.5 / np.ceil(0.5 * fastest(alpha))  # hω ≤ 1
        found[f"springs, α = {alpha:g}"] = average(springs(alpha, 0.0), Verlet(), dt, t_end, members)
    return found


# --- the experiment ---------------------------------------------------------------------------------------------------
@experiment(
    PAPER,
    "stiff-bonds",
    "Rods in place of stiff bonds: positions differ by O(1/α), steps grow like √α, averages keep a difference",
    "slides: Motivation",
)
def stiff_bonds(quick: bool) -> Outcome:
    """Theorem (Rubin and Ungar 1957): from a start with unstretched bonds and a velocity that satisfies the
    constraint, the motion with springs tends to the motion with rods for α → ∞. At a temperature it does not: the
    bonds then hold their share of the energy, and the average of the angle keeps a difference (Fixman 1974)."""
    stiffnesses = np.array([1e3, 1e4, 1e5] if quick else [1e2, 1e3, 1e4, 1e5, 1e6])
    runs = {alpha: with_springs(alpha) for alpha in stiffnesses}
    distances = np.array([apart(run) for run in runs.values()])
    stretch = np.array([np.max(np.abs(lengths(run) - 1)) for run in runs.values()])
    rigid, soft = allowed_steps(stiffnesses[stiffnesses >= 1e3])
    found = averages(quick)
    return Outcome(
        [*motion_checks(stiffnesses, distances, stretch, rigid, soft), *average_checks(found)],
        draw_bonds(stiffnesses, distances, stretch, rigid, soft, found),
        motion=moving_molecules,
        parameters={"α": stiffnesses.tolist(), "t_end": END, "temperature": WARMTH, "seed": 1, "distance": CLOSE},
        left_out=("α up to 1e6", "averages with springs"),
    )


def lengths(run: Trajectory) -> np.ndarray:
    return np.linalg.norm(np.diff(np.asarray(run.q), axis=1), axis=-1)


def motion_checks(
    stiffnesses: np.ndarray, distances: np.ndarray, stretch: np.ndarray, rigid: float, soft: np.ndarray
) -> list[Check]:
    power = lambda x, y: float(np.polyfit(np.log(x), np.log(y), 1)[0])
    stiff = stiffnesses[stiffnesses >= 1e3]
    return [
        Check(
            "largest stretch of a bond as a power of α",
            power(stiffnesses, stretch),
            (-1.05, -0.95),
            paper="the variation in the length of the stretch from L will typically be small",
            where="Motivation",
            note="1/α",
        ),
        Check(
            "distance of the motions with springs and with rods as a power of α",
            power(stiffnesses, distances),
            (-1.1, -0.9),
            paper="common practice to replace bonds by rigid length constraints",
            where="Motivation",
            note="1/α, over a fixed time",
        ),
        Check(
            f"α = {stiff[-1]:g}: step of RATTLE over that of Verlet on springs",
            rigid / soft[-1],
            (0.1 * np.sqrt(stiff[-1]), None),
            paper="permits an increase of the simulation time step",
            where="Motivation",
            note=f"the longest steps with which atoms stay within {CLOSE:g} of the motion with rods to t = {END:g}: "
            f"{rigid:.3g} and {soft[-1]:.2g}",
        ),
        Check(
            "step of RATTLE over that of Verlet on springs as a power of α",
            power(stiff, rigid / soft),
            (0.4, 0.6),
            paper="the maximal step is related to the frequency of the fastest motions",
            where="Motivation",
            note="½: the frequency of a bond is √(3α)",
        ),
    ]


def average_checks(found: dict[str, tuple[float, float]]) -> list[Check]:
    """Averages of cos²θ. The slides say nothing of them."""
    own: dict[str, Any] = {"verdict": "information", "rtol": None}
    exact = weighted_average()
    notes = {
        "rods": (exact, f"{exact:.4f} by the weight √(4 − cos²θ) of rods"),
        "rods and Fixman's potential": (0.5, "½, as with springs for α → ∞"),
    }
    rows = []
    for name, (mean, error) in found.items():
        expected, note = notes.get(name, (0.5, "½ for α → ∞: stiffer springs do not come nearer to rods"))
        bounds = (expected - 0.008, expected + 0.008)
        rows.append(Check(f"⟨cos²θ⟩, {name}", mean, bounds, note=note, spread=error, **own))
    return rows


def moving_molecules(alpha: float = 100.0) -> Scene:
    """The molecule with springs beside that with rods."""
    from ...view import Scene

    run, rigid = with_springs(alpha), with_rods()
    chosen = np.linspace(0, len(rigid.t) - 1, FRAMES).astype(int)
    stretch = np.max(np.abs(lengths(run) - 1), axis=1)
    far = np.max(np.linalg.norm(run.q - rigid.q, axis=-1), axis=1)
    return Scene(
        np.asarray(rigid.t)[chosen],
        np.concatenate([run.q, rigid.q], axis=1)[chosen],
        bonds=[(0, 1), (1, 2), (3, 4), (4, 5)],
        colors=[1, 1, 1, 0, 0, 0],
        names={f"springs, α = {alpha:g}": 1, "rods": 0},
        series={"largest stretch": (run.t, stretch), "largest distance of an atom": (run.t, far)},
        title="A molecule with stiff bonds and with rods",
        subtitle="three atoms in the plane",
    )


def draw_bonds(
    stiffnesses: np.ndarray,
    distances: np.ndarray,
    stretch: np.ndarray,
    rigid: float,
    soft: np.ndarray,
    found: dict[str, tuple[float, float]],
) -> Figure:
    """Differences of the motions, steps, and averages."""
    from ...plots.figures import new_figure

    figure = new_figure(14.0, 4.4)
    left, middle, right = figure.subplots(1, 3)
    for y, color, label in ((distances, "C0", "atoms, springs against rods"), (stretch, "C1", "stretch of a bond")):
        left.loglog(stiffnesses, y, "o", color=color, label=label)
        left.loglog(stiffnesses, y[-1] * stiffnesses[-1] / stiffnesses, "--", lw=1, color=color, label="∝ 1/α")
    left.set(xlabel="stiffness α", ylabel=f"largest distance, t ≤ {END:g}", title="Motions")
    stiff = stiffnesses[stiffnesses >= 1e3]
    middle.loglog(stiff, soft, "o", color="C1", label="Verlet, springs")
    middle.loglog(stiff, 2 / np.sqrt(3 * stiff), "k--", lw=1, label="2/√(3α)")
    middle.axhline(rigid, color="C0", lw=1.4, label="RATTLE, rods")
    middle.set(xlabel="stiffness α", ylabel=f"longest step, within {CLOSE:g}", title="Steps")
    for k, (name, (mean, error)) in enumerate(found.items()):
        right.errorbar(mean, k, xerr=2 * error, fmt="o", color="C0" if "rods" in name else "C1", capsize=3)
    right.set_yticks(range(len(found)), [name.replace(" and", "\nand") for name in found])
    right.axvline(0.5, color="k", lw=1, ls="--", label="springs, α → ∞")
    right.axvline(weighted_average(), color="C0", lw=1, ls=":", label="weight √(4 − cos²θ)")
    right.set(xlabel="⟨cos²θ⟩ ± 2 standard errors", title="Averages", ylim=(len(found) + 0.4, -0.6))
    for axes in (left, middle, right):
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8, loc="lower left" if axes is not right else "lower center")
    return figure
