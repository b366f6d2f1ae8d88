"""Hints in formulas for engines that emit single operations. In the reference engine they have no effect."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jaxtyping import Array

_rough = Primitive("rough_reciprocal")


def materialize(x: Array) -> Array:
    """Materialise x here; several later operations reuse it. Otherwise a factor that fma_fusion has factored out, such
    as the 2 in the derivative of a square, would be multiplied in each of them."""
    return checkpoint_name(x, "materialize")


def rough_reciprocal(x: Array) -> Array:
    """1/x to at least ten digits, for matrices of iterations that correct their own errors. Exact in the reference
    engine."""
    return _rough.bind(jnp.asarray(x))


@_rough.def_impl
def _exact(x: Any) -> Array:
    return jax.lax.integer_pow(x, -1)


_rough.def_abstract_eval(lambda x: x)
mlir.register_lowering(_rough, mlir.lower_fun(_exact, multiple_results=False))
batching.defvectorized(_rough)
