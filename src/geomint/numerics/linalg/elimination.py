"""Elimination without pivoting, for matrices that are factored once and used in many solves.

The matrices here are close to symmetric positive definite ones (the Jacobians of constraint solvers), for which no
pivoting is needed. They come as a batch of small matrices, or as one block-tridiagonal matrix. As in `cholesky`,
entries are kept as separate vectors over the batch: element-wise arithmetic.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..hints import rough_reciprocal
from ..module import Module
from . import cpu_kernels
from .cholesky import UNROLLED, small_apply, small_product


class Factored(Module):
    """A matrix prepared for solves; all its fields are arrays, so that the state of a run may contain it."""

    @abc.abstractmethod
    def solve(self, right: Array) -> Array:
        """x with K x = right."""


def invert(matrix: Array) -> Array:
    """The inverses of a batch of small matrices (N, b, b): unrolled Gauss–Jordan up to UNROLLED, else LAPACK."""
    b = matrix.shape[-1]
    if b > UNROLLED:
        return jnp.linalg.inv(matrix)
    a = [[matrix[..., i, j] for j in range(b)] for i in range(b)]
    for k in range(b):
        scale = 1 / a[k][k]
        row = [scale if j == k else a[k][j] * scale for j in range(b)]
        for i in range(b):
            if i != k:
                a[i] = [-a[i][k] * row[k] if j == k else a[i][j] - a[i][k] * row[j] for j in range(b)]
        a[k] = row
    return jnp.stack([jnp.stack(line, axis=-1) for line in a], axis=-2)


class Blocks(Factored):
    """A x = r for a batch of small matrices (N, b, b), r (N, b)."""

    inverse: Array

    @classmethod
    def of(cls, matrix: Array) -> Blocks:
        return cls(invert(matrix))

    def solve(self, right: Array) -> Array:
        return small_apply(self.inverse, right)


class Triangles(Factored):
    """The same by L and U, for b up to UNROLLED: fewer operations than with the inverse, but sequential ones."""

    factors: Array  # L below the diagonal, 1/U on it, U above

    @classmethod
    def of(cls, matrix: Array, rough: bool = False) -> Triangles:
        b, reciprocal = matrix.shape[-1], rough_reciprocal if rough else lambda x: 1 / x
        a = [[matrix[..., i, j] for j in range(b)] for i in range(b)]
        for k in range(b):
            a[k][k] = reciprocal(a[k][k])
            for i in range(k + 1, b):
                a[i][k] = a[i][k] * a[k][k]
                for j in range(k + 1, b):
                    a[i][j] = a[i][j] - a[i][k] * a[k][j]
        return cls(jnp.stack([jnp.stack(line, axis=-1) for line in a], axis=-2))

    def solve(self, right: Array) -> Array:
        b = right.shape[-1]
        a = [[self.factors[..., i, j] for j in range(b)] for i in range(b)]
        x = [right[..., i] for i in range(b)]
        for i in range(b):
            for j in range(i):
                x[i] = x[i] - a[i][j] * x[j]
        for i in reversed(range(b)):
            for j in range(i + 1, b):
                x[i] = x[i] - a[i][j] * x[j]
            x[i] = x[i] * a[i][i]
        return jnp.stack(x, axis=-1)


def _earlier(x: Array) -> Array:
    return jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])


def _later(x: Array) -> Array:
    return jnp.concatenate([x[1:], jnp.zeros_like(x[:1])])


class CyclicReduction(Factored):
    """K x = r for K block tridiagonal, by cyclic reduction: all odd blocks are eliminated at once, which leaves a
    system of half the length; log₂ N rounds of batched arithmetic instead of N sequential steps."""

    inverse: Array  # of the odd blocks
    to_below: Array  # K_{j−1,j}
    to_above: Array  # K_{j+1,j}
    below: Array  # inverse K_{j,j−1}
    above: Array  # inverse K_{j,j+1}
    inner: Factored

    @classmethod
    def of(cls, diagonal: Array, lower: Array, upper: Array) -> Factored:
        """diagonal (N, b, b) holds K_ii, lower K_{i+1,i} and upper K_{i,i+1}, each with a last block of zeros; N is a
        power of two."""
        if len(diagonal) == 1:
            return Blocks.of(diagonal)
        to_below, to_above = upper[0::2], lower[1::2]
        inverse = invert(diagonal[1::2])
        below, above = small_product(inverse, lower[0::2]), small_product(inverse, upper[1::2])
        kept = diagonal[0::2] - small_product(to_below, below) - _earlier(small_product(to_above, above))
        inner = cls.of(kept, -small_product(to_above, below), -small_product(to_below, above))
        return cls(inverse, to_below, to_above, below, above, inner)

    def solve(self, right: Array) -> Array:
        odd = small_apply(self.inverse, right[1::2])
        even = self.inner.solve(
            right[0::2] - small_apply(self.to_below, odd) - _earlier(small_apply(self.to_above, odd))
        )
        odd = odd - small_apply(self.below, even) - small_apply(self.above, _later(even))
        return jnp.stack([even, odd], axis=1).reshape(right.shape)


class Tridiagonal(Factored):
    """K x = r for K with rows (lower_i, through_i, upper_i), by `cpu_kernels`; differentiated as a linear solve."""

    lower: Array
    through: Array
    upper: Array
    factors: Array

    @classmethod
    def of(cls, lower: Array, through: Array, upper: Array) -> Tridiagonal:
        return cls(lower, through, upper, cpu_kernels.eliminate(*map(jax.lax.stop_gradient, (lower, through, upper))))

    def solve(self, right: Array) -> Array:
        product = lambda x: _earlier(x) * self.lower + self.through * x + _later(x) * self.upper

        def transposed(_: Any, r: Array) -> Array:
            rows = _earlier(self.upper), self.through, _later(self.lower)
            return cpu_kernels.substitute(cpu_kernels.eliminate(*map(jax.lax.stop_gradient, rows)), r)

        return jax.lax.custom_linear_solve(
            product, right, lambda _, r: cpu_kernels.substitute(self.factors, r), transposed
        )


class Band(Factored):
    """K x = r for K_ij = band[i, w + j − i], by `cpu_kernels`; differentiated as a linear solve. Right sides and
    solutions have the shape of `like`, padded with zeros."""

    band: Array  # (n, 2w + 1)
    factors: Array
    like: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, band: Array, like: tuple[int, ...]) -> Band:
        return cls(band, cpu_kernels.factor_band(jax.lax.stop_gradient(band)), like)

    def solve(self, right: Array) -> Array:
        n, width = self.band.shape
        w = width // 2

        def product(x: Array) -> Array:
            padded = jnp.pad(x, w)
            return sum((self.band[:, d] * padded[d : d + n] for d in range(width)), start=jnp.zeros_like(x))

        def transposed(_: Any, r: Array) -> Array:
            padded = jnp.pad(jax.lax.stop_gradient(self.band), ((w, w), (0, 0)))
            turned = jnp.stack([padded[d : d + n, width - 1 - d] for d in range(width)], axis=-1)
            return cpu_kernels.solve_band(cpu_kernels.factor_band(turned), r)

        solve = lambda _, r: cpu_kernels.solve_band(self.factors, r)
        x = jax.lax.custom_linear_solve(product, right.ravel()[:n], solve, transposed)
        return jnp.pad(x, (0, right.size - n)).reshape(self.like)
