"""The Trajectory of a sharded run: its columns are arrays that open a shard when its members are read."""

# ShardedRun makes some attributes of Trajectory when they are first used.
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ..engines import is_good
from ..engines.grid import Grid
from ..errors import ArchiveError
from ..io import archive
from ..io.index import Index
from ..io.layout import nested
from ..io.sharded_arrays import OpenShards, ShardedArray
from ..methods import Method
from ..system.system import Stated
from .prepare import prepared
from .reductions import Column, Reductions
from .restore import method_of, system_of
from .shards import Job, begin_shard, shard_engine
from .summary import KINDS, Summary, extract_summary, settings_of
from .tile_reduction import join_tiles
from .trajectory import Checkpoint, Trajectory

BLOCK_BYTES = 2**26  # of results of tiles that are joined at a time
OF_TILES = ("members_left", "tiles/")


class ShardedRun(Trajectory):
    """A run in shards, complete or not. Its system (of gm.models), its checkpoint and its reductions are made when they
    are first used."""

    def __init__(self, index: Index, system: Stated | None = None, method: Method | None = None):
        meta, shards = index.meta, OpenShards(index)
        rows = _rows(index, shards)
        begun = next((k for k, place in enumerate(shards.places) if place.path.exists()), None)
        if begun is None:
            raise ArchiveError(f"{index.path}: no shard has begun; gm.resume({str(index.path)!r}) starts them.")
        grid = Grid(*meta["grid"])
        columns = _kept_columns(index, shards, rows) if "reduce" in meta else _columns(index, shards, begun, rows)
        super().__init__(
            system,
            method or method_of(index),
            grid,
            grid.times(0, rows),
            nested(columns),
            members=True,
            spread=meta["spread"],
            seed=index.seed(),
            compensated=meta["compensated"],
            engine=shards[begun].meta["engine"],
            path=index.path,
        )
        self.index, self.shards, self.tile = index, shards, meta["tile"]
        self.method_is_complete = method is not None or meta.get("complete_name", True)
        for name in ("checkpoint", "summary", *(("system",) if system is None else ())):
            del self.__dict__[name]  # so that the properties below are used

    @functools.cached_property
    def system(self) -> Stated | None:
        return system_of(self.index)

    @property
    def solver(self) -> str | None:
        return self.index.meta.get("solver")

    @functools.cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The carries of all members, where all shards have reached the same step."""
        held = [self.shards[k] for k, place in enumerate(self.shards.places) if place.path.exists()]
        steps = {contents.step for contents in held}
        if self.system is None or len(held) < len(self.shards.places) or len(steps) > 1 or not held[0].leaves:
            return None
        if not self.method_is_complete:
            return None
        treedef = self._structure_of_carry(held[0])
        leaves = [contents.leaves[: treedef.num_leaves] for contents in held]  # without failed_at of reduced runs
        carry = jax.tree.unflatten(treedef, [np.concatenate(xs) for xs in zip(*leaves, strict=True)])
        return Checkpoint(carry, steps.pop())

    def _structure_of_carry(self, first: archive.Contents) -> Any:
        """That of the carry of the first shard, begun again."""
        index, system, place = self.index, self.system, self.shards.places[0]
        assert system is not None
        ready = prepared(self.method, system, index.start("q"), self.spread)
        params = None
        if self.spread == "states and params":
            params = jax.tree.map(lambda x: np.asarray(x)[: place.stop], system.params)
        job = Job(index.path, system, ready, self.grid, first.meta["engine"], None, index.meta["fingerprint"])
        engine = shard_engine(job, index, place, params, first.meta["engine"])
        return jax.tree.structure(engine.archived_carry(begin_shard(engine, job, index, place)[0]))

    @functools.cached_property
    def summary(self) -> Summary | None:
        index = self.index
        if "reduce" not in index.meta:
            return None
        joined = join_shards(index, self.shards, len(self.t))
        failed = [self.shards[k].leaves[-1:] for k in range(len(self.shards.places))]
        failed_at = np.concatenate([x for held in failed for x in held] or [np.zeros(0, np.int32)])
        failed_at = np.where(failed_at < len(self.t), failed_at, -1)
        start = {f"start/{name}": index.start(name) for name in ("q", "p")}
        return extract_summary(joined, failed_at, index.meta["reduce"], {**index.small, **start})

    @property
    def failed_at(self) -> np.ndarray:
        if "reduce" in self.index.meta:
            return super().failed_at
        found = []
        for k in range(len(self.shards.places)):
            bad = bad_rows(self.shards[k], len(self.t)).T
            found.append(np.where(bad.any(axis=1), bad.argmax(axis=1), -1) if bad.size else np.full(len(bad), -1))
        return np.concatenate(found)


def _rows(index: Index, shards: OpenShards) -> int:
    """The saved points that all members have."""
    if index.rows is not None:
        missing = [place for place in shards.places if not place.path.exists()]
        if missing:
            what = f"shard {missing[0].number} (members {missing[0].start} … {missing[0].stop - 1})"
            raise ArchiveError(f"{index.path}: {what} is missing: there is no file {missing[0].path}.", index.path)
        return index.rows
    least = Grid(*index.meta["grid"]).saves
    for place in shards.places:
        if not place.path.exists():
            return 0
        least = min(least, shards[place.number].rows)
    return least


def _columns(index: Index, shards: OpenShards, begun: int, rows: int) -> dict[str, ShardedArray]:
    ends = [place.stop for place in shards.places]
    made = {}
    for name, column in shards[begun].columns.items():
        if name == "t":
            continue

        def piece(k: int, name: str = name, empty: Any = (column.shape[1:], column.dtype)) -> np.ndarray:
            if rows == 0:
                place = shards.places[k]
                return np.zeros((place.stop - place.start, 0, *empty[0]), empty[1])
            return np.moveaxis(shards[k].array(name)[:rows], 0, 1)

        made[name] = ShardedArray(piece, ends, (rows, *column.shape[1:]), column.dtype)
    return made


def _kept_columns(index: Index, shards: OpenShards, rows: int) -> dict[str, ShardedArray]:
    """The rows of the members that a reduced run keeps, in the order that the user gave."""
    kept = np.zeros(0, int) if index.kept is None else index.kept
    size = index.meta["index"]["shard"]
    whose = np.unique(kept // size).tolist()
    if not len(kept) or not all(shards.places[k].path.exists() for k in whose):
        return {}
    made = {}
    for name, column in shards[whose[0]].columns.items():
        if name == "t" or name.startswith(OF_TILES):
            continue

        def gathered(_: int, name: str = name, column: Any = column) -> np.ndarray:
            out = np.empty((len(kept), rows, *column.shape[1:]), column.dtype)
            for k in whose:
                out[kept // size == k] = np.moveaxis(shards[k].array(name)[:rows], 0, 1)
            return out

        made[name] = ShardedArray(gathered, [len(kept)], (rows, *column.shape[1:]), column.dtype)
    return made


def bad_rows(held: archive.Contents, rows: int) -> np.ndarray:
    """(rows, members): which saved states of a shard are not good."""
    names = ("q", "p", "energy", *(("status",) if "status" in held.columns else ()))
    arrays = {name: held.array(name) for name in names}
    step = max(1, BLOCK_BYTES // max(1, sum(held.columns[name].row_bytes for name in names)))
    blocks = [
        ~is_good({name: np.asarray(x[a : min(a + step, rows)]) for name, x in arrays.items()}, 2)
        for a in range(0, rows, step)
    ]
    return np.concatenate([np.zeros((0, arrays["energy"].shape[1]), bool), *blocks])


def join_shards(index: Index, shards: OpenShards, rows: int) -> dict[str, Any]:
    """The results of all reductions, joined from the tiles of all shards in their order, a few rows at a time."""
    reductions = _reductions(index)
    names = [name for name in shards[0].columns if name.startswith(OF_TILES)]
    per_row = sum(shards[0].columns[name].row_bytes for name in names) * len(shards.places)
    step = max(1, BLOCK_BYTES // max(1, per_row))
    blocks = [join_tiles(reductions, list(_tiles(shards, names, a, min(a + step, rows)))) for a in range(0, rows, step)]
    if not blocks:
        raise ArchiveError(f"{index.path}: not all shards have begun; gm.resume({str(index.path)!r}) continues them.")
    return jax.tree.map(lambda *xs: np.concatenate(xs), *blocks)


def _reductions(index: Index) -> Reductions:
    """The reductions, for joining only: what they are of does not matter here."""
    return {
        name: KINDS[about["kind"]].restored(Column(about["of"] or "a function"), settings_of(name, index.small))
        for name, about in index.meta["reduce"].items()
    }


def _tiles(shards: OpenShards, names: list[str], begin: int, end: int) -> Iterator[dict[str, Any]]:
    """The results of each tile in rows begin … end − 1."""
    for k in range(len(shards.places)):
        held = nested({name: np.asarray(shards[k].array(name)[begin:end]) for name in names})
        for tile in range(held["members_left"].shape[1]):
            yield {
                "reduced": jax.tree.map(lambda x, tile=tile: x[:, tile], held.get("tiles", {})),
                "members_left": held["members_left"][:, tile],
            }
