"""Interval rules for JAX primitives: moves, choices, comparisons, arithmetic, sums.

A rule takes an equation of a jaxpr and an `Interval` for each operand and returns one for each result, or
NotImplemented. The result contains every value that the operation has on the operands, and every value that
floating-point arithmetic gives for it: ends are moved outwards by a few units in the last place (`outward`). A number
that is known exactly is an Interval whose two ends are one object; operations that only move numbers keep that. Outside
its domain a function has no values: √[−1, 4] = [0, 2] (IEEE 1788). Where nothing is known, as for a quotient by an
interval around zero, the range is (−∞, ∞). Arithmetic on infinite ends may give nan, which means the same: it spreads
to all later results, and `known` replaces it by ∓∞ at the end. (Testing for nan, and defining 0·∞, in every operation
would double the cost.)
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..interpreter import RuleTable
from .interval import (
    ELEMENTARY,
    ROUNDED,
    Interval,
    bind,
    constant,
    contains_zero,
    corners,
    ends,
    is_point,
    magnitude,
    outward,
    unless,
)

RULES = RuleTable()


# --- operations that move or select numbers: exact, and increasing in every operand -----------------------------------
@RULES.enter(
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "expand_dims",
    "transpose",
    "slice",
    "rev",
    "concatenate",
    "stack",
    "unstack",
    "pad",
    "split",
    "copy",
    "copy_p",
    "max",
    "min",
    "clamp",
)
@RULES.enter(
    "reduce_max",
    "reduce_min",
    "cummax",
    "cummin",
    "floor",
    "ceil",
    "round",
    "sign",
    "stop_gradient",
    "name",
    "device_put",
    "optimization_barrier",
    "sharding_constraint",
)
@RULES.enter("and", "or", "reduce_and", "reduce_or", "gather", "scatter", "dynamic_slice", "dynamic_update_slice")
def exact(equation: Any, *operands: Interval) -> Any:
    name = equation.primitive.name
    # How many operands are data; the next ones are indices.
    moved = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2, "scatter": 1}.get(name, len(operands))
    indices = operands[moved : moved + 1] if name == "scatter" else operands[moved:]
    if not is_point(*indices) or (name in ("and", "or", "reduce_and", "reduce_or") and operands[0].low.dtype != bool):
        return NotImplemented
    if name == "broadcast_in_dim" and operands[0].low.shape == equation.params["shape"]:
        return operands[0]
    low, high = ends(bind(equation), *operands)
    if equation.primitive.multiple_results:
        return [Interval(*pair) for pair in zip(low, high, strict=True)]
    return Interval(low, high)


@RULES.enter("convert_element_type")
def convert(equation: Any, x: Interval) -> Any:
    old, new = np.dtype(x.low.dtype), np.dtype(equation.params["new_dtype"])
    if old == new:
        return x
    if constant(x) is not None and jnp.result_type(old, new) == new:
        return Interval(*[np.asarray(x.low, new)] * 2)  # remains a literal
    if jnp.issubdtype(old, jnp.floating) and not jnp.issubdtype(new, jnp.floating) and not is_point(x):
        return NotImplemented  # an end may be infinite, or too large
    low, high = ends(bind(equation), x)
    return Interval(low, high) if jnp.result_type(old, new) == new else outward(low, high)


@RULES.enter("select_n")
def select(equation: Any, which: Interval, *cases: Interval) -> Interval:
    """The selected case; where the index is not certain, the hull of all cases that it may select."""
    if is_point(which):
        return Interval(*ends(functools.partial(jax.lax.select_n, which.low), *cases))
    low, high = (jax.lax.select_n(which.low, *(case[end] for case in cases)) for end in (0, 1))
    for k, case in enumerate(cases):
        possible = (which.low <= k) & (k <= which.high)
        low = jnp.where(possible, jnp.minimum(low, case.low), low)
        high = jnp.where(possible, jnp.maximum(high, case.high), high)
    return Interval(low, high)


# --- comparisons: [certainly, possibly] -------------------------------------------------------------------------------
@RULES.enter("lt", "le", "gt", "ge", "eq", "ne")
def compare(equation: Any, x: Interval, y: Interval) -> Interval:
    name = equation.primitive.name
    if is_point(x, y):
        certainly = bind(equation)(x.low, y.low)
        return Interval(certainly, certainly)
    if x is y:  # x = x is a test for nan
        return Interval(*[jnp.full(x.low.shape, name in ("le", "ge", "eq"))] * 2)
    if name in ("gt", "ge"):
        x, y = y, x
    if name in ("lt", "gt"):
        return Interval(
            x.high < y.low, ~(x.low >= y.high)
        )  # "not ≥" instead of "<": true for nan, which leaves the result uncertain
    if name in ("le", "ge"):
        return Interval(x.high <= y.low, ~(x.low > y.high))
    same, apart = (x.high == y.low) & (x.low == y.high), (x.low > y.high) | (y.low > x.high)
    return Interval(same, ~apart) if name == "eq" else Interval(apart, ~same)


@RULES.enter("argmax")
def argmax(equation: Any, x: Interval) -> Interval:
    """The index of the first largest entry: no earlier entry is certainly as large, no later one certainly larger."""
    (axis,), count = equation.params["axes"], x.low.shape[equation.params["axes"][0]]
    low, high = (jnp.moveaxis(end.astype(jnp.int8) if end.dtype == bool else end, axis, -1) for end in x)
    earlier = jax.lax.cummax(low, axis=low.ndim - 1)[..., :-1]
    possible = ~(high < jnp.max(low, -1, keepdims=True)) & jnp.concatenate(
        [jnp.full_like(high[..., :1], True, bool), ~(high[..., 1:] <= earlier)], -1
    )
    first, last = jnp.argmax(possible, -1), count - 1 - jnp.argmax(possible[..., ::-1], -1)
    return Interval(*(end.astype(equation.params["index_dtype"]) for end in (first, last)))


@RULES.enter("not", "neg")
def decreasing(equation: Any, x: Interval) -> Interval:
    low, high = ends(bind(equation), x)
    return Interval(high, low)


# --- arithmetic -------------------------------------------------------------------------------------------------------
@RULES.enter("add", "add_any", "sub")
def add(equation: Any, x: Interval, y: Interval) -> Interval:
    f = bind(equation)
    a, b = constant(x), constant(y)
    # Literals whose sum is exact stay literals: the exponent n − 1 in the derivative of a power.
    if isinstance(a, float) and isinstance(b, float) and math.isfinite(a) and math.isfinite(b):
        subtract = equation.primitive.name == "sub"
        value = np.asarray(a - b if subtract else a + b, x.low.dtype)
        if Fraction(a) + (-Fraction(b) if subtract else Fraction(b)) == Fraction(value.item()):
            return Interval(value, value)
    return outward(*ends(f, x, Interval(y.high, y.low) if equation.primitive.name == "sub" else y))


@RULES.enter("mul")
def multiply(equation: Any, x: Interval, y: Interval) -> Interval:
    if x is y and not is_point(x):
        return power(x, 2)
    for factor, other in ((constant(x), y), (constant(y), x)):
        if factor == 1:
            return other  # the same object: in derivatives of derivatives x·x is then recognised as a square
        if factor is not None and factor != 0:
            low, high = ends(lambda a, c=factor: a * np.asarray(c, a.dtype), other)
            return outward(
                *((low, high) if factor > 0 else (high, low)), 0 if abs(math.frexp(factor)[0]) == 0.5 else ROUNDED
            )
    return outward(*corners(jnp.multiply, x, y))


@RULES.enter("div")
def divide(equation: Any, x: Interval, y: Interval) -> Any:
    if not jnp.issubdtype(x.low.dtype, jnp.floating):
        return NotImplemented
    return unless(contains_zero(y), outward(*corners(jnp.divide, x, y)))


def power(x: Interval, n: int) -> Interval:
    """xⁿ: of |x| for even n, monotone for odd n on either side of the pole that it has at zero for n < 0."""
    f = functools.partial(jax.lax.integer_pow, y=n)
    low, high = ends(f, magnitude(x) if n % 2 == 0 else x)
    low, high = (low, high) if n >= 0 else (high, low)
    result = outward(low, high, ROUNDED + abs(n), 0.0 if n % 2 == 0 else -math.inf)
    return result if n > 0 or n % 2 == 0 else unless(contains_zero(x), result)


RULES["integer_pow"] = lambda equation, x: power(x, equation.params["y"])
RULES["square"] = lambda equation, x: power(x, 2)
# In the derivative of tanh, from JAX 0.11 on.
RULES["one_minus_square"] = lambda equation, x: outward(1 - power(x, 2).high, 1 - power(x, 2).low)


@RULES.enter("pow")
def real_power(equation: Any, x: Interval, y: Interval) -> Interval:
    """x^y for x ≥ 0, and for all x if y is a literal and an integer."""
    n = constant(y)
    if n is not None and n == int(n):
        return power(x, int(n))
    exponent = Interval(*(end.astype(x.low.dtype) for end in y))
    result = outward(*corners(lambda a, b: jnp.power(jnp.maximum(a, 0), b), x, exponent), ELEMENTARY, 0.0)
    unknown = (x.low < 0) if n is None else (x.high < 0)  # an exponent that is not a literal may be an integer
    return unless(unknown, result)


# --- sums -------------------------------------------------------------------------------------------------------------
def before_sum(x: Interval, count: float) -> Interval:
    """The terms of a sum of n, widened for its rounding error. In any order of summation the error is less than
    n·eps·Σ|x|, which may be far more than eps times the sum: so every term is moved outwards by n·eps of itself."""
    return outward(*x, ROUNDED + count)


@RULES.enter("reduce_sum", "cumsum", "scatter-add", "scatter_add")
def total(equation: Any, *operands: Interval) -> Any:
    if not is_point(*operands[1:2]):
        return NotImplemented
    result = equation.outvars[0].aval
    count = (
        operands[-1].low.size / (result.size or 1) if equation.primitive.name == "reduce_sum" else operands[-1].low.size
    )
    return Interval(*ends(bind(equation), *(before_sum(x, count) for x in operands)))


@RULES.enter("dot_general")
def dot(equation: Any, x: Interval, y: Interval) -> Any:
    """Products of entries, then their sum, so that squares in the sum are recognised."""
    (cx, cy), (bx, by) = equation.params["dimension_numbers"]
    fx, fy = ([d for d in range(z.low.ndim) if d not in (*c, *b)] for z, c, b in ((x, cx, bx), (y, cy, by)))

    def arranged(z: Interval, b: Any, before: int, free: list[int], after: int, c: Any) -> Interval:
        """z with the axes in the order: batch, free in x, free in y, summed."""
        shape = (
            [z.low.shape[d] for d in b]
            + [1] * before
            + [z.low.shape[d] for d in free]
            + [1] * after
            + [z.low.shape[d] for d in c]
        )
        return Interval(*ends(lambda a: jnp.transpose(a, (*b, *free, *c)).reshape(shape), z))

    u = arranged(x, bx, 0, fx, len(fy), cx)
    v = (
        u
        if x is y and not fx and tuple(cx) == tuple(cy) and tuple(bx) == tuple(by)
        else arranged(y, by, len(fx), fy, 0, cy)
    )
    terms = multiply(equation, u, v)
    axes = tuple(range(len(bx) + len(fx) + len(fy), terms.low.ndim))
    count = math.prod(terms.low.shape[d] for d in axes)
    return Interval(*ends(lambda a: jnp.sum(a, axes), before_sum(terms, count)))
