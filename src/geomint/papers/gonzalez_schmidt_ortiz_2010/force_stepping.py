"""Force-stepping, the alternative that Gonzalez, Schmidt and Ortiz name in their section 6.

The potential is replaced by V_h, linear in every simplex of a grid and equal to V at its nodes. The force is constant
in a simplex, the flight through it is a parabola, and the time at which it leaves is the root of a quadratic: the
motion of ½m|v|² + V_h is computed exactly, so that

- this energy is conserved, and the flow is symplectic and reversible, all to rounding;
- V_h is continuous: the velocity does not jump at a face, and since V_h − V = O(h²) the trajectories converge;
- the grid does not have the symmetries of V: momentum maps are not conserved. Energy-stepping conserves them, since its
  terraces are bounded by levels of V.

A cell of the grid with corner c is cut into the simplices 1 ≥ x_{π(1)} ≥ … ≥ x_{π(d)} ≥ 0, x = y − c, one for each
permutation π (Freudenthal, Kuhn): intervals on the line, squares halved by a diagonal in the plane. The path c, c +
e_{π(1)}, c + e_{π(1)} + e_{π(2)}, … runs through the corners of the simplex, so the derivative of V_h along axis π(k)
is the difference of V over its k-th edge. Behind the face x_{π(1)} = 1 lies the cell c + e_{π(1)} with π(1) now last,
behind x_{π(d)} = 0 the cell c − e_{π(d)} with π(d) now first, and behind x_{π(k)} = x_{π(k+1)} the simplex in which
these two have changed places. The simplex of the particle is tracked by these changes, never found from its rounded
position.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from ...errors import InputError, RunStopped
from ...system.mechanics import Mechanics

MOST = 100_000_000  # most events in a run
PORTION = 4096  # nodes at which V is evaluated at once
IDLE = 1000  # most consecutive events at one time; far fewer simplices meet in a corner


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
        # In portions of one size, the last one padded, so that one compiled program serves all grids.
        portions = np.resize(nodes, (-(-len(nodes) // PORTION), PORTION, len(lower)))
        values = np.concatenate([potential_at(system, portion) for portion in portions])[: len(nodes)]
        return cls(lower, spacing, values.reshape(counts))


# --- the motion -------------------------------------------------------------------------------------------------------
@functools.cache
def _leaves() -> Any:
    """A compiled function: the time at which a particle leaves a simplex through one face."""
    import numba  # slow to import

    @numba.njit(inline="always")
    def leaves(gap: float, speed: float, pull: float) -> float:
        """The first t ≥ 0 at which gap + speed t + ½ pull t² becomes negative, by the stable form of the root."""
        gap = max(gap, 0.0)  # on the face through which it entered, up to rounding
        square = speed * speed - 2 * gap * pull
        if speed < 0:
            return 2 * gap / (np.sqrt(square) - speed) if square >= 0 else np.inf
        return (speed + np.sqrt(square)) / -pull if pull < 0 else np.inf

    return leaves


@functools.cache
def _compiled() -> Any:
    """The loop over simplices, in machine code; with loops over axes, since numba compiles array operations longer."""
    import numba

    leaves = _leaves()

    @numba.njit(error_model="numpy")
    def run(values, strides, counts, cell, order, x, w, rate, times, positions, velocities):
        """Fill positions and velocities at `times`, in units of the grid; return how many, and how many events."""
        d, now, saved, idle = len(x), 0.0, 0, 0
        force: Any = np.empty(d)
        for event in range(MOST):
            at, first, face = 0, np.inf, -1
            for j in range(d):
                at += cell[j] * strides[j]
            for axis in order:
                force[axis] = -rate * (values[at + strides[axis]] - values[at])
                at += strides[axis]
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
                for j in range(d):
                    positions[saved, j] = cell[j] + (x[j] + t * (w[j] + 0.5 * t * force[j]))
                    velocities[saved, j] = w[j] + t * force[j]
                saved += 1
            idle = idle + 1 if first == 0 else 0
            if saved == len(times) or face < 0 or idle > IDLE:
                return saved, event
            for j in range(d):
                x[j] += first * (w[j] + 0.5 * first * force[j])
                w[j] += first * force[j]
            now += first
            if face == 0:
                axis = order[0]
                cell[axis], x[axis] = cell[axis] + 1, x[axis] - 1
                for j in range(d - 1):
                    order[j] = order[j + 1]
                order[d - 1] = axis
            elif face == d:
                axis = order[d - 1]
                cell[axis], x[axis] = cell[axis] - 1, x[axis] + 1
                for j in range(d - 1, 0, -1):
                    order[j] = order[j - 1]
                order[0] = axis
            else:
                order[face - 1], order[face] = order[face], order[face - 1]
            for j in range(d):
                if cell[j] < 0 or cell[j] > counts[j] - 2:
                    return saved, event
        return saved, MOST

    return run


class Flight(NamedTuple):
    """A motion at the given times. Sampling does not change it."""

    t: np.ndarray
    q: np.ndarray
    p: np.ndarray
    events: int  # faces crossed


def force_stepping(grid: Grid, q0: Any, p0: Any, times: Any, mass: float = 1.0) -> Flight:
    """The exact motion of ½|p|²/m + V_h from (q0, p0) at time 0, at the given times in ascending order.

    An error where it leaves the grid, or is held on a crease of V_h: between two forces that both point to the crease,
    without speed across it.
    """
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
            f"force-stepping reached {saved} of {len(times)} times in {events} events; it left the grid, or is held on "
            "a crease of the potential. Take a larger box, or shift the grid."
        )
    return Flight(times, grid.lower + h * positions, mass * h * velocities, int(events))
