"""The native engine: the loop over steps as machine code, for one trajectory of a small system or for an ensemble.

The numbers of the carry are loop variables, in registers as far as there are enough. Members of an ensemble share
vector instructions, one member in each lane, and groups of members are distributed over all cores. The results of a
member do not depend on its neighbours.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from ...methods import Carry
from ...numerics import disk_cache
from ...numerics.cores import cores
from ..block import Buffer, Log
from ..scalar.program import CACHED_LOOPS, Loop, LoopArguments, Packed, StepProgram, check_length
from ..scalar.program_key import Unhashable
from ..scalar.scalar_engine import ScalarEngine
from ..scalar.translate import operations, primitives
from ..scalar.values import NotCovered, Values


@dataclasses.dataclass
class CompiledLoop:
    """The machine code of a program's loop."""

    program: StepProgram
    run: Any
    engine: Any  # owns the code
    lanes: int


class _FunctionBuilder:
    """Builds the LLVM function around the loop, which loads its numbers from memory and stores them.

    With W lanes a call moves the groups begin, …, end − 1 of W members each; number k of member m is at k·stride + m.
    """

    def __init__(self, program: StepProgram, width: int, lanes: int):
        from llvmlite import ir

        from .code import REAL, WHOLE, LlvmCode

        self.program, self.width, self.lanes = program, width, lanes
        reals, wholes = REAL.as_pointer(), WHOLE.as_pointer()
        self.module = ir.Module("geomint")
        signature = ir.FunctionType(
            WHOLE, [reals, wholes, reals, wholes, reals, wholes, reals, reals, *[WHOLE] * 8, REAL, REAL]
        )
        function = ir.Function(self.module, signature, "run")
        for array in function.args[:8]:
            array.add_attribute("noalias")
        self.code = LlvmCode(function, lanes)
        self.carry, self.given, self.params = function.args[:2], function.args[2:4], function.args[4:6]
        self.rows, self.log, self.room, self.capacity, self.stride, self.begin, self.end = function.args[6:13]
        self.arguments = LoopArguments(*function.args[13:])

    def loaded(self, arrays: Any, packed: Packed, member: Any = None) -> list[Any]:
        """The numbers of a tree, shared by all members, or with `member` those of the W members from there on."""
        code, out = self.code, []
        for k, i, dtype in packed.places():
            x = code.load(arrays[k], i) if member is None else code.load(arrays[k], self.place(i, member), self.lanes)
            out.append(code.value("to b", x) if dtype.kind == "b" else x)
        return out

    def place(self, i: int, member: Any) -> Any:
        return self.code.value("add", self.code.value("mul", self.stride, i), member)

    def write(self) -> None:
        code, value, program = self.code, self.code.value, self.program
        check_length(program.step, code)  # before each number of a large system is loaded
        given = program.given.arrays(self.loaded(self.given, program.given))
        shared = None if program.own_params else program.params.arrays(self.loaded(self.params, program.params))

        def group(g: Any, total: list[Any]) -> list[Any]:
            member = value("mul", value("add", self.begin, g), self.lanes)
            member_stride = value("mul", self.capacity, self.width)
            first_index = value("mul", member, member_stride)

            def store_row(i: Any, row: Values) -> None:
                for k, x in enumerate(row):
                    code.scatter(
                        x,
                        self.rows,
                        value("add", first_index, value("add", value("mul", i, self.width), k)),
                        member_stride,
                    )

            def log_event(events_logged: Any, record: Values) -> None:
                at = value("mul", value("min", events_logged, value("sub", self.room, 1)), 3)
                for k, x in enumerate(record):
                    code.store(x, self.log, value("add", at, k))

            params = (
                program.params.arrays(self.loaded(self.params, program.params, member)) if shared is None else shared
            )
            loop = Loop(code, program, given, params, self.arguments, store_row, None if program.members else log_event)
            *state, events_logged = loop.run(self.loaded(self.carry, program.carry, member))
            for x, (k, i, dtype) in zip(state, program.carry.places(), strict=True):
                code.store(value("to i", x) if dtype.kind == "b" else x, self.carry[k], self.place(i, member))
            return [events_logged] if not program.members else total

        # Groups run one after another, so that their counter is a scalar.
        step = lambda s: [value("add", s[0], 1), *group(s[0], s[1:])]
        done = code.while_([0, 0], lambda s: value("lt", s[0], value("sub", self.end, self.begin)), step)
        code.builder.ret(done[1])


