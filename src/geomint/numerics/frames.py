"""`in_one_chunk`, which makes tracing faster: see there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

SLOTS = 140_000  # of 8 bytes: a little over 1 MB, so that CPython takes 2 MB

F = TypeVar("F", bound=Callable)


def in_one_chunk(function: F) -> F:
    """Decorator: all Python calls below this function find their frames in one chunk of memory.

    CPython (3.11 and later) keeps the frames of Python functions in chunks of 16 KB. Where the end of a chunk lies
    inside a loop, each call there maps a new chunk and unmaps it on return. Tracing by JAX is deep and full of calls,
    and spent a tenth of its time on that. A function with a large frame is given a chunk of twice its size, and what
    it calls uses the rest. Memory that no frame touches is not taken.
    """
    plain: Any = function
    plain.__code__ = plain.__code__.replace(co_stacksize=SLOTS)
    return function
