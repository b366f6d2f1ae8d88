"""Tridiagonal systems on the CPU by machine code that XLA calls: elimination from both ends at once.

XLA has no sequential loop worth the name: its own tridiagonal solver (LAPACK's, with pivoting) takes 18 µs for 1000 unknowns,
cyclic reduction in array operations 12; two interleaved sweeps take 4 to factor and 2 to solve. The code is compiled by
numba and called through XLA's foreign function interface (xla/ffi/api/c_api.h in jaxlib, whose layout is written out below).
`available()` tries it once against numpy; where it does not work, callers do without.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


@functools.cache
def available() -> bool:
    """Whether the machine code is there and right."""
    if jax.default_backend() != "cpu" or jnp.result_type(float) != jnp.float64:
        return False
    try:
        _register()
        with jax.ensure_compile_time_eval():
            return all(_right(n) for n in (1, 2, 3, 8, 17))
    except Exception:  # no numba, another interface: whatever it is, there are other ways to solve
        return False


def _right(n: int) -> bool:
    random = np.random.default_rng(n)
    lower, upper, right = (random.uniform(-1, 1, (2, n)) for _ in range(3))
    through = random.uniform(3, 4, (2, n))
    x = jax.jit(lambda *a: substitute(eliminate(*a[:3]), a[3]))(lower, through, upper, right)
    dense = [np.diag(d) + np.diag(a[1:], -1) + np.diag(b[:-1], 1) for a, d, b in zip(lower, through, upper, strict=True)]
    return bool(np.allclose(x, np.linalg.solve(np.array(dense), right[..., None])[..., 0], rtol=1e-12, atol=1e-14))


def eliminate(lower: Array, through: Array, upper: Array) -> Array:
    """The factors (…, 3, n) of matrices with rows (lower_i, through_i, upper_i); lower_0 and upper_{n−1} are not read."""
    out = jax.ShapeDtypeStruct((*through.shape[:-1], 3, through.shape[-1]), through.dtype)
    return jax.ffi.ffi_call("geomint_eliminate", out, vmap_method="broadcast_all")(lower, through, upper)


def substitute(factors: Array, right: Array) -> Array:
    """x from the factors."""
    return jax.ffi.ffi_call("geomint_substitute", jax.ShapeDtypeStruct(right.shape, right.dtype), vmap_method="broadcast_all")(factors, right)


@functools.cache
def _register() -> None:
    eliminate, substitute = _compiled()
    for name, code in (("geomint_eliminate", eliminate), ("geomint_substitute", substitute)):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(code.ctypes), platform="cpu")


def _interface_version() -> int:
    """Minor version of the interface, from jaxlib's header; the major one must be 0, the layout used here."""
    header = (Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text()
    major, minor = (int(re.findall(rf"#define XLA_FFI_API_{part} (\d+)", header)[0]) for part in ("MAJOR", "MINOR"))
    if major != 0:
        raise NotImplementedError(f"XLA's foreign function interface has version {major}.{minor}")
    return minor


def _compiled() -> tuple[Any, Any]:
    """The two handlers: functions of the address of an XLA_FFI_CallFrame that return 0 for no error."""
    import numba
    from numba import types
    from numba.extending import intrinsic

    version = _interface_version() << 32  # minor in the upper half of the word, major 0 in the lower

    def pointer_to(kind: Any) -> Any:
        @intrinsic
        def cast(typing: Any, address: Any) -> Any:
            make = lambda context, builder, signature, arguments: builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))
            return types.CPointer(kind)(types.int64), make

        return cast

    words, doubles = pointer_to(types.int64), pointer_to(types.float64)

    # An XLA_FFI_CallFrame as words of 8 bytes: [1] extension, [9] pointers to arguments, [14] pointers to results.
    # An XLA_FFI_Buffer: [3] data, [4] rank, [5] dimensions. A metadata extension: [3] metadata, whose [3] is the version.
    @numba.njit(inline="always")
    def asked_for_metadata(frame):
        if frame[1] == 0:
            return False
        metadata = words(words(frame[1])[3])
        metadata[3] = version
        return True

    @numba.njit(inline="always")
    def data(frame, group, i):
        return doubles(words(words(frame[group])[i])[3])

    @numba.njit(inline="always")
    def sizes(frame, i):
        """How many systems, and of how many unknowns."""
        buffer = words(words(frame[9])[i])
        rank, dimensions = buffer[4], words(buffer[5])
        many = 1
        for k in range(rank - 1):
            many *= dimensions[k]
        return many, dimensions[rank - 1]

    arguments, results = 9, 14
    handler = types.int64(types.CPointer(types.int64))

    @numba.cfunc(handler, error_model="numpy", fastmath={"contract"})
    def eliminate(frame):
        if asked_for_metadata(frame):
            return 0
        many, n = sizes(frame, 1)
        lower, through, upper, out = data(frame, arguments, 0), data(frame, arguments, 1), data(frame, arguments, 2), data(frame, results, 0)
        middle = n // 2
        for k in range(many):
            a, w, c, m = k * n, 3 * k * n, (3 * k + 1) * n, (3 * k + 2) * n
            # Rows 0, 1, … downwards and n − 1, n − 2, … upwards in one loop: two independent chains of divisions.
            top, bottom = 0.0, 0.0  # coupling to the row before, times its factor
            for s in range(middle):
                i, j = s, n - 1 - s
                first = 1.0 / (through[a + i] - (lower[a + i] * top if s else 0.0))
                top = upper[a + i] * first
                out[w + i], out[c + i], out[m + i] = first, top, (lower[a + i] * first if s else 0.0)
                if j > middle:
                    second = 1.0 / (through[a + j] - (upper[a + j] * bottom if s else 0.0))
                    bottom = lower[a + j] * second
                    out[w + j], out[c + j], out[m + j] = second, bottom, (upper[a + j] * second if s else 0.0)
            left = lower[a + middle] * top if middle > 0 else 0.0
            right = upper[a + middle] * bottom if middle < n - 1 else 0.0
            out[w + middle] = 1.0 / (through[a + middle] - left - right)
            out[c + middle] = lower[a + middle] if middle > 0 else 0.0
            out[m + middle] = upper[a + middle] if middle < n - 1 else 0.0
        return 0

    @numba.cfunc(handler, error_model="numpy", fastmath={"contract"})
    def substitute(frame):
        if asked_for_metadata(frame):
            return 0
        many, n = sizes(frame, 1)
        factors, right, x = data(frame, arguments, 0), data(frame, arguments, 1), data(frame, results, 0)
        middle = n // 2
        for k in range(many):
            a, w, c, m = k * n, 3 * k * n, (3 * k + 1) * n, (3 * k + 2) * n
            top, bottom = 0.0, 0.0
            for s in range(middle):
                i, j = s, n - 1 - s
                top = right[a + i] * factors[w + i] - factors[m + i] * top
                x[a + i] = top
                if j > middle:
                    bottom = right[a + j] * factors[w + j] - factors[m + j] * bottom
                    x[a + j] = bottom
            top = (right[a + middle] - factors[c + middle] * top - factors[m + middle] * bottom) * factors[w + middle]
            x[a + middle] = top
            bottom = top
            for s in range(middle):
                i, j = middle - 1 - s, middle + 1 + s
                top = x[a + i] - factors[c + i] * top
                x[a + i] = top
                if j < n:
                    bottom = x[a + j] - factors[c + j] * bottom
                    x[a + j] = bottom
        return 0

    return eliminate, substitute
