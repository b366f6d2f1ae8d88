"""Structure, measured: order, symplecticity, symmetry, reversibility, momentum maps, energy, constraints.

Each function takes a method and a system at a point and returns a number. The certificate prints them beside the
claims; the property tests hold the claims to them.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.integrate import solve_ivp
from scipy.interpolate import make_interp_spline

from ..engines import Clock, Xla, march
from ..errors import MeasurementError, RunStopped
from ..manifold.dependence import DEPENDENT
from ..methods import Composition, Method, Rattle, State, Verlet, protocols
from ..numerics.cache import BoundedCache
from ..numerics.compilation import jit
from ..numerics.linalg.discovery import start_key
from ..run import Trajectory, simulate
from ..run.inputs import initial_state
from ..run.instability import Excess, excess, unwatched
from ..system.lagrangian import derive
from ..system.system import Stated, System, mass_is_matrix


class Point(NamedTuple):
    """Where something is measured."""

    q: Any
    p: Any


def _begun(method: Method, mech: Any, q: Array, p: Array, dt: Array) -> Any:
    return method.init(mech, State(q, p, jnp.zeros(()), jnp.zeros(2, jnp.uint32)), dt)


class _Moving:
    """A carry under way, by the program that simulate compiles, so that nothing new is compiled."""

    def __init__(self, method: Method, system: Stated, at: Point, dt: float):
        self.runner = Xla(protocols.prepare(method, [(system, at.q)]), system, Clock.of(0.0, dt))
        self.carry, seen = self.runner.begin(
            initial_state(np.asarray(at.q), np.asarray(at.p), 0.0, 0, compensated=True)
        )
        self.at = Point(np.asarray(seen["q"]), np.asarray(seen["p"]))

    def step(self, n: int) -> _Moving:
        self.carry, kept = self.runner.advance(self.carry, 0, n, 1, self.runner.buffer())
        end = self.runner.layout.unpack(np.asarray(kept.rows)[0])
        self.at = Point(end["q"], end["p"])
        return self

    def turn(self) -> _Moving:
        """Ready for steps of the opposite sign."""
        method, system, clock = self.runner.method, self.runner.system, self.runner.clock
        turned = Xla(method, system, Clock(clock.t0, -clock.dt))
        turned.layout, turned.rows, turned.buffer_shape = self.runner.layout, self.runner.rows, self.runner.buffer_shape
        mech = derive(system, self.at.q.shape)
        self.runner, self.carry = (
            turned,
            protocols.rescale(method, mech, protocols.reverse(method, self.carry), jnp.asarray(turned.clock.dt)),
        )
        return self


def flow(method: Method, system: Stated, at: Point, dt: float, n: int = 1) -> Point:
    """Φ(dt)ⁿ from a fresh start, dt of either sign."""
    return _Moving(method, system, at, dt).step(n).at


def _distance(a: Point, b: Point) -> float:
    """The largest difference, relative to the size of q and of p."""
    relative = [np.max(np.abs(x - y)) / max(1e-300, np.max(np.abs(y))) for x, y in zip(a, b, strict=True)]
    return float(max(relative))


# --- order ----------------------------------------------------------------------------------------------------------
FEWEST = 6  # steps to fit a slope to
EVALUATIONS = 400_000  # of the force, for an independent reference: about ten seconds


@jit
def _field(system: Stated, q: Array, v: Array, t: Array) -> Array:
    return derive(system, q.shape).acceleration(q, v, t)


@jit
def _constrained_parts(system: System, q: Array, v: Array) -> tuple[Array, Array, Array]:
    """M⁻¹f, G and g''(v, v)."""
    mech = derive(system, q.shape)
    return mech.velocity(mech.force(q)).ravel(), mech.constraint_jacobian(q), mech.constraint_curvature(q, v)


class _Acceleration:
    """q̈ = a(q, q̇, t) of the exact motion, by numpy. Of a constrained system it is the a with G a + g''(v, v) = 0 that
    is nearest to M⁻¹f in the metric of the mass, by least squares with gradients of length 1, so that constraints may
    depend on each other."""

    def __init__(self, system: Stated, shape: tuple[int, ...]):
        self.system, self.shape = system, shape
        if self.constrained:
            mass = np.asarray(system.mass)
            matrix = mass_is_matrix(mass.shape, shape)
            self.root = np.linalg.inv(np.linalg.cholesky(mass)).T if matrix else None  # M⁻¹ = root·rootᵀ
            self.scale = None if matrix else 1 / np.sqrt(np.broadcast_to(mass, shape)).ravel()

    @property
    def constrained(self) -> bool:
        return isinstance(self.system, System) and self.system.constraint is not None

    def __call__(self, q: np.ndarray, v: np.ndarray, t: float) -> np.ndarray:
        q, v = q.reshape(self.shape), v.reshape(self.shape)
        if not self.constrained:
            return np.ravel(_field(self.system, q, v, t))
        free, jacobian, curvature = (np.asarray(x) for x in _constrained_parts(self.system, q, v))
        rows = jacobian @ self.root if self.scale is None else jacobian * self.scale
        if not (np.all(np.isfinite(rows)) and np.all(np.isfinite(free)) and np.all(np.isfinite(curvature))):
            return np.full(q.size, np.nan)
        lengths = np.linalg.norm(rows, axis=1)
        lengths = np.where(lengths > 0, lengths, 1.0)
        right = -(curvature + jacobian @ free) / lengths
        change = np.linalg.lstsq(rows / lengths[:, None], right, rcond=DEPENDENT)[0]
        return free + (self.root @ change if self.scale is None else self.scale * change)


def rests(system: Stated, at: Point) -> bool:
    """Whether nothing moves: p = 0, and the acceleration is zero up to the rounding of q and of the force."""
    if np.any(at.p):
        return False
    q, acceleration = np.asarray(at.q, float), _Acceleration(system, at.q.shape)
    eps, still = np.finfo(float).eps, np.zeros(q.size)
    signs = np.random.default_rng(3).choice([-1.0, 1.0], q.shape)
    here, beside = (acceleration(x, still, 0.0) for x in (q, q * (1 + 4 * eps * signs)))
    rounding = np.max(np.abs(beside - here))
    if acceleration.constrained:  # its part along the constraint cancels
        rounding += eps * np.max(np.abs(_constrained_parts(system, q, 0 * q)[0]))
    return bool(np.max(np.abs(here)) <= 16 * rounding)


_SHORTER = ": it is followed for a number of steps; take a smaller dt, or a start from which it is tamer."
NOT_FINITE = 600  # evaluations in a row without a value, after which none is expected: steps are shorter by 1e-30 then


def independent_reference(system: Stated, at: Point, times: np.ndarray) -> Point:
    """The exact motion to about 1e-12, by an unrelated method: Dormand–Prince 8(5,3) on the underlying equation q̈ = a(q, q̇)."""
    shape, size = at.q.shape, at.q.size
    mech, acceleration, spent, bad = derive(system, shape), _Acceleration(system, shape), itertools.count(), [0]

    def right(t, y):
        if next(spent) > EVALUATIONS:
            raise MeasurementError(
                f"the motion up to t = {times[-1]:g} needs more than {EVALUATIONS} evaluations of the force{_SHORTER}"
            )
        a = acceleration(y[:size], y[size:], t)
        bad[0] = 0 if np.all(np.isfinite(a)) else bad[0] + 1
        if bad[0] > NOT_FINITE:
            raise MeasurementError(f"the acceleration is not finite at t = {t:g} (a singularity?){_SHORTER}")
        return np.concatenate([y[size:], a])

    start = np.concatenate([np.ravel(at.q), np.ravel(mech.velocity_at(jnp.asarray(at.q), jnp.asarray(at.p)))])
    solved = solve_ivp(right, (0, times[-1]), start, method="DOP853", t_eval=times, rtol=3e-14, atol=1e-15)
    y = solved.y.T
    if len(y) < len(times) or not np.all(np.isfinite(y)):
        raise MeasurementError(f"the exact motion was not found up to t = {times[-1]:g} (a singularity?){_SHORTER}")
    q, v = y[:, :size].reshape(-1, *shape), y[:, size:].reshape(-1, *shape)
    return Point(q, np.asarray(jax.vmap(mech.momentum_at)(jnp.asarray(q), jnp.asarray(v))))


def reference(system: Stated, at: Point, times: np.ndarray, dt: float) -> tuple[Point, float]:
    """The motion at equidistant times and how well it is known.

    Systems of constant mass: an eighth-order composition with compensated sums, right to some units of round-off, and held
    to the independent reference. All others: the independent reference.
    """
    key = (start_key(system, at.q), np.asarray(at.p).tobytes(), times.tobytes(), dt)
    return _references.get_or_make(key, lambda: _reference(system, at, times, dt))


_references: BoundedCache[tuple[Point, float]] = BoundedCache(16)


@unwatched()
def _reference(system: Stated, at: Point, times: np.ndarray, dt: float) -> tuple[Point, float]:
    independent = independent_reference(system, at, times)
    if not isinstance(system, System):
        return independent, 1e-11
    base = Verlet() if system.constraint is None else Rattle()
    n = int(np.ceil(times[0] / dt)) * 40
    settings: dict[str, Any] = {"dt": times[0] / n, "t_end": times[-1], "save_every": n, "compensated": True}
    try:
        fine = simulate(system, at.q, p0=at.p, method=Composition(base, order=8), **settings)
    except RunStopped as stopped:
        raise MeasurementError(f"the reference of order 8 stopped ({stopped.reason}){_SHORTER}") from stopped
    close = Point(fine.q[1:], fine.p[1:])
    apart = _distance(close, independent)
    if not apart <= 1e-9:
        raise MeasurementError(f"two independent references differ by {apart:.1e} up to t = {times[-1]:g}{_SHORTER}")
    return close, 1e-14


class Order(NamedTuple):
    order: float  # the smaller of the two slopes
    slopes: tuple[float, float]  # in q and p
    uncertainties: tuple[float, float]  # of the slopes
    steps: tuple[float, ...]
    errors: tuple[tuple[float, float], ...]  # in q and p, root mean square over the looks, relative
    closest: float  # the smallest error of all steps, the larger one of q and p


@unwatched()
def order(method: Method, system: Stated, at: Point, dt: float, refinements: int | None = None) -> Order:
    """The exponent r of the error c·hʳ as h → 0, in q and in p; steps shrink from dt on by 2^(refinements/2) in all, or to round-off.

    Sums are compensated, which pushes round-off down far enough for the order of an eighth-order method to show. The parasitic
    components of a multistep method oscillate and fade late, just above round-off: it is watched for longer, at more times, with
    steps closer to each other.
    """
    multistep = method.traits.steps > 2
    # Looks at the motion, dt between two of them, how close a step is to the next (few are above round-off at high order), refinements.
    # On a manifold what oscillates is larger, and is watched for longest; elsewhere the terms of higher order grow with time and hide the first.
    long = 64 if system.constraint is None else 128
    looks, coarsest, close, usual = (long, 1, 32, 12) if multistep else (16, 2, max(4, 2 * method.traits.order), 14)
    refinements = usual if refinements is None else refinements
    exact, floor = reference(system, at, coarsest * dt * np.arange(1, looks + 1), dt)
    # The constraint is met to round-off in q: multipliers are known to eps/h², and what remains of them in p sums up along the run.
    floors = (floor, max(floor, 1e-13) if multistep and system.constraint is not None else floor)
    steps, errors, n, closest = [], [], coarsest, np.inf
    while n <= coarsest * 2 ** (refinements / 2):
        h = coarsest * dt / n
        every, n = n, n + max(1, n // close)
        try:
            run = simulate(
                system,
                at.q,
                p0=at.p,
                method=method,
                dt=h,
                t_end=looks * coarsest * dt,
                save_every=every,
                compensated=True,
            )
        except RunStopped:  # not stable yet
            continue
        pair = [np.ravel(x[1:] - y) / np.max(np.abs(y)) for x, y in zip((run.q, run.p), exact, strict=True)]
        closest = min(closest, max(map(_size, pair)))
        if not max(np.max(np.abs(error)) for error in pair) < 0.1:  # not convergent yet
            continue
        if all(_size(error) < least for error, least in zip(pair, floors, strict=True)):
            break
        steps.append(h)
        errors.append(pair)
    power = 2 if method.traits.symmetric and getattr(system, "force", None) is None else 1
    found = [_slope(np.array(steps), [e[i] for e in errors], floors[i], power) for i in range(2)]
    slopes, uncertainties = zip(*found, strict=True)
    return Order(
        float(np.min(slopes)),
        slopes,
        uncertainties,
        tuple(steps),
        tuple((_size(q), _size(p)) for q, p in errors),
        closest,
    )


def _size(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(error**2)))


def _slope(steps: np.ndarray, errors: list[np.ndarray], floor: float, power: int) -> tuple[float, float]:
    """r and its uncertainty from the expansion e(h) = hʳ(e₀ + hᵐe₁ + …), m = 2 for symmetric methods, 1 for others.

    Errors e(h) are vectors, all looks and coordinates. Along that of the finest step of a window of steps, rounding and what
    oscillates average out, and  log⟨e(h), e(h₀)⟩ = c + r log h + d hᵐ + O(h²ᵐ)  is fitted by least squares. Its uncertainty
    is the standard error of r together with the square of what dhᵐ changed in r, the size of the next term. The window is the
    one that knows r best, among those that begin within twice the finest step above the floor and reach to √2…4 times their
    beginning. Not a number where there is none.
    """
    above = next((k for k, error in enumerate(errors) if _size(error) < floor), len(errors))
    best = (np.nan, np.inf)
    for end in range(FEWEST, above + 1):
        for begin in range(end - FEWEST + 1):
            h = steps[begin:end] / steps[end - 1]
            along = np.array([e @ errors[end - 1] for e in errors[begin:end]])
            if steps[end - 1] > 2 * steps[above - 1] or not 1.4 < h[0] < 4 or np.min(along) <= 0:
                continue
            terms = np.stack([np.ones_like(h), np.log(h), h**power], axis=1)
            fit, square, *_ = np.linalg.lstsq(terms, np.log(along))
            scatter = np.sqrt(square[0] / (len(h) - 3) * np.linalg.inv(terms.T @ terms)[1, 1])
            change = fit[1] - np.polyfit(np.log(h), np.log(along), 1)[0]
            if (uncertainty := np.hypot(scatter, change**2)) < best[1]:
                best = (float(fit[1]), float(uncertainty))
    return best


# --- symplecticity, symmetry, reversibility -------------------------------------------------------------------------
@functools.partial(jit, static_argnames="steps")
def step_jacobian(method: Method, system: Stated, q: Array, p: Array, dt: Array, steps: int = 1) -> Array:
    """The derivative of (q, p) after so many steps with respect to (q, p) before, (2n, 2n)."""
    n = q.size

    def step(x: Array) -> Array:
        mech = derive(system, q.shape)
        begun = _begun(method, mech, x[:n].reshape(q.shape), x[n:].reshape(q.shape), dt)
        if method.traits.event_driven:
            end = method.between(mech, march(method, mech, begun, Clock(0.0, dt), 0, steps)[0], steps * dt)
        else:
            end = method.output(
                mech,
                method.step(mech, begun, dt) if steps == 1 else march(method, mech, begun, Clock(0.0, dt), 0, steps)[0],
            )
        return jnp.concatenate([end.q.ravel(), end.p.ravel()])

    return jax.jacfwd(step)(jnp.concatenate([q.ravel(), p.ravel()]))


def _tangent(system: Stated, at: Point) -> np.ndarray:
    """A basis of the tangent space at (q, p): of phase space, or of the tangent bundle {g(q) = 0, G(q)M⁻¹p = 0}."""
    n = at.q.size
    if system.constraint is None:
        return np.eye(2 * n)
    mech = derive(system, at.q.shape)

    def hidden(x: Array) -> Array:
        q, p = x[:n].reshape(at.q.shape), x[n:].reshape(at.q.shape)
        return jnp.concatenate([mech.constraint(q), mech.constraint_rate(q, mech.velocity_at(q, p))])

    conditions = np.asarray(jax.jacrev(hidden)(jnp.concatenate([jnp.ravel(at.q), jnp.ravel(at.p)])))
    _, singular, rows = np.linalg.svd(conditions)
    rank = int(np.sum(singular > 1e-10 * singular[0]))
    return rows[rank:].T


def symplecticity(method: Method, system: Stated, at: Point, dt: float) -> float:
    """max |JᵀΩJ − Ω| on the tangent space, relative to max |J|², J the derivative of one step; of a multistep method, of as
    many steps as leave its start behind."""
    n, method = at.q.size, protocols.prepare(method, [(system, at.q)])
    steps = 1 if method.traits.steps <= 2 else 2 * method.traits.steps
    jacobian = np.asarray(
        step_jacobian(method, system, *(jnp.asarray(x, float) for x in (at.q, at.p, dt)), steps=steps)
    )
    omega = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    basis = _tangent(system, at)
    moved = jacobian @ basis
    return float(
        np.max(np.abs(moved.T @ omega @ moved - basis.T @ omega @ basis)) / max(1.0, np.max(np.abs(moved)) ** 2)
    )


def symmetry(method: Method, system: Stated, at: Point, dt: float, n: int = 4) -> float:
    """|Φ(−dt)ⁿ Φ(dt)ⁿ − identity|, relative. A multistep method goes back over its own history; an event-driven one, whose time runs
    forward only, by turning its momenta round."""
    if method.traits.event_driven:
        return reversibility(method, system, at, dt, n)
    moving = _Moving(method, system, at, dt)
    if method.traits.steps > 2:
        moving.step(method.traits.steps)  # leave its start behind
    shown = moving.at
    return _distance(moving.step(n).turn().step(n).at, shown)


def reversibility(method: Method, system: Stated, at: Point, dt: float, n: int = 4) -> float:
    """|ρ Φⁿ ρ Φⁿ − identity| with ρ(q, p) = (q, −p), relative, each from a fresh start."""
    moving = _Moving(method, system, at, dt)
    shown = moving.at
    there = moving.step(n).at
    back = flow(protocols.anchored(method, moving.carry), system, Point(there.q, -there.p), dt, n)
    return _distance(Point(back.q, -back.p), shown)


def large_step(method: Method, system: Stated, at: Point, dt: float) -> float:
    """The largest of 8, 4, 2, 1 times dt at which a step is still finite and tame; a small step hides what it breaks."""
    for factor in (8, 4, 2):
        there = flow(method, system, at, factor * dt, 4)
        back = flow(method, system, Point(there.q, -there.p), factor * dt, 4)
        sizes = [
            np.max(np.abs(x)) / max(1e-300, np.max(np.abs(y))) for x, y in zip((*there, *back), (*at, *at), strict=True)
        ]
        if np.all(np.isfinite(sizes)) and max(sizes) < 10:
            return factor * dt
    return dt


# --- over many steps ------------------------------------------------------------------------------------------------
class LongRun(NamedTuple):
    drift: float  # of the energy per unit time, least squares
    band: float  # width of the energy error around that line
    excess: float  # |drift|·T over the band: below 1 the energy only oscillates
    momentum: dict[str, float]  # largest deviation of each momentum map, relative to Σ|p||ξ|
    constraint: float  # max |g(q)|
    tangency: float  # max |G M⁻¹p|
    run: Trajectory
    beyond: Excess | None  # where the energy error exceeds the scale of the energy


@unwatched()
def long_run(method: Method, system: Stated, at: Point, dt: float, steps: int = 20_000, saves: int = 1000) -> LongRun:
    """What a run of many steps shows; with compensated sums, so that a drift is the method's and not that of rounding."""
    every = max(1, steps // saves)
    run = simulate(
        system, at.q, p0=at.p, method=method, dt=dt, t_end=every * saves * dt, save_every=every, compensated=True
    )
    error = np.asarray(run.energy_error)
    slope, level = np.polyfit(run.t, error, 1)
    around = error - (slope * run.t + level)
    band = float(np.max(around) - np.min(around))
    # Round-off makes a random walk of its own; a drift below it is none.
    walk = 10 * np.finfo(float).eps * np.max(np.abs(run.energy)) * np.sqrt(every * saves)
    momentum = {}
    for name, values in run.momentum_maps.items():
        size = max(1e-300, float(np.sum(np.abs(at.p)) * max(1.0, np.max(np.abs(run.q)))))
        momentum[name] = float(np.max(np.abs(values - values[0])) / size)
    worst = lambda x: float(np.max(np.abs(x), initial=0.0))
    tangency = worst(run.columns["velocity_residual"]) if system.constraint is not None else 0.0
    return LongRun(
        float(slope),
        band,
        abs(slope) * run.t[-1] / max(band, walk),
        momentum,
        worst(run.constraint_residual),
        tangency,
        run,
        excess(run),
    )


# --- forces that do work ----------------------------------------------------------------------------------------------
class Balance(NamedTuple):
    order: float  # of |H − H(0) − W| in the step; NaN where it is rounding
    error: float  # the largest, with the step dt, relative to the energy that is exchanged


@jit
def _power(system: Stated, q: Array, p: Array, t: Array) -> Array:
    """f·v at saved points."""

    def at(q: Array, p: Array, t: Array) -> Array:
        mech = derive(system, q.shape)
        v = mech.velocity_at(q, p)
        return jnp.sum(mech.outer_force(q, v, t) * v)

    return jax.vmap(at)(q, p, t)


@unwatched()
def balance(method: Method, system: Stated, at: Point, dt: float, steps: int = 400) -> Balance:
    """The energy less the work of the stated force along the computed motion, W = ∫ f·v dt. The integral is that of a
    spline of degree 7 through the values at all steps, independent of what the method counts as work."""
    errors, exchanged = [], 0.0
    for k in (1, 2, 4):
        run = simulate(system, at.q, p0=at.p, method=method, dt=dt / k, t_end=steps * dt, compensated=True)
        power = np.asarray(_power(system, run.q, run.p, run.t))
        work = make_interp_spline(run.t, power, k=7).antiderivative()(run.t)
        exchanged = max(exchanged, float(np.max(np.abs(work - work[0]))), float(np.max(np.abs(run.energy_error))))
        errors.append(float(np.max(np.abs(run.energy_error - (work - work[0]))[::k])))
    relative = np.array(errors) / max(exchanged, 1e-300)
    above = relative > 1e-12  # rounding, and that of the spline
    slope = (
        np.polyfit(-np.log(np.array([1, 2, 4])[above]), np.log(relative[above]), 1)[0] if above.sum() > 1 else np.nan
    )
    return Balance(float(slope), float(relative[0]))
