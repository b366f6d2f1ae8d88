"""Lobatto IIIA–IIIB pairs: partitioned Runge–Kutta methods that stay on the constraint manifold, of order 2s − 2.

    Q_i = q₀ + h Σ_j a_ij M⁻¹P_j,      P_i = p₀ + h Σ_j â_ij F_j,      F_j = f(Q_j) − G(Q_j)ᵀΛ_j,      g(Q_i) = 0,
    q₁ = Q_s,      p₁ = p₀ + h Σ_i b_i F_i,      G(q₁) M⁻¹p₁ = 0.

IIIA has Q₁ = q₀ and IIIB has no column s, so that Λ₁ … Λ_{s−1} put Q₂ … Q_s on the manifold and Λ_s makes p₁ tangent.
A moving constraint is g(Q_i, t + c_i h) = 0 and G(q₁) M⁻¹p₁ + ∂g/∂t = 0; forces may depend on (q, t), and the work is
h Σ_i b_i (f·V_i + ∂U/∂t + Λ_iᵀ∂g/∂t).

Symplectic on the manifold, symmetric; for s = 2 this is Rattle. Implicit: one nonlinear system in Q₂ … Q_s and Λ₁ …
Λ_{s−1} a step.

References: Jay, SIAM J. Numer. Anal. 33 (1996) 368; Hairer, Lubich, Wanner, sections II.1.4 and VII.1.4.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..manifold import ConstraintSolver
from ..numerics.compensated import value
from ..numerics.linalg import newton
from ..numerics.linalg.newton import dense_solve, least_squares_solve
from ..numerics.module import Module
from ..system.checks import one_of
from ..system.mechanics import Mechanics
from .base import Carry, State, Traits, register, setting
from .constrained import NOT_SOLVED, Constrained
from .driven import with_work

LIMIT = 600  # unknowns of the dense Newton iteration


@functools.cache
def lobatto(stages: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(a, â, b): IIIA by collocation at the Lobatto nodes, and the IIIB that makes the pair symplectic, b_i â_ij +
    b_j a_ji = b_i b_j."""
    inner = {2: [], 3: [0.5], 4: [0.5 - 5**0.5 / 10, 0.5 + 5**0.5 / 10]}[stages]
    nodes = np.array([0.0, *inner, 1.0])
    powers = np.arange(1, stages + 1)
    vandermonde = nodes[:, None] ** (powers - 1)
    # Row i integrates 1, x, …, x^{s−1} from 0 to c_i exactly.
    a = np.linalg.solve(vandermonde.T, (nodes[:, None] ** powers / powers).T).T
    b = a[-1]
    return a, b[None, :] * (1 - a.T / b[:, None]), b


def _force(mech: Mechanics, q: Array) -> Array:
    """−∇U + f(q, t)."""
    force = mech.force(q)
    return force if mech.system.force is None else force + mech.outer_force(q, jnp.zeros_like(q))


def _powers(mech: Mechanics, positions: Array, momenta: Array, multipliers: Array, since: Array) -> Array:
    """f·v + ∂U/∂t + λᵀ∂g/∂t at the stages, with Λ_s = 0: the last projection does its own work."""

    def power(q: Array, p: Array, multipliers: Array, s: Array) -> Array:
        at, v = mech.after(s), mech.velocity(p)
        drive = jnp.sum(multipliers * at.constraint_time_rate(q))
        return jnp.sum(at.outer_force(q, v) * v) + at.energy_time_rate(q) + drive

    multipliers = jnp.concatenate([multipliers, jnp.zeros_like(multipliers[:1])])
    return jax.vmap(power)(positions, momenta, multipliers, since)


class LobattoCarry(Module):
    """What LobattoIIIAB carries."""

    q: Any
    p: Any
    multipliers: Any  # Λ₁ … Λ_{s−1} of the last step, where Newton's method begins
    force: Any  # F_{s−1} of the last step
    status: Any
    work: Any = None  # of driven systems


