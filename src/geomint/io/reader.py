"""Reading an archive, and opening it again to continue its run."""

from __future__ import annotations

import dataclasses
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import numpy as np

from ..errors import ArchiveBusy, ArchiveError
from ..methods import Carry
from .archive_checks import check_datasets, check_entries, checksum
from .files import open_file, read_at
from .hdf5_tables import Damaged, Dataset
from .layout import (
    SLOT_CRC,
    SLOT_HEAD,
    Column,
    Slots,
    archive_tables,
    describe_carry,
    nested,
    open_tables,
    reading,
    tables_of,
)
from .writer import Writer, create

COPIED_ROWS = 4096  # rows that `enlarged` copies at a time
LISTS = " A run with neighbour lists, System(auxiliary=...), goes on with such lists, and one without goes on without."


@dataclasses.dataclass
class Contents:
    """An archive as its newest intact checkpoint has it."""

    path: Path
    meta: dict[str, Any]
    columns: dict[str, Column]
    slots: Slots
    count_offset: int
    room: int  # rows
    sequence: int  # number of the checkpoint; 0 where there is none
    step: int
    rows: int  # that count
    leaves: list[np.ndarray]  # of the carry
    fixed: dict[str, np.ndarray]  # what was written before the first row and never again, by the path of its dataset

    def array(self, name: str) -> np.ndarray:
        """A column as a memory map of the file: nothing is read before it is used."""
        c = self.columns[name]
        if self.rows == 0 or c.row_bytes == 0:
            return np.zeros((self.rows, *c.shape), c.dtype)
        with reading(self.path):
            return np.memmap(self.path, c.dtype, "r", c.offset, (self.rows, *c.shape))

    def arrays(self) -> dict[str, Any]:
        """All columns, groups such as momentum_maps as nested dictionaries."""
        return nested({name: self.array(name) for name in self.columns})

    @property
    def seed(self) -> Any:
        """One number, or one for each member."""
        return self.fixed["seeds"] if self.meta["seed"] is None else self.meta["seed"]

    def writer(self) -> Writer:
        """Open the archive to append to it; an error where another process has written since this was read."""
        writer = Writer(self.path, self.meta, self.columns, self.slots, self.count_offset, self.rows, self.sequence)
        try:
            now, here = read(self.path), os.path.samestat(os.fstat(writer.file), self.path.stat())
            if not here or (now.sequence, now.step, now.room) != (self.sequence, self.step, self.room):
                raise ArchiveBusy(f"{self.path} was written by another process while this one opened it; try again.")
            writer.lock()  # again: where the lock belongs to the process, `read` has released it by closing the file
        except BaseException:
            writer.close()
            raise
        return writer

    def carry_like(self, template: Carry) -> Carry:
        """The checkpoint's carry in the structure of `template`."""
        treedef = jax.tree.structure(template)
        if describe_carry(template) != describe_carry(self.leaves):
            lists = "" if len(self.leaves) == treedef.num_leaves else LISTS
            raise ArchiveError(
                f"{self.path}: the checkpoint does not fit this method and system: "
                f"{describe_carry(self.leaves)} on file, {describe_carry(template)} here.{lists}"
            )
        return jax.tree.unflatten(treedef, [jax.numpy.asarray(x) for x in self.leaves])


class Slot(NamedTuple):
    """One checkpoint slot. The order of the fields makes the newest slot the largest."""

    sequence: int
    step: int
    rows: int
    carry: bytes


def reached(path: Path) -> int:
    """The step of the newest checkpoint of an archive that another process may be writing, for a progress bar; 0 where
    there is none. Neither the carry nor its checksum is read."""
    try:
        tables = archive_tables(path)
        file = open_file(path)
        try:
            heads = [read_at(file, SLOT_HEAD.size, tables.slots.offset + k * tables.slots.size) for k in range(2)]
        finally:
            os.close(file)
        found = [SLOT_HEAD.unpack(head) for head in heads]
        return min(max(found)[1], tables.meta["grid"][2])  # the first entry is the number of the checkpoint
    except (ArchiveError, OSError, struct.error, LookupError, TypeError, ValueError):  # `read` says what is wrong
        return 0


