"""Rows and carries that stay on a device until they are read.

A copy of the rows of a million members to the host takes longer than a short run of a GPU. So rows of the kernel
engine stay on its device: what the host loop asks about them (whether they are finite, the extremes of the energy) is
reduced there to a few numbers, and a column is copied when it is read first.

Arrays that wait on a device take its memory: `hold` moves those of the oldest runs to the host.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import weakref
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..numerics.compilation import jit
from .block import Layout, Observed

HELD_BYTES = 2**31  # on the device, of all runs together


@dataclasses.dataclass(frozen=True)
class DeviceRows:
    """Rows (members, room, width) on a device; the first `count` of each member are valid. NumPy functions and indices
    read a copy on the host."""

    array: jax.Array
    count: int

    @classmethod
    def of(cls, rows: jax.Array, count: int) -> DeviceRows:
        """The first rows of a buffer. The room is a power of two, since each length is a program to compile."""
        room = min(rows.shape[1], 2 ** math.ceil(math.log2(max(count, 1))))
        return cls(rows if room == rows.shape[1] else _first_rows(rows, room), count)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.array.shape[0], self.count, self.array.shape[2])

    @property
    def ndim(self) -> int:
        return 3

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(np.asarray(self.array)[:, : self.count], dtype)

    def __getitem__(self, at: Any) -> np.ndarray:
        return np.asarray(self)[at]

    def good(self, layout: Layout) -> bool:
        """Whether all rows are finite, and their status zero."""
        # Unpacking the numbers of the places in a row gives those of the status.
        status = layout.unpack(np.arange(layout.width)).get("status", np.zeros(0, int))
        return bool(_good(self.array, self.count, tuple(np.ravel(status).tolist())))


@functools.partial(jit, static_argnums=1)
def _first_rows(rows: Any, room: int) -> Any:
    return rows[:, :room]


@functools.partial(jit, static_argnums=2)
def _good(rows: Any, count: Any, status: tuple[int, ...]) -> Any:
    good = jnp.all(jnp.isfinite(rows), axis=(0, 2)) & jnp.all(rows[..., np.array(status, int)] == 0, axis=(0, 2))
    return jnp.all(good | (jnp.arange(rows.shape[1]) >= count))


# --- rows as columns ---
@functools.partial(jit, static_argnums=0)
def unpacked_row(layout: Layout, rows: Any) -> Observed:
    """The quantities of the first row of each member, in the types that they had before they were packed."""
    types = jax.tree.unflatten(layout.treedef, layout.dtypes)
    return jax.tree.map(lambda x, dtype: x.astype(dtype), layout.unpack(rows[:, 0]), types)


@jit
def packed_row(seen: Observed) -> Any:
    """The inverse of `unpacked_row`: (members, 1, width)."""
    leaves = jax.tree.leaves(seen)
    return jnp.concatenate([x.reshape(len(x), 1, -1).astype(float) for x in leaves], axis=-1)


class Place(NamedTuple):
    """Where a quantity is in a row."""

    begin: int
    end: int
    shape: tuple[int, ...]


class DeviceColumns:
    """The columns of a run, by name, of rows on a device. `read` copies one of them."""

    def __init__(self, layout: Layout, pieces: list[DeviceRows], count: int):
        """count: the number of rows that are valid, of all pieces together."""
        ends = np.cumsum([math.prod(s) for s in layout.shapes]).tolist()
        each = [Place(e - math.prod(s), e, s) for e, s in zip(ends, layout.shapes, strict=True)]
        self.places: dict[str, Any] = jax.tree.unflatten(layout.treedef, each)
        self.pieces, self.count, self.members = pieces, count, pieces[0].shape[0]
        self.copied: dict[str, Any] = {}
        hold(self)

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def __iter__(self) -> Any:
        return iter(self.places)

    def read(self, name: str) -> Any:
        """A column (members, saves, …) on the host, or a group of them."""
        if name not in self.copied:
            is_place = lambda x: isinstance(x, Place)
            self.copied[name] = jax.tree.map(self._copied, self.places[name], is_leaf=is_place)
        return self.copied[name]

    def _copied(self, place: Place) -> np.ndarray:
        left, parts = self.count, []
        for piece in self.pieces:
            here = min(piece.count, left)
            parts.append(piece.array[:, :here, place.begin : place.end])
            left -= here
        whole = np.asarray(parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1))
        return whole.reshape(*whole.shape[:2], *place.shape)

    def to_host(self) -> dict[str, Any]:
        """All columns; their rows on the device are released."""
        columns = {name: self.read(name) for name in self.places}
        self.pieces = self.pieces[:0]
        return columns

    @property
    def device_bytes(self) -> int:
        return sum(piece.array.nbytes for piece in self.pieces)


# --- what waits on the device ---
class Holder(Protocol):
    """What keeps arrays on a device."""

    @property
    def device_bytes(self) -> int:
        """That it keeps there now."""
        ...

    def to_host(self) -> Any:
        """Copy them to the host, and release them on the device."""


_holders: list[weakref.ref[Any]] = []


def hold(holder: Holder) -> None:
    """Count the arrays of a holder, and move those of the oldest ones to the host where there are too many."""
    _holders[:] = [x for x in _holders if x() is not None and x() is not holder]
    _holders.append(weakref.ref(holder))
    total = sum(x.device_bytes for each in _holders if (x := each()) is not None)
    for each in _holders[:-1]:
        if total <= HELD_BYTES:
            break
        if (x := each()) is not None:
            total -= x.device_bytes
            x.to_host()


def bytes_on_device(tree: Any) -> int:
    """Of arrays on another device than the CPU's."""
    arrays = [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array) and not isinstance(x, Tracer)]
    return sum(x.nbytes for x in arrays if next(iter(x.devices())).platform != "cpu")
