"""The archive: one HDF5 file that a kill at any moment leaves whole.

HDF5 does not promise that, since it updates its own tables in place. So its part is done before the first step: all
datasets are created at their final size (contiguous, allocated, never filled), and the file is closed and renamed into
place. From then on rows are written straight to their known offsets in the file, and no table of HDF5 is ever touched
again. Two checkpoint slots are written in turn, each with a checksum, after the rows it covers are on the disk; the
newest slot that is intact says how many rows count. A longer run is a new file beside the old one, renamed over it.

Layout:  /t  /q  /p  /energy  …            one row per saved point
         /momentum_maps/<name>             likewise
         /checkpoint  (2, size) bytes      sequence, step, rows, carry, checksum
         /rows_saved                       for other readers: how many rows count
         /reduced/<name>/mean  …           of ensembles that are reduced: results of reductions, likewise one row per saved point
         /start/q  /start/p  /kept  …      and what is written once (the attribute names them): all members at the start
         attribute `geomint`               JSON: method, grid, fingerprint of the system, versions, and a checksum
                                           of all that is written once (itself, the tables of HDF5, what is fixed)

h5py makes the file; hdf5_tables reads it, and archive_checks checks it before anything is mapped.

Nobody knows before the run how many events there will be. They go to a second file beside it, NAME.events, which only grows: rows
of three doubles (time, level, kind), of which the first as many count as the checkpoint's carry says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import platform
import re
import stat
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import jax
import numpy as np

from .. import methods
from ..engines.grid import Grid
from ..errors import ArchiveError
from ..methods import Carry, protocols
from ..run.summary import taken_from
from ..run.trajectory import Checkpoint, Trajectory
from .archive_checks import FORMAT, LONGEST_METHOD, check_datasets, check_entries, checksum, parsed
from .hdf5_tables import LONGEST_TEXT, Damaged, Dataset, Foreign, read_tables

_HEAD = struct.Struct("<QQQ")  # sequence, step, rows
_CRC = struct.Struct("<I")
_FLOCK = struct.Struct("hhqqi4x")  # Linux: type, whence, start, length, process
CHECKPOINT_SECONDS = 0.5
Tables = tuple[dict[str, Any], dict[str, "Column"], tuple[int, int], int, int]  # see _read_tables


@dataclasses.dataclass(frozen=True)
class Column:
    """One dataset: where its rows begin in the file and what a row is."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    room: int  # rows

    @classmethod
    def of(cls, held: Dataset) -> Column:
        if not held.shape:
            raise Damaged(f"{held.name} has no rows")
        return cls(held.name, held.dtype, held.shape[1:], held.offset, held.shape[0])

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("jax", "jaxlib", "numpy", "h5py")} | {"python": platform.python_version()}


def describe_carry(carry: Carry) -> list[list[Any]]:
    """Dtype and shape of each leaf, in order: what the bytes of a checkpoint mean."""
    return [[str(np.asarray(x).dtype), list(np.shape(x))] for x in jax.tree.leaves(carry)]


def _flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, x in tree.items():
        yield from _flat(x, f"{prefix}{name}/") if isinstance(x, dict) else [(prefix + name, x)]


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, x in flat.items():
        *groups, name = path.split("/")
        node = tree
        for g in groups:
            node = node.setdefault(g, {})
        node[name] = x
    return tree


def _reason(error: OSError) -> str:
    """ "No space left on device" and the like; h5py hides it in a long text."""
    hidden = re.search(r"errno = (\d+)", str(error))
    return os.strerror(int(hidden[1])) if hidden else error.strerror or str(error)


@contextlib.contextmanager
def _writing(path: Path, kept: str = "") -> Iterator[None]:
    """Errors of the disk (no space, no permission, a quota) as an ArchiveError that names the file and what is kept."""
    try:
        yield
    except ArchiveError:
        raise
    except OSError as error:
        raise ArchiveError(f"{path} can't be written: {_reason(error)}.{kept}", path) from error


