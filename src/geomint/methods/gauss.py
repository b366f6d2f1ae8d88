"""Gauss collocation: symplectic, symmetric implicit Runge–Kutta methods of order 2s, and the implicit midpoint rule.

For M q̈ = f(q) the stages are positions alone: with v = M⁻¹p and Â = A²,

    Q_i = q + c_i h v + h² Σ_j Â_ij M⁻¹f(Q_j),   p' = p + h Σ_i b_i f(Q_i),   q' = q + h v + h² Σ_j (bᵀA)_j M⁻¹f(Q_j).

For driven systems the force is F(Q_i, V_i, t + c_i h) with V_i = v + h Σ_j a_ij M⁻¹F_j, and the work is
h Σ_i b_i (f·V_i − V_i·D V_i + ∂U/∂t). Damping is a force like any other: the order is kept, and the step is not
conformally symplectic.

Reference: Hairer, Lubich, Wanner, sections II.1.3 and VI.4.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.compensated import value
from ..numerics.linalg import KINDS, Plan, Solution, fixed_point, newton
from ..numerics.linalg.discovery import not_covered, plan_for
from ..system.checks import one_of
from ..system.mechanics import Mechanics
from .base import ALL, Carry, State, Traits, register, setting
from .driven import with_work
from .implicit import solved_by_plan, stiffness_product
from .protocols import CanFail, FindsStructure

DENSE_LIMIT = (
    200  # unknowns up to which Newton's matrix is formed; beyond it the stages are found by fixed-point iteration
)


@functools.cache
def tableau(stages: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(A, b, c) of the Gauss method, from the Legendre nodes; the order and symplecticity conditions are asserted."""
    nodes, weights = np.polynomial.legendre.leggauss(stages)
    c, b = (nodes + 1) / 2, weights / 2
    powers = np.arange(1, stages + 1)
    vandermonde = c[:, None] ** (powers - 1)
    a = (c[:, None] ** powers / powers) @ np.linalg.inv(vandermonde)
    assert np.allclose(b @ c[:, None] ** np.arange(2 * stages), 1 / np.arange(1, 2 * stages + 1), rtol=0, atol=1e-15)
    defect = b[:, None] * a + (b[:, None] * a).T - np.outer(b, b)
    a = a - defect / (2 * b[:, None])  # symplectic to the last bit that rounding leaves
    assert np.max(np.abs(defect)) < 1e-14
    return a, b, c


class GaussCarry(NamedTuple):
    """What Gauss carries."""

    q: Any
    p: Any
    status: Any
    work: Any = None  # of driven systems


