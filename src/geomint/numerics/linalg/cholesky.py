"""Cholesky factorisations of many small matrices at once, and of block-tridiagonal ones.

Entries are kept as separate vectors over the batch, so that XLA gets element-wise arithmetic and fuses it into one loop
over the batch, without calls and threads. LAPACK on small matrices costs microseconds a call, most of it overhead.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array

UNROLLED = 6  # rows up to which the loops are unrolled


def factor_solve(matrix: Array, right: Array) -> tuple[Array, Array]:
    """X with A X = B for a batch of symmetric positive definite A (N, b, b), B (N, b, k); and the smallest pivot.

    Only the lower triangle of A is read. A pivot that is not positive means that A is not positive definite.
    """
    b = matrix.shape[-1]
    if b <= UNROLLED:
        return _unrolled(matrix, right)
    factor = jnp.linalg.cholesky(matrix, symmetrize_input=False)
    y = _triangular(factor, right)
    x = _triangular(jnp.swapaxes(factor, -1, -2), y, lower=False)
    pivots = jnp.diagonal(factor, axis1=-2, axis2=-1) ** 2
    return x, jnp.min(jnp.where(jnp.isnan(pivots), -1.0, pivots))


def _triangular(factor: Array, right: Array, lower: bool = True) -> Array:
    return solve_triangular(factor, right, lower=lower)


def _unrolled(matrix: Array, right: Array) -> tuple[Array, Array]:
    """Unrolled LDLᵀ: needs no square roots, and gives the pivots."""
    b = matrix.shape[-1]
    a = [[matrix[..., i, j] for j in range(i + 1)] for i in range(b)]
    low: list[list[Array]] = [[] for _ in range(b)]
    d: list[Array] = []
    for i in range(b):
        scaled: list[Array] = []
        for j in range(i):
            s = a[i][j]
            for m in range(j):
                s = s - scaled[m] * low[j][m]
            scaled.append(s)
        low[i] = [s / d[j] for j, s in enumerate(scaled)]
        pivot = a[i][i]
        for m in range(i):
            pivot = pivot - scaled[m] * low[i][m]
        d.append(pivot)
    rows = [right[..., i, :] for i in range(b)]
    for i in range(b):
        for m in range(i):
            rows[i] = rows[i] - low[i][m][..., None] * rows[m]
    rows = [row / pivot[..., None] for row, pivot in zip(rows, d, strict=True)]
    for i in reversed(range(b)):
        for m in range(i + 1, b):
            rows[i] = rows[i] - low[m][i][..., None] * rows[m]
    return jnp.stack(rows, axis=-2), jnp.min(jnp.stack(d))


def block_tridiagonal_solve(diagonal: Array, lower: Array, right: Array) -> tuple[Array, Array]:
    """K x = r for K block tridiagonal and positive definite, by cyclic reduction; and the smallest pivot.

    diagonal (N, b, b) holds K_ii, lower (N, b, b) K_{i+1,i} with a last block of zeros, right (N, b); N is a power of
    two. All odd blocks are eliminated at once, which leaves a system of half the length: log₂ N rounds of batched
    arithmetic instead of N sequential steps.
    """
    n, b = right.shape
    if n == 1:
        x, pivot = factor_solve(diagonal, right[..., None])
        return x[..., 0], pivot
    # Odd block j couples to j−1 by K_{j,j−1} = down and to j+1 by K_{j+1,j} = up.
    down, up = lower[0::2], lower[1::2]
    together = jnp.concatenate([down, jnp.swapaxes(up, -1, -2), right[1::2][..., None]], axis=-1)
    solved, pivot = factor_solve(diagonal[1::2], together)
    to_down, to_up, to_right = solved[..., :b], solved[..., b : 2 * b], solved[..., 2 * b]
    shifted = lambda x: jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])
    down_t = jnp.swapaxes(down, -1, -2)
    kept = diagonal[0::2] - small_product(down_t, to_down) - shifted(small_product(up, to_up))
    kept_right = right[0::2] - small_apply(down_t, to_right) - shifted(small_apply(up, to_right))
    x_even, below = block_tridiagonal_solve(kept, -small_product(up, to_down), kept_right)
    next_even = jnp.concatenate([x_even[1:], jnp.zeros_like(x_even[:1])])
    x_odd = to_right - small_apply(to_down, x_even) - small_apply(to_up, next_even)
    return jnp.stack([x_even, x_odd], axis=1).reshape(n, b), jnp.minimum(pivot, below)


def small_product(x: Array, y: Array) -> Array:
    """Batched matrix product by element-wise products and a sum, without a call to a matrix library."""
    return jnp.sum(x[..., :, :, None] * y[..., None, :, :], axis=-2)


def small_apply(x: Array, y: Array) -> Array:
    """Batched product of matrix and vector by element-wise products and a sum."""
    return jnp.sum(x * y[..., None, :], axis=-1)