class Writer:
    """An archive open for appending; a sink of the host loop."""

    def __init__(
        self,
        path: Path,
        meta: dict[str, Any],
        columns: dict[str, Column],
        slots: tuple[int, int],
        count: int,
        rows: int,
        sequence: int,
        lock: bool = True,
    ):
        """lock: keep others out; not where another process of the same job does."""
        self.path, self.meta, self.columns = path, meta, columns
        self.slot_offset, self.slot_bytes = slots
        self.count_offset, self.rows, self.sequence = count, rows, sequence
        self.last = 0.0
        with _writing(path):
            self.file = os.open(path, os.O_RDWR)
        if lock:
            self.lock()

    def lock(self) -> None:
        """Keep others out, or find that one is in. A lock of the open file, where there are such: one of the process is lost when the
        process closes the file anywhere, such as a memory map of gm.load."""
        try:
            if sys.platform == "linux":
                fcntl.fcntl(self.file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            else:
                fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            busy = "is being written by another process, or by another run of this one; wait for it or stop it."
            raise ArchiveError(f"{self.path} {busy}", self.path) from None

    def writing(self) -> contextlib.AbstractContextManager[None]:
        """Errors of the disk while rows or a checkpoint are written. The checkpoint before stays as it was."""
        kept = f" Everything up to the last checkpoint is kept: gm.resume({str(self.path)!r}, ...) goes on from there."
        return _writing(self.path, kept if self.sequence else "")

    def append_events(self, events: np.ndarray) -> None:
        """Behind those that are there."""
        with self.writing(), events_path(self.path).open("ab") as file:
            file.write(np.ascontiguousarray(events, "<f8").tobytes())
            file.flush()
            os.fsync(file.fileno())

    def append_columns(self, seen: dict[str, Any], t: np.ndarray) -> None:
        """Rows of every column, time first on the leading axis."""
        self.check_room(len(t))
        with self.writing():
            for name, x in {**dict(_flat(seen)), "t": t}.items():
                column = self.columns[name]
                data = np.ascontiguousarray(x, column.dtype).tobytes()
                _write(self.file, data, column.offset + self.rows * column.row_bytes)
        self.rows += len(t)

    def check_room(self, count: int) -> None:
        """Behind the last row other things stand, which must never be overwritten."""
        if self.rows + count > self.columns["t"].room:
            raise ArchiveError(
                f"{self.path} has room for {self.columns['t'].room} rows, of which {self.rows} are in use: {count} more do not fit."
            )

    def due(self) -> bool:
        """Whether it is time for a checkpoint: at most twice a second, since it waits for the disk."""
        return time.monotonic() - self.last >= CHECKPOINT_SECONDS

    def checkpoint(self, carry: Carry, step: int, force: bool = False) -> None:
        """Everything appended so far counts from now on."""
        if not force and not self.due():
            return
        sequence = self.sequence + 1
        body = _HEAD.pack(sequence, step, self.rows) + b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(carry))
        with self.writing():
            os.fdatasync(self.file)
            _write(self.file, body + _CRC.pack(zlib.crc32(body)), self.slot_offset + (sequence % 2) * self.slot_bytes)
            # Only now: after an interrupt the same slot is written again, not the one that is whole.
            self.sequence = sequence
            _write(self.file, np.int64(self.rows).tobytes(), self.count_offset)
            os.fdatasync(self.file)
        self.last = time.monotonic()

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

    def abandon(self) -> None:
        """Close, and remove the file where nothing was saved in it: it could not be continued."""
        self.close()
        if self.sequence == 0:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
                events_path(self.path).unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """That nobody writes to an archive, and that this process may. Only a look: it takes no lock."""
    with _writing(path):
        file = os.open(path, os.O_RDWR)
    try:
        if sys.platform == "linux":
            found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            if _FLOCK.unpack(found)[0] != fcntl.F_UNLCK:
                raise ArchiveError(f"{path} is being written by another process, or by another run of this one.", path)
    finally:
        os.close(file)


def events_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.events")


def read_events(path: Path, count: int) -> np.ndarray | None:
    """The first `count` events as a memory map; None where the file beside the archive is missing or too short."""
    beside = events_path(path)
    if count == 0:
        return np.zeros((0, 3))
    if count < 0 or not beside.is_file() or beside.stat().st_size < 24 * count:
        return None
    return np.memmap(beside, "<f8", "r", 0, (count, 3))


def check_events(path: Path, count: int) -> None:
    """A run can't go on where events that its checkpoint counts are missing: those to come would stand in their place."""
    beside = events_path(path)
    there = beside.stat().st_size // 24 if beside.exists() else 0
    if count < 0:
        raise ArchiveError(f"{path} is damaged: its checkpoint counts {count} events.", path)
    if there < count:
        raise ArchiveError(
            f"{path}: {beside.name} beside it has {there} of the {count} events of this run: it was cut short or left behind. Put the whole file there before the run goes on."
        )


def truncate_events(path: Path, count: int) -> None:
    """Drop events that a killed run wrote after its last checkpoint. Only for who holds the archive: a running one writes such events."""
    check_events(path, count)  # truncation would also lengthen a file, with zeros
    if events_path(path).exists():
        with _writing(events_path(path)):
            os.truncate(events_path(path), 24 * count)


