"""The compiled program that reduces the rows of one tile of members, and the joining of all tiles on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engines import Layout, is_good
from ..engines.xla import Spread
from ..numerics.compilation import jit
from ..system.system import Stated
from .reductions import Reductions, TileResult


def _reduce_row(
    spread: Spread, layout: Layout, reductions: Reductions, system: Stated, row: Array, valid: Array
) -> dict[str, TileResult]:
    """One row of a tile, reduced: the parts of every reduction, and how many members counted."""
    seen, out = layout.unpack(row), {}
    for name, reduction in reductions.items():
        x = reduction.values(spread, system, seen)
        counted = valid & jnp.all(jnp.isfinite(x).reshape(len(x), -1), axis=1)
        out[name] = {**reduction.of_tile(x, counted), "members": jnp.sum(counted)}
    return out


@functools.lru_cache(64)
def program_of_tile(spread: Spread, layout: Layout, structure: Any) -> Callable[..., tuple[dict[str, Any], Array]]:
    """The program that reduces the rows of a tile, compiled once for each structure of (reductions, system).

    It is called with the leaves of that tree: flattening the tree in every call takes longer than reducing a tile of
    small members. `numbers` are count, blocks and save of `_reduce_tile`.
    """

    def program(leaves: list[Any], rows: Array, failed: Array, numbers: Array) -> tuple[dict[str, Any], Array]:
        reductions, system = jax.tree.unflatten(structure, leaves)
        count, blocks, save = numbers
        return _reduce_tile(spread, layout, reductions, system, rows, failed, count, blocks, save)

    return jit(program)


def _reduce_tile(
    spread: Spread,
    layout: Layout,
    reductions: Reductions,
    system: Stated,
    rows: Array,
    failed: Array,
    count: Any,
    blocks: Any,
    save: Any,
) -> tuple[dict[str, Any], Array]:
    """Reduce the first `blocks` of rows (tile, room, width); also for each member the save at which it failed, or −1.

    count:  members of the tile; the rest of it is padding.
    save:   number of the first row among all saves, or −1 where the row is not a save but between two.
    A member has failed from the first save on at which `is_good` is false.
    """
    no_padding = jnp.arange(rows.shape[0]) < count

    def at(i: Any, failed: Array) -> tuple[dict[str, Any], Array]:
        row = jax.lax.dynamic_index_in_dim(rows, i, axis=1, keepdims=False)
        good = is_good(layout.unpack(row), 1)
        valid = good & (failed < 0) & no_padding
        failed = jnp.where((failed < 0) & ~good & (save >= 0), save + i, failed).astype(failed.dtype)
        return {
            "reduced": _reduce_row(spread, layout, reductions, system, row, valid),
            "members_left": jnp.sum(valid),
        }, failed

    def block(i: Any, moving: tuple[Any, Array]) -> tuple[Any, Array]:
        results, failed = moving
        result, failed = at(i, failed)
        return jax.tree.map(lambda k, x: jax.lax.dynamic_update_index_in_dim(k, x, i, 0), results, result), failed

    shapes = jax.eval_shape(at, 0, failed)[0]
    results = jax.tree.map(lambda x: jnp.zeros((rows.shape[1], *x.shape), x.dtype), shapes)
    return jax.lax.fori_loop(0, blocks, block, (results, failed))


def numbers_of_tile(spread: Spread, layout: Layout, reductions: Reductions, system: Stated, tile: int) -> int:
    """How many numbers one reduced row of a tile has."""
    row = jax.ShapeDtypeStruct((tile, layout.width), jnp.result_type(float))
    result = jax.eval_shape(
        lambda s, row, valid: _reduce_row(spread, layout, reductions, s, row, valid),
        system,
        row,
        jax.ShapeDtypeStruct((tile,), bool),
    )
    return sum(int(np.prod(x.shape)) for x in jax.tree.leaves(result))


def join_tiles(reductions: Reductions, tiles: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The results of all reductions, from all reduced tiles in their order; the leading axis is that of rows."""
    reduced: dict[str, Any] = {}
    for name, reduction in reductions.items():
        parts = [t["reduced"][name] for t in tiles]
        members = np.asarray(sum(p["members"] for p in parts))
        with np.errstate(over="ignore", invalid="ignore"):  # values about to overflow, and means of no member
            reduced[name] = {**reduction.joined(parts, members), "members": members}
    return {"reduced": reduced, "members_left": np.asarray(sum(t["members_left"] for t in tiles))}
