"""Conjugate gradients to round-off, for large operators without structure."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array


def conjugate_gradients(
    apply: Callable[[Array], Array], right: Array, inverse_diagonal: Array | float = 1.0, limit: int = 2000
) -> tuple[Array, Array]:
    """x with apply(x) = right for a symmetric positive definite operator, and the smallest xᵀAx / xᵀx seen.

    Iterates until the residual is at round-off of the right side or, near it, no longer falls: a looser tolerance would
    leave an error that depends on the path and breaks symplecticity.
    """
    dot = lambda x, y: jnp.sum(x * y)
    eps = jnp.finfo(right.dtype).eps
    whole = dot(right, right)

    def unfinished(s):
        _, _, _, _, squared, _, waited, count, curvature = s
        patience = jnp.where(squared < (1e3 * eps) ** 2 * whole, 5, 500)  # rounds for the residual to halve
        return (squared > (4 * eps) ** 2 * whole) & (waited < patience) & (count < limit) & (curvature > 0)

    def advance(s):
        x, r, p, rho, _, mark, waited, count, curvature = s
        moved = apply(p)
        bend = dot(p, moved)
        alpha = rho / bend
        x, r = x + alpha * p, r - alpha * moved
        z = inverse_diagonal * r
        rho_new, squared = dot(r, z), dot(r, r)
        fell = squared < 0.25 * mark
        mark, waited = jnp.where(fell, squared, mark), jnp.where(fell, 0, waited + 1)
        return (
            x,
            r,
            z + (rho_new / rho) * p,
            rho_new,
            squared,
            mark,
            waited,
            count + 1,
            jnp.minimum(curvature, bend / dot(p, p)),
        )

    z = inverse_diagonal * right
    start = (jnp.zeros_like(right), right, z, dot(right, z), whole, whole, 0, 0, jnp.asarray(jnp.inf, right.dtype))
    x, *_, curvature = jax.lax.while_loop(unfinished, advance, start)
    return x, curvature
