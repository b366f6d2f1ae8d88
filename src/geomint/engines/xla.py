"""The reference engine: the block compiled by XLA, for one trajectory or, by vmap, for an ensemble of them.

The method, the functions of the system and all shapes are fixed at compile time. dt, t0, params and the numbers of
steps and blocks are arguments of the compiled program."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..methods import Carry, Method, State
from ..numerics.compensated import value
from ..numerics.compilation import jit
from ..system.auxiliary import Auxiliary
from ..system.lagrangian import derive
from ..system.system import Stated
from .block import Accompanied, Buffer, Clock, Layout, Log, Observed, advance, observe, started
from .rows import StateRows

# What differs between the members of an ensemble: "states", or "states and params"; "one" is a single trajectory.
Spread = str


def spread_over(function: Any, spread: Spread, system: Stated, *arguments: Any) -> Any:
    """function(system, *arguments), mapped over the leading axis of the arguments and, where they differ, of params."""
    if spread == "one":
        return function(system, *arguments)
    if spread == "states":
        return jax.vmap(lambda *a: function(system, *a))(*arguments)
    return jax.vmap(lambda params, *a: function(system.with_params(params), *a))(system.params, *arguments)


@functools.partial(jit, static_argnums=0)
def _init(spread: Spread, method: Method, system: Stated, state: State, clock: Clock, auxiliary: Any = None) -> Carry:
    start = lambda s, x: started(method, derive(s, value(x.q).shape, clock.t0), x, clock.dt, auxiliary)
    return spread_over(start, spread, system, state)


@functools.partial(jax.jit, static_argnums=0)  # traced for the shapes, never compiled
def _observed(spread: Spread, method: Method, system: Stated, q: Array, carry: Carry, clock: Clock) -> Observed:
    look = lambda s, x, c: observe(method, derive(s, x.shape, clock.t0), c, clock.t0)
    return spread_over(look, spread, system, q, carry)


@functools.partial(jit, static_argnums=0, donate_argnums=8)
def _advance(spread, method, system, carry, clock, first, steps, blocks, buffer):
    return spread_over(
        lambda s, c, k: advance(method, s, c, clock, first, steps, blocks, k), spread, system, carry, buffer
    )


BUFFER_NUMBERS = 2**20  # numbers in the buffer of saved rows: 8 MB for any length of run
BUFFER_ROWS = 2**14
LOG_ROWS = 2**15  # events that one call can log
_recycled_buffers: dict[tuple[int, ...], Array] = {}


def _cut_before_copy(rows: Any, blocks: int) -> Any:
    """On a GPU, rows cut to the first `blocks`, rounded up to a power of two, so that fewer are copied to the host.
    Each length is a program of its own to compile, hence the powers of two. On the CPU nothing is copied."""
    if not isinstance(rows, jax.Array) or next(iter(rows.devices())).platform == "cpu":
        return rows
    return rows[..., : min(rows.shape[-2], 2 ** math.ceil(math.log2(max(blocks, 1)))), :]


@dataclasses.dataclass
class Xla(StateRows):
    """One (method, system, shape) ready to run. `row_capacity` is the number of saves one call can hold, the same for
    every length of run, so that one compiled program serves a whole sweep."""

    method: Method
    system: Stated
    clock: Clock
    spread: Spread = "one"
    name: ClassVar[str] = "xla"
    buffer_numbers: ClassVar[int] = BUFFER_NUMBERS
    on_device: ClassVar[bool] = False  # whether initial states and rows of an ensemble are kept on its device
    log_rows: int = LOG_ROWS
    run_steps: float = math.inf  # steps of the whole run, where they are known: "auto" weighs compile time against them

    def begin(self, state: State) -> tuple[Carry, Observed]:
        """The carry at the start, and what is saved there."""
        carry = self.start(state)
        seen, buffer = self.observed(carry, self.buffer())
        self.recycle_buffer(buffer)
        return carry, seen

    def start(self, state: State) -> Carry:
        """The carry at the start. It sets the layout of rows and the shape of the buffer."""
        q = value(state.q)
        made = self.auxiliary.build(q) if self.auxiliary is not None else None
        carry = _init(self.spread, self.method, self.system, state, self.clock, made)
        seen = _observed.eval_shape(self.spread, self.method, self.system, q, carry, self.clock)
        self.set_buffer_shape(Layout.of(seen, members=self.spread != "one"), q.shape[:1])
        return carry

    def observed(self, carry: Carry, buffer: Buffer) -> tuple[Observed, Buffer]:
        """What is saved at the start: the row after a block of no steps, by the program that computes all others."""
        _, buffer = self.advance(carry, 0, 0, 1, buffer)
        return self.layout.unpack_typed(self.rows_of(buffer, 1)[..., 0, :]), buffer

    def set_buffer_shape(self, layout: Layout, members: tuple[int, ...]) -> None:
        """Set the shape of the buffer for rows of that layout."""
        leading = () if self.spread == "one" else members
        self.layout = layout
        self.row_capacity = max(1, min(BUFFER_ROWS, self.buffer_numbers // max(1, layout.width * math.prod(leading))))
        self.buffer_shape = (*leading, self.row_capacity, layout.width)

    @property
    def logs(self) -> bool:
        """Whether events are logged one by one; members of an ensemble only count them."""
        return self.method.traits.event_driven and self.spread == "one"

    def buffer(self) -> Buffer:
        """A buffer for rows and events: a recycled one, or a new one."""
        spare = _recycled_buffers.pop(self.buffer_shape, None)
        return Buffer(
            jnp.zeros(self.buffer_shape, float) if spare is None else spare,
            Log.empty(self.log_rows) if self.logs else None,
        )

    def recycle_buffer(self, buffer: Buffer) -> None:
        """Return a buffer that is no longer needed. One is kept, since page faults of new memory cost as much as a
        short run."""
        _recycled_buffers.clear()
        _recycled_buffers[self.buffer_shape] = buffer.rows

    def events(self, buffer: Buffer) -> np.ndarray | None:
        """The events of the last call, or None where there was no room for all of them."""
        if buffer.log is None:
            return np.zeros((0, 3))
        count = int(buffer.log.count)
        return None if count > len(buffer.log.records) else np.asarray(buffer.log.records[:count])

    def advance(self, carry: Carry, first: int, steps: int, blocks: int, buffer: Buffer) -> tuple[Carry, Buffer]:
        return _advance(self.spread, self.method, self.system, carry, self.clock, first, steps, blocks, buffer)

    def rows_of(self, buffer: Buffer, blocks: int) -> np.ndarray:
        """The first `blocks` rows: a view, valid until the next call."""
        return np.asarray(_cut_before_copy(buffer.rows, blocks))[..., :blocks, :]

    def first_rows_known_good(self, buffer: Buffer) -> bool:
        """Whether the first row of every member is known to be good without copying it to the host."""
        return False

    # --- the auxiliary state ---
    @property
    def auxiliary(self) -> Auxiliary | None:
        return getattr(self.system, "auxiliary", None)

    def archived_carry(self, carry: Carry) -> Carry:
        """The carry as it is stored in an archive."""
        if self.auxiliary is None or not isinstance(carry, Accompanied):
            return carry
        return Accompanied(carry.carry, self.auxiliary.kept(carry.auxiliary))

    def restored_carry(self, carry: Carry) -> Carry:
        """The inverse of `archived_carry`."""
        if self.auxiliary is None or not isinstance(carry, Accompanied):
            return carry
        return Accompanied(carry.carry, self.auxiliary.restored(carry.auxiliary))

    def overflowed(self, carry: Carry) -> bool:
        """Whether the auxiliary state had not room enough."""
        return self.auxiliary is not None and self.auxiliary.overflowed(carry.auxiliary)

    def with_more_room(self, carry: Carry, overflowed: Carry) -> Carry:
        """The carry with room for what the overflowed one needed."""
        assert self.auxiliary is not None
        return Accompanied(carry.carry, self.auxiliary.grown(carry.auxiliary, overflowed.auxiliary))

    @property
    def engine_name(self) -> str:
        """The engine that runs, which may not be the one asked for."""
        return self.name

    @property
    def described(self) -> str:
        """Which engine runs, and why where it is not the one asked for."""
        return self.name

    @property
    def key(self) -> PyTree:
        """Identifies what was compiled, as a key for its measured speed."""
        return self.described, self.spread, jax.tree.structure((self.method, self.system)), self.buffer_shape
