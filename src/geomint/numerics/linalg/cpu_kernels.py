"""Tridiagonal and banded systems and inner products on the CPU, by compiled loops that XLA calls.

XLA is slow at sequential loops. Its own tridiagonal solver (LAPACK's, with pivoting) takes 18 µs for 1000 unknowns, and
cyclic reduction in array operations 12 µs; two interleaved sweeps from both ends take 4 µs to factor and 2 µs to solve.
Its inner product of 2000 numbers takes 1.7 µs, a simple loop 0.3 µs. The loops (`numba_loops`) are compiled by numba
and called through XLA's foreign function interface (`xla_ffi`). `available()` compares them with numpy once; where it
returns False, callers use array operations instead.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..compilation import jit

LONG = 256  # entries from which the compiled inner product is used


@functools.cache
def available() -> bool:
    """Whether the compiled loops can be called, and return the results of numpy."""
    if jax.default_backend() != "cpu" or jnp.result_type(float) != jnp.float64:
        return False
    try:
        _register()
        with jax.ensure_compile_time_eval():
            return all(_agrees_with_numpy(n) for n in (1, 2, 3, 8, 17))
    except (
        Exception
    ):  # numba is missing, or the interface has another version: whatever it is, callers have an alternative
        return False


def _agrees_with_numpy(n: int) -> bool:
    random = np.random.default_rng(n)
    lower, upper, right = (random.uniform(-1, 1, (2, n)) for _ in range(3))
    through = random.uniform(3, 4, (2, n))
    x = jit(lambda *a: substitute(eliminate(*a[:3]), a[3]))(lower, through, upper, right)
    if not np.allclose(
        _inner(jnp.asarray(right), jnp.asarray(upper)), np.sum(right * upper, axis=-1), rtol=1e-14, atol=1e-14
    ):
        return False
    if not _band_agrees_with_numpy(n, random):
        return False
    dense = [
        np.diag(d) + np.diag(a[1:], -1) + np.diag(b[:-1], 1) for a, d, b in zip(lower, through, upper, strict=True)
    ]
    return bool(np.allclose(x, np.linalg.solve(np.array(dense), right[..., None])[..., 0], rtol=1e-12, atol=1e-14))


def _band_agrees_with_numpy(n: int, random: np.random.Generator) -> bool:
    w, right = 3, random.uniform(-1, 1, (2, n))
    dense = np.where(np.abs(np.subtract.outer(range(n), range(n))) <= w, random.uniform(-1, 1, (2, n, n)), 0.0)
    dense += 8 * np.eye(n)
    place = np.arange(n)[:, None] + np.arange(-w, w + 1)
    band = np.where((place >= 0) & (place < n), dense[:, np.arange(n)[:, None], np.clip(place, 0, n - 1)], 0.0)
    x = jit(lambda *a: solve_band(factor_band(a[0]), a[1]))(band, right)
    return bool(np.allclose(x, np.linalg.solve(dense, right[..., None])[..., 0], rtol=1e-12, atol=1e-14))


def eliminate(lower: Array, through: Array, upper: Array) -> Array:
    """The factors (…, 3, n) of tridiagonal matrices with rows (lower_i, through_i, upper_i).

    lower_0 and upper_{n−1} are not read.
    """
    out = jax.ShapeDtypeStruct((*through.shape[:-1], 3, through.shape[-1]), through.dtype)
    return jax.ffi.ffi_call("geomint_eliminate", out, vmap_method="broadcast_all")(lower, through, upper)


def substitute(factors: Array, right: Array) -> Array:
    """The solution x from the factors and the right side."""
    return jax.ffi.ffi_call(
        "geomint_substitute", jax.ShapeDtypeStruct(right.shape, right.dtype), vmap_method="broadcast_all"
    )(factors, right)


def factor_band(band: Array) -> Array:
    """The factors (…, n, 2w + 1) of matrices K_ij = band[i, w + j − i], eliminated without pivoting."""
    out = jax.ShapeDtypeStruct(band.shape, band.dtype)
    return jax.ffi.ffi_call("geomint_factor_band", out, vmap_method="broadcast_all")(band)


def solve_band(factors: Array, right: Array) -> Array:
    """The solution x from the factors and the right side."""
    out = jax.ShapeDtypeStruct(right.shape, right.dtype)
    return jax.ffi.ffi_call("geomint_solve_band", out, vmap_method="broadcast_all")(factors, right)


def inner(x: Array, y: Array) -> Array:
    """x·y over all entries, without derivatives: it only measures corrections."""
    x, y = jax.lax.stop_gradient(x).ravel(), jax.lax.stop_gradient(y).ravel()
    return jnp.sum(x * y) if x.size < LONG or not available() else _inner(x, y)


def _inner(x: Array, y: Array) -> Array:
    out = jax.ShapeDtypeStruct(x.shape[:-1], x.dtype)
    return jax.ffi.ffi_call("geomint_inner", out, vmap_method="broadcast_all")(x, y)


@functools.cache
def _register() -> None:
    from . import numba_loops, xla_ffi  # deferred: importing numba is slow

    xla_ffi.register("geomint_eliminate", numba_loops.eliminate)
    xla_ffi.register("geomint_substitute", numba_loops.substitute)
    xla_ffi.register("geomint_inner", numba_loops.inner)
    xla_ffi.register("geomint_factor_band", numba_loops.factor_band)
    xla_ffi.register("geomint_solve_band", numba_loops.solve_band)
