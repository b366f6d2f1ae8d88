"""Counts the floating-point operations of a step, by evaluating the scalar program of the native and kernel engines."""

from __future__ import annotations

import collections
import math
import operator
from typing import Any

import jax
import numpy as np

from geomint.engines.scalar.fma_fusion import OptimizingCode
from geomint.engines.scalar.program import Loop, LoopArguments, StepProgram
from geomint.engines.scalar.values import constant

OPERATIONS: dict[str, Any] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg,
    "div": lambda x, y: x / y if isinstance(x, float) else int(x / y), "rough": lambda x: 1 / x, "max": max,
    "min": min, "abs": abs, "sign": lambda x: (x > 0) - (x < 0), "pow": operator.pow, "rem": math.fmod,
    "is_finite": math.isfinite, "not": operator.not_, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "eq": operator.eq, "ne": operator.ne, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "log1p": math.log1p, "sin": math.sin,
    "cos": math.cos, "tan": math.tan, "tanh": math.tanh, "floor": math.floor, "atan2": math.atan2, "ceil": math.ceil,
    "cbrt": math.cbrt if hasattr(math, "cbrt") else lambda x: x ** (1 / 3),
    "select": lambda which, yes, no: yes if which else no, "shift_left": operator.lshift,
    "shift_right_logical": operator.rshift, "shift_right_arithmetic": operator.rshift, "to f": float, "to i": int,
    "to b": bool,
}  # fmt: skip


class Number:
    """A value that is not a constant, so that it is not folded; and the operation that produced it."""

    def __init__(self, x: Any, operation: str = "", arguments: tuple[Any, ...] = ()):
        self.x, self.operation, self.arguments = x, operation, arguments


class Counted(OptimizingCode):
    """The `Code` that computes the values of one member, and counts the operations that results depend on. Common
    subexpressions are computed once, as in a compiled program."""

    longest = 10**9

    def __init__(self) -> None:
        super().__init__()
        self.decided: list[Any] = []  # conditions of loops and branches

    def emit(self, operation: str, x: list[Any]) -> Number:
        try:
            return Number(OPERATIONS[operation](*map(_plain, x)), operation, tuple(x))
        except (ZeroDivisionError, OverflowError, ValueError):
            return Number(math.nan, operation, tuple(x))

    def emit_fused(self, form: str, x: Any, y: Any, z: Any) -> Number:
        product, z_ = _plain(x) * _plain(y), _plain(z)
        return Number({"xy+z": product + z_, "z-xy": z_ - product, "xy-z": product - z_}[form], "fused", (x, y, z))

    def is_real(self, x: Any) -> bool:
        return isinstance(x.x, float)

    def counts(self, results: list[Any]) -> collections.Counter[str]:
        """The operations on reals that these results, and the conditions of loops and branches, depend on."""
        counts: collections.Counter[str] = collections.Counter()
        open_, done = [*results, *self.decided], set()
        while open_:
            x = open_.pop()
            if constant(x) or id(x) in done:
                continue
            done.add(id(x))
            open_ += x.arguments
            if (
                any(isinstance(_plain(a), float) for a in x.arguments)
                and x.operation != "select"
                and not x.operation.startswith("to ")
            ):
                counts[x.operation] += 1
        return counts

    def loop(self, begin, test, body):
        state = list(begin)
        while True:
            with self.scope():
                self.decided.append(test(state))
                if not _plain(self.decided[-1]):
                    return state
                state = [self.materialized(x) for x in body(state)]

    def repeat(self, count, begin, body):
        state = list(begin)
        for i in range(_plain(count)):
            with self.scope():
                state = [self.materialized(x) for x in body(Number(i), state)]
        return state

    def branch(self, which, cases):
        self.decided.append(which)
        with self.scope():
            return [self.materialized(x) for x in cases[min(int(_plain(which)), len(cases) - 1)]()]


def _plain(x: Any) -> Any:
    return x if constant(x) else x.x


ARITHMETIC = {
    "add": 1,
    "sub": 1,
    "mul": 1,
    "fused": 2,
    "div": 1,
    "rough": 1,
    "sqrt": 1,
    "exp": 1,
    "log": 1,
    "sin": 1,
    "cos": 1,
    "pow": 1,
}


def flops(method: Any, system: Any, carry: Any, dt: float, steps: int) -> tuple[float, collections.Counter[str]]:
    """Additions, multiplications, divisions, roots and elementary functions of a step, each counted as one (a product
    with a sum as two), on average over some steps of one member; and all counts."""
    program = StepProgram(method, system, carry)
    numbers = lambda packed, tree: [
        Number(x.item()) for leaf in jax.tree.leaves(tree) for x in np.ravel(np.asarray(leaf))
    ]
    code = Counted()
    given, params = (
        program.given.arrays(numbers(program.given, (method, system.with_params(None)))),
        program.params.arrays(numbers(program.params, system.params)),
    )
    loop = Loop(
        code,
        program,
        given,
        params,
        LoopArguments(Number(0), Number(steps), Number(1), Number(0.0), Number(float(dt))),
        lambda i, row: None,
    )
    state = numbers(program.carry, carry)
    if program.event_driven:
        results = loop.events([*state, Number(0)], Number(steps * float(dt)))
    else:
        results = code.repeat(Number(steps), state, lambda _, s: loop.step(s))
    counts = code.counts(results)
    return sum(counts[name] * size for name, size in ARITHMETIC.items()) / steps, counts
