"""A reciprocal that need not be exact: for matrices of iterations that correct what they do themselves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jaxtyping import Array

_rough = Primitive("rough_reciprocal")


def rough_reciprocal(x: Array) -> Array:
    """1/x to ten digits at least. Engines that can be quicker with no more than that are; the reference is exact."""
    return _rough.bind(jnp.asarray(x))


@_rough.def_impl
def _exact(x: Any) -> Array:
    return jax.lax.integer_pow(x, -1)


_rough.def_abstract_eval(lambda x: x)
mlir.register_lowering(_rough, mlir.lower_fun(_exact, multiple_results=False))
batching.defvectorized(_rough)
