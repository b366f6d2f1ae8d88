"""The range of every primitive of JAX that a smooth potential is written with: one table, `RULES`, from its name to its rule.

A rule takes an equation of a jaxpr and an `Interval` for each operand and returns one for each result; it contains every value
that the operation has on the operands, and every value that floating-point arithmetic gives for it: ends are moved outwards by
a few units in the last place (`outward`). A number that is known exactly is an Interval whose ends are one object; what only
moves such numbers about leaves them exact. Outside its domain a function has no values: √[−1, 4] = [0, 2] (IEEE 1788). Where
nothing is known, as for a quotient by an interval around zero, the range is (−∞, ∞). What comes of infinite ends may be nan,
which says the same: it spreads to whatever is computed from it, and `known` makes it infinite in the end. (Asking at every
operation whether an end is nan, and giving 0·∞ its value, would cost as much as all the rest.)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

EVERYWHERE = (-math.inf, math.inf)
ROUNDED = 4  # in units of eps: ½ for the operation, ½ for the step outwards, and room for what XLA rewrites, (a/b)/c as a/(bc)
ELEMENTARY = 16  # the same for exp, sin, …: XLA's approximations are good to a few units
UNROLLED = 64  # the longest scan that is written out


class Interval(NamedTuple):
    """All numbers from low to high, entry by entry."""

    low: Any
    high: Any


Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a rule under the names of its primitives."""

    def enter(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, f))
        return f

    return enter


# --- ends ---------------------------------------------------------------------------------------------------------------
def is_point(*operands: Interval) -> bool:
    """Are they known exactly? Decided when the program is made, not by comparing numbers."""
    return all(x.low is x.high for x in operands)


def constant(x: Interval) -> Any:
    """The number that a literal of the program is, or None."""
    return x.low.item() if isinstance(x.low, np.ndarray) and x.low is x.high and x.low.ndim == 0 else None


def contains_zero(x: Interval) -> Array:
    return (x.low <= 0) & (x.high >= 0)


def outward(
    low: Array, high: Array, slack: Any = ROUNDED, least: float = -math.inf, most: float = math.inf
) -> Interval:
    """[low − δ, high + δ] with δ = slack·eps·|end| and the smallest normal number (for what was flushed to zero), cut to
    [least, most]. Whole numbers and booleans are exact."""
    if not jnp.issubdtype(low.dtype, jnp.floating):
        return Interval(low, high)
    eps, tiny = jnp.finfo(low.dtype).eps, jnp.finfo(low.dtype).tiny
    low = low - (
        slack * eps * abs(low) + tiny
    )  # of ∞ nan: the number itself is only known to be beyond the largest one
    high = high + (slack * eps * abs(high) + tiny)
    return Interval(
        low if least == -math.inf else jnp.maximum(low, least), high if most == math.inf else jnp.minimum(high, most)
    )


def known(x: Interval) -> Interval:
    """nan made ∓∞."""
    if not jnp.issubdtype(x.low.dtype, jnp.floating):
        return x
    unknown = jnp.isnan(x.low) | jnp.isnan(x.high)
    return unless(unknown, x)


def unless(unknown: Array, x: Interval) -> Interval:
    """x, or (−∞, ∞) where nothing is known."""
    return Interval(jnp.where(unknown, -jnp.inf, x.low), jnp.where(unknown, jnp.inf, x.high))


def everything(like: Any) -> Interval:
    """(−∞, ∞), or both truth values, or all whole numbers."""
    dtype = np.dtype(like.dtype)
    if dtype.kind == "b":
        least, most = False, True
    elif jnp.issubdtype(dtype, jnp.integer):
        least, most = jnp.iinfo(dtype).min, jnp.iinfo(dtype).max
    else:
        least, most = -math.inf, math.inf
    return Interval(jnp.full(like.shape, least, dtype), jnp.full(like.shape, most, dtype))


def bind(equation: Any) -> Callable[..., Any]:
    return lambda *x: equation.primitive.bind(*x, **equation.params)


def ends(f: Callable[..., Any], *operands: Interval) -> tuple[Any, Any]:
    """f at the low ends and f at the high ends; once, and one object, for points."""
    low = f(*(x.low for x in operands))
    return low, (low if is_point(*operands) else f(*(x.high for x in operands)))


