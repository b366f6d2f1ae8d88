"""Force-stepping measured: a pendulum on the line, a planet in the plane (section 6, second remark)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import models
from ...methods import Composition, EnergyStepping, Verlet
from ...run import simulate
from ..base import Outcome, experiment
from ..checks import Check
from .force_stepping import Flight, Grid, force_stepping
from .terraces import PAPER, rate, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...view import Scene


def root_mean_square(x: Any) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


@functools.cache
def hanging() -> models.Model:
    return models.pendulum()


class Swing:
    """The pendulum V = −cos θ to t = 20 from θ = .5, on grids of several spacings h. The largest error over time
    depends on where the two turning points lie between nodes; its root mean square over grids shifted and stretched
    a little does not."""

    def __init__(self, label: str, p0: float, spacings: np.ndarray, grids: int):
        pendulum = hanging()
        self.label, self.spacings, times = label, spacings, np.linspace(0.0, 20.0, 201)
        exact = simulate(
            pendulum.system, [0.5], p0=[p0], method=Composition(Verlet(), order=8), dt=0.02, t_end=20.0, save_every=5
        )
        self.errors, self.energy_error = np.zeros(len(spacings)), 0.0
        for i, h in enumerate(spacings):
            largest = []
            for part in (np.arange(grids) + 0.5) / grids:
                grid = Grid.of(pendulum.system, [-2.0 - 5 * part % 1 * h], [52.0], h * (0.9 + 0.2 * part))
                flight = force_stepping(grid, [0.5], [p0], times)
                largest.append(np.max(np.abs(flight.q - np.asarray(exact.q))))
                self.energy_error = max(self.energy_error, energy_error(grid, flight))
            self.errors[i] = root_mean_square(largest)


def energy_error(grid: Grid, flight: Flight) -> float:
    """The largest |E − E₀|/|E₀| of E = ½|p|² + V_h, for a mass of 1."""
    energy = 0.5 * np.sum(flight.p**2, axis=1) + grid.potential(flight.q)
    return float(np.max(np.abs(energy - energy[0])) / np.abs(energy[0]))


@functools.cache
def planet() -> models.Model:
    return models.kepler(0.6)


def kepler_grid(h: float, shift: Any = (0.38, 0.62)) -> Grid:
    """−1/|q| in the square of side 4; shifted, so that no node is at the sun."""
    return Grid.of(planet().system, -2.0 - np.asarray(shift) * h, [2.0, 2.0], h)


class Orbit:
    """The planet for ten periods on one grid."""

    def __init__(self, h: float, shift: Any = (0.38, 0.62)):
        self.grid = kepler_grid(h, shift)
        self.flight = force_stepping(self.grid, planet().q0, planet().v0, np.linspace(0.0, 20 * np.pi, 2001))
        q, p = self.flight.q, self.flight.p
        momentum = q[:, 0] * p[:, 1] - q[:, 1] * p[:, 0]
        self.momentum_error = np.abs(momentum / momentum[0] - 1)
        energy = 0.5 * np.sum(p**2, axis=1) + self.grid.potential(q)
        self.energy_error = np.abs(energy / energy[0] - 1)

    def return_error(self) -> float:
        """The distance from the start after the same time with the velocity reversed."""
        back = force_stepping(self.grid, self.flight.q[-1], -self.flight.p[-1], self.flight.t[-1:])
        return float(np.max(np.abs(np.concatenate([back.q[0] - planet().q0, back.p[0] + planet().v0]))))


class Terraces:
    """The planet by energy-stepping for ten periods. Its first terrace begins a little inside the perihelion: the
    planet starts along the edges, and must not be reflected by the next one (example 4.3)."""

    def __init__(self, height: float):
        self.run = simulate(
            planet().system,
            planet().q0,
            planet().v0,
            method=EnergyStepping(height, offset=-2.5 - 0.1 * height),
            dt=0.01 * np.pi,
            t_end=20 * np.pi,
        )
        momentum = next(iter(self.run.momentum_maps.values())).ravel()
        self.t, self.momentum_error = self.run.t, np.abs(momentum / momentum[0] - 1)


def symplecticity(grid: Grid, t: float, step: float = 1e-6) -> float:
    """The largest entry of JᵀΩJ − Ω relative to |J|², J the derivative of the planet's flow by central differences."""

    def flow(z: np.ndarray) -> np.ndarray:
        flight = force_stepping(grid, z[:2], z[2:], [t])
        return np.concatenate([flight.q[0], flight.p[0]])

    z0 = np.concatenate([planet().q0, planet().v0])
    jacobian = np.stack([(flow(z0 + step * e) - flow(z0 - step * e)) / (2 * step) for e in np.eye(4)], axis=1)
    omega = np.block([[np.zeros((2, 2)), np.eye(2)], [-np.eye(2), np.zeros((2, 2))]])
    return float(np.max(np.abs(jacobian.T @ omega @ jacobian - omega)) / np.max(np.abs(jacobian)) ** 2)


