"""The loop over blocks and steps as a program on single numbers, for engines that write it as machine code or a kernel.

`StepProgram` holds the jaxprs of a step and of a save. `Loop` translates them (translate.ScalarInterpreter) inside the
loop over blocks, through a `Code` that writes instructions. All that is traced in the reference engine is an argument
here too: dt, t0, params, mass, the floats of a method. One compiled loop serves a sweep over them.
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
from .program_key import jaxpr_digest
from .translate import ScalarInterpreter, arrays, operations
from .values import Code, NotCovered, Values, filled

CACHED_LOOPS = 64  # compiled loops in memory; beyond, the one used longest ago is dropped
FOLDED = 4  # operations counted before constant folding may exceed the limit by this factor


class Packed:
    """A tree of arrays as two flat ones, of floats and of integers (and truth values), and back.

    With members, each has a row for each number of a member and a column for each member, so that a vector load reads
    one such number for several neighbouring members.
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
        """For each number in turn: which of the two arrays holds it, at which index, and its type in the tree."""
        at, out = [0, 0], []
        for shape, dtype in self.shapes:
            k = int(dtype.kind != "f")
            out += [(k, at[k] + i, dtype) for i in range(math.prod(shape))]
            at[k] += math.prod(shape)
        return out

    def arrays(self, flat: list[Any]) -> list[Values]:
        return arrays(flat, [shape for shape, _ in self.shapes])


