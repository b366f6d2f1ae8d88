"""The scale of the energy of a run, and whether its energy error exceeds it.

What conservation allows. With A = H − W, the energy less the work of forces (W = 0 without them), A(t) = A(0) in the
exact motion, and the kinetic energy at time t is  A(0) + W(t) − V(q(t)).  The scale of the energy is the largest value
of this over the saved points at which |A − A(0)| is at most half of it. A constant added to V changes nothing; a state
that has left the motion does not count, however large its energy is; and a start at rest is measured by the energy it
releases.

Cost. During a run `Extremes` keeps the smallest and the largest A of every member, from rows that are in the cache
anyway; they give its largest energy error |A − A(0)|. At the end `excess` compares this error with the largest kinetic
energy that conservation allows at a few saved points. That is at most the scale, so that an error below it needs no
warning. Only for members whose error is larger are all saved points read, a few thousand at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engines import Layout
from ..engines.device_rows import DeviceColumns, DeviceRows
from ..engines.tiles import Engine
from ..engines.xla import spread_over
from ..numerics.compilation import jit
from ..system.inertia import inertia
from ..system.lagrangian import derive
from ..system.mass import mass_is_matrix
from ..system.system import Stated, System
from .trajectory import Trajectory

SAMPLE = 257  # saved points that are compared first
ROWS = 4096  # saved points that are read at a time
READ = 16  # members whose saved points are all read
ROUNDING = 1e4  # an energy error below so many units in the last place of the energy is rounding


class Extremes:
    """The smallest and the largest A = H − W of each member, over the rows of a run so far."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.low: Any = np.inf
        self.high: Any = -np.inf

    def add(self, rows: np.ndarray | DeviceRows) -> None:
        """The next saved rows, (n, width) or (members, n, width). Rows of a reduced ensemble have no single members."""
        if isinstance(rows, DeviceRows):
            self.low, self.high = _extremes(self.engine.layout, rows.array, rows.count, self.low, self.high)
            return
        seen = self.engine.states_in(rows)
        if seen is not None:
            a = conserved(seen)
            self.low, self.high = np.fmin(self.low, np.fmin.reduce(a, -1)), np.fmax(self.high, np.fmax.reduce(a, -1))

    def largest(self, start: Any) -> np.ndarray:
        """max |A − A(0)| of each member, given A(0); 0 for a run without rows."""
        return np.maximum(np.maximum(self.high - start, start - self.low), 0.0)


def conserved(seen: dict[str, Any]) -> Any:
    """A = H − W, less the heat of a thermostat."""
    a = seen["energy"] - seen["work"] if "work" in seen else seen["energy"]
    return a - seen["heat"] if "heat" in seen else a


@functools.partial(jit, static_argnums=0)
def _extremes(layout: Layout, rows: Array, count: Any, low: Any, high: Any) -> tuple[Array, Array]:
    """`Extremes` of rows on a device."""
    a = conserved(layout.unpack(rows))
    counts = (jnp.arange(a.shape[1]) < count) & ~jnp.isnan(a)
    least, most = jnp.min(jnp.where(counts, a, jnp.inf), 1), jnp.max(jnp.where(counts, a, -jnp.inf), 1)
    return jnp.minimum(low, least), jnp.maximum(high, most)


class Kinetic:
    """½ pᵀM⁻¹p of rows of p, computed on the host."""

    def __init__(self, system: System):
        self.mass = system.mass

    def __call__(self, p: np.ndarray) -> np.ndarray:
        p = np.asarray(p)
        if not mass_is_matrix(self.mass, p.shape[1:]):
            return 0.5 * np.sum((p * p / np.asarray(self.mass)).reshape(len(p), -1), axis=1)
        return np.asarray(_kinetic(self.mass, p))


@jit
def _kinetic(mass: Any, p: Array) -> Array:
    velocity = inertia(mass, p.shape[1:]).velocity
    return jax.lax.map(lambda x: 0.5 * jnp.sum(x * velocity(x)), p)


def _potential(system: Stated, q: Array, t: Array) -> Array:
    """V = −L(q, 0) at time t."""
    return -derive(system, q.shape, t).lagrangian(q, jnp.zeros_like(q))


@functools.partial(jit, static_argnums=0)
def _potentials(spread: str, system: Stated, q: Array, t: Array) -> Array:
    """V of each row of q, at its time. spread: whose params they have, as in `spread_over`."""
    return spread_over(_potential, spread, system, q, t)


