"""Where the rows of a run go: memory, or an archive on disk, with or without a file of frames beside it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..engines import Layout
from ..engines.device_rows import HELD_BYTES, DeviceColumns, DeviceRows, packed_row
from ..engines.grid import Grid
from ..errors import InputError
from ..methods import Carry
from ..numerics.memory import available_memory
from .events_file import truncate_events
from .files import writing
from .frames import FrameFile, FrameTopology
from .writer import Writer


def check_memory(saves: int, numbers: int) -> None:
    """Raise an error, before anything is allocated, where so many saved points of so many numbers do not fit."""
    needed, there = saves * numbers * jnp.dtype(float).itemsize, available_memory()
    if needed > there:
        raise InputError(
            f"{saves} saved points need {needed / 2**30:.3g} GiB of memory, and {there / 2**30:.3g} GiB are available. "
            "Save less often with save_every=..., end earlier (t_end) or take longer steps (dt), or stream the run to "
            "a file with output=..."
        )


class Memory:
    """Rows in one array, which is allocated at its final size; or on a device, where the engine leaves them there and
    they are not too many."""

    def __init__(self, layout: Layout, seen: dict[str, Any], saves: int, members: bool):
        self.layout, self.count, self.event_batches = layout, 0, []
        leaves = jax.tree.leaves(seen)
        leading = (len(leaves[0]),) if members else ()
        check_memory(saves, math.prod(leading) * layout.width)
        size = saves * math.prod(leading) * layout.width * jnp.dtype(float).itemsize
        self.pieces: list[DeviceRows] | None = None
        if members and size <= HELD_BYTES and all(isinstance(x, jax.Array) for x in leaves):
            self.pieces = []
            self.append(DeviceRows(packed_row(seen), 1))
            return
        first = np.concatenate(
            [
                np.asarray(x, jnp.result_type(float)).reshape(*leading, 1, math.prod(np.shape(x)[len(leading) :]))
                for x in leaves
            ],
            axis=-1,
        )
        self.rows = np.empty((*leading, saves, layout.width), first.dtype)
        self.append(first)

    def append(self, rows: np.ndarray | DeviceRows) -> None:
        if self.pieces is None:
            self.rows[..., self.count : self.count + rows.shape[-2], :] = rows
        else:
            self.pieces.append(rows if isinstance(rows, DeviceRows) else DeviceRows(jnp.asarray(rows), rows.shape[1]))
        self.count += rows.shape[-2]

    def append_events(self, events: np.ndarray) -> None:
        self.event_batches.append(events)

    @property
    def events(self) -> np.ndarray:
        return np.concatenate([np.zeros((0, 3)), *self.event_batches])

    def truncate(self, rows: int, events: int | None) -> None:
        """Discard all but the first rows and events; events is None where there are none."""
        self.count, self.event_batches = rows, [self.events[:events]]

    def checkpoint(self, carry: Carry, step: int) -> None:
        """A run in memory needs only its last carry, which drive.py has."""

    def close(self) -> None:
        """Nothing is open."""

    @property
    def columns(self) -> Any:
        """A dictionary, or `DeviceColumns`."""
        if self.pieces is not None:
            return DeviceColumns(self.layout, self.pieces, self.count)
        return self.layout.unpack(self.rows[..., : self.count, :])


class Disk:
    """Rows streamed to an archive."""

    def __init__(
        self,
        writer: Writer,
        layout: Layout,
        grid: Grid,
        members: bool,
        archived_carry: Callable[[Carry], Carry] = lambda carry: carry,
    ):
        """members: rows lead with the member axis. archived_carry: from the carry of an engine to the one that archives
        have."""
        self.writer, self.layout, self.grid, self.members = writer, layout, grid, members
        self.archived_carry = archived_carry

    def first(self, seen: dict[str, Any], carry: Carry) -> None:
        try:
            self.write(jax.tree.map(lambda x: np.asarray(x)[None], seen), self.grid.times(0, 1))
            self.finish_checkpoint(self.archived_carry(carry), 0)
        except BaseException:
            self.abandon()
            raise

    def append(self, rows: np.ndarray | DeviceRows) -> None:
        rows = np.asarray(rows)
        seen = self.layout.unpack(rows)
        if self.members:
            seen = jax.tree.map(lambda x: np.moveaxis(x, 0, 1), seen)
        self.write(seen, self.grid.times(self.writer.rows, rows.shape[-2]))

    def write(self, seen: dict[str, Any], t: np.ndarray) -> None:
        """Write rows of every column; time is the leading axis."""
        self.writer.append_columns(seen, t)

    def append_events(self, events: np.ndarray) -> None:
        self.writer.append_events(events)

    def truncate(self, rows: int, events: int | None) -> None:
        self.writer.rows = rows
        if events is not None:
            truncate_events(self.writer.path, events)

    def checkpoint(self, carry: Carry, step: int) -> None:
        if self.writer.due():
            self.finish_checkpoint(self.archived_carry(carry), step)

    def finish_checkpoint(self, archived: Carry, step: int) -> None:
        """Write a checkpoint; `archived` is the carry as archives have it."""
        self.writer.checkpoint(archived, step, force=True)

    def abandon(self) -> None:
        """Remove what can't be continued."""
        self.writer.abandon()

    def close(self) -> None:
        self.writer.close()


class DiskWithFrames(Disk):
    """Rows streamed to an archive, and as frames to a file for other programs beside it. Frames are on the disk before
    the checkpoint that counts them, so that the file of frames never lacks one."""

    def __init__(self, frames: FrameFile, topology: FrameTopology, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.frames, self.topology = frames, topology

    def write(self, seen: dict[str, Any], t: np.ndarray) -> None:
        with writing(self.frames.path):
            self.frames.append(self.topology.frames(seen, t, self.writer.rows, self.grid.save_every))
        super().write(seen, t)

    def truncate(self, rows: int, events: int | None) -> None:
        super().truncate(rows, events)
        with writing(self.frames.path):
            self.frames.cut(rows)

    def finish_checkpoint(self, archived: Carry, step: int) -> None:
        with writing(self.frames.path):
            self.frames.synchronise()
        super().finish_checkpoint(archived, step)

    def abandon(self) -> None:
        super().abandon()
        if self.writer.sequence == 0:
            self.frames.close()
            self.frames.path.unlink(missing_ok=True)

    def close(self) -> None:
        try:
            with writing(self.frames.path):
                self.frames.close()
        finally:
            super().close()