# --- the experiment ---------------------------------------------------------------------------------------------------
@experiment(
    PAPER,
    "force-stepping",
    "Force-stepping: energy, symplecticity and reversal to rounding, faster convergence, but no angular momentum",
    "Section 6, second remark",
)
def experiment_force_stepping(quick: bool) -> Outcome:
    """A pendulum on the line and a planet in the plane. The order is 2 where the velocity never vanishes. At a
    turning point the error of the force is O(h) for a time O(√h), in which the particle crosses the last cell: an
    error O(h^{3/2}). The same holds in the plane wherever the motion is parallel to a side of the triangles for a
    moment, and for the angular momentum."""
    spacings = 2.0 ** -np.arange(4, 9 if quick else 12)
    turning, round_and_round = Swing("swinging to and fro", 1.0, spacings, 48), Swing("going round", 2.5, spacings, 48)
    finer = 2.0 ** -np.arange(3, 8 if quick else 10)
    orbits = {h: Orbit(h) for h in finer}
    shifts = np.random.default_rng(0).random((8, 2))
    lost = np.array([root_mean_square([Orbit(h, shift).momentum_error.max() for shift in shifts]) for h in finer])
    terraces = Terraces(0.01)
    all_energies = [
        turning.energy_error,
        round_and_round.energy_error,
        *(x.energy_error.max() for x in orbits.values()),
    ]
    checks = [
        *kept_checks(max(all_energies), orbits, terraces),
        Check(
            "planet: JᵀΩJ − Ω relative to |J|², by differences",
            symplecticity(orbits[finer[1]].grid, 5.0),
            (None, 2e-8),
            verdict="information",
            note="symplectic; differences of 1e-6 leave 1e-9",
            rtol=None,
        ),
        *pendulum_checks(turning, round_and_round),
        Check.near("planet, h = 1/8: largest relative error of the angular momentum", lost[0], 0.118, 0.05, **LOST),
        Check.near(f"planet, h = 1/{1 / finer[-1]:g}: the same", lost[-1], 2.03e-3 if quick else 2.46e-4, 0.05, **LOST),
        Check(
            "planet: rate of the error of the angular momentum",
            rate(finer, lost),
            (1.38, 1.55),
            verdict="information",
            note="3/2",
        ),
    ]
    return Outcome(
        checks,
        draw([turning, round_and_round], orbits, terraces),
        motion=lambda: moving_planet(orbits[finer[0]], terraces),
        parameters={
            "spacings, pendulum": f"1/16 … 1/{1 / spacings[-1]:g}",
            "spacings, planet": f"1/8 … 1/{1 / finer[-1]:g}",
            "grids": 48,
            "shifted grids of the planet": 8,
            "seed": 0,
        },
        left_out=("spacings down to 1/2048 (pendulum) and 1/512 (planet)",),
    )


LOST: dict[str, Any] = {"paper": "necessarily breaks some of the symmetries", "where": "section 6"}


def pendulum_checks(turning: Swing, round_and_round: Swing) -> list[Check]:
    """The orders on the line, of which the paper states none."""
    return [
        Check(
            "pendulum going round: rate of the error",
            rate(round_and_round.spacings, round_and_round.errors),
            (1.97, 2.03),
            verdict="information",
            note="2 where the velocity never vanishes",
        ),
        Check(
            "pendulum with turning points: rate of the error",
            rate(turning.spacings, turning.errors),
            (1.45, 1.56),
            verdict="information",
            note="3/2: at a turning point the force is wrong by O(h) for a time O(√h)",
        ),
    ]


def kept_checks(energy: float, orbits: dict[float, Orbit], terraces: Terraces) -> list[Check]:
    """What is conserved to rounding."""
    return [
        Check(
            "largest relative error of ½|p|² + V_h",
            energy,
            (None, 1e-12),
            paper="an exactly solvable Lagrangian",
            where="section 6",
        ),
        Check(
            "planet: from the start after ten periods there and back",
            max(x.return_error() for x in orbits.values()),
            (None, 1e-7),
            paper="an exactly solvable Lagrangian",
            where="section 6",
            note="rounding, amplified",
            rtol=None,
        ),
        Check(
            "planet by energy-stepping: largest relative error of the angular momentum",
            terraces.momentum_error.max(),
            (None, 1e-12),
            paper="conserved exactly",
            where="Theorem 3.1",
        ),
    ]


