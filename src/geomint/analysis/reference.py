"""The exact motion, by methods that share no code with the one that is measured.

`independent_reference` integrates q̈ = a(q, q̇, t) with scipy; `reference` adds a composition of order 8, compensated,
which is more accurate, and compares the two.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from ..errors import MeasurementError, RunStopped
from ..manifold.dependence import DEPENDENT
from ..methods import Boris, Composition, LieVerlet, Method, Rattle, Verlet
from ..numerics.cache import BoundedCache
from ..numerics.compilation import jit
from ..numerics.linalg.discovery import start_key
from ..run import simulate
from ..run.instability import unwatched
from ..system.lagrangian import derive
from ..system.mass import mass_is_matrix, mass_matrix
from ..system.spaces import space_of, velocity_shape
from ..system.system import Stated, System

EVALUATIONS = 400_000  # of the force, for an independent reference: about ten seconds


class Point(NamedTuple):
    """A point of phase space, where a property is measured."""

    q: Any
    p: Any


def relative_difference(a: Point, b: Point, passed: Point | None = None) -> float:
    """The largest difference, relative to the size of q and of p at b; or at a point that the motion has passed, where
    they are larger there: b may be at rest."""
    sizes = [
        max(1e-300, *(np.max(np.abs(y)) for y in each)) for each in zip(b, b if passed is None else passed, strict=True)
    ]
    return float(max(np.max(np.abs(x - y)) / size for x, y, size in zip(a, b, sizes, strict=True)))


@jit
def _field(system: Stated, q: Array, v: Array, t: Array) -> Array:
    return derive(system, q.shape).acceleration(q, v, t)


@jit
def _rate(system: Stated, q: Array, v: Array) -> Array:
    return space_of(system).lift(q, v)


@jit
def _velocity(system: Stated, q: Array, p: Array) -> Array:
    return derive(system, q.shape).velocity_at(q, p)


@jit
def _momenta(system: Stated, q: Array, v: Array, t: Array) -> Array:
    """At many points."""
    return jax.vmap(lambda x, y, s: derive(system, q.shape[1:], s).momentum_at(x, y))(q, v, t)


@jit
def _constrained_parts(system: System, q: Array, v: Array, t: Array) -> tuple[Array, Array, Array]:
    """M⁻¹F, G and g''(v, v)."""
    mech = derive(system, q.shape, t)
    force = mech.total_force(q, v) if mech.driven else mech.force(q)
    return mech.velocity(force).ravel(), mech.constraint_jacobian(q), mech.constraint_curvature(q, v)


class Acceleration:
    """q̈ = a(q, q̇, t) of the exact motion, in numpy.

    Of a constrained system: the a with G a + g''(v, v) = 0 that is nearest to M⁻¹f in the metric of the mass (Gauss's
    principle), by least squares with gradients scaled to length 1, so that redundant constraints are allowed.
    """

    def __init__(self, system: Stated, shape: tuple[int, ...]):
        self.system, self.shape = system, shape
        self.constrained = isinstance(system, System) and system.constraint is not None
        self.root: Any = None  # M⁻¹ = root·rootᵀ, for a mass matrix
        self.scale: Any = None  # M⁻¹ = diag(scale²), for masses of the coordinates
        if isinstance(system, System) and self.constrained:
            if mass_is_matrix(system.mass, shape):
                self.root = np.linalg.inv(np.linalg.cholesky(mass_matrix(system.mass, shape))).T
            else:
                self.scale = 1 / np.sqrt(np.broadcast_to(system.mass, shape)).ravel()

    def __call__(self, q: np.ndarray, v: np.ndarray, t: float) -> np.ndarray:
        q, v = q.reshape(self.shape), v.reshape(velocity_shape(self.system, self.shape))
        if not self.constrained:
            return np.ravel(_field(self.system, q, v, t))
        free, jacobian, curvature = (np.asarray(x) for x in _constrained_parts(self.system, q, v, t))
        rows = jacobian @ self.root if self.scale is None else jacobian * self.scale
        if not (np.all(np.isfinite(rows)) and np.all(np.isfinite(free)) and np.all(np.isfinite(curvature))):
            return np.full(q.size, np.nan)
        lengths = np.linalg.norm(rows, axis=1)
        lengths = np.where(lengths > 0, lengths, 1.0)
        right = -(curvature + jacobian @ free) / lengths
        change = np.linalg.lstsq(rows / lengths[:, None], right, rcond=DEPENDENT)[0]
        return free + (self.root @ change if self.scale is None else self.scale * change)


def is_equilibrium(system: Stated, at: Point) -> bool:
    """Whether (q, p) is an equilibrium: p = 0, and the acceleration is zero up to rounding of q and of the force."""
    if np.any(at.p):
        return False
    q, acceleration = np.asarray(at.q, float), Acceleration(system, at.q.shape)
    eps, still = np.finfo(float).eps, np.zeros(np.size(at.p))
    signs = np.random.default_rng(3).choice([-1.0, 1.0], q.shape)
    here, beside = (acceleration(x, still, 0.0) for x in (q, q * (1 + 4 * eps * signs)))
    rounding = np.max(np.abs(beside - here))
    if acceleration.constrained:  # the part of the force normal to the constraint cancels
        rounding += eps * np.max(np.abs(_constrained_parts(system, q, 0 * q, 0.0)[0]))
    return bool(np.max(np.abs(here)) <= 16 * rounding)


_SHORTER = ": the exact motion must be known for some steps; take a smaller dt, or another start."
NOT_FINITE = 600  # consecutive non-finite evaluations before giving up; by then the step has shrunk by 1e-30


def independent_reference(system: Stated, at: Point, times: np.ndarray) -> Point:
    """The exact motion to about 1e-12, by Dormand–Prince 8(5,3) on the underlying equation q̈ = a(q, q̇)."""
    from scipy.integrate import solve_ivp

    shape, size, moving = at.q.shape, at.q.size, at.p.shape
    flat = space_of(system).flat
    acceleration, spent, bad = Acceleration(system, shape), itertools.count(), [0]

    def right(t, y):
        if next(spent) > EVALUATIONS:
            raise MeasurementError(
                f"the motion up to t = {times[-1]:g} needs more than {EVALUATIONS} evaluations of the force{_SHORTER}"
            )
        a = acceleration(y[:size], y[size:], t)
        bad[0] = 0 if np.all(np.isfinite(a)) else bad[0] + 1
        if bad[0] > NOT_FINITE:
            raise MeasurementError(f"the acceleration is not finite at t = {t:g} (a singularity?){_SHORTER}")
        rate = y[size:] if flat else np.ravel(_rate(system, y[:size].reshape(shape), y[size:].reshape(moving)))
        return np.concatenate([rate, a])

    start = np.concatenate([np.ravel(at.q), np.ravel(_velocity(system, np.asarray(at.q), np.asarray(at.p)))])
    solved = solve_ivp(right, (0, times[-1]), start, method="DOP853", t_eval=times, rtol=3e-14, atol=1e-15)
    y = solved.y.T
    if len(y) < len(times) or not np.all(np.isfinite(y)):
        raise MeasurementError(f"the exact motion was not found up to t = {times[-1]:g} (a singularity?){_SHORTER}")
    q, v = y[:, :size].reshape(-1, *shape), y[:, size:].reshape(-1, *moving)
    return Point(q, np.asarray(_momenta(system, q, v, times)))


def reference(system: Stated, at: Point, times: np.ndarray, dt: float, engine: str = "auto") -> tuple[Point, float]:
    """The motion at equidistant times, and its accuracy.

    Systems of constant mass: a composition of order 8 with compensated sums, accurate to some units of round-off, and
    compared with the independent reference. All others: the independent reference.
    """
    key = (start_key(system, at.q), np.asarray(at.p).tobytes(), times.tobytes(), dt, engine)
    return _references.get_or_make(key, lambda: _reference(system, at, times, dt, engine))


_references: BoundedCache[tuple[Point, float]] = BoundedCache(16)


def _base_of_reference(system: System) -> Method:
    if not system.space.flat:
        return LieVerlet(map="exponential")
    if system.constraint is not None:
        return Rattle()
    return Verlet() if system.magnetic_field is None else Boris()


@unwatched()
def _reference(system: Stated, at: Point, times: np.ndarray, dt: float, engine: str) -> tuple[Point, float]:
    independent = independent_reference(system, at, times)
    if not isinstance(system, System):
        return independent, 1e-11
    base = _base_of_reference(system)
    n = int(np.ceil(times[0] / dt)) * 40
    settings: dict[str, Any] = {"dt": times[0] / n, "t_end": times[-1], "save_every": n, "compensated": True}
    try:
        fine = simulate(system, at.q, p0=at.p, method=Composition(base, order=8), engine=engine, **settings)
    except RunStopped as stopped:
        raise MeasurementError(f"the reference of order 8 stopped ({stopped.reason}){_SHORTER}") from stopped
    close = Point(fine.q[1:], fine.p[1:])
    apart = relative_difference(close, independent)
    if not apart <= 1e-9:
        raise MeasurementError(f"two independent references differ by {apart:.1e} up to t = {times[-1]:g}{_SHORTER}")
    return close, 1e-14
