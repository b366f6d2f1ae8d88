"""An exclusive lock on an open archive, so that two runs never write to the same file.

Linux     a lock of the open file description (F_OFD_SETLK). The older lock of a process is lost as soon as the process
          closes the file anywhere, which gm.load does with its memory maps.
POSIX     elsewhere, such as macOS: the lock of a process (lockf). It does not separate two runs of one process.
Windows   LockFile on one byte far behind the end of any file. Locks are mandatory there, so that a lock on the data
          itself would also keep readers out.
others    no lock: the user has to see to it that only one run writes to an archive.

Closing the file releases the lock.
"""

from __future__ import annotations

import importlib
import os
import struct
import sys
from typing import Any


def _module(name: str) -> Any:
    """A module that only some platforms have; None on the others."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


fcntl = _module("fcntl")  # POSIX
msvcrt = _module("msvcrt")  # Windows
FLOCK = struct.Struct("hhqqi4x")  # struct flock of Linux: type, whence, start, length, process
_FAR = (0, 0x40000000, 1, 0)  # Windows: offset 2**62 as (low, high) words, and a length of one byte


def _has_description_locks() -> bool:
    return fcntl is not None and sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")


def acquire(file: int) -> None:
    """Lock the file, or raise OSError where another run holds the lock. Locking a file again that is locked through the
    same descriptor succeeds."""
    if _has_description_locks():
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    elif fcntl is not None:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    elif msvcrt is not None:
        _windows("UnlockFile", file)
        if not _windows("LockFile", file):
            raise BlockingIOError("the file is locked")


def is_locked(file: int) -> bool:
    """Whether another run holds the lock, where the platform can tell that without taking the lock."""
    if _has_description_locks():
        found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return FLOCK.unpack(found)[0] != fcntl.F_UNLCK
    return False


def _windows(function: str, file: int) -> bool:
    """Call LockFile or UnlockFile; both return at once."""
    import ctypes

    kernel: Any = ctypes.WinDLL("kernel32")  # pyright: ignore[reportAttributeAccessIssue]
    handle = ctypes.c_void_p(msvcrt.get_osfhandle(file))
    return bool(getattr(kernel, function)(handle, *(ctypes.c_uint32(word) for word in _FAR)))