# XLA vectorises operations on long arrays, unless one of the primitives below interrupts its fused loops: a step of FPU
# chains of 20, 100 and 400 springs takes .41, 2.3 and 5.9 µs in scalar code and .97, 1.5 and 3.5 µs by XLA; a step of
# 20 atoms with pair forces takes 4.0 µs in scalar code and 15 µs by XLA.
LARGE_STEP = 2000  # operations
NOT_FUSED_BY_XLA = {"gather", "scatter", "scatter-add", "dot_general", "cholesky", "triangular_solve", "lu", "ffi_call"}


# Seconds on one core, measured on 16 models and methods of 600 to 16,000 operations (step and row together): LLVM takes
# 0.12 to 0.5 ms an operation to compile. XLA takes 0.4 to 0.6 s for explicit methods and 0.7 to 2.3 s where a step
# iterates, whatever their length, and its steps take 0.5 to 1.3 ns an operation longer than those of machine code.
COMPILE_AN_OPERATION = 2.5e-4
COMPILE_BY_XLA, COMPILE_ITERATION_BY_XLA = 0.5, 2.0
SAVED_AN_OPERATION = 1e-9


class Size(NamedTuple):
    """What decides between machine code and XLA for one trajectory."""

    step: int  # operations
    row: int
    fused: bool  # whether XLA fuses all operations of the step
    iterates: bool  # whether the step contains a loop of unknown length, as implicit and constrained methods have

    def faster_steps(self) -> bool:
        """Whether the steps of straight-line code are likely to be faster than those of XLA."""
        return self.step <= LARGE_STEP or not self.fused

    def worth_compiling(self, steps: float) -> bool:
        """Whether a run of so many steps is likely to end earlier with machine code, with the time to compile it. The
        answer does not depend on what is compiled already, so that a run has the same numbers every time."""
        by_xla = COMPILE_ITERATION_BY_XLA if self.iterates else COMPILE_BY_XLA
        all_operations = self.step + self.row
        return COMPILE_AN_OPERATION * all_operations <= by_xla + SAVED_AN_OPERATION * all_operations * steps


@functools.lru_cache(CACHED_LOOPS)
def size_of(program: StepProgram) -> Size:
    found = primitives(program.step)
    fused, iterates = not found & NOT_FUSED_BY_XLA, "while" in found
    return Size(operations(program.step), operations(program.row), fused, iterates)


def check_faster(program: StepProgram, steps: float) -> None:
    """Raise NotCovered where XLA is likely to end a run of so many steps earlier."""
    size = size_of(program)
    if not size.faster_steps():
        raise NotCovered(
            f"more than {LARGE_STEP} operations a step on long arrays, where XLA is faster; "
            'engine="native" forces machine code'
        )
    if not size.worth_compiling(steps):
        raise NotCovered(
            "so few steps, which take XLA less time than machine code would take to compile; "
            'engine="native" forces machine code'
        )


def compiled(program: StepProgram, width: int, lanes: int = 1) -> CompiledLoop:
    """The compiled loop of a program, from memory, from disk or compiled now; NotCovered if there is none."""
    made = _program(program, width, lanes)
    if isinstance(made, str):
        raise NotCovered(made)
    return made


@functools.lru_cache(CACHED_LOOPS)
def _program(program: StepProgram, width: int, lanes: int) -> CompiledLoop | str:
    """The compiled loop, or the reason why there is none. The reason is a text: an exception would keep its frames, and
    all that they refer to, alive."""
    from .compile import load_object

    try:
        name = _disk_key(program, width, lanes)
        stored = None if name is None else disk_cache.read(name)
        if stored is not None:
            kind, content = stored[:1], stored[1:]
            return content.decode() if kind == REASON else _callable(program, load_object(content), lanes)
        try:
            engine, code = _compile(program, width, lanes)
        except NotCovered as reason:
            if name is not None:
                disk_cache.write(name, REASON + str(reason).encode())
            return str(reason)
        if name is not None:
            disk_cache.write(name, CODE + code)
        return _callable(program, engine, lanes)
    finally:
        program.forget_jaxprs()


CODE, REASON = b"c", b"r"  # first byte of a file: object code follows, or the reason why there is none


def _disk_key(program: StepProgram, width: int, lanes: int) -> str | None:
    """The name of the loop's file, or None where it can't be cached."""
    from .code import LlvmCode
    from .compile import environment

    if disk_cache.folder() is None:
        return None
    try:
        return disk_cache.key(program.digest(), environment(), f"{width} {lanes} {LlvmCode.longest}")
    except Unhashable:
        return None


