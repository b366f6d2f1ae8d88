"""The index of a sharded run: one HDF5 file that stands for the archives of all shards in a folder beside it.

    run.h5                the index
    run.shards/00000.h5   an archive of the first members, with its own checkpoints; 00001.h5 of the next ones, …

The index has the initial states of all members, so that shards that have not begun can be started by gm.resume, and the
attribute `geomint`: JSON like that of an archive, with the entry `index` (the folder, the number of members, members of
a shard, rows once the run is complete). It is written when the run begins and again when the run ends, then with
virtual datasets over the shards, for h5py and xarray. geomint does not use these: it opens every shard as an archive,
with all checks of archives. The folder is a plain name beside the index and the names of shards follow from their
numbers, so that no path in a file leads elsewhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from ..errors import ArchiveError
from . import archive_checks
from .files import writing
from .hdf5_tables import LONGEST_TEXT, Damaged, Dataset
from .layout import open_tables, reading, versions
from .reader import Contents, read

STOP = "stop"  # a file of this name in the folder asks the tasks to stop at their next checkpoint
PIECE_BYTES = 2**20  # of the initial states that are read or written at a time


class ShardPlace(NamedTuple):
    """One shard: its number, its members start … stop − 1, and its archive."""

    number: int
    start: int
    stop: int
    path: Path


@dataclasses.dataclass
class Index:
    """An index as it was read."""

    path: Path
    meta: dict[str, Any]
    datasets: dict[str, Dataset]
    small: dict[str, np.ndarray]  # of a reduced ensemble: the members that are kept, the settings of reductions

    @property
    def members(self) -> int:
        return self.meta["index"]["members"]

    @property
    def kept(self) -> np.ndarray | None:
        """The members whose rows are kept; None where those of all are."""
        return self.small.get("kept")

    @property
    def rows(self) -> int | None:
        """The rows that count; None while the run is not complete."""
        return self.meta["index"]["rows"]

    @property
    def folder(self) -> Path:
        return self.path.parent / self.meta["index"]["folder"]

    @property
    def shards(self) -> list[ShardPlace]:
        return places(self.folder, self.members, self.meta["index"]["shard"])

    def start(self, name: str, begin: int = 0, end: int | None = None) -> np.ndarray:
        """q, p or velocity of some members at the start, or their seeds; a copy."""
        end = self.members if end is None else end
        held = self.datasets[name if name == "seeds" else f"start/{name}"]
        if not held.nbytes:
            return np.zeros((end - begin, *held.shape[1:]), held.dtype)
        row = int(np.prod(held.shape[1:]))
        with reading(self.path):
            # Not a memory map, whose pages count as memory of this process once they were read.
            return np.fromfile(
                self.path, held.dtype, (end - begin) * row, offset=held.offset + begin * row * held.dtype.itemsize
            ).reshape(-1, *held.shape[1:])

    def seed(self, begin: int = 0, end: int | None = None) -> Any:
        """One number, or one for each of these members."""
        return self.start("seeds", begin, end) if self.meta["seed"] is None else self.meta["seed"]

    @property
    def large(self) -> dict[str, _Stored]:
        """The initial states of all members, and their seeds; not read yet."""
        return {name: _Stored(self, name) for name in self.datasets if name not in self.small}

    def check_start(self) -> None:
        """Check that the initial states were not changed."""
        if _start_checksum(self.large) != self.meta["index"]["start_checksum"]:
            raise ArchiveError(f"{self.path}: the initial states of the members were changed.", self.path)


def places(folder: Path, members: int, size: int) -> list[ShardPlace]:
    """The shards of an ensemble: `size` members each, the last one the rest."""
    return [
        ShardPlace(k, a, min(a + size, members), folder / f"{k:05d}.h5") for k, a in enumerate(range(0, members, size))
    ]


def _is_small(name: str) -> bool:
    """Whether a dataset is read whenever an index is opened; the initial states of all members are not."""
    return name != "seeds" and not name.startswith("start/")


def _start_checksum(fixed: Mapping[str, Any]) -> int:
    total = 0
    for name, x in sorted(fixed.items()):
        if not _is_small(name):
            for rows in _pieces(x):
                total = zlib.crc32(np.ascontiguousarray(rows).data, total)
    return total


def _pieces(x: Any) -> Iterator[np.ndarray]:
    """Some rows at a time of an array of all members, which may be a view or in a file."""
    step = max(1, PIECE_BYTES // max(1, x.dtype.itemsize * int(np.prod(x.shape[1:]))))
    return (x[a : a + step] for a in range(0, len(x), step))


@dataclasses.dataclass(frozen=True)
class _Stored:
    """The initial states in an index, read some rows at a time."""

    index: Index
    name: str

    @property
    def dtype(self) -> np.dtype:
        return self.index.datasets[self.name].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.index.datasets[self.name].shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.index.start(self.name.removeprefix("start/"), *rows.indices(len(self))[:2])


def folder_of(path: Path) -> Path:
    """The folder of the shards of an index that does not exist yet."""
    return path.with_name(f"{path.stem}.shards")


def create_index(path: Path, meta: dict[str, Any], shard: int, fixed: dict[str, np.ndarray]) -> Index:
    """Make the folder of the shards, and the index without rows.

    meta: the JSON of an archive; fixed: start/q, start/p, and as far as there are any start/velocity, seeds, kept and
    the settings of reductions.
    """
    folder = folder_of(path)
    for taken in (path, folder):
        if taken.exists():
            raise ArchiveError(
                f"{taken} exists. Choose another output, remove it, or continue it with gm.resume({str(path)!r}, ...).",
                taken,
            )
    if not path.parent.is_dir():
        raise ArchiveError(f"{path}: the folder {path.parent} does not exist.", path)
    about = {
        "folder": folder.name,
        "members": len(fixed["start/q"]),
        "shard": shard,
        "rows": None,
        "start_checksum": _start_checksum(fixed),
    }
    meta = {**meta, "format": archive_checks.FORMAT, "versions": versions(), "carry": [], "index": about}
    with writing(path):
        folder.mkdir()
        _write(path, meta, fixed, {})
    return _required(path)


def rewrite_index(index: Index, meta: dict[str, Any], rows: int | None, shown: dict[str, Any] | None = None) -> Index:
    """Replace the index: with another grid, or with rows once the run is complete.

    shown: what other programs see: arrays, or functions that make the h5py.VirtualLayout of a column over the shards,
    one after the other: layouts over a thousand shards take 12 MB each.
    """
    with writing(index.path):
        _write(index.path, with_rows(meta, rows), {**index.large, **index.small}, shown or {})
    return _required(index.path)


def with_rows(meta: dict[str, Any], rows: int | None) -> dict[str, Any]:
    """The JSON of an index whose shards have so many rows."""
    return {**meta, "index": {**meta["index"], "rows": rows}}


def _write(path: Path, meta: dict[str, Any], fixed: dict[str, Any], shown: dict[str, Any]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    meta = {**meta, "fixed": sorted(fixed)}
    meta.pop("checksum", None)
    try:
        with h5py.File(part, "w", libver="earliest") as file:
            made = {name: _write_array(file, name, x) for name, x in fixed.items()}
            covered = {name: np.ascontiguousarray(x).tobytes() for name, x in fixed.items() if _is_small(name)}
            total = archive_checks.checksum(meta, made, covered)
            text = json.dumps({**meta, "checksum": total})
            if len(text) > LONGEST_TEXT:
                raise OSError("the description of its method or of its model is too long")
            file.attrs["geomint"] = text
        for name, x in shown.items():
            # HDF5 keeps the 7 MB of a virtual dataset over a thousand shards until the file is closed.
            with h5py.File(part, "r+", libver="earliest") as file:
                if callable(x):
                    file.create_virtual_dataset(name, x())
                else:
                    file.create_dataset(name, data=x)
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _write_array(file: h5py.File, name: str, x: Any) -> Dataset:
    held, at = file.create_dataset(name, x.shape, x.dtype), 0
    for rows in _pieces(x):
        held[at : at + len(rows)] = rows
        at += len(rows)
    return Dataset(name, held.dtype, held.shape, held.id.get_offset() or 0)


def read_index(path: Path) -> Index | None:
    """An index, after all checks; None where the file is an ordinary archive."""
    with reading(path):
        meta, datasets = open_tables(path, virtual=True)
        if "index" not in meta:
            return None
        archive_checks.check_entries(meta)
        fixed = {name: datasets[name] for name in meta.get("fixed", []) if name in datasets}
        _check_fixed(meta, fixed)
        covered, small = {}, {}
        with path.open("rb") as file:
            for name in filter(_is_small, fixed):
                file.seek(fixed[name].offset)
                covered[name] = file.read(fixed[name].nbytes)
                small[name] = np.frombuffer(covered[name], fixed[name].dtype).reshape(fixed[name].shape)
        kept = small.get("kept", ())
        if len(kept) and not (np.min(kept) >= 0 and np.max(kept) < meta["index"]["members"]):
            raise Damaged("it keeps members whose numbers are out of range")
        if (meta["index"]["rows"] or 0) > meta["grid"][2] // meta["grid"][3] + 1:
            raise Damaged("it has more rows than its run saves")
        if meta.get("checksum") != archive_checks.checksum(meta, fixed, covered):
            raise Damaged("its description or its tables were changed after it was made")
        return Index(path, meta, fixed, small)


def _check_fixed(meta: dict[str, Any], fixed: dict[str, Dataset]) -> None:
    """The initial states have the shapes that follow from the JSON."""
    if not meta["members"] or not meta.get("tile") or meta["index"]["shard"] % meta["tile"]:
        raise Damaged("its shards are not whole tiles of an ensemble")
    members = (meta["index"]["members"],)
    shapes = (*archive_checks.state_shapes(meta), ("velocity", meta["q_shape"]))
    states = {f"start/{name}": ("f", (*members, *shape)) for name, shape in shapes}
    expected = {**states, "seeds": ("iu", members)}
    needed = {"start/q", "start/p"} | ({"seeds"} if meta["seed"] is None else set())
    settings = archive_checks.SETTINGS
    small = {f"reduced/{name}/{x}" for name, about in meta.get("reduce", {}).items() for x in settings[about["kind"]]}
    small |= {"kept"} if "reduce" in meta else set()
    if not needed | small <= fixed.keys() <= expected.keys() | small or fixed.keys() != set(meta.get("fixed", [])):
        raise Damaged("it lacks initial states, seeds or kept members, or has others")
    for name, held in fixed.items():
        kinds, shape = expected.get(name, ("i" if name == "kept" else "f", held.shape[:1]))
        if held.dtype.kind not in kinds or held.shape != shape:
            raise Damaged(f"{name} is {held.dtype} {held.shape}, where {shape} is expected")


def _required(path: Path) -> Index:
    index = read_index(path)
    if index is None:
        raise ArchiveError(f"{path} was replaced by another file.", path)
    return index


@contextlib.contextmanager
def _of_shard(index: Index, place: ShardPlace) -> Iterator[None]:
    """Name the shard in errors."""
    try:
        yield
    except ArchiveError as error:
        raise ArchiveError(
            f"{index.path}: shard {place.number} (members {place.start} … {place.stop - 1}): {error}", place.path
        ) from None


def open_shard(index: Index, place: ShardPlace, continued: bool = False) -> Contents:
    """The archive of a shard, after a check that it belongs to this index. continued: its run goes on, so that it may
    have fewer rows than the index."""
    with _of_shard(index, place):
        held = read(place.path)
        meta, about = held.meta, index.meta
        same = all(meta.get(name) == about.get(name) for name in ("method", "fingerprint", "spread", "tile", "q_shape"))
        same = same and all(meta.get(name) == about.get(name) for name in ("reduce", "seed", "compensated"))
        grids = [(grid[0], grid[1], grid[3]) for grid in (meta["grid"], about["grid"])]  # the end may be a later one
        if not same or grids[0] != grids[1] or meta.get("shard") != shard_entry(index, place):
            raise ArchiveError(f"{place.path} belongs to another run. Remove it; gm.resume makes it again.", place.path)
        if not continued and index.rows is not None and held.rows < index.rows:
            behind = f"{place.path} has {held.rows} of {index.rows} rows; gm.resume({str(index.path)!r}) completes it."
            raise ArchiveError(behind, place.path)
        return held


def shard_entry(index: Index, place: ShardPlace) -> list[int]:
    """The entry `shard` in the JSON of a shard's archive: its members, and which run it belongs to."""
    return [place.start, place.stop, index.members, index.meta["index"]["start_checksum"]]
