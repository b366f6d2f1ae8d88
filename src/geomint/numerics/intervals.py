"""Ranges: between which numbers a function lies while its argument runs through an interval.

The program that JAX makes of a function is read once more, in the arithmetic of intervals (Moore 1966; Neumaier, Interval
Methods for Systems of Equations, 1990): every operation is replaced by one that returns a range of its values. The result is
again a program of JAX, so that it may be compiled, mapped and used in a loop. Ranges are proofs, not estimates: they contain
the values of the function and of its evaluation in floating-point numbers, rounding included.

What makes ranges too wide is that one variable stands in several places, as in x·(1 − x). So equal expressions are computed
once and known to be equal (x·x is a square wherever its factors come from), and `curvature` adds the mean value theorem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jaxtyping import Array, PyTree

from ..errors import InputError
from .interval_rules import RULES, UNROLLED, Interval, everything, is_point, known, outward, select
from .jaxprs import inside, scan_sizes

__all__ = ["Interval", "curvature", "derivatives", "evaluate", "supported"]

STEPS = ("sign", "floor", "ceil", "round", "atan2")  # their derivatives do not tell of their jumps


def _is_interval(x: Any) -> bool:
    return isinstance(x, Interval)


def _interval(x: Any) -> Interval:
    """Of arrays; an array is an interval of one point."""
    low, high = x if _is_interval(x) else (x, x)
    array = jnp.asarray(low)
    return Interval(array, array if low is high else jnp.asarray(high))


def _needed(jaxpr: Any) -> list[Any]:
    """The equations that a result depends on: derivatives leave others behind."""
    wanted, kept = {id(x) for x in jaxpr.outvars}, []
    for equation in reversed(jaxpr.eqns):
        if any(id(x) in wanted for x in equation.outvars):
            wanted.update(map(id, equation.invars))
            kept.append(equation)
    return kept[::-1]


class _Reader:
    """Reads a jaxpr in the arithmetic of intervals.

    missing:  what there is no rule for, in the order it was met;
    certain:  for every comparison and every jump, whether it came out the same on the whole interval.
    """

    def __init__(self) -> None:
        self.missing: dict[str, None] = {}
        self.certain: list[Array] = []
        self.memory: dict[
            Any, tuple[Sequence[Interval], list[Interval]]
        ] = {}  # by the operands' identity: they are kept alive here
        self.literals: dict[Any, Interval] = {}
        self.extremes: dict[int, tuple[str, Sequence[Interval]]] = {}

    def call(self, function: Callable[..., PyTree], arguments: Sequence[PyTree]) -> PyTree:
        """The function of intervals; what it closes over, traced or not, are constants of its jaxpr."""
        leaves, tree = jax.tree.flatten(tuple(arguments), is_leaf=_is_interval)
        operands = [_interval(x) for x in leaves]
        program, shape = jax.make_jaxpr(lambda *x: function(*jax.tree.unflatten(tree, x)), return_shape=True)(
            *(x.low for x in operands)
        )
        return jax.tree.unflatten(jax.tree.structure(shape), [known(x) for x in self.read(program, operands)])

    def lack(self) -> str | None:
        names = ", ".join(self.missing)
        return (
            f"no range is known for {names}, as JAX calls {'it' if len(self.missing) == 1 else 'them'}, of an argument in an interval."
            if names
            else None
        )

    def demand(self, function: Callable[..., PyTree], arguments: Sequence[PyTree]) -> PyTree:
        """The same, and an error where a rule is missing."""
        results = self.call(function, arguments)
        if lack := self.lack():
            raise InputError(lack)
        return results

    def read(self, program: Any, arguments: Sequence[Interval]) -> list[Interval]:
        """The results of a jaxpr, closed or open."""
        jaxpr, values = getattr(program, "jaxpr", program), {}

        def value(x: Any) -> Interval:
            return self.literal(x) if isinstance(x, Literal) else values[x]

        values.update(zip(jaxpr.constvars, map(_interval, getattr(program, "consts", ())), strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in _needed(jaxpr):
            values.update(
                zip(equation.outvars, self.equation(equation, [value(x) for x in equation.invars]), strict=True)
            )
        return [value(x) for x in jaxpr.outvars]

    def literal(self, x: Any) -> Interval:
        number = np.asarray(x.val, x.aval.dtype)
        return self.literals.setdefault((number.dtype, number.shape, number.tobytes()), Interval(number, number))

    def equation(self, equation: Any, operands: Sequence[Interval]) -> list[Interval]:
        """Looked up where the same operation was read before: then the results are the same objects."""
        name = equation.primitive.name
        if (program := inside(equation)) is not None:
            return self.read(program, operands)
        key = (name, str(equation.params), *map(id, operands))
        if key not in self.memory:
            self.memory[key] = operands, self.apply(equation, operands)
        return self.memory[key][1]

    def apply(self, equation: Any, operands: Sequence[Interval]) -> list[Interval]:
        name, shapes = equation.primitive.name, [x.aval for x in equation.outvars]
        if is_point(*operands) and not any(jnp.issubdtype(x.dtype, jnp.inexact) for x in shapes):
            results = self.plainly(equation, operands)
        elif any(jnp.issubdtype(x.dtype, jnp.complexfloating) for x in shapes):
            results = NotImplemented
        elif name in ("cond", "scan"):
            results = getattr(self, name)(equation, operands)
        elif name == "eq" and (order := self.order(operands)) is not None:
            results = order
        elif name in RULES:
            results = RULES[name](equation, *operands)
        else:
            results = NotImplemented
        if results is NotImplemented and is_point(*operands):
            results = self.plainly(equation, operands)
        if results is NotImplemented:
            self.missing[name] = None
            results = [everything(x) for x in shapes]
        results = [results] if isinstance(results, Interval) else list(results)
        if name in ("max", "min"):
            self.extremes[id(results[0])] = name, operands
        for x in results:
            if not is_point(x) and (name in STEPS or not jnp.issubdtype(x.low.dtype, jnp.inexact)):
                self.certain.append(
                    jnp.all(x.high - x.low < 4 if name == "atan2" else x.low == x.high)
                )  # a box on the cut has all angles
        return results

    def plainly(self, equation: Any, operands: Sequence[Interval]) -> list[Interval]:
        """Whole numbers and decisions, which are exact; and what has no rule but does not depend on an interval either, such as
        a factorization of parameters: a constant of the function, taken as it is computed."""
        results = equation.primitive.bind(*(x.low for x in operands), **equation.params)
        return [Interval(x, x) for x in (results if equation.primitive.multiple_results else [results])]

    def order(self, operands: Sequence[Interval]) -> Interval | None:
        """The derivative of max(x, y) asks whether x = max(x, y). Of intervals that is never certain; whether x ≥ y may be."""
        for x, other in (operands, operands[::-1]):
            name, pair = self.extremes.get(id(other), ("", ()))
            if any(x is y for y in pair):
                y = pair[1] if x is pair[0] else pair[0]
                x, y = (x, y) if name == "max" else (y, x)
                shape = other.low.shape
                return Interval(jnp.broadcast_to(x.low >= y.high, shape), jnp.broadcast_to(~(x.high < y.low), shape))
        return None

    def cond(self, equation: Any, operands: Sequence[Interval]) -> list[Interval]:
        """Every branch, then as `select`."""
        which, *rest = operands
        branches = [self.read(branch, rest) for branch in equation.params["branches"]]
        return [select(equation, which, *cases) for cases in zip(*branches, strict=True)]

    def scan(self, equation: Any, operands: Sequence[Interval]) -> Any:
        """Written out, if it is short."""
        p = equation.params
        (fixed, carried), length = scan_sizes(equation), p["length"]
        if length > UNROLLED:
            return NotImplemented
        constants, carry, sequences = operands[:fixed], operands[fixed : fixed + carried], operands[fixed + carried :]
        kept: dict[int, list[Interval]] = {}
        for k in range(length)[:: -1 if p["reverse"] else 1]:
            rows = [Interval(*[x.low[k]] * 2) if is_point(x) else Interval(x.low[k], x.high[k]) for x in sequences]
            results = self.read(p["jaxpr"], [*constants, *carry, *rows])
            carry, kept[k] = results[:carried], results[carried:]
        stacked = [
            Interval(*(jnp.stack(side) for side in zip(*rows, strict=True)))
            for rows in zip(*(kept[k] for k in range(length)), strict=True)
        ]
        return [*carry, *stacked]


def evaluate(function: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """Intervals that contain f(x) for all x in the arguments: {f(x) : x ∈ X} ⊂ F(X), and F(X) → f(x) as X → {x}.

    The arguments are pytrees of arrays and Intervals; an array is a point, and so is all that the function closes over. The
    result is that of the function, an Interval in place of each array. It may be called while JAX traces.
    """
    return _Reader().demand(function, arguments)


def supported(function: Callable[..., PyTree], *arguments: PyTree) -> str | None:
    """None where `evaluate` knows the range of every operation of the function when all floating-point numbers among its arguments
    are intervals; otherwise a sentence that names the others. Of the curvature along a line: ``supported(derivatives(f, q, v), 0.0)``."""
    reader = _Reader()
    lows = jax.tree.map(lambda x: jnp.asarray(x.low if _is_interval(x) else x), arguments, is_leaf=_is_interval)

    def between(low: PyTree, high: PyTree) -> PyTree:
        pair = lambda a, b: Interval(a, b) if jnp.issubdtype(a.dtype, jnp.inexact) else Interval(a, a)
        return reader.call(function, jax.tree.map(pair, low, high))

    jax.eval_shape(between, lows, lows)
    return reader.lack()


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
    """A bound of a function with these values at the ends, whose slope lies between −fall ≤ 0 and rise ≥ 0.

    Before any point s it is at most left + s·rise, and after it right + (width − s)·fall; the best s makes them equal.
    """
    up = lambda x: outward(x, x).high
    s = jnp.clip(jnp.nan_to_num((right - left + fall * width) / (rise + fall)), 0.0, width)
    return jnp.maximum(up(left + up(s * rise)), up(right + up(up(width - s) * fall)))


def curvature(function: Callable[[PyTree], Array], q: PyTree, v: PyTree, start: Any, stop: Any) -> Interval:
    """Bounds of d²/dt² f(q + t v) for t from start to stop.

    Two ranges are intersected: that of φ'' as it is written, and the one that follows from φ''(start), φ''(stop) and the range
    of φ''' by the mean value theorem, which is too wide by O((stop − start)²) only, and exact where φ''' keeps its sign.
    Hypothesis: φ' is continuous. Where φ'' may jump (a comparison is not certain) the first range alone is used: the hull of all
    branches.
    """
    start, stop = jnp.asarray(start, float), jnp.asarray(stop, float)
    reader = _Reader()
    within, third = reader.demand(derivatives(function, q, v), (Interval(start, stop),))
    # Two more programs: as one, mapped over the interval and its ends, all would compile a little faster and run twice as long.
    left, right = (evaluate(_second(function, q, v), t) for t in (start, stop))
    rise, fall = jnp.maximum(third.high, 0.0), jnp.maximum(-third.low, 0.0)
    width = outward(stop - start, stop - start).high
    most, least = _peak(left.high, right.high, rise, fall, width), -_peak(-left.low, -right.low, fall, rise, width)
    smooth = jnp.all(jnp.array([True, *reader.certain]))
    return Interval(
        jnp.where(smooth & (least > within.low), least, within.low),
        jnp.where(smooth & (most < within.high), most, within.high),
    )
