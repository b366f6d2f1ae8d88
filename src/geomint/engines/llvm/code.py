"""Straight-line code as instructions of LLVM: what `scalarize` reads becomes a function of machine code.

numba could compile the same from text, but spends a minute on the types of seven thousand lines; LLVM itself, which numba brings along,
takes a second or two.

With lanes, a value is a vector: the same number of that many members of an ensemble, moved by one instruction. Members part ways in
loops and branches; a mask says which of them a loop or a branch still concerns, the others keep what they had.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from ..scalar.fma_fusion import Remembering
from ..scalar.values import NotCovered, constant

LONGEST = 15_000  # instructions, above which compiling takes longer than ten seconds
REAL, WHOLE, TRUTH = ir.DoubleType(), ir.IntType(64), ir.IntType(1)
COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
INTRINSIC = {"sqrt": "llvm.sqrt", "abs": "llvm.fabs", "floor": "llvm.floor", "ceil": "llvm.ceil"}
LIBRARY = (
    "exp",
    "log",
    "log1p",
    "expm1",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "erf",
    "erfc",
    "cbrt",
    "pow",
    "atan2",
    "fmod",
)


def _element(kind: Any) -> Any:
    return kind.element if isinstance(kind, ir.VectorType) else kind


class Machine(Remembering):
    """The `Code` that writes instructions, for one member or for `lanes` of them at once."""

    longest = LONGEST

    def __init__(self, function: ir.Function, lanes: int = 1):
        super().__init__()
        self.module, self.builder, self.lanes = (
            function.module,
            ir.IRBuilder(function.append_basic_block("entry")),
            lanes,
        )
        self.can_fuse = has_fused()
        self.masks: list[Any] = []  # which lanes the present loops and branches concern

    # --- values -----------------------------------------------------------------------------------------------------
    def instruction(self, x: Any) -> Any:
        """A known number, or one put off, as an operand."""
        if not constant(x):
            return self.settled(x)
        return TRUTH(int(x)) if isinstance(x, bool) else WHOLE(x) if isinstance(x, int) else REAL(x)

    def spread(self, x: Any) -> Any:
        """The same in every lane."""
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

    def alike(self, arguments: list[Any]) -> list[Any]:
        operands = [self.instruction(x) for x in arguments]
        return (
            [self.spread(x) for x in operands] if any(isinstance(x.type, ir.VectorType) for x in operands) else operands
        )

    def written(self, operation: str, x: list[Any]) -> Any:
        x = self.alike(x)
        b, kind = self.builder, x[0].type
        real = _element(kind) == REAL
        if operation == "select":
            return b.select(*x)
        if operation.startswith("to "):
            return self.converted(x[0], operation[-1])
        if operation in COMPARE:
            if real:
                return (b.fcmp_unordered if operation == "ne" else b.fcmp_ordered)(COMPARE[operation], *x)
            # A truth value is one bit, which read with a sign is −1.
            return (b.icmp_unsigned if _element(kind) == TRUTH else b.icmp_signed)(COMPARE[operation], *x)
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
        rule = _REAL.get(operation) if real else _WHOLE.get(operation) if _element(kind) == WHOLE else None
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

    def real(self, x: Any) -> bool:
        return _element(x.type) == REAL

    def fused(self, form: str, x: Any, y: Any, z: Any) -> Any:
        x, y, z = self.alike([x, y, z])
        minus = self.builder.fneg
        return self.intrinsic("llvm.fma", minus(x) if form == "z-xy" else x, y, minus(z) if form == "xy-z" else z)

    def whole_division(self, operation: str, x: Any, y: Any) -> Any:
        """As XLA: x/0 = −1 and x rem 0 = x; and no trap for the least number over −1, nor in lanes that do not count."""
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
        """The larger or smaller; not a number if one is none."""
        b, wins = self.builder, ">" if operation == "max" else "<"
        if _element(x.type) == REAL:
            first = b.or_(b.fcmp_ordered(wins, x, y), b.fcmp_unordered("uno", x, x))
        elif _element(x.type) == TRUTH:
            return b.or_(x, y) if operation == "max" else b.and_(x, y)
        else:
            first = b.icmp_signed(wins, x, y)
        return b.select(first, x, y)

    def converted(self, x: Any, to: str) -> Any:
        b, old = self.builder, _element(x.type)
        kind = self.kind_like(x.type, {"f": REAL, "i": WHOLE, "b": TRUTH}[to])
        if to == "f":
            return b.uitofp(x, kind) if old == TRUTH else b.sitofp(x, kind)
        if to == "i":
            return b.zext(x, kind) if old == TRUTH else self.truncated(x, kind)
        zero = self.number(x.type, 0)
        return b.fcmp_unordered("!=", x, zero) if old == REAL else b.icmp_signed("!=", x, zero)

    def truncated(self, x: Any, kind: Any) -> Any:
        """The whole number toward zero; the nearest there is for those too large, and 0 for what is no number, as XLA does."""
        many = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
        name = f"llvm.fptosi.sat.{many}i64.{many}f64"
        return self.builder.call(
            self.module.globals.get(name) or ir.Function(self.module, ir.FunctionType(kind, [x.type]), name), [x]
        )

    def intrinsic(self, name: str, x: Any, *more: Any, result: Any = None) -> Any:
        suffix = f"v{x.type.count}" if isinstance(x.type, ir.VectorType) else ""
        name = f"{name}.{suffix}{'f64' if _element(x.type) == REAL else f'i{_element(x.type).width}'}"
        found = self.module.globals.get(name)
        return self.builder.call(
            found or ir.Function(self.module, ir.FunctionType(result or x.type, [x.type] * (1 + len(more))), name),
            [x, *more],
        )

    def library(self, name: str, x: list[Any]) -> Any:
        """A function of the C library, lane by lane."""
        b, function = self.builder, self.module.globals.get(name)
        function = function or ir.Function(self.module, ir.FunctionType(REAL, [REAL] * len(x)), name)
        if not isinstance(x[0].type, ir.VectorType):
            return b.call(function, x)
        out = ir.Constant(x[0].type, ir.Undefined)
        for k in range(self.lanes):
            out = b.insert_element(out, b.call(function, [b.extract_element(y, WHOLE(k)) for y in x]), WHOLE(k))
        return out

    # --- loops and branches -----------------------------------------------------------------------------------------
    def while_(
        self, begin: list[Any], test: Callable[[list[Any]], Any], body: Callable[[list[Any]], list[Any]]
    ) -> list[Any]:
        """A loop whose test is one truth value."""
        b = self.builder
        start, head = b.block, b.append_basic_block("loop")
        operands = [self.instruction(x) for x in begin]
        b.branch(head)
        b.position_at_end(head)
        moving = [b.phi(x.type) for x in operands]
        for phi, x in zip(moving, operands, strict=True):
            phi.add_incoming(x, start)
        with self.scope():
            goes_on = self.instruction(test(moving))
            inner, after = b.append_basic_block("body"), b.append_basic_block("after")
            b.cbranch(goes_on, inner, after)
            b.position_at_end(inner)
            with self.scope():
                new = [self.alike([x, phi])[0] for phi, x in zip(moving, body(moving), strict=True)]
                for phi, x in zip(moving, new, strict=True):
                    phi.add_incoming(x, b.block)
                b.branch(head)
        b.position_at_end(after)
        return list(moving)

    def loop(
        self, begin: list[Any], test: Callable[[list[Any]], Any], body: Callable[[list[Any]], list[Any]]
    ) -> list[Any]:
        if self.lanes == 1:
            return self.while_(begin, test, body)
        active: list[Any] = []

        def any_lane(s: list[Any]) -> Any:
            active[:] = [self.within(self.spread(test(s)))]
            return self.any(active[0])

        def masked(s: list[Any]) -> list[Any]:
            mask = active[0]
            with self.masked(mask):
                new = body(s)
            return [self.builder.select(mask, self.spread(x), old) for x, old in zip(new, s, strict=True)]

        return self.while_([self.spread(x) for x in begin], any_lane, masked)

    def repeat(self, count: Any, begin: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
        value = self.value
        step = lambda s: [value("add", s[0], 1), *(self.spread(x) for x in body(s[0], s[1:]))]
        return self.while_([0, *(self.spread(x) for x in begin)], lambda s: value("lt", s[0], count), step)[1:]

    def branch(self, which: Any, cases: list[Callable[[], list[Any]]]) -> list[Any]:
        if isinstance(which.type, ir.VectorType):
            return self.parted(which, cases)
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
            with self.scope():
                values = [self.spread(x) for x in case()]
            ends.append((values, b.block))
            b.branch(after)
        b.position_at_end(after)
        return self.merged(ends)

    def merged(self, ends: list[tuple[list[Any], Any]]) -> list[Any]:
        out = []
        for values in zip(*(values for values, _ in ends), strict=True):
            phi = self.builder.phi(values[0].type)
            for x, (_, block) in zip(values, ends, strict=True):
                phi.add_incoming(x, block)
            out.append(phi)
        return out

    def parted(self, which: Any, cases: list[Callable[[], list[Any]]]) -> list[Any]:
        """Lanes that go different ways: each case for those that take it, if any does."""
        value, last = self.value, len(cases) - 1
        if _element(which.type) == TRUTH:
            takes = [value("not", which), which]
        else:
            takes = [value("le" if k == 0 else "ge" if k == last else "eq", which, k) for k in range(len(cases))]
        results: list[Any] = []
        for mask, case in zip(takes, cases, strict=True):
            mask = self.within(mask)
            values = self.guarded(mask, case)
            results = (
                [self.builder.select(mask, x, old) for x, old in zip(values, results, strict=True)]
                if results
                else values
            )
        return results

    def guarded(self, mask: Any, case: Callable[[], list[Any]]) -> list[Any]:
        b = self.builder
        start, inner, after = b.block, b.append_basic_block("case"), b.append_basic_block("after")
        b.cbranch(self.any(mask), inner, after)
        b.position_at_end(inner)
        with self.scope(), self.masked(mask):
            values = [self.spread(x) for x in case()]
        end = b.block
        b.branch(after)
        b.position_at_end(after)
        return self.merged([(values, end), ([self.number(x.type, 0) for x in values], start)])

    def within(self, mask: Any) -> Any:
        """Those of the lanes that the loops and branches around concern."""
        return self.value("and", mask, self.masks[-1]) if self.masks else mask

    @contextlib.contextmanager
    def masked(self, mask: Any) -> Iterator[None]:
        self.masks.append(mask)
        try:
            yield
        finally:
            self.masks.pop()

    def any(self, mask: Any) -> Any:
        return self.intrinsic("llvm.vector.reduce.or", mask, result=TRUTH)

    # --- memory -----------------------------------------------------------------------------------------------------
    def load(self, array: Any, place: Any, lanes: int = 1) -> Any:
        """The number at that place, or those from there on, one for each lane."""
        pointer = self.builder.gep(array, [self.instruction(place)])
        if lanes == 1:
            return self.builder.load(pointer)
        kind = ir.VectorType(array.type.pointee, lanes)
        return self.builder.load(self.builder.bitcast(pointer, kind.as_pointer()), align=8)

    def store(self, x: Any, array: Any, place: Any) -> None:
        x = self.instruction(x)
        pointer = self.builder.gep(array, [self.instruction(place)])
        if not isinstance(x.type, ir.VectorType):
            self.builder.store(x, pointer)
        else:
            self.builder.store(x, self.builder.bitcast(pointer, x.type.as_pointer()), align=8)

    def scatter(self, x: Any, array: Any, place: Any, apart: Any) -> None:
        """Each lane's number at its own place, `apart` from the next."""
        b, x = self.builder, self.spread(x)
        for k in range(self.lanes):
            number = x if self.lanes == 1 else b.extract_element(x, WHOLE(k))
            b.store(
                number,
                b.gep(array, [self.instruction(self.value("add", place, self.value("mul", apart, k)) if k else place)]),
            )


