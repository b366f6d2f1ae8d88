"""Force-stepping, the alternative that Gonzalez, Schmidt and Ortiz name in their section 6.

The potential is replaced by V_h, linear in every simplex of a grid and equal to V at its nodes. The force is constant in a simplex,
the flight through it a parabola, and the way out a root of a quadratic: the motion of ½m|v|² + V_h is computed exactly, so that

- this energy is conserved, and the flow is symplectic and reversible, all to rounding;
- V_h is continuous: nothing happens to the velocity at a face, and V_h − V = O(h²) makes the trajectories converge;
- the grid is not symmetric as V is: momentum maps are lost, which energy-stepping, whose terraces are bounded by levels of V, keeps.

A cell of the grid with corner c is cut into the simplices 1 ≥ x_{π(1)} ≥ … ≥ x_{π(d)} ≥ 0, x = y − c, one for each permutation π
(Freudenthal, Kuhn): intervals on the line, squares halved by a diagonal in the plane. The path c, c + e_{π(1)}, c + e_{π(1)} + e_{π(2)}, …
runs through the corners of the simplex, so the derivative of V_h along axis π(k) is the difference of V over its k-th edge. Behind the
face x_{π(1)} = 1 lies the cell c + e_{π(1)} with π(1) now last, behind x_{π(d)} = 0 the cell c − e_{π(d)} with π(d) now first, and
behind x_{π(k)} = x_{π(k+1)} the simplex in which these two have changed places. Where the particle is follows by counting, never from its
rounded position.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from ... import models
from ...errors import InputError, RunStopped
from ...methods import Composition, EnergyStepping, Verlet
from ...run import simulate
from ...system.mechanics import Mechanics
from ..base import Check, Outcome, experiment
from .experiments import PAPER, rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 100_000_000  # events in a run
PORTION = 4096  # nodes at which V is evaluated at once
IDLE = 1000  # events without any time between them: many more than simplices meet in a corner


# --- the potential on a grid ------------------------------------------------------------------------------------------
@eqx.filter_jit
def potential_at(system: Any, points: Any) -> Any:
    return jax.vmap(Mechanics(system, points.shape[1:]).potential)(points)


class Grid(NamedTuple):
    """V_h: the values of V at the nodes lower + spacing · (i, j, …)."""

    lower: np.ndarray
    spacing: float
    values: np.ndarray

    def potential(self, q: Any) -> np.ndarray:
        """V_h(q) for points q of shape (…, dimension)."""
        y = (np.asarray(q, float) - self.lower) / self.spacing
        corner = np.floor(y).astype(int)
        x = y - corner
        at = lambda node: self.values[tuple(np.moveaxis(node, -1, 0))]
        total = at(corner)
        for axis in np.moveaxis(np.argsort(-x, axis=-1), -1, 0)[
            ..., None
        ]:  # along the edges, the largest fraction first
            further = corner + (np.arange(y.shape[-1]) == axis)
            total = total + (at(further) - at(corner)) * np.take_along_axis(x, axis, axis=-1)[..., 0]
            corner = further
        return total

    @classmethod
    def of(cls, system: Any, lower: Any, upper: Any, spacing: float) -> Grid:
        """The potential of a system whose q is one point, in the box from `lower` to at least `upper`."""
        lower, upper = np.asarray(lower, float), np.asarray(upper, float)
        counts = np.ceil((upper - lower) / spacing).astype(int) + 1
        axes = [a + spacing * np.arange(n) for a, n in zip(lower, counts, strict=True)]
        nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(lower))
        # In portions of one size, the last one filled up, so that one program serves all grids.
        portions = np.resize(nodes, (-(-len(nodes) // PORTION), PORTION, len(lower)))
        values = np.concatenate([potential_at(system, portion) for portion in portions])[: len(nodes)]
        return cls(lower, spacing, values.reshape(counts))


# --- the motion -------------------------------------------------------------------------------------------------------
@functools.cache
def _compiled() -> Any:
    """The loop over simplices, in machine code."""
    import numba  # takes a while to load

    @numba.njit(inline="always")
    def leaves(gap: float, speed: float, pull: float) -> float:
        """The first t ≥ 0 at which gap + speed t + ½ pull t² passes to below 0, in the form of the root that does not cancel."""
        gap = max(gap, 0.0)  # on the face by which it came in, up to rounding
        square = speed * speed - 2 * gap * pull
        if speed < 0:
            return 2 * gap / (np.sqrt(square) - speed) if square >= 0 else np.inf
        return (speed + np.sqrt(square)) / -pull if pull < 0 else np.inf

    @numba.njit(error_model="numpy")
    def run(values, strides, counts, cell, order, x, w, rate, times, positions, velocities):
        """Positions and velocities at `times`, in units of the grid; returns how many were reached, and the number of events."""
        d, now, saved, idle = len(x), 0.0, 0, 0
        force = np.empty(d)
        for event in range(MOST):
            at = np.sum(cell * strides)
            for axis in order:
                force[axis] = -rate * (values[at + strides[axis]] - values[at])
                at += strides[axis]
            first, face = np.inf, -1
            for k in range(d + 1):  # between the k-th and the next of 1 ≥ x_π(1) ≥ … ≥ x_π(d) ≥ 0
                gap, speed, pull = 1.0 if k == 0 else 0.0, 0.0, 0.0
                if k > 0:
                    gap, speed, pull = x[order[k - 1]], w[order[k - 1]], force[order[k - 1]]
                if k < d:
                    gap, speed, pull = gap - x[order[k]], speed - w[order[k]], pull - force[order[k]]
                t = leaves(gap, speed, pull)
                if t < first:
                    first, face = t, k
            while saved < len(times) and times[saved] <= now + first:
                t = times[saved] - now
                positions[saved], velocities[saved] = cell + (x + t * (w + 0.5 * t * force)), w + t * force
                saved += 1
            idle = idle + 1 if first == 0 else 0
            if saved == len(times) or face < 0 or idle > IDLE:
                return saved, event
            x += first * (w + 0.5 * first * force)
            w += first * force
            now += first
            if face == 0:
                axis = order[0]
                cell[axis], x[axis] = cell[axis] + 1, x[axis] - 1
                order[:-1] = order[1:].copy()
                order[-1] = axis
            elif face == d:
                axis = order[-1]
                cell[axis], x[axis] = cell[axis] - 1, x[axis] + 1
                order[1:] = order[:-1].copy()
                order[0] = axis
            else:
                order[face - 1], order[face] = order[face], order[face - 1]
            if np.any(cell < 0) or np.any(cell > counts - 2):
                return saved, event
        return saved, MOST

    return run


class Flight(NamedTuple):
    """A motion looked at from time to time; looking does not change it."""

    t: np.ndarray
    q: np.ndarray
    p: np.ndarray
    events: int  # faces crossed


def force_stepping(grid: Grid, q0: Any, p0: Any, times: Any, mass: float = 1.0) -> Flight:
    """The exact motion of ½|p|²/m + V_h from (q0, p0) at time 0, at the given times in rising order.

    An error where it leaves the grid, or stays on a crease of V_h between two forces that both point to it, with no speed across."""
    h, times = grid.spacing, np.asarray(times, float)
    y = (np.atleast_1d(np.asarray(q0, float)) - grid.lower) / h
    w = np.atleast_1d(np.asarray(p0, float)) / (mass * h)
    cell, counts = np.floor(y).astype(np.int64), np.array(grid.values.shape)
    if y.shape != counts.shape or w.shape != counts.shape or np.any(cell < 0) or np.any(cell > counts - 2):
        raise InputError(
            f"q0 = {np.asarray(q0)} is no point of the grid from {grid.lower} to {grid.lower + h * (counts - 1)}."
        )
    order = np.argsort(cell - y).astype(np.int64)
    strides = np.array(grid.values.strides) // grid.values.itemsize
    positions, velocities = np.empty((2, len(times), len(y)))
    saved, events = _compiled()(
        grid.values.ravel(), strides, counts, cell, order, y - cell, w, 1 / (mass * h**2), times, positions, velocities
    )
    if saved < len(times):
        raise RunStopped(
            f"force-stepping reached {saved} of {len(times)} times in {events} events; it left the grid, or is held on a crease of the potential. Take a larger box, or shift the grid."
        )
    return Flight(times, grid.lower + h * positions, mass * h * velocities, int(events))


# --- measured ---------------------------------------------------------------------------------------------------------
def root_mean_square(x: Any) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


@functools.cache
def hanging() -> models.Model:
    return models.pendulum()


class Swing:
    """The pendulum V = −cos θ to t = 20 from θ = .5, by grids of several spacings h. The largest error over time depends on where the
    two turning points happen to lie between nodes: it is taken in the root mean square over grids shifted and stretched a little."""

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
        """How far from the start it is after all its time with the velocity turned round."""
        back = force_stepping(self.grid, self.flight.q[-1], -self.flight.p[-1], self.flight.t[-1:])
        return float(np.max(np.abs(np.concatenate([back.q[0] - planet().q0, back.p[0] + planet().v0]))))


class Terraces:
    """The planet by energy-stepping for ten periods. Its first terrace begins a little inside the perihelion: it sets out along the edges, and must not
    be thrown back by the next one (example 4.3)."""

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
    """A pendulum on the line and a planet in the plane. The order is 2 where the velocity never vanishes. At a turning point the force is
    off by O(h) for a time O(√h), in which the particle crosses the last cell: an error O(h^{3/2}), as in the plane wherever the motion is
    parallel to a side of the triangles for a moment. The same holds for the angular momentum."""
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
        Check("largest relative error of ½|p|² + V_h", max(all_energies), None, 1e-12, "rounding"),
        Check(
            "planet: from the start after ten periods there and back",
            max(x.return_error() for x in orbits.values()),
            None,
            1e-7,
            "rounding, amplified",
            rtol=None,
        ),
        Check(
            "planet: JᵀΩJ − Ω relative to |J|², by differences",
            symplecticity(orbits[finer[1]].grid, 5.0),
            None,
            2e-8,
            "0",
            rtol=None,
        ),
        Check("pendulum going round: rate of the error", rate(spacings, round_and_round.errors), 1.97, 2.03, "2"),
        Check("pendulum with turning points: rate of the error", rate(spacings, turning.errors), 1.45, 1.56, "3/2"),
        Check.near(
            "planet, h = 1/8: largest relative error of the angular momentum", lost[0], 0.118, 0.05, "0.12: lost"
        ),
        Check.near(f"planet, h = 1/{1 / finer[-1]:g}: the same", lost[-1], 2.03e-3 if quick else 2.46e-4, 0.05),
        Check("planet: rate of the error of the angular momentum", rate(finer, lost), 1.38, 1.55, "3/2"),
        Check(
            "planet by energy-stepping: largest relative error of the angular momentum",
            terraces.momentum_error.max(),
            None,
            1e-12,
            "rounding",
        ),
    ]
    return Outcome(checks, draw([turning, round_and_round], orbits, terraces))


def draw(swings: list[Swing], orbits: dict[float, Orbit], terraces: Terraces) -> Figure:
    """The convergence on the line, the planet on its coarsest grid, and what it keeps and loses."""
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
