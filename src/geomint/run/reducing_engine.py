"""The engine of a reduced ensemble: it runs the members as `Tiled` does, and reduces their rows to statistics at once.

reductions.py has what the user states (Mean, Quantiles, Histogram), and tile_reduction.py the compiled program that
reduces the rows of one tile of members. This module runs that program after every chunk, tile by tile on the device
that holds the rows, and joins the results of all tiles on the host, in the order of the tiles.
summary.py turns the joined rows into `run.reduced`.

To the host loop and to the sinks the run of this engine is one trajectory. Each of its rows has the results of all
reductions, the number of members that have not failed, and the rows of the members that the user asked to keep. For
every single member there is only the carry, and the save at which it failed (`Marked`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..engines import Layout, is_good
from ..engines.block import Observed
from ..engines.rows import statuses
from ..engines.tiles import SplitCarry, Tiled, cut_out, placed
from ..engines.xla import BUFFER_NUMBERS, BUFFER_ROWS
from ..methods import Carry, State
from ..numerics.compensated import value
from ..numerics.module import Module
from .reductions import Column, Reductions
from .summary import Summary, describe_reductions, extract_summary, fixed_datasets, whole_numbers
from .tile_reduction import join_tiles, numbers_of_tile, program_of_tile


class Marked(Module):
    """The carry of members, and for each of them the first save at which it had failed, or −1."""

    carry: Any
    failed: Any  # the last leaf, where gm.load finds it without the structure of the carry


@dataclasses.dataclass
class ReducedBuffer:
    """The row buffers of the parts, and what their rows were reduced to, tile by tile."""

    buffers: Any
    reduced: list[Any]


@dataclasses.dataclass
class Tile:
    """Members start … stop − 1, which are reduced together; they belong to one part."""

    start: int
    stop: int
    part: int = 0  # index of the part
    leaves: Any = None  # of (reductions, system), the system with the params of these members where functions need them


class LeafForm(NamedTuple):
    """A leaf of a reduced tile: its name, its shape without the axis of rows, and its type."""

    name: str
    shape: tuple[int, ...]
    dtype: Any


class LastRow(NamedTuple):
    """Where the states of all members at the last saved point are."""

    buffers: Any
    row: int


class Reducing(Tiled):
    """`Tiled`, with rows reduced on the devices that hold them."""

    def __init__(self, reductions: Reductions, keep: np.ndarray, save_every: int, *arguments: Any):
        """keep: the members whose own rows are kept as well. The other arguments are those of `Tiled`."""
        super().__init__(*arguments)
        self.reductions, self.keep, self.save_every = reductions, keep, save_every
        self.with_functions = any(not isinstance(r.of, Column) for r in reductions.values())

    def begin(self, state: State) -> tuple[Any, Observed]:
        """As `Tiled`: the carries (`Marked`), and what is seen of all members. `first_row` reduces the latter."""
        carry, self._last = super().start(state), None
        self.states = value(state.q), value(state.p)
        self.member_layout = self.layout
        self.tiles = [
            Tile(a, min(a + self.tile, part.stop), k)
            for k, part in enumerate(self.parts)
            for a in range(part.start, part.stop, self.tile)
        ]
        for tile in self.tiles:
            tile.leaves = jax.device_put(
                jax.tree.leaves((self.reductions, self._system_of(tile))), self.parts[tile.part].device
            )
        some = self._system_of(Tile(0, min(self.tile, self.members)))  # the structure is that of all tiles
        self.program = program_of_tile(self.spread, self.member_layout, jax.tree.structure((self.reductions, some)))
        self._make_room_to_reduce(numbers_of_tile(self.spread, self.member_layout, self.reductions, some, self.tile))
        seen = super().observed(carry)
        self.first_energies = np.asarray(seen["energy"])
        zeros, none_failed = np.zeros(self.shape), np.full(self.tile, -1, np.int32)
        example, _ = self._reduce_tile(jax.tree.leaves((self.reductions, some)), zeros, none_failed, self.tile, 1, 0)
        paths, self.structure = jax.tree_util.tree_flatten_with_path(example)
        self.leaf_forms = [LeafForm(path[-1].key, x.shape[1:], x.dtype) for path, x in paths]
        examples = [self._on_host(example, 1)] * (len(self.tiles) if self.shard else 1)
        row = self._row(examples, np.zeros((len(self.keep), 1, self.member_layout.width)))
        self.layout = Layout.of(row, members=True)  # the leading axis there is that of rows
        return Marked(carry, self._in_tiles(np.full(self.members, -1, np.int32))), seen

    def _system_of(self, tile: Tile) -> Any:
        """The system with the params of a tile; None where no reduction is of a function, which alone needs it."""
        if not self.with_functions:
            return None
        if self.spread != "states and params":
            return self.system
        return self.system.with_params(
            cut_out(jax.tree.map(np.asarray, self.system.params), tile.start, tile.stop, self.tile)
        )

    def _make_room_to_reduce(self, numbers_per_reduced_row: int) -> None:
        """The number of rows that the buffers hold, for the members and for the reduced tiles. It depends on the
        ensemble and the kind of engine, not on devices: the program that reduces a tile, and with it the
        last bits of its results, depend on this number."""
        own_program = getattr(self.parts[0].engine, "program", None) is not None
        numbers = self.make.buffer_numbers if own_program else BUFFER_NUMBERS
        width, tiles = self.member_layout.width, -(-self.whole // self.tile)
        per_row = max(1, width * self.whole, numbers_per_reduced_row * tiles)
        self.row_capacity = max(1, min(BUFFER_ROWS, numbers // per_row))
        self.shape = (self.tile, self.row_capacity, width)
        for part in () if own_program else self.parts:
            part.engine.row_capacity = self.row_capacity
            part.engine.buffer_shape = (part.size, self.row_capacity, width)

    # --- what is kept of a run ---
    @property
    def rows_per_member(self) -> bool:
        """A row is that of the whole ensemble."""
        return False

    @property
    def described_reductions(self) -> dict[str, Any]:
        """The reductions, as an archive states them."""
        return describe_reductions(self.reductions, self.system, self.states[0].shape[1:], self.spread)

    @property
    def archive_entries(self) -> dict[str, Any]:
        return {**super().archive_entries, "reduce": self.described_reductions}

    @property
    def fixed_arrays(self) -> dict[str, np.ndarray]:
        return fixed_datasets(self.reductions, self.keep, self.states)

    def method_carry(self, carry: Marked) -> Carry:
        return carry.carry

    def results(self, columns: Observed, carry: Marked) -> tuple[Observed, Summary]:
        summary = extract_summary(columns, carry.failed, self.described_reductions, self.fixed_arrays)
        return jax.tree.map(lambda x: np.moveaxis(x, 0, 1), columns), summary

    # --- the checks of the host loop ---
    def states_in(self, rows: np.ndarray) -> None:
        return None

    def bad_rows(self, rows: Any) -> np.ndarray:
        """Rows at which all members have failed: the program that reduces a tile has counted the others."""
        if self.shard:
            return np.zeros(len(rows), bool)
        return np.asarray(self.layout.unpack(rows)["members_left"] == 0)

    def all_unrecoverable(self, rows: np.ndarray, buffer: ReducedBuffer) -> bool:
        """Asked between saves only, where a chunk has one row."""
        first_rows = self.first_of_members(buffer)
        return not any(np.any(is_good(self.member_layout.unpack(x), 1, energy=False)) for x in first_rows)

    def status_after(self, carry: Marked, row: np.ndarray) -> Any:
        return statuses(self.method, self.archived_carry(carry).carry)

    # --- the carry ---
    def _in_tiles(self, failed: np.ndarray) -> SplitCarry:
        """The saves at which members failed, tile by tile on the devices."""
        return SplitCarry(
            [placed(cut_out(failed, t.start, t.stop, self.tile), self.parts[t.part].device) for t in self.tiles]
        )

    def archived_carry(self, carry: Any) -> Any:
        if not isinstance(carry, Marked):
            return super().archived_carry(carry)
        failed = carry.failed
        if isinstance(failed, SplitCarry):
            failed = np.concatenate(
                [np.asarray(x)[: t.stop - t.start] for t, x in zip(self.tiles, failed.parts, strict=True)]
            )
        return Marked(super().archived_carry(carry.carry), failed)

    # --- the engine of the host loop ---
    @property
    def key(self) -> Any:
        return super().key, jax.tree.structure(self.reductions), self.shape

    def buffer(self) -> ReducedBuffer:
        return ReducedBuffer(super().buffer(), [])

    def recycle_buffer(self, buffer: ReducedBuffer) -> None:
        super().recycle_buffer(buffer.buffers)

    def advance(
        self, carry: Any, first: int, steps: int, blocks: int, buffer: ReducedBuffer
    ) -> tuple[Any, ReducedBuffer]:
        moved, buffers = super().advance(carry.carry, first, steps, blocks, buffer.buffers)
        failed = carry.failed if isinstance(carry.failed, SplitCarry) else self._in_tiles(np.asarray(carry.failed))
        # Only failures at saves are recorded: where a chunk ends between two saves depends on timing.
        save = (first + steps) // self.save_every if (first + steps) % self.save_every == 0 else -1
        found = [
            self._reduce_tile(t.leaves, self._rows_of_tile(t, buffers[t.part].rows), f, t.stop - t.start, blocks, save)
            for t, f in zip(self.tiles, failed.parts, strict=True)
        ]
        return Marked(moved, SplitCarry([f for _, f in found])), ReducedBuffer(
            buffers, [reduced for reduced, _ in found]
        )

    def _rows_of_tile(self, tile: Tile, rows: Any) -> Any:
        """The rows of a tile, from those of its part."""
        if rows.shape == self.shape:
            return rows
        begin, count = tile.start - self.parts[tile.part].start, tile.stop - tile.start
        if isinstance(rows, np.ndarray):
            piece, pad = rows[begin : begin + count, : self.row_capacity], np.pad
        else:  # a dynamic slice: one compiled program for all tiles
            piece, pad = jax.lax.dynamic_slice(rows, (begin, 0, 0), (count, *self.shape[1:])), jax.numpy.pad
        return piece if count == self.tile else pad(piece, ((0, self.tile - count), (0, 0), (0, 0)), mode="edge")

    def _reduce_tile(self, leaves: Any, rows: Any, failed: Any, *numbers: int) -> tuple[Any, Any]:
        """The reduced rows of a tile, and the saves at which its members failed; see tile_reduction.py."""
        return self.program(leaves, rows, failed, np.array(numbers))

    def first_rows_known_good(self, buffer: ReducedBuffer) -> bool:
        """Never known before the rows are reduced."""
        return False

    def first_of_members(self, buffer: ReducedBuffer) -> list[np.ndarray]:
        """The first row of each member, part by part."""
        return [np.asarray(held.rows[: part.count, 0]) for part, held in zip(self.parts, buffer.buffers, strict=True)]

    def rows_of(self, buffer: ReducedBuffer, blocks: int) -> np.ndarray:
        """The first `blocks` reduced rows of all members."""
        self._last = LastRow(buffer.buffers, blocks - 1)
        kept_rows = np.zeros((len(self.keep), blocks, self.member_layout.width))
        for part, held in zip(self.parts, buffer.buffers, strict=True):
            here = [k for k, m in enumerate(self.keep) if part.start <= m < part.stop]
            if not here:
                continue
            which, rows = self.keep[here] - part.start, held.rows
            on_gpu = isinstance(rows, jax.Array) and rows.devices().pop().platform != "cpu"
            kept_rows[here] = (np.asarray(rows[which]) if on_gpu else np.asarray(rows)[which])[:, :blocks]
        return self._joined_rows(buffer.reduced, kept_rows, blocks)

    def last_row(self, name: str) -> np.ndarray | None:
        """A quantity of each member at the last saved point. It is read from the buffer, and so
        valid until the next run uses that."""
        if self._last is None:
            return None
        begin, size, shape = self.member_layout.place(name)
        held = [
            np.asarray(b.rows[: part.count, self._last.row, begin : begin + size])
            for part, b in zip(self.parts, self._last.buffers, strict=True)
        ]
        return np.concatenate(held).reshape(-1, *shape)

    def first_row(self, seen: Observed) -> dict[str, Any]:
        """The reduced row of the initial states."""
        real = jax.dtypes.canonicalize_dtype(float)
        rows = np.concatenate(
            [np.asarray(x, real).reshape(self.members, int(np.prod(np.shape(x)[1:]))) for x in jax.tree.leaves(seen)],
            axis=1,
        )
        reduced, none_failed = [], np.full(self.tile, -1, np.int32)
        for tile in self.tiles:
            full = np.zeros(self.shape)
            full[:, 0] = cut_out(rows, tile.start, tile.stop, self.tile)
            reduced.append(self._reduce_tile(tile.leaves, full, none_failed, tile.stop - tile.start, 1, 0)[0])
        packed = self._joined_rows(reduced, rows[self.keep][:, None], 1)
        row = self.layout.unpack(packed[0])
        return self._typed_tiles(row) if self.shard else whole_numbers(row)

    # --- joining the reduced tiles ---
    def _joined_rows(self, reduced: Sequence[Any], kept_rows: np.ndarray, blocks: int) -> np.ndarray:
        """Packed rows, joined from the reduced tiles, with the rows of kept members."""
        return self._packed(self._row([self._on_host(tile, blocks) for tile in reduced], kept_rows), blocks)

    def _on_host(self, reduced: Any, blocks: int) -> Any:
        """The first `blocks` rows of a reduced tile, copied to the host. Values that are still to be sorted stay on a
        GPU."""
        leaves = jax.tree.leaves(reduced)
        stay = leaves[0].devices().pop().platform != "cpu"
        copied = [
            x if stay and form.name == "values" else np.asarray(x)[:blocks]
            for form, x in zip(self.leaf_forms, leaves, strict=True)
        ]
        return jax.tree.unflatten(self.structure, copied)

    def _row(self, tiles: Sequence[Any], kept_rows: np.ndarray) -> dict[str, Any]:
        """Joined rows as a tree of arrays (rows, …); quantities of kept members are (rows, kept, …)."""
        of_members = self.member_layout.unpack(np.moveaxis(kept_rows, 0, 1)) if len(self.keep) else {}
        if self.shard is None:
            return {**of_members, **join_tiles(self.reductions, tiles)}
        # Sums depend on their order: the tiles of all shards are joined by the reader (sharded_run.py), in their order.
        stacked = jax.tree.map(lambda *xs: np.stack([np.asarray(x) for x in xs], axis=1), *tiles)
        return {**of_members, "tiles": stacked["reduced"], "members_left": stacked["members_left"]}

    def _typed_tiles(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row of a shard with the types of its results: a packed row has floating-point numbers only."""
        types = jax.tree.unflatten(self.structure, [form.dtype for form in self.leaf_forms])
        cast = lambda x, dtype: np.asarray(x).astype(dtype)
        return {
            **row,
            "tiles": jax.tree.map(cast, row["tiles"], types["reduced"]),
            "members_left": cast(row["members_left"], types["members_left"]),
        }

    def _packed(self, row: dict[str, Any], blocks: int) -> np.ndarray:
        """Rows as one array (rows, width), in the order of `layout`."""
        return np.concatenate([np.asarray(x, np.float64).reshape(blocks, -1) for x in jax.tree.leaves(row)], axis=1)
