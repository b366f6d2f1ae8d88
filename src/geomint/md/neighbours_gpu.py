"""Neighbours by cells as a kernel for GPUs.

Particles are sorted by their cells. A lane is a particle and goes through its own cell and those around it; it writes
each particle that is near to the next place of its row. The lanes of a program are particles of the same or of
neighbouring cells, which read the same memory. Array operations (cells.py) would form all pairs of candidates instead,
fourteen times as many as there are neighbours, and sum and scatter them.

The order of the neighbours is that of the array operations.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

LANES, WARPS = 32, 1  # particles of one program of the grid, and its warps
UNROLLED = 4  # candidates of an iteration
INTERPRET = False  # run the kernel without a GPU, for tests


def available() -> bool:
    """Whether the kernel can be used, and finds the neighbours of a lattice; array operations are used otherwise."""
    return not reason_against()


@functools.cache
def reason_against() -> str:
    """Why the kernel is not used; "" where it is."""
    if jax.default_backend() != "gpu":
        return "there is no GPU"
    try:
        return "" if _finds_a_lattice() else "it does not find the neighbours of a lattice"
    except Exception as error:  # Triton is missing or refuses the kernel: callers have an alternative
        return f"{type(error).__name__}: {error}"


def _finds_a_lattice() -> bool:
    """Each of the 6³ points of a periodic cubic lattice has the 6 nearest and the 12 next ones as its neighbours.

    The kernel is compiled ahead of time, so that this works while another function is traced. Under
    jax.ensure_compile_time_eval the operations inside the kernel would be evaluated one by one, which Pallas refuses.
    """
    cells = Cells((6.0, 6.0, 6.0), 1.5, (4, 4, 4))
    points = np.stack(np.meshgrid(*[np.arange(6.0)] * 3), axis=-1).reshape(-1, 3)
    of = np.floor(points * 4 / 6).astype(np.int32)
    compiled = jax.jit(functools.partial(by_kernel, cells=cells, room=20)).lower(points, of).compile()
    index, count = compiled(points, of)
    apart = np.abs(points[:, None] - points[np.asarray(index)[:, :18]])
    squares = np.sum(np.minimum(apart, 6 - apart) ** 2, axis=-1)
    return bool(np.all(np.asarray(count) == 18)) and np.array_equal(
        np.sort(squares, axis=1), np.tile([1.0] * 6 + [2.0] * 12, (216, 1))
    )


class Cells(NamedTuple):
    """What is fixed when the kernel is compiled."""

    edges: tuple[float, ...]
    distance: float  # of neighbours
    numbers: tuple[int, ...]  # of cells along the edges

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(math.prod(self.numbers[k + 1 :]) for k in range(len(self.numbers)))


def by_kernel(q: Array, at: Array, *, cells: Cells, room: int) -> tuple[Array, Array]:
    """The neighbours (n, room) and their numbers (n,), which may exceed the room, of particles q in the cells `at` (n,
    d). Entries of a row without a neighbour are 0."""
    from jax.experimental import pallas as pl  # .4 s to import, and needed on a GPU alone

    n = len(q)
    padded = -(-n // LANES) * LANES
    number = jnp.sum(at.astype(jnp.int32) * jnp.asarray(cells.strides, jnp.int32), axis=1, dtype=jnp.int32)
    order = jnp.argsort(number, stable=True).astype(jnp.int32)
    held = jnp.zeros(math.prod(cells.numbers) + 1, jnp.int32).at[number + 1].add(1)
    starts = jnp.cumsum(held, dtype=jnp.int32)
    to_lanes = lambda x: jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, padded - n)], mode="edge")
    rows = jnp.concatenate([order, jnp.arange(n, padded, dtype=jnp.int32)])  # lanes without a particle have rows too
    inputs = to_lanes(q[order].T).reshape(-1), to_lanes(number[order]), rows, starts
    more: dict[str, Any] = {"interpret": True} if INTERPRET else {"compiler_params": _settings()}
    index, count = pl.pallas_call(
        functools.partial(_kernel, cells, n, room),
        out_shape=(jax.ShapeDtypeStruct((padded * room,), jnp.int32), jax.ShapeDtypeStruct((padded,), jnp.int32)),
        grid=(padded // LANES,),
        input_output_aliases={len(inputs): 0},
        name="geomint_neighbours",
        **more,
    )(*inputs, jnp.zeros(padded * room, jnp.int32))
    return index.reshape(padded, room)[:n], count[:n]


def _settings() -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=WARPS, num_stages=1)


def _kernel(
    cells: Cells, n: int, room: int, q: Any, number: Any, order: Any, starts: Any, _: Any, index: Any, count: Any
) -> None:
    """One program: the rows of `LANES` particles, in the order of the cells."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    whole, d, padded = np.int32, len(cells.edges), number.shape[0]
    slots = pl.program_id(0).astype(jnp.int32) * whole(LANES) + jnp.arange(LANES, dtype=jnp.int32)
    real, of, i = slots < n, number[slots], order[slots]
    here = [q[slots + whole(k * padded)] for k in range(d)]
    own = [jax.lax.rem(jax.lax.div(of, whole(s)), whole(c)) for s, c in zip(cells.strides, cells.numbers, strict=True)]

    def around(which: Any, found: Any) -> Any:
        """The cell number `which` of the 3^d around this one."""
        which = which.astype(jnp.int32)
        other = jnp.zeros((LANES,), jnp.int32)
        for k, (c, many, stride) in enumerate(zip(own, cells.numbers, cells.strides, strict=True)):
            offset = jax.lax.rem(jax.lax.div(which, whole(3 ** (d - 1 - k))), whole(3)) - whole(1)
            other += jax.lax.rem(c + offset + whole(many), whole(many)) * whole(stride)
        first, last = starts[other], starts[other + 1]

        def candidates(k: Any, found: Any) -> Any:
            """Some particles of the cell. They are all read before any is written: their loads overlap, where a store
            between them would make each wait for the one before."""
            read = [candidate(first + k.astype(jnp.int32) * whole(UNROLLED) + whole(t)) for t in range(UNROLLED)]
            for other, near in read:
                place = i * whole(room) + jnp.minimum(found, whole(room - 1))
                triton.store(index.at[place], other, mask=near & (found < room))
                found += near.astype(jnp.int32)
            return found

        def candidate(slot: Any) -> tuple[Any, Any]:
            """The particle of each lane's slot, and whether it is a neighbour."""
            inside = (slot < last) & real
            slot = jnp.minimum(slot, whole(n - 1))
            square = jnp.zeros((LANES,), here[0].dtype)
            for c, x in enumerate(here):
                apart = x - q[slot + whole(c * padded)]
                apart = apart - cells.edges[c] * jnp.floor(apart * (1.0 / cells.edges[c]) + 0.5)
                square += apart * apart
            return order[slot], inside & (square < cells.distance**2) & (slot != slots)

        longest = jnp.max(jnp.where(real, last - first, whole(0)))
        turns = jax.lax.div(longest + whole(UNROLLED - 1), whole(UNROLLED))
        return jax.lax.fori_loop(jnp.zeros_like(turns), turns, candidates, found)

    found = jax.lax.fori_loop(0, 3**d, around, jnp.zeros((LANES,), jnp.int32))
    triton.store(count.at[i], found)
