"""The bounded cache: the oldest entry goes, nothing is stored after an error, threads agree on one value."""

import threading

import pytest

from geomint.numerics.cache import BoundedCache


def test_the_oldest_entry_is_dropped():
    cache = BoundedCache(2)
    for key in "abc":
        cache.get_or_make(key, lambda key=key: key.upper())
    assert (len(cache), cache.get("a"), cache.get("b"), cache.get("c")) == (2, None, "B", "C")
    cache.set("b", "new")  # replaces, and drops nothing
    assert (cache.get("b"), cache.get("c")) == ("new", "C")


def test_a_value_is_made_once():
    made = []
    cache = BoundedCache(4)
    for _ in range(3):
        assert cache.get_or_make("key", lambda: made.append(1)) is None  # a value that is None counts as present
    assert made == [1]


def test_nothing_is_stored_after_an_error():
    cache = BoundedCache(1)
    cache.set("old", 1)
    with pytest.raises(ZeroDivisionError):
        cache.get_or_make("new", lambda: 1 / 0)
    assert (cache.get("old"), cache.get("new")) == (1, None)


def test_making_a_value_may_use_the_cache():
    cache = BoundedCache(4)
    assert cache.get_or_make("outer", lambda: cache.get_or_make("inner", lambda: 1) + 1) == 2


def test_threads_get_the_same_value():
    cache, barrier, found = BoundedCache(4), threading.Barrier(4), []

    def make():
        barrier.wait()  # all threads make the value at once
        return object()

    threads = [threading.Thread(target=lambda: found.append(cache.get_or_make("key", make))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