_REAL: dict[str, Callable[..., Any]] = {
    "div": lambda b, x, y: b.fdiv(x, y),
    "neg": lambda b, x: b.fneg(x),
    "rough": lambda b, x: b.fdiv(Machine.number(x.type, 1), x),  # exactly
}
_WHOLE: dict[str, Callable[..., Any]] = {
    "add": lambda b, x, y: b.add(x, y), "sub": lambda b, x, y: b.sub(x, y), "mul": lambda b, x, y: b.mul(x, y),
    "neg": lambda b, x: b.sub(Machine.number(x.type, 0), x), "shift_left": lambda b, x, y: b.shl(x, y), "shift_right_arithmetic": lambda b, x, y: b.ashr(x, y),
    "shift_right_logical": lambda b, x, y: b.lshr(x, y),
}  # fmt: skip


@functools.cache
def _made_ready() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    library = ctypes.CDLL(ctypes.util.find_library("m") or None)
    for name in LIBRARY:
        llvm.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)


def _target() -> Any:
    """This machine: one for each module, since the compiled module takes it along when it goes."""
    _made_ready()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )


@functools.cache
def has_fused() -> bool:
    """Whether this machine multiplies and adds in one instruction."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("fma") or features.get("neon"))


@functools.cache
def widest() -> int:
    """How many doubles one instruction of this machine moves."""
    features = llvm.get_host_cpu_features()
    return 8 if features.get("avx512f") else 4 if features.get("avx") else 2


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
