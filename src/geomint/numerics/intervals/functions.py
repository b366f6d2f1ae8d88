"""Interval rules for functions of one number, and for atan2."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ..interpreter import RuleTable
from .interval import (
    ELEMENTARY,
    EVERYWHERE,
    ROUNDED,
    Interval,
    bind,
    contains_zero,
    corners,
    ends,
    is_point,
    magnitude,
    outward,
    unless,
)

RULES = RuleTable()


# --- functions of one number ------------------------------------------------------------------------------------------
def monotone(
    name: str,
    domain: tuple[float, float] = EVERYWHERE,
    image: tuple[float, float] = EVERYWHERE,
    falls: bool = False,
    slack: Any = ELEMENTARY,
) -> None:
    """Enter a rule for a function that increases, or decreases (`falls`), on its whole domain."""

    def f(equation: Any, x: Interval) -> Interval:
        inside = x if domain == EVERYWHERE else Interval(*ends(lambda a: jnp.clip(a, *domain), x))
        low, high = ends(bind(equation), inside)
        off = slack(magnitude(x).high) if callable(slack) else slack
        return outward(*((high, low) if falls else (low, high)), off, *image)

    RULES[name] = f


# Errors of XLA on the CPU, measured, in units of eps: ½ to 4, but |x|/3 where exp(x log 2) or exp(x ± log 2) is taken,
# x²/2 in erfc, and 120 in log1p just above 1 − √2 = −0.4142, which atanh uses too.
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


@RULES.enter("abs")
def absolute(equation: Any, x: Interval) -> Interval:
    return magnitude(x)


@RULES.enter("cosh")
def hyperbolic_cosine(equation: Any, x: Interval) -> Interval:
    size = magnitude(x)
    return outward(*ends(jnp.cosh, size), by_size(size.high), 1.0)


def passes(x: Interval, at: float, period: float) -> Array:
    """Whether at + k·period lies in x for some integer k. True where rounding makes it uncertain."""
    first, last = (x.low - at) / period, (x.high - at) / period
    margin = ELEMENTARY * jnp.finfo(first.dtype).eps * (1 + abs(first) + abs(last))
    return ~(jnp.floor(last + margin) < jnp.ceil(first - margin))


@RULES.enter("sin", "cos")
def sine_or_cosine(equation: Any, x: Interval) -> Interval:
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


@RULES.enter("tan")
def tangent(equation: Any, x: Interval) -> Interval:
    return unless(passes(x, math.pi / 2, math.pi), outward(*ends(bind(equation), x), ELEMENTARY))


@RULES.enter("atan2")
def arctangent(equation: Any, y: Interval, x: Interval) -> Interval:
    """Bounded by the values at the corners, unless the box touches the cut x ≤ 0 = y."""
    result = outward(*corners(bind(equation), y, x), ELEMENTARY)
    cut = contains_zero(y) & (x.low <= 0)
    return Interval(jnp.where(cut, -4.0, result.low), jnp.where(cut, 4.0, result.high))
