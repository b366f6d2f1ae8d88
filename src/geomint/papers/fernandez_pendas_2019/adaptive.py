"""A two-stage splitting whose coefficient is chosen by the frequency, against fixed ones, on a chain of springs.

The slides end with adaptive integrators, after Fernández-Pendás, Akhmatskaya and Sanz-Serna (2016). With two forces a
step,

    kick b, drift ½, kick 1 − 2b, drift ½, kick b,

the expected energy error of an oscillator in thermal equilibrium is at most ρ(hω), and b minimises the largest ρ on
(0, hω], ω the highest frequency. For small steps this is the splitting of smallest error, b = .193183; near the limit
hω = 4 it is two steps of Verlet, b = ¼.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ...analysis.fast_slow import adaptive_splitting, expected_energy_error
from ...errors import RunStopped
from ...methods.splitting import KickDrift, MultiStage
from ...models import Model
from ...run import ensemble
from ...system.mechanics import Mechanics
from ...system.system import System
from ..base import Outcome, experiment
from ..checks import Check
from .problems import PAPER, animated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...view import Scene

ATOMS, STIFFNESS, WARMTH = 10, 100.0, 0.05
MEMBERS, SPAN = 32, 20.0
FIXED = {"b = .193183": 0.193183, "b = .211781": 0.211781, "two steps of Verlet, b = ¼": 0.25}


def springs(q: Any) -> Any:
    """The slides' bond, ½ α (|x_i − x_{i−1}| − 1)², the first from the origin; and gravity."""
    links = jnp.diff(q, axis=0, prepend=jnp.zeros((1, 2)))
    return 0.5 * STIFFNESS * jnp.sum((jnp.sqrt(jnp.sum(links**2, axis=1)) - 1.0) ** 2) + jnp.sum(q[:, 1])


@functools.cache
def chain() -> Any:
    """Hanging at rest: the k-th bond from below carries k weights."""
    q = -np.cumsum(1 + np.arange(ATOMS, 0, -1) / STIFFNESS)
    q0, v0 = np.stack([0 * q, q], axis=1), np.sqrt(WARMTH) * velocities()[0]
    return Model(System(springs), q0, v0, "chain_of_springs", "bonds of one stiffness", dt=0.01, t_end=SPAN)


def velocities() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(MEMBERS, ATOMS, 2))


@functools.cache
def highest() -> float:
    """The highest frequency of the chain at rest."""
    mech, q = Mechanics(chain().system, (ATOMS, 2)), jnp.asarray(chain().q0)
    unit = jnp.eye(2 * ATOMS).reshape(-1, ATOMS, 2)
    hessian = np.array([np.ravel(mech.hessian_product(q, v)) for v in unit])
    return float(np.sqrt(np.linalg.eigvalsh(hessian)[-1]))


def energy_error(method: KickDrift, dt: float) -> float:
    """The root mean square of H − H(0) over time and members, over the mean kinetic energy at the start; infinite
    where the step is unstable."""
    steps = round(SPAN / dt)
    try:
        starts = np.sqrt(WARMTH) * velocities()
        run = ensemble(chain().system, chain().q0, starts, method=method, dt=dt, t_end=steps * dt)
    except RunStopped:
        return np.inf
    error = float(np.sqrt(np.mean(np.square(run.energy_error)))) / (ATOMS * WARMTH)
    return error if error < 10 else np.inf


class Compared:
    """The energy errors of the adaptive splitting and of fixed ones with steps of hω."""

    def __init__(self, x: float):
        self.x, dt = x, x / highest()
        chosen = adaptive_splitting(chain().system, chain().q0, dt)
        self.b = float(chosen.stages[0][1])
        self.adaptive = energy_error(chosen, dt)
        self.fixed = {label: energy_error(MultiStage((b,)), dt) for label, b in FIXED.items()}

    @property
    def best(self) -> float:
        return min(self.fixed.values())


