"""Elimination without pivoting, factored once and solved often: many small matrices at once, and block-tridiagonal ones.

The matrices here are close to symmetric positive definite ones (the Jacobians of constraint solvers), for which no pivoting
is needed. As in `cholesky`, entries are kept as separate vectors over the batch: plain element-wise arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from . import native
from .cholesky import UNROLLED

Solve = Callable[[Array], Array]


class Factored(NamedTuple):
    """A matrix made ready for solves."""

    solve: Solve
    pivot: Array  # the smallest


def invert(matrix: Array) -> tuple[Array, Array]:
    """The inverses of a batch of small matrices (N, b, b), and the smallest pivot: Gauss–Jordan written out, or a library's."""
    b = matrix.shape[-1]
    if b > UNROLLED:
        inverse = jnp.linalg.inv(matrix)
        return inverse, jnp.min(1 / jnp.max(jnp.abs(inverse), axis=(-2, -1)))
    a = [[matrix[..., i, j] for j in range(b)] for i in range(b)]
    pivots = []
    for k in range(b):
        pivots.append(a[k][k])
        scale = 1 / a[k][k]
        row = [scale if j == k else a[k][j] * scale for j in range(b)]
        for i in range(b):
            if i != k:
                a[i] = [-a[i][k] * row[k] if j == k else a[i][j] - a[i][k] * row[j] for j in range(b)]
        a[k] = row
    return jnp.stack([jnp.stack(line, axis=-1) for line in a], axis=-2), jnp.min(jnp.stack(pivots))


def small_product(x: Array, y: Array) -> Array:
    """Batched matrix product as sums of element-wise products: no call to a matrix library for 2×2 blocks."""
    return jnp.sum(x[..., :, :, None] * y[..., None, :, :], axis=-2)


def small_apply(x: Array, y: Array) -> Array:
    """Batched matrix times vector, likewise."""
    return jnp.sum(x * y[..., None, :], axis=-1)


def factor_blocks(matrix: Array) -> Factored:
    """A x = r for a batch of small matrices (N, b, b), r (N, b)."""
    inverse, pivot = invert(matrix)
    return Factored(lambda right: small_apply(inverse, right), pivot)


def factor_block_tridiagonal(diagonal: Array, lower: Array, upper: Array) -> Factored:
    """K x = r for K block tridiagonal, by cyclic reduction.

    diagonal (N, b, b) holds K_ii, lower K_{i+1,i} and upper K_{i,i+1}, each with a last block of zeros; r is (N, b); N is a
    power of two. Every odd block is eliminated at once, which leaves a system of half the length: log₂ N rounds of batched
    arithmetic instead of N steps one after another.
    """
    n = len(diagonal)
    if n == 1:
        return factor_blocks(diagonal)
    if diagonal.shape[-1] == 1 and native.available():
        return factor_tridiagonal(jnp.pad(lower[:-1, 0, 0], (1, 0)), diagonal[:, 0, 0], upper[:, 0, 0])
    # Odd block j: K_{j,j−1} = from_below, K_{j,j+1} = from_above; it enters row j−1 by to_below, row j+1 by to_above.
    from_below, from_above = lower[0::2], upper[1::2]
    to_below, to_above = upper[0::2], lower[1::2]
    inverse, pivot = invert(diagonal[1::2])
    below, above = small_product(inverse, from_below), small_product(inverse, from_above)
    shifted = lambda x: jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])
    kept = diagonal[0::2] - small_product(to_below, below) - shifted(small_product(to_above, above))
    inner = factor_block_tridiagonal(kept, -small_product(to_above, below), -small_product(to_below, above))

    def solve(right: Array) -> Array:
        odd = small_apply(inverse, right[1::2])
        even = inner.solve(right[0::2] - small_apply(to_below, odd) - shifted(small_apply(to_above, odd)))
        next_even = jnp.concatenate([even[1:], jnp.zeros_like(even[:1])])
        odd = odd - small_apply(below, even) - small_apply(above, next_even)
        return jnp.stack([even, odd], axis=1).reshape(right.shape)

    return Factored(solve, jnp.minimum(pivot, inner.pivot))


def factor_tridiagonal(lower: Array, through: Array, upper: Array) -> Factored:
    """K x = r for K with rows (lower_i, through_i, upper_i), by machine code; differentiated as a linear solve."""
    fixed = jax.lax.stop_gradient
    factors = native.eliminate(fixed(lower), fixed(through), fixed(upper))
    down, up = lambda x: jnp.pad(x[:-1], (1, 0)), lambda x: jnp.pad(x[1:], (0, 1))
    product = lambda x: down(x) * lower + through * x + up(x) * upper

    def transposed(_: Solve, r: Array) -> Array:
        return native.substitute(native.eliminate(fixed(down(upper)), fixed(through), fixed(up(lower))), r)

    def solve(right: Array) -> Array:
        x = jax.lax.custom_linear_solve(product, right[..., 0], lambda _, r: native.substitute(factors, r), transposed)
        return x[:, None]

    return Factored(solve, jnp.min(1 / factors[0]))
