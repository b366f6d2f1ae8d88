"""One archive written by several processes, each of which writes the bytes of its own members.

Rows are (time, members, …): of every row a process writes one contiguous piece, whose offset follows from its members.
A checkpoint has two phases. Each process writes its piece of every leaf of the carry into the slot that is not in use,
waits for the disk, and sends the checksums of its pieces. When all have done so, the first process writes the head of
the slot and the checksum of the whole slot, which makes it valid. The first process decides on the next checkpoint only
after that, so that one slot is intact at every moment.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..io.files import synchronise, write_at
from ..io.layout import SLOT_CRC, SLOT_HEAD, archive_tables, flat
from ..io.writer import Writer
from ..methods import Carry
from .processes import Alone, first

_ZEROS = bytes(2**20)


class SharedWriter(Writer):
    """A Writer of the members of one process."""

    def __init__(
        self,
        team: Alone,
        held: Writer | None,
        path_rows_sequence: Sequence[Any],
        start: int,
        stop: int,
        members: int,
        alike: bool,
    ):
        """held: the archive that the first process has opened; None on the others, which get path, rows and sequence of
        it in `path_rows_sequence`. alike: all processes have the same rows, and the first one writes them."""
        if held is None:
            path, rows, sequence = Path(path_rows_sequence[0]), *path_rows_sequence[1:]
            meta, columns, slots, count, _ = archive_tables(path)
            super().__init__(path, meta, columns, slots, count, rows, sequence, lock=False)
        else:
            self.__dict__.update(held.__dict__)
        self.team, self.start, self.stop, self.members, self.alike = team, start, stop, members, alike

    def append_columns(self, seen: dict[str, Any], t: np.ndarray) -> None:
        """Rows (time, own members, …) of every column."""
        if self.alike and self.team.index == 0:
            return super().append_columns(seen, t)
        if self.alike:
            self.rows += len(t)
            return None
        self.check_room(len(t))
        with self.writing():
            self._write_rows(seen, t)
        self.rows += len(t)

    def _write_rows(self, seen: dict[str, Any], t: np.ndarray) -> None:
        for name, x in flat(seen):
            column = self.columns[name]
            data = np.ascontiguousarray(x, column.dtype)
            at = column.offset + self.rows * column.row_bytes + self.start * (column.row_bytes // self.members)
            for row in data if data.size else ():
                write_at(self.file, row.tobytes(), at)
                at += column.row_bytes
        if self.team.index == 0:
            times = self.columns["t"]
            write_at(
                self.file, np.ascontiguousarray(t, times.dtype).tobytes(), times.offset + self.rows * times.row_bytes
            )

    def abandon(self) -> None:
        """Close only: other processes have the file open."""
        self.close()

    def due(self) -> bool:
        return self.team.agree("checkpoint due", super().due(), first)

    def checkpoint(self, carry: Carry, step: int, force: bool = False) -> None:
        if not force and not self.due():
            return
        self.sequence += 1
        slot = self.slot_offset + (self.sequence % 2) * self.slot_bytes
        at, pieces = slot + SLOT_HEAD.size, []
        with self.writing():
            for x in jax.tree.leaves(carry):
                data = np.ascontiguousarray(x).tobytes()
                of_member = np.asarray(x).dtype.itemsize * int(np.prod(np.shape(x)[1:]))
                write_at(self.file, data, at + self.start * of_member)
                at += self.members * of_member
                pieces.append([zlib.crc32(data), len(data)])
            synchronise(self.file)
        head = SLOT_HEAD.pack(self.sequence, step, self.rows)
        checksum = self.team.agree("checkpoint written", pieces, lambda all_pieces: _checksum(head, all_pieces))
        if self.team.index == 0:
            with self.writing():
                write_at(self.file, head, slot)
                write_at(self.file, SLOT_CRC.pack(checksum), slot + self.slot_bytes - SLOT_CRC.size)
                write_at(self.file, np.int64(self.rows).tobytes(), self.count_offset)
                synchronise(self.file)
        self.team.agree("checkpoint counts", None, first)  # a process may read the archive from here on
        self.last = time.monotonic()


def _checksum(head: bytes, pieces: Sequence[Sequence[Sequence[int]]]) -> int:
    """The checksum of a whole slot from those of its pieces, which are ordered by leaf and then by process."""
    total = zlib.crc32(head)
    for leaf in zip(*pieces, strict=True):
        for checksum, size in leaf:
            # CRC is affine: crc(AB) = crc(A0) ^ crc(B) ^ crc(0), with as many zeros as B has bytes.
            total = _over_zeros(total, size) ^ checksum ^ _over_zeros(0, size)
    return total


def _over_zeros(checksum: int, size: int) -> int:
    for begin in range(0, size, len(_ZEROS)):
        checksum = zlib.crc32(_ZEROS[: size - begin], checksum)
    return checksum


def open_for_team(
    team: Alone, make: Callable[[], Writer], start: int, stop: int, members: int, alike: bool = False
) -> Writer:
    """An archive for all processes of a team; the first one makes, enlarges or opens it, and locks it."""
    held = make() if team.index == 0 else None
    if team.count == 1 and held is not None:
        return held
    opened = None if held is None else [str(held.path), held.rows, held.sequence]
    path_rows_sequence = team.agree("archive", opened, first)
    return SharedWriter(team, held, path_rows_sequence, start, stop, members, alike)
