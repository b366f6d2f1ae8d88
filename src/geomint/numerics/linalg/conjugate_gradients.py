"""Conjugate gradients to round-off, for large operators without structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array


class _Iterate(NamedTuple):
    x: Array
    residual: Array
    direction: Array
    rho: Array  # residual · preconditioned residual
    squared: Array  # residual · residual
    mark: Array  # the value of `squared` when it last fell to a quarter
    waited: Array | int  # iterations since then
    iterations: Array | int
    curvature: Array  # the smallest pᵀAp / pᵀp so far


def conjugate_gradients(
    apply: Callable[[Array], Array],
    right: Array,
    inverse_diagonal: Array | float = 1.0,
    limit: int = 2000,
    tolerance: float = 0.0,
) -> tuple[Array, Array]:
    """x with apply(x) = right for a symmetric positive definite operator, and the smallest pᵀAp / pᵀp of all search
    directions p.

    Iterates until the residual is at round-off of the right side or, near it, no longer falls: a looser tolerance would
    leave an error that depends on the path and breaks symplecticity. A `tolerance` relative to the right side is for
    callers that iterate to round-off themselves.
    """
    dot = lambda x, y: jnp.sum(x * y)
    eps = jnp.finfo(right.dtype).eps
    whole = dot(right, right)

    def unfinished(s: _Iterate) -> Array:
        patience = jnp.where(s.squared < (1e3 * eps) ** 2 * whole, 5, 500)  # iterations for the residual to halve
        enough = max(4 * float(eps), tolerance)
        return (s.squared > enough**2 * whole) & (s.waited < patience) & (s.iterations < limit) & (s.curvature > 0)

    def advance(s: _Iterate) -> _Iterate:
        product = apply(s.direction)
        bend = dot(s.direction, product)
        alpha = s.rho / bend
        x, residual = s.x + alpha * s.direction, s.residual - alpha * product
        z = inverse_diagonal * residual
        rho, squared = dot(residual, z), dot(residual, residual)
        fell = squared < 0.25 * s.mark
        mark, waited = jnp.where(fell, squared, s.mark), jnp.where(fell, 0, s.waited + 1)
        direction, count = z + (rho / s.rho) * s.direction, s.iterations + 1
        curvature = jnp.minimum(s.curvature, bend / dot(s.direction, s.direction))
        return _Iterate(x, residual, direction, rho, squared, mark, waited, count, curvature)

    z = inverse_diagonal * right
    infinite = jnp.asarray(jnp.inf, right.dtype)
    start = _Iterate(jnp.zeros_like(right), right, z, dot(right, z), whole, whole, 0, 0, infinite)
    end = jax.lax.while_loop(unfinished, advance, start)
    return end.x, end.curvature