def read(path: str | Path) -> Contents:
    """Open an archive, of a finished run or not."""
    path = Path(path)
    with reading(path):
        meta, datasets = open_tables(path)
        check_entries(meta)
        meta.setdefault("fixed", [])
        check_datasets(meta, datasets, SLOT_HEAD.size + SLOT_CRC.size)
        meta, columns, slots, count, room = tables_of(meta, datasets)
        with path.open("rb") as file:
            fixed = _read_fixed(file, meta, datasets)
            found = [_read_slot(file, slots, k, meta, room) for k in range(2)]
        newest = max((slot for slot in found if slot is not None), default=None)
        if newest is None:
            return Contents(path, meta, columns, slots, count, room, 0, 0, 0, [], fixed)
        # An interrupt in an older version could leave rows behind the step of the checkpoint.
        rows = min(newest.rows, newest.step // meta["grid"][3] + 1)
        leaves = _leaves(meta, newest.carry)
        return Contents(path, meta, columns, slots, count, room, newest.sequence, newest.step, rows, leaves, fixed)


def _read_fixed(file: BinaryIO, meta: dict[str, Any], datasets: dict[str, Dataset]) -> dict[str, np.ndarray]:
    """The datasets that were written once, after a check that neither they nor the tables have changed since."""
    found = {}
    for name in meta["fixed"]:
        held = datasets[name]
        file.seek(held.offset)
        found[name] = file.read(held.nbytes)
    if meta["format"] > 1 and meta.get("checksum") != checksum(meta, datasets, found):
        raise Damaged("its description or its tables were changed after it was made")
    shaped = lambda data, held: np.frombuffer(data, held.dtype).reshape(held.shape)
    fixed = {name: shaped(data, datasets[name]) for name, data in found.items()}
    kept, start = fixed.get("kept", ()), fixed.get("start/q", ())
    if "reduce" in meta and len(kept) and not (np.min(kept) >= 0 and np.max(kept) < len(start)):
        raise Damaged("it keeps members whose numbers are out of range")
    return fixed


def _read_slot(file: BinaryIO, slots: Slots, k: int, meta: dict[str, Any], room: int) -> Slot | None:
    """A checkpoint slot; None where it is empty, torn (written in part), or its numbers contradict the run's."""
    file.seek(slots.offset + k * slots.size)
    data = file.read(slots.size)
    body, crc = data[: -SLOT_CRC.size], SLOT_CRC.unpack(data[-SLOT_CRC.size :])[0]
    sequence, step, rows = SLOT_HEAD.unpack(body[: SLOT_HEAD.size])
    whole = 0 < sequence < 2**63 and zlib.crc32(body) == crc
    fits = step <= meta["grid"][2] and step // meta["grid"][3] < rows <= room  # every save up to the step has its row
    return Slot(sequence, step, rows, body[SLOT_HEAD.size :]) if whole and fits else None


def _leaves(meta: dict[str, Any], body: bytes) -> list[np.ndarray]:
    leaves, at = [], 0
    for dtype, shape in meta["carry"]:
        x = np.frombuffer(body, np.dtype(dtype), math.prod(shape), at).reshape(shape)
        if x.dtype == bool and np.any(x.view(np.uint8) > 1):
            raise Damaged("its checkpoint has a truth value that is neither true nor false")
        leaves, at = [*leaves, x], at + x.nbytes
    return leaves


def enlarged(old: Contents, meta: dict[str, Any], saves: int, carry: Carry) -> Writer:
    """The archive with room for more rows: a copy beside it, renamed over it once it is complete.

    The old file stays locked meanwhile: a run that still writes to it would lose what it writes.
    """
    one_row = nested({name: np.zeros(c.shape, c.dtype) for name, c in old.columns.items() if name != "t"})
    held = old.writer()
    try:
        new = create(old.path, meta, one_row, carry, saves, replace=True, fixed=old.fixed)
        try:
            for begin in range(0, old.rows, COPIED_ROWS):
                piece = slice(begin, min(begin + COPIED_ROWS, old.rows))
                new.append_columns({n: old.array(n)[piece] for n in old.columns if n != "t"}, old.array("t")[piece])
            new.sequence = old.sequence
            new.checkpoint(carry, old.step, force=True)
            held.lock()
            new.rename_over(held)
        except BaseException:
            new.close()
            if new.path != old.path:
                new.path.unlink(missing_ok=True)
            raise
    finally:
        held.close()
    return new
