"""Conjugate gradients to round-off, for large operators without structure."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array


def conjugate_gradients(apply: Callable[[Array], Array], right: Array, inverse_diagonal: Array | float = 1.0, limit: int = 2000) -> tuple[Array, Array]:
    """x with apply(x) = right for a symmetric positive definite operator, and the smallest xᵀAx / xᵀx seen.

    Iterates until the residual is at round-off of the right side or has stopped falling for ten rounds: a looser
    tolerance would leave an error that depends on the path and breaks symplecticity.
    """
    dot = lambda x, y: jnp.sum(x * y)
    goal = (jnp.finfo(right.dtype).eps * 4) ** 2 * dot(right, right)

    def unfinished(s):
        _, _, _, _, squared, best, waited, count, curvature = s
        return (squared > goal) & (waited < 10) & (count < limit) & (curvature > 0) & (best >= 0)

    def advance(s):
        x, r, p, rho, _, best, waited, count, curvature = s
        moved = apply(p)
        bend = dot(p, moved)
        alpha = rho / bend
        x, r = x + alpha * p, r - alpha * moved
        z = inverse_diagonal * r
        rho_new = dot(r, z)
        squared = dot(r, r)
        waited = jnp.where(squared < 0.25 * best, 0, waited + 1)
        return x, r, z + (rho_new / rho) * p, rho_new, squared, jnp.minimum(best, squared), waited, count + 1, jnp.minimum(curvature, bend / dot(p, p))

    z = inverse_diagonal * right
    squared = dot(right, right)
    start = (jnp.zeros_like(right), right, z, dot(right, z), squared, squared, 0, 0, jnp.asarray(jnp.inf, right.dtype))
    x, *_, curvature = jax.lax.while_loop(unfinished, advance, start)
    return x, curvature
