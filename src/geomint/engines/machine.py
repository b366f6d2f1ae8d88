"""Straight-line code as instructions of LLVM: what `scalarize` reads becomes a function of machine code.

numba could compile the same from text, but spends a minute on the types of seven thousand lines; LLVM itself, which numba brings along,
takes a second or two. Products and sums may be contracted into one instruction, as XLA does.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from .scalar_values import NotCovered, constant

LONGEST = 40_000  # instructions, above which straight-line code does not pay
REAL, WHOLE, TRUTH = ir.DoubleType(), ir.IntType(64), ir.IntType(1)
COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
INTRINSIC = {"sqrt": "llvm.sqrt", "abs": "llvm.fabs", "floor": "llvm.floor", "ceil": "llvm.ceil"}
LIBRARY = ("exp", "log", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "erf", "erfc", "cbrt", "pow", "atan2", "fmod")
FLAGS = ("contract",)


class Machine:
    """The `Code` that writes instructions. Within a block and those it dominates, nothing is computed twice."""

    def __init__(self, function: ir.Function):
        self.module, self.builder = function.module, ir.IRBuilder(function.append_basic_block("entry"))
        self.seen: list[dict[Any, Any]] = [{}]
        self.count = 0

    # --- values -----------------------------------------------------------------------------------------------------
    def instruction(self, x: Any) -> Any:
        """A known number as an operand."""
        if not constant(x):
            return x
        return TRUTH(int(x)) if isinstance(x, bool) else WHOLE(x) if isinstance(x, int) else REAL(x)

    def value(self, operation: str, *arguments: Any) -> Any:
        key = (operation, *((type(x), x) if constant(x) else id(x) for x in arguments))
        for block in reversed(self.seen):
            if key in block:
                return block[key][0]
        self.count += 1
        if self.count > LONGEST:
            raise NotCovered(f"more than {LONGEST} operations a step")
        operands = [self.instruction(x) for x in arguments]
        made = self.written(operation, operands)
        self.seen[-1][key] = made, arguments  # which keeps their ids alive
        return made

    def written(self, operation: str, x: list[Any]) -> Any:
        b, kind = self.builder, x[0].type
        if operation == "select":
            return b.select(*x)
        if operation.startswith("to "):
            return self.converted(x[0], operation[-1])
        if operation in COMPARE:
            if kind == REAL:
                return (b.fcmp_unordered if operation == "ne" else b.fcmp_ordered)(COMPARE[operation], *x)
            return b.icmp_signed(COMPARE[operation], *x)
        if operation in ("and", "or", "xor"):
            return {"and": b.and_, "or": b.or_, "xor": b.xor}[operation](*x)
        if operation == "not":
            return b.not_(x[0])
        if operation in ("max", "min"):
            return self.extreme(operation, *x)
        rule = _REAL.get(operation) if kind == REAL else _WHOLE.get(operation)
        if rule is not None:
            return rule(b, *x)
        if kind == REAL and operation in INTRINSIC:
            return b.call(self.module.declare_intrinsic(INTRINSIC[operation], [REAL]), x)
        name = {"rem": "fmod"}.get(operation, operation)
        if kind == REAL and name in LIBRARY:
            return b.call(self.library(name, len(x)), x)
        if kind == REAL and operation == "is_finite":
            return b.fcmp_ordered("<", b.call(self.module.declare_intrinsic("llvm.fabs", [REAL]), x), REAL(float("inf")))
        if operation == "sign":
            one, zero = kind(1), kind(0)
            above, below = (b.fcmp_ordered(c, x[0], zero) if kind == REAL else b.icmp_signed(c, x[0], zero) for c in (">", "<"))
            return b.select(above, one, b.select(below, kind(-1), x[0]))
        if operation == "abs":
            return b.select(b.icmp_signed("<", x[0], WHOLE(0)), b.neg(x[0]), x[0])
        raise NotCovered(f"the operation {operation} on {kind}")

    def extreme(self, operation: str, x: Any, y: Any) -> Any:
        """The larger or smaller; not a number if one is none."""
        b, wins = self.builder, ">" if operation == "max" else "<"
        if x.type == REAL:
            first = b.or_(b.fcmp_ordered(wins, x, y), b.fcmp_unordered("uno", x, x))
        elif x.type == TRUTH:
            return b.or_(x, y) if operation == "max" else b.and_(x, y)
        else:
            first = b.icmp_signed(wins, x, y)
        return b.select(first, x, y)

    def converted(self, x: Any, to: str) -> Any:
        b = self.builder
        if to == "f":
            return b.uitofp(x, REAL) if x.type == TRUTH else b.sitofp(x, REAL)
        if to == "i":
            return b.zext(x, WHOLE) if x.type == TRUTH else b.fptosi(x, WHOLE)
        return b.fcmp_unordered("!=", x, REAL(0)) if x.type == REAL else b.icmp_signed("!=", x, x.type(0))

    def library(self, name: str, arity: int) -> Any:
        found = self.module.globals.get(name)
        return found or ir.Function(self.module, ir.FunctionType(REAL, [REAL] * arity), name)

    # --- loops and branches -----------------------------------------------------------------------------------------
    def loop(self, begin: list[Any], test: Callable[[list[Any]], Any], body: Callable[[list[Any]], list[Any]]) -> list[Any]:
        b = self.builder
        start, head = b.block, b.append_basic_block("loop")
        operands = [self.instruction(x) for x in begin]
        b.branch(head)
        b.position_at_end(head)
        moving = [b.phi(x.type) for x in operands]
        for phi, x in zip(moving, operands, strict=True):
            phi.add_incoming(x, start)
        self.seen.append({})
        goes_on = self.instruction(test(moving))
        inner, after = b.append_basic_block("body"), b.append_basic_block("after")
        b.cbranch(goes_on, inner, after)
        b.position_at_end(inner)
        self.seen.append({})
        new = [self.instruction(x) for x in body(moving)]
        for phi, x in zip(moving, new, strict=True):
            phi.add_incoming(x, b.block)
        b.branch(head)
        self.seen.pop()
        self.seen.pop()
        b.position_at_end(after)
        return list(moving)

    def branch(self, which: Any, cases: list[Callable[[], list[Any]]]) -> list[Any]:
        b = self.builder
        blocks, after = [b.append_basic_block("case") for _ in cases], b.append_basic_block("after")
        if which.type == TRUTH:
            b.cbranch(which, blocks[1], blocks[0])
        else:
            choice = b.switch(which, blocks[-1])
            for k, block in enumerate(blocks[:-1]):
                choice.add_case(WHOLE(k), block)
        ends = []
        for block, case in zip(blocks, cases, strict=True):
            b.position_at_end(block)
            self.seen.append({})
            values = [self.instruction(x) for x in case()]
            self.seen.pop()
            ends.append((values, b.block))
            b.branch(after)
        b.position_at_end(after)
        merged = []
        for values in zip(*(values for values, _ in ends), strict=True):
            phi = b.phi(values[0].type)
            for x, (_, block) in zip(values, ends, strict=True):
                phi.add_incoming(x, block)
            merged.append(phi)
        return merged

    # --- memory -----------------------------------------------------------------------------------------------------
    def load(self, array: Any, place: Any) -> Any:
        return self.builder.load(self.builder.gep(array, [self.instruction(place)]))

    def store(self, x: Any, array: Any, place: Any) -> None:
        self.builder.store(self.instruction(x), self.builder.gep(array, [self.instruction(place)]))


_REAL: dict[str, Callable[..., Any]] = {
    "add": lambda b, x, y: b.fadd(x, y, flags=FLAGS), "sub": lambda b, x, y: b.fsub(x, y, flags=FLAGS), "mul": lambda b, x, y: b.fmul(x, y, flags=FLAGS),
    "div": lambda b, x, y: b.fdiv(x, y), "neg": lambda b, x: b.fneg(x),
}  # fmt: skip
_WHOLE: dict[str, Callable[..., Any]] = {
    "add": lambda b, x, y: b.add(x, y), "sub": lambda b, x, y: b.sub(x, y), "mul": lambda b, x, y: b.mul(x, y), "div": lambda b, x, y: b.sdiv(x, y), "rem": lambda b, x, y: b.srem(x, y),
    "neg": lambda b, x: b.neg(x), "shift_left": lambda b, x, y: b.shl(x, y), "shift_right_arithmetic": lambda b, x, y: b.ashr(x, y),
}  # fmt: skip


@functools.cache
def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    library = ctypes.CDLL(ctypes.util.find_library("m") or None)
    for name in LIBRARY:
        llvm.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    return llvm.Target.from_default_triple().create_target_machine(cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3)


def compile_module(module: ir.Module) -> Any:
    """The module as machine code; keep what is returned as long as its functions are used."""
    machine = _target()
    module.triple, module.data_layout = llvm.get_default_triple(), str(machine.target_data)
    parsed = llvm.parse_assembly(str(module))
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(parsed, builder)
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    return engine