def moving_planet(orbit: Orbit, terraces: Terraces, periods: float = 3.0) -> Scene:
    """The planet by force-stepping and by energy-stepping."""
    t, every = np.asarray(terraces.t), (len(orbit.flight.t) - 1) // (len(terraces.t) - 1)
    q = orbit.flight.q[::every]
    momenta = {"force-stepping": orbit.momentum_error[::every], "energy-stepping": terraces.momentum_error}
    return shown(
        t,
        np.stack([q, np.asarray(terraces.run.q), np.zeros_like(q)], axis=1),
        2 * np.pi * periods,
        colors=(1, 0, 4),
        names={"force-stepping": 1, "energy-stepping": 0, "sun": 4},
        series={f"error of L, {name}": (t, y) for name, y in momenta.items()},
        trail=80,
        title="A planet by force-stepping and by energy-stepping",
        subtitle=f"spacing {orbit.grid.spacing:g}; {periods:g} periods",
    )


def draw(swings: list[Swing], orbits: dict[float, Orbit], terraces: Terraces) -> Figure:
    """The convergence on the line, the planet on its coarsest grid, and which invariants it conserves."""
    from ...plots.figures import new_figure

    figure = new_figure(14.0, 4.7)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1.25, 1.15))
    for x, color, order, name in zip(swings, ("C3", "C0"), (1.5, 2.0), ("3/2", "2"), strict=True):
        left.loglog(x.spacings, x.errors, "o", ms=5, color=color, label=x.label)
        left.loglog(
            x.spacings,
            x.errors[-1] * (x.spacings / x.spacings[-1]) ** order,
            "--",
            lw=1,
            color=color,
            label=f"slope {name}",
        )
    left.set(xlabel="spacing h of the grid", ylabel="largest error of θ, t ≤ 20", title="Pendulum: convergence")
    left.legend(frameon=False, fontsize=9)
    draw_orbit(middle, orbits[max(orbits)])
    shown = list(orbits)[:: max(1, (len(orbits) - 1) // 2)]
    for h, color in zip(shown, ("C1", "C2", "C4", "C5"), strict=False):
        x = orbits[h]
        right.semilogy(
            x.flight.t / (2 * np.pi),
            np.maximum(x.momentum_error, 1e-17),
            lw=1,
            color=color,
            label=f"angular momentum, h = 1/{1 / h:g}",
        )
    right.semilogy(
        terraces.t / (2 * np.pi),
        np.maximum(terraces.momentum_error, 1e-17),
        lw=1,
        color="C0",
        label="angular momentum, energy-stepping",
    )
    coarsest = orbits[shown[0]]
    right.semilogy(
        coarsest.flight.t / (2 * np.pi),
        np.maximum(coarsest.energy_error, 1e-17),
        lw=0.8,
        color="0.4",
        label=f"energy with $V_h$, h = 1/{1 / shown[0]:g}",
    )
    right.set(xlabel="periods", ylabel="relative error", xlim=(0, 10), ylim=(1e-17, 1.0), title="Planet: kept and lost")
    right.legend(frameon=False, fontsize=9, loc="center")
    for axes in (left, right):
        axes.grid(alpha=0.25)
    return figure


def draw_orbit(axes: Axes, orbit: Orbit, periods: int = 2) -> None:
    """The ellipse, the triangles, and the flight through them."""
    h, lower = orbit.grid.spacing, orbit.grid.lower
    nodes = [a + h * np.arange(n) for a, n in zip(lower, orbit.grid.values.shape, strict=True)]
    faint: dict[str, Any] = {"lw": 0.5, "color": "0.8", "zorder": 0}
    for x in nodes[0]:
        axes.axvline(x, **faint)
        axes.axline((x, lower[1]), slope=1, **faint)
    for y in nodes[1]:
        axes.axhline(y, **faint)
        axes.axline((lower[0], y), slope=1, **faint)
    angle = np.linspace(0, 2 * np.pi, 300)
    axes.plot(np.cos(angle) - 0.6, 0.8 * np.sin(angle), "k--", lw=1, label="exact")
    some = orbit.flight.t <= 2 * np.pi * periods
    axes.plot(*orbit.flight.q[some].T, lw=1.2, color="C1", label=f"force-stepping, h = 1/{1 / h:g}")
    axes.plot(0, 0, "o", color="gold", mec="0.3", ms=8)
    axes.set(aspect="equal", xlim=(-1.8, 0.7), ylim=(-1.1, 1.1), title=f"Planet: {periods} periods over the triangles")
    axes.legend(frameon=True, framealpha=0.9, fontsize=9, loc="upper left")
