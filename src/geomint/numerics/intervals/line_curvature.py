"""Rigorous bounds of the second derivative of a function along a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .evaluation import IntervalInterpreter, evaluate
from .interval import Interval, outward


def _rate(f: Callable[[Any], Array]) -> Callable[[Any], tuple[Array, Array]]:
    """t ↦ (f(t), f'(t))."""
    return lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))


def _second(function: Callable[[PyTree], Array], q: PyTree, v: PyTree) -> Callable[[Any], Array]:
    """φ'' of φ(t) = f(q + t v)."""
    first = lambda t: _rate(lambda s: function(jax.tree.map(lambda x, d: x + s * d, q, v)))(t)[1]
    return lambda t: _rate(first)(t)[1]


def derivatives(function: Callable[[PyTree], Array], q: PyTree, v: PyTree) -> Callable[[Any], tuple[Array, Array]]:
    """t ↦ (φ''(t), φ'''(t)) of φ(t) = f(q + t v)."""
    return _rate(_second(function, q, v))


def _peak(left: Array, right: Array, rise: Array, fall: Array, width: Array) -> Array:
    """An upper bound of a function with these values at the ends, whose slope lies between −fall ≤ 0 and rise ≥ 0.

    Before any point s it is at most left + s·rise, and after it right + (width − s)·fall; the best s makes them equal.
    """
    up = lambda x: outward(x, x).high
    s = jnp.clip(jnp.nan_to_num((right - left + fall * width) / (rise + fall)), 0.0, width)
    return jnp.maximum(up(left + up(s * rise)), up(right + up(up(width - s) * fall)))


def curvature(function: Callable[[PyTree], Array], q: PyTree, v: PyTree, start: Any, stop: Any) -> Interval:
    """Bounds of d²/dt² f(q + t v) for t from start to stop.

    Two ranges are intersected: that of φ'' as it is written, and the one that follows from φ''(start), φ''(stop) and
    the range of φ''' by the mean value theorem, which is too wide by O((stop − start)²) only, and exact where φ'''
    keeps its sign. Hypothesis: φ' is continuous. Where φ'' may jump (a comparison is not certain) the first range alone
    is used: the hull of all branches.
    """
    start, stop = jnp.asarray(start, float), jnp.asarray(stop, float)
    interpreter = IntervalInterpreter()
    within, third = interpreter.call_or_raise(derivatives(function, q, v), (Interval(start, stop),))
    # The ends are evaluated by two more programs: one program mapped over the interval and its ends would compile a
    # little faster and run twice as long.
    left, right = (evaluate(_second(function, q, v), t) for t in (start, stop))
    rise, fall = jnp.maximum(third.high, 0.0), jnp.maximum(-third.low, 0.0)
    width = outward(stop - start, stop - start).high
    most, least = _peak(left.high, right.high, rise, fall, width), -_peak(-left.low, -right.low, fall, rise, width)
    smooth = jnp.all(jnp.array([True, *interpreter.certain]))
    return Interval(
        jnp.where(smooth & (least > within.low), least, within.low),
        jnp.where(smooth & (most < within.high), most, within.high),
    )
