"""File operations of archives: reads and writes at an offset, waits for the disk, and errors that name the file.

Windows has no `os.pread` and `os.pwrite`, and neither Windows nor macOS has `os.fdatasync`. Where one is missing, a
seek followed by a read or write, and `os.fsync`, replace it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ..errors import ArchiveError

BINARY = getattr(os, "O_BINARY", 0)  # Windows translates line ends without it


def open_file(path: Path, write: bool = False) -> int:
    """A file descriptor for reading, or for reading and writing."""
    return os.open(path, (os.O_RDWR if write else os.O_RDONLY) | BINARY)


def read_at(file: int, size: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(file, size, offset)
    os.lseek(file, offset, os.SEEK_SET)
    return os.read(file, size)


def write_at(file: int, data: bytes, offset: int) -> None:
    """Write all of the data; the system may take it in several parts."""
    rest = memoryview(data)
    while rest:
        if hasattr(os, "pwrite"):
            done = os.pwrite(file, rest, offset)
        else:
            os.lseek(file, offset, os.SEEK_SET)
            done = os.write(file, rest)
        rest, offset = rest[done:], offset + done


def synchronise(file: int) -> None:
    """Wait until all that was written to the file is on the disk."""
    getattr(os, "fdatasync", os.fsync)(file)


def _reason(error: OSError) -> str:
    """The system's words, such as "No space left on device"; h5py gives the number of the error in a long text."""
    hidden = re.search(r"errno = (\d+)", str(error))
    return os.strerror(int(hidden[1])) if hidden else error.strerror or str(error)


@contextlib.contextmanager
def writing(path: Path, kept: str = "") -> Iterator[None]:
    """Turn errors of the disk (no space, no permission, a quota) into an ArchiveError that names the file.

    kept: words on what is not lost.
    """
    try:
        yield
    except ArchiveError:
        raise
    except OSError as error:
        raise ArchiveError(f"{path} can't be written: {_reason(error)}.{kept}", path) from error
