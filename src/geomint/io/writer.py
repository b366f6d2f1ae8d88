"""Making an archive, and writing rows and checkpoints into it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import zlib
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np

from ..errors import ArchiveBusy, ArchiveError, InputError
from ..methods import Carry
from . import locks
from .archive_checks import FORMAT, LONGEST_METHOD, checksum, parsed
from .events_file import append_events, events_path
from .files import open_file, synchronise, write_at, writing
from .hdf5_tables import LONGEST_TEXT, Dataset
from .layout import (
    SLOT_CRC,
    SLOT_HEAD,
    Column,
    archive_tables,
    describe_carry,
    flat,
    slot_bytes,
    versions,
)

SHORT = 2**30  # bytes of rows below which a full disk is reported when it is met
CHECKPOINT_SECONDS = 0.5


class Writer:
    """An archive open for appending. `rows` counts the rows written, `sequence` the checkpoints."""

    def __init__(
        self,
        path: Path,
        meta: dict[str, Any],
        columns: dict[str, Column],
        slots: tuple[int, int],
        count: int,
        rows: int,
        sequence: int,
    ):
        """slots, count: as in `Tables`."""
        self.path, self.meta, self.columns = path, meta, columns
        self.slot_offset, self.slot_bytes = slots
        self.count_offset, self.rows, self.sequence = count, rows, sequence
        self.last = 0.0  # time.monotonic() of the last checkpoint
        with writing(path):
            self.file = open_file(path, write=True)
        self.lock()

    def lock(self) -> None:
        """Take the lock of the file, or raise an error where another run has it."""
        try:
            locks.acquire(self.file)
        except OSError:
            self.close()
            busy = "is being written by another process, or by another run of this one; wait for it or stop it."
            raise ArchiveBusy(f"{self.path} {busy}", self.path) from None

    def writing(self) -> contextlib.AbstractContextManager[None]:
        """Report disk errors while rows or a checkpoint are written. The previous checkpoint stays intact."""
        kept = f" Everything up to the last checkpoint is kept: gm.resume({str(self.path)!r}, ...) continues from it."
        return writing(self.path, kept if self.sequence else "")

    def append_events(self, events: np.ndarray) -> None:
        """Append to the file of events beside the archive."""
        with self.writing():
            append_events(self.path, events)

    def append_columns(self, seen: dict[str, Any], t: np.ndarray) -> None:
        """Append rows of every column; time is the leading axis."""
        self.check_room(len(t))
        with self.writing():
            for name, x in {**dict(flat(seen)), "t": t}.items():
                column = self.columns[name]
                data = np.ascontiguousarray(x, column.dtype).tobytes()
                write_at(self.file, data, column.offset + self.rows * column.row_bytes)
        self.rows += len(t)

    def check_room(self, count: int) -> None:
        """Other datasets follow behind the last row; a row too many would overwrite them."""
        if self.rows + count > self.columns["t"].room:
            raise ArchiveError(
                f"{self.path} has room for {self.columns['t'].room} rows, of which {self.rows} are in use: "
                f"{count} more do not fit."
            )

    def due(self) -> bool:
        """Whether it is time for a checkpoint: at most twice a second, since a checkpoint waits for the disk."""
        return time.monotonic() - self.last >= CHECKPOINT_SECONDS

    def checkpoint(self, carry: Carry, step: int, force: bool = False) -> None:
        """Write the carry at a step. All rows and events appended so far count from now on."""
        if not force and not self.due():
            return
        sequence = self.sequence + 1
        leaves = b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(carry))
        body = SLOT_HEAD.pack(sequence, step, self.rows) + leaves
        if len(body) + SLOT_CRC.size > self.slot_bytes:
            raise ArchiveError(f"{self.path}: a checkpoint of {len(body)} bytes does not fit its place; this is a bug.")
        slot = self.slot_offset + (sequence % 2) * self.slot_bytes
        with self.writing():
            synchronise(self.file)
            write_at(self.file, body + SLOT_CRC.pack(zlib.crc32(body)), slot)
            # Counted only after the write: an interrupted checkpoint is repeated in the same slot, and the other slot,
            # which is intact, is not overwritten.
            self.sequence = sequence
            write_at(self.file, np.int64(self.rows).tobytes(), self.count_offset)
            synchronise(self.file)
        self.last = time.monotonic()

    def rename_over(self, old: Writer) -> None:
        """Give this archive the name of an older one, which it replaces."""
        reopen = os.name == "nt"  # Windows does not rename open files
        if reopen:
            old.close()
            self.close()
        self.path.replace(old.path)
        self.path = old.path
        if reopen:
            with writing(self.path):
                self.file = open_file(self.path, write=True)
            self.lock()

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

    def abandon(self) -> None:
        """Close, and remove the file where it has no checkpoint: it could not be continued."""
        self.close()
        if self.sequence == 0:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
                events_path(self.path).unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Check that no run writes to an archive, and that this process may. It takes no lock."""
    with writing(path):
        file = open_file(path, write=True)
    try:
        if locks.is_locked(file):
            raise ArchiveBusy(f"{path} is being written by another process, or by another run of this one.", path)
    finally:
        os.close(file)