@register({"stages": 1}, {"stages": 2}, {"stages": 3}, {"stages": 4})
class Gauss(FindsStructure, CanFail):
    """Gauss collocation with 1 to 4 stages, order 2·stages.

    The stages are solved to round-off: by Newton's method with a dense matrix for up to 200 unknowns. Beyond, one stage
    without forces that do work is solved by Newton's method with the structure of M + (h²/4) Hess U (a band, blocks,
    or conjugate gradients: `run.solver`); all others by fixed-point iteration, which converges only for h²‖M⁻¹U''‖ of
    order one.

    solver:  "auto"; "blocks", "banded", "dense", "matrix-free" override what is found, "fixed-point" is that iteration
             beyond 200 unknowns, faster where the system is not stiff
    """

    stages: int = setting(one_of(1, 2, 3, 4), 2)
    solver: str = setting(one_of(*KINDS, "fixed-point"), "auto", kw_only=True)
    plan: Plan | None = eqx.field(static=True, default=None, kw_only=True, metadata={"found": True})
    failures = {
        1: "the equations of the implicit stages were not solved: the iteration did not converge. Try a smaller dt"
    }

    @property
    def traits(self) -> Traits:
        return Traits(
            2 * self.stages,
            symplectic=True,
            symmetric=True,
            reversible=True,
            energy="bounded",
            momentum_maps="all",
            takes=ALL,
        )

    def prepare(self, starts: Sequence[tuple[Any, Any]]) -> Gauss:
        system, q = starts[0]
        small = np.size(q) <= DENSE_LIMIT and self.solver == "auto"
        if self.plan is not None or small or self.stages > 1 or system.driven or self.solver == "fixed-point":
            return self
        return dataclasses.replace(self, plan=plan_for(stiffness_product, starts, np.size(q), self.solver))

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        return not_covered(stiffness_product, self.plan, system, q, own_params)

    @property
    def linear_solver(self) -> str | None:
        return None if self.plan is None else self.plan.description

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        work = jnp.zeros((), value(state.q).dtype) if mech.driven else None
        return GaussCarry(state.q, state.p, jnp.zeros((), int), work)

    def step(self, mech: Mechanics, carry: GaussCarry, dt: Array) -> GaussCarry:
        if mech.driven:
            return self._driven_step(mech, carry, dt)
        q, p, status, _ = carry
        a, b, c = (jnp.asarray(x, value(q).dtype) for x in tableau(self.stages))
        v = mech.velocity(p)
        along = lambda weights, x: jnp.tensordot(weights, x, axes=1)
        straight = value(q) + jnp.multiply.outer(c * dt, v)
        acceleration = jax.vmap(lambda position: mech.velocity(mech.force(position)))
        # Unknown: Z_i = Q_i − q − c_i h v
        residual = lambda z: z - dt**2 * along(a @ a, acceleration(straight + z))
        start = jnp.multiply.outer(0.5 * (c * dt) ** 2, mech.velocity(mech.force(q)))
        scale = jnp.max(jnp.abs(straight))
        if self.plan is not None and self.stages == 1:
            z, converged = self._midpoint(mech, self.plan, straight[0], start[0], dt)
        else:
            z, converged = (newton if start.size <= DENSE_LIMIT else fixed_point)(residual, start, scale)
        forces = jax.vmap(mech.force)(straight + z)
        accelerations = jax.vmap(mech.velocity)(forces)
        p = p + dt * along(b, forces)
        q = q + (dt * v + dt**2 * along(b @ a, accelerations))
        return GaussCarry(q, p, jnp.where(converged, status, 1))

    def _midpoint(self, mech: Mechanics, plan: Plan, straight: Array, start: Array, dt: Array) -> Solution:
        """Z of one stage, M Z = (h²/4) f(Q): Newton's matrix is M + (h²/4) Hess U, symmetric."""
        residual = lambda z: mech.momentum(z) - 0.25 * dt**2 * mech.force(straight + z)
        z, converged = solved_by_plan(mech, plan, residual, start, straight)
        return Solution(z[None], converged)

    def _driven_step(self, mech: Mechanics, carry: GaussCarry, dt: Array) -> GaussCarry:
        q, p = value(carry.q), value(carry.p)
        a, b, c = (jnp.asarray(x, q.dtype) for x in tableau(self.stages))
        v, along = mech.velocity(p), lambda weights, x: jnp.tensordot(weights, x, axes=1)
        straight = q + jnp.multiply.outer(c * dt, v)
        total_force = jax.vmap(lambda x, y, s: mech.after(s).total_force(x, y))

        def stages(moved: Array) -> tuple[Array, Array, Array]:
            """Q_i, V_i and F_i, for the unknown h²M⁻¹F_i."""
            positions, velocities = straight + along(a @ a, moved), v + along(a, moved) / dt
            return positions, velocities, total_force(positions, velocities, c * dt)

        start = jnp.broadcast_to(dt**2 * mech.velocity(mech.total_force(q, v)), straight.shape)
        residual = lambda moved: moved - dt**2 * jax.vmap(mech.velocity)(stages(moved)[2])
        solver = newton if start.size <= DENSE_LIMIT else fixed_point
        moved, converged = solver(residual, start, jnp.max(jnp.abs(straight)))
        positions, velocities, forces = stages(moved)

        def power(x: Array, y: Array, s: Array) -> Array:
            here = mech.after(s)
            return jnp.sum(here.nonconservative_force(x, y) * y) + here.energy_time_rate(x)

        work = carry.work + dt * jnp.sum(b * jax.vmap(power)(positions, velocities, c * dt))
        q = carry.q + (dt * v + along(b @ a, moved))
        p = carry.p + dt * along(b, forces)
        return GaussCarry(q, p, jnp.where(converged, carry.status, 1), work)

    def output(self, mech: Mechanics, carry: GaussCarry) -> State:
        state = State(carry.q, carry.p)
        return with_work(state, carry.work) if mech.driven else state

    def status(self, carry: GaussCarry) -> Array:
        return carry.status


@register()
class ImplicitMidpoint(Gauss):
    """q' = q + hM⁻¹(p + p')/2, p' = p + h f((q + q')/2): the one-stage Gauss method, order 2, stable for every hω."""

    stages: int = eqx.field(static=True, default=1, init=False)
