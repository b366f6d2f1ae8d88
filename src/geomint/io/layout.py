"""Where everything is in an archive: columns, checkpoint slots, and the tables that say so.

The format is described in io/archive.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import platform
import stat
import struct
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import ArchiveError
from ..methods import Carry
from .archive_checks import FORMAT, parsed
from .hdf5_tables import Damaged, Dataset, Foreign, read_tables

SLOT_HEAD = struct.Struct("<QQQ")  # sequence, step, rows
SLOT_CRC = struct.Struct("<I")


@dataclasses.dataclass(frozen=True)
class Column:
    """One dataset with a row for each saved point: where its rows begin in the file, and what a row is."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]  # of a row
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


class Slots(NamedTuple):
    """The two checkpoint slots, one behind the other."""

    offset: int
    size: int  # bytes of one slot


class Tables(NamedTuple):
    """What the tables of an archive say."""

    meta: dict[str, Any]  # the JSON of its attribute
    columns: dict[str, Column]
    slots: Slots
    count_offset: int  # of /rows_saved
    room: int  # rows


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of a file that is missing, damaged or of another program into an ArchiveError."""
    try:
        yield
    except FileNotFoundError:
        raise ArchiveError(f"there is no file {path}.", path) from None
    except Foreign as error:
        raise ArchiveError(f"{path} is an HDF5 file, but not one that geomint wrote ({error}).", path) from None
    except ArchiveError:
        raise
    except (OSError, ValueError) as error:  # Damaged is a ValueError
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        what = "can't be read as an archive: it is truncated, damaged, or not an HDF5 file"
        raise ArchiveError(f"{path} {what} ({why}).", path) from None


def archive_tables(path: Path) -> Tables:
    """The tables of an archive that this run has made, which need no check."""
    with reading(path):
        return tables_of(*open_tables(path))


def open_tables(path: Path, virtual: bool = False) -> tuple[dict[str, Any], dict[str, Dataset]]:
    """The JSON of a file and its datasets, before any check of what they say. virtual: as in `read_tables`."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise Damaged("a folder or a device")
    attributes, datasets = read_tables(path, virtual)
    if "geomint" not in attributes:
        raise Foreign("it has no attribute 'geomint'")
    meta = parsed(attributes["geomint"])
    if isinstance(meta.get("format"), int) and meta["format"] > FORMAT:
        raise ArchiveError(f"{path} was written by a newer geomint (format {meta['format']}); update geomint.", path)
    return meta, datasets


def tables_of(meta: dict[str, Any], datasets: dict[str, Dataset]) -> Tables:
    columns = {name: Column.of(held) for name, held in datasets.items() if name not in meta["fixed"]}
    slots, count = columns.pop("checkpoint"), columns.pop("rows_saved")
    return Tables(meta, columns, Slots(slots.offset, slots.row_bytes), count.offset, columns["t"].room)


def slot_bytes(carry: Carry) -> int:
    return SLOT_HEAD.size + sum(np.asarray(x).nbytes for x in jax.tree.leaves(carry)) + SLOT_CRC.size


def describe_carry(carry: Carry) -> list[list[Any]]:
    """Dtype and shape of each leaf, in order: what the bytes of a checkpoint mean."""
    return [[str(np.asarray(x).dtype), list(np.shape(x))] for x in jax.tree.leaves(carry)]


@functools.cache
def versions() -> dict[str, str]:
    """Versions of the packages that may change the bits of a run."""
    return {name: version(name) for name in ("jax", "jaxlib", "numpy", "h5py")} | {"python": platform.python_version()}


def flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """("momentum_maps/rotation", array), … from nested dictionaries."""
    for name, x in tree.items():
        yield from flat(x, f"{prefix}{name}/") if isinstance(x, dict) else [(prefix + name, x)]


def nested(columns: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `flat`."""
    tree: dict[str, Any] = {}
    for path, x in columns.items():
        *groups, name = path.split("/")
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
        node[name] = x
    return tree
