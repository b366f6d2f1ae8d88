"""Number types: single values are float64, int64 or bool, and stand for other types only where that is exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .values import NotCovered, Values, constant

MOVES = (
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "expand_dims",
    "transpose",
    "slice",
    "rev",
    "concatenate",
    "gather",
    "pad",
    "stack",
    "tile",
    "copy_p",
)
# Operations whose 32-bit results may overflow; computed in 64 bits, they are wrapped around afterwards.
WRAPPING = {
    "add",
    "sub",
    "mul",
    "neg",
    "abs",
    "not",
    "shift_left",
    "integer_pow",
    "square",
    "reduce_sum",
    "reduce_prod",
    "cumsum",
    "dot_general",
    "scatter-add",
    "scatter-mul",
    "sign",
}
BITS = {
    "shift_right_logical",
    "shift_left",
    "and",
    "or",
    "xor",
    "bitcast_convert_type",
    "convert_element_type",
    "random_bits",
}
SHIFTS = {"shift_left", "shift_right_logical", "shift_right_arithmetic"}


def check_types(equation: Any, operands: Sequence[Values]) -> None:
    """Raise NotCovered for an equation with types that float64, int64 and bool do not represent exactly."""
    name = equation.primitive.name
    real, whole = jax.dtypes.canonicalize_dtype(float), jax.dtypes.canonicalize_dtype(int)
    for v in (*equation.invars, *equation.outvars):
        dtype = v.aval.dtype
        if dtype in (real, whole, bool, np.int32, np.uint32) or jnp.issubdtype(dtype, jax.dtypes.prng_key):
            continue
        if not (
            name in MOVES
            or (dtype == np.uint64 and name in BITS)
            or (dtype == np.float32 and name in ("select_n", "convert_element_type") and v in equation.invars)
        ):
            raise NotCovered(f"numbers of type {dtype}")
    if name in SHIFTS and any(not constant(x) or not 0 <= x < 64 for x in operands[1].ravel()):
        raise NotCovered("shifts by amounts that are known only at run time")
    if name == "shift_right_logical" and equation.invars[0].aval.dtype == np.int32:
        raise NotCovered("logical shifts of signed numbers")
    if equation.outvars[0].aval.dtype == bool and name in (
        "dot_general",
        "mul",
        "add",
        "reduce_sum",
        "reduce_prod",
        "cumsum",
    ):
        raise NotCovered(f"{name} of truth values")