@jit
def _sizes(system: Stated, q: Array, p: Array, t: Array, directions: Array) -> Array:
    """|∂H·x| + |xᵀ∂²H x| in each direction x of q, at time t."""

    def along(x: Array) -> Array:
        energy = lambda s: derive(system, q.shape, t).energy(q + s * x, p)
        slope = lambda s: jax.jvp(energy, (s,), (jnp.ones_like(s),))[1]
        first, second = jax.jvp(slope, (jnp.zeros((), q.dtype),), (jnp.ones((), q.dtype),))
        return jnp.abs(first) + jnp.abs(second)

    return jax.vmap(along)(directions)


class Excess(NamedTuple):
    """Members whose energy error exceeds the scale of the energy, by their places in the run."""

    members: np.ndarray
    largest: np.ndarray  # the error of each
    scale: np.ndarray


class SavedPoints:
    """The saved points of a run; one trajectory counts as an ensemble of one member."""

    def __init__(self, run: Trajectory):
        self.run, self.count = run, len(run.t)
        self.members = len(run.q) if run.members else 1
        self.kinetic = Kinetic(run.system) if isinstance(run.system, System) else None

    def column(self, name: str, members: Any, rows: Any) -> np.ndarray:
        column = getattr(self.run, name)
        return np.asarray(column[members, rows] if self.run.members else column[rows])

    def conserved(self, members: Any, rows: Any) -> np.ndarray:
        names = [n for n in ("energy", "work") if n in self.run.saved]
        return conserved({n: self.column(n, members, rows) for n in names})

    def allowed(self, member: int, rows: slice) -> np.ndarray:
        """The kinetic energy that conservation allows at saved points of a member."""
        h, a0 = self.column("energy", member, rows), self.conserved(member, 0)
        work = self.column("work", member, rows) if "work" in self.run.saved else 0.0
        if self.kinetic is not None:
            return a0 + work - (h - self.kinetic(self.column("p", member, rows)))
        q = jnp.asarray(self.column("q", member, rows))
        return a0 + work - np.asarray(_potentials("states", self.system_of(member), q, np.asarray(self.run.t[rows])))

    def system_of(self, member: int) -> Any:
        own = self.run.spread == "states and params"
        return self.run.system.member(member) if own and self.run.system is not None else self.run.system

    def at_row(self, row: int, members: np.ndarray) -> np.ndarray:
        """The kinetic energy that conservation allows, for many members at one saved point."""
        if not self.run.members:
            return self.allowed(0, slice(row, row + 1))
        work = self.column("work", members, row) if "work" in self.run.saved else 0.0
        if self.kinetic is not None:
            potential = self.column("energy", members, row) - self.kinetic(self.column("p", members, row))
        else:  # of all members, so that one compiled program serves every call
            q = jnp.asarray(self.column("q", slice(None), row))
            t = np.full(len(q), float(self.run.t[row]))
            potential = np.asarray(_potentials(self.run.spread, self.run.system, q, t))[members]
        return self.conserved(members, 0) + work - potential


def excess(run: Trajectory, largest: Any = None, share: float = 1.0) -> Excess | None:
    """The members whose energy error exceeds the scale of the energy, or a share of it; None where there are none.

    largest: the error of each member, where it is known; it is read from the energies otherwise.
    """
    system = run.system
    if system is None or run.method.traits.event_driven or "energy" not in run.saved:
        return None
    if len(run.t) < 2 or (system.driven and "work" not in run.saved):
        return None
    saved = SavedPoints(run)
    if largest is None:
        largest = _largest(saved)
    start = np.atleast_1d(saved.conserved(slice(None), 0))
    largest = np.broadcast_to(largest, start.shape) / share
    scale = ROUNDING * np.finfo(start.dtype).eps * np.abs(start)
    suspects = np.flatnonzero(largest > scale)
    # A member that is no longer finite has failed, and run.failed_at has it.
    suspects = suspects[np.isfinite(saved.conserved(suspects, saved.count - 1)) | (not run.members)]
    for row in _spread_out(saved.count):
        if not len(suspects):
            return None
        allowed = saved.at_row(row, suspects)
        error = np.abs(saved.conserved(suspects, row) - start[suspects])
        scale[suspects] = np.fmax(scale[suspects], trusted(allowed, error))
        suspects = suspects[largest[suspects] > scale[suspects]]
    for member in suspects[:READ]:
        scale[member] = max(scale[member], _noise(saved, int(member)), whole_scale(saved, int(member)))
    suspects = suspects[largest[suspects] > scale[suspects]]
    return Excess(suspects, share * largest[suspects], scale[suspects]) if len(suspects) else None


