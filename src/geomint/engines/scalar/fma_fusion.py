"""What the codes share: how an operation is written with the fewest others, before any of them is written.

Within a scope and those inside it nothing is computed twice. A product is put off: if all it is for is to be added to something, it becomes
one operation with the sum; and so is a sum of two products, to be added to something one after the other. Both are rounded less often than
the formula says. Signs and powers of two are put off too: they multiply exactly, so that (2a)(4b) is 8(ab) and 2a − 2b is 2(a − b) to the
last bit, and in the end most of them are part of a sum, or cancel. What is put off is written when it is asked for.
"""

from __future__ import annotations

import abc
import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from .values import NotCovered, constant, itself

WIDEST = 2.0**32  # beyond, a power of two is a number like any other: the range of reals is not to be left


def _exact(x: float) -> bool:
    """Whether products with x are exact: ±1, ±2, ±½, …"""
    return x != 0 and math.isfinite(x) and abs(math.frexp(x)[0]) == 0.5 and 1 / WIDEST <= abs(x) <= WIDEST


def _opposite(operation: str) -> str:
    return "sub" if operation == "add" else "add"


class Product:
    """xy, put off. Where one of the two was there before the present loop, it is x."""

    def __init__(self, x: Any, y: Any):
        self.x, self.y = x, y


class Pair:
    """A sum of two products or their difference, put off."""

    def __init__(self, operation: str, first: Product, second: Product):
        self.operation, self.first, self.second = operation, first, second


class Multiple:
    """factor · rest, put off; the factor is exact, and the rest no multiple."""

    def __init__(self, factor: float, rest: Any, written: Any = None):
        self.factor, self.rest, self.written = factor, rest, written


