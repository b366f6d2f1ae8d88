"""Streams of normal numbers for the steps of a run: a counter-based generator (threefry) and Box and Muller's map

    x = √(−2 log u) cos 2πw,    y = √(−2 log u) sin 2πw,

with u in (0, 1] and w in [0, 1], both multiples of 2⁻⁵³ (2⁻²⁴ in single precision): log u is finite, and |x| ≤ 8.6.

The numbers of a draw depend on the key and on the number of the draw alone. The operations are those that all engines
translate to single numbers. Two numbers of a pair cost one logarithm, one root, one sine and one cosine; the inverse of
the error function, which jax.random.normal uses, has no instruction in scalar code and takes three times as many.

References: Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011); Box, Muller, Ann. Math.
Statist. 29 (1958) 610.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

LAST = 2**32 - 1  # the last number that a word holds


class Stream(NamedTuple):
    """A key of two words, and how many draws were made."""

    key: Array
    draws: Array

    @classmethod
    def of(cls, key: Any) -> Stream:
        """From the key of a run or a member, as numbers; that of the seed 0 where there is none."""
        words = np.zeros(2, np.uint32) if key is None else key
        return cls(jnp.asarray(words, jnp.uint32), jnp.zeros((), jnp.uint32))

    def normal(self, shape: tuple[int, ...], dtype: Any) -> tuple[Array, Stream]:
        """Normal numbers of that shape, and the stream after this draw."""
        key = jax.random.fold_in(jax.random.wrap_key_data(self.key), self.draws)
        # After 2³² draws the words of that draw's key, inverted, become the key: the count begins again.
        full = self.draws == LAST
        renewed = jax.random.key_data(key) ^ jnp.uint32(LAST)
        after = Stream(jnp.where(full, renewed, self.key), jnp.where(full, 0, self.draws + 1).astype(jnp.uint32))
        return _normal(key, shape, dtype), after


def _normal(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    count = math.prod(shape)
    u, w = _uniform(key, (2, -(-count // 2)), dtype)
    radius, angle = jnp.sqrt(-2 * jnp.log(u)), 2 * math.pi * w
    return jnp.concatenate([radius * jnp.cos(angle), radius * jnp.sin(angle)])[:count].reshape(shape)


def _uniform(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """(k + 1) 2⁻ᵈ with k from 0 to 2ᵈ − 1, d the digits of the mantissa."""
    word, digits = (jnp.uint64, 53) if dtype == jnp.float64 else (jnp.uint32, 24)
    bits = jax.random.bits(key, shape, word) >> (np.dtype(word).itemsize * 8 - digits)
    return (bits.astype(dtype) + 1) * 2.0**-digits
