"""Peephole optimisation while operations are emitted: each is emitted once, and products fuse with sums.

The translation of a jaxpr calls `OptimizingCode.value(operation, *operands)` for each operation on single numbers. This
class decides which operations are emitted, by the methods `emit` and `emit_fused` of a subclass (LLVM, Pallas):

1. Common subexpressions. An operation on the same operands, in the same scope or one around it, returns the value that
   was emitted before. A scope is the body of a loop or a branch: what is emitted there does not exist outside.
2. Fused multiply-add. A product is not emitted at once; `value` returns a `DeferredProduct`. When it is added to
   something, one fused multiply-add is emitted; otherwise the multiplication is emitted when the value is first needed
   (`materialized`). The sum of two products is deferred too (`DeferredPair`), since adding it to z takes two fused
   operations, fma(c, d, fma(a, b, z)), where emitting it first takes three. Fusing rounds less often than the formula.
3. Powers of two and signs. Multiplication by ±2^k is exact (unless the result overflows or is subnormal), so that
   (2a)(4b) = 8(ab) and 2a − 2b = 2(a − b) to the last bit. Such factors are factored out of the number (`Scaled`) and
   combined; most cancel, or become part of a fused multiply-add, and the rest are emitted when the value is
   materialized.

A value in this file is a Python number (known at compile time), a deferred object, or whatever `emit` returned.
"""

from __future__ import annotations

import abc
import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from .values import NotCovered, constant, constant_key

WIDEST = 2.0**32  # larger powers of two are not factored out: the product of several might overflow


def _exact(x: float) -> bool:
    """Whether products with x are exact, so that x may be factored out: ±1, ±2, ±½, …"""
    return x != 0 and math.isfinite(x) and abs(math.frexp(x)[0]) == 0.5 and 1 / WIDEST <= abs(x) <= WIDEST


def _opposite(operation: str) -> str:
    return "sub" if operation == "add" else "add"


class DeferredProduct:
    """xy, not emitted yet. If one of the two was computed outside the present loop, it is x."""

    def __init__(self, x: Any, y: Any):
        self.x, self.y = x, y


class DeferredPair:
    """The sum or the difference of two deferred products, not emitted yet."""

    def __init__(self, operation: str, first: DeferredProduct, second: DeferredProduct):
        self.operation, self.first, self.second = operation, first, second


class Scaled:
    """factor · rest, not multiplied yet; the factor is ±2^k, and the rest is not itself `Scaled`.

    emitted:  the value of the whole, where it has been emitted already
    """

    def __init__(self, factor: float, rest: Any, emitted: Any = None):
        self.factor, self.rest, self.emitted = factor, rest, emitted


