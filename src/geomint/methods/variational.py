"""Variational integrators from any Lagrangian, by automatic differentiation of a discrete action.

On a step the motion is a polynomial of degree s through control points X_0 = q, X_1, …, X_s = q', and the action is a
quadrature of it:

    S_d(X) = h Σ_i w_i L(Q(c_i), Q̇(c_i)),      Q(c) = Σ_j φ_j(c) X_j.

The discrete Euler–Lagrange equations and Legendre transforms are its gradient, with the discrete Lagrange–d'Alembert
terms of forces f(q, v, t), F_j = h Σ_i w_i φ_j(c_i) f(Q_i, Q̇_i, t_i):

    p + ∂S/∂X_0 + F_0 = 0,    ∂S/∂X_j + F_j = 0  (0 < j < s),    p' = ∂S/∂X_s + F_s.

Midpoint and trapezoid are degree 1 with one Gauss point or two Lobatto points; `galerkin` of degree s takes s Gauss
points and has order 2s. On a constant mass the trapezoid is Verlet and the midpoint the implicit midpoint rule.

A constraint g(q, t) = 0 is added to the action at the ends of the steps, with multipliers μ (degree 1 only, order 2):

    p + ∂S/∂X_0 + F_0 = G(q)ᵀμ,    g(q') = 0,
    p' = ∂S/∂X_1 + F_1 − G(q')ᵀν = ∂L/∂v(q', v'),    G(q') v' + ∂g/∂t = 0.

On a constant mass the trapezoid is then Rattle. L may depend on the time; the work of the drive is
W = ∫ f·v − ∂L/∂t + λᵀ∂g/∂t by the same quadrature.

References: Marsden, West, Acta Numerica 10 (2001) 357, sections 3.2 and 3.4 to 3.5; Ober-Blöbaum, Saake, Adv. Comput.
Math. 41 (2015) 955; Leyendecker, Marsden, Ortiz, Z. Angew. Math. Mech. 88 (2008) 677.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.compensated import value
from ..numerics.linalg import KINDS, Plan, newton
from ..numerics.linalg.discovery import not_covered, plan_for
from ..numerics.linalg.newton import newton_within
from ..system.checks import bounded, one_of, whole
from ..system.lagrangian import LagrangianMechanics, derive
from ..system.system import System
from .base import ALL, Carry, State, Traits, register, setting
from .driven import with_work
from .implicit import solved_by_plan, stiffness_product
from .protocols import CanFail, DependsOnStepLength, FindsStructure

QUADRATURES = ("midpoint", "trapezoid", "galerkin")
DENSE_LIMIT = 600


class Rule(NamedTuple):
    nodes: np.ndarray  # c_i
    weights: np.ndarray
    values: np.ndarray  # φ_j(c_i)
    slopes: np.ndarray  # φ_j'(c_i)
    last: np.ndarray  # φ_j'(1)
    ahead: np.ndarray  # φ_k(1 + d_j): the polynomial of the last step, continued over the next
    controls: np.ndarray  # d_j, the times of the control points


@functools.cache
def rule(quadrature: str, degree: int) -> Rule:
    """Nodes, weights and the Lagrange basis on Chebyshev–Lobatto control points."""
    if quadrature == "trapezoid":
        nodes, weights = np.array([0.0, 1.0]), np.array([0.5, 0.5])
    else:
        x, w = np.polynomial.legendre.leggauss(degree)
        nodes, weights = (x + 1) / 2, w / 2
    controls = (1 - np.cos(np.pi * np.arange(degree + 1) / degree)) / 2
    powers = np.arange(degree + 1)
    inverse = np.linalg.inv(controls[:, None] ** powers)
    at = lambda c: (np.asarray(c)[:, None] ** powers) @ inverse
    slope = lambda c: (powers * np.asarray(c)[:, None] ** np.maximum(powers - 1, 0)) @ inverse
    values, slopes = at(nodes), slope(nodes)
    assert np.allclose(values.sum(1), 1, atol=1e-13)
    assert np.allclose(slopes.sum(1), 0, atol=1e-12)
    return Rule(nodes, weights, values, slopes, slope([1.0])[0], at(1 + controls), controls)


class VariationalCarry(NamedTuple):
    """What Variational carries."""

    q: Any
    p: Any
    controls: Array  # the control points of the last step, for the next guess
    velocity_guess: Array | None  # at its end, where it has to be found from p by iteration
    work: Array
    status: Array
    impulse: Array | None = None  # μ of the last step per unit of time, of constrained systems


class _Nodes(NamedTuple):
    """At the nodes of the quadrature."""

    by_q: Array  # h w_i (∂L/∂q + f)
    by_v: Array  # h w_i ∂L/∂v
    positions: Array
    velocities: Array


@register(
    {"quadrature": "midpoint"},
    {"quadrature": "trapezoid"},
    {"quadrature": "galerkin", "degree": 2},
    {"quadrature": "galerkin", "degree": 3},
)
class Variational(FindsStructure, CanFail, DependsOnStepLength):
    """A variational integrator of a Lagrangian system, or of a System through L = ½vᵀMv − U.

    quadrature:  "midpoint", "trapezoid" (order 2) or "galerkin" with degree 1 to 5 (order 2·degree).
    With forces the work they do is kept as `run.work`; the energy balance is measured, not conserved. Constrained
    systems need degree 1; Composition raises the order.
    solver:      how the equations of more than 600 unknowns are solved, where the degree is 1, the mass constant, and
                 there is neither a constraint nor a force: "auto", or "blocks", "banded", "dense", "matrix-free".
    """

    quadrature: str = setting(one_of(*QUADRATURES), "midpoint")
    degree: int = setting(bounded(whole, least=1, most=5), 1)
    solver: str = setting(one_of(*KINDS), "auto", kw_only=True)
    plan: Plan | None = eqx.field(static=True, default=None, kw_only=True, metadata={"found": True})
    failures: ClassVar[Mapping[int, str]] = {
        1: "the discrete Euler–Lagrange equations were not solved: Newton's method did not converge. Try a smaller dt"
    }

    def check_settings(self) -> None:
        if self.quadrature != "galerkin" and self.degree != 1:
            raise InputError(
                f"Variational(quadrature={self.quadrature!r}, degree={self.degree}): only galerkin takes a degree."
            )

    @property
    def traits(self) -> Traits:
        return Traits(
            2 * self.degree,
            symplectic=True,
            symmetric=True,
            reversible=True,
            energy="bounded",
            momentum_maps="all",
            constrained=self.degree == 1,
            needs=("hessian",),
            lagrangian=True,
            takes=ALL,
        )

    def prepare(self, starts: Sequence[tuple[Any, Any]]) -> Variational:
        system, q = starts[0]
        m = 0 if system.constraint is None else jax.eval_shape(derive(system, np.shape(q)).constraint, q).size
        unknowns = np.size(q) * self.degree + m
        simple = isinstance(system, System) and self.degree == 1 and not m and not system.driven
        if simple and (unknowns > DENSE_LIMIT or self.solver != "auto"):
            return dataclasses.replace(self, plan=plan_for(stiffness_product, starts, unknowns, self.solver))
        if unknowns > DENSE_LIMIT:
            other = "Rattle" if m else "Verlet, ZhangSkeel or Gauss"
            raise InputError(
                f"{self.name} forms a dense matrix of {unknowns} unknowns, above {DENSE_LIMIT}; "
                f"for large systems of constant mass use {other}."
            )
        return self

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        return not_covered(stiffness_product, self.plan, system, q, own_params)

    @property
    def linear_solver(self) -> str | None:
        return None if self.plan is None else self.plan.description

    def init(self, mech: Any, state: State, dt: Array) -> Carry:
        r = rule(self.quadrature, self.degree)
        q, v = value(state.q), mech.velocity_at(state.q, state.p, state.velocity_guess)
        behind = q + jnp.multiply.outer((r.controls - 1) * dt, v)
        zero = jnp.zeros((), q.dtype)
        iterated = isinstance(mech, LagrangianMechanics) and not mech.quadratic_in_velocity(q)
        velocity_guess = jax.lax.stop_gradient(v) if iterated else None
        impulse = None if mech.system.constraint is None else 0.5 * mech.multipliers(q, v)
        return VariationalCarry(state.q, state.p, behind, velocity_guess, zero, jnp.zeros((), int), impulse)

    def rescale(self, mech: Any, carry: VariationalCarry, dt: Array) -> VariationalCarry:
        fresh = self.init(mech, State(carry.q, carry.p, velocity_guess=carry.velocity_guess), dt)
        return carry._replace(controls=fresh.controls, velocity_guess=fresh.velocity_guess)

    def _along(self, matrix: Any, x: Array) -> Array:
        return jnp.tensordot(jnp.asarray(matrix, x.dtype), x, axes=1)

    def _nodes(self, mech: Any, q: Array, rest: Array, dt: Array) -> _Nodes:
        """The nodes for X_j = q + rest_j: sums of small numbers, no cancellation."""
        r = rule(self.quadrature, self.degree)
        weights = dt * jnp.asarray(r.weights, q.dtype).reshape(-1, *(1,) * q.ndim)
        since = jnp.asarray(r.nodes, q.dtype) * dt
        positions, velocities = q + self._along(r.values[:, 1:], rest), self._along(r.slopes[:, 1:], rest) / dt
        derivatives = lambda x, y, s: jax.grad(mech.after(s).lagrangian, argnums=(0, 1))(x, y)
        by_q, by_v = jax.vmap(derivatives)(positions, velocities, since)
        if mech.driven:
            push = lambda x, y, s: mech.after(s).nonconservative_force(x, y)
            by_q = by_q + jax.vmap(push)(positions, velocities, since)
        return _Nodes(weights * by_q, weights * by_v, positions, velocities)

    def _work(self, mech: Any, at: _Nodes, dt: Array) -> Array:
        """h Σ_i w_i (f·v − ∂L/∂t)."""
        r = rule(self.quadrature, self.degree)

        def power(x: Array, y: Array, s: Array) -> Array:
            here = mech.after(s)
            return jnp.sum(here.nonconservative_force(x, y) * y) + here.energy_time_rate(x, y)

        each = jax.vmap(power)(at.positions, at.velocities, jnp.asarray(r.nodes, dt.dtype) * dt)
        return dt * jnp.sum(jnp.asarray(r.weights, dt.dtype) * each)

    def step(self, mech: Any, carry: VariationalCarry, dt: Array) -> VariationalCarry:
        r = rule(self.quadrature, self.degree)
        q, p, m = value(carry.q), value(carry.p), 0 if carry.impulse is None else carry.impulse.size
        end, along, shape = mech.after(dt), self._along, (self.degree, *value(carry.q).shape)

        def residual(rest: Array) -> Array:
            """p + ∂S/∂X_0 + F_0 and ∂S/∂X_j + F_j for the inner points."""
            at = self._nodes(mech, q, rest, dt)
            gradient = along(r.values[:, :-1].T, at.by_q) + along(r.slopes[:, :-1].T, at.by_v) / dt
            return gradient.at[0].add(p)

        def constrained(unknown: Array) -> Array:
            """The same with − G(q)ᵀμ, and g(q')."""
            rest, impulse = unknown[:-m].reshape(shape), unknown[-m:]
            balance = residual(rest).at[0].add(-mech.constraint_force(q, impulse))
            return jnp.concatenate([balance.ravel(), end.constraint(q + rest[-1])])

        guess = along(r.ahead, carry.controls)[1:] - q
        scale = jnp.max(jnp.abs(guess)) + 1e-4 * jnp.max(jnp.abs(q))
        if carry.impulse is not None:  # q and its change may both vanish, as at a start from rest
            scale = scale + dt**2 * jnp.max(jnp.abs(mech.acceleration(q, guess[-1] / dt)))
        whole = lambda rest, impulse: jnp.concatenate([rest.ravel(), impulse])
        velocity_guess = carry.velocity_guess
        start = guess if carry.impulse is None else whole(guess, dt * carry.impulse)
        equations = residual if carry.impulse is None else constrained
        if self.plan is not None:  # minus h times the equations: Newton's matrix is M + c·Hess U
            one = lambda move: -dt * residual(move[None])[0]
            move, converged = solved_by_plan(mech, self.plan, one, guess[0], q, scale)
            found = move[None]
        elif velocity_guess is None:
            moves = {} if carry.impulse is None else {"measured": lambda _, change: change[:-m]}
            found, converged = newton(equations, start, scale, **moves)
        else:  # L may be undefined at the extrapolated guess; it is defined for the last velocity
            straight = jnp.multiply.outer(jnp.asarray(r.controls[1:], q.dtype) * dt, velocity_guess)
            safe = straight if carry.impulse is None else whole(straight, dt * carry.impulse)
            found, converged = newton_within(equations, start, safe, scale)
        rest = found if carry.impulse is None else found[:-m].reshape(shape)
        if velocity_guess is not None:
            velocity_guess = jax.lax.stop_gradient(along(r.last[None, 1:], rest)[0] / dt)
        at = self._nodes(mech, q, rest, dt)
        work = carry.work + self._work(mech, at, dt) if mech.driven else carry.work
        # The equations add up to p' − p = h Σ w_i (∂L/∂q + f): an increment, since Σ_j φ_j = 1.
        controls = jnp.concatenate([q[None], q + rest])
        moved = VariationalCarry(
            carry.q + rest[-1],
            carry.p + jnp.sum(at.by_q, axis=0),
            controls,
            velocity_guess,
            work,
            jnp.where(converged, carry.status, 1),
        )
        return moved if carry.impulse is None else self._on_manifold(mech, q, found[-m:], moved, dt)

    def _on_manifold(self, mech: Any, q: Array, impulse: Array, moved: VariationalCarry, dt: Array) -> VariationalCarry:
        """With − G(q)ᵀμ, and p' projected: Newton's method for v' and ν, from the velocity of the polynomial."""
        there, end, m, r = value(moved.q), mech.after(dt), impulse.size, rule(self.quadrature, self.degree)
        p = moved.p - mech.constraint_force(q, impulse)
        v = self._along(r.last[None], moved.controls)[0] / dt

        def equations(unknown: Array) -> Array:
            v, normal = unknown[:-m].reshape(there.shape), unknown[-m:]
            surplus = end.momentum_at(there, v) + end.constraint_force(there, normal) - value(p)
            return jnp.concatenate([surplus.ravel(), end.velocity_constraint(there, v)])

        start = jnp.concatenate([v.ravel(), jnp.zeros_like(impulse)])
        scale = jnp.max(jnp.abs(v)) + jnp.max(jnp.abs(moved.controls[-1] - q)) / jnp.abs(dt)
        found, converged = newton(equations, start, scale, measured=lambda _, change: change[:-m])
        normal = found[-m:]
        work = moved.work
        if mech.moving:
            work = work + jnp.sum(impulse * mech.constraint_time_rate(q))
            work = work + jnp.sum(normal * end.constraint_time_rate(there))
        status = jnp.where(converged, moved.status, 1)
        p = p - end.constraint_force(there, normal)
        return moved._replace(p=p, work=work, status=status, impulse=impulse / dt)

    def output(self, mech: Any, carry: VariationalCarry) -> State:
        state = State(carry.q, carry.p, velocity_guess=carry.velocity_guess)
        if carry.impulse is not None:
            v = mech.velocity_at(carry.q, carry.p, carry.velocity_guess)
            state = dataclasses.replace(state, extras={"multipliers": mech.multipliers(value(carry.q), v)})
        return with_work(state, carry.work) if mech.driven else state

    def status(self, carry: VariationalCarry) -> Array:
        return carry.status
