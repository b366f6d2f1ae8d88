"""The file of single events beside an archive, NAME.events.

The number of events is not known before the run, so that they have no place of fixed size in the archive. This file
only grows: rows of three doubles (time, level, kind). The carry of the last checkpoint says how many of them count.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ..errors import ArchiveError
from .files import writing

ROW_BYTES = 24


def events_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.events")


def append_events(path: Path, events: np.ndarray) -> None:
    """Write events behind those that are there, and wait for the disk."""
    with events_path(path).open("ab") as file:
        file.write(np.ascontiguousarray(events, "<f8").tobytes())
        file.flush()
        os.fsync(file.fileno())


def read_events(path: Path, count: int) -> np.ndarray | None:
    """The first `count` events as a memory map; None where the file is missing or too short."""
    beside = events_path(path)
    if count == 0:
        return np.zeros((0, 3))
    if count < 0 or not beside.is_file() or beside.stat().st_size < ROW_BYTES * count:
        return None
    return np.memmap(beside, "<f8", "r", 0, (count, 3))


def check_events(path: Path, count: int) -> None:
    """Refuse to continue a run where events that its checkpoint counts are missing: new ones would take their place."""
    beside = events_path(path)
    there = beside.stat().st_size // ROW_BYTES if beside.exists() else 0
    if count < 0:
        raise ArchiveError(f"{path} is damaged: its checkpoint counts {count} events.", path)
    if there < count:
        raise ArchiveError(
            f"{path}: {beside.name} beside it has {there} of the {count} events of this run: it was truncated, or not "
            "moved together with the archive. Put the complete file there, then resume."
        )


def truncate_events(path: Path, count: int) -> None:
    """Drop events that a killed run wrote after its last checkpoint. Only the holder of the archive's lock may do that:
    a running simulation writes such events too."""
    check_events(path, count)  # truncation would also lengthen a file, with zeros
    if events_path(path).exists():
        with writing(events_path(path)):
            os.truncate(events_path(path), ROW_BYTES * count)