class Remembering(abc.ABC):
    """Carries operations out, each once, and together where one does for two; up to so many."""

    longest: int
    can_fuse: bool = True

    def __init__(self) -> None:
        self.seen: list[dict[Any, Any]] = [{}]
        self.depths: dict[
            int, tuple[int, Any]
        ] = {}  # by the id of a value: how many scopes must be open to make it; and it, to keep the id
        self.count = 0  # operations written
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

    # --- operations ---------------------------------------------------------------------------------------------------
    def value(self, operation: str, *arguments: Any) -> Any:
        rule = self._rules.get(operation)
        return (
            rule(*arguments)
            if rule is not None and self._reals(arguments[operation == "select" :])
            else self._once(operation, *arguments)
        )

    def _reals(self, numbers: tuple[Any, ...]) -> bool:
        """Whether these are real numbers, and not all of them known."""
        kinds = [
            isinstance(x, float) if constant(x) else isinstance(x, (Product, Pair, Multiple)) or self.real(x)
            for x in numbers
        ]
        return all(kinds) and not all(constant(x) for x in numbers)

    def settled(self, x: Any) -> Any:
        """What was put off, written."""
        if isinstance(x, Multiple) and x.written is not None:
            return x.written
        factor, rest = self._parts(x)
        if not isinstance(rest, (Product, Pair)):
            return self._once("multiple", factor, rest) if isinstance(x, Multiple) else x
        whole = self._whole(rest)
        if whole is not rest:
            return self.settled(self._times(factor, whole))
        if isinstance(rest, Product) and factor != 1 and self._from_outside(rest.x):
            made = self._once("mul", self._times(factor, rest.x), rest.y)
            whole = self._times(1 / factor, made)
        else:
            product = rest if isinstance(rest, Product) else rest.first
            whole = self._once("mul", product.x, product.y)
            whole = whole if product is rest else self._added(whole, rest.operation, rest.second)
            made = self.settled(self._times(factor, whole))
        self.seen[-1][("whole", id(rest))] = whole, rest
        return made

    def _whole(self, x: Any) -> Any:
        """A product or a pair as the number it was written as, if it was: from then on it is that number in sums too. Were it rounded in a
        comparison and not in a difference, a root might be taken of less than nothing: where(x > c, √(x − c), 0)."""
        if isinstance(x, (Product, Pair)):
            for scope in reversed(self.seen):
                if ("whole", id(x)) in scope:
                    return scope["whole", id(x)][0]
        return x

    def _once(self, operation: str, *arguments: Any) -> Any:
        arguments = tuple(map(self.settled, arguments))
        return self._remembered((operation, *arguments), lambda: self._carried_out(operation, arguments))

    def _remembered(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What the key stands for, made if need be. The key is kept with it, and the ids in it alive."""
        found = tuple(itself(x) if constant(x) else x if isinstance(x, str) else id(x) for x in key)
        for scope in reversed(self.seen):
            if found in scope:
                return scope[found][0]
        made = make()
        self.seen[-1][found] = made, key
        self.depths[id(made)] = (
            max((self._depth(x) for x in key if not constant(x) and not isinstance(x, str)), default=0),
            made,
        )
        return made

    def given(self, x: Any) -> None:
        """Says of a value that it is there before all: what is made of such values only costs nothing in a loop."""
        self.depths[id(x)] = 0, x

    def _depth(self, x: Any) -> int:
        return self.depths.get(id(x), (len(self.seen), x))[0]

    def _carried_out(self, operation: str, x: tuple[Any, ...]) -> Any:
        self.count += 1
        if self.count > self.longest:
            raise NotCovered(f"more than {self.longest} operations a step")
        if operation == "fused":
            return self.fused(*x)
        if operation == "multiple":
            return self.written("neg", [x[1]]) if x[0] == -1 else self.written("mul", [x[1], x[0]])
        return self.written(operation, list(x))

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed here is not known outside."""
        self.seen.append({})
        try:
            yield
        finally:
            self.seen.pop()

    # --- products and multiples ---------------------------------------------------------------------------------------
    def _from_outside(self, x: Any) -> bool:
        """Whether a value was there before the present loop or branch: what is made of such values only is made before it, once."""
        return not constant(x) and self._depth(x) < len(self.seen)

    def _given(self, x: Any) -> bool:
        return constant(x) or self._depth(x) == 0

    @staticmethod
    def _parts(x: Any) -> tuple[float, Any]:
        """x as a factor and the rest."""
        return (x.factor, x.rest) if isinstance(x, Multiple) else (1.0, x)

    def _times(self, factor: float, x: Any) -> Any:
        first, x = self._parts(x)
        factor *= first
        if factor == 1:
            return x
        return Multiple(factor, x) if _exact(factor) else self._once("multiple", factor, x)

    def _product(self, x: Any, y: Any) -> Any:
        if constant(x):
            x, y = y, x
        (first, x), (second, y) = self._parts(x), self._parts(y)
        if constant(y):
            return self._times(first * y, x) if _exact(y) else self._put_off(x, first * y)
        return self._times(first * second, self._put_off(x, y))

    def _put_off(self, x: Any, y: Any) -> Any:
        x, y = self.settled(x), self.settled(y)
        if self._given(x) and self._given(y):
            return self._once("mul", x, y)
        x, y = (y, x) if self._from_outside(y) else (x, y)
        return self._remembered(("product", x, y), lambda: Product(x, y))

    def _quotient(self, x: Any, y: Any) -> Any:
        (first, x), (second, y) = self._parts(x), self._parts(y)
        return self._times(first / second, self._once("div", x, y))

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

    # --- sums ---------------------------------------------------------------------------------------------------------
    def _term(self, x: Any) -> tuple[float, Any]:
        """What is added, as a factor and the rest."""
        factor, rest = self._parts(x)
        more, rest = self._parts(self._whole(rest))
        return factor * more, rest

    def _sum(self, x: Any, y: Any, sign: float = 1.0) -> Any:
        """x ± y = fx + gy, with f and g exact."""
        if constant(x) and x == 0:  # 0 − 0 is not −0, but in sums and products no zero is told from the other
            g, rest = self._parts(y)
            return Multiple(sign * g, rest, self._once("add" if sign > 0 else "sub", x, y))
        (f, x), (g, y) = self._term(x), self._term(y)
        g *= sign
        if x is y and _exact(f + g):
            return self._times(f + g, x)
        if x is y:
            x = y = self.settled(x)
        if f == -g:
            return (
                self._times(f, self._plain_sum("sub", x, y)) if f > 0 else self._times(g, self._plain_sum("sub", y, x))
            )
        if f == g:
            return self._times(f, self._plain_sum("add", x, y))
        # Of two different factors 1 or the smaller is put off further, and what is left of the other goes into the sum.
        if abs(g) == 1 or (abs(f) != 1 and abs(g) < abs(f)):
            f, x, g, y = g, y, f, x
        return self._times(abs(f), self._scaled_sum(f < 0, x, g / abs(f), y))

    def _plain_sum(self, operation: str, x: Any, y: Any) -> Any:
        """x ± y in one operation with a product that is one of them, in two with a pair."""
        if self.can_fuse and isinstance(x, Product) and isinstance(y, Product):
            return self._remembered((operation, x, y), lambda: Pair(operation, x, y))
        if self.can_fuse and isinstance(y, Pair) and not isinstance(x, Product):
            return self._added(
                self._added(x, operation, y.first),
                operation if y.operation == "add" else _opposite(operation),
                y.second,
            )
        if self.can_fuse and isinstance(x, Pair) and not isinstance(y, Product):
            return self._added(self._plain_sum(operation, x.first, self.settled(y)), x.operation, x.second)
        if self.can_fuse and isinstance(x, Product):
            return self._once("fused", "xy+z" if operation == "add" else "xy-z", x.x, x.y, y)
        return self._added(x, operation, y)

    def _added(self, x: Any, operation: str, y: Any) -> Any:
        """x ± y, in one operation with a product y."""
        if self.can_fuse and isinstance(y, Product):
            return self._once("fused", "xy+z" if operation == "add" else "z-xy", y.x, y.y, x)
        return self._once(operation, x, y)

    def _scaled_sum(self, minus: bool, x: Any, factor: float, y: Any) -> Any:
        """±x + factor · y."""
        if not self.can_fuse:
            return self._once("sub" if minus else "add", self._times(factor, y), x)
        if not isinstance(y, (Product, Pair)) and self._given(y):
            return self._once("sub" if minus else "add", self._times(factor, y), x)
        first, second = (self._times(factor, y.x), y.y) if isinstance(y, Product) else (factor, y)
        return self._once("fused", "xy-z" if minus else "xy+z", first, second, x)
