"""The structure of a method, measured: symplecticity, symmetry, reversibility, momentum maps, energy, constraints.

Each function takes a method and a system at a point and returns a number. `certify` prints the numbers beside the
claims of the method; the property tests assert the claims with them. `convergence` measures the order, `reference`
computes the exact motion.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engines import Clock, Xla, march
from ..methods import Method, State, protocols
from ..numerics.compilation import jit
from ..run import Trajectory, simulate
from ..run.energy_scale import Excess, excess
from ..run.inputs import initial_state
from ..run.instability import unwatched
from ..system.lagrangian import derive
from ..system.spaces import space_of, velocity_shape
from ..system.system import Stated
from .convergence import Order, order
from .reference import Point, independent_reference, is_equilibrium, reference, relative_difference

__all__ = [
    "Balance",
    "LongRun",
    "Order",
    "Point",
    "balance",
    "flow",
    "independent_reference",
    "is_equilibrium",
    "large_step",
    "long_run",
    "momentum_deviation",
    "order",
    "reference",
    "reversibility",
    "step_jacobian",
    "symmetry",
    "symplecticity",
    "volume",
]


def _begun(method: Method, mech: Any, q: Array, p: Array, dt: Array) -> Any:
    return method.init(mech, State(q, p, jnp.zeros(()), jnp.zeros(2, jnp.uint32)), dt)


@jit
def _turned(method: Method, system: Stated, carry: Any, q: Array, dt: Array) -> Any:
    """The carry at q, prepared for steps of length dt of the opposite sign."""
    return protocols.rescale(method, derive(system, q.shape), protocols.reverse(method, carry), dt)


class _Stepper:
    """Advances and reverses a motion by the program that `simulate` compiles, so that no other one is compiled."""

    def __init__(self, method: Method, system: Stated, at: Point, dt: float):
        self.runner = Xla(protocols.prepare(method, [(system, at.q)]), system, Clock.of(0.0, dt))
        self.carry, seen = self.runner.begin(
            initial_state(np.asarray(at.q), np.asarray(at.p), 0.0, 0, compensated=True)
        )
        self.at = Point(np.asarray(seen["q"]), np.asarray(seen["p"]))
        self.taken = 0  # steps, where the time counts

    def step(self, n: int) -> _Stepper:
        self.carry, kept = self.runner.advance(self.carry, self.taken, n, 1, self.runner.buffer())
        self.taken += n if self.runner.system.depends_on_time else 0
        end = self.runner.layout.unpack(np.asarray(kept.rows)[0])
        self.at = Point(end["q"], end["p"])
        return self

    def turn(self) -> _Stepper:
        """Prepare the carry for steps of the opposite sign."""
        method, system, clock = self.runner.method, self.runner.system, self.runner.clock
        turned = Xla(method, system, Clock(clock.t0 + self.taken * clock.dt, -clock.dt))
        self.taken = 0
        turned.layout, turned.row_capacity = self.runner.layout, self.runner.row_capacity
        turned.buffer_shape = self.runner.buffer_shape
        if isinstance(method, protocols.HasHistory):
            self.carry = _turned(method, system, self.carry, self.at.q, turned.clock.dt)
        elif isinstance(method, protocols.DependsOnStepLength):  # begun again, by a program that is compiled already
            here = initial_state(self.at.q, self.at.p, float(turned.clock.t0), 0, compensated=True)
            self.carry, _ = turned.begin(here)
        self.runner = turned
        return self


def flow(method: Method, system: Stated, at: Point, dt: float, n: int = 1) -> Point:
    """Φ(dt)ⁿ from a fresh start, dt of either sign."""
    return _Stepper(method, system, at, dt).step(n).at


# --- symplecticity, symmetry, reversibility -------------------------------------------------------------------------
def _steps_taken(method: Method, system: Stated, q: Array, dt: Array, steps: int) -> Any:
    """(w, p) ↦ (q, p) after so many steps from retract(q, w), with (w, p) as a vector of length 2n."""
    space, n = space_of(system), int(np.prod(velocity_shape(system, q.shape)))

    def taken(x: Array) -> tuple[Array, Array]:
        mech, shape = derive(system, q.shape), velocity_shape(system, q.shape)
        begun = _begun(method, mech, space.retract(q, x[:n].reshape(shape)), x[n:].reshape(shape), dt)
        if isinstance(method, protocols.EventDriven):
            end = method.between(mech, march(method, mech, begun, Clock(0.0, dt), 0, steps)[0], steps * dt)
        else:
            end = method.output(
                mech.after(steps * dt),
                method.step(mech, begun, dt) if steps == 1 else march(method, mech, begun, Clock(0.0, dt), 0, steps)[0],
            )
        return end.q, end.p

    return taken


def _moved_column(method: Method, system: Stated, q: Array, p: Array, dt: Array, along: Array, steps: int) -> Array:
    """The derivative of (q, p) after so many steps along a displacement and a change of p; that of q as a velocity."""
    start = jnp.concatenate([jnp.zeros_like(p).ravel(), p.ravel()])
    (moved, _), (rate, force) = jax.jvp(_steps_taken(method, system, q, dt, steps), (start,), (along,))
    return jnp.concatenate([space_of(system).tangent(moved, rate).ravel(), force.ravel()])


@functools.partial(jit, static_argnames="steps")
def step_jacobian(method: Method, system: Stated, q: Array, p: Array, dt: Array, steps: int = 1) -> Array:
    """The derivative of (q, p) after so many steps with respect to (q, p) before, (2n, 2n); on a group trivialised,
    with displacements in place of changes of q."""
    column = lambda along: _moved_column(method, system, q, p, dt, along, steps)
    return jax.vmap(column, out_axes=1)(jnp.eye(2 * p.size, dtype=p.dtype))


_column = functools.partial(jit, static_argnames="steps")(_moved_column)


def _jacobian(method: Method, system: Stated, at: Point, dt: float, steps: int = 1) -> np.ndarray:
    """As `step_jacobian`, column by column: a program for one column compiles a fifth faster."""
    q, p, dt_ = (jnp.asarray(x, float) for x in (at.q, at.p, dt))
    units = np.eye(2 * p.size, dtype=p.dtype)
    columns = [_column(method, system, q, p, dt_, along, steps=steps) for along in units]
    return np.stack([np.asarray(column) for column in columns], axis=1)


@jit
def _conditions(system: Stated, q: Array, p: Array) -> Array:
    """The derivative of g(q) and G(q)M⁻¹p + ∂g/∂t by (q, p), (2m, 2n)."""
    mech, n = derive(system, q.shape), q.size

    def hidden(x: Array) -> Array:
        q_, p_ = x[:n].reshape(q.shape), x[n:].reshape(q.shape)
        return jnp.concatenate([mech.constraint(q_), mech.velocity_constraint(q_, mech.velocity_at(q_, p_))])

    return jax.jacrev(hidden)(jnp.concatenate([q.ravel(), p.ravel()]))


def _tangent(system: Stated, at: Point) -> np.ndarray:
    """A basis of the tangent space at (q, p): of phase space, or of the tangent bundle {g(q) = 0, G(q)M⁻¹p = 0}."""
    if system.constraint is None:
        return np.eye(2 * at.p.size)
    _, singular, rows = np.linalg.svd(_conditions(system, np.asarray(at.q), np.asarray(at.p)))
    rank = int(np.sum(singular > 1e-10 * singular[0]))
    return rows[rank:].T


def symplecticity(method: Method, system: Stated, at: Point, dt: float, rate: float = 0.0) -> float:
    """max |JᵀΩJ − exp(−rate·dt)Ω| on the tangent space, relative to max |J|², with J the derivative of one step.
    With the rate γ of a damping D = γM this is the defect of conformal symplecticity.

    In a magnetic field, where p = M v, Ω is the form that the exact motion preserves, with a part of B(q); on a group,
    where p is trivialised, it has a part of p.

    For a multistep method with k steps J is that of 2k steps, after which its history holds no starting values.
    """
    n, method = at.p.size, protocols.prepare(method, [(system, at.q)])
    steps = 1 if method.traits.steps <= 2 else 2 * method.traits.steps
    jacobian = _jacobian(method, system, at, dt, steps)
    before = after = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    if getattr(system, "magnetic_field", None) is not None:
        there = flow(method, system, at, dt, steps)
        before, after = (_magnetic_form(system, x, t) + before for x, t in ((at, 0.0), (there, steps * dt)))
    if not space_of(system).flat:
        before, after = (_group_form(system, x) + before for x in (at, flow(method, system, at, dt, steps)))
    basis = _tangent(system, at)
    moved, shrunk = jacobian @ basis, np.exp(-rate * dt * steps)
    defect = moved.T @ after @ moved - shrunk * (basis.T @ before @ basis)
    return float(np.max(np.abs(defect)) / max(1.0, np.max(np.abs(moved)) ** 2))


@jit
def _curl(system: Stated, q: Array, t: Array) -> Array:
    """∂(e v × B)/∂v, (n, n)."""
    mech = derive(system, q.shape, t)
    force = lambda v: mech.magnetic_force(q, v.reshape(q.shape)).ravel()
    return jax.jacfwd(force)(jnp.zeros(q.size, q.dtype))


def _magnetic_form(system: Stated, at: Point, t: float) -> np.ndarray:
    """The magnetic part of Ω, −e B·(dq × dq), (2n, 2n). With A the vector potential and p = M v the canonical form is

        Σ dqᵢ ∧ d(pᵢ + e Aᵢ) = Σ dqᵢ ∧ dpᵢ − ½ e Σ Fᵢⱼ dqᵢ ∧ dqⱼ,   Fᵢⱼ = ∂ᵢAⱼ − ∂ⱼAᵢ = Σ εᵢⱼₖBₖ,

    and F is the matrix of v × B."""
    n = at.q.size
    form = np.zeros((2 * n, 2 * n))
    form[:n, :n] = -np.asarray(_curl(system, jnp.asarray(at.q, float), jnp.asarray(t, float)))
    return form


def _group_form(system: Stated, at: Point) -> np.ndarray:
    """The part of Ω, (2n, 2n), in the trivialisation of a group: with the canonical one-form ⟨p, q⁻¹dq⟩

    Ω((ξ, α), (η, β)) = ⟨β, ξ⟩ − ⟨α, η⟩ + ⟨p, [ξ, η]⟩."""
    n, p = at.p.size, jnp.asarray(at.p)
    form = np.zeros((2 * n, 2 * n))
    rows = [space_of(system).coadjoint(jnp.asarray(e).reshape(p.shape), p).ravel() for e in np.eye(n)]
    form[:n, :n] = np.stack([np.asarray(row) for row in rows])
    return form


def volume(method: Method, system: Stated, at: Point, dt: float) -> float:
    """|det J − 1| of one step of a free system, relative to the largest product that the determinant sums up."""
    method = protocols.prepare(method, [(system, at.q)])
    jacobian = _jacobian(method, system, at, dt)
    return float(abs(np.linalg.det(jacobian) - 1) / max(1.0, np.max(np.abs(jacobian)) ** 2))


def symmetry(method: Method, system: Stated, at: Point, dt: float, n: int = 4) -> float:
    """|Φ(−dt)ⁿ Φ(dt)ⁿ − identity|, relative. A multistep method goes back over its own history. An event-driven one has
    no negative steps: its momenta are reversed instead."""
    if method.traits.event_driven:
        return reversibility(method, system, at, dt, n)
    stepper = _Stepper(method, system, at, dt)
    if method.traits.steps > 2:
        stepper.step(method.traits.steps)  # until its history holds no starting values
    start = stepper.at
    there = stepper.step(n).at
    return relative_difference(stepper.turn().step(n).at, start, there)


def reversibility(method: Method, system: Stated, at: Point, dt: float, n: int = 4) -> float:
    """|ρ Φⁿ ρ Φⁿ − identity| with ρ(q, p) = (q, −p), relative, each from a fresh start."""
    stepper = _Stepper(method, system, at, dt)
    start = stepper.at
    there = stepper.step(n).at
    back = flow(protocols.with_same_choices(method, stepper.carry), system, Point(there.q, -there.p), dt, n)
    return relative_difference(Point(back.q, -back.p), start, there)


def large_step(method: Method, system: Stated, at: Point, dt: float) -> float:
    """The largest of 8, 4, 2, 1 times dt at which a few steps stay finite and grow by less than 10. Small steps hide
    violations of structure below round-off."""
    for factor in (8, 4, 2):
        there = flow(method, system, at, factor * dt, 4)
        if system.takes("constraint", "t"):  # momenta may not be reversed
            if np.all(np.isfinite([*np.ravel(there.q), *np.ravel(there.p)])):
                return factor * dt
            continue
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
def long_run(
    method: Method, system: Stated, at: Point, dt: float, steps: int = 20_000, saves: int = 1000, engine: str = "auto"
) -> LongRun:
    """Energy, momentum maps and constraints over many steps, with compensated sums: a drift is not due to rounding."""
    every = max(1, steps // saves)
    grid = {"dt": dt, "t_end": every * saves * dt, "save_every": every}
    run = simulate(system, at.q, p0=at.p, method=method, compensated=True, engine=engine, **grid)
    error = np.asarray(run.energy_error)
    slope, level = np.polyfit(run.t, error, 1)
    around = error - (slope * run.t + level)
    band = float(np.max(around) - np.min(around))
    # Round-off alone makes a random walk; a drift below its size is not significant.
    walk = 10 * np.finfo(float).eps * np.max(np.abs(run.energy)) * np.sqrt(every * saves)
    worst = lambda x: float(np.max(np.abs(x), initial=0.0))
    tangency = worst(run.columns["velocity_residual"]) if system.constraint is not None else 0.0
    return LongRun(
        float(slope),
        band,
        abs(slope) * run.t[-1] / max(band, walk),
        momentum_deviation(run, at),
        worst(run.constraint_residual),
        tangency,
        run,
        excess(run),
    )


def momentum_deviation(run: Trajectory, at: Point) -> dict[str, float]:
    """The largest deviation of each momentum map along a run from `at`, relative to Σ|p||ξ|."""
    size = max(1e-300, float(np.sum(np.abs(at.p)) * max(1.0, np.max(np.abs(run.q)))))
    maps = run.momentum_maps.items()
    return {name: float(np.max(np.abs(values - values[0])) / size) for name, values in maps}


# --- forces that do work ----------------------------------------------------------------------------------------------
class Balance(NamedTuple):
    order: float  # of |H − H(0) − W| in the step; NaN where it is rounding
    error: float  # the largest, with the step dt, relative to the energy that is exchanged


@jit
def _power(system: Stated, q: Array, p: Array, t: Array) -> Array:
    """f·v − v·D v + ∂H/∂t + λᵀ∂g/∂t at saved points."""

    def at(q: Array, p: Array, t: Array) -> Array:
        mech = derive(system, q.shape, t)
        v = mech.velocity_at(q, p)
        power = jnp.sum(mech.nonconservative_force(q, v) * v) + mech.energy_time_rate(q, v)
        return power + jnp.sum(mech.multipliers(q, v) * mech.constraint_time_rate(q)) if mech.moving else power

    return jax.vmap(at)(q, p, t)


@unwatched()
def balance(method: Method, system: Stated, at: Point, dt: float, steps: int = 400) -> Balance:
    """The energy less the work of drive and forces along the computed motion, W = ∫ f·v + ∂H/∂t + … dt. The
    integral is that of a spline of degree 7 through the values at all steps, independent of what the method counts as
    work."""
    errors, exchanged = [], 0.0
    for k in (1, 2, 4):
        run = simulate(system, at.q, p0=at.p, method=method, dt=dt / k, t_end=steps * dt, compensated=True)
        power = np.asarray(_power(system, run.q, run.p, run.t))
        from scipy.interpolate import make_interp_spline

        work = make_interp_spline(run.t, power, k=7).antiderivative()(run.t)
        exchanged = max(exchanged, float(np.max(np.abs(work - work[0]))), float(np.max(np.abs(run.energy_error))))
        errors.append(float(np.max(np.abs(run.energy_error - (work - work[0]))[::k])))
    relative = np.array(errors) / max(exchanged, 1e-300)
    above = relative > 1e-12  # rounding, and that of the spline
    slope = (
        np.polyfit(-np.log(np.array([1, 2, 4])[above]), np.log(relative[above]), 1)[0] if above.sum() > 1 else np.nan
    )
    return Balance(float(slope), float(relative[0]))
