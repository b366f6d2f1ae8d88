"""The engine of an ensemble that is reduced while it runs: its rows are not those of the members, but what is left of them.

To the host loop and to the sinks such a run looks like a single one. A row has the results of all reductions, the number of members
that are left, and the rows of those members that are kept. Member by member only the carry is there, and the save at which each failed.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..engines import Layout
from ..engines.block import Observed
from ..engines.tiles import Pieces, Tiled, cut_out, placed
from ..engines.xla import BUFFER_NUMBERS, BUFFER_ROWS
from ..methods import Carry, Method, State, protocols
from ..numerics.compensated import value
from .processes import Alone
from .reductions import Column, Reductions, join_tiles, numbers_of_tile, program_of_tile
from .summary import fixed, stated, whole_numbers


class Marked(eqx.Module):
    """The carry of members, and for each of them the first save at which it had failed, or −1."""

    carry: Any
    failed: Any  # the last leaf: gm.load finds it there without knowing the system


def bare(carry: Carry) -> Carry:
    """The method's own carry."""
    return carry.carry if isinstance(carry, Marked) else carry


def statuses(method: Method, carry: Carry) -> Any:
    """The status of each member; None where a method can't fail."""
    return jax.vmap(lambda each: protocols.status(method, each))(carry)


@dataclasses.dataclass
class Room:
    """The buffers of the parts, and what their rows left, tile by tile."""

    buffers: Any
    left: list[Any]


@dataclasses.dataclass
class Cut:
    """Members start … stop − 1: a tile of a part of this process."""

    start: int
    stop: int
    part: int = 0
    leaves: Any = None  # of the reductions and the system; with the members' params, where functions ask for them