def _write(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, offset)
        view, offset = view[done:], offset + done


def _dataset(file: h5py.File, name: str, shape: tuple[int, ...], dtype: Any) -> int:
    """A contiguous dataset with its space allocated and not filled; returns its offset in the file."""
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    made = h5py.h5d.create(
        file.id,
        name.encode(),
        h5py.h5t.py_create(np.dtype(dtype), logical=True),
        h5py.h5s.create_simple(shape),
        creation,
        links,
    )
    return made.get_offset() or 0


def create(
    path: str | Path,
    meta: dict[str, Any],
    seen: dict[str, Any],
    carry: Carry,
    saves: int,
    replace: bool = False,
    fixed: dict[str, Any] | None = None,
) -> Writer:
    """A new archive for `saves` rows like `seen` (one saved point, as the engine shows it); `fixed` is written now and never again."""
    path = Path(path)
    if path.exists() and not replace:
        raise ArchiveError(
            f"{path} exists. Choose another output, remove it, or continue it with gm.resume({str(path)!r}, ...)."
        )
    if not path.parent.is_dir():
        raise ArchiveError(f"{path}: the folder {path.parent} does not exist.")
    beside = events_path(path)
    if beside.exists() and not replace:
        raise ArchiveError(
            f"{beside} exists: the events of a run whose archive is no longer beside it. Move it to where that archive is, remove it if that is gone, or choose another output."
        )
    meta = {
        **meta,
        "format": FORMAT,
        "versions": _versions(),
        "carry": describe_carry(carry),
        "fixed": sorted(fixed or {}),
    }
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with _writing(path):
            _make_file(part, meta, {**dict(_flat(seen)), "t": np.zeros(())}, fixed or {}, saves, _slot_bytes(carry))
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    if replace:
        return _open_part(part)
    try:
        os.link(part, path)  # fails where the name was taken meanwhile
    except FileExistsError:
        raise ArchiveError(f"{path} exists.", path) from None
    finally:
        part.unlink()
    return _open_part(path)


def _slot_bytes(carry: Carry) -> int:
    return _HEAD.size + sum(np.asarray(x).nbytes for x in jax.tree.leaves(carry)) + _CRC.size


def _make_file(
    path: Path, meta: dict[str, Any], one_row: dict[str, Any], fixed: dict[str, Any], saves: int, slot_bytes: int
) -> None:
    """All datasets at their final size, and last the JSON with the checksum of them."""
    with h5py.File(path, "w", libver="earliest") as file:
        for name, x in one_row.items():
            _dataset(file, name, (saves, *np.shape(x)), np.asarray(x).dtype)
        for name, x in fixed.items():
            file.create_dataset(name, data=x)
        _dataset(file, "checkpoint", (2, slot_bytes), np.uint8)
        _dataset(file, "rows_saved", (1,), np.int64)
        table = lambda name, held: Dataset(name, held.dtype, held.shape, held.id.get_offset() or 0)
        made = {name: table(name, file[name]) for name in (*one_row, *fixed, "checkpoint", "rows_saved")}
        total = checksum(meta, made, {name: np.ascontiguousarray(x).tobytes() for name, x in fixed.items()})
        text = json.dumps({**meta, "checksum": total})
        long = len(text) > LONGEST_TEXT or len(str(meta.get("method"))) > LONGEST_METHOD
        if long or parsed(text)["checksum"] != total:
            raise OSError("the description of its method or of its model is too long")
        file.attrs["geomint"] = text


def _open_part(path: Path) -> Writer:
    meta, columns, slots, count, _ = _read_tables(path)
    return Writer(path, meta, columns, slots, count, rows=0, sequence=0)


def _read_tables(path: Path) -> Tables:
    """What the tables know of an archive that this run has made: the JSON, the columns, the checkpoint slots, where
    the count stands, how many rows there is room for."""
    with _reading(path):
        return _columns(*_opened(path))


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ArchiveError(f"there is no file {path}.", path) from None
    except Foreign as error:
        raise ArchiveError(f"{path} is an HDF5 file, but not one that geomint wrote ({error}).", path) from None
    except ArchiveError:
        raise
    except (OSError, ValueError) as error:  # Damaged is one
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        what = "can't be read as an archive: it is truncated, damaged, or no HDF5 file"
        raise ArchiveError(f"{path} {what} ({why}).", path) from None


