"""Roots of the equations of an implicit step, to round-off, differentiable to any order.

Iterations go on until the correction is at round-off or stops shrinking: an iteration stopped early at a tolerance
leaves a systematic error that breaks symplecticity and shows as a drift of the energy (Hairer, McLachlan, Razakarivony,
BIT 48 (2008) 231). Derivatives come from the implicit function theorem (`jax.lax.custom_root`), not from the iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

Residual = Callable[[Array], Array]
LinearSolve = Callable[[Residual, Array], Array]
LIMIT = 50  # iterations; Newton needs 3 to 5, a contracting fixed point of rate ½ needs 50 to reach round-off


class Solution(NamedTuple):
    root: Array
    converged: Array


def _round_off(x: Array, scale: Array) -> Array:
    return jnp.finfo(x.dtype).eps * jnp.maximum(scale, jnp.max(jnp.abs(x)))


def _iterate(correction: Residual, start: Array, scale: Array) -> tuple[Array, Array]:
    """x ← x − correction(x) until |correction| is at round-off of `scale` or of x, or stalls near it: x and the last |correction|."""

    def unfinished(s):
        x, size, before, count = s
        tiny = _round_off(x, scale)
        stalled = (size >= 0.5 * before) & (size <= 1e4 * tiny)
        return (size > tiny) & ~stalled & (count < LIMIT)  # NaN compares false and ends it

    def advance(s):
        x, size, _, count = s
        change = correction(x)
        return x - change, jnp.max(jnp.abs(change)), size, count + 1

    first = (start, jnp.asarray(jnp.inf, start.dtype), jnp.asarray(jnp.inf, start.dtype), 0)
    x, size, *_ = jax.lax.while_loop(unfinished, advance, first)
    return x, size


def _root(residual: Residual, start: Array, scale: Array, solve: Callable, tangent_solve: Callable) -> Solution:
    root, size = jax.lax.custom_root(residual, start, solve, tangent_solve, has_aux=True)
    return Solution(root, size <= 1e4 * _round_off(root, scale))


def dense_solve(linear: Residual, right: Array) -> Array:
    """linear(x) = right by its matrix."""
    n = right.size
    matrix = jax.jacfwd(linear)(jnp.zeros_like(right)).reshape(n, n)
    return jnp.linalg.solve(matrix, right.ravel()).reshape(right.shape)


def newton(residual: Residual, start: Array, scale: Array, linear_solve: LinearSolve = dense_solve) -> Solution:
    """residual(x) = 0 by Newton's method with the exact Jacobian; `scale` is the size of x's unit.

    linear_solve(A, b) returns x with A(x) = b; a dense matrix by default, a structured solve where one is known.
    """

    def solve(f: Residual, x: Array) -> tuple[Array, Array]:
        correction = lambda y: linear_solve(lambda d: jax.jvp(f, (y,), (d,))[1], f(y))
        return _iterate(correction, x, scale)

    return _root(residual, start, scale, solve, linear_solve)


def fixed_point(residual: Residual, start: Array, scale: Array) -> Solution:
    """residual(x) = x − φ(x) = 0 for a contraction φ, without a matrix; derivatives by the same iteration."""

    def solve(f: Residual, x: Array) -> tuple[Array, Array]:
        return _iterate(f, x, scale)

    def by_iteration(linear: Residual, right: Array) -> Array:
        size = jnp.maximum(jnp.max(jnp.abs(right)), jnp.finfo(right.dtype).tiny)
        return _iterate(lambda x: linear(x) - right, right, size)[0]

    def tangent(linear: Residual, right: Array) -> Array:
        # JAX transposes this, so that the solves may depend on `right` through their argument alone.
        return jax.lax.custom_linear_solve(linear, right, solve=by_iteration, transpose_solve=by_iteration)

    return _root(residual, start, scale, solve, tangent)
