"""Loops, branches and memory accesses as LLVM instructions, for `LlvmCode` in code.py.

With lanes, members take different numbers of iterations and different branches. A loop runs until no lane needs another
iteration, and a case of a branch runs if any lane takes it; a mask selects the new value or the old one in each lane.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir

REAL, WHOLE, TRUTH = ir.DoubleType(), ir.IntType(64), ir.IntType(1)


def element(kind: Any) -> Any:
    """The type of one lane."""
    return kind.element if isinstance(kind, ir.VectorType) else kind


class ControlFlow:
    """The part of `LlvmCode` that writes loops, branches, loads and stores."""

    builder: ir.IRBuilder
    lanes: int
    masks: list[Any]  # of the open loops and branches: which lanes take part
    value: Callable[..., Any]
    scope: Callable[[], Any]
    instruction: Callable[[Any], Any]
    broadcast: Callable[[Any], Any]
    broadcast_together: Callable[[list[Any]], list[Any]]
    intrinsic: Callable[..., Any]
    number: Callable[[Any, float], Any]

    # --- loops and branches -----------------------------------------------------------------------------------------
    def while_(
        self, begin: list[Any], test: Callable[[list[Any]], Any], body: Callable[[list[Any]], list[Any]]
    ) -> list[Any]:
        """A loop whose test is one boolean for all lanes."""
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
                new = [self.broadcast_together([x, phi])[0] for phi, x in zip(moving, body(moving), strict=True)]
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
            active[:] = [self.within(self.broadcast(test(s)))]
            return self.any(active[0])

        def masked(s: list[Any]) -> list[Any]:
            mask = active[0]
            with self.masked(mask):
                new = body(s)
            return [self.builder.select(mask, self.broadcast(x), old) for x, old in zip(new, s, strict=True)]

        return self.while_([self.broadcast(x) for x in begin], any_lane, masked)

    def repeat(self, count: Any, begin: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
        value = self.value
        step = lambda s: [value("add", s[0], 1), *(self.broadcast(x) for x in body(s[0], s[1:]))]
        return self.while_([0, *(self.broadcast(x) for x in begin)], lambda s: value("lt", s[0], count), step)[1:]

    def branch(self, which: Any, cases: list[Callable[[], list[Any]]]) -> list[Any]:
        if isinstance(which.type, ir.VectorType):
            return self.branch_by_lane(which, cases)
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
                values = [self.broadcast(x) for x in case()]
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

    def branch_by_lane(self, which: Any, cases: list[Callable[[], list[Any]]]) -> list[Any]:
        """A branch on a vector: each case is executed if any lane takes it, and lanes select their results."""
        value, last = self.value, len(cases) - 1
        if element(which.type) == TRUTH:
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
        """The results of the case if any lane of the mask is set, else zeros."""
        b = self.builder
        start, inner, after = b.block, b.append_basic_block("case"), b.append_basic_block("after")
        b.cbranch(self.any(mask), inner, after)
        b.position_at_end(inner)
        with self.scope(), self.masked(mask):
            values = [self.broadcast(x) for x in case()]
        end = b.block
        b.branch(after)
        b.position_at_end(after)
        return self.merged([(values, end), ([self.number(x.type, 0) for x in values], start)])

    def within(self, mask: Any) -> Any:
        """The mask restricted to lanes that take part in the enclosing loops and branches."""
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
        """The number at an index, or with lanes the vector that begins there."""
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

    def scatter(self, x: Any, array: Any, index: Any, stride: Any) -> None:
        """Store each lane at its own index: index, index + stride, index + 2 stride, …"""
        b, x = self.builder, self.broadcast(x)
        for k in range(self.lanes):
            number = x if self.lanes == 1 else b.extract_element(x, WHOLE(k))
            b.store(
                number,
                b.gep(
                    array, [self.instruction(self.value("add", index, self.value("mul", stride, k)) if k else index)]
                ),
            )
