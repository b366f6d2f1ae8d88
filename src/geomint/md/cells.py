"""The neighbours of every particle: all others within a distance, from a division of the box into cells.

A particle's neighbours are in its own cell and in the cells around it, if cells are not smaller than the distance. The
order of the neighbours in a row depends on the positions alone, so that a list can be made again from them.
"""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.linalg import cpu_kernels
from . import neighbours_gpu
from .box import Box

LEAST_CELLS = 3  # along an edge; with fewer, a cell would be a neighbour of another one twice


def divisions(box: Box | None, distance: float) -> tuple[int, ...] | None:
    """The numbers of cells along the edges; None where there are too few, and all pairs are compared."""
    if box is None:
        return None
    cells = tuple(int(length // distance) for length in box.lengths)
    return cells if min(cells) >= LEAST_CELLS else None


def by_loops(q: Array) -> bool:
    """Whether the compiled loops of the CPU are used: double precision, in space."""
    return q.ndim == 2 and q.shape[1] == 3 and q.dtype == jnp.float64 and cpu_kernels.available()


def by_kernel(q: Array) -> bool:
    """Whether the kernel of a GPU is used where the box has cells."""
    return q.ndim == 2 and neighbours_gpu.available()


def settings(box: Box | None, distance: float) -> np.ndarray:
    """The edges (0 without a box), the distance and the numbers of cells (1 for all pairs), for the compiled loops."""
    edges = (0.0,) * 3 if box is None else box.lengths
    return np.array([*edges, distance, *(divisions(box, distance) or (1, 1, 1))], float)


def find(q: Array, box: Box | None, distance: float, room: int, cell_room: int) -> tuple[Array, Array, Array]:
    """Index (n, room) and count (n,) of the neighbours, and the number of particles in the fullest cell. A row holds
    the first `room` neighbours. With more particles than cell_room in a cell the result is incomplete."""
    if by_loops(q):
        return _by_loops(q, box, distance, room)
    cells = divisions(box, distance)
    if box is None or cells is None:
        return _all_pairs(q, box, distance, room)
    if not by_kernel(q):
        return _by_cells(q, box, distance, room, cells, cell_room)
    around = neighbours_gpu.Cells(box.lengths, distance, cells)
    index, count = neighbours_gpu.by_kernel(q, cell_of(q, box, cells), cells=around, room=room)
    return index, count, jnp.zeros((), jnp.int32)


def _by_loops(q: Array, box: Box | None, distance: float, room: int) -> tuple[Array, Array, Array]:
    from . import loops

    loops.register()
    n, cells = len(q), math.prod(divisions(box, distance) or (1,))
    whole = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int32)
    scratch = whole(n), whole(n), whole(cells + 1), jax.ShapeDtypeStruct(q.shape, q.dtype)
    out = whole(n, room), whole(n), *scratch
    found = jax.ffi.ffi_call("geomint_neighbours", out)(q, jnp.asarray(settings(box, distance)))
    return found[0], found[1], jnp.zeros((), jnp.int32)


def _nearest(differences: Array, box: Box | None) -> Array:
    return differences if box is None else box.nearest(differences)


def _packed(candidates: Array, near: Array, room: int, n: int) -> tuple[Array, Array]:
    """Rows of the candidates that are near, in their order."""
    count = jnp.sum(near, axis=1, dtype=jnp.int32)
    place = jnp.where(near, jnp.cumsum(near, axis=1) - 1, room)
    rows = jnp.broadcast_to(jnp.arange(len(near))[:, None], near.shape)
    index = jnp.zeros((len(near), room), jnp.int32).at[rows, place].set(candidates.astype(jnp.int32), mode="drop")
    return index, count


def _all_pairs(q: Array, box: Box | None, distance: float, room: int) -> tuple[Array, Array, Array]:
    n = len(q)
    size = max(1, min(n, 2**22 // n))
    others = jnp.arange(n)

    def rows(i: Array) -> tuple[Array, Array]:
        s = jnp.sum(_nearest(q[jnp.minimum(i, n - 1), None] - q[None], box) ** 2, axis=-1)
        near = (s < distance**2) & (others[None] != i[:, None])
        return _packed(jnp.broadcast_to(others[None], near.shape), near, room, n)

    index, count = jax.lax.map(rows, jnp.arange(-(-n // size) * size).reshape(-1, size))
    return index.reshape(-1, room)[:n], count.reshape(-1)[:n], jnp.zeros((), jnp.int32)


def cell_of(q: Array, box: Box, cells: tuple[int, ...]) -> Array:
    """The cell (…, d) of each particle."""
    edges = jnp.asarray(box.lengths, q.dtype)
    return jnp.clip((box.wrapped(q) / edges * jnp.asarray(cells)).astype(jnp.int32), 0, jnp.asarray(cells) - 1)


def _by_cells(
    q: Array, box: Box, distance: float, room: int, cells: tuple[int, ...], cell_room: int
) -> tuple[Array, Array, Array]:
    n, shape = len(q), jnp.asarray(cells)
    strides = jnp.asarray([math.prod(cells[k + 1 :]) for k in range(len(cells))])
    at = cell_of(q, box, cells)
    number = jnp.sum(at * strides, axis=1)
    order = jnp.argsort(number, stable=True)
    starts = jnp.searchsorted(number[order], jnp.arange(math.prod(cells) + 1))
    fullest = jnp.max(jnp.diff(starts)).astype(jnp.int32)
    around = jnp.asarray(list(itertools.product((-1, 0, 1), repeat=len(cells))))
    size = max(1, min(n, 2**22 // (len(around) * cell_room)))

    def rows(i: Array) -> tuple[Array, Array]:
        i = jnp.minimum(i, n - 1)
        near_cells = jnp.sum((at[i][:, None] + around[None]) % shape * strides, axis=-1)
        slot = starts[near_cells][..., None] + jnp.arange(cell_room)
        full = slot < starts[near_cells + 1][..., None]
        candidates = order[jnp.minimum(slot, n - 1)].reshape(len(i), -1)
        s = jnp.sum(box.nearest(q[i][:, None] - q[candidates]) ** 2, axis=-1)
        near = full.reshape(len(i), -1) & (s < distance**2) & (candidates != i[:, None])
        return _packed(candidates, near, room, n)

    index, count = jax.lax.map(rows, jnp.arange(-(-n // size) * size).reshape(-1, size))
    return index.reshape(-1, room)[:n], count.reshape(-1)[:n], fullest
