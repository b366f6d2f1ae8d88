"""Single values as LLVM instructions: the `Code` of the native engine.

The instructions are built by llvmlite. numba could compile the same program from Python source, but spends a minute on
type inference for seven thousand lines; LLVM itself takes a second or two.

With lanes, a value is a vector: the same number of that many members of an ensemble. Loops and branches, in which lanes
differ, are in control_flow.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from ..scalar.fma_fusion import OptimizingCode
from ..scalar.values import NotCovered, constant
from .compile import LIBRARY, has_fused
from .control_flow import REAL, TRUTH, WHOLE, ControlFlow, element

LONGEST = 15_000  # instructions; compiling more takes longer than ten seconds
COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
INTRINSIC = {"sqrt": "llvm.sqrt", "abs": "llvm.fabs", "floor": "llvm.floor", "ceil": "llvm.ceil"}


class LlvmCode(ControlFlow, OptimizingCode):
    """The `Code` that emits LLVM instructions, for one member or for `lanes` members at once."""

    longest = LONGEST

    def __init__(self, function: ir.Function, lanes: int = 1):
        super().__init__()
        self.module, self.builder, self.lanes = (
            function.module,
            ir.IRBuilder(function.append_basic_block("entry")),
            lanes,
        )
        self.can_fuse = has_fused()
        self.masks: list[Any] = []  # of the open loops and branches: which lanes take part

    # --- values -----------------------------------------------------------------------------------------------------
    def instruction(self, x: Any) -> Any:
        """A constant or a deferred value as an operand of an instruction."""
        if not constant(x):
            return self.materialized(x)
        return TRUTH(int(x)) if isinstance(x, bool) else WHOLE(x) if isinstance(x, int) else REAL(x)

    def broadcast(self, x: Any) -> Any:
        """x as a vector: a scalar is copied into every lane."""
        x = self.instruction(x)
        if self.lanes == 1 or isinstance(x.type, ir.VectorType):
            return x
        kind = ir.VectorType(x.type, self.lanes)
        if isinstance(x, ir.Constant):
            return ir.Constant(kind, [x] * self.lanes)
        b = self.builder
        first = b.insert_element(ir.Constant(kind, ir.Undefined), x, WHOLE(0))
        return b.shuffle_vector(
            first,
            ir.Constant(kind, ir.Undefined),
            ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes),
        )

    def broadcast_together(self, arguments: list[Any]) -> list[Any]:
        operands = [self.instruction(x) for x in arguments]
        return (
            [self.broadcast(x) for x in operands]
            if any(isinstance(x.type, ir.VectorType) for x in operands)
            else operands
        )

    def emit(self, operation: str, x: list[Any]) -> Any:
        x = self.broadcast_together(x)
        b, kind = self.builder, x[0].type
        real = element(kind) == REAL
        if operation == "select":
            return b.select(*x)
        if operation.startswith("to "):
            return self.converted(x[0], operation[-1])
        if operation in COMPARE:
            if real:
                return (b.fcmp_unordered if operation == "ne" else b.fcmp_ordered)(COMPARE[operation], *x)
            # A boolean is an integer of one bit; as a signed number it would be −1.
            return (b.icmp_unsigned if element(kind) == TRUTH else b.icmp_signed)(COMPARE[operation], *x)
        if operation in ("and", "or", "xor"):
            return {"and": b.and_, "or": b.or_, "xor": b.xor}[operation](*x)
        if operation == "not":
            return b.not_(x[0])
        if operation in ("max", "min"):
            return self.extreme(operation, *x)
        if real and operation == "mul":
            return b.fmul(*x)
        if real and operation in ("add", "sub"):
            return b.fadd(*x) if operation == "add" else b.fsub(*x)
        if not real and operation in ("div", "rem"):
            return self.whole_division(operation, *x)
        rule = _REAL.get(operation) if real else _WHOLE.get(operation) if element(kind) == WHOLE else None
        if rule is not None:
            return rule(b, *x)
        if real and operation in INTRINSIC:
            return self.intrinsic(INTRINSIC[operation], x[0])
        name = {"rem": "fmod"}.get(operation, operation)
        if real and name in LIBRARY:
            return self.library(name, x)
        if real and operation == "is_finite":
            return b.fcmp_ordered("<", self.intrinsic("llvm.fabs", x[0]), self.number(kind, float("inf")))
        if operation == "sign":
            one, zero = self.number(kind, 1), self.number(kind, 0)
            above, below = (b.fcmp_ordered(c, x[0], zero) if real else b.icmp_signed(c, x[0], zero) for c in (">", "<"))
            return b.select(above, one, b.select(below, self.number(kind, -1), x[0]))
        if operation == "abs":
            zero = self.number(kind, 0)
            return b.select(b.icmp_signed("<", x[0], zero), b.sub(zero, x[0]), x[0])
        if operation == "bits to real":
            return b.bitcast(x[0], self.kind_like(kind, REAL))
        raise NotCovered(f"the operation {operation} on {kind}")

    def is_real(self, x: Any) -> bool:
        return element(x.type) == REAL

    def emit_fused(self, form: str, x: Any, y: Any, z: Any) -> Any:
        x, y, z = self.broadcast_together([x, y, z])
        minus = self.builder.fneg
        return self.intrinsic("llvm.fma", minus(x) if form == "z-xy" else x, y, minus(z) if form == "xy-z" else z)

    def whole_division(self, operation: str, x: Any, y: Any) -> Any:
        """As in XLA, x/0 = −1 and x rem 0 = x. The smallest integer over −1 does not trap, nor do masked lanes."""
        b, number = self.builder, functools.partial(self.number, x.type)
        by_zero, by_minus_one = b.icmp_signed("==", y, number(0)), b.icmp_signed("==", y, number(-1))
        safe = b.select(b.or_(by_zero, by_minus_one), number(1), y)
        plain = b.sdiv(x, safe) if operation == "div" else b.srem(x, safe)
        over_zero, over_minus_one = (number(-1), b.sub(number(0), x)) if operation == "div" else (x, number(0))
        return b.select(by_zero, over_zero, b.select(by_minus_one, over_minus_one, plain))

    @staticmethod
    def kind_like(kind: Any, element: Any) -> Any:
        return ir.VectorType(element, kind.count) if isinstance(kind, ir.VectorType) else element

    @staticmethod
    def number(kind: Any, x: float) -> Any:
        return ir.Constant(kind, [kind.element(x)] * kind.count) if isinstance(kind, ir.VectorType) else kind(x)

    def extreme(self, operation: str, x: Any, y: Any) -> Any:
        """The maximum or minimum; NaN if one of the operands is NaN."""
        b, wins = self.builder, ">" if operation == "max" else "<"
        if element(x.type) == REAL:
            first = b.or_(b.fcmp_ordered(wins, x, y), b.fcmp_unordered("uno", x, x))
        elif element(x.type) == TRUTH:
            return b.or_(x, y) if operation == "max" else b.and_(x, y)
        else:
            first = b.icmp_signed(wins, x, y)
        return b.select(first, x, y)

    def converted(self, x: Any, to: str) -> Any:
        b, old = self.builder, element(x.type)
        kind = self.kind_like(x.type, {"f": REAL, "i": WHOLE, "b": TRUTH}[to])
        if to == "f":
            return b.uitofp(x, kind) if old == TRUTH else b.sitofp(x, kind)
        if to == "i":
            return b.zext(x, kind) if old == TRUTH else self.truncated(x, kind)
        zero = self.number(x.type, 0)
        return b.fcmp_unordered("!=", x, zero) if old == REAL else b.icmp_signed("!=", x, zero)

    def truncated(self, x: Any, kind: Any) -> Any:
        """Conversion to int64 toward zero, saturating, and 0 for NaN, as XLA does."""
        many = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
        name = f"llvm.fptosi.sat.{many}i64.{many}f64"
        return self.builder.call(
            self.module.globals.get(name) or ir.Function(self.module, ir.FunctionType(kind, [x.type]), name), [x]
        )

    def intrinsic(self, name: str, x: Any, *more: Any, result: Any = None) -> Any:
        suffix = f"v{x.type.count}" if isinstance(x.type, ir.VectorType) else ""
        name = f"{name}.{suffix}{'f64' if element(x.type) == REAL else f'i{element(x.type).width}'}"
        found = self.module.globals.get(name)
        return self.builder.call(
            found or ir.Function(self.module, ir.FunctionType(result or x.type, [x.type] * (1 + len(more))), name),
            [x, *more],
        )

    def library(self, name: str, x: list[Any]) -> Any:
        """A call of a function of the C library, lane by lane."""
        b, function = self.builder, self.module.globals.get(name)
        function = function or ir.Function(self.module, ir.FunctionType(REAL, [REAL] * len(x)), name)
        if not isinstance(x[0].type, ir.VectorType):
            return b.call(function, x)
        out = ir.Constant(x[0].type, ir.Undefined)
        for k in range(self.lanes):
            out = b.insert_element(out, b.call(function, [b.extract_element(y, WHOLE(k)) for y in x]), WHOLE(k))
        return out


_REAL: dict[str, Callable[..., Any]] = {
    "div": lambda b, x, y: b.fdiv(x, y),
    "neg": lambda b, x: b.fneg(x),
    "rough": lambda b, x: b.fdiv(LlvmCode.number(x.type, 1), x),  # the exact reciprocal
}
_WHOLE: dict[str, Callable[..., Any]] = {
    "add": lambda b, x, y: b.add(x, y),
    "sub": lambda b, x, y: b.sub(x, y),
    "mul": lambda b, x, y: b.mul(x, y),
    "neg": lambda b, x: b.sub(LlvmCode.number(x.type, 0), x),
    "shift_left": lambda b, x, y: b.shl(x, y),
    "shift_right_arithmetic": lambda b, x, y: b.ashr(x, y),
    "shift_right_logical": lambda b, x, y: b.lshr(x, y),
}
