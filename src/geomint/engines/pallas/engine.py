"""The kernel engine: an ensemble as one GPU kernel in Pallas, with a member in each lane and the time loop inside.

Every number of a member stays in a register of its lane for the whole call; memory is written only to store rows.
Members take different numbers of iterations and different branches: a mask selects the lanes that take part.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import weakref
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ...methods import Carry
from ...numerics.compilation import jit
from ..block import Buffer
from ..device_rows import DeviceRows
from ..scalar.program import CACHED_LOOPS, Loop, LoopArguments, Packed, StepProgram
from ..scalar.scalar_engine import ScalarEngine
from ..scalar.values import NotCovered
from . import assembly
from .code import LONGEST, PallasCode

SMALL = 24  # largest number of floats and integers in a carry for which registers are limited
# Operations up to this number: registers per lane, for seven or five resident warps on a quarter of a multiprocessor.
REGISTERS = {150: 72, 500: 96}
LANES, WARPS = 32, 1  # members of one program of the grid, and its warps
INTERPRET = False  # run kernels without a GPU, for tests


@dataclasses.dataclass(frozen=True)
class Shape:
    """What is fixed when a kernel is compiled, besides its program."""

    width: int  # numbers of a row
    rows: int  # in the buffer
    members: int
    lanes: int
    warps: int
    interpret: bool

    @property
    def padded(self) -> int:
        return -(-self.members // self.lanes) * self.lanes


# --- memory -----------------------------------------------------------------------------------------------------------
# Triton's compile time grows with (operations)² for each memory access, so that each access transfers many numbers of a
# member. They pass through shared memory, of which larger tiles would leave too little for other programs of the grid.
SMALLEST, LARGEST = 16, 64


def _tile(n: int) -> int:
    return min(LARGEST, max(SMALLEST, 2 ** math.ceil(math.log2(max(n, 1)))))


def _tiled(x: Any, padded: int) -> Any:
    """Numbers (n, members) as (tiles, padded members, numbers of a tile), padded with copies of the last member."""
    n, members = x.shape
    tile = _tile(n)
    tiles = -(-n // tile)
    x = jnp.pad(jnp.pad(x, ((0, tiles * tile - n), (0, 0))), ((0, 0), (0, padded - members)), mode="edge")
    return x.reshape(tiles, tile, padded).swapaxes(1, 2)


def _untiled(x: Any, n: int, members: int) -> Any:
    """The inverse: from (…, tiles, padded members, numbers of a tile) to (…, n, members)."""
    flat = jnp.swapaxes(x, -1, -2).reshape(*x.shape[:-3], -1, x.shape[-2])
    return flat[..., :n, :members]


def _read(ref: Any, mine: Any) -> list[Any]:
    """All numbers of this program's members, each an array over the lanes."""
    return [x[:, 0] for t in range(ref.shape[0]) for x in jax.lax.split(ref[t, mine, :], [1] * ref.shape[-1], axis=1)]


