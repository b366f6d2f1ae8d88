"""An ensemble in tiles, so that the results of a member do not depend on the devices.

The code that XLA generates for a batch depends on its size: vector instructions for most of it and scalar ones for the
remainder, another order of summation. A member of 1000 differs in its last bits from the same member of 500. So members
are divided into tiles of one size, whose borders depend on the number of members alone. The last tile is padded with
copies of its last member. Every tile runs the same program on any device; a device gets whole tiles.

The tiles of a device are dispatched one after another without waiting, so that devices and cores work in parallel.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..methods import Carry, Method, State, protocols
from ..numerics.compilation import jit
from ..numerics.module import Module
from ..system.system import Stated
from .block import Clock, Observed
from .device_rows import DeviceRows, unpacked_row
from .rows import StateRows
from .scalar.scalar_engine import ScalarEngine
from .xla import BUFFER_NUMBERS, BUFFER_ROWS, Spread, Xla

# On a CPU tiles of 100 to 1000 members are the fastest (measured: kepler, fpu, argon_cluster, double_pendulum), and at
# least four tiles keep all cores busy. A GPU is the faster the more members it gets at once. The overhead of calls
# limits the number of tiles.
FULL_TILE = {"cpu": 256}
FULL_TILE_ELSEWHERE = 65_536
LEAST_TILES = 4
MOST_TILES = {"cpu": 1000}  # a million members can be cut into a thousand shards
MOST_TILES_ELSEWHERE = 256


def tile_size(members: int, platform: str) -> int:
    """Members of a tile: a function of the number of members and of the kind of device only."""
    full, most = FULL_TILE.get(platform, FULL_TILE_ELSEWHERE), MOST_TILES.get(platform, MOST_TILES_ELSEWHERE)
    least = LEAST_TILES if platform in FULL_TILE else 1
    about = max(min(members / least, full), members / most)
    return min(members, 4 * math.ceil(about / 4))


def shares(members: int, tile: int, devices: int) -> list[tuple[int, int]]:
    """The members (first, one past the last) of each device: whole tiles, distributed evenly."""
    tiles = math.ceil(members / tile)
    edges = [min(members, k * tiles // devices * tile) for k in range(devices + 1)]
    return list(itertools.pairwise(edges))


def cut_out(tree: PyTree, start: int, stop: int, size: int) -> PyTree:
    """Members start … stop − 1 of every leaf, padded with copies of the last to `size`. Arrays on a device stay there;
    all of their members are not copied."""
    leaves = jax.tree.leaves(tree)
    if leaves and all(isinstance(x, jax.Array) for x in leaves):
        whole = start == 0 and size == stop == len(leaves[0])
        return tree if whole else _cut_on_device(tree, start, stop, size)
    return jax.tree.map(
        lambda x: np.concatenate([x[start:stop], np.repeat(x[stop - 1 : stop], size - (stop - start), axis=0)]), tree
    )


@functools.partial(jit, static_argnums=3)
def _cut_on_device(tree: PyTree, start: Any, stop: Any, size: int) -> PyTree:
    which = jnp.minimum(start + jnp.arange(size), stop - 1)
    return jax.tree.map(lambda x: x[which], tree)


@functools.partial(jit, static_argnums=1)
def _joined_on_device(trees: Sequence[PyTree], members: int) -> PyTree:
    return jax.tree.map(lambda *xs: jnp.concatenate(xs)[:members], *trees)


def placed(tree: PyTree, device: Any) -> PyTree:
    return tree if device is None else jax.device_put(tree, device)


class ShardOf(NamedTuple):
    """The place of some members in a larger ensemble, of which they are whole tiles."""

    first: int  # the number of the first of them
    whole: int  # members of the larger ensemble


class SplitCarry(Module):
    """The carries of the parts."""

    parts: list[Carry]


@dataclasses.dataclass
class Part:
    """Members start … stop − 1, padded to `size`, on a device (None: JAX's default)."""

    start: int
    stop: int
    size: int
    device: Any
    engine: Xla

    @property
    def count(self) -> int:
        return self.stop - self.start


class Tiled(StateRows):
    """An engine of an ensemble, made of the engines of its parts.

    With the reference engine a part is a tile. Engines of scalar code, where the results of a member do not depend on
    the others, compute the initial carry tile by tile, and then take all members of a device as one part."""

    def __init__(self, make: type[Xla], method: Method, system: Stated, clock: Clock, spread: Spread, members: int,
                 devices: Sequence[Any] = (None,), tile: int | None = None, shard: ShardOf | None = None):  # fmt: skip
        """tile: the size of a tile, given when an archive is resumed and for a shard. shard: where these members are a
        part of a larger ensemble."""
        self.shard, self.first = shard, shard.first if shard else 0  # first: the number of the first member
        # The number of rows that a buffer holds is part of the compiled program: that of the whole ensemble.
        self.whole = shard.whole if shard else members
        self.make, self.method, self.system, self.clock, self.spread, self.members, self.devices = (
            make,
            method,
            system,
            clock,
            spread,
            members,
            devices,
        )
        platform = jax.local_devices()[0].platform if devices[0] is None else devices[0].platform
        self.tile = tile_size(members, platform) if tile is None else tile
        self.on_device = make.on_device and len(devices) == 1  # no array is copied to the host, to be joined there
        self.on_devices = [
            (*share, d) for share, d in zip(shares(members, self.tile, len(devices)), devices, strict=True)
        ]

    # --- cutting and joining ---
    def _part(self, start: int, stop: int, size: int, device: Any, method: Method) -> Part:
        system = self.system
        if self.spread == "states and params":
            system = system.with_params(cut_out(self._arrays(system.params), start, stop, size))
        return Part(start, stop, size, device, self.make(method, system, self.clock, self.spread))

    def _arrays(self, tree: PyTree) -> PyTree:
        """The leaves as arrays on the device, or on the host where several devices share the members."""
        if not self.on_device:
            return jax.tree.map(np.asarray, tree)
        return placed(jax.tree.map(jnp.asarray, tree), self.devices[0])

    def _joined(self, parts: list[Part], trees: Sequence[PyTree]) -> PyTree:
        if self.on_device and all(isinstance(x, jax.Array) for x in jax.tree.leaves(trees)):
            whole = len(parts) == 1 and parts[0].size == parts[0].count
            return trees[0] if whole else _joined_on_device(list(trees), self.members)
        return jax.tree.map(
            lambda *xs: np.concatenate([np.asarray(x)[: t.count] for t, x in zip(parts, xs, strict=True)]), *trees
        )

    def begin(self, state: State) -> tuple[SplitCarry, Observed]:
        """The carries of the parts, and what is saved of all members."""
        carry = self.start(state)
        return carry, self.observed(carry)

    def observed(self, carry: SplitCarry) -> Observed:
        """What is saved of all members at the start."""
        if self.rows_stay:
            _, buffer = Tiled.advance(self, carry, 0, 0, 1, Tiled.buffer(self))
            return unpacked_row(self.layout, buffer[0].rows)
        each = zip(self.parts, carry.parts, Tiled.buffer(self), strict=True)
        return self._joined(self.parts, [t.engine.observed(c, buffer)[0] for t, c, buffer in each])

    def start(self, state: State) -> SplitCarry:
        """The carries of the parts. It sets the layout of rows and the shape of the buffers."""
        state, plain, reason = self._arrays(state), self.method, ""
        if issubclass(self.make, ScalarEngine):
            carry = self._started(state, protocols.for_scalar_code(plain, many=True))
            joined = self.archived_carry(carry)
            self.parts = [self._part(a, b, b - a, d, self.method) for a, b, d in self.on_devices if b > a]
            carry = self.split_carry(joined)
            reason = self._programs(carry)
            if not reason:
                return carry
        carry = self._started(state, plain)
        self.row_capacity = max(1, min(BUFFER_ROWS, BUFFER_NUMBERS // max(1, self.layout.width * self.whole)))
        for part in self.parts:
            part.engine.row_capacity = self.row_capacity
            part.engine.buffer_shape = (part.size, self.row_capacity, self.layout.width)
            if isinstance(part.engine, ScalarEngine):
                part.engine.reason = reason
        return carry

    def _started(self, state: State, method: Method) -> SplitCarry:
        """Tile by tile, by the reference engine."""
        tiles = [
            self._part(a, min(a + self.tile, stop), self.tile, device, method)
            for start, stop, device in self.on_devices
            for a in range(start, stop, self.tile)
        ]
        started = [Xla.start(t.engine, placed(cut_out(state, t.start, t.stop, t.size), t.device)) for t in tiles]
        self.parts, self.method, self.layout = tiles, method, tiles[0].engine.layout
        return SplitCarry(started)

    def _programs(self, carry: SplitCarry) -> str:
        """Compile a program for all members of each device; the reason where that fails, otherwise ""."""
        for part, begun in zip(self.parts, carry.parts, strict=True):
            part.engine.set_buffer_shape(self.layout, (part.size,))
            if isinstance(part.engine, ScalarEngine) and not part.engine.attempt(begun):
                return part.engine.reason
        self.row_capacity = min(part.engine.row_capacity for part in self.parts)
        return ""

    def archived_carry(self, carry: SplitCarry | Carry) -> Carry:
        """The carry of all members."""
        return self._joined(self.parts, carry.parts) if isinstance(carry, SplitCarry) else carry

    def split_carry(self, carry: Carry) -> SplitCarry:
        """The inverse of `archived_carry`: the carries of the parts, from the carry of all members."""
        carry = self._arrays(carry)
        return SplitCarry([placed(cut_out(carry, t.start, t.stop, t.size), t.device) for t in self.parts])

    # --- the engine of the host loop ---
    logs = False  # members of an ensemble only count their events
    log_rows = 0

    @property
    def name(self) -> str:
        return self.make.name

    @property
    def engine_name(self) -> str:
        """Before `begin`, the engine asked for."""
        return self.parts[0].engine.engine_name if hasattr(self, "parts") else self.name

    @property
    def described(self) -> str:
        return self.parts[0].engine.described if hasattr(self, "parts") else self.name

    @property
    def key(self) -> PyTree:
        return self.parts[0].engine.key, len(self.parts), len(self.on_devices)

    @property
    def archive_entries(self) -> dict[str, Any]:
        return {"tile": self.tile}

    def buffer(self) -> Any:
        on = lambda x, device: x if isinstance(x, np.ndarray) else placed(x, device)  # NumPy arrays stay on the host
        return [jax.tree.map(lambda x, t=t: on(x, t.device), t.engine.buffer()) for t in self.parts]

    def recycle_buffer(self, buffer: Any) -> None:
        if self.parts[0].device is None:
            self.parts[0].engine.recycle_buffer(buffer[0])

    def events(self, buffer: Any) -> np.ndarray:
        return np.zeros((0, 3))

    def advance(
        self, carry: SplitCarry | Carry, first: int, steps: int, blocks: int, buffer: Any
    ) -> tuple[SplitCarry, Any]:
        carry = carry if isinstance(carry, SplitCarry) else self.split_carry(carry)
        moved = [
            t.engine.advance(c, first, steps, blocks, b)
            for t, c, b in zip(self.parts, carry.parts, buffer, strict=True)
        ]
        return SplitCarry([c for c, _ in moved]), [b for _, b in moved]

    def bad_rows(self, rows: Any) -> np.ndarray:
        """A shard never stops: the ensemble stops where the members of all shards have failed."""
        return np.zeros(rows.shape[:-1], bool) if self.shard else super().bad_rows(rows)

    def first_rows_known_good(self, buffer: Any) -> bool:
        return all(t.engine.first_rows_known_good(b) for t, b in zip(self.parts, buffer, strict=True))

    @property
    def rows_stay(self) -> bool:
        """Whether the rows of all members are one array of a program that does not write to it again."""
        return self.on_device and len(self.parts) == 1 and getattr(self.parts[0].engine, "program", None) is not None

    def rows_of(self, buffer: Any, blocks: int) -> Any:
        """The first `blocks` rows of each member: a NumPy array, or `DeviceRows`."""
        if self.rows_stay:
            return DeviceRows.of(buffer[0].rows, blocks)
        return np.concatenate([t.engine.rows_of(b, blocks)[: t.count] for t, b in zip(self.parts, buffer, strict=True)])


Engine = Xla | Tiled  # what the host loop drives
