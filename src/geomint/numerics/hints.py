"""What a formula says to engines that write single operations. To the reference it says nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jaxtyping import Array

_rough = Primitive("rough_reciprocal")


def often(x: Array) -> Array:
    """x, which is used often: factors such as the 2 in a derivative of squares are better in it than in all that is made of it."""
    return checkpoint_name(x, "often")


def rough_reciprocal(x: Array) -> Array:
    """1/x to ten digits at least: for matrices of iterations that correct what they do themselves. The reference is exact."""
    return _rough.bind(jnp.asarray(x))


@_rough.def_impl
def _exact(x: Any) -> Array:
    return jax.lax.integer_pow(x, -1)


_rough.def_abstract_eval(lambda x: x)
mlir.register_lowering(_rough, mlir.lower_fun(_exact, multiple_results=False))
batching.defvectorized(_rough)
