"""The loop of the block as a program on single numbers, whatever carries it out: machine code, or the lanes of a kernel.

The step, what is seen at a save, and for event-driven methods the time and the event, are read on single numbers (`scalarize`) and put
into the loop of the block. All that is traced in the reference engine is an argument here too: dt, t0, params, mass, the floats of a
method. One program serves a sweep over them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ...methods import Carry, Method
from ...numerics.compensated import value
from ...system.lagrangian import derive
from ...system.system import Stated
from ..block import _pack, observe
from .translate import ScalarInterpreter, arrays, operations
from .values import Code, NotCovered, Values, filled

KEPT = 64  # programs; beyond, the one that has not been used for longest is forgotten
FOLDED = 4  # so many times fewer operations may be left when what is known beforehand has been folded away


class Packed:
    """A tree of arrays as two flat ones, of floats and of integers (and truth values), and back.

    With members, each has a row for each number and a column for each member: neighbours in memory are the same number of neighbours.
    """

    def __init__(self, tree: Any, members: bool = False):
        leaves, self.treedef = jax.tree.flatten(tree)
        self.members = members
        self.shapes = [
            (np.shape(x)[members:], np.dtype(getattr(x, "dtype", None) or np.asarray(x).dtype)) for x in leaves
        ]
        if any(dtype.kind not in "fiub" for _, dtype in self.shapes):
            raise NotCovered("numbers that are neither real nor whole")

    @property
    def sizes(self) -> tuple[int, int]:
        """How many floats, and how many integers."""
        floats = sum(math.prod(shape) for shape, dtype in self.shapes if dtype.kind == "f")
        return floats, sum(math.prod(shape) for shape, _ in self.shapes) - floats

    def pack(self, tree: Any, xp: Any = np, real: Any = np.float64, whole: Any = np.int64) -> tuple[Any, Any]:
        leaves = jax.tree.leaves(tree)
        flat = [xp.asarray(x).reshape(len(x), -1).T if self.members else xp.ravel(xp.asarray(x)) for x in leaves]
        many = flat[0].shape[1:] if self.members else ()

        def of(floats: bool, dtype: Any) -> Any:
            parts = [x.astype(dtype) for x, (_, d) in zip(flat, self.shapes, strict=True) if (d.kind == "f") is floats]
            return xp.concatenate([xp.zeros((0, *many), dtype), *parts])

        return of(True, real), of(False, whole)

    def unpack(self, floats: Any, integers: Any) -> Any:
        at, leaves = [0, 0], []
        for shape, dtype in self.shapes:
            k, size = int(dtype.kind != "f"), math.prod(shape)
            part = (floats, integers)[k][at[k] : at[k] + size]
            leaves.append((part.T if self.members else part).reshape((*part.shape[1:], *shape)).astype(dtype))
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


class Plan:
    """What a program is made for: the shapes and types of a carry, of a method and system, and of its params.

    Plans alike are equal. None of the numbers is kept: a plan lives as long as its program, and params may be those of a million members.
    """

    def __init__(self, method: Method, system: Stated, carry: Carry, spread: str = "one"):
        self.members, self.own_params = spread != "one", spread == "states and params"
        self.carry = Packed(carry, self.members)
        self.given = Packed((method, system.with_params(None)))
        self.params = Packed(system.params, self.own_params)
        self.event_driven = method.traits.event_driven

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """That of q; found only when a program is made, since it takes as long as a hundred thousand steps."""
        return self.program(lambda m, s, c: value(m.output(derive(s), c).q)).out_avals[0].shape

    def program(self, function: Any, more: int = 0) -> Any:
        """The jaxpr of function(method, system, carry, …), with so many floats behind, on the numbers of given, params and carry of a member."""

        def flat(given: Any, params: Any, carry: Any, *x: Any) -> Any:
            method, system = jax.tree.unflatten(self.given.treedef, given)
            system = system.with_params(jax.tree.unflatten(self.params.treedef, params))
            return function(method, system, jax.tree.unflatten(self.carry.treedef, carry), *x)

        shapes = [
            [jax.ShapeDtypeStruct(s, d) for s, d in packed.shapes] for packed in (self.given, self.params, self.carry)
        ]
        return jax.make_jaxpr(flat)(*shapes, *[jax.ShapeDtypeStruct((), float)] * more)

    @functools.cached_property
    def step(self) -> Any:
        """The jaxpr of a step."""
        return self.program(lambda m, s, c, h: jax.tree.leaves(m.step(derive(s, self.shape), c, h)), 1)

    @functools.cached_property
    def key(self) -> Any:
        packed = (self.carry, self.given, self.params)
        return (
            self.own_params,
            self.members,
            tuple((p.treedef, tuple((s, str(d)) for s, d in p.shapes)) for p in packed),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclasses.dataclass
class Numbers:
    """What the block is told, as values of a code."""

    first: Any
    steps: Any
    blocks: Any
    t0: Any
    dt: Any


class Loop:
    """Writes the loop of a plan with a code.

    given, params:  the numbers of method and system, of the plan's shapes, as values
    keep(i, row):   stores what is seen after block i
    note(n, event): stores an event behind n others, where they are noted
    """

    def __init__(self, code: Code, plan: Plan, given: list[Values], params: list[Values], numbers: Numbers,
                 keep: Callable[[Any, Values], None], note: Callable[[Any, Values], None] | None = None):  # fmt: skip
        self.code, self.plan, self.given, self.params, self.numbers, self.keep, self.note = (
            code,
            plan,
            given,
            params,
            numbers,
            keep,
            note,
        )
        for x in (numbers.dt, *(x for array in (*given, *params) for x in array.ravel())):
            code.given(x)

    def read(self, state: list[Any], function: Any, *more: Any) -> list[Values]:
        """function(method, system, carry, …) on values, with floats `more` behind."""
        return self.carried_out(self.plan.program(function, len(more)), state, *more)

    def carried_out(self, program: Any, state: list[Any], *more: Any) -> list[Values]:
        if operations(program) > FOLDED * self.code.longest:
            raise NotCovered(f"more than {self.code.longest} operations a step")
        return ScalarInterpreter(self.code).evaluate(
            program, [*self.given, *self.params, *self.plan.carry.arrays(state), *(filled((), [x]) for x in more)]
        )

    def step(self, state: list[Any]) -> list[Any]:
        new = self.carried_out(self.plan.step, state, self.numbers.dt)
        return [x for array in new for x in array.ravel()]

    def events(self, state: list[Any], until: Any) -> list[Any]:
        """Steps until that time; behind the state stands the number of events noted."""
        value = self.code.value

        def test(s: list[Any]) -> Any:
            return value("lt", self.read(s[:-1], lambda m, _, c: m.time(c))[0].item(), until)

        def body(s: list[Any]) -> list[Any]:
            new, noted = self.step(s[:-1]), s[-1]
            if self.note is not None:
                before = self.read(s[:-1], lambda m, _, c: m.events(c))[0].item()
                record, count = self.read(new, lambda m, _, c: (m.event(c), m.events(c)))
                self.note(noted, record)
                noted = value("add", noted, value("sub", count.item(), before))
            return [*new, noted]

        return self.code.loop(state, test, body)

    def run(self, state: list[Any]) -> list[Any]:
        """All blocks, from a carry on; the carry at the end, and behind it the number of events noted."""
        value, n = self.code.value, self.numbers

        def block(i: Any, s: list[Any]) -> list[Any]:
            state, noted = s[:-1], s[-1]
            step = value("add", n.first, value("mul", value("add", i, 1), n.steps))
            until = value("add", n.t0, value("mul", value("to f", step), n.dt))
            if self.plan.event_driven:
                *state, noted = self.events([*state, noted], until)
            else:
                state = self.code.repeat(n.steps, state, lambda _, s: self.step(s))
            (row,) = self.read(
                state, lambda m, s, c, t: _pack(observe(m, derive(s, self.plan.shape), c, t), float), until
            )
            self.keep(i, row)
            return [*state, noted]

        return self.code.repeat(n.blocks, [*state, 0], block)