def _compile(program: StepProgram, width: int, lanes: int) -> tuple[Any, bytes]:
    from .compile import compile_module

    builder = _FunctionBuilder(program, width, lanes)
    builder.write()
    return compile_module(builder.module)


def _callable(program: StepProgram, engine: Any, lanes: int) -> CompiledLoop:
    pointer, whole, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    run = ctypes.CFUNCTYPE(whole, *[pointer] * 8, *[whole] * 8, real, real)(engine.get_function_address("run"))
    return CompiledLoop(program, run, engine, lanes)


@functools.cache
def _workers() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(cores(), "geomint")


def _on_all_cores(work: Callable[[int, int], int], groups: int) -> int:
    """The sum of work(begin, end) over parts of the groups. On return, and on Ctrl-C, no part is still running."""
    ends = np.unique(np.linspace(0, groups, 4 * cores() + 1).astype(int)).tolist()
    parts: list[concurrent.futures.Future[int]] = []
    try:
        for begin, end in itertools.pairwise(ends):
            parts.append(
                _workers().submit(work, begin, end)
            )  # one by one, so that Ctrl-C here finds those submitted in `parts`
        return sum(part.result() for part in parts)
    finally:
        for part in parts:
            part.cancel()
        concurrent.futures.wait(parts)


@dataclasses.dataclass
class Native(ScalarEngine):
    """The engine of machine code by LLVM; engine="native"."""

    name: ClassVar[str] = "native"
    only_if_faster: ClassVar[bool] = False

    def compile_program(self, carry: Carry) -> CompiledLoop:
        from .compile import widest

        if jax.dtypes.canonicalize_dtype(float) != np.float64:
            raise NotCovered("numbers of type float32")
        lanes = 1 if self.spread == "one" else LANES or widest()
        program = StepProgram(self.method, self.system, carry, self.spread)
        if self.only_if_faster and lanes == 1:
            check_faster(program, self.run_steps)
        return compiled(program, self.layout.width, lanes)

    def buffer(self) -> Buffer:
        if self.program is None:
            return super().buffer()
        return Buffer(self._empty_rows(), Log.empty(self.log_rows) if self.logs else None)

    def recycle_buffer(self, buffer: Buffer) -> None:
        if self.program is None:
            super().recycle_buffer(buffer)

    def _empty_rows(self) -> np.ndarray:
        """Rows for every lane of every group; a view without those after the last member."""
        if self.spread == "one":
            return np.empty(self.buffer_shape)
        members, *rest = self.buffer_shape
        return np.empty((self._padded(members), *rest))[:members]

    def _padded(self, members: int) -> int:
        return -(-members // self.program.lanes) * self.program.lanes

    def run_program(self, carry: Carry, first: int, steps: int, blocks: int, buffer: Buffer) -> tuple[Carry, Buffer]:
        loop, program = self.program, self.program.program
        members = 1 if self.spread == "one" else self.buffer_shape[0]
        padded = self._padded(members)
        records = np.zeros((1, 3)) if buffer.log is None else np.array(buffer.log.records)
        given = program.given.pack((self.method, self.system.with_params(None)))
        params = program.params.pack(self.system.params)
        moving = [_pad_members(x, padded) for x in program.carry.pack(carry)]
        own = [_pad_members(x, padded) for x in params] if program.own_params else params
        arrays = (*moving, *given, *own, buffer.rows, records)
        settings = (len(records), self.row_capacity, padded)

        def go(begin: int, end: int) -> int:
            # The closure refers to the arrays, not to their addresses, so that they live as long as it runs.
            return loop.run(
                *(x.ctypes.data for x in arrays),
                *settings,
                begin,
                end,
                first,
                steps,
                blocks,
                float(self.clock.t0),
                float(self.clock.dt),
            )

        groups = padded // loop.lanes
        count = go(0, 1) if groups == 1 else _on_all_cores(go, groups)
        carry = program.carry.unpack(*(x[..., :members] if program.members else x for x in moving))
        return carry, Buffer(buffer.rows, None if buffer.log is None else Log(records, np.asarray(count)))


@dataclasses.dataclass
class NativeIfFaster(Native):
    """The engine of "auto": machine code where a run is likely to end earlier with it than with XLA."""

    only_if_faster: ClassVar[bool] = True


LANES = 0  # members in a vector; 0 for as many as a vector register holds


def _pad_members(x: np.ndarray, members: int) -> np.ndarray:
    """Padded with copies of the last member to fill the last group."""
    return np.ascontiguousarray(x if x.ndim == 1 else np.pad(x, ((0, 0), (0, members - x.shape[1])), mode="edge"))