class Reducing(Tiled):
    """`Tiled`, with rows reduced where they are."""

    def __init__(self, reductions: Reductions, keep: np.ndarray, save_every: int, team: Alone, *arguments: Any):
        """keep: the members whose rows are kept. The other arguments are those of `Tiled`."""
        super().__init__(*arguments)
        self.reductions, self.keep, self.save_every, self.team = reductions, keep, save_every, team
        self.with_functions = any(not isinstance(r.of, Column) for r in reductions.values())

    def begin(self, state: State) -> tuple[Marked, Observed]:
        """As `Tiled`: what is seen is that of the members. `first_row` says what is left of it."""
        carry, seen = super().begin(state)
        self.first_energies, self._last = np.asarray(seen["energy"]), None  # of this process's members
        self.states = value(state.q), value(state.p)
        self.member_layout = self.layout
        self.cuts = [
            Cut(a, min(a + self.tile, part.stop), k)
            for k, part in enumerate(self.parts)
            for a in range(part.start, part.stop, self.tile)
        ]
        for cut in self.cuts:
            cut.leaves = jax.device_put(
                jax.tree.leaves((self.reductions, self._system_of(cut))), self.parts[cut.part].device
            )
        some = self._system_of(Cut(0, min(self.tile, self.members)))
        self.program = program_of_tile(self.spread, self.member_layout, jax.tree.structure((self.reductions, some)))
        self._make_room_to_reduce(numbers_of_tile(self.spread, self.member_layout, self.reductions, some, self.tile))
        nothing = self._reduce_tile(
            jax.tree.leaves((self.reductions, some)),
            np.zeros(self.shape),
            np.full(self.tile, -1, np.int32),
            self.tile,
            1,
            0,
        )[0]
        paths, self.structure = jax.tree_util.tree_flatten_with_path(nothing)
        self.leaves = [(path[-1].key, x.shape[1:], x.dtype) for path, x in paths]
        row = self._row([self._on_host(nothing, 1)], np.zeros((len(self.keep), 1, self.member_layout.width)))
        self.layout = Layout.of(row, members=True)  # the leading axis there is that of rows
        return Marked(carry, self._in_tiles(np.full(self.stop - self.start, -1, np.int32))), seen

    def _system_of(self, cut: Cut) -> Any:
        if not self.with_functions or self.spread != "states and params":
            return self.system if self.with_functions else None
        return self.system.with_params(
            cut_out(jax.tree.map(np.asarray, self.system.params), cut.start, cut.stop, self.tile)
        )

    def _make_room_to_reduce(self, numbers_left: int) -> None:
        """As many rows as there is room for members and for what their tiles leave. It depends on the ensemble alone: the program that
        reduces a tile has it in its shapes."""
        own_program = getattr(self.parts[0].engine, "program", None) is not None
        numbers = self.make.buffer_numbers if own_program else BUFFER_NUMBERS
        width, tiles = self.member_layout.width, -(-self.members // self.tile)
        self.rows = max(1, min(BUFFER_ROWS, numbers // max(1, width * self.members, numbers_left * tiles)))
        self.shape = (self.tile, self.rows, width)
        for part in () if own_program else self.parts:
            part.engine.rows, part.engine.buffer_shape = self.rows, (part.size, self.rows, width)

    @property
    def stated(self) -> dict[str, Any]:
        """The reductions, as an archive states them."""
        return stated(self.reductions, self.system, self.states[0].shape[1:], self.spread)

    @property
    def fixed(self) -> dict[str, np.ndarray]:
        """What an archive has besides rows."""
        return fixed(self.reductions, self.keep, self.states)

    # --- the carry ---
    def _in_tiles(self, failed: np.ndarray) -> Pieces:
        return Pieces(
            [
                placed(cut_out(failed, c.start - self.start, c.stop - self.start, self.tile), self.parts[c.part].device)
                for c in self.cuts
            ]
        )

    def whole(self, carry: Any) -> Any:
        if not isinstance(carry, Marked):
            return super().whole(carry)
        failed = carry.failed
        if isinstance(failed, Pieces):
            failed = np.concatenate(
                [
                    np.zeros(0, np.int32),
                    *(np.asarray(x)[: c.stop - c.start] for c, x in zip(self.cuts, failed.parts, strict=True)),
                ]
            )
        return Marked(super().whole(carry.carry), failed)

    # --- the engine of the host loop ---
    @property
    def key(self) -> Any:
        return super().key, jax.tree.structure(self.reductions), self.shape

    def buffer(self) -> Room:
        return Room(super().buffer(), [])

    def hand_back(self, buffer: Room) -> None:
        super().hand_back(buffer.buffers)

    def advance(self, carry: Any, first: int, steps: int, blocks: int, buffer: Room) -> tuple[Marked, Room]:
        moved, buffers = super().advance(carry.carry, first, steps, blocks, buffer.buffers)
        failed = carry.failed if isinstance(carry.failed, Pieces) else self._in_tiles(np.asarray(carry.failed))
        # Only saves count: a look between two depends on the chunk.
        save = (first + steps) // self.save_every if (first + steps) % self.save_every == 0 else -1
        found = [
            self._reduce_tile(c.leaves, self._rows_of(c, buffers[c.part].rows), f, c.stop - c.start, blocks, save)
            for c, f in zip(self.cuts, failed.parts, strict=True)
        ]  # fmt: skip
        return Marked(moved, Pieces([f for _, f in found])), Room(buffers, [left for left, _ in found])

    def _rows_of(self, cut: Cut, rows: Any) -> Any:
        """The rows of a tile, from those of its part."""
        if rows.shape == self.shape:
            return rows
        begin, count = cut.start - self.parts[cut.part].start, cut.stop - cut.start
        if isinstance(rows, np.ndarray):
            piece, pad = rows[begin : begin + count, : self.rows], np.pad
        else:  # one program wherever the tile begins
            piece, pad = jax.lax.dynamic_slice(rows, (begin, 0, 0), (count, *self.shape[1:])), jax.numpy.pad
        return piece if count == self.tile else pad(piece, ((0, self.tile - count), (0, 0), (0, 0)), mode="edge")

    def _reduce_tile(self, leaves: Any, rows: Any, failed: Any, *numbers: int) -> tuple[Any, Any]:
        return self.program(leaves, rows, failed, np.array(numbers))

    def well(self, buffer: Room) -> bool:
        """Rows are looked at as they are reduced."""
        return False

    def first_of_members(self, buffer: Room) -> list[np.ndarray]:
        """The first row of each of this process's members, part by part."""
        return [np.asarray(held.rows[: part.count, 0]) for part, held in zip(self.parts, buffer.buffers, strict=True)]

    def kept(self, buffer: Room, blocks: int) -> np.ndarray:
        """The first `blocks` rows of what is left of all members, on every process the same."""
        self._last = buffer.buffers, blocks - 1
        places, sample = [], []
        for part, held in zip(self.parts, buffer.buffers, strict=True):
            here = [k for k, m in enumerate(self.keep) if part.start <= m < part.stop]
            if not here:
                continue
            which, rows = self.keep[here] - part.start, held.rows
            on_card = isinstance(rows, jax.Array) and rows.devices().pop().platform != "cpu"
            places += here
            sample += list((np.asarray(rows[which]) if on_card else np.asarray(rows)[which])[:, :blocks])
        return self._gathered(buffer.left, places, sample, blocks)

    def last_row(self, name: str) -> np.ndarray | None:
        """A quantity of each of this process's members at the last saved point, until the next run takes the buffer."""
        if self._last is None or self.idle:
            return None
        buffers, row = self._last
        begin, size, shape = self.member_layout.place(name)
        held = [
            np.asarray(b.rows[: part.count, row, begin : begin + size])
            for part, b in zip(self.parts, buffers, strict=True)
        ]
        return np.concatenate(held).reshape(-1, *shape)

    def first_row(self, seen: Observed) -> dict[str, Any]:
        """What is left of the initial states of this process's members."""
        real = jax.dtypes.canonicalize_dtype(float)
        rows = np.concatenate(
            [
                np.asarray(x, real).reshape(self.stop - self.start, int(np.prod(np.shape(x)[1:])))
                for x in jax.tree.leaves(seen)
            ],
            axis=1,
        )
        left = []
        for cut in self.cuts:
            full = np.zeros(self.shape)
            full[:, 0] = cut_out(rows, cut.start - self.start, cut.stop - self.start, self.tile)
            left.append(
                self._reduce_tile(cut.leaves, full, np.full(self.tile, -1, np.int32), cut.stop - cut.start, 1, 0)[0]
            )
        places = [k for k, m in enumerate(self.keep) if self.start <= m < self.stop]
        packed = self._gathered(left, places, [rows[self.keep[k] - self.start][None] for k in places], 1)
        return whole_numbers(self.layout.unpack(packed[0]))

    # --- from what the tiles left to a row ---
    def _gathered(
        self, left: Sequence[Any], places: list[int], sample: Sequence[np.ndarray], blocks: int
    ) -> np.ndarray:
        """Packed rows, from what the tiles of all processes left, and the rows of members that are kept, which stand at `places`."""
        if self.team.count == 1:
            on_host, ordered = (
                [self._on_host(tile, blocks) for tile in left],
                np.zeros((len(self.keep), blocks, self.member_layout.width)),
            )
            for k, rows in zip(places, sample, strict=True):
                ordered[k] = rows
            return self._packed(self._row(on_host, ordered), blocks)
        leaves = [jax.tree.leaves(tile) for tile in left]
        word = {
            "tiles": [[_text(np.asarray(x)[:blocks]) for x in tile] for tile in leaves],
            "places": places,
            "sample": [_text(x) for x in sample],
        }
        told = self.team.agree("rows of tiles", word, lambda words: _text(self._joined_words(words, blocks)))
        return _array(told, (blocks, self.layout.width), np.float64)

    def _on_host(self, left: Any, blocks: int) -> Any:
        """The rows that count, of what a tile left. Values to be sorted stay on a graphics card."""
        leaves = jax.tree.leaves(left)
        stay = leaves[0].devices().pop().platform != "cpu"
        return jax.tree.unflatten(
            self.structure,
            [
                x if stay and name == "values" else np.asarray(x)[:blocks]
                for (name, *_), x in zip(self.leaves, leaves, strict=True)
            ],
        )

    def _joined_words(self, words: Sequence[dict[str, Any]], blocks: int) -> np.ndarray:
        tiles, sample = [], np.zeros((len(self.keep), blocks, self.member_layout.width))
        for word in words:
            for told in word["tiles"]:
                tiles.append(
                    jax.tree.unflatten(
                        self.structure,
                        [
                            _array(x, (blocks, *shape), dtype)
                            for x, (_, shape, dtype) in zip(told, self.leaves, strict=True)
                        ],
                    )
                )
            for k, told in zip(word["places"], word["sample"], strict=True):
                sample[k] = _array(told, sample.shape[1:], jax.dtypes.canonicalize_dtype(float))
        return self._packed(self._row(tiles, sample), blocks)

    def _row(self, tiles: Sequence[Any], sample: np.ndarray) -> dict[str, Any]:
        """Rows as a tree of arrays, (rows, …): of the members that are kept (rows, kept, …)."""
        of_members = self.member_layout.unpack(np.moveaxis(sample, 0, 1)) if len(self.keep) else {}
        return {**of_members, **join_tiles(self.reductions, tiles)}

    def _packed(self, row: dict[str, Any], blocks: int) -> np.ndarray:
        return np.concatenate([np.asarray(x, np.float64).reshape(blocks, -1) for x in jax.tree.leaves(row)], axis=1)


def _text(x: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()


def _array(text: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape)