def _opened(path: Path) -> tuple[dict[str, Any], dict[str, Dataset]]:
    if not stat.S_ISREG(path.stat().st_mode):
        raise Damaged("a folder or a device")
    attributes, datasets = read_tables(path)
    if "geomint" not in attributes:
        raise Foreign("it has no attribute of that name")
    meta = parsed(attributes["geomint"])
    if isinstance(meta.get("format"), int) and meta["format"] > FORMAT:
        raise ArchiveError(f"{path} was written by a newer geomint (format {meta['format']}); update geomint.", path)
    return meta, datasets


def _columns(meta: dict[str, Any], datasets: dict[str, Dataset]) -> Tables:
    columns = {name: Column.of(held) for name, held in datasets.items() if name not in meta["fixed"]}
    slots, count = columns.pop("checkpoint"), columns.pop("rows_saved")
    return meta, columns, (slots.offset, slots.row_bytes), count.offset, columns["t"].room


def _fixed(file: BinaryIO, meta: dict[str, Any], datasets: dict[str, Dataset]) -> dict[str, np.ndarray]:
    """What was written once, after a check that neither it nor the tables have changed since."""
    found = {}
    for name in meta["fixed"]:
        held = datasets[name]
        file.seek(held.offset)
        found[name] = file.read(held.nbytes)
    if meta["format"] > 1 and meta.get("checksum") != checksum(meta, datasets, found):
        raise Damaged("its description or its tables were changed after it was made")
    shaped = lambda data, held: np.frombuffer(data, held.dtype).reshape(held.shape)
    once = {name: shaped(data, datasets[name]) for name, data in found.items()}
    kept, start = once.get("kept", ()), once.get("start/q", ())
    if "reduce" in meta and len(kept) and not (np.min(kept) >= 0 and np.max(kept) < len(start)):
        raise Damaged("it keeps members that it does not have")
    return once


@dataclasses.dataclass
class Contents:
    """An archive as it stands: what its newest intact checkpoint vouches for."""

    path: Path
    meta: dict[str, Any]
    columns: dict[str, Column]
    slots: tuple[int, int]
    count_offset: int
    room: int
    sequence: int
    step: int
    rows: int
    leaves: list[np.ndarray]
    once: dict[str, np.ndarray]

    def array(self, name: str) -> np.ndarray:
        """A column as a memory map of the file: nothing is read before it is used."""
        c = self.columns[name]
        if self.rows == 0 or c.row_bytes == 0:
            return np.zeros((self.rows, *c.shape), c.dtype)
        with _reading(self.path):
            return np.memmap(self.path, c.dtype, "r", c.offset, (self.rows, *c.shape))

    def fixed(self) -> dict[str, np.ndarray]:
        """What was written once, before the first row."""
        return dict(self.once)

    @property
    def seed(self) -> Any:
        """One number, or one for each member."""
        return self.fixed()["seeds"] if self.meta["seed"] is None else self.meta["seed"]

    def writer(self) -> Writer:
        """To go on from here, if nobody else has since this was read."""
        writer = Writer(self.path, self.meta, self.columns, self.slots, self.count_offset, self.rows, self.sequence)
        try:
            now, here = read(self.path), os.path.samestat(os.fstat(writer.file), self.path.stat())
            if not here or (now.sequence, now.step, now.room) != (self.sequence, self.step, self.room):
                raise ArchiveError(f"{self.path} was written by another process while this one opened it; try again.")
            writer.lock()  # again: where locks are those of a process, reading has lost it
        except BaseException:
            writer.close()
            raise
        return writer

    def carry_like(self, template: Carry, share: slice | None = None) -> Carry:
        """The checkpoint's carry in the structure of `template`; of a share of the members where the template is."""
        treedef = jax.tree.structure(template)
        held = [x if share is None else x[share] for x in self.leaves]
        if describe_carry(template) != describe_carry(held):
            raise ArchiveError(
                f"{self.path}: the checkpoint does not fit this method and system: {describe_carry(held)} on file, {describe_carry(template)} here."
            )
        return jax.tree.unflatten(treedef, [jax.numpy.asarray(x) for x in held] if share is None else held)