def calm_on_device(run: Trajectory, extremes: Extremes) -> bool:
    """Whether no member exceeds the scale of its energy, by the first and the last saved point alone, of a run whose
    rows are on a device. `excess` decides where this is False."""
    saved, system = run.saved, run.system
    if not isinstance(saved, DeviceColumns) or not saved.pieces or not isinstance(system, System) or saved.count < 2:
        return False
    if system.driven and "work" not in saved:
        return False
    first, last = saved.pieces[0], saved.pieces[-1]
    at = saved.count - 1 - sum(piece.count for piece in saved.pieces[:-1])
    layout = extremes.engine.layout
    return at >= 0 and bool(_calm(layout, first.array, last.array, at, extremes.low, extremes.high, system.mass))


@functools.partial(jit, static_argnums=0)
def _calm(layout: Layout, first: Array, last: Array, at: Any, low: Array, high: Array, mass: Any) -> Array:
    begin, end = layout.unpack(first[:, 0]), layout.unpack(last[:, at])
    start = conserved(begin)
    scale = ROUNDING * jnp.finfo(start.dtype).eps * jnp.abs(start)
    for seen in (begin, end):
        p = seen["p"]
        velocity = jax.vmap(inertia(mass, p.shape[1:]).velocity)(p)
        kinetic = 0.5 * jnp.sum((p * velocity).reshape(len(p), -1), axis=1)
        allowed = start + seen.get("work", 0.0) - (seen["energy"] - kinetic)
        error = jnp.abs(conserved(seen) - start)
        scale = jnp.fmax(scale, jnp.where(error <= allowed / 2, allowed, 0.0))
    largest = jnp.maximum(jnp.maximum(high - start, start - low), 0.0)
    return ~jnp.any((largest > scale) & jnp.isfinite(conserved(end)))


def trusted(allowed: np.ndarray, error: np.ndarray) -> np.ndarray:
    """The kinetic energy that conservation allows, where the energy error is at most half of it."""
    return np.where(error <= allowed / 2, allowed, 0.0)


def whole_scale(saved: SavedPoints, member: int) -> float:
    """The scale of the energy of a member, by all its saved points."""
    start, scale = saved.conserved(member, 0), 0.0
    for begin in range(0, saved.count, ROWS):
        rows = slice(begin, min(begin + ROWS, saved.count))
        error = np.abs(saved.conserved(member, rows) - start)
        scale = max(scale, float(np.fmax.reduce(trusted(saved.allowed(member, rows), error))))
    return scale


def first_beyond(saved: SavedPoints, member: int, scale: float) -> tuple[int, float]:
    """The first saved point at which the energy error of a member exceeds the scale, and that error."""
    start, error = saved.conserved(member, 0), np.zeros(1)
    for begin in range(0, saved.count, ROWS):
        error = np.abs(saved.conserved(member, slice(begin, min(begin + ROWS, saved.count))) - start)
        over = np.flatnonzero(error > scale)
        if len(over):
            return begin + int(over[0]), float(error[over[0]])
    return saved.count - 1, float(error[-1])


def _largest(saved: SavedPoints) -> np.ndarray:
    found = np.zeros(saved.members)
    start = np.atleast_1d(saved.conserved(slice(None), 0))
    for begin in range(0, saved.count, ROWS):
        rows = np.atleast_2d(saved.conserved(slice(None), slice(begin, begin + ROWS)))
        with np.errstate(invalid="ignore"):
            found = np.fmax(found, np.fmax.reduce(np.abs(rows - start[:, None]), axis=1))
    return found


def _spread_out(count: int) -> Iterator[int]:
    """Saved points in bit-reversed order, which covers the run evenly; most runs need two or three of them."""
    yield from (0, count // 2, count - 1)
    even = np.unique(np.linspace(0, count - 1, min(count, SAMPLE)).round().astype(int))
    yield from even[np.argsort([int(f"{k:09b}"[::-1], 2) for k in range(len(even))])]


def _noise(saved: SavedPoints, member: int) -> float:
    """What rounding alone may change in the energy. The size of its terms is estimated by derivatives along q with
    random signs: the value of a potential that is zero by cancellation of large terms does not show their size."""
    q, p = (saved.column(name, member, 0) for name in ("q", "p"))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (4, *q.shape)).astype(q.dtype)
    sizes = np.asarray(_sizes(saved.system_of(member), q, p, float(saved.run.t[0]), signs * q))
    return ROUNDING * float(np.finfo(q.dtype).eps * np.max(sizes, initial=0.0, where=np.isfinite(sizes)))