@experiment(
    PAPER,
    "adaptive-splitting",
    "A two-stage splitting chosen by the frequency: as good as the best of three fixed ones, and stable to hω = 4",
    "slides: Next session; Fernández-Pendás et al. 2016",
)
def adaptive(quick: bool) -> Outcome:
    """A hanging chain of ten atoms with the slides' springs for bonds, at a temperature at which the bonds vibrate.
    Theorem of Blanes, Casas and Sanz-Serna: for a harmonic oscillator in equilibrium the expected energy error of a
    step is at most ρ(hω). b is chosen to minimise the largest ρ on (0, hω]."""
    found = [Compared(x) for x in ((1.0, 2.4, 3.6) if quick else (0.5, 1.0, 1.5, 2.0, 2.4, 2.8, 3.2, 3.6))]
    return Outcome(
        adaptive_checks(found),
        draw_adaptive(found),
        motion=moving_chain,
        parameters={
            "atoms": ATOMS,
            "α": STIFFNESS,
            "temperature": WARMTH,
            "members": MEMBERS,
            "t_end": SPAN,
            "hω": [x.x for x in found],
            "seed": 0,
        },
        left_out=("five more steps",),
    )


def adaptive_checks(found: list[Compared]) -> list[Check]:
    checks = [
        Check(
            f"hω = {x.x:g}: energy error of the adaptive splitting over the best fixed one",
            x.adaptive / x.best,
            (None, 1.1),
            verdict="information",
            note=f"b = {x.b:.6f}",
        )
        for x in found
    ]
    fast, slow = found[-1], found[0]
    checks += [
        Check(
            f"hω = {fast.x:g}: fixed two-stage splittings that are stable",
            sum(np.isfinite(error) for label, error in fast.fixed.items() if "Verlet" not in label),
            (0, 0),
            verdict="information",
            note="b = .193183 is stable to hω = 2.55, b = .211781 to 2.63, the adaptive one to 4",
        ),
        Check(
            f"hω = {slow.x:g}: energy error of two steps of Verlet over that of the adaptive splitting",
            slow.fixed["two steps of Verlet, b = ¼"] / slow.adaptive,
            (2.0, None),
            paper="adaptive integrators have an impact on the performance",
            where="Next session",
            note="for the same number of forces",
        ),
    ]
    return checks


def moving_chain() -> Scene:
    bonds = [(ATOMS, 0), *((k, k + 1) for k in range(ATOMS - 1))]
    dt = 1.0 / highest()
    import dataclasses

    method = adaptive_splitting(chain().system, chain().q0, dt)
    scene = animated(chain(), method, dt, SPAN, "A chain of stiff springs")
    return dataclasses.replace(scene, bonds=bonds, fixed=[[0.0, 0.0]], trail=0)


def draw_adaptive(found: list[Compared]) -> Figure:
    """Energy errors on the left, ρ in the middle, b on the right."""
    from ...plots.figures import new_figure

    figure = new_figure(13.5, 4.4)
    left, middle, right = figure.subplots(1, 3)
    x = np.array([each.x for each in found])
    finite = lambda y: np.where(np.isfinite(y), y, np.nan)
    colors = ("C0", "C1", "0.5")
    for (label, b), color in zip(FIXED.items(), colors, strict=True):
        left.semilogy(x, finite([each.fixed[label] for each in found]), "s--", ms=4, color=color, label=label)
        grid = np.linspace(0.05, 3.99, 800)
        rho = expected_energy_error(MultiStage((b,)).stages, grid)
        middle.semilogy(grid, finite(rho), "--", lw=1.1, color=color, label=label)
    left.semilogy(x, [each.adaptive for each in found], "o-", color="C3", label="adaptive")
    left.set(xlabel="hω, ω the highest frequency", ylabel="rms energy error over N kT", title="A chain of ten springs")
    for each in found[:: max(1, len(found) // 3)]:
        grid = np.linspace(0.05, each.x, 400)
        rho = expected_energy_error(MultiStage((each.b,)).stages, grid)
        middle.semilogy(grid, finite(rho), color="C3", lw=1.3, label=f"adaptive to hω = {each.x:g}")
    middle.set(xlabel="hω", ylabel="ρ", ylim=(1e-9, 1e4), title="ρ: bound of the expected energy error")
    right.plot(x, [each.b for each in found], "o-", color="C3")
    for b, color in zip(FIXED.values(), colors, strict=True):
        right.axhline(b, color=color, ls="--", lw=1)
    right.set(xlabel="hω", ylabel="b", title="The coefficient that is chosen")
    for axes in (left, middle, right):
        axes.grid(alpha=0.25)
        if axes is not right:
            axes.legend(frameon=False, fontsize=8, loc="lower right" if axes is left else "upper left")
    return figure
