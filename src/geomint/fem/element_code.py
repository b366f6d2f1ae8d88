"""Sums over all elements as machine code of the CPU, called by XLA through its foreign function interface.

The function of one element (element_terms.py) is traced and translated to vector instructions by the translation of the
native engine, so that any material gets vector code. Around it is the loop over groups of `lanes` elements: the
positions of their nodes are gathered, and the forces stored in the layout of `Geometry`; then each node adds up the
entries of its list. The order of all sums is fixed.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from ..engines.llvm import compile as machine
from ..engines.llvm.vector_log import VectorLog
from ..engines.llvm.xla_handler import INT32, REAL, WHOLE, HandlerBuilder, registered
from ..numerics.linalg.xla_ffi import ARGUMENTS, RESULTS
from .element_sums import WIDTH
from .element_terms import ElementTerm, element_program


class KernelBuilder(HandlerBuilder):
    """Writes the handler that XLA calls. Arguments: x and the directions, the numbers of the material, the arrays of a
    `Geometry` without the table, and `settings`: the numbers of members, nodes and elements, and for each number of
    the material how far apart those of members and of elements are. Results: the sum, and memory for the forces."""

    def __init__(self, term: ElementTerm, order: int, program: Any, lanes: int):
        super().__init__("geomint_elements", lanes)
        self.term, self.order, self.d = term, order, term.dim
        self.vectors, self.outputs = max(order, 1), term.dim**2 if order else 1
        count = (self.vectors + 1) * self.d**2 + 1 + term.parameters
        self.element = self.inlined("element", program, count, self.outputs, VectorLog)
        self._handler()

    def _handler(self) -> None:
        frame, (self.energy,) = self.open([self.kind])
        b, count = self.b, self.vectors + self.term.parameters
        self.given = [self.buffer(frame, ARGUMENTS, k, REAL) for k in range(count + 2)]
        self.cells, self.starts, self.entries, settings = (
            self.buffer(frame, ARGUMENTS, count + 2 + k, INT32) for k in range(4)
        )
        self.out, self.scratch = (self.buffer(frame, RESULTS, k, REAL) for k in range(2))
        members, self.nodes, self.elements, *strides = (
            self.whole_at(settings, WHOLE(k)) for k in range(3 + 2 * self.term.parameters)
        )
        self.strides = list(zip(strides[::2], strides[1::2], strict=True))
        self.groups = b.sdiv(self.elements, WHOLE(self.lanes))
        self.repeat(WHOLE(0), members, self._member)
        b.ret(WHOLE(0))

    def _member(self, member: Any) -> None:
        b = self.b
        start = b.mul(member, b.mul(self.nodes, WHOLE(self.d)))
        self.positions = [b.gep(x, [start]) for x in self.given[: self.vectors]]
        self.numbers = [
            b.gep(x, [b.mul(member, of_members)])
            for x, (of_members, _) in zip(self.given[self.vectors : -2], self.strides, strict=True)
        ]
        b.store(self.zeros(), self.energy)
        self.repeat(WHOLE(0), self.groups, self._group)
        if self.order == 0:
            b.store(self.sum_of_lanes(b.load(self.energy)), b.gep(self.out, [member]))
            return
        out = b.gep(self.out, [start])
        self.repeat(WHOLE(0), self.nodes, lambda node: self._gather(node, out))

    def _group(self, group: Any) -> None:
        """`lanes` elements."""
        b, d = self.b, self.d
        first = b.mul(group, WHOLE(self.lanes))
        row = lambda array, k: self.load(array, b.add(first, b.mul(self.elements, WHOLE(k))))
        places = [self._places(first, a) for a in range(d + 1)]
        inputs = []
        for x in self.positions:
            at = [[self._picked(x, places[a], i) for a in range(d + 1)] for i in range(d)]
            inputs += [b.fsub(at[i][a], at[i][0]) for i in range(d) for a in range(1, d + 1)]
        gradients, weights = self.given[-2:]
        inputs += [row(gradients, k) for k in range(d * d)]
        inputs.append(self.load(weights, first))
        inputs += [self._number(x, stride, first) for x, (_, stride) in zip(self.numbers, self.strides, strict=True)]
        found = b.call(self.element, inputs)
        pairs = [[b.extract_value(found, 2 * k + part) for part in range(2)] for k in range(self.outputs)]
        if self.order == 0:
            b.store(self.fused(*pairs[0], b.load(self.energy)), self.energy)
            return
        whole, part = b.sdiv(first, WHOLE(WIDTH)), b.srem(first, WHOLE(WIDTH))
        base = b.add(b.mul(whole, WHOLE((d + 1) * d * WIDTH)), part)
        for i in range(d):
            forces = [b.fmul(*pairs[i * d + a]) for a in range(d)]
            total = functools.reduce(b.fadd, forces)
            for a, force in enumerate([b.fneg(total), *forces]):
                at = b.gep(self.scratch, [b.add(base, WHOLE((a * d + i) * WIDTH))])
                b.store(force, b.bitcast(at, self.kind.as_pointer()), align=8)

    def _places(self, first: Any, a: int) -> list[Any]:
        """Where the coordinates of node a of each element begin."""
        b = self.b
        row = b.add(first, b.mul(self.elements, WHOLE(a)))
        node = [self.whole_at(self.cells, b.add(row, WHOLE(k))) for k in range(self.lanes)]
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
        begin, end = self.whole_at(self.starts, node), self.whole_at(self.starts, b.add(node, WHOLE(1)))
        start, head = b.block, b.append_basic_block("head")
        b.branch(head)
        b.position_at_end(head)
        k, sums = b.phi(WHOLE), [b.phi(REAL) for _ in range(d)]
        inner, after = b.append_basic_block("body"), b.append_basic_block("after")
        b.cbranch(b.icmp_signed("<", k, end), inner, after)
        b.position_at_end(inner)
        entry = self.whole_at(self.entries, k)
        added = [b.fadd(x, b.load(b.gep(self.scratch, [b.add(entry, WHOLE(i * WIDTH))]))) for i, x in enumerate(sums)]
        k.add_incoming(begin, start)
        k.add_incoming(b.add(k, WHOLE(1)), inner)
        for x, first, further in zip(sums, [REAL(0.0)] * d, added, strict=True):
            x.add_incoming(first, start)
            x.add_incoming(further, inner)
        b.branch(head)
        b.position_at_end(after)
        for i, x in enumerate(sums):
            b.store(x, b.gep(out, [b.add(b.mul(node, WHOLE(d)), WHOLE(i))]))


@functools.lru_cache(256)
def target(term: ElementTerm, order: int) -> str:
    """The name under which XLA knows the handler, which is compiled now where it is not on disk. NotCovered where the
    material has an operation that is not covered."""
    program, lanes = element_program(term, order), machine.widest()
    settings = f"{order} {term.dim} {term.parameters} {lanes}"
    module = lambda: KernelBuilder(term, order, program, lanes).module
    return registered("geomint_elements", program, settings, __file__, module)
