"""Compensated summation: values together with their accumulated rounding error.

A state variable that is updated n times by small increments loses about eps/2 of its own size each time. `Compensated`
stores that loss beside the value and adds it to the next increment (Kahan 1965; the error-free sum is Knuth's TwoSum,
which needs no assumption on sizes). A method writes ``q + dq``, which works for arrays and for these.

Reference: Hairer, Lubich, Wanner, Geometric Numerical Integration, 2nd ed., section VIII.5.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .module import Module


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """s + e = a + b exactly, with s = fl(a + b)."""
    s = a + b
    # The barrier prevents XLA from simplifying (a + b) - a to b.
    s = jax.lax.optimization_barrier(s)
    b_seen = s - a
    a_seen = s - b_seen
    return s, (a - a_seen) + (b - b_seen)


class Compensated(Module):
    """value + lost, where |lost| is at most half a unit in the last place of value."""

    value: Any
    lost: Any

    @classmethod
    def of(cls, x: Array) -> Compensated:
        return cls(x, jnp.zeros_like(x))

    def __add__(self, increment: Array) -> Compensated:
        return Compensated(*two_sum(self.value, increment + self.lost))

    def __sub__(self, decrement: Array) -> Compensated:
        return self + (-decrement)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def size(self) -> int:
        return self.value.size


def value(x: Array | Compensated) -> Array:
    """The array without its rounding error."""
    return x.value if isinstance(x, Compensated) else x
