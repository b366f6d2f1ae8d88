"""The type `Interval`, and what the rules for all operations are made of."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

EVERYWHERE = (-math.inf, math.inf)
# Outward rounding in units of eps: ½ for the operation, ½ for the outward step itself, and a margin for expressions
# that XLA rewrites, such as (a/b)/c as a/(bc).
ROUNDED = 4
ELEMENTARY = 16  # the same for exp, sin, …: XLA's approximations are accurate to a few units


class Interval(NamedTuple):
    """All numbers from low to high, for each entry of an array.

    Where `low` and `high` are one object, the interval is a single point known exactly.
    """

    low: Any
    high: Any


def is_point(*operands: Interval) -> bool:
    """Whether all are known exactly. Decided while tracing, by the identity of the ends, not by comparing numbers."""
    return all(x.low is x.high for x in operands)


def constant(x: Interval) -> Any:
    """The value of a literal of the program; None for other intervals."""
    return x.low.item() if isinstance(x.low, np.ndarray) and x.low is x.high and x.low.ndim == 0 else None


def contains_zero(x: Interval) -> Array:
    return (x.low <= 0) & (x.high >= 0)


def outward(
    low: Array, high: Array, slack: Any = ROUNDED, least: float = -math.inf, most: float = math.inf
) -> Interval:
    """[low − δ, high + δ], cut to [least, most]. Integers and booleans are exact.

    δ is slack·eps·|end| plus the smallest normal number (for results that were flushed to zero). For an infinite end it
    gives nan, which means that nothing is known: the number is only known to exceed the largest finite one.
    """
    if not jnp.issubdtype(low.dtype, jnp.floating):
        return Interval(low, high)
    eps, tiny = jnp.finfo(low.dtype).eps, jnp.finfo(low.dtype).tiny
    low = low - (slack * eps * abs(low) + tiny)
    high = high + (slack * eps * abs(high) + tiny)
    return Interval(
        low if least == -math.inf else jnp.maximum(low, least), high if most == math.inf else jnp.minimum(high, most)
    )


def known(x: Interval) -> Interval:
    """x with ends that are nan replaced by ∓∞."""
    if not jnp.issubdtype(x.low.dtype, jnp.floating):
        return x
    unknown = jnp.isnan(x.low) | jnp.isnan(x.high)
    return unless(unknown, x)


def unless(unknown: Array, x: Interval) -> Interval:
    """x, or (−∞, ∞) where `unknown` is true."""
    return Interval(jnp.where(unknown, -jnp.inf, x.low), jnp.where(unknown, jnp.inf, x.high))


def everything(like: Any) -> Interval:
    """The interval of all values of a type: (−∞, ∞), or both truth values, or all integers."""
    dtype = np.dtype(like.dtype)
    if dtype.kind == "b":
        least, most = False, True
    elif jnp.issubdtype(dtype, jnp.integer):
        least, most = jnp.iinfo(dtype).min, jnp.iinfo(dtype).max
    else:
        least, most = -math.inf, math.inf
    return Interval(jnp.full(like.shape, least, dtype), jnp.full(like.shape, most, dtype))


def bind(equation: Any) -> Callable[..., Any]:
    """The operation of an equation, as a function of arrays."""
    return lambda *x: equation.primitive.bind(*x, **equation.params)


def ends(f: Callable[..., Any], *operands: Interval) -> tuple[Any, Any]:
    """f at the low ends and f at the high ends; for points evaluated once, and the same object twice."""
    low = f(*(x.low for x in operands))
    return low, (low if is_point(*operands) else f(*(x.high for x in operands)))


def corners(f: Callable[[Any, Any], Array], x: Interval, y: Interval) -> tuple[Array, Array]:
    """The least and largest value of f at the corners of x × y, which bound f if it is monotone in each variable."""
    xs, ys = (x[:1] if is_point(x) else x), (y[:1] if is_point(y) else y)
    values = [f(a, b) for a in xs for b in ys]
    return functools.reduce(jnp.minimum, values), functools.reduce(jnp.maximum, values)


def magnitude(x: Interval) -> Interval:
    """|x|."""
    if is_point(x):
        return Interval(*[abs(x.low)] * 2)
    low, high = abs(x.low), abs(x.high)
    return Interval(jnp.where(contains_zero(x), 0, jnp.minimum(low, high)), jnp.maximum(low, high))
