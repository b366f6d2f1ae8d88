"""A cache of bounded size."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class BoundedCache(Generic[V]):
    """Values by key, at most `size` of them: adding one more removes the oldest. May be used by several threads.

    A value is made outside the lock, because making it may take seconds or use the same cache. Two threads that ask for
    a missing key at once may therefore both make it; both get the value that was stored first.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: dict[Hashable, V] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        """The value of a key, or None."""
        with self._lock:
            return self._values.get(key)

    def set(self, key: Hashable, value: V) -> None:
        """Store a value, in place of an earlier one with this key."""
        with self._lock:
            self._store(key, value)

    def get_or_make(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key, made and stored if it is missing. Nothing is stored where `make` raises."""
        with self._lock:
            if key in self._values:
                return self._values[key]
        value = make()
        with self._lock:
            if key not in self._values:
                self._store(key, value)
            return self._values[key]

    def __len__(self) -> int:
        return len(self._values)

    def _store(self, key: Hashable, value: V) -> None:
        while key not in self._values and len(self._values) >= self.size:
            self._values.pop(next(iter(self._values)))
        self._values[key] = value