class OptimizingCode(abc.ABC):
    """A `Code` (values.py) that optimises as described at the top of this file.

    longest:   the most operations that are emitted; beyond, `NotCovered` is raised
    can_fuse:  whether there is a fused multiply-add
    has_threefry:  whether `emit` knows "threefry"; see values.Code
    """

    longest: int
    can_fuse: bool = True
    has_threefry: bool = False

    def __init__(self) -> None:
        self.scopes: list[dict[Any, Any]] = [{}]
        # By id of a value: how many scopes must be open to compute it (0: it depends on arguments of the whole loop
        # only), and the value itself, which is kept alive so that its id is not reused. A value that is not here
        # counts as computed in the innermost scope.
        self.depths: dict[int, tuple[int, Any]] = {}
        self.count = 0  # operations emitted
        self._rules: dict[str, Callable[..., Any]] = {
            "add": self._sum,
            "sub": lambda x, y: self._sum(x, y, -1.0),
            "mul": self._product,
            "neg": lambda x: self._scaled(-1.0, x),
            "div": self._quotient,
            "abs": self._absolute,
            "rough": self._rough_reciprocal,
            "select": self._select,
        }

    # --- what subclasses define ---------------------------------------------------------------------------------------
    @abc.abstractmethod
    def emit(self, operation: str, x: list[Any]) -> Any:
        """Emit the operation on operands none of which is deferred; the value of its result."""

    @abc.abstractmethod
    def emit_fused(self, form: str, x: Any, y: Any, z: Any) -> Any:
        """Emit "xy+z", "z-xy" or "xy-z", rounded once. Which operations fuse is decided here and not by the compiler,
        which could choose differently for each copy of an unrolled loop body: results would then depend on how a run is
        divided into chunks."""

    @abc.abstractmethod
    def is_real(self, x: Any) -> bool:
        """Whether an emitted value is a real number, not an integer or a boolean."""

    # --- operations ---------------------------------------------------------------------------------------------------
    def value(self, operation: str, *arguments: Any) -> Any:
        """The result of an operation: emitted now, emitted before, or deferred."""
        rule = self._rules.get(operation)
        return (
            rule(*arguments)
            if rule is not None and self._reals(arguments[operation == "select" :])
            else self._emit_once(operation, *arguments)
        )

    def _reals(self, numbers: tuple[Any, ...]) -> bool:
        """Whether these are real numbers, and not all of them known at compile time."""
        kinds = [
            isinstance(x, float)
            if constant(x)
            else isinstance(x, (DeferredProduct, DeferredPair, Scaled)) or self.is_real(x)
            for x in numbers
        ]
        return all(kinds) and not all(constant(x) for x in numbers)

    def materialized(self, x: Any) -> Any:
        """x as an operand: a deferred value is emitted now."""
        if isinstance(x, Scaled) and x.emitted is not None:
            return x.emitted
        factor, rest = self._parts(x)
        if not isinstance(rest, (DeferredProduct, DeferredPair)):
            return self._emit_once("scale", factor, rest) if isinstance(x, Scaled) else x
        unscaled = self._if_emitted(rest)
        if unscaled is not rest:
            return self.materialized(self._scaled(factor, unscaled))
        if isinstance(rest, DeferredProduct) and factor != 1 and self._is_from_outside(rest.x):
            # The compiler hoists factor · x out of the loop, so that no multiplication by the factor is left in it.
            made = self._emit_once("mul", self._scaled(factor, rest.x), rest.y)
            unscaled = self._scaled(1 / factor, made)
        else:
            if isinstance(rest, DeferredProduct):
                unscaled = self._emit_once("mul", rest.x, rest.y)
            else:
                product = rest.first
                unscaled = self._added(self._emit_once("mul", product.x, product.y), rest.operation, rest.second)
            made = self.materialized(self._scaled(factor, unscaled))
        self.scopes[-1][("deferred", id(rest))] = unscaled, rest
        return made

    def _if_emitted(self, x: Any) -> Any:
        """The emitted value of a deferred product or pair, if it has been emitted; otherwise x itself.

        Once it has been rounded, sums use the rounded value and do not fuse. Otherwise in where(x >= c, √(x − c), 0)
        with a product x, the comparison of the rounded x with c could be true while the difference of the exact x and
        c is negative. (Where the difference comes first in the jaxpr it is fused, and the comparison may disagree.)"""
        if isinstance(x, (DeferredProduct, DeferredPair)):
            for scope in reversed(self.scopes):
                if ("deferred", id(x)) in scope:
                    return scope["deferred", id(x)][0]
        return x

    def _emit_once(self, operation: str, *arguments: Any) -> Any:
        arguments = tuple(map(self.materialized, arguments))
        return self._cached((operation, *arguments), lambda: self._count_and_emit(operation, arguments))

    def _cached(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """make(), or its result from an earlier call with the same key (an operation and its operands, by identity) in
        an open scope. The key is stored too, which keeps the operands alive, so that their ids are not reused."""
        found = tuple(constant_key(x) if constant(x) else x if isinstance(x, str) else id(x) for x in key)
        for scope in reversed(self.scopes):
            if found in scope:
                return scope[found][0]
        made = make()
        self.scopes[-1][found] = made, key
        self.depths[id(made)] = (
            max((self._depth(x) for x in key if not constant(x) and not isinstance(x, str)), default=0),
            made,
        )
        return made

    def declare_argument(self, x: Any) -> None:
        """Declare that a value is an argument of the whole loop. What depends on such values only is hoisted out of all
        loops by the compiler, and costs nothing there."""
        self.depths[id(x)] = 0, x

    def _depth(self, x: Any) -> int:
        return self.depths.get(id(x), (len(self.scopes), x))[0]

    def _count_and_emit(self, operation: str, x: tuple[Any, ...]) -> Any:
        self.count += 1
        if self.count > self.longest:
            raise NotCovered(f"more than {self.longest} operations a step")
        if operation == "fused":
            return self.emit_fused(*x)
        if operation == "scale":
            return self.emit("neg", [x[1]]) if x[0] == -1 else self.emit("mul", [x[1], x[0]])
        return self.emit(operation, list(x))

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The body of a loop or branch: values emitted inside are not reused outside."""
        self.scopes.append({})
        try:
            yield
        finally:
            self.scopes.pop()

    def reciprocals(self) -> contextlib.AbstractContextManager[None]:
        """Code in which roots and quotients may be products with reciprocals; see reciprocals.py."""
        return contextlib.nullcontext()

    # --- products and factors ---------------------------------------------------------------------------------------
    def _is_from_outside(self, x: Any) -> bool:
        """Whether a value was computed outside the present loop or branch, where products with it can be hoisted to."""
        return not constant(x) and self._depth(x) < len(self.scopes)

    def _is_argument(self, x: Any) -> bool:
        return constant(x) or self._depth(x) == 0

    @staticmethod
    def _parts(x: Any) -> tuple[float, Any]:
        """x = factor · rest."""
        return (x.factor, x.rest) if isinstance(x, Scaled) else (1.0, x)

    def _scaled(self, factor: float, x: Any) -> Any:
        first, x = self._parts(x)
        factor *= first
        if factor == 1:
            return x
        return Scaled(factor, x) if _exact(factor) else self._emit_once("scale", factor, x)

    def _product(self, x: Any, y: Any) -> Any:
        if constant(x):
            x, y = y, x
        (first, x), (second, y) = self._parts(x), self._parts(y)
        if constant(y):
            return self._scaled(first * y, x) if _exact(y) else self._defer_product(x, first * y)
        return self._scaled(first * second, self._defer_product(x, y))

    def _defer_product(self, x: Any, y: Any) -> Any:
        x, y = self.materialized(x), self.materialized(y)
        if self._is_argument(x) and self._is_argument(y):
            return self._emit_once("mul", x, y)
        x, y = (y, x) if self._is_from_outside(y) else (x, y)
        return self._cached(("product", x, y), lambda: DeferredProduct(x, y))

    def _quotient(self, x: Any, y: Any) -> Any:
        (first, x), (second, y) = self._parts(x), self._parts(y)
        return self._scaled(first / second, self._emit_once("div", x, y))

    def _absolute(self, x: Any) -> Any:
        factor, x = self._parts(x)
        return self._scaled(abs(factor), self._emit_once("abs", x))

    def _rough_reciprocal(self, x: Any) -> Any:
        factor, x = self._parts(x)
        return self._scaled(1 / factor, self._emit_once("rough", x))

    def _select(self, which: Any, yes: Any, no: Any) -> Any:
        (f, yes), (g, no) = self._parts(yes), self._parts(no)
        if constant(no) and no == 0:
            g = f
        elif constant(yes) and yes == 0:
            f = g
        if f == g:
            return self._scaled(f, self._emit_once("select", which, yes, no))
        return self._emit_once("select", which, self._scaled(f, yes), self._scaled(g, no))

    # --- sums ---------------------------------------------------------------------------------------------------------
    def _term(self, x: Any) -> tuple[float, Any]:
        """An operand of a sum as a factor and the rest; the emitted value if it has been emitted."""
        factor, rest = self._parts(x)
        more, rest = self._parts(self._if_emitted(rest))
        return factor * more, rest

    def _sum(self, x: Any, y: Any, sign: float = 1.0) -> Any:
        """x + sign · y. With x = f x' and y = g y', it is f x' ± g y', and the common factor is taken out."""
        # 0 ± y differs from ±y in the sign of a zero only (0 − 0 = +0). It is emitted for operations that show that
        # sign (division, arctan2, the result of the step); sums and products use ±y, whose zero has the same value.
        if constant(x) and x == 0:
            g, rest = self._parts(y)
            return Scaled(sign * g, rest, self._emit_once("add" if sign > 0 else "sub", x, y))
        (f, x), (g, y) = self._term(x), self._term(y)
        g *= sign
        if x is y and _exact(f + g):
            return self._scaled(f + g, x)
        if x is y:
            x = y = self.materialized(x)
        if f == -g:
            return (
                self._scaled(f, self._sum_without_factors("sub", x, y))
                if f > 0
                else self._scaled(g, self._sum_without_factors("sub", y, x))
            )
        if f == g:
            return self._scaled(f, self._sum_without_factors("add", x, y))
        # Different factors: f x + g y = |f| (±x + (g/|f|) y), where f is a factor ±1, else the smaller one.
        if abs(g) == 1 or (abs(f) != 1 and abs(g) < abs(f)):
            f, x, g, y = g, y, f, x
        return self._scaled(abs(f), self._sum_with_factor(f < 0, x, g / abs(f), y))

    def _sum_without_factors(self, operation: str, x: Any, y: Any) -> Any:
        """x ± y: one fused operation if x or y is a deferred product, two for a deferred pair."""
        if self.can_fuse and isinstance(x, DeferredProduct) and isinstance(y, DeferredProduct):
            return self._cached((operation, x, y), lambda: DeferredPair(operation, x, y))
        if self.can_fuse and isinstance(y, DeferredPair) and not isinstance(x, DeferredProduct):
            return self._added(
                self._added(x, operation, y.first),
                operation if y.operation == "add" else _opposite(operation),
                y.second,
            )
        if self.can_fuse and isinstance(x, DeferredPair) and not isinstance(y, DeferredProduct):
            return self._added(
                self._sum_without_factors(operation, x.first, self.materialized(y)), x.operation, x.second
            )
        if self.can_fuse and isinstance(x, DeferredProduct):
            return self._emit_once("fused", "xy+z" if operation == "add" else "xy-z", x.x, x.y, y)
        return self._added(x, operation, y)

    def _added(self, x: Any, operation: str, y: Any) -> Any:
        """x ± y: one fused operation if y is a deferred product."""
        if self.can_fuse and isinstance(y, DeferredProduct):
            return self._emit_once("fused", "xy+z" if operation == "add" else "z-xy", y.x, y.y, x)
        return self._emit_once(operation, x, y)

    def _sum_with_factor(self, minus: bool, x: Any, factor: float, y: Any) -> Any:
        """±x + factor · y, with factor ±2^k."""
        if not self.can_fuse:
            return self._emit_once("sub" if minus else "add", self._scaled(factor, y), x)
        if not isinstance(y, (DeferredProduct, DeferredPair)) and self._is_argument(y):
            # factor · y is hoisted out of all loops, and an addition takes one operand less than a fused operation.
            return self._emit_once("sub" if minus else "add", self._scaled(factor, y), x)
        first, second = (self._scaled(factor, y.x), y.y) if isinstance(y, DeferredProduct) else (factor, y)
        return self._emit_once("fused", "xy-z" if minus else "xy+z", first, second, x)
