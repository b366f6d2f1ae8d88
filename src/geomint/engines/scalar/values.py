"""Single values, on which jaxprs are evaluated, and element-wise operations on them with constant folding."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np


class NotCovered(Exception):
    """An operation or a size that scalar code does not cover; the message names it."""


Values = np.ndarray  # of dtype object: constants (bool, int, float) and values that a Code returned


class Code(Protocol):
    """Emits operations on single values: as LLVM instructions, or as operations on the lanes of a kernel.

    longest:       the most operations it emits; beyond, it raises NotCovered
    has_threefry:  whether it has the operation "threefry", from two words of a key and two of a counter to the lower
                   and the upper half of its result
    """

    longest: int
    has_threefry: bool

    def value(self, operation: str, *arguments: Any) -> Any:
        """The result of an operation. Its name is that of JAX's primitive, "select" (which, yes, no), "rough" (an
        approximate reciprocal), "bits to real" (a bit cast), or one of the conversions "to f", "to i", "to b"."""
        ...

    def reciprocals(self) -> contextlib.AbstractContextManager[None]:
        """A part of the program whose roots and quotients may be products with reciprocals, right to some units in the
        last place."""
        ...

    def materialized(self, x: Any) -> Any:
        """x, emitted now if the code had deferred it."""
        ...

    def declare_argument(self, x: Any) -> None:
        """Declare that a value is an argument of the program, computed before all loops."""
        ...

    def loop(
        self, begin: list[Any], test: Callable[[list[Any]], Any], body: Callable[[list[Any]], list[Any]]
    ) -> list[Any]:
        """While test(values): values = body(values), beginning with `begin`; the values at the end."""
        ...

    def repeat(self, count: Any, begin: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
        """`count` times: values = body(i, values), i = 0, 1, …; the values at the end."""
        ...

    def branch(self, which: Any, cases: list[Callable[[], list[Any]]]) -> list[Any]:
        """The results of case number `which`, clamped to the cases there are."""
        ...


def constant(x: Any) -> bool:
    return isinstance(x, (bool, int, float))


def constant_key(x: Any) -> tuple[Any, ...]:
    """A key that distinguishes constants by type and value, and 0 from −0."""
    return type(x), x, math.copysign(1.0, x)


def as_constants(x: Any) -> Values:
    """An array of numbers as constants."""
    array = np.asarray(x)
    kind = {"f": float, "i": int, "u": int, "b": bool}.get(array.dtype.kind)
    if kind is None:
        raise NotCovered(f"numbers of type {array.dtype}")
    return filled(array.shape, [kind(v) for v in array.ravel()])


def filled(shape: tuple[int, ...], entries: Sequence[Any]) -> Values:
    out = np.empty(shape, object)
    flat = out.reshape(-1)
    for i, entry in enumerate(entries):
        flat[i] = entry
    return out


# --- element-wise operations ------------------------------------------------------------------------------------------
def _is(x: Any, number: int) -> bool:
    return constant(x) and not isinstance(x, bool) and x == number


def add(code: Code, x: Any, y: Any) -> Any:
    return y if _is(x, 0) else x if _is(y, 0) else code.value("add", x, y)


def subtract(code: Code, x: Any, y: Any) -> Any:
    return x if _is(y, 0) else code.value("sub", x, y)


def negate(code: Code, x: Any) -> Any:
    return -x if constant(x) else code.value("neg", x)


def multiply(code: Code, x: Any, y: Any) -> Any:
    if _is(x, 0) or _is(y, 0):
        return x if _is(x, 0) else y
    if _is(x, 1) or _is(y, 1):
        return y if _is(x, 1) else x
    if _is(x, -1) or _is(y, -1):
        return negate(code, y if _is(x, -1) else x)
    return code.value("mul", x, y)


def divide(code: Code, x: Any, y: Any) -> Any:
    return x if _is(y, 1) or _is(x, 0) else code.value("div", x, y)


def power(code: Code, x: Any, n: int) -> Any:
    if n < 0:
        return divide(code, 1.0, power(code, x, -n))
    if n < 2:
        return x if n else 1.0
    half = power(code, x, n // 2)
    square = multiply(code, half, half)
    return multiply(code, square, x) if n % 2 else square


def select(code: Code, which: Any, *cases: Any) -> Any:
    if constant(which):
        return cases[int(which)]
    if len(cases) != 2:
        raise NotCovered("select_n with more than two cases")
    same = cases[0] is cases[1] or (
        constant(cases[0]) and constant(cases[1]) and constant_key(cases[0]) == constant_key(cases[1])
    )
    return cases[0] if same else code.value("select", which, cases[1], cases[0])


def _plain(name: str) -> Callable[..., Any]:
    return lambda code, *x: code.value(name, *x)


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    name: _plain(name)
    for name in (
        "max", "min", "abs", "sign", "pow", "rem", "atan2", "cbrt", "is_finite", "not", "and", "or", "xor", "lt", "le",
        "gt", "ge", "eq", "ne", "sqrt", "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan",
        "sinh", "cosh", "tanh", "floor", "ceil", "erf", "erfc", "shift_left", "shift_right_arithmetic",
        "shift_right_logical",
    )
} | {
    "add": add, "add_any": add, "sub": subtract, "mul": multiply, "div": divide, "neg": negate, "select_n": select,
    "square": lambda code, x: multiply(code, x, x),
    "one_minus_square": lambda code, x: subtract(code, 1.0, multiply(code, x, x)),
    "rsqrt": lambda code, x: divide(code, 1.0, code.value("sqrt", x)),
    "copy": lambda _, x: x,
    "copy_p": lambda _, x: x,
    "stop_gradient": lambda _, x: x,
    "name": lambda code, x: code.materialized(x),  # see hints.materialize
    "rough_reciprocal": lambda code, x: code.value("rough", x),
    "logistic": lambda code, x: divide(code, 1.0, add(code, 1.0, code.value("exp", negate(code, x)))),
}  # fmt: skip
