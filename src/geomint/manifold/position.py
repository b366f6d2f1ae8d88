"""The position equation of a drift on the manifold:

    g(Q) = 0,   Q = q + h M⁻¹(p − w),   w = G(q)ᵀμ,

for the impulse μ of the constraint, and its root as a function that JAX differentiates by the implicit function
theorem. A moving constraint is that of the time after the drift, g(Q, t + h) = 0, with G(q, t)ᵀ at its start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.linalg import Plan


class Placed(NamedTuple):
    """A root of the position equation, as methods see it."""

    impulse: Array  # μ
    normal_impulse: Any  # w = G(q)ᵀμ, of the shape of q; at a singular position it is known although μ is not
    converged: Any
    rounds: Any  # iterations or sweeps it took


class Root(NamedTuple):
    """What an iteration finds."""

    x: Array
    normal_impulse: Any  # where it has a part that is not G(q)ᵀμ, otherwise None
    converged: Any
    rounds: Any


class PositionEquation:
    """g(Q) = 0 with Q = q + h M⁻¹(p − w), w = G(q)ᵀμ: a drift of length h from (q, p) that ends on the manifold.

    Iterations solve for x = h μ (x = h μ/M where the mass is one number), so that Q = Q_free − M⁻¹G(q)ᵀx with
    Q_free = q + h M⁻¹p: a position then costs the products with G(q)ᵀ and nothing else.
    """

    def __init__(self, mech: Any, q: Array, p: Array, h: Array):
        self.mech, self.q, self.p, self.h = mech, q, p, h
        self.target = mech.after(h)  # whose constraint Q satisfies
        self.one_mass: bool = mech.one_mass
        self.transposed: Callable[[Array], Array] = mech.constraint_pull(q)
        self.displacement_of = self.transposed if self.one_mass else lambda x: mech.velocity(self.transposed(x))
        self.x_per_impulse = jnp.reshape(mech.displacement(jnp.ones((), q.dtype), h), ()) if self.one_mass else h
        self.free = q + mech.displacement(p, h)
        self.constraints: int = jax.eval_shape(mech.constraint, q).size

    def at(self, x: Array) -> Array:
        """Q."""
        return self.free - self.displacement_of(x)

    def normal_impulse(self, x: Array) -> Array:
        """w = G(q)ᵀx/x_per_impulse. The division comes last: near a singular position x is large, and its parts cancel
        in G(q)ᵀx exactly as they do in Q."""
        return self.transposed(x) * (1 / self.x_per_impulse)

    def position_for(self, normal_impulse: Array) -> Array:
        """Q for the normal impulse w."""
        return self.q + self.mech.displacement(self.p - normal_impulse, self.h)


def differentiable_root(
    plan: Plan, equation: PositionEquation, solve: Callable[[], Root], may_add: bool = False
) -> Placed:
    """The root that `solve` finds. Its derivative is that of the root, not of the iteration. With `may_add` the
    normal impulse has a part that is not G(q)ᵀμ, which is held constant in derivatives."""
    m, dtype = equation.constraints, equation.q.dtype

    def iterate(_: Any, start: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        found = solve()
        more = found.normal_impulse - equation.normal_impulse(found.x) if may_add else jnp.zeros((), dtype)
        return found.x, (
            found.converged.astype(dtype),
            found.rounds.astype(dtype),
            more,
        )  # custom_root takes floats only

    def tangent(linear: Callable[[Array], Array], right: Array) -> Array:
        """The operator is −K, K = G(Q) M⁻¹G(q)ᵀ."""
        apply = lambda d: -linear(d)
        factored = plan.factor(apply, right.dtype)
        x = factored.solve(right)
        for _ in range(2 if plan.assembled else 0):  # refinements, for entries of K outside the pattern of the plan
            x = x + factored.solve(right - apply(x))
        return -x

    residual = lambda x: equation.target.constraint(equation.at(x))
    x, (converged, rounds, more) = jax.lax.custom_root(residual, jnp.zeros(m, dtype), iterate, tangent, has_aux=True)
    normal_impulse = equation.normal_impulse(x) + jax.lax.stop_gradient(more) if may_add else equation.normal_impulse(x)
    return Placed(x * (1 / equation.x_per_impulse), normal_impulse, converged > 0, rounds)
