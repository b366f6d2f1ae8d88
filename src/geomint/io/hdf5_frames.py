"""Files of frames in HDF5.

HDF5 updates its tables in place, so that a file whose writer was killed may be damaged. The attribute `geomint_open` is
1 while a run writes: such a file is not continued but made again, from the archive of the run.
"""

from __future__ import annotations

import abc
import os
from pathlib import Path
from typing import Any, ClassVar, Self

import h5py
import numpy as np

from .frames import FrameFile

CHUNK_BYTES = 2**16
OPEN = "geomint_open"


class Hdf5Frames(FrameFile):
    """A file of frames in HDF5."""

    root: ClassVar[str]  # the group that says whether a run is writing

    def __init__(self, path: Path, topology: Any, file: h5py.File, count: int):
        self.path, self.topology, self.file, self.count = path, topology, file, count

    @abc.abstractmethod
    def describe(self) -> None:
        """Write everything but the frames into a new file."""

    @abc.abstractmethod
    def complete(self) -> int:
        """How many frames are complete."""

    @classmethod
    def create(cls, path: Path, topology: Any) -> Self:
        made = cls(path, topology, h5py.File(path, "x", libver="earliest"), 0)
        try:
            made.describe()
            made._mark(True)
        except BaseException:
            made.file.close()
            path.unlink(missing_ok=True)
            raise
        return made

    @classmethod
    def reopen(cls, path: Path, topology: Any, count: int) -> Self | None:
        try:
            file = h5py.File(path, "r+")
        except (FileNotFoundError, OSError):
            return None
        opened = cls(path, topology, file, count)
        try:
            if file[cls.root].attrs[OPEN] != 0 or opened.complete() < count:
                raise ValueError("unfinished")
            opened._mark(True)
            opened.cut(count)
        except Exception:  # of a file in any state
            opened.file.close()
            return None
        return opened

    def _mark(self, is_open: bool) -> None:
        self.file[self.root].attrs[OPEN] = int(is_open)
        self.file.flush()

    def synchronise(self) -> None:
        self.file.flush()
        file = os.open(self.path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def close(self) -> None:
        if self.file:
            self._mark(False)
            self.file.close()


def growing(group: Any, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """A dataset that grows along its first axis."""
    chunk = (max(1, CHUNK_BYTES // (np.dtype(dtype).itemsize * int(np.prod(shape)))), *shape)
    return group.create_dataset(name, (0, *shape), dtype, maxshape=(None, *shape), chunks=chunk)
