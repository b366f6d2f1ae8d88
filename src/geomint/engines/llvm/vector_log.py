"""The natural logarithm on vectors of doubles; the C library has it for single numbers only, and a call of it for each
lane takes longer than all else in a sum over elements."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from .code import LlvmCode

TERMS = 10  # of the series; the next one is below 2⁻⁵³ of the first for |s| ≤ (√2 − 1)/(√2 + 1)
HALF_ROOT = 0x3FE6A09E667F3BCD  # the bits of √½
MANTISSA = 2**52 - 1
SUBNORMAL = 2.0**-1022


class VectorLog(LlvmCode):
    """Code in which log is a polynomial. With x = 2ᵏ m, √½ ≤ m < √2, f = m − 1 and s = f/(2 + f),

        log m = 2 s + ⅔ s³ + ⅖ s⁵ + … = f − (f²/2 − s (f²/2 + R)),      R = s² (⅔ + ⅖ s² + …),

    which is within one unit in the last place; k log 2 is added in two parts.
    """

    def emit(self, operation: str, x: list[Any]) -> Any:
        if operation != "log" or self.lanes == 1:
            return super().emit(operation, x)
        return self._log(self.broadcast(x[0]))

    def _log(self, x: Any) -> Any:
        b, lanes = self.builder, self.lanes
        words = ir.VectorType(ir.IntType(64), lanes)
        whole = lambda v: ir.Constant(words, [ir.IntType(64)(v)] * lanes)
        real = lambda v: self.number(x.type, v)
        fused = lambda u, v, w: self.intrinsic("llvm.fma", u, v, w)
        small = b.fcmp_ordered("<", x, real(SUBNORMAL))
        scaled = b.select(small, b.fmul(x, real(2.0**54)), x)
        bits = b.bitcast(scaled, words)
        # Subtracting the bits of √½ makes the exponent that of x/√½, rounded down.
        shifted = b.sub(bits, whole(HALF_ROOT))
        k = b.ashr(shifted, whole(52))
        mantissa = b.add(b.and_(shifted, whole(MANTISSA)), whole(HALF_ROOT))
        k = b.sub(k, b.select(small, whole(54), whole(0)))
        power = b.sitofp(k, x.type)
        f = b.fsub(b.bitcast(mantissa, x.type), real(1.0))
        s = b.fdiv(f, b.fadd(f, real(2.0)))
        z, half = b.fmul(s, s), b.fmul(b.fmul(f, real(0.5)), f)
        series = real(2.0 / (2 * TERMS + 1))
        for j in range(TERMS - 1, 0, -1):
            series = fused(series, z, real(2.0 / (2 * j + 1)))
        inner = fused(s, fused(z, series, half), b.fmul(power, real(LOW)))
        out = fused(power, real(HIGH), b.fsub(f, b.fsub(half, inner)))
        out = b.select(b.fcmp_ordered("<", x, real(math.inf)), out, x)  # infinity and NaN
        below = b.select(b.fcmp_ordered("==", x, real(0.0)), real(-math.inf), real(math.nan))
        return b.select(b.fcmp_ordered("<=", x, real(0.0)), below, out)


def _parts() -> tuple[float, float]:
    """log 2 in two parts, the first with 32 bits, so that its product with an exponent is exact."""
    import fractions

    # log 2 = Σ 1/(n 2ⁿ), to more digits than two doubles hold.
    exact = sum(fractions.Fraction(1, n * 2**n) for n in range(1, 120))
    high = math.floor(exact * 2**32) / 2**32
    return high, float(exact - fractions.Fraction(high))


HIGH, LOW = _parts()
