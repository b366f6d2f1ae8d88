"""XLA's foreign function interface (FFI) for functions that numba compiles.

XLA calls a handler with the address of an XLA_FFI_CallFrame; the handler returns 0 for no error. The layout of the
frame is that of xla/ffi/api/c_api.h in jaxlib; the constants below are offsets in words of 8 bytes. A call costs
0.1 µs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numba
from numba import types
from numba.extending import intrinsic

from .numba_cache import cached_on_disk

ARGUMENTS, RESULTS = 9, 14  # words of the frame that hold the address of an array of pointers to buffers


def _interface_version() -> int:
    """The minor version of the interface, from jaxlib's header. The layout used here is that of major version 0."""
    header = (Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text()
    major, minor = (int(re.findall(rf"#define XLA_FFI_API_{part} (\d+)", header)[0]) for part in ("MAJOR", "MINOR"))
    if major != 0:
        raise NotImplementedError(f"XLA's foreign function interface has version {major}.{minor}")
    return minor


def _pointer_to(kind: Any) -> Any:
    @intrinsic
    def cast(typing: Any, address: Any) -> Any:
        make = lambda context, builder, signature, arguments: builder.inttoptr(
            arguments[0], context.get_value_type(signature.return_type)
        )
        return types.CPointer(kind)(types.int64), make

    return cast


words, doubles, halves = _pointer_to(types.int64), _pointer_to(types.float64), _pointer_to(types.int32)


@numba.njit(inline="always")
def data(frame, group, i):
    """The entries of the i-th of the ARGUMENTS or RESULTS. Words of a buffer: [3] data, [4] rank, [5] dimensions."""
    return doubles(words(words(frame[group])[i])[3])


@numba.njit(inline="always")
def integers(frame, group, i):
    """As `data`, of an array of int32."""
    return halves(words(words(frame[group])[i])[3])


@numba.njit(inline="always")
def sizes(frame, group, i):
    """The number of rows of an array (all axes but the last taken together), and their length."""
    buffer = words(words(frame[group])[i])
    rank, dimensions = buffer[4], words(buffer[5])
    many = 1
    for k in range(rank - 1):
        many *= dimensions[k]
    return many, dimensions[rank - 1] if rank else 1


VERSION = _interface_version() << 32  # a word with the minor version in its upper half, the major version 0 below


@numba.njit(inline="always")
def asks_for_version(frame):
    """Whether XLA asks a handler for its version, as it does before the first call; the answer is then given."""
    if frame[1] == 0:  # no extension
        return False
    words(words(frame[1])[3])[3] = VERSION
    return True


def register(name: str, handler: Callable[[Any], int]) -> None:
    """Register a handler, a function of a call frame at the top level of a module, as an FFI target of this name."""
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(_compiled(handler).ctypes), platform="cpu")


def _compiled(handler: Callable[[Any], int]) -> Any:
    """The handler as a C function, from numba's cache on disk where it is there: compiling takes half a second."""
    compile_with = functools.partial(
        numba.cfunc, types.int64(types.CPointer(types.int64)), error_model="numpy", fastmath={"contract"}
    )
    return cached_on_disk(lambda cache: compile_with(cache=cache)(handler), str(VERSION))