def corners(f: Callable[[Any, Any], Array], x: Interval, y: Interval) -> tuple[Array, Array]:
    """The least and largest of f at the corners of x × y, between which f lies if it is monotone in either variable alone."""
    xs, ys = (x[:1] if is_point(x) else x), (y[:1] if is_point(y) else y)
    values = [f(a, b) for a in xs for b in ys]
    return functools.reduce(jnp.minimum, values), functools.reduce(jnp.maximum, values)


def magnitude(x: Interval) -> Interval:
    """|x|."""
    if is_point(x):
        return Interval(*[abs(x.low)] * 2)
    low, high = abs(x.low), abs(x.high)
    return Interval(jnp.where(contains_zero(x), 0, jnp.minimum(low, high)), jnp.maximum(low, high))


# --- what only moves numbers about, or picks among them: exact, and increasing in every operand --------------------------------
@rule(
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
@rule(
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
@rule("and", "or", "reduce_and", "reduce_or", "gather", "scatter", "dynamic_slice", "dynamic_update_slice")
def exact(equation: Any, *operands: Interval) -> Any:
    name = equation.primitive.name
    moved = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2, "scatter": 1}.get(
        name, len(operands)
    )  # then come indices
    indices = operands[moved : moved + 1] if name == "scatter" else operands[moved:]
    if not is_point(*indices) or (name in ("and", "or", "reduce_and", "reduce_or") and operands[0].low.dtype != bool):
        return NotImplemented
    if name == "broadcast_in_dim" and operands[0].low.shape == equation.params["shape"]:
        return operands[0]
    low, high = ends(bind(equation), *operands)
    return (
        [Interval(*pair) for pair in zip(low, high, strict=True)]
        if equation.primitive.multiple_results
        else Interval(low, high)
    )


@rule("convert_element_type")
def convert(equation: Any, x: Interval) -> Any:
    old, new = np.dtype(x.low.dtype), np.dtype(equation.params["new_dtype"])
    if old == new:
        return x
    if constant(x) is not None and jnp.result_type(old, new) == new:
        return Interval(*[np.asarray(x.low, new)] * 2)  # still a literal
    if jnp.issubdtype(old, jnp.floating) and not jnp.issubdtype(new, jnp.floating) and not is_point(x):
        return NotImplemented  # an end may be infinite, or too large
    low, high = ends(bind(equation), x)
    return Interval(low, high) if jnp.result_type(old, new) == new else outward(low, high)


@rule("select_n")
def select(equation: Any, which: Interval, *cases: Interval) -> Interval:
    """The case that is meant, and the hull of all that may be meant."""
    if is_point(which):
        return Interval(*ends(functools.partial(jax.lax.select_n, which.low), *cases))
    low, high = (jax.lax.select_n(which.low, *(case[end] for case in cases)) for end in (0, 1))
    for k, case in enumerate(cases):
        possible = (which.low <= k) & (k <= which.high)
        low = jnp.where(possible, jnp.minimum(low, case.low), low)
        high = jnp.where(possible, jnp.maximum(high, case.high), high)
    return Interval(low, high)


# --- comparisons: [certainly, possibly] -----------------------------------------------------------------------------------
@rule("lt", "le", "gt", "ge", "eq", "ne")
def compare(equation: Any, x: Interval, y: Interval) -> Interval:
    name = equation.primitive.name
    if is_point(x, y):
        certainly = bind(equation)(x.low, y.low)
        return Interval(certainly, certainly)
    if x is y:  # how one asks for a nan
        return Interval(*[jnp.full(x.low.shape, name in ("le", "ge", "eq"))] * 2)
    if name in ("gt", "ge"):
        x, y = y, x
    if name in ("lt", "gt"):
        return Interval(x.high < y.low, ~(x.low >= y.high))  # "not at least", so that a nan leaves it open
    if name in ("le", "ge"):
        return Interval(x.high <= y.low, ~(x.low > y.high))
    same, apart = (x.high == y.low) & (x.low == y.high), (x.low > y.high) | (y.low > x.high)
    return Interval(same, ~apart) if name == "eq" else Interval(apart, ~same)


@rule("argmax")
def place(equation: Any, x: Interval) -> Interval:
    """Of the first largest entry: no earlier one is certainly as large, and no later one certainly larger."""
    (axis,), count = equation.params["axes"], x.low.shape[equation.params["axes"][0]]
    low, high = (jnp.moveaxis(end.astype(jnp.int8) if end.dtype == bool else end, axis, -1) for end in x)
    earlier = jax.lax.cummax(low, axis=low.ndim - 1)[..., :-1]
    possible = ~(high < jnp.max(low, -1, keepdims=True)) & jnp.concatenate(
        [jnp.full_like(high[..., :1], True, bool), ~(high[..., 1:] <= earlier)], -1
    )
    first, last = jnp.argmax(possible, -1), count - 1 - jnp.argmax(possible[..., ::-1], -1)
    return Interval(*(end.astype(equation.params["index_dtype"]) for end in (first, last)))


@rule("not", "neg")
def reverse(equation: Any, x: Interval) -> Interval:
    low, high = ends(bind(equation), x)
    return Interval(high, low)


# --- arithmetic -----------------------------------------------------------------------------------------------------------
@rule("add", "add_any", "sub")
def add(equation: Any, x: Interval, y: Interval) -> Interval:
    f = bind(equation)
    a, b = constant(x), constant(y)
    if (
        isinstance(a, float) and isinstance(b, float) and math.isfinite(a) and math.isfinite(b)
    ):  # an exponent less one, in the derivative of a power
        subtract = equation.primitive.name == "sub"
        value = np.asarray(a - b if subtract else a + b, x.low.dtype)
        if Fraction(a) + (-Fraction(b) if subtract else Fraction(b)) == Fraction(value.item()):
            return Interval(value, value)
    return outward(*ends(f, x, Interval(y.high, y.low) if equation.primitive.name == "sub" else y))


@rule("mul")
def multiply(equation: Any, x: Interval, y: Interval) -> Interval:
    if x is y and not is_point(x):
        return power(x, 2)
    for factor, other in ((constant(x), y), (constant(y), x)):
        if factor == 1:
            return other  # one object still: so x·x is known for what it is in derivatives of derivatives
        if factor is not None and factor != 0:
            low, high = ends(lambda a, c=factor: a * np.asarray(c, a.dtype), other)
            return outward(
                *((low, high) if factor > 0 else (high, low)), 0 if abs(math.frexp(factor)[0]) == 0.5 else ROUNDED
            )
    return outward(*corners(jnp.multiply, x, y))


@rule("div")
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
RULES["one_minus_square"] = lambda equation, x: outward(
    1 - power(x, 2).high, 1 - power(x, 2).low
)  # in the derivative of tanh, from JAX 0.11 on


@rule("pow")
def real_power(equation: Any, x: Interval, y: Interval) -> Interval:
    """x^y of x ≥ 0, and of all x if y is a whole number of the program."""
    n = constant(y)
    if n is not None and n == int(n):
        return power(x, int(n))
    exponent = Interval(*(end.astype(x.low.dtype) for end in y))
    result = outward(*corners(lambda a, b: jnp.power(jnp.maximum(a, 0), b), x, exponent), ELEMENTARY, 0.0)
    unknown = (x.low < 0) if n is None else (x.high < 0)  # an exponent that is no literal may be a whole number
    return unless(unknown, result)


# --- sums -------------------------------------------------------------------------------------------------------------------
def before_sum(x: Interval, count: float) -> Interval:
    """Σ of n terms in any order is off by less than n·eps·Σ|x|, which may be far more than eps times the sum: so every term is
    moved outwards by n·eps of itself, and then they are summed."""
    return outward(*x, ROUNDED + count)


@rule("reduce_sum", "cumsum", "scatter-add", "scatter_add")
def total(equation: Any, *operands: Interval) -> Any:
    if not is_point(*operands[1:2]):
        return NotImplemented
    result = equation.outvars[0].aval
    count = (
        operands[-1].low.size / (result.size or 1) if equation.primitive.name == "reduce_sum" else operands[-1].low.size
    )
    return Interval(*ends(bind(equation), *(before_sum(x, count) for x in operands)))


@rule("dot_general")
def dot(equation: Any, x: Interval, y: Interval) -> Any:
    """Products of entries, then their sum, so that a sum of squares is known to be one."""
    (cx, cy), (bx, by) = equation.params["dimension_numbers"]
    fx, fy = ([d for d in range(z.low.ndim) if d not in (*c, *b)] for z, c, b in ((x, cx, bx), (y, cy, by)))

    def arranged(z: Interval, b: Any, before: int, free: list[int], after: int, c: Any) -> Interval:
        """Axes: shared, free in x, free in y, summed."""
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


# --- functions of one number --------------------------------------------------------------------------------------------------
def monotone(
    name: str,
    domain: tuple[float, float] = EVERYWHERE,
    image: tuple[float, float] = EVERYWHERE,
    falls: bool = False,
    slack: Any = ELEMENTARY,
) -> None:
    """Enter a rule for a function that rises, or falls, from end to end of its domain."""

    def f(equation: Any, x: Interval) -> Interval:
        inside = x if domain == EVERYWHERE else Interval(*ends(lambda a: jnp.clip(a, *domain), x))
        low, high = ends(bind(equation), inside)
        off = slack(magnitude(x).high) if callable(slack) else slack
        return outward(*((high, low) if falls else (low, high)), off, *image)

    RULES[name] = f


# Errors of XLA on the CPU, measured, in units of eps: ½ to 4, but |x|/3 where exp(x log 2) or exp(x ± log 2) is taken, x²/2 in
# erfc, and 120 in log1p just above 1 − √2 = −.4142, on which atanh rests too.
by_size, by_square = (lambda x: ELEMENTARY + 2 * x), (lambda x: ELEMENTARY + 2 * x * x)
for _name in ("cbrt", "asinh", "expm1", "erf", "atan"):
    monotone(_name)
monotone("sinh", slack=by_size)
monotone("exp", image=(0, math.inf))
monotone("exp2", image=(0, math.inf), slack=by_size)
monotone("sqrt", (0, math.inf), (0, math.inf), slack=ROUNDED)
monotone("rsqrt", (0, math.inf), (0, math.inf), falls=True)
monotone("log", (0, math.inf))
monotone("log1p", (-1, math.inf), slack=32 * ELEMENTARY)
monotone("tanh", image=(-1, 1))
monotone("logistic", image=(0, 1))
monotone("erfc", image=(0, 2), falls=True, slack=by_square)
monotone("asin", (-1, 1))
monotone("acos", (-1, 1), falls=True)
monotone("acosh", (1, math.inf), (0, math.inf))
monotone("atanh", (-1, 1), slack=32 * ELEMENTARY)


@rule("abs")
def absolute(equation: Any, x: Interval) -> Interval:
    return magnitude(x)


@rule("cosh")
def hyperbolic_cosine(equation: Any, x: Interval) -> Interval:
    size = magnitude(x)
    return outward(*ends(jnp.cosh, size), by_size(size.high), 1.0)


def passes(x: Interval, at: float, period: float) -> Array:
    """Does at + k·period lie in x for some whole number k? Where rounding leaves it open, yes."""
    first, last = (x.low - at) / period, (x.high - at) / period
    margin = ELEMENTARY * jnp.finfo(first.dtype).eps * (1 + abs(first) + abs(last))
    return ~(jnp.floor(last + margin) < jnp.ceil(first - margin))


@rule("sin", "cos")
def wave(equation: Any, x: Interval) -> Interval:
    f, top = bind(equation), 0.0 if equation.primitive.name == "cos" else math.pi / 2
    if is_point(x):
        return outward(*ends(f, x), ELEMENTARY, -1.0, 1.0)
    low, high = f(x.low), f(x.high)
    low, high = jnp.minimum(low, high), jnp.maximum(low, high)
    low, high = (
        jnp.where(passes(x, top + math.pi, 2 * math.pi), -1, low),
        jnp.where(passes(x, top, 2 * math.pi), 1, high),
    )
    return outward(low, high, ELEMENTARY, -1.0, 1.0)


@rule("tan")
def tangent(equation: Any, x: Interval) -> Interval:
    return unless(passes(x, math.pi / 2, math.pi), outward(*ends(bind(equation), x), ELEMENTARY))


@rule("atan2")
def angle(equation: Any, y: Interval, x: Interval) -> Interval:
    """At the corners, unless the box touches the cut x ≤ 0 = y."""
    result = outward(*corners(bind(equation), y, x), ELEMENTARY)
    cut = contains_zero(y) & (x.low <= 0)
    return Interval(jnp.where(cut, -4.0, result.low), jnp.where(cut, 4.0, result.high))
