"""Variational integrators from any Lagrangian, by automatic differentiation of a discrete action.

On a step the motion is a polynomial of degree s through control points X_0 = q, X_1, …, X_s = q', and the action is a
quadrature of it:

    S_d(X) = h Σ_i w_i L(Q(c_i), Q̇(c_i)),      Q(c) = Σ_j φ_j(c) X_j.

The discrete Euler–Lagrange equations and Legendre transforms are its gradient, with the discrete Lagrange–d'Alembert
terms of forces f(q, v, t), F_j = h Σ_i w_i φ_j(c_i) f(Q_i, Q̇_i, t_i):

    p + ∂S/∂X_0 + F_0 = 0,    ∂S/∂X_j + F_j = 0  (0 < j < s),    p' = ∂S/∂X_s + F_s.

Midpoint and trapezoid are degree 1 with one Gauss point or two Lobatto points; `galerkin` of degree s takes s Gauss
points and has order 2s. On a constant mass the trapezoid is Verlet and the midpoint the implicit midpoint rule.

References: Marsden, West, Acta Numerica 10 (2001) 357; Ober-Blöbaum, Saake, Adv. Comput. Math. 41 (2015) 955.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.compensated import Compensated, value
from ..numerics.linalg import newton
from ..numerics.linalg.newton import newton_within
from ..system.checks import bounded, one_of, whole
from ..system.lagrangian import LagrangianMechanics
from .base import Carry, State, Traits, register, setting
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


def _is_forced(mech: Any) -> bool:
    return isinstance(mech, LagrangianMechanics) and mech.system.force is not None


class VariationalCarry(NamedTuple):
    """The carry: the state, the control points of the last step (for the next guess), the velocity at its end where
    it has to be found from p by iteration (for the first guess of that), the clock, work done, status."""

    q: Any
    p: Any
    controls: Array
    velocity_guess: Array | None
    t: Compensated  # a sum of steps that may differ in length (compositions), so its rounding is carried along
    work: Array
    status: Array


@register(
    {"quadrature": "midpoint"},
    {"quadrature": "trapezoid"},
    {"quadrature": "galerkin", "degree": 2},
    {"quadrature": "galerkin", "degree": 3},
)
class Variational(FindsStructure, CanFail, DependsOnStepLength):
    """A variational integrator of a Lagrangian system, or of a System through L = ½vᵀMv − U.

    quadrature:  "midpoint", "trapezoid" (order 2) or "galerkin" with degree 1 to 5 (order 2·degree).
    With forces the work they do is kept as `run.work`; the energy balance is measured, not conserved.
    """

    quadrature: str = setting(one_of(*QUADRATURES), "midpoint")
    degree: int = setting(bounded(whole, least=1, most=5), 1)
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
            needs=("hessian",),
            lagrangian=True,
        )

    def prepare(self, starts: Sequence[tuple[Any, Any]]) -> Variational:
        q = starts[0][1]
        if np.size(q) * self.degree > DENSE_LIMIT:
            raise InputError(
                f"{self.name} forms a dense matrix of {np.size(q) * self.degree} unknowns, above {DENSE_LIMIT}; "
                "for large systems of constant mass use Verlet, ZhangSkeel or Gauss."
            )
        return self

    def init(self, mech: Any, state: State, dt: Array) -> Carry:
        r = rule(self.quadrature, self.degree)
        q, v = value(state.q), mech.velocity_at(state.q, state.p, state.velocity_guess)
        behind = q + jnp.multiply.outer((r.controls - 1) * dt, v)
        zero = jnp.zeros((), q.dtype)
        iterated = isinstance(mech, LagrangianMechanics) and not mech.quadratic_in_velocity(q)
        velocity_guess = jax.lax.stop_gradient(v) if iterated else None
        clock = Compensated.of(jnp.asarray(state.t, q.dtype))
        return VariationalCarry(state.q, state.p, behind, velocity_guess, clock, zero, jnp.zeros((), int))

    def rescale(self, mech: Any, carry: VariationalCarry, dt: Array) -> VariationalCarry:
        fresh = self.init(mech, State(carry.q, carry.p, carry.t.value, velocity_guess=carry.velocity_guess), dt)
        return carry._replace(controls=fresh.controls, velocity_guess=fresh.velocity_guess)

    def step(self, mech: Any, carry: VariationalCarry, dt: Array) -> VariationalCarry:
        r = rule(self.quadrature, self.degree)
        q, p = value(carry.q), value(carry.p)
        along = lambda matrix, x: jnp.tensordot(jnp.asarray(matrix, q.dtype), x, axes=1)
        times = carry.t.value + jnp.asarray(r.nodes, q.dtype) * dt
        weights = dt * jnp.asarray(r.weights, q.dtype).reshape(-1, *(1,) * q.ndim)
        forced = _is_forced(mech)

        def on_nodes(rest: Array) -> tuple[Array, Array, Array]:
            """h w_i (∂L/∂q + f), h w_i ∂L/∂v and Q̇_i at the nodes, for X_j = q + rest_j: sums of small numbers, no
            cancellation."""
            positions, velocities = q + along(r.values[:, 1:], rest), along(r.slopes[:, 1:], rest) / dt
            by_q, by_v = jax.vmap(jax.grad(mech.lagrangian, argnums=(0, 1)))(positions, velocities)
            if forced:
                by_q = by_q + jax.vmap(mech.outer_force)(positions, velocities, times)
            return weights * by_q, weights * by_v, velocities

        def residual(rest: Array) -> Array:
            """p + ∂S/∂X_0 + F_0 and ∂S/∂X_j + F_j for the inner points."""
            by_q, by_v, _ = on_nodes(rest)
            gradient = along(r.values[:, :-1].T, by_q) + along(r.slopes[:, :-1].T, by_v) / dt
            return gradient.at[0].add(p)

        guess = along(r.ahead, carry.controls)[1:] - q
        scale = jnp.max(jnp.abs(guess)) + 1e-4 * jnp.max(jnp.abs(q))
        velocity_guess = carry.velocity_guess
        if velocity_guess is None:
            rest, converged = newton(residual, guess, scale)
        else:  # L may be undefined at the extrapolated guess; it is defined for the last velocity
            straight = jnp.multiply.outer(jnp.asarray(r.controls[1:], q.dtype) * dt, velocity_guess)
            rest, converged = newton_within(residual, guess, straight, scale)
            velocity_guess = jax.lax.stop_gradient(along(r.last[None, 1:], rest)[0] / dt)
        by_q, _, velocities = on_nodes(rest)
        work = carry.work
        if forced:
            work = work + jnp.sum(
                weights * jax.vmap(mech.outer_force)(q + along(r.values[:, 1:], rest), velocities, times) * velocities
            )
        # The equations add up to p' − p = h Σ w_i (∂L/∂q + f): an increment, since Σ_j φ_j = 1.
        controls = jnp.concatenate([q[None], q + rest])
        status = jnp.where(converged, carry.status, 1)
        return VariationalCarry(
            carry.q + rest[-1], carry.p + jnp.sum(by_q, axis=0), controls, velocity_guess, carry.t + dt, work, status
        )

    def output(self, mech: Any, carry: VariationalCarry) -> State:
        return State(
            carry.q,
            carry.p,
            extras={"work": carry.work} if _is_forced(mech) else {},
            velocity_guess=carry.velocity_guess,
        )

    def status(self, carry: VariationalCarry) -> Array:
        return carry.status
