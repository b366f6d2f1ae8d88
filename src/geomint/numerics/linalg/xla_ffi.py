"""XLA's foreign function interface (FFI) for functions that numba compiles.

XLA calls a handler with the address of an XLA_FFI_CallFrame; the handler returns 0 for no error. The layout of the
frame is that of xla/ffi/api/c_api.h in jaxlib; the constants below are offsets in words of 8 bytes. A call costs
0.1 µs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numba
from numba import types
from numba.extending import intrinsic

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


words, doubles = _pointer_to(types.int64), _pointer_to(types.float64)


@numba.njit(inline="always")
def data(frame, group, i):
    """The entries of the i-th of the ARGUMENTS or RESULTS. Words of a buffer: [3] data, [4] rank, [5] dimensions."""
    return doubles(words(words(frame[group])[i])[3])


@numba.njit(inline="always")
def sizes(frame, group, i):
    """The number of rows of an array (all axes but the last taken together), and their length."""
    buffer = words(words(frame[group])[i])
    rank, dimensions = buffer[4], words(buffer[5])
    many = 1
    for k in range(rank - 1):
        many *= dimensions[k]
    return many, dimensions[rank - 1] if rank else 1


def register(name: str, kernel: Callable[[Any], None]) -> None:
    """Register a kernel, a numba function of a call frame, as an FFI target of this name on the CPU."""
    version = (
        _interface_version() << 32
    )  # the word has the minor version in its upper half, the major version 0 in its lower half

    @numba.cfunc(types.int64(types.CPointer(types.int64)), error_model="numpy", fastmath={"contract"})
    def handler(frame):
        if frame[1] != 0:  # an extension: before the first call XLA asks for the version
            words(words(frame[1])[3])[3] = version
        else:
            kernel(frame)
        return 0

    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler.ctypes), platform="cpu")