@register({"stages": 2}, {"stages": 3}, {"stages": 4})
class LobattoIIIAB(Constrained):
    """The Lobatto IIIA–IIIB pair with s stages: order 2s − 2, s = 2, 3, 4. Systems with and without constraints."""

    failures: ClassVar[Mapping[int, str]] = {NOT_SOLVED: "the equations of the stages were not solved"}
    stages: int = setting(one_of(2, 3, 4), 3)

    def __init__(
        self,
        stages: int = 3,
        *,
        solver: str = "auto",
        relaxation: float = 1.0,
        constraint_solver: ConstraintSolver | None = None,
    ):
        self.stages, self.solver, self.relaxation = stages, solver, relaxation
        self.constraint_solver = constraint_solver

    @property
    def traits(self) -> Traits:
        return Traits(
            2 * self.stages - 2,
            symplectic=True,
            symmetric=True,
            reversible=True,
            energy="bounded",
            momentum_maps="all",
            constrained=True,
            takes=("time", "moving", "force"),
        )

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        q = value(state.q)
        m = jax.eval_shape(mech.constraint, q).size
        unknowns = (self.stages - 1) * (q.size + m)
        if unknowns > LIMIT:
            raise InputError(
                f"LobattoIIIAB forms a dense matrix of {unknowns} unknowns here, more than {LIMIT}; use "
                f"Composition({'Rattle()' if m else 'Verlet()'}, order={max(4, 2 * self.stages - 2)}), which "
                "needs none."
            )
        force = _force(mech, q)
        if m:
            force = force - mech.constraint_force(q, self.solver_for(mech, q).multipliers(mech, q, value(state.p)))
        work = jnp.zeros((), q.dtype) if mech.driven else None
        multipliers = jnp.zeros((self.stages - 1, m), q.dtype)
        return LobattoCarry(state.q, state.p, multipliers, force, jnp.zeros((), int), work)

    def step(self, mech: Mechanics, carry: LobattoCarry, dt: Array) -> LobattoCarry:
        q, p = carry.q, carry.p
        a, a_hat, b = (jnp.asarray(x, dt.dtype) for x in lobatto(self.stages))
        here, moving, s, n = value(q), value(p), self.stages, value(q).size
        weighted = lambda weights, arrays: jnp.tensordot(weights, arrays, axes=1)
        since = dt * jnp.asarray(lobatto(self.stages)[0].sum(axis=1), dt.dtype)  # c_i h

        def force(x: Array, multipliers: Array, s: Array) -> Array:
            at = mech.after(s)
            return _force(at, x) - at.constraint_force(x, multipliers)

        def split(unknown: Array) -> tuple[Array, Array]:
            """Q₂ … Q_s relative to q₀, and Λ₁ … Λ_{s−1}; multipliers as positions, by h²."""
            moves = unknown[: (s - 1) * n].reshape(s - 1, *here.shape)
            return moves, unknown[(s - 1) * n :].reshape(s - 1, -1) / dt**2

        def stages(unknown: Array) -> tuple[Array, Array]:
            """Q₁ … Q_s, and F₁ … F_{s−1}."""
            moves, multipliers = split(unknown)
            positions = jnp.concatenate([here[None], here + moves])
            return positions, jax.vmap(force)(positions[:-1], multipliers, since[:-1])

        def moved(forces: Array) -> Array:
            """Q₂ … Q_s relative to q₀."""
            momenta = moving + dt * weighted(a_hat[:, :-1], forces)
            return dt * weighted(a[1:], jax.vmap(mech.velocity)(momenta))

        def residual(unknown: Array) -> Array:
            positions, forces = stages(unknown)
            on = jax.vmap(lambda x, s: mech.after(s).constraint(x))(positions[1:], since[1:])
            return jnp.concatenate([(split(unknown)[0] - moved(forces)).ravel(), on.ravel()])

        def displaced(unknown: Array, change: Array) -> Array:
            """What a change of the unknowns moves: the stages, and by their forces the next momentum. The multipliers
            themselves are known only to the rounding of g over the square of the smallest singular value of G."""
            moves, multipliers = split(change)
            positions = jnp.concatenate([here[None], here + split(unknown)[0]])
            pull = lambda x, y, s: mech.after(s).constraint_force(x, y)
            pulls = jax.vmap(pull)(positions[:-1], multipliers, since[:-1])
            return jnp.concatenate([moves.ravel(), (dt**2 * jax.vmap(mech.velocity)(pulls)).ravel()])

        # F = f − Gᵀλ is smooth along the motion, even where λ is not. The stages are predicted with its last value.
        start = moved(jnp.broadcast_to(carry.force, (s - 1, *here.shape)))
        guess = jnp.concatenate([start.ravel(), (carry.multipliers * dt**2).ravel()])
        solve = least_squares_solve if self._uses_least_squares else dense_solve
        size = jnp.maximum(jnp.max(jnp.abs(here)), jnp.max(jnp.abs(start)))
        unknown, converged = newton(residual, guess, size, solve, displaced)
        positions, forces = stages(unknown)
        end = mech.after(dt)
        q = q + moved(forces)[-1]
        p = p + dt * (weighted(b[:-1], forces) + b[-1] * _force(end, positions[-1]))
        work = carry.work
        if mech.driven:
            momenta = moving + dt * weighted(a_hat[:, :-1], forces)
            work = work + dt * jnp.sum(b * _powers(mech, positions, momenta, split(unknown)[1], since))
        if mech.system.constraint is not None:
            p, pushed = self.projected(end, q, p)
            work = work if work is None else work + pushed
        status = jnp.where((carry.status == 0) & ~converged, NOT_SOLVED, carry.status)
        return LobattoCarry(q, p, split(unknown)[1], forces[-1], status, work)

    @property
    def _uses_least_squares(self) -> bool:
        return self.constraint_solver is not None and self.constraint_solver.plan.kind == "least-squares"

    def output(self, mech: Mechanics, carry: LobattoCarry) -> State:
        free = mech.system.constraint is None
        state = State(carry.q, carry.p) if free else self.state_with_multipliers(mech, carry.q, carry.p)
        return with_work(state, carry.work) if mech.driven else state

    def status(self, carry: LobattoCarry) -> Array:
        return carry.status
