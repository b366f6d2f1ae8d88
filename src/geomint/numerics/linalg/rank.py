"""Orthonormal bases of rows that may be linearly dependent: Gram–Schmidt with pivoting, in any inner product.

A singular value decomposition would give the same; this is one short loop of products, which every engine can execute,
and which costs less for the few rows of a mechanism. Each row is scaled to length 1 first, so that the rank does not
depend on the units of a row. Every new direction is orthogonalised twice against those before it, which keeps the basis
orthonormal to round-off (Giraud, Langou, Rozložník, Comput. Math. Appl. 50 (2005) 1069).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array


class Span(NamedTuple):
    """The span of some rows."""

    basis: Array  # (m, n): orthonormal rows, then rows of zeros
    combination: Array  # T (m, m): basis = T @ rows
    rank: Array


class _Progress(NamedTuple):
    iterations: Array
    rest: Array  # the rows without their components along the directions found so far
    made_of: Array  # rest = made_of @ rows
    span: Span


def identity(x: Array) -> Array:
    return x


def cutoff(dtype: Any, share: float) -> float:
    """eps^share: shorter remainders of rows of length 1 count as zero. `share` is the fraction of the digits that must
    be lost to rounding for that."""
    return float(jnp.finfo(dtype).eps) ** share


def length(squared: Array) -> Array:
    """The square root, with derivative 0 at 0, because every basis is padded with rows of zeros."""
    positive = squared > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)


def span(rows: Array, cutoff: float, dual: Callable[[Array], Array] = identity) -> Span:
    """The span of the rows in the inner product ⟨a, b⟩ = a·dual(b); remainders shorter than `cutoff` count as zero."""
    m, dtype = len(rows), rows.dtype
    duals = jax.vmap(dual)
    squared = lambda x: jnp.sum(x * duals(x), axis=1)
    lengths = length(squared(rows))
    scale = jnp.where(lengths > 0, 1 / jnp.where(lengths > 0, lengths, 1.0), 0.0)

    def advance(s: _Progress) -> _Progress:
        longest = jnp.arange(m) == jnp.argmax(squared(s.rest))
        row, weights = (jnp.sum(jnp.where(longest[:, None], x, 0.0), axis=0) for x in (s.rest, s.made_of))
        found = s.span
        again = jnp.sum(found.basis * dual(row), axis=1)[:, None]
        row, weights = row - jnp.sum(again * found.basis, axis=0), weights - jnp.sum(again * found.combination, axis=0)
        left = length(jnp.sum(row * dual(row)))
        kept = left > cutoff
        unit = jnp.where(kept, 1 / jnp.where(kept, left, 1.0), 0.0)
        row, weights = unit * row, unit * weights
        here = (jnp.arange(m) == s.iterations)[:, None]
        along = jnp.sum(s.rest * dual(row), axis=1)[:, None]
        new = Span(
            jnp.where(here, row, found.basis),
            jnp.where(here, weights, found.combination),
            found.rank + kept,
        )
        return _Progress(s.iterations + 1, s.rest - along * row, s.made_of - along * weights, new)

    empty = Span(jnp.zeros_like(rows), jnp.zeros((m, m), dtype), jnp.zeros((), int))
    begin = _Progress(jnp.zeros((), int), scale[:, None] * rows, scale[:, None] * jnp.eye(m, dtype=dtype), empty)
    return jax.lax.fori_loop(0, m, lambda _, s: advance(s), begin).span


def least_squares(columns: Array, right: Array, cutoff: float) -> Array:
    """x that minimises |Σ_k x_k columns_k − right|; zero for columns that depend on the others."""
    found = span(columns, cutoff)
    return jnp.sum(found.combination * jnp.sum(found.basis * right, axis=1)[:, None], axis=0)


def smallest_solution(rows: Array, right: Array) -> Array:
    """The shortest x with rows @ x = right, for independent rows; rows 0 = 0 are ignored."""
    found = span(rows, cutoff(rows.dtype, 0.83))
    return jnp.sum(found.basis * jnp.sum(found.combination * right, axis=1)[:, None], axis=0)
