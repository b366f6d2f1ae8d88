"""Code in which square roots and quotients are products with reciprocals, for sums over pairs in every engine.

Roots and divisions decide the speed of a sum over pairs. Of r = √s one reciprocal root y = 1/√s serves r = s y, all
quotients by r, and those by products of such roots: a/r² = a y y. The reciprocal of a divisor is kept as well. Results
are right to some units in the last place.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from typing import Any

from .values import constant


class Reciprocals(abc.ABC):
    """Replaces roots and quotients in the `emit` of an `OptimizingCode`, before which it stands among the bases.

    by_reciprocals:  whether it does so at present; `reciprocals` switches it on for a part of the code
    """

    by_reciprocals: bool = False
    scopes: list[dict[Any, Any]]

    @abc.abstractmethod
    def root(self, x: Any) -> tuple[Any, Any]:
        """√x and 1/√x; right to some units in the last place, also for 0 and infinity."""

    @abc.abstractmethod
    def reciprocal(self, x: Any) -> Any:
        """1/x, as `root`."""

    @abc.abstractmethod
    def product(self, x: Any, y: Any) -> Any:
        """xy."""

    @contextlib.contextmanager
    def reciprocals(self) -> Iterator[None]:
        before, self.by_reciprocals = self.by_reciprocals, True
        try:
            yield
        finally:
            self.by_reciprocals = before

    def emit(self, operation: str, x: list[Any]) -> Any:
        code: Any = self
        plain: Any = super()
        if not self.by_reciprocals:
            return plain.emit(operation, x)
        if operation == "sqrt" and not constant(x[0]):
            root, inverse = self.root(x[0])
            self._keep("inverse", root, inverse)
            return root
        if operation == "div" and all(constant(y) or code.is_real(y) for y in x):
            if constant(x[1]):
                return plain.emit("mul", [x[0], 1.0 / x[1]]) if x[1] else plain.emit(operation, x)
            inverse = self.known_inverse(x[1])
            if inverse is None:
                inverse = self.reciprocal(x[1])
                self._keep("inverse", x[1], inverse)
            return inverse if constant(x[0]) and x[0] == 1 else plain.emit("mul", [x[0], inverse])
        out = plain.emit(operation, x)
        if operation == "mul" and not any(map(constant, x)):
            self._keep("factors", out, (x[0], x[1]))
        return out

    def _quotient(self, x: Any, y: Any) -> Any:
        """A power of two is taken out of c/y, so that it cancels against others."""
        code: Any = self
        plain: Any = super()
        if self.by_reciprocals and constant(x) and x != 1:
            return code.value("mul", code.value("div", 1.0, y), x)
        return plain._quotient(x, y)

    def _keep(self, what: str, x: Any, found: Any) -> None:
        """Until the present loop or branch ends. x is stored too, so that its id is not reused."""
        self.scopes[-1][what, id(x)] = found, x

    def _kept(self, what: str, x: Any) -> Any:
        return next((scope[what, id(x)][0] for scope in reversed(self.scopes) if (what, id(x)) in scope), None)

    def known_inverse(self, x: Any) -> Any:
        """1/x where x is a root, was divided by before, or is a product of such numbers: the product of their
        reciprocals."""
        inverse, factors = self._kept("inverse", x), self._kept("factors", x)
        if inverse is not None or factors is None:
            return inverse
        parts = [self.known_inverse(part) for part in factors]
        return None if any(part is None for part in parts) else self.product(*parts)