def create(
    path: str | Path,
    meta: dict[str, Any],
    seen: dict[str, Any],
    carry: Carry,
    saves: int,
    replace: bool = False,
    fixed: dict[str, Any] | None = None,
) -> Writer:
    """Make an archive for `saves` rows like `seen`, which is one saved point; `fixed` is written now and never again.

    replace: make it under a temporary name beside `path`, to be renamed over it once it is complete.
    """
    path = Path(path)
    if not replace:
        _check_new(path)
    if not path.parent.is_dir():
        raise ArchiveError(f"{path}: the folder {path.parent} does not exist.")
    if not replace:
        _check_space(path, seen, saves)
    meta = {
        **meta,
        "format": FORMAT,
        "versions": versions(),
        "carry": describe_carry(carry),
        "fixed": sorted(fixed or {}),
    }
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with writing(path):
            _make_file(part, meta, {**dict(flat(seen)), "t": np.zeros(())}, fixed or {}, saves, slot_bytes(carry))
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    if replace:
        return _open_new(part)
    try:
        _rename_new(part, path)
    except FileExistsError:
        raise ArchiveError(f"{path} exists.", path) from None
    finally:
        part.unlink(missing_ok=True)
    return _open_new(path)


def _check_space(path: Path, seen: dict[str, Any], saves: int) -> None:
    """Refuse a long run whose rows can't be on this disk. The file is sparse: it would fail only when the disk is full,
    for all other processes too."""
    needed = saves * sum(np.asarray(x).nbytes for _, x in flat(seen))
    free = shutil.disk_usage(path.parent).free
    if needed > max(free, SHORT):
        raise InputError(
            f"output={path.name!r}: {saves} saved points need {needed / 2**30:.3g} GiB on the disk, and "
            f"{free / 2**30:.3g} GiB are free. Save less often with save_every=..., end earlier (t_end), or choose "
            "another disk."
        )


def _check_new(path: Path) -> None:
    """Refuse to overwrite an archive, or the events of one that was moved away."""
    if path.exists():
        raise ArchiveError(
            f"{path} exists. Choose another output, remove it, or continue it with gm.resume({str(path)!r}, ...)."
        )
    beside = events_path(path)
    if beside.exists():
        raise ArchiveError(
            f"{beside} exists: it has the events of a run whose archive is not in this folder. Move it there, "
            "remove it if that archive no longer exists, or choose another output."
        )


def _rename_new(part: Path, path: Path) -> None:
    """Rename, or raise FileExistsError where the name was taken meanwhile. A POSIX rename would overwrite the file."""
    if os.name == "nt":
        part.rename(path)
    else:
        os.link(part, path)


def _make_file(
    path: Path, meta: dict[str, Any], one_row: dict[str, Any], fixed: dict[str, Any], saves: int, checkpoint_bytes: int
) -> None:
    """All datasets at their final size, and last the JSON, with a checksum of it and of the tables."""
    with h5py.File(path, "w", libver="earliest") as file:
        for name, x in one_row.items():
            _make_dataset(file, name, (saves, *np.shape(x)), np.asarray(x).dtype)
        for name, x in fixed.items():
            file.create_dataset(name, data=x)
        _make_dataset(file, "checkpoint", (2, checkpoint_bytes), np.uint8)
        _make_dataset(file, "rows_saved", (1,), np.int64)
        table = lambda name, held: Dataset(name, held.dtype, held.shape, held.id.get_offset() or 0)
        made = {name: table(name, file[name]) for name in (*one_row, *fixed, "checkpoint", "rows_saved")}
        total = checksum(meta, made, {name: np.ascontiguousarray(x).tobytes() for name, x in fixed.items()})
        text = json.dumps({**meta, "checksum": total})
        long = len(text) > LONGEST_TEXT or len(str(meta.get("method"))) > LONGEST_METHOD
        if long or parsed(text)["checksum"] != total:
            raise OSError("the description of its method or of its model is too long")
        file.attrs["geomint"] = text


def _make_dataset(file: h5py.File, name: str, shape: tuple[int, ...], dtype: Any) -> None:
    """A contiguous dataset whose space is allocated now and not filled."""
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    number_type = h5py.h5t.py_create(np.dtype(dtype), logical=True)
    h5py.h5d.create(file.id, name.encode(), number_type, h5py.h5s.create_simple(shape), creation, links)


def _open_new(path: Path) -> Writer:
    tables = archive_tables(path)
    return Writer(path, tables.meta, tables.columns, tables.slots, tables.count_offset, rows=0, sequence=0)
