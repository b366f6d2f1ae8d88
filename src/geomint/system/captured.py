"""What the user's functions take from outside: numbers in globals, closures, defaults and objects.

A compiled program belongs to a function, which Python compares by identity. But in a notebook

    k = 1.0
    system = gm.System(lambda q: 0.5 * k * (q @ q))

is a new system once k is set to 4, with the same function. `digest` covers the values of such numbers, so that what was
compiled for others is not used. Values that change during a run still count as they were at its start. Lists of whole
numbers and texts do not count: they are often records that the function itself writes.
"""

from __future__ import annotations

import functools
import types
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

PLAIN = (bool, int, float, complex, str, bytes, type(None))
DEEP = 6  # objects within objects


def digest(function: Any) -> int:
    """A checksum of all numbers and texts that a function uses from outside, also by the functions that it calls."""
    found, seen = 0, set()
    for x in _reached(function, seen, 0):
        found = zlib.crc32(x, found)
    return found


def _reached(x: Any, seen: set[int], depth: int) -> Iterator[Any]:
    """The bytes of everything within x. Objects are followed once, and up to some depth."""
    if isinstance(x, PLAIN):
        yield repr(x).encode()
    elif isinstance(x, np.generic | np.ndarray | jax.Array) and not isinstance(x, Tracer):
        array = np.asarray(x)
        yield f"{array.dtype}{array.shape}".encode()
        if not array.dtype.hasobject:
            yield np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    elif id(x) not in seen and depth < DEEP:
        seen.add(id(x))
        for part in _parts(x):
            yield from _reached(part, seen, depth + 1)


def _parts(x: Any) -> Iterator[Any]:
    if isinstance(x, tuple):
        yield from x
    elif isinstance(x, list):
        yield from (part for part in x if not isinstance(part, int | str))
    elif isinstance(x, dict):
        for key, part in x.items():
            yield from (key, part)
    elif isinstance(x, types.MethodType):
        yield from (x.__self__, x.__func__)
    elif isinstance(x, functools.partial):
        yield from (x.func, x.args, x.keywords)
    elif isinstance(x, types.FunctionType):
        yield from _of_function(x)
    elif not isinstance(x, type | types.ModuleType) and type(x).__module__.partition(".")[0] not in LIBRARIES:
        yield from vars(x).values() if hasattr(x, "__dict__") else ()


LIBRARIES = {
    "builtins",
    "collections",
    "equinox",
    "functools",
    "geomint",
    "itertools",
    "jax",
    "jaxlib",
    "numpy",
    "scipy",
}


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    """What a function refers to. Of global names those of functions in other modules are left out, since they belong to
    libraries."""
    yield from (function.__defaults__, function.__kwdefaults__)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
    for name in _names(function.__code__):
        found = function.__globals__.get(name)
        if not isinstance(found, Callable) or getattr(found, "__module__", None) == function.__module__:
            yield found


@functools.lru_cache(1024)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """The global names (and attributes) in a function and those inside it."""
    inner = (name for x in code.co_consts if isinstance(x, types.CodeType) for name in _names(x))
    return tuple(dict.fromkeys((*code.co_names, *inner)))
