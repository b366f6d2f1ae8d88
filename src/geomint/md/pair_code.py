"""Sums over all pairs as machine code of the CPU, called by XLA through its foreign function interface.

The function of one pair (`Term.energy`, `Term.derivative`) is traced and translated to vector instructions by the
translation of the native engine, so that any φ gets vector code. Around it is the loop over pairs, each taken once: the
positions are copied to one array for each component, `ROWS` particles i are kept in registers, and the vectors of
`lanes` particles j > i are run through; i sums in registers, j in memory. The order of all sums is fixed.

Square roots and quotients decide the speed: of r = √s one reciprocal square root serves r, 1/r and all quotients by r.
With AVX-512 it is computed from an approximation of 14 bits (see `PairCode`), in a third of the time of the exact
instructions.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from ..engines.llvm import compile as machine
from ..engines.llvm.code import LlvmCode
from ..engines.llvm.xla_handler import BYTE, INT32, REAL, WHOLE, HandlerBuilder, registered
from ..engines.scalar.reciprocals import Reciprocals
from ..engines.scalar.values import constant
from ..numerics.linalg.xla_ffi import ARGUMENTS, RESULTS
from .pair_terms import Term, pair_program

ROWS = 2  # particles i in registers


class PairCode(Reciprocals, LlvmCode):
    """Vector code of one pair.

    From y₀ ≈ 1/√x, e = 1 − x y₀² and |e| < 2⁻¹³, the series y = y₀ (1 + e/2 + 3e²/8 + 5e³/16 + …) is cut off after e³,
    where the next term is below 2⁻⁵³. Results are within 2 units in the last place; at 0 and infinity, where e is not a
    number, y₀ is exact.
    """

    by_reciprocals = True

    def __init__(self, function: ir.Function, lanes: int):
        super().__init__(function, lanes)
        self.approximate = lanes == 8 and machine.widest() == 8

    def root(self, x: Any) -> tuple[Any, Any]:
        b, x = self.builder, self.broadcast(x)
        if not self.approximate:
            root = self.intrinsic("llvm.sqrt", x)
            return root, b.fdiv(self.number(x.type, 1.0), root)
        first = self.estimate("llvm.x86.avx512.rsqrt14.pd.512", x)
        error = self.fused(b.fneg(b.fmul(x, first)), first, 1.0)
        series = self.fused(self.fused(error, 0.3125, 0.375), error, 0.5)
        better = self.fused(b.fmul(first, error), series, first)
        regular = b.fcmp_ordered("ord", error, error)
        inverse = b.select(regular, better, first)
        # x y at 0 and infinity would not be a number, and x < 0 has no root.
        special = b.select(b.fcmp_ordered("ord", first, first), x, first)
        return b.select(regular, b.fmul(x, inverse), special), inverse

    def reciprocal(self, x: Any) -> Any:
        """From an approximation z₀ of 14 bits: with e = 1 − x z₀, z₀ (1 + e)(1 + e²)."""
        b, x = self.builder, self.broadcast(x)
        if not self.approximate:
            return b.fdiv(self.number(x.type, 1.0), x)
        first = self.estimate("llvm.x86.avx512.rcp14.pd.512", x)
        error = self.fused(b.fneg(x), first, 1.0)
        better = self.fused(first, error, first)
        better = self.fused(better, b.fmul(error, error), better)
        return b.select(b.fcmp_ordered("ord", error, error), better, first)

    def product(self, x: Any, y: Any) -> Any:
        return self.builder.fmul(x, y)

    def fused(self, x: Any, y: Any, z: Any) -> Any:
        return self.intrinsic("llvm.fma", *(self.number(x.type, v) if constant(v) else v for v in (x, y, z)))

    def estimate(self, name: str, x: Any) -> Any:
        function = self.module.globals.get(name) or ir.Function(
            self.module, ir.FunctionType(x.type, [x.type, x.type, BYTE]), name
        )
        return self.builder.call(function, [x, self.number(x.type, 0.0), BYTE(-1)])


class KernelBuilder(HandlerBuilder):
    """Writes the handler that XLA calls. Arguments: q, the directions, the parameters of sites, and the tables of
    pair_tables.py; results: the sum, and memory for the copies."""

    def __init__(self, term: Term, order: int, dimension: int, program: Any, lanes: int):
        super().__init__("geomint_pairs", lanes)
        self.term, self.order, self.dimension = term, order, dimension
        self.vectors, self.sites = max(order, 1), len(term.names)
        self.inputs, self.outputs = self.vectors * dimension + self.sites, dimension if order else 1
        count = self.vectors * dimension + 2 * self.sites
        self.pair = self.inlined("pair", program, count, self.outputs, PairCode)
        self._handler()

    # --- the handler ------------------------------------------------------------------------------------------------
    def _handler(self) -> None:
        frame, places = self.open([self.kind] * (ROWS * self.outputs) + [REAL, WHOLE])
        b, (*self.sums, self.energy, self.next) = self.b, places
        given = self.vectors + self.sites
        self.given = [self.buffer(frame, ARGUMENTS, k, REAL) for k in range(given)]
        self.which, settings, self.starts, self.at = (self.buffer(frame, ARGUMENTS, given + k, INT32) for k in range(4))
        self.masks = self.buffer(frame, ARGUMENTS, given + 4, BYTE if self.lanes == 8 else INT32)
        self.out, self.scratch = (self.buffer(frame, RESULTS, k, REAL) for k in range(2))
        self.total, self.chosen, self.width, self.blocks, batch = (
            b.sext(b.load(b.gep(settings, [WHOLE(k)])), WHOLE) for k in range(5)
        )
        self.padded = b.mul(self.width, WHOLE(self.lanes))
        self.rows = [b.gep(self.scratch, [b.mul(self.padded, WHOLE(k))]) for k in range(self.inputs)]
        forces = range(self.inputs, self.inputs + (self.outputs if self.order else 0))
        self.forces = [b.gep(self.scratch, [b.mul(self.padded, WHOLE(k))]) for k in forces]
        self.repeat(WHOLE(0), batch, self._member)
        self.b.ret(WHOLE(0))

    def _member(self, member: Any) -> None:
        b = self.b
        self._copy_in(b.mul(member, self.total))
        b.store(REAL(0.0), self.energy)
        self.repeat(WHOLE(0), self.blocks, self._block)
        if self.order == 0:
            b.store(b.load(self.energy), b.gep(self.out, [member]))
            return
        out = b.gep(self.out, [b.mul(member, b.mul(self.total, WHOLE(self.dimension)))])
        clear = lambda k: b.store(REAL(0.0), b.gep(out, [k]))
        self.repeat(WHOLE(0), b.mul(self.total, WHOLE(self.dimension)), clear)

        def copy(k: Any) -> None:
            place = b.mul(b.sext(b.load(b.gep(self.which, [k])), WHOLE), WHOLE(self.dimension))
            for c, force in enumerate(self.forces):
                b.store(b.load(b.gep(force, [k])), b.gep(out, [b.add(place, WHOLE(c))]))

        self.repeat(WHOLE(0), self.chosen, copy)

    def _copy_in(self, offset: Any) -> None:
        """The chosen particles to one array for each component, filled up with copies of the last one."""
        b, d = self.b, self.dimension

        def copy(k: Any) -> None:
            last = b.sub(self.chosen, WHOLE(1))
            source = b.select(b.icmp_signed("<", k, self.chosen), k, last)
            i = b.add(offset, b.sext(b.load(b.gep(self.which, [source])), WHOLE))
            for v in range(self.vectors):
                for c in range(d):
                    x = b.load(b.gep(self.given[v], [b.add(b.mul(i, WHOLE(d)), WHOLE(c))]))
                    b.store(x, b.gep(self.rows[v * d + c], [k]))
            for s in range(self.sites):
                b.store(b.load(b.gep(self.given[self.vectors + s], [i])), b.gep(self.rows[self.vectors * d + s], [k]))
            for force in self.forces:
                b.store(REAL(0.0), b.gep(force, [k]))

        self.repeat(WHOLE(0), self.padded, copy)

    def _block(self, block: Any) -> None:
        """`ROWS` particles i with all j."""
        b = self.b
        first = b.mul(block, WHOLE(ROWS))
        here = [[self.splat(b.load(b.gep(x, [b.add(first, WHOLE(r))]))) for x in self.rows] for r in range(ROWS)]
        for x in self.sums:
            b.store(self.zeros(), x)
        b.store(b.sdiv(first, WHOLE(self.lanes)), self.next)
        begin, end = (b.sext(b.load(b.gep(self.starts, [b.add(block, WHOLE(k))])), WHOLE) for k in range(2))

        def entry(e: Any) -> None:
            vector = b.sext(b.load(b.gep(self.at, [e])), WHOLE)
            self.repeat(b.load(self.next), vector, lambda j: self._vector(here, j, None))
            self._vector(here, vector, e)
            b.store(b.add(vector, WHOLE(1)), self.next)

        self.repeat(begin, end, entry)
        for r in range(ROWS):
            for c in range(self.outputs):
                total = self.sum_of_lanes(b.load(self.sums[r * self.outputs + c]))
                place = b.gep(self.forces[c], [b.add(first, WHOLE(r))]) if self.order else self.energy
                b.store(b.fadd(b.load(place), total), place)

    def _vector(self, here: Any, j: Any, entry: Any) -> None:
        """The particles i with a vector of particles j; with an entry, the pairs of its masks."""
        b, zero = self.b, self.zeros()
        at = b.mul(j, WHOLE(self.lanes))
        there = [self.load(x, at) for x in self.rows]
        forces = [self.load(x, at) for x in self.forces]
        differing = self.vectors * self.dimension
        for r in range(ROWS):
            apart = [self._nearest(b.fsub(x, y), k) for k, (x, y) in enumerate(zip(here[r], there, strict=True))]
            found = b.call(self.pair, [*apart[:differing], *here[r][differing:], *there[differing:]])
            for c in range(self.outputs):
                x, y = (b.extract_value(found, 2 * c + part) for part in range(2))
                if entry is not None:
                    x, y = (b.select(self._mask(entry, r), v, zero) for v in (x, y))
                place = self.sums[r * self.outputs + c]
                b.store(self.fused(x, y, b.load(place)), place)
                if self.order:
                    forces[c] = self.fused(b.fneg(x), y, forces[c])
        for x, place in zip(forces, self.forces, strict=True):
            pointer = b.bitcast(b.gep(place, [at]), self.kind.as_pointer())
            b.store(x, pointer, align=8)

    def _mask(self, entry: Any, r: int) -> Any:
        bits = self.b.load(self.b.gep(self.masks, [self.b.add(self.b.mul(entry, WHOLE(ROWS)), WHOLE(r))]))
        if self.lanes != 8:
            bits = self.b.trunc(bits, ir.IntType(self.lanes))
        return self.b.bitcast(bits, ir.VectorType(ir.IntType(1), self.lanes))

    def _nearest(self, x: Any, k: int) -> Any:
        if self.term.edges is None or k >= self.dimension:
            return x
        b, edge = self.b, self.term.edges[k]
        number = lambda v: ir.Constant(self.kind, [REAL(v)] * self.lanes)
        images = b.call(self.intrinsic("llvm.rint", 1), [b.fmul(x, number(1.0 / edge))])
        return self.fused(number(-edge), images, x)


# --- compiled and registered ------------------------------------------------------------------------------------------
@functools.lru_cache(256)
def target(term: Term, order: int, dimension: int) -> str:
    """The name under which XLA knows the handler, which is compiled now where it is not on disk. NotCovered where φ has
    an operation that is not covered."""
    program, lanes = pair_program(term, order, dimension), machine.widest()
    settings = f"{order} {dimension} {term.edges} {len(term.names)} {ROWS} {lanes}"
    module = lambda: KernelBuilder(term, order, dimension, program, lanes).module
    return registered("geomint_pairs", program, settings, __file__, module)


def memory(term: Term, order: int, dimension: int, padded: int) -> int:
    """Numbers that the handler needs for its copies."""
    return (max(order, 1) * dimension + len(term.names) + (dimension if order else 0)) * padded
