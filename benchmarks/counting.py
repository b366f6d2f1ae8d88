"""How many floating-point operations a step takes: the program of the engines of straight-line code, carried out and counted."""

from __future__ import annotations

import collections
import math
import operator
from typing import Any

import jax
import numpy as np

from geomint.engines.program import Loop, Numbers, Plan
from geomint.engines.scalar_values import Remembering, constant

OPERATIONS: dict[str, Any] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "div": lambda x, y: x / y if isinstance(x, float) else int(x / y),
    "max": max, "min": min, "abs": abs, "sign": lambda x: (x > 0) - (x < 0), "pow": operator.pow, "rem": math.fmod, "is_finite": math.isfinite, "not": operator.not_,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "log1p": math.log1p, "sin": math.sin, "cos": math.cos, "tan": math.tan, "tanh": math.tanh, "floor": math.floor, "atan2": math.atan2,
    "ceil": math.ceil, "cbrt": math.cbrt if hasattr(math, "cbrt") else lambda x: x ** (1 / 3), "select": lambda which, yes, no: yes if which else no,
    "shift_left": operator.lshift, "shift_right_logical": operator.rshift, "shift_right_arithmetic": operator.rshift, "to f": float, "to i": int, "to b": bool,
}  # fmt: skip


class Number:
    """A value that is not known beforehand, so that nothing is folded away."""

    def __init__(self, x: Any):
        self.x = x


class Counted(Remembering):
    """The `Code` that computes, one member at a time, and counts what it does; nothing is computed twice, as in a compiled program."""

    longest = 10**9

    def __init__(self) -> None:
        super().__init__()
        self.counts: collections.Counter[str] = collections.Counter()

    def written(self, operation: str, x: list[Any]) -> Number:
        x = [_plain(a) for a in x]
        if any(isinstance(a, float) for a in x) and operation != "select" and not operation.startswith("to "):
            self.counts[operation] += 1
        try:
            return Number(OPERATIONS[operation](*x))
        except (ZeroDivisionError, OverflowError, ValueError):
            return Number(math.nan)

    def loop(self, begin, test, body):
        state = list(begin)
        while True:
            with self.scope():
                if not _plain(test(state)):
                    return state
                state = body(state)

    def repeat(self, count, begin, body):
        state = list(begin)
        for i in range(_plain(count)):
            with self.scope():
                state = body(Number(i), state)
        return state

    def branch(self, which, cases):
        with self.scope():
            return cases[min(int(_plain(which)), len(cases) - 1)]()


def _plain(x: Any) -> Any:
    return x if constant(x) else x.x


ARITHMETIC = ("add", "sub", "mul", "div", "sqrt", "exp", "log", "sin", "cos", "pow")


def flops(method: Any, system: Any, carry: Any, dt: float, steps: int) -> tuple[float, collections.Counter[str]]:
    """Additions, multiplications, divisions, roots and elementary functions of a step, each counted as one, on average over some steps of one member; and all counts."""
    plan = Plan(method, system, carry)
    numbers = lambda packed, tree: [Number(x.item()) for leaf in jax.tree.leaves(tree) for x in np.ravel(np.asarray(leaf))]
    code = Counted()
    given, params = plan.given.arrays(numbers(plan.given, (method, system.with_params(None)))), plan.params.arrays(numbers(plan.params, system.params))
    loop = Loop(code, plan, given, params, Numbers(Number(0), Number(steps), Number(1), Number(0.0), Number(float(dt))), lambda i, row: None)
    state = numbers(plan.carry, carry)
    if plan.event_driven:
        loop.events([*state, Number(0)], Number(steps * float(dt)))
    else:
        code.repeat(Number(steps), state, lambda _, s: loop.step(s))
    return sum(code.counts[name] for name in ARITHMETIC) / steps, code.counts
