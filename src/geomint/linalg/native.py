"""What XLA does slowly on the CPU, by machine code that it calls: tridiagonal systems and the largest entry of an array.

XLA has no sequential loop worth the name: its own tridiagonal solver (LAPACK's, with pivoting) takes 18 µs for 1000 unknowns,
cyclic reduction in array operations 12; two interleaved sweeps from both ends take 4 to factor and 2 to solve. Its maximum of
2000 numbers takes 3 µs, a plain loop .3. The loops are compiled by numba and called through XLA's foreign function interface.
`available()` tries them once against numpy; where that does not work, callers do without.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

LONG = 256  # entries from which the largest one is looked for by machine code


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
    if not np.array_equal(_largest_difference(jnp.asarray(right), jnp.asarray(upper)), np.max(np.abs(right - upper), axis=-1)):
        return False
    dense = [np.diag(d) + np.diag(a[1:], -1) + np.diag(b[:-1], 1) for a, d, b in zip(lower, through, upper, strict=True)]
    return bool(np.allclose(x, np.linalg.solve(np.array(dense), right[..., None])[..., 0], rtol=1e-12, atol=1e-14))


def eliminate(lower: Array, through: Array, upper: Array) -> Array:
    """The factors (…, 3, n) of matrices with rows (lower_i, through_i, upper_i); lower_0 and upper_{n−1} are not read."""
    out = jax.ShapeDtypeStruct((*through.shape[:-1], 3, through.shape[-1]), through.dtype)
    return jax.ffi.ffi_call("geomint_eliminate", out, vmap_method="broadcast_all")(lower, through, upper)


def substitute(factors: Array, right: Array) -> Array:
    """x from the factors."""
    return jax.ffi.ffi_call("geomint_substitute", jax.ShapeDtypeStruct(right.shape, right.dtype), vmap_method="broadcast_all")(factors, right)


def largest_difference(x: Array, y: Array) -> Array:
    """max |x − y|, NaN if there is one."""
    if x.size < LONG or not available():
        return jnp.max(jnp.abs(x - y))
    return _largest_difference(jax.lax.stop_gradient(x).ravel(), jax.lax.stop_gradient(y).ravel())


def _largest_difference(x: Array, y: Array) -> Array:
    out = jax.ShapeDtypeStruct(x.shape[:-1], x.dtype)
    return jax.ffi.ffi_call("geomint_largest_difference", out, vmap_method="broadcast_all")(x, y)


@functools.cache
def _register() -> None:
    from . import foreign, loops  # imports numba, which takes a while

    for kernel in (loops.eliminate, loops.substitute, loops.largest_difference):
        foreign.register(f"geomint_{kernel.__name__}", kernel)