def read(path: str | Path) -> Contents:
    """Open an archive, finished or not."""
    path = Path(path)
    with _reading(path):
        meta, datasets = _opened(path)
        check_entries(meta)
        meta.setdefault("fixed", [])
        check_datasets(meta, datasets, _HEAD.size + _CRC.size)
        meta, columns, slots, count, room = _columns(meta, datasets)
        with path.open("rb") as file:
            once = _fixed(file, meta, datasets)
            best = max((s for k in range(2) if (s := _slot(file, slots, k, meta, room))), default=None)
        if best is None:
            return Contents(path, meta, columns, slots, count, room, 0, 0, 0, [], once)
        sequence, step, rows, body = best
        rows = min(rows, step // meta["grid"][3] + 1)  # an interrupt once left rows that the step does not reach
        return Contents(path, meta, columns, slots, count, room, sequence, step, rows, _leaves(meta, body), once)


def _slot(
    file: BinaryIO, slots: tuple[int, int], k: int, meta: dict[str, Any], room: int
) -> tuple[int, int, int, bytes] | None:
    """Sequence, step, rows and carry of a checkpoint slot; None where it is empty, torn, or says what can't be."""
    file.seek(slots[0] + k * slots[1])
    slot = file.read(slots[1])
    body, crc = slot[: -_CRC.size], _CRC.unpack(slot[-_CRC.size :])[0]
    sequence, step, rows = _HEAD.unpack(body[: _HEAD.size])
    whole = 0 < sequence < 2**63 and zlib.crc32(body) == crc
    fits = step <= meta["grid"][2] and step // meta["grid"][3] < rows <= room  # every save up to the step has its row
    return (sequence, step, rows, body[_HEAD.size :]) if whole and fits else None


def _leaves(meta: dict[str, Any], body: bytes) -> list[np.ndarray]:
    leaves, at = [], 0
    for dtype, shape in meta["carry"]:
        x = np.frombuffer(body, np.dtype(dtype), math.prod(shape), at).reshape(shape)
        if x.dtype == bool and np.any(x.view(np.uint8) > 1):
            raise Damaged("its checkpoint has a truth value that is neither true nor false")
        leaves, at = [*leaves, x], at + x.nbytes
    return leaves


def enlarged(old: Contents, meta: dict[str, Any], saves: int, carry: Carry) -> Writer:
    """The archive with room for more rows: a copy beside it, renamed over it once it is complete. Until then the old one is held: a
    run that still writes to it would lose what it writes."""
    one_row = _nested({name: np.zeros(c.shape, c.dtype) for name, c in old.columns.items() if name != "t"})
    held = old.writer()
    try:
        new = create(old.path, meta, one_row, carry, saves, replace=True, fixed=old.fixed())
        try:
            for begin in range(0, old.rows, 4096):
                piece = slice(begin, min(begin + 4096, old.rows))
                new.append_columns({n: old.array(n)[piece] for n in old.columns if n != "t"}, old.array("t")[piece])
            new.sequence = old.sequence
            new.checkpoint(carry, old.step, force=True)
            held.lock()
            new.path.replace(old.path)
        except BaseException:
            new.close()
            new.path.unlink(missing_ok=True)
            raise
    finally:
        held.close()
    new.path = old.path
    return new


def trajectory(contents: Contents, system: Any = None, checkpoint: Checkpoint | None = None) -> Trajectory:
    """An archive as a Trajectory whose arrays are memory maps."""
    meta = contents.meta
    columns = _nested({n: contents.array(n) for n in contents.columns})
    t = columns.pop("t")
    summary = (
        taken_from(columns, contents.leaves[-1] if contents.leaves else (), meta["reduce"], contents.fixed())
        if "reduce" in meta
        else None
    )
    if meta["members"]:
        columns = jax.tree.map(lambda x: np.moveaxis(x, 0, 1), columns)
    return Trajectory(
        system, method_of(contents), Grid(*meta["grid"]), t, columns, members=meta["members"], spread=meta["spread"],
        seed=contents.seed, compensated=meta["compensated"], engine=meta["engine"], checkpoint=checkpoint,
        records=records_of(contents, checkpoint), path=contents.path, summary=summary,
    )  # fmt: skip


def method_of(contents: Contents) -> methods.Method:
    """The method, made again from its expression."""
    try:
        return methods.named(contents.meta["method"])
    except Exception as error:  # whatever an expression from a file leads to
        what = f"its method {contents.meta['method']!r:.100} is not one of this geomint ({str(error)[:200]})"
        raise ArchiveError(f"{contents.path}: {what}.", contents.path) from None


def records_of(contents: Contents, checkpoint: Checkpoint | None) -> np.ndarray | None:
    """The single events of a run, where its method and the checkpoint tell how many there are."""
    method = method_of(contents)
    if checkpoint is None or not method.traits.event_driven or contents.meta["spread"] != "one":
        return None
    return read_events(contents.path, int(protocols.events(method, checkpoint.carry)))
