"""Sums over all elements as machine code of the CPU, called by XLA through its foreign function interface.

The function of one element (element_terms.py) is traced and translated to vector instructions by the translation of the
native engine, so that any material gets vector code. Around it is the loop over groups of `lanes` elements: the
positions of their nodes are gathered, and the forces stored in the layout of `Geometry`; then each node adds up the
entries of its list. The order of all sums is fixed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from llvmlite import ir

from ..engines.llvm import compile as machine
from ..engines.llvm.vector_log import VectorLog
from ..engines.llvm.xla_handler import INT32, REAL, WHOLE, HandlerBuilder, registered
from ..numerics.linalg.xla_ffi import ARGUMENTS, RESULTS
from .element_sums import WIDTH, padded
from .element_terms import ElementTerm, element_program


class Kernel(NamedTuple):
    """What a loop over elements reads and writes. Its function of one element has as inputs the differences D of the
    vectors, the rows and the numbers, and as outputs the forces [i][a] on the nodes 1 … d, or numbers that are stored
    for each element, and then numbers that are added up."""

    dim: int
    rows: tuple[int, ...]  # arrays with so many numbers for each element
    numbers: int = 0  # arrays of one number for all elements, or one for each
    vectors: int = 0  # arrays with the positions of the nodes, or directions
    forces: bool = False
    stored: int = 0
    sums: int = 0

    @property
    def inputs(self) -> int:
        return self.vectors * self.dim**2 + sum(self.rows) + self.numbers

    @property
    def outputs(self) -> int:
        return self.dim**2 if self.forces else self.stored + self.sums


class KernelBuilder(HandlerBuilder):
    """Writes the handler that XLA calls. Arguments: the vectors, the numbers, the rows, of a `Geometry` the cells where
    there are vectors, and starts and entries where there are forces; then `settings`: how many members, nodes and
    elements there are, and for each number how far apart those of members and of elements are. Results: the forces
    or the sums of each member, and memory for the forces or what is stored."""

    def __init__(self, kernel: Kernel, program: Any, lanes: int):
        super().__init__("geomint_elements", lanes)
        self.kernel, self.d = kernel, kernel.dim
        self.element = self.inlined("element", program, kernel.inputs, kernel.outputs, VectorLog)
        self._handler()

    def _handler(self) -> None:
        kernel = self.kernel
        frame, self.sums = self.open([self.kind] * kernel.sums)
        kinds = [REAL] * (kernel.vectors + kernel.numbers + len(kernel.rows))
        kinds += [INT32] * ((kernel.vectors > 0) + 2 * kernel.forces + 1)
        given = [self.buffer(frame, ARGUMENTS, k, kind) for k, kind in enumerate(kinds)]
        self.vectors, given = given[: kernel.vectors], given[kernel.vectors :]
        self.numbers, given = given[: kernel.numbers], given[kernel.numbers :]
        self.rows, (*self.lists, settings) = given[: len(kernel.rows)], given[len(kernel.rows) :]
        self.out, self.memory = (self.buffer(frame, RESULTS, k, REAL) for k in range(2))
        members, self.nodes, self.elements, *strides = (
            self.whole_at(settings, WHOLE(k)) for k in range(3 + 2 * kernel.numbers)
        )
        self.strides = list(zip(strides[::2], strides[1::2], strict=True))
        self.groups = self.b.sdiv(self.elements, WHOLE(self.lanes))
        self.repeat(WHOLE(0), members, self._member)
        self.b.ret(WHOLE(0))

    def _member(self, member: Any) -> None:
        b, kernel = self.b, self.kernel
        start = b.mul(member, b.mul(self.nodes, WHOLE(self.d)))
        self.positions = [b.gep(x, [start]) for x in self.vectors]
        self.own = [b.gep(x, [b.mul(member, apart)]) for x, (apart, _) in zip(self.numbers, self.strides, strict=True)]
        for x in self.sums:
            b.store(self.zeros(), x)
        self.repeat(WHOLE(0), self.groups, self._group)
        for k, x in enumerate(self.sums):
            at = b.add(b.mul(member, WHOLE(kernel.sums)), WHOLE(k))
            b.store(self.sum_of_lanes(b.load(x)), b.gep(self.out, [at]))
        if kernel.forces:
            out = b.gep(self.out, [start])
            self.repeat(WHOLE(0), self.nodes, lambda node: self._gather(node, out))

    def _group(self, group: Any) -> None:
        """`lanes` elements."""
        b, d, kernel = self.b, self.d, self.kernel
        first = b.mul(group, WHOLE(self.lanes))
        places = [self._places(first, a) for a in range(d + 1)] if kernel.vectors else []
        inputs = []
        for x in self.positions:
            at = [[self._picked(x, places[a], i) for a in range(d + 1)] for i in range(d)]
            inputs += [b.fsub(at[i][a], at[i][0]) for i in range(d) for a in range(1, d + 1)]
        for x, count in zip(self.rows, kernel.rows, strict=True):
            inputs += [self.load(x, self._row(first, k)) for k in range(count)]
        inputs += [self._number(x, stride, first) for x, (_, stride) in zip(self.own, self.strides, strict=True)]
        found = b.call(self.element, inputs)
        pairs: list[list[Any]] = [
            [b.extract_value(found, 2 * k + part) for part in range(2)] for k in range(kernel.outputs)
        ]
        if kernel.forces:
            self._store_forces(first, [b.fmul(*pair) for pair in pairs])
        for k in range(kernel.stored):
            self._store(b.fmul(*pairs[k]), self.memory, self._row(first, k))
        for pair, total in zip(pairs[kernel.stored :], self.sums, strict=False):
            b.store(self.fused(pair[0], pair[1], b.load(total)), total)

    def _row(self, first: Any, k: int) -> Any:
        """The place of these elements in row k."""
        return self.b.add(first, self.b.mul(self.elements, WHOLE(k)))

    def _store(self, x: Any, array: Any, at: Any) -> None:
        self.b.store(x, self.b.bitcast(self.b.gep(array, [at]), self.kind.as_pointer()), align=8)

    def _store_forces(self, first: Any, forces: list[Any]) -> None:
        b, d = self.b, self.d
        whole, part = b.sdiv(first, WHOLE(WIDTH)), b.srem(first, WHOLE(WIDTH))
        base = b.add(b.mul(whole, WHOLE((d + 1) * d * WIDTH)), part)
        for i in range(d):
            row = forces[i * d : (i + 1) * d]
            for a, force in enumerate([b.fneg(functools.reduce(b.fadd, row)), *row]):
                self._store(force, self.memory, b.add(base, WHOLE((a * d + i) * WIDTH)))

    def _places(self, first: Any, a: int) -> list[Any]:
        """Where the coordinates of node a of each element begin."""
        b = self.b
        node = [self.whole_at(self.lists[0], b.add(self._row(first, a), WHOLE(k))) for k in range(self.lanes)]
        return [b.mul(x, WHOLE(self.d)) for x in node]

    def _picked(self, x: Any, places: list[Any], i: int) -> Any:
        """The component i at these places, as a vector."""
        out = ir.Constant(self.kind, ir.Undefined)
        for k, place in enumerate(places):
            out = self.b.insert_element(out, self.b.load(self.b.gep(x, [self.b.add(place, WHOLE(i))])), INT32(k))
        return out

    def _number(self, x: Any, stride: Any, first: Any) -> Any:
        """A number of the material for these elements: one for all (stride 0), or one each."""
        b, out = self.b, ir.Constant(self.kind, ir.Undefined)
        for k in range(self.lanes):
            at = b.mul(b.add(first, WHOLE(k)), stride)
            out = b.insert_element(out, b.load(b.gep(x, [at])), INT32(k))
        return out

    def _gather(self, node: Any, out: Any) -> None:
        b, d = self.b, self.d
        _, starts, entries = self.lists
        begin, end = self.whole_at(starts, node), self.whole_at(starts, b.add(node, WHOLE(1)))
        start, head = b.block, b.append_basic_block("head")
        b.branch(head)
        b.position_at_end(head)
        k, sums = b.phi(WHOLE), [b.phi(REAL) for _ in range(d)]
        inner, after = b.append_basic_block("body"), b.append_basic_block("after")
        b.cbranch(b.icmp_signed("<", k, end), inner, after)
        b.position_at_end(inner)
        entry = self.whole_at(entries, k)
        added = [b.fadd(x, b.load(b.gep(self.memory, [b.add(entry, WHOLE(i * WIDTH))]))) for i, x in enumerate(sums)]
        k.add_incoming(begin, start)
        k.add_incoming(b.add(k, WHOLE(1)), inner)
        for x, first, further in zip(sums, [REAL(0.0)] * d, added, strict=True):
            x.add_incoming(first, start)
            x.add_incoming(further, inner)
        b.branch(head)
        b.position_at_end(after)
        for i, x in enumerate(sums):
            b.store(x, b.gep(out, [b.add(b.mul(node, WHOLE(d)), WHOLE(i))]))


def target(kernel: Kernel, program: Any) -> str:
    """The name under which XLA knows the handler, which is compiled now where it is not on disk. NotCovered where the
    function has an operation that is not covered."""
    lanes = machine.widest()
    module = lambda: KernelBuilder(kernel, program, lanes).module
    return registered("geomint_elements", program, f"{kernel} {lanes}", __file__, module)


@functools.lru_cache(256)
def sum_target(term: ElementTerm, order: int) -> str:
    """The handler of `element_sum`."""
    return target(sum_kernel(term, order), element_program(term, order))


def sum_kernel(term: ElementTerm, order: int) -> Kernel:
    return Kernel(term.dim, (term.dim**2, 1), term.parameters, max(order, 1), forces=order > 0, sums=0 if order else 1)


def call(
    kernel: Kernel,
    name: str,
    vectors: Sequence[Any],
    numbers: Sequence[Any],
    rows: Sequence[Any],
    lists: Sequence[Any],
    members: tuple[int, ...] = (),
) -> tuple[Any, Any]:
    """The two results of a handler: forces (members, n, d) or sums (members, sums); memory, of which the rows
    (stored, m) are those stored."""
    elements, d = rows[-1].shape[-1], kernel.dim
    nodes = vectors[0].shape[-2] if vectors else 0
    numbers = [padded(x, elements) for x in numbers]
    strides = [(x.shape[-1] if x.ndim > len(members) > 0 else 0, int(x.ndim > 0 and x.shape[-1] > 1)) for x in numbers]
    settings = np.array([math.prod(members), nodes, elements, *np.ravel(strides)], np.int32)
    shape = (*members, nodes, d) if kernel.forces else (*members, kernel.sums)
    memory = ((d + 1) * d, elements) if kernel.forces else (max(kernel.stored, 1), elements if kernel.stored else 1)
    results = tuple(jax.ShapeDtypeStruct(x, np.float64) for x in (shape, memory))
    made = jax.ffi.ffi_call(name, results, vmap_method="sequential")
    out, stored = made(*vectors, *numbers, *rows, *lists, settings)
    return out, stored
