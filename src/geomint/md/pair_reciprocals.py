"""Code of one pair in which square roots and quotients are products with reciprocals, for every engine that writes it.

Roots and divisions decide the speed of a sum over pairs. Of r = √s one reciprocal root y = 1/√s serves r = s y, all
quotients by r, and those by products of such roots: a/r² = a y y. The reciprocal of a quotient is kept as well.
"""

from __future__ import annotations

import abc
from typing import Any

from ..engines.scalar.values import constant


class Reciprocals(abc.ABC):
    """Replaces roots and quotients in the `emit` of a Code (engines/scalar/values.py); it is the first base."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.inverses: dict[int, tuple[Any, Any]] = {}  # by the id of x: 1/x, and x itself, which keeps its id
        self.factors: dict[int, tuple[Any, Any, Any]] = {}  # by the id of a product: its factors, and itself

    @abc.abstractmethod
    def root(self, x: Any) -> tuple[Any, Any]:
        """√x and 1/√x; right to some units in the last place, also for 0 and infinity."""

    @abc.abstractmethod
    def reciprocal(self, x: Any) -> Any:
        """1/x, as `root`."""

    @abc.abstractmethod
    def product(self, x: Any, y: Any) -> Any:
        """xy."""

    def emit(self, operation: str, x: list[Any]) -> Any:
        plain: Any = super()
        if operation == "sqrt" and not constant(x[0]):
            root, inverse = self.root(x[0])
            self.inverses[id(root)] = inverse, root
            return root
        if operation == "div" and all(constant(y) or self.is_real(y) for y in x):  # type: ignore[attr-defined]
            if constant(x[1]):
                return plain.emit("mul", [x[0], 1.0 / x[1]]) if x[1] else plain.emit(operation, x)
            inverse = self.known_inverse(x[1])
            if inverse is None:
                inverse = self.reciprocal(x[1])
                self.inverses[id(x[1])] = inverse, x[1]
            return inverse if constant(x[0]) and x[0] == 1 else plain.emit("mul", [x[0], inverse])
        out = plain.emit(operation, x)
        if operation == "mul" and not any(map(constant, x)):
            self.factors[id(out)] = x[0], x[1], out
        return out

    def _quotient(self, x: Any, y: Any) -> Any:
        """A power of two is taken out of c/y, so that it cancels against others."""
        code: Any = self
        plain: Any = super()
        return code.value("mul", code.value("div", 1.0, y), x) if constant(x) and x != 1 else plain._quotient(x, y)

    def known_inverse(self, x: Any) -> Any:
        """1/x where x is a root, was divided by before, or is a product of such numbers: the product of their
        reciprocals."""
        if id(x) in self.inverses:
            return self.inverses[id(x)][0]
        if id(x) not in self.factors:
            return None
        parts = [self.known_inverse(part) for part in self.factors[id(x)][:2]]
        return None if any(part is None for part in parts) else self.product(*parts)
