"""The native engine: a method's step as one loop of machine code, for one trajectory of a small system.

The step, what is seen at a save, and for event-driven methods the time and the event, are made into straight-line code on single
numbers (`scalarize`), put into the loop of the block, and compiled (`machine`). The numbers of the carry are registers of that loop.

All that is traced in the reference engine is an argument here: dt, t0, params, mass, the floats of a method. One program serves a
sweep over them.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
from typing import Any, ClassVar

import jax
import numpy as np

from ..lagrange import derive
from ..methods import Carry, Method, State
from ..system import Stated
from .block import Kept, Log, Observed, _pack, observe
from .scalar_values import NotCovered, Values, filled
from .scalarize import Reader, arrays
from .xla import Xla


class Packed:
    """A tree of arrays as two flat ones, of floats and of integers (and truth values), and back."""

    def __init__(self, tree: Any):
        leaves, self.treedef = jax.tree.flatten(tree)
        self.shapes = [(np.shape(x), np.asarray(x).dtype) for x in leaves]

    def pack(self, tree: Any) -> tuple[np.ndarray, np.ndarray]:
        leaves = [np.ravel(np.asarray(x)) for x in jax.tree.leaves(tree)]
        of = lambda floats, dtype: np.concatenate([np.zeros(0, dtype), *(x.astype(dtype) for x, (_, d) in zip(leaves, self.shapes, strict=True) if (d.kind == "f") is floats)])
        return of(True, np.float64), of(False, np.int64)

    def unpack(self, floats: np.ndarray, integers: np.ndarray) -> Any:
        at, leaves = [0, 0], []
        for shape, dtype in self.shapes:
            k, size = int(dtype.kind != "f"), math.prod(shape)
            leaves.append((floats, integers)[k][at[k] : at[k] + size].reshape(shape).astype(dtype))
            at[k] += size
        return jax.tree.unflatten(self.treedef, leaves)

    def places(self) -> list[tuple[int, int, np.dtype]]:
        """For each number in turn: in which of the two arrays, where, and of what type."""
        at, out = [0, 0], []
        for shape, dtype in self.shapes:
            k = int(dtype.kind != "f")
            out += [(k, at[k] + i, dtype) for i in range(math.prod(shape))]
            at[k] += math.prod(shape)
        return out

    def arrays(self, flat: list[Any]) -> list[Values]:
        return arrays(flat, [shape for shape, _ in self.shapes])


@dataclasses.dataclass
class Program:
    """The compiled loop of one (method, system, shapes)."""

    carry: Packed
    given: Packed
    run: Any
    engine: Any  # owns the code
    instructions: int


class _Writer:
    """Writes the loop."""

    def __init__(self, method: Method, system: Stated, carry: Carry):
        from llvmlite import ir

        from .machine import REAL, WHOLE, Machine

        self.moving, self.given, self.event_driven = Packed(carry), Packed((method, system)), method.traits.event_driven
        shown = jax.eval_shape(lambda c: method.output(derive(system), c).q, carry)
        self.shape = getattr(shown, "value", shown).shape
        reals, wholes = REAL.as_pointer(), WHOLE.as_pointer()
        self.module = ir.Module("geomint")
        signature = ir.FunctionType(WHOLE, [reals, wholes, reals, wholes, reals, reals, WHOLE, WHOLE, WHOLE, WHOLE, REAL, REAL])
        function = ir.Function(self.module, signature, "run")
        for array in function.args[:6]:
            array.add_attribute("noalias")
        self.code = Machine(function)
        self.carries, self.givens = function.args[:2], function.args[2:4]
        self.rows, self.log, self.room, self.first, self.steps, self.blocks, self.t0, self.dt = function.args[4:]
        self.constants = self.given.arrays(self.loaded(self.givens, self.given))

    def loaded(self, arrays: Any, packed: Packed) -> list[Any]:
        code = self.code
        numbers = [(code.load(arrays[k], i), dtype) for k, i, dtype in packed.places()]
        return [code.value("to b", x) if dtype.kind == "b" else x for x, dtype in numbers]

    def read(self, state: list[Any], function: Any, *more: Any) -> list[Values]:
        """function(method, system, carry, …) on values, with floats `more` behind."""
        given, moving = self.given, self.moving
        flat = lambda g, c, *x: function(*jax.tree.unflatten(given.treedef, g), jax.tree.unflatten(moving.treedef, c), *x)
        shapes = lambda packed: [jax.ShapeDtypeStruct(s, d) for s, d in packed.shapes]
        program = jax.make_jaxpr(flat)(shapes(given), shapes(moving), *[jax.ShapeDtypeStruct((), float)] * len(more))
        return Reader(self.code).read(program, [*self.constants, *moving.arrays(state), *(filled((), [x]) for x in more)])

    def step(self, state: list[Any]) -> list[Any]:
        new = self.read(state, lambda m, s, c, h: jax.tree.leaves(m.step(derive(s, self.shape), c, h)), self.dt)
        return [x for array in new for x in array.ravel()]

    def fixed(self, state: list[Any]) -> list[Any]:
        value = self.code.value
        done = self.code.loop([0, *state], lambda s: value("lt", s[0], self.steps), lambda s: [value("add", s[0], 1), *self.step(s[1:])])
        return done[1:]

    def events(self, state: list[Any], until: Any) -> list[Any]:
        """State, and behind it the number of events noted."""
        value, code = self.code.value, self.code

        def test(s: list[Any]) -> Any:
            return value("lt", self.read(s[:-1], lambda m, _, c: m.time(c))[0].item(), until)

        def body(s: list[Any]) -> list[Any]:
            before = self.read(s[:-1], lambda m, _, c: m.events(c))[0].item()
            new, noted = self.step(s[:-1]), s[-1]
            record, count = self.read(new, lambda m, _, c: (m.event(c), m.events(c)))
            row = value("mul", value("min", noted, value("sub", self.room, 1)), 3)
            for k, x in enumerate(record):
                code.store(x, self.log, value("add", row, k))
            return [*new, value("add", noted, value("sub", count.item(), before))]

        return code.loop(state, test, body)

    def write(self) -> None:
        code, value = self.code, self.code.value

        def block(s: list[Any]) -> list[Any]:
            i, state, noted = s[0], s[1:-1], s[-1]
            step = value("add", self.first, value("mul", value("add", i, 1), self.steps))
            until = value("add", self.t0, value("mul", value("to f", step), self.dt))
            if self.event_driven:
                *state, noted = self.events([*state, noted], until)
            else:
                state = self.fixed(state)
            (row,) = self.read(state, lambda m, s, c, t: _pack(observe(m, derive(s, self.shape), c, t), float), until)
            for k, x in enumerate(row):
                code.store(x, self.rows, value("add", value("mul", i, len(row)), k))
            return [value("add", i, 1), *state, noted]

        *state, noted = code.loop([0, *self.loaded(self.carries, self.moving), 0], lambda s: value("lt", s[0], self.blocks), block)
        for x, (k, i, dtype) in zip(state[1:], self.moving.places(), strict=True):
            code.store(value("to i", x) if dtype.kind == "b" else x, self.carries[k], i)
        code.builder.ret(noted)


_programs: dict[Any, Program | NotCovered] = {}


def compiled(method: Method, system: Stated, carry: Carry) -> Program:
    """The program for a method and a system, from the cache or made now; NotCovered says why there is none."""
    leaves, treedef = jax.tree.flatten((method, system, carry))
    key = treedef, tuple((np.shape(x), str(np.asarray(x).dtype)) for x in leaves)
    if key not in _programs:
        try:
            _programs[key] = _compile(method, system, carry)
        except NotCovered as reason:
            _programs[key] = reason
    made = _programs[key]
    if isinstance(made, NotCovered):
        raise made
    return made


def _compile(method: Method, system: Stated, carry: Carry) -> Program:
    from .machine import compile_module

    writer = _Writer(method, system, carry)
    writer.write()
    engine = compile_module(writer.module)
    pointer, whole, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    run = ctypes.CFUNCTYPE(whole, *[pointer] * 6, whole, whole, whole, whole, real, real)(engine.get_function_address("run"))
    return Program(writer.moving, writer.given, run, engine, writer.code.count)


@dataclasses.dataclass
class Native(Xla):
    """One trajectory in machine code; where that can't be made, the reference engine, with the reason."""

    name: ClassVar[str] = "native"
    reason: str = ""

    def begin(self, state: State) -> tuple[Carry, Observed]:
        carry, seen = super().begin(state)
        self.program: Program | None = None
        try:
            if self.spread != "one":
                raise NotCovered("an ensemble")
            if jax.dtypes.canonicalize_dtype(float) != np.float64:
                raise NotCovered("numbers of type float32")
            self.program = compiled(self.method, self.system, carry)
        except NotCovered as reason:
            self.reason = str(reason)
        except Exception as reason:  # another version of JAX or LLVM: whatever it is, there is the reference engine
            self.reason = f"this program ({type(reason).__name__}: {reason})"
        return carry, seen

    @property
    def described(self) -> str:
        return self.name if self.program is not None else f"xla (the native engine does not cover {self.reason})"

    def advance(self, carry: Carry, first: int, steps: int, blocks: int, buffer: Kept) -> tuple[Carry, Kept]:
        program = self.program
        if program is None:
            return super().advance(carry, first, steps, blocks, buffer)
        rows = buffer.rows if isinstance(buffer.rows, np.ndarray) else np.zeros(self.buffer_shape)
        records = np.zeros((1, 3)) if buffer.log is None else np.array(buffer.log.records)
        numbers = (*program.carry.pack(carry), *program.given.pack((self.method, self.system)), rows, records)
        count = program.run(*(x.ctypes.data for x in numbers), len(records), first, steps, blocks, float(self.clock.t0), float(self.clock.dt))
        return program.carry.unpack(*numbers[:2]), Kept(rows, None if buffer.log is None else Log(records, np.asarray(count)))
