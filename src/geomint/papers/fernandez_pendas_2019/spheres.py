"""The slides' second example: particles on the unit sphere, with the constraint solved in closed form."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import models
from ...methods import Rattle
from ...numerics.compilation import jit
from ...run import simulate
from ...system.lagrangian import derive
from ..base import Outcome, experiment
from ..checks import Check
from .problems import PAPER, animated

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEP = 0.01


class Particles:
    """N charges on the unit sphere, by the closed form and by Newton's method."""

    def __init__(self, n: int, t_end: float, repeats: int):
        model = models.sphere_bodies(n, "coulomb")
        go = lambda solver, t_end, every: simulate(
            model.system, model.q0, model.v0, method=Rattle(solver=solver), dt=STEP, t_end=t_end, save_every=every
        )
        closed, newton = go("auto", 1.0, 1), go("newton", 1.0, 1)
        self.n, self.system, self.solver = n, model.system, closed.solver
        self.apart = np.max(np.abs(closed.q - newton.q), axis=(1, 2))
        self.steps = by_hand(closed.q, closed.p, model.system)
        times: dict[str, list[float]] = {"auto": [], "newton": []}
        for _ in range(repeats):
            for solver, taken in times.items():
                began = time.perf_counter()
                run = go(solver, t_end, 5)
                taken.append(time.perf_counter() - began)
                if solver == "auto":
                    self.run = run
        self.ratio = min(times["newton"]) / min(times["auto"])
        momentum = np.asarray(next(iter(self.run.momentum_maps.values())))
        self.momentum = np.max(np.abs(momentum - momentum[0]), axis=1)
        self.energy = np.asarray(self.run.energy_error)

    def checks(self) -> list[Check]:
        name, (first, second) = f"N = {self.n}", np.array_split(self.energy, 2)
        where = "particles on the unit sphere"
        closed: dict[str, Any] = {"paper": "N independent quadratic equations", "where": where}
        kept: dict[str, Any] = {"paper": "symplectic, symmetric, second-order", "where": "geometric properties"}
        return [
            Check(f"{name}: closed form against Newton, 100 steps", self.apart.max(), (None, 1e-13), **closed),
            Check(
                f"{name}: against the formula in NumPy, a step",
                self.steps,
                (None, 5e-15),
                note="q ← X − a q, a = c/(b + √(b² − c)), b = q·X, c = |X|² − 1",
                **closed,
            ),
            Check(
                f"{name}: largest energy error over H",
                np.max(np.abs(self.energy)) / self.run.energy[0],
                ENERGY[self.n],
                verdict="information",
                rtol=0.05 if self.n == 2 else None,
            ),
            Check(
                f"{name}: mean energy, second half − first, over its spread",
                abs(second.mean() - first.mean()) / self.energy.std(),
                (None, 0.1),
                note="no drift, as a symplectic method should have none",
                rtol=None,
                **kept,
            ),
            Check(f"{name}: angular momentum", self.momentum.max(), (None, 1e-12), verdict="information"),
            Check(
                f"{name}: largest ||q|² − 1|",
                np.max(np.abs(self.run.constraint_residual)),
                (None, 2e-15),
                paper="‖q‖² = 1",
                where=where,
            ),
        ]


def by_hand(q: Any, p: Any, system: Any) -> float:
    """How far each next position is from X − a q with X = q + hp + ½h²f, a = c/(b + √(b² − c)), b = q·X, c = |X|² −
    1."""
    force = np.asarray(jit(jax.vmap(derive(system, q.shape[1:]).force))(jnp.asarray(q)))
    free = q + STEP * p + 0.5 * STEP**2 * force
    b, c = np.sum(q * free, axis=-1), np.sum(free**2, axis=-1) - 1
    there = free - (c / (b + np.sqrt(b**2 - c)))[..., None] * q
    return float(np.max(np.abs(there[:-1] - q[1:])))


ENERGY = {2: (1.9e-5, 2.4e-5), 7: (4e-6, 2e-5)}  # error over H


@experiment(
    PAPER,
    "sphere-particles",
    "Particles on a sphere: N independent quadratic equations, solved in closed form",
    "slides on particles on the unit sphere",
)
def sphere_particles(quick: bool) -> Outcome:
    """Charges that repel each other: the closed form compared with Newton's method and with the formula written out
    in NumPy. The ratio of times is not checked."""
    both = [Particles(n, 40.0 if quick else 400.0, 1 if quick else 3) for n in ((7,) if quick else (2, 7))]
    information = [
        Check(
            f"N = {x.n}: time of Newton over the closed form",
            x.ratio,
            verdict="information",
            note="wall time",
            rtol=None,
        )
        for x in both
    ]
    seven = models.sphere_bodies(7, "coulomb")
    return Outcome(
        [*(row for x in both for row in x.checks()), *information],
        draw_spheres(both),
        motion=lambda: animated(seven, Rattle(), STEP, 24.0, "Seven charges on a sphere"),
        parameters={"h": STEP, "N": [x.n for x in both], "t_end": both[0].run.t[-1].item()},
        left_out=("two particles", "t = 400 instead of 40"),
    )


def draw_spheres(both: list[Particles]) -> Figure:
    """The paths, the conserved quantities, and the difference of the two solvers."""
    from ...plots.figures import envelope, new_figure

    figure = new_figure(13.0, 3.5 * len(both))
    for row, x in enumerate(both):
        paths, energy, momentum = (figure.add_subplot(len(both), 3, 3 * row + k) for k in (1, 2, 3))
        draw_paths(paths, x)
        energy.plot(*envelope(x.run.t, 1e6 * x.energy), lw=0.7, color="C0")
        energy.set(ylabel="10⁶ (H − H(0))", title=f"N = {x.n}: energy, H = {x.run.energy[0]:.3f}")
        seen = lambda y: np.where(y > 0, y, np.nan)
        momentum.semilogy(x.run.t, seen(x.momentum), ".", ms=3, color="C1", label="angular momentum")
        momentum.semilogy(
            x.run.t, seen(np.max(np.abs(x.run.constraint_residual), axis=1)), ".", ms=3, color="C2", label="||q|² − 1|"
        )
        momentum.axhline(x.apart.max(), color="k", lw=0.9, ls="--", label="closed form − Newton, 100 steps")
        momentum.set(ylim=(1e-17, 1e-11), ylabel="largest deviation", title=f"N = {x.n}: kept to round-off")
        momentum.legend(frameon=False, fontsize=8, loc="upper left")
        for axes in (energy, momentum):
            axes.set(xlim=(0, x.run.t[-1]), xlabel="time")
            axes.grid(alpha=0.25)
    figure.suptitle(f"Charges on the unit sphere, Rattle, h = {STEP:g}", fontsize=11)
    return figure


def draw_paths(axes: Axes, x: Particles) -> None:
    """The sphere from the side; what is behind it is pale."""
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(angle), np.sin(angle), color="0.5", lw=0.8)
    early = np.asarray(x.run.q)[x.run.t <= 20]
    for k in range(x.n):
        right, depth, up = early[:, k].T
        for front in (False, True):
            seen = np.where((depth < 0) == front, right, np.nan)
            axes.plot(seen, up, lw=1.0, color=f"C{k}", alpha=1.0 if front else 0.25)
        axes.plot(right[0], up[0], "o", ms=5, color=f"C{k}", alpha=1.0 if depth[0] < 0 else 0.35)
    axes.set(xlabel="x", ylabel="z", title=f"N = {x.n}: paths, t ≤ 20 (dots: start)")
    axes.set_aspect("equal")
