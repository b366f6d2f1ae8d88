"""Columns of a sharded run: arrays over all members that open a shard only when its members are read."""

from __future__ import annotations

import bisect
import collections
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .index import Index, open_shard
from .reader import Contents

OPEN_SHARDS = 16  # archives whose tables are kept in memory


class OpenShards:
    """The archives of the shards of an index, opened when they are needed; a few of them are kept open."""

    def __init__(self, index: Index):
        self.index, self.places = index, index.shards
        self.held: collections.OrderedDict[int, Contents] = collections.OrderedDict()
        self.lock = threading.Lock()

    def __getitem__(self, number: int) -> Contents:
        with self.lock:
            if number not in self.held:
                self.held[number] = open_shard(self.index, self.places[number])
                if len(self.held) > OPEN_SHARDS:
                    self.held.popitem(last=False)
            self.held.move_to_end(number)
            return self.held[number]


class ShardedArray(NDArrayOperatorsMixin):
    """An array (members, saved, …) in pieces. It has shape, dtype, indexing and arithmetic of a numpy array; all else
    (`.mean()`, `.tobytes()`, …) is that of the whole array, which is then read into memory.

    piece(k): the array of piece k, (its members, saved, …); ends: one past the last member of each piece.
    """

    def __init__(self, piece: Callable[[int], np.ndarray], ends: Sequence[int], rest: tuple[int, ...], dtype: Any):
        self.piece, self.ends = piece, list(ends)
        self.shape, self.dtype = (self.ends[-1] if self.ends else 0, *rest), np.dtype(dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<array {self.shape} of {self.dtype} in {len(self.ends)} shards; numpy.asarray reads all of it>"

    def _begin(self, k: int) -> int:
        return self.ends[k - 1] if k else 0

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if any(x is Ellipsis for x in keys):
            at = next(i for i, x in enumerate(keys) if x is Ellipsis)
            fill = (slice(None),) * (self.ndim - len(keys) + 1)
            keys = (*keys[:at], *fill, *keys[at + 1 :])
        plain = all(isinstance(x, (slice, int, np.integer)) for x in keys[1:])
        first = keys[0] if keys else slice(None)
        if first is None or isinstance(first, tuple) or not plain:
            return np.asarray(self)[key]
        if isinstance(first, (int, np.integer)):
            return self._member(operator.index(first), keys[1:])
        members = np.arange(len(self))[first]
        if members.ndim != 1:
            return np.asarray(self)[key]
        return self._members(members, keys[1:])

    def _member(self, member: int, rest: tuple[Any, ...]) -> Any:
        if not -len(self) <= member < len(self):
            raise IndexError(f"index {member} is out of bounds for axis 0 with size {len(self)}")
        k = bisect.bisect_right(self.ends, member % len(self))
        return self.piece(k)[(member % len(self) - self._begin(k), *rest)]

    def _members(self, members: np.ndarray, rest: tuple[Any, ...]) -> np.ndarray:
        """Some members in any order; each shard is opened once."""
        whose = np.searchsorted(self.ends, members, side="right")
        shape = np.empty((0, *self.shape[1:]), np.int8)[(slice(None), *rest)].shape[1:]
        out = np.empty((len(members), *shape), self.dtype)
        for k in np.unique(whose):
            here = whose == k
            out[here] = self.piece(int(k))[(members[here] - self._begin(int(k)), *rest)]
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array in shards can't be read without a copy")
        return self._members(np.arange(len(self)), ()).astype(dtype or self.dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        whole = [np.asarray(x) if isinstance(x, ShardedArray) else x for x in inputs]
        return getattr(ufunc, method)(*whole, **keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)
