"""What the user's functions read from outside themselves: globals, closures, defaults, and attributes of objects.

A compiled program belongs to a function, which Python compares by identity. But after

    k = 1.0
    system = gm.System(lambda q: 0.5 * k * (q @ q))

in a notebook, `k = 4.0` changes the energy of the same system, and what was compiled before is wrong. So programs
belong to a `digest` of what the function reads as well, which is taken when a run starts.

What a function appends to is a record that it writes, and lists do not count there. Not seen are: functions that
jax.jit has wrapped (JAX itself keeps their numbers), attributes of classes and modules, and functions of libraries.
"""

from __future__ import annotations

import functools
import sysconfig
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

PLAIN = (bool, int, float, complex, str, bytes, type(None))
DEEPEST = 12  # objects within objects
OF_LIBRARIES = ("site-packages", "dist-packages", sysconfig.get_paths()["stdlib"])
OF_GEOMINT = str(Path(__file__).parents[1])
APPENDING = {"append", "extend", "insert"}


def digest(function: Any) -> int:
    """A checksum of all that a function reads from outside, also by the functions of the user that it calls."""
    found = 0
    for part in _Reader().read(function, 0):
        found = zlib.crc32(part, zlib.crc32(b"%d:" % len(part), found))
    return found


class _Reader:
    """Bytes of everything within an object; each object is followed once."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.records = False  # whether the function appends to lists

    def read(self, x: Any, depth: int) -> Iterator[Any]:
        if isinstance(x, PLAIN):
            yield repr(x).encode()
        elif isinstance(x, np.generic | np.ndarray | jax.Array):
            yield from _of_array(x)
        elif id(x) not in self.seen and depth < DEEPEST:
            self.seen.add(id(x))
            for part in self.parts(x):
                yield from self.read(part, depth + 1)

    def parts(self, x: Any) -> Iterator[Any]:
        """What an object consists of, as far as a function may read it."""
        if isinstance(x, list) and self.records:
            return
        if isinstance(x, tuple | list | set | frozenset):
            yield len(x)
            yield from x
        elif isinstance(x, dict):
            yield len(x)
            for key, part in x.items():
                yield from (key, part)
        elif isinstance(x, types.MethodType):
            yield from (x.__self__, x.__func__)
        elif isinstance(x, functools.partial):
            yield from (x.func, x.args, x.keywords)
        elif isinstance(x, types.FunctionType):
            if not any(folder in x.__code__.co_filename for folder in OF_LIBRARIES):
                yield from self.of_function(x)
        elif isinstance(x, eqx.Module):
            yield from jax.tree.leaves(x)
        elif not isinstance(x, type | types.ModuleType | types.BuiltinFunctionType):
            yield from vars(x).values() if hasattr(x, "__dict__") and not _is_fixed(x) else ()

    def of_function(self, function: types.FunctionType) -> Iterator[Any]:
        # A function of geomint has in its closure what the user gave; what else it reads is fixed.
        fixed = function.__code__.co_filename.startswith(OF_GEOMINT)
        names = () if fixed else _names(function.__code__)
        self.records = self.records or not APPENDING.isdisjoint(names)
        yield from () if fixed else _texts(function.__code__)
        yield from (function.__defaults__, function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not filled yet
                continue
        for name in names:
            if name in function.__globals__:
                yield function.__globals__[name]


def _of_array(x: Any) -> Iterator[Any]:
    if isinstance(x, Tracer):
        return
    try:
        array = np.asarray(x)
    except Exception:  # keys of random numbers, deleted arrays, and those of other hosts
        return
    yield f"{array.dtype}{array.shape}".encode()
    if not array.dtype.hasobject:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _is_fixed(x: Any) -> bool:
    """An object of a library whose numbers do not change, though it may hold a cache."""
    return type(x).__module__.partition(".")[0] in ("geomint", "jax", "jaxlib")


@functools.lru_cache(1024)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """The names of globals and attributes that a function and the functions inside it use."""
    inner = (name for x in code.co_consts if isinstance(x, types.CodeType) for name in _names(x))
    return tuple(dict.fromkeys((*code.co_names, *inner)))


@functools.lru_cache(1024)
def _texts(code: types.CodeType) -> tuple[Any, ...]:
    """What is written in a function and in those inside it: a helper may be defined anew under its name."""
    inner = (x for part in code.co_consts if isinstance(part, types.CodeType) for x in _texts(part))
    return code.co_code, *(x for x in code.co_consts if isinstance(x, PLAIN)), *inner