class StepProgram:
    """What one compiled loop computes, as jaxprs: a step, the row of a save, and for event-driven methods their events.

    Instances compare by the shapes, types and static parts of the carry, the method, the system and its params, so that
    they serve as keys of the cache of compiled loops. None of the numbers is kept: an instance lives as long as its
    compiled loop, and params may be those of a million members. The jaxprs are traced when they are first used.
    """

    def __init__(self, method: Method, system: Stated, carry: Carry, spread: str = "one"):
        self.members, self.own_params = spread != "one", spread == "states and params"
        self.carry = Packed(carry, self.members)
        self.given = Packed((method, system.with_params(None)))
        self.params = Packed(system.params, self.own_params)
        self.event_driven = method.traits.event_driven
        self.timed = system.depends_on_time

    def traced(self, function: Any, floats: int = 0) -> Any:
        """The jaxpr of function(method, system, carry, …) for one member, with that many floats as further arguments.
        Its arguments are the leaves of given, params and carry."""

        def flat(given: Any, params: Any, carry: Any, *x: Any) -> Any:
            method, system = jax.tree.unflatten(self.given.treedef, given)
            system = system.with_params(jax.tree.unflatten(self.params.treedef, params))
            return function(method, system, jax.tree.unflatten(self.carry.treedef, carry), *x)

        shapes = [
            [jax.ShapeDtypeStruct(s, d) for s, d in packed.shapes] for packed in (self.given, self.params, self.carry)
        ]
        return jax.make_jaxpr(flat)(*shapes, *[jax.ShapeDtypeStruct((), float)] * floats)

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of q."""
        return self.traced(lambda m, s, c: value(m.output(derive(s), c).q)).out_avals[0].shape

    @functools.cached_property
    def step(self) -> Any:
        """The jaxpr of a step: carry and dt, and the time where the system depends on it, to the new carry."""

        def step(method: Method, system: Stated, carry: Carry, h: Any, *t: Any) -> list[Any]:
            return jax.tree.leaves(method.step(derive(system, self.shape, *t), carry, h))

        return self.traced(step, 1 + self.timed)

    @functools.cached_property
    def row(self) -> Any:
        """The jaxpr of a save: carry and time to the row that is kept."""
        return self.traced(lambda m, s, c, t: _pack(observe(m, derive(s, self.shape), c, t), float), 1)

    @functools.cached_property
    def time(self) -> Any:
        """The jaxpr of the time that an event-driven method has reached."""
        return self.traced(lambda m, _, c: m.time(c))

    @functools.cached_property
    def event_count(self) -> Any:
        """The jaxpr of the number of events so far."""
        return self.traced(lambda m, _, c: m.events(c))

    @functools.cached_property
    def event(self) -> Any:
        """The jaxpr of the last event, and of the number of events so far."""
        return self.traced(lambda m, _, c: (m.event(c), m.events(c)))

    @property
    def jaxprs(self) -> list[Any]:
        """All that the loop consists of."""
        events = [self.time] if self.event_driven else []
        logged = [self.event_count, self.event] if self.event_driven and not self.members else []
        return [self.step, self.row, *events, *logged]

    def digest(self) -> bytes:
        """Bytes that identify the code of the loop: the SHA-256 of its jaxprs, and shapes, types and settings. Raises
        `Unhashable` where a parameter of a primitive is of an unknown type."""
        packed = [(p.members, [(s, str(d)) for s, d in p.shapes]) for p in (self.carry, self.given, self.params)]
        settings = repr((packed, self.own_params, self.members, self.event_driven))
        return jaxpr_digest(self.jaxprs) + settings.encode()

    def forget_jaxprs(self) -> None:
        """Frees the jaxprs, which may be long, once the loop is compiled."""
        for name in ("step", "row", "time", "event_count", "event"):
            vars(self).pop(name, None)

    @functools.cached_property
    def key(self) -> Any:
        packed = (self.carry, self.given, self.params)
        return (
            self.own_params,
            self.members,
            tuple((p.treedef, tuple((s, str(d)) for s, d in p.shapes)) for p in packed),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepProgram) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclasses.dataclass
class LoopArguments:
    """Arguments of a block, as values of a code."""

    first: Any
    steps: Any
    blocks: Any
    t0: Any
    dt: Any


def check_length(jaxpr: Any, code: Code) -> None:
    """NotCovered for a program that is too long for a code."""
    if operations(jaxpr) > FOLDED * code.longest:
        raise NotCovered(f"more than {code.longest} operations a step")


class Loop:
    """Writes the loop of a `StepProgram` with a code.

    given, params:        the numbers of method and system, in the shapes of the program, as values
    store_row(i, row):    stores the row of block i
    log_event(n, event):  stores an event as number n of the log; None where events are only counted
    """

    def __init__(
        self,
        code: Code,
        program: StepProgram,
        given: list[Values],
        params: list[Values],
        arguments: LoopArguments,
        store_row: Callable[[Any, Values], None],
        log_event: Callable[[Any, Values], None] | None = None,
    ):
        self.code, self.program, self.given, self.params = code, program, given, params
        self.arguments, self.store_row, self.log_event = arguments, store_row, log_event
        for x in (arguments.dt, *(x for array in (*given, *params) for x in array.ravel())):
            code.declare_argument(x)

    def read(self, jaxpr: Any, state: list[Any], *floats: Any) -> list[Values]:
        """The results of one of the program's jaxprs at the carry `state`, with further arguments `floats`."""
        check_length(jaxpr, self.code)
        carry = self.program.carry.arrays(state)
        return ScalarInterpreter(self.code).evaluate(
            jaxpr, [*self.given, *self.params, *carry, *(filled((), [x]) for x in floats)]
        )

    def step(self, state: list[Any], *time: Any) -> list[Any]:
        new = self.read(self.program.step, state, self.arguments.dt, *time)
        return [x for array in new for x in array.ravel()]

    def time_of(self, step: Any) -> Any:
        """t0 + n·dt."""
        value, n = self.code.value, self.arguments
        return value("add", n.t0, value("mul", value("to f", step), n.dt))

    def steps(self, state: list[Any], block: Any) -> list[Any]:
        """The steps of a block."""
        value, n = self.code.value, self.arguments
        if not self.program.timed:
            return self.code.repeat(n.steps, state, lambda _, s: self.step(s))
        first = value("add", n.first, value("mul", block, n.steps))
        return self.code.repeat(n.steps, state, lambda i, s: self.step(s, self.time_of(value("add", first, i))))

    def events(self, state: list[Any], until: Any) -> list[Any]:
        """Steps until that time. The last value of the state is the number of events logged."""
        value = self.code.value

        def test(s: list[Any]) -> Any:
            return value("lt", self.read(self.program.time, s[:-1])[0].item(), until)

        def body(s: list[Any]) -> list[Any]:
            new, events_logged = self.step(s[:-1]), s[-1]
            if self.log_event is not None:
                before = self.read(self.program.event_count, s[:-1])[0].item()
                record, count = self.read(self.program.event, new)
                self.log_event(events_logged, record)
                events_logged = value("add", events_logged, value("sub", count.item(), before))
            return [*new, events_logged]

        return self.code.loop(state, test, body)

    def run(self, state: list[Any]) -> list[Any]:
        """All blocks from the carry `state` on; the carry at the end, then the number of events logged."""
        value, n = self.code.value, self.arguments

        def block(i: Any, s: list[Any]) -> list[Any]:
            state, events_logged = s[:-1], s[-1]
            until = self.time_of(value("add", n.first, value("mul", value("add", i, 1), n.steps)))
            if self.program.event_driven:
                *state, events_logged = self.events([*state, events_logged], until)
            else:
                state = self.steps(state, i)
            (row,) = self.read(self.program.row, state, until)
            self.store_row(i, row)
            return [*state, events_logged]

        return self.code.repeat(n.blocks, [*state, 0], block)
