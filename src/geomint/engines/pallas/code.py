"""The `Code` of a GPU kernel: values are arrays over the lanes of a warp.

Loops run as long as any lane takes part, and branches are taken if any lane takes them; a mask selects the lanes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from ..scalar.fma_fusion import OptimizingCode
from ..scalar.reciprocals import Reciprocals
from ..scalar.values import NotCovered, constant
from . import assembly

LONGEST = 10_000  # operations; compiling more takes minutes

# JAX lowers −x to 0 − x for Triton: an addition, and +0 where it should be −0. A product with −1 changes the sign bit.
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "neg": lambda x: x * -1, "max": jnp.maximum,
    "min": jnp.minimum, "abs": jnp.abs, "sign": jnp.sign, "pow": jnp.power, "atan2": jnp.arctan2, "cbrt": jnp.cbrt,
    "is_finite": jax.lax.is_finite, "not": jnp.logical_not, "lt": jnp.less, "le": jnp.less_equal, "gt": jnp.greater,
    "ge": jnp.greater_equal, "eq": jnp.equal, "ne": jnp.not_equal, "sqrt": jnp.sqrt, "exp": jnp.exp, "log": jnp.log,
    "log1p": jnp.log1p, "expm1": jnp.expm1, "sin": jnp.sin, "cos": jnp.cos, "tan": jnp.tan, "asin": jnp.arcsin,
    "acos": jnp.arccos, "atan": jnp.arctan, "sinh": jnp.sinh, "cosh": jnp.cosh, "tanh": jnp.tanh, "floor": jnp.floor,
    "ceil": jnp.ceil, "erf": jax.lax.erf, "erfc": jax.lax.erfc, "shift_left": jnp.left_shift,
    "shift_right_arithmetic": jax.lax.shift_right_arithmetic, "shift_right_logical": jax.lax.shift_right_logical,
    "and": jnp.bitwise_and, "or": jnp.bitwise_or, "xor": jnp.bitwise_xor, "select": jnp.where,
}  # fmt: skip


class PlainCode(OptimizingCode):
    """The `Code` whose values are arrays over the lanes."""

    longest = LONGEST

    def __init__(self, lanes: int, real: Any, interpret: bool):
        super().__init__()
        self.lanes, self.kind, self.whole, self.interpret = lanes, real, jax.dtypes.canonicalize_dtype(int), interpret
        self.masks: list[Any] = []

    def emit(self, operation: str, x: list[Any]) -> Any:
        if operation == "div" and isinstance(x[0], float) and x[0] == 1 and jnp.shape(x[1]) and not self.interpret:
            return assembly.reciprocal(x[1])
        if operation == "rough":
            return 1 / x[0] if self.interpret else assembly.rough_reciprocal(x[0])
        if operation == "div":
            # Integers are divided toward zero, as in lax.
            x = [
                jnp.asarray(y, other.dtype) if constant(y) and not constant(other) else jnp.asarray(y)
                for y, other in (x, x[::-1])
            ]
            return jax.lax.div(*jnp.broadcast_arrays(*x))
        if operation == "rem":
            return jax.lax.rem(*jnp.broadcast_arrays(*(jnp.asarray(y) for y in x)))
        if operation.startswith("to "):
            return jnp.asarray(x[0]).astype({"f": self.kind, "i": self.whole, "b": bool}[operation[-1]])
        if operation == "select":
            # With a condition that all lanes share, jnp.where would convert constants to booleans.
            x = [x[0], *(self.broadcast(y) if constant(y) else y for y in x[1:])]
        if operation == "bits to real":
            return jax.lax.bitcast_convert_type(jnp.asarray(x[0]), self.kind)
        if operation == "threefry":
            return assembly.threefry(*map(self.broadcast, x))
        if operation not in _OPERATIONS:
            raise NotCovered(f"the operation {operation}")
        return _OPERATIONS[operation](*x)

    def is_real(self, x: Any) -> bool:
        return x.dtype == self.kind

    def emit_fused(self, form: str, x: Any, y: Any, z: Any) -> Any:
        x, y, z = (self.broadcast(v) for v in (x, y, z))
        if self.interpret:
            return {"xy+z": x * y + z, "z-xy": z - x * y, "xy-z": x * y - z}[form]
        return assembly.fused(form, x, y, z)

    def opaque_copy(self, x: Any) -> Any:
        """x as a loop-carried value; see assembly.opaque_copy."""
        return self.broadcast(x) if self.interpret else assembly.opaque_copy(self.broadcast(x))

    def broadcast(self, x: Any) -> Any:
        """x as an array over the lanes."""
        x = self.materialized(x)
        if constant(x):
            return jnp.full(
                (self.lanes,), x, bool if isinstance(x, bool) else self.whole if isinstance(x, int) else self.kind
            )
        return jnp.broadcast_to(x, (self.lanes,))

    def within(self, mask: Any) -> Any:
        """The mask restricted to lanes that take part in the enclosing loops and branches."""
        mask = self.broadcast(mask)
        return mask & self.masks[-1] if self.masks else mask

    @contextlib.contextmanager
    def masked(self, mask: Any) -> Iterator[None]:
        self.masks.append(mask)
        try:
            with self.scope():
                yield
        finally:
            self.masks.pop()

    @staticmethod
    def any(mask: Any) -> Any:
        return jnp.max(mask.astype(jnp.int32)) > 0  # Triton has no reduction by "or"

    def loop(
        self, begin: list[Any], test: Callable[[list[Any]], Any], body: Callable[[list[Any]], list[Any]]
    ) -> list[Any]:
        begin = [self.broadcast(x) for x in begin]

        def tested(s: list[Any]) -> Any:
            with self.scope():
                return self.within(test(s))

        def masked(moving: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
            mask, old = moving
            with self.masked(mask):
                new = [
                    self.opaque_copy(jnp.where(mask, self.broadcast(x), y)) for x, y in zip(body(old), old, strict=True)
                ]
            return mask & tested(new), new

        return jax.lax.while_loop(lambda moving: self.any(moving[0]), masked, (tested(begin), begin))[1]

    def repeat(self, count: Any, begin: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
        def scoped(i: Any, s: list[Any]) -> list[Any]:
            with self.scope():
                return [self.opaque_copy(x) for x in body(i, s)]

        return jax.lax.fori_loop(jnp.zeros_like(count), count, scoped, [self.broadcast(x) for x in begin])

    def branch(self, which: Any, cases: list[Callable[[], list[Any]]]) -> list[Any]:
        last = len(cases) - 1
        takes = (
            [~which, which]
            if which.dtype == bool
            else [which <= 0 if k == 0 else which >= k if k == last else which == k for k in range(last + 1)]
        )
        results: list[Any] = []
        for mask, case in zip(takes, cases, strict=True):
            mask = self.within(mask)
            values = self.guarded(mask, case)
            results = [jnp.where(mask, x, old) for x, old in zip(values, results, strict=True)] if results else values
        return results

    def guarded(self, mask: Any, case: Callable[[], list[Any]]) -> list[Any]:
        """The results of the case if any lane of the mask is set, else zeros."""

        def taken() -> list[Any]:
            with self.masked(mask):
                return [self.broadcast(x) for x in case()]

        count = self.count
        shapes = jax.eval_shape(taken)
        self.count = count  # eval_shape emits nothing
        return jax.lax.cond(self.any(mask), taken, lambda: [jnp.zeros(x.shape, x.dtype) for x in shapes])


class PallasCode(Reciprocals, PlainCode):
    """With roots and quotients by reciprocals in sums over pairs, and the random generator in native 32-bit words."""

    def __init__(self, lanes: int, real: Any, interpret: bool):
        super().__init__(lanes, real, interpret)
        self.has_threefry = not interpret and self.whole == jnp.int64

    def root(self, x: Any) -> tuple[Any, Any]:
        x = self.broadcast(x)
        if self.interpret:
            return jnp.sqrt(x), 1 / jnp.sqrt(x)
        inverse = assembly.inverse_root(x)
        return jnp.where((x == 0) | (x == jnp.inf), x, x * inverse), inverse

    def reciprocal(self, x: Any) -> Any:
        return 1 / x if self.interpret else assembly.reciprocal(self.broadcast(x))

    def product(self, x: Any, y: Any) -> Any:
        return x * y
