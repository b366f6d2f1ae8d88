"""What the codes share: how an operation is written with the fewest others, before any of them is written.

Within a scope and those inside it nothing is computed twice. A product that is added to something becomes one operation with the sum.
Signs and powers of two are put off: they multiply exactly, so that (2a)(4b) is 8(ab) and 2a − 2b is 2(a − b) to the last bit, and in the
end most of them are part of a sum, or cancel. What is put off is written out nevertheless, for whoever asks for it, and what nobody
asked for the compiler removes.
"""

from __future__ import annotations

import abc
import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from .scalar_values import NotCovered, constant, itself

WIDEST = 2.0**32  # beyond, a power of two is a number like any other: the range of reals is not to be left


def _exact(x: float) -> bool:
    """Whether products with x are exact: ±1, ±2, ±½, …"""
    return x != 0 and math.isfinite(x) and abs(math.frexp(x)[0]) == 0.5 and 1 / WIDEST <= abs(x) <= WIDEST


class Remembering(abc.ABC):
    """Carries operations out, each once, and together where one does for two; up to so many."""

    longest: int

    def __init__(self) -> None:
        self.seen: list[dict[Any, Any]] = [{}]
        # By the id of a value, with the value itself to keep the id: what it is the product of, of what which multiple, …
        self.products: dict[int, tuple[Any, Any, Any]] = {}
        self.multiples: dict[int, tuple[float, Any, Any]] = {}
        self.depths: dict[int, tuple[int, Any]] = {}  # how many scopes were open when it was made
        self.count = 0
        self._rules: dict[str, Callable[..., Any]] = {
            "add": self._sum, "sub": lambda x, y: self._sum(x, y, -1.0), "mul": self._product, "neg": lambda x: self._times(-1.0, x), "div": self._quotient,
            "abs": self._size, "rough": self._rough_reciprocal, "select": self._choice,
        }  # fmt: skip

    # --- what a code says of itself -----------------------------------------------------------------------------------
    @abc.abstractmethod
    def written(self, operation: str, x: list[Any]) -> Any:
        """The operation, carried out."""

    @abc.abstractmethod
    def fused(self, form: str, x: Any, y: Any, z: Any) -> Any:
        """xy + z, z − xy or xy − z, rounded once. Written out here and not left to a compiler: that decides anew for every copy that it makes of
        a loop's body, and a run would depend on where its chunks end."""

    @abc.abstractmethod
    def real(self, x: Any) -> bool:
        """Whether a value is a real number."""

    can_fuse: bool = True

    # --- operations ---------------------------------------------------------------------------------------------------
    def value(self, operation: str, *arguments: Any) -> Any:
        rule = self._rules.get(operation)
        numbers = arguments[1:] if operation == "select" else arguments
        known = [constant(x) for x in numbers]
        if rule is None or all(known) or not all(isinstance(x, float) if k else self.real(x) for x, k in zip(numbers, known, strict=True)):
            return self._once(operation, *arguments)
        return rule(*arguments)

    def _once(self, operation: str, *arguments: Any) -> Any:
        key = (operation, *(itself(x) if constant(x) else id(x) for x in arguments))
        for scope in reversed(self.seen):
            if key in scope:
                return scope[key][0]
        self.count += operation != "multiple"
        if self.count > self.longest:
            raise NotCovered(f"more than {self.longest} operations a step")
        if operation == "fused":
            made = self.fused(*arguments)
        elif operation == "multiple":
            made = self.written("neg", [arguments[1]]) if arguments[0] == -1 else self.written("mul", [arguments[1], arguments[0]])
        else:
            made = self.written(operation, list(arguments))
        self.seen[-1][key] = made, arguments  # which keeps their ids alive
        self.depths[id(made)] = len(self.seen), made
        return made

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed here is not known outside."""
        self.seen.append({})
        try:
            yield
        finally:
            self.seen.pop()

    # --- exact multiples ----------------------------------------------------------------------------------------------
    def _parts(self, x: Any) -> tuple[float, Any]:
        """x as a factor and the rest."""
        return self.multiples.get(id(x), (1.0, x))[:2]

    def _times(self, factor: float, x: Any) -> Any:
        """factor · x, put off."""
        first, x = self._parts(x)
        factor *= first
        if factor == 1:
            return x
        first, second, _ = self.products.get(id(x), (None, None, None))
        if first is not None and self._from_outside(first):
            made = self._once("mul", self._times(factor, first), second)
        else:
            made = self._once("multiple", factor, x)
        if _exact(factor):
            self.multiples[id(made)] = factor, x, made
        return made

    def _from_outside(self, x: Any) -> bool:
        """Whether a value was there before the present loop or branch: what is made of such values only is made before it, once."""
        return not constant(x) and self.depths.get(id(x), (len(self.seen), x))[0] < len(self.seen)

    def _product(self, x: Any, y: Any) -> Any:
        if constant(x):
            x, y = y, x
        (first, base), (second, other) = self._parts(x), self._parts(y)
        if constant(y):
            return self._times(y, x) if _exact(y) else self._multiplied(base, first * y)
        return self._times(first * second, self._multiplied(base, other))

    def _multiplied(self, x: Any, y: Any) -> Any:
        made = self._once("mul", x, y)
        x, y = (y, x) if self._from_outside(y) else (x, y)
        self.products[id(made)] = x, y, made
        return made

    def _quotient(self, x: Any, y: Any) -> Any:
        (first, base), (second, other) = self._parts(x), self._parts(y)
        return self._times(first / second, self._once("div", base, other))

    def _size(self, x: Any) -> Any:
        factor, x = self._parts(x)
        return self._times(abs(factor), self._once("abs", x))

    def _rough_reciprocal(self, x: Any) -> Any:
        factor, x = self._parts(x)
        return self._times(1 / factor, self._once("rough", x))

    def _choice(self, which: Any, yes: Any, no: Any) -> Any:
        (f, yes), (g, no) = self._parts(yes), self._parts(no)
        if constant(no) and no == 0:
            g = f
        elif constant(yes) and yes == 0:
            f = g
        if f == g:
            return self._times(f, self._once("select", which, yes, no))
        return self._once("select", which, self._times(f, yes), self._times(g, no))

    def _sum(self, x: Any, y: Any, sign: float = 1.0) -> Any:
        """x ± y = fx + gy, with f and g exact."""
        if constant(x) and x == 0:  # 0 − 0 is not −0, but in sums and products no zero is told from the other
            made, (g, base) = self._once("add" if sign > 0 else "sub", x, y), self._parts(y)
            self.multiples[id(made)] = sign * g, base, made
            return made
        (f, x), (g, y) = self._parts(x), self._parts(y)
        g *= sign
        if x is y and _exact(f + g):
            return self._times(f + g, x)
        if f == -g:
            return self._times(f, self._plain_sum("sub", x, y)) if f > 0 else self._times(g, self._plain_sum("sub", y, x))
        if f == g:
            return self._times(f, self._plain_sum("add", x, y))
        # Of two different factors 1 or the smaller is put off further, and what is left of the other goes into the sum.
        if abs(g) == 1 or (abs(f) != 1 and abs(g) < abs(f)):
            f, x, g, y = g, y, f, x
        return self._times(abs(f), self._scaled_sum(f < 0, x, g / abs(f), y))

    def _plain_sum(self, operation: str, x: Any, y: Any) -> Any:
        """x ± y in one operation with a product that is one of them."""
        for whole, other, subtracted in ((y, x, "z-xy"), (x, y, "xy-z")):
            if self.can_fuse and id(whole) in self.products:
                return self._once("fused", "xy+z" if operation == "add" else subtracted, *self.products[id(whole)][:2], other)
        return self._once(operation, x, y)

    def _scaled_sum(self, minus: bool, x: Any, factor: float, y: Any) -> Any:
        """±x + factor · y."""
        if not self.can_fuse:
            return self._once("sub" if minus else "add", self._times(factor, y), x)
        first, second, _ = self.products.get(id(y), (factor, y, y))
        first = factor if second is y else self._times(factor, first)
        return self._once("fused", "xy-z" if minus else "xy+z", first, second, x)
