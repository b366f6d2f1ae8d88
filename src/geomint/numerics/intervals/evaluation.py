"""Functions evaluated on intervals: the interpreter with the interval rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...errors import InputError
from ..interpreter import Interpreter
from . import functions, rules
from .interval import Interval, everything, is_point, known

JUMPS = {"sign", "floor", "ceil", "round", "atan2"}  # discontinuous, which their derivatives do not show
LONGEST_SCAN = 64  # iterations; a longer scan is not unrolled


def _is_interval(x: Any) -> bool:
    return isinstance(x, Interval)


def _interval(x: Any) -> Interval:
    """An interval of arrays; an array is an interval of one point."""
    low, high = x if _is_interval(x) else (x, x)
    array = jnp.asarray(low)
    return Interval(array, array if low is high else jnp.asarray(high))


class IntervalInterpreter(Interpreter):
    """Evaluates a jaxpr in interval arithmetic.

    missing:   the primitives without a rule, in the order in which they occurred;
    certain:   for every comparison and every discontinuous function, whether it has one value on the whole interval;
    memory:    the results of all operations by the identity of their operands, which are kept alive here. An expression
               that occurs twice has the same Interval object, so that rules recognise equal operands;
    extremes:  for every result of max and min, its operands.
    """

    table = {**rules.RULES, **functions.RULES}
    rule_while = rule_custom_linear_solve = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.missing: dict[str, None] = {}
        self.certain: list[Array] = []
        self.memory: dict[Any, tuple[Sequence[Interval], list[Interval]]] = {}
        self.literals: dict[Any, Interval] = {}
        self.extremes: dict[int, tuple[str, Sequence[Interval]]] = {}

    def call(self, function: Callable[..., PyTree], arguments: Sequence[PyTree]) -> PyTree:
        """The function on intervals; values that it closes over, traced or not, are constants of its jaxpr."""
        leaves, tree = jax.tree.flatten(tuple(arguments), is_leaf=_is_interval)
        operands = [_interval(x) for x in leaves]
        program, shape = jax.make_jaxpr(lambda *x: function(*jax.tree.unflatten(tree, x)), return_shape=True)(
            *(x.low for x in operands)
        )
        return jax.tree.unflatten(jax.tree.structure(shape), [known(x) for x in self.evaluate(program, operands)])

    def missing_rules(self) -> str | None:
        """A sentence that names the primitives without a rule."""
        if not self.missing:
            return None
        return f"interval arithmetic has no rule for the JAX primitives: {', '.join(self.missing)}."

    def call_or_raise(self, function: Callable[..., PyTree], arguments: Sequence[PyTree]) -> PyTree:
        """The function on intervals; an error where a rule is missing."""
        results = self.call(function, arguments)
        if message := self.missing_rules():
            raise InputError(message)
        return results

    # --- kinds of values --------------------------------------------------------------------------------------------
    def constant(self, x: Any) -> Interval:
        return _interval(x)

    def literal(self, x: Any) -> Interval:
        number = np.asarray(x.val, x.aval.dtype)
        return self.literals.setdefault((number.dtype, number.shape, number.tobytes()), Interval(number, number))

    def row(self, x: Interval, k: int) -> Interval:
        return Interval(*[x.low[k]] * 2) if is_point(x) else Interval(x.low[k], x.high[k])

    def stack(self, rows: Sequence[Interval], aval: Any) -> Interval:
        if not rows:
            return Interval(*[jnp.zeros(aval.shape, aval.dtype)] * 2)
        return Interval(*(jnp.stack(side) for side in zip(*rows, strict=True)))

    # --- operations -------------------------------------------------------------------------------------------------
    def equations(self, jaxpr: Any) -> list[Any]:
        """The equations on which a result depends; differentiation leaves others in the program."""
        wanted, kept = {id(x) for x in jaxpr.outvars}, []
        for equation in reversed(jaxpr.eqns):
            if any(id(x) in wanted for x in equation.outvars):
                wanted.update(map(id, equation.invars))
                kept.append(equation)
        return kept[::-1]

    def operation(self, equation: Any, operands: list[Interval]) -> list[Interval]:
        key = (equation.primitive.name, str(equation.params), *map(id, operands))
        if key not in self.memory:
            self.memory[key] = operands, self.apply(equation, operands)
        return self.memory[key][1]

    def apply(self, equation: Any, operands: list[Interval]) -> list[Interval]:
        """The results of an operation that was not evaluated before."""
        name, shapes = equation.primitive.name, [x.aval for x in equation.outvars]
        if is_point(*operands) and not any(jnp.issubdtype(x.dtype, jnp.inexact) for x in shapes):
            results = self.on_points(equation, operands)
        elif any(jnp.issubdtype(x.dtype, jnp.complexfloating) for x in shapes):
            results = NotImplemented
        else:
            rule = self.rule(name)
            results = NotImplemented if rule is None else rule(equation, *operands)
        if results is NotImplemented and is_point(*operands):
            results = self.on_points(equation, operands)
        if results is NotImplemented:
            self.missing[name] = None
            results = [everything(x) for x in shapes]
        results = [results] if isinstance(results, Interval) else list(results)
        if name in ("max", "min"):
            self.extremes[id(results[0])] = name, operands
        for x in results:
            if not is_point(x) and (name in JUMPS or not jnp.issubdtype(x.low.dtype, jnp.inexact)):
                # On its cut atan2 has the range [−4, 4].
                self.certain.append(jnp.all(x.high - x.low < 4 if name == "atan2" else x.low == x.high))
        return results

    def on_points(self, equation: Any, operands: Sequence[Interval]) -> list[Interval]:
        """The operation itself, on points.

        For integers and truth values this is exact. A primitive without a rule whose operands do not depend on an
        interval (a factorization of parameters) is a constant of the function, taken as it is computed.
        """
        results = equation.primitive.bind(*(x.low for x in operands), **equation.params)
        return [Interval(x, x) for x in (results if equation.primitive.multiple_results else [results])]

    def rule_eq(self, equation: Any, *operands: Interval) -> Interval:
        """JAX differentiates max(x, y) by testing x == max(x, y). Intervals are never known to be equal, but x ≥ y may
        be known, and means the same."""
        for x, other in (operands, operands[::-1]):
            name, pair = self.extremes.get(id(other), ("", ()))
            if any(x is y for y in pair):
                y = pair[1] if x is pair[0] else pair[0]
                x, y = (x, y) if name == "max" else (y, x)
                shape = other.low.shape
                return Interval(jnp.broadcast_to(x.low >= y.high, shape), jnp.broadcast_to(~(x.high < y.low), shape))
        return rules.compare(equation, *operands)

    def rule_cond(self, equation: Any, which: Interval, *operands: Interval) -> list[Interval]:
        """The hull of all branches that may be taken."""
        branches = [self.inner(equation, branch, operands) for branch in equation.params["branches"]]
        return [rules.select(equation, which, *cases) for cases in zip(*branches, strict=True)]

    def rule_scan(self, equation: Any, *operands: Interval) -> Any:
        if equation.params["length"] > LONGEST_SCAN:
            return NotImplemented
        return super().rule_scan(equation, *operands)


def evaluate(function: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """Intervals that contain f(x) for all x in the arguments: {f(x) : x ∈ X} ⊂ F(X), and F(X) → f(x) as X → {x}.

    The arguments are pytrees of arrays and Intervals; an array is a point, and so is all that the function closes over.
    The result is that of the function, an Interval in place of each array. It may be called while JAX traces.
    """
    return IntervalInterpreter().call_or_raise(function, arguments)


def supported(function: Callable[..., PyTree], *arguments: PyTree) -> str | None:
    """Whether `evaluate` has a rule for every operation of a function on intervals.

    All floating-point numbers among the arguments are taken as intervals. The result is None, or a sentence that names
    the operations without a rule. For the curvature along a line: ``supported(derivatives(f, q, v), 0.0)``.
    """
    interpreter = IntervalInterpreter()
    lows = jax.tree.map(lambda x: jnp.asarray(x.low if _is_interval(x) else x), arguments, is_leaf=_is_interval)

    def between(low: PyTree, high: PyTree) -> PyTree:
        pair = lambda a, b: Interval(a, b) if jnp.issubdtype(a.dtype, jnp.inexact) else Interval(a, a)
        return interpreter.call(function, jax.tree.map(pair, low, high))

    jax.eval_shape(between, lows, lows)
    return interpreter.missing_rules()
