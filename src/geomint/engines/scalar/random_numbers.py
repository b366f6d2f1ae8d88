"""Random numbers on single values: JAX's counter-based generator, so that every engine draws the same ones.

A key is two 32-bit words. A word is kept in an int64 and masked to 32 bits after each operation.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from .values import Code, NotCovered, Values, add, divide, filled, multiply, negate, subtract

WORD = 2**32 - 1
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


class RandomNumbers:
    """Rules of a `ScalarInterpreter`."""

    code: Code

    def rule_random_wrap(self, equation: Any, key: Values) -> Values:
        return key

    def rule_random_unwrap(self, equation: Any, key: Values) -> Values:
        return key

    def rule_random_bits(self, equation: Any, key: Values) -> Values:
        p = equation.params
        return self._evaluate_generator(equation, lambda impl, k: impl.random_bits(k, p["bit_width"], p["shape"]), key)

    def rule_random_fold_in(self, equation: Any, key: Values, data: Values) -> Values:
        return self._evaluate_generator(equation, lambda impl, k, d: impl.fold_in(k, d), key, data)

    def rule_random_split(self, equation: Any, key: Values) -> Values:
        return self._evaluate_generator(equation, lambda impl, k: impl.split(k, equation.params["shape"]), key)

    def _evaluate_generator(self, equation: Any, function: Any, key: Values, *more: Values) -> Values:
        """A function of JAX's generator for one key, by evaluating the jaxpr of the generator."""
        impl = equation.invars[0].aval.dtype._impl
        if key.shape != (2,) or impl.name != "threefry2x32":
            raise NotCovered(f"arrays of random keys, or the generator {impl.name}")
        shapes = [
            jax.ShapeDtypeStruct((2,), np.uint32),
            *(jax.ShapeDtypeStruct(v.aval.shape, np.uint32) for v in equation.invars[1:]),
        ]
        program = jax.make_jaxpr(lambda *x: function(impl, *x))(*shapes)
        return self.evaluate(program, [key, *more])[0]  # type: ignore[attr-defined]

    def rule_threefry2x32(self, equation: Any, key1: Values, key2: Values, x1: Values, x2: Values) -> list[Values]:
        """Twenty rounds (Salmon, Moraes, Dror, Shaw, 2011)."""
        pairs = [
            self._rounds(*words)
            for words in zip(*(x.ravel() for x in np.broadcast_arrays(key1, key2, x1, x2)), strict=True)
        ]
        shape = np.broadcast_shapes(key1.shape, x1.shape)
        return [filled(shape, [pair[k] for pair in pairs]) for k in (0, 1)]

    def _rounds(self, key1: Any, key2: Any, x: Any, y: Any) -> tuple[Any, Any]:
        value = self.code.value
        if self.code.has_threefry:
            both = value("threefry", key1, key2, x, y)
            return value("and", both, WORD), value("shift_right_logical", both, 32)
        plus = lambda a, b: value("and", value("add", a, b), WORD)
        keys = (key1, key2, value("xor", value("xor", key1, key2), 0x1BD11BDA))
        x, y = plus(x, keys[0]), plus(y, keys[1])
        for i in range(5):
            for r in ROTATIONS[i % 2]:
                x = plus(x, y)
                rotated = value(
                    "or", value("and", value("shift_left", y, r), WORD), value("shift_right_logical", y, 32 - r)
                )
                y = value("xor", x, rotated)
            x, y = plus(x, keys[(i + 1) % 3]), plus(plus(y, keys[(i + 2) % 3]), i + 1)
        return x, y

    def rule_bitcast_convert_type(self, equation: Any, x: Values) -> Values:
        old, new = (np.dtype(v.aval.dtype) for v in (equation.invars[0], equation.outvars[0]))
        if old.kind in "iu" and new.kind in "iu" and old.itemsize == new.itemsize == 4:
            return x
        if old.kind in "iu" and new == np.float64:
            return filled(x.shape, [self.code.value("bits to real", entry) for entry in x.ravel()])
        raise NotCovered(f"bits of {old} read as {new}")

    def rule_erf_inv(self, equation: Any, x: Values) -> Values:
        return filled(x.shape, [self._erf_inverse(entry) for entry in x.ravel()])

    def _erf_inverse(self, y: Any) -> Any:
        """z with erf(z) = y: Winitzki's closed approximation and three Halley steps on 1 − |y| = erfc(|z|), which is
        accurate in the tails."""
        code, a = self.code, 0.147
        value = code.value
        size = value("abs", y)
        log = value("log", multiply(code, subtract(code, 1.0, size), add(code, 1.0, size)))
        half = add(code, 2 / (math.pi * a), multiply(code, 0.5, log))
        z = value(
            "sqrt",
            subtract(code, value("sqrt", subtract(code, multiply(code, half, half), multiply(code, 1 / a, log))), half),
        )
        # Small arguments: z ≈ √π|y|/2, and the residual |y| − erf(z), which is accurate there.
        small, left = value("lt", size, 0.5), subtract(code, 1.0, size)
        z = value("select", small, multiply(code, math.sqrt(math.pi) / 2, size), z)
        for _ in range(3):
            # f = erfc(z) − (1 − |y|), f' = −2/√π exp(−z²), f''/f' = −2z;  z ← z − u/(1 + z u) with u = f/f'.
            slope = multiply(code, -2 / math.sqrt(math.pi), value("exp", negate(code, multiply(code, z, z))))
            residual = value(
                "select", small, subtract(code, size, value("erf", z)), subtract(code, value("erfc", z), left)
            )
            u = divide(code, residual, slope)
            z = subtract(code, z, divide(code, u, add(code, 1.0, multiply(code, z, u))))
        z = value("select", value("eq", size, 1.0), math.inf, z)
        return value("select", value("lt", y, 0.0), negate(code, z), z)