def _write(ref: Any, columns: list[Any], mine: Any, *before: Any) -> None:
    """The inverse of `_read`; `before` are the indices of a row."""
    size = ref.shape[-1]
    filled = [x.astype(ref.dtype) for x in (*columns, *[columns[-1]] * (-len(columns) % size))]
    for t in range(len(filled) // size):
        parts = filled[t * size : (t + 1) * size]
        while len(parts) > 1:  # Triton can join two arrays only
            half = len(parts) // 2
            parts = [jnp.stack([x, y], axis=-1) for x, y in zip(parts[:half], parts[half:], strict=True)]
        ref[(*before, t, mine, slice(None))] = parts[0].reshape(-1, size)


class Columns:
    """The arrays in memory of a tree whose numbers differ between members: floats and then integers in one array if the
    floats are doubles, which hold integers up to 2⁵³; otherwise integers in an array of their own."""

    def __init__(self, packed: Packed, real: Any, whole: Any):
        self.packed, self.real, self.whole = packed, real, whole
        floats, integers = packed.sizes
        self.sizes = [n for n in ([floats + integers] if real == np.float64 else [floats, integers]) if n]

    def arrays(self, tree: Any, padded: int) -> list[Any]:
        if not self.sizes:
            return []
        parts = [x for x in self.packed.pack(tree, jnp, self.real, self.whole) if x.shape[0]]
        parts = [jnp.concatenate([x.astype(self.real) for x in parts])] if self.real == np.float64 else parts
        return [_tiled(x, padded) for x in parts]

    def tree(self, arrays: Any, members: int) -> Any:
        floats = self.packed.sizes[0]
        parts = [_untiled(x, n, members) for x, n in zip(arrays, self.sizes, strict=True)]
        together = parts[0] if len(parts) == 1 else None
        return self.packed.unpack(*(parts if together is None else (together[:floats], together[floats:])))

    def read(self, refs: Any, mine: Any) -> list[Any]:
        floats, columns = (
            self.packed.sizes[0],
            [x for ref, n in zip(refs, self.sizes, strict=True) for x in _read(ref, mine)[:n]],
        )
        found = [(columns[i + floats * k], k, dtype) for k, i, dtype in self.packed.places()]
        return [x != 0 if dtype.kind == "b" else x.astype(self.whole) if k else x for x, k, dtype in found]

    def write(self, refs: Any, mine: Any, values: list[Any]) -> None:
        places = self.packed.places()
        columns = [x for kind in (0, 1) for x, (k, _, _) in zip(values, places, strict=True) if k == kind]
        for ref, n in zip(refs, self.sizes, strict=True):
            _write(ref, columns[:n], mine)
            columns = columns[n:]


def _shared(refs: Any, packed: Packed) -> list[Any]:
    """The numbers of a tree that all members share."""
    found = [(refs[k][i], dtype) for k, i, dtype in packed.places()]
    return [x != 0 if dtype.kind == "b" else x for x, dtype in found]


# --- the kernel -------------------------------------------------------------------------------------------------------
def _kernel(program: StepProgram, shape: Shape, moving: Columns, own: Columns, *refs: Any) -> None:
    """One program of the grid: `lanes` members through all blocks."""
    from jax.experimental import pallas as pl  # .4 s to import, and needed on a GPU alone

    ends = np.cumsum([2, 2, 2 if not program.own_params else len(own.sizes), len(moving.sizes), len(moving.sizes), 1])
    (counts, times), given, params, carry, out, (rows,) = (refs[a:b] for a, b in itertools.pairwise([0, *ends]))
    mine = pl.ds(pl.program_id(0) * shape.lanes, shape.lanes)
    code = PallasCode(shape.lanes, moving.real, shape.interpret)
    store_row = lambda i, row: _write(rows, [code.broadcast(x) for x in row], mine, i)
    arguments = LoopArguments(counts[0], counts[1], counts[2], times[0], times[1])
    shared = program.given.arrays(_shared(given, program.given))
    theirs = program.params.arrays(own.read(params, mine) if program.own_params else _shared(params, program.params))
    state = moving.read(carry, mine)
    *state, _ = Loop(code, program, shared, theirs, arguments, store_row).run(state)
    limit = next((registers for most, registers in REGISTERS.items() if code.count <= most), None)
    if limit is not None and len(state) <= SMALL and not shape.interpret:
        state[0] = assembly.with_register_limit(state[0], limit)
    moving.write(out, mine, state)


def _launch(
    program: StepProgram, shape: Shape, method: Any, system: Any, carry: Carry, counts: Any, times: Any
) -> tuple[Carry, Any]:
    """The carry after the blocks, and their rows (members, rows, width)."""
    from jax.experimental import pallas as pl

    real, whole = times.dtype, counts.dtype
    moving, own = Columns(program.carry, real, whole), Columns(program.params, real, whole)
    at_least_one = lambda packed, tree: [
        x if x.shape[0] else jnp.zeros(1, x.dtype) for x in packed.pack(tree, jnp, real, whole)
    ]
    given = at_least_one(program.given, (method, system.with_params(None)))
    params = (
        own.arrays(system.params, shape.padded) if program.own_params else at_least_one(program.params, system.params)
    )
    carries = moving.arrays(carry, shape.padded)
    tile = _tile(shape.width)
    rows = jax.ShapeDtypeStruct((shape.rows, -(-shape.width // tile), shape.padded, tile), real)
    out_shape = [*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in carries), rows]
    more: dict[str, Any] = {"interpret": True} if shape.interpret else {"compiler_params": _settings(shape)}
    call = pl.pallas_call(
        functools.partial(_kernel, program, shape, moving, own),
        out_shape=out_shape,
        grid=(shape.padded // shape.lanes,),
        name="geomint",
        **more,
    )
    *moved, rows = call(counts, times, *given, *params, *carries)
    return moving.tree(moved, shape.members), _untiled(rows, shape.width, shape.members).transpose(2, 0, 1)


def _settings(shape: Shape) -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=shape.warps, num_stages=1)


def compiled(program: StepProgram, shape: Shape) -> Any:
    """The kernel of a program as a function of (method, system, carry, counts, times)."""
    return _program(program, shape, jax.dtypes.canonicalize_dtype(float))


_compiled: weakref.WeakSet[Any] = weakref.WeakSet()  # kernels that were launched before


@functools.lru_cache(CACHED_LOOPS)
def _program(program: StepProgram, shape: Shape, real: Any) -> Any:
    return jit(functools.partial(_launch, program, shape))


@dataclasses.dataclass
class Kernel(ScalarEngine):
    """The engine of GPU kernels; engine="kernel"."""

    name: ClassVar[str] = "kernel"
    buffer_numbers: ClassVar[int] = 2**26
    on_device: ClassVar[bool] = True

    def compile_program(self, carry: Carry) -> Any:
        if self.spread == "one":
            raise NotCovered("a single trajectory")
        if jax.default_backend() != "gpu" and not INTERPRET:
            raise NotCovered("a machine without a GPU")
        members = self.buffer_shape[0]
        shape = Shape(self.layout.width, self.row_capacity, members, LANES, WARPS, INTERPRET)
        stated = StepProgram(self.method, self.system, carry, self.spread)
        if (
            sum(sum(x.sizes) for x in (stated.given, stated.params, stated.carry)) > LONGEST
        ):  # before seconds of tracing
            raise NotCovered(f"more than {LONGEST} numbers")
        program = compiled(stated, shape)
        if program not in _compiled:  # compile now, so that an error leads to the fallback
            jax.block_until_ready(program(self.method, self.system, carry, *self.scalar_arguments(0, 0, 0)))
            _compiled.add(program)
        return program

    def scalar_arguments(self, first: int, steps: int, blocks: int) -> tuple[Any, Any]:
        return np.array([first, steps, blocks], jax.dtypes.canonicalize_dtype(int)), np.array(
            [self.clock.t0, self.clock.dt], jax.dtypes.canonicalize_dtype(float)
        )

    def buffer(self) -> Buffer:
        return super().buffer() if self.program is None else Buffer(None)

    def recycle_buffer(self, buffer: Buffer) -> None:
        if self.program is None:
            super().recycle_buffer(buffer)

    def run_program(self, carry: Carry, first: int, steps: int, blocks: int, buffer: Buffer) -> tuple[Carry, Buffer]:
        carry, rows = self.program(self.method, self.system, carry, *self.scalar_arguments(first, steps, blocks))
        return carry, Buffer(rows)

    def first_rows_known_good(self, buffer: Buffer) -> bool:
        if self.program is None:
            return super().first_rows_known_good(buffer)
        return DeviceRows.of(buffer.rows, 1).good(self.layout)
