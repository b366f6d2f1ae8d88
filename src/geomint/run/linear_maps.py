"""A JAX primitive for a linear map whose transpose is written by hand.

JAX differentiates a function by its linearisation, t ↦ J t, and gets the gradient by transposing that: c ↦ Jᵀc. With
`custom_vjp` Jᵀ is written by hand, and there is no J; with `custom_jvp` J is written by hand, and JAX derives Jᵀ from
it. A custom_jvp whose tangent is a `LinearMap` has both written by hand. It can be batched, and differentiated any
number of times: derivatives of the map itself are those of its two functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

Arrays = Sequence[Array]


class LinearMap(NamedTuple):
    """push(at, t) = J(at) t and pull(at, c) = J(at)ᵀ c, on lists of arrays."""

    push: Callable[[Arrays, Arrays], Arrays]
    pull: Callable[[Arrays, Arrays], Arrays]

    def __call__(self, at: Arrays, tangents: Arrays) -> list[Array]:
        return _linear.bind(*at, *tangents, map=self, where=len(at))


_linear = Primitive("linear_map")
_linear.multiple_results = True


def _pushed(*arrays: Array, map: LinearMap, where: int) -> Arrays:
    return map.push(arrays[:where], arrays[where:])


def _shapes(*arrays: Any, map: LinearMap, where: int) -> list[Any]:
    like = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
    return [ShapedArray(x.shape, x.dtype) for x in jax.eval_shape(map.push, like[:where], like[where:])]


def _derivative(primals: Any, tangents: Any, *, map: LinearMap, where: int) -> tuple[Any, Any]:
    """The derivative of J(at) t by `at` and t; where `at` has no tangent it is the map again."""
    at, out = primals[:where], _linear.bind(*primals, map=map, where=where)
    if all(type(x) is ad.Zero for x in tangents[:where]):
        return out, map(at, [ad.instantiate_zeros(x) for x in tangents[where:]])
    # An integer has no tangent.
    moving = [i for i, x in enumerate(primals) if jnp.issubdtype(x.dtype, jnp.inexact)]

    def push(*moved: Array) -> Arrays:
        arrays = list(primals)
        for i, x in zip(moving, moved, strict=True):
            arrays[i] = x
        return map.push(arrays[:where], arrays[where:])

    return jax.jvp(push, [primals[i] for i in moving], [ad.instantiate_zeros(tangents[i]) for i in moving])


def _transpose(cotangents: Any, *arrays: Any, map: LinearMap, where: int) -> list[Any]:
    unknown = [ad.is_undefined_primal(x) for x in arrays]
    back = map.pull(list(arrays[:where]), [ad.instantiate_zeros(x) for x in cotangents])
    # Arguments that are not undefined primals are zeros that JAX instantiated for arguments without a tangent.
    return [None] * where + [x if asked else None for x, asked in zip(back, unknown[where:], strict=True)]


def _batch(arrays: Any, axes: Any, *, map: LinearMap, where: int) -> tuple[Any, list[int]]:
    size = next(x.shape[a] for x, a in zip(arrays, axes, strict=True) if a is not None)
    at, spread = list(arrays[:where]), list(axes[:where])
    first = lambda x, a: jnp.broadcast_to(x, (size, *x.shape)) if a is None else jnp.moveaxis(x, a, 0)
    tangents = [first(x, a) for x, a in zip(arrays[where:], axes[where:], strict=True)]
    over = lambda function: lambda at, x: jax.vmap(function, (spread, 0))(list(at), list(x))
    out = LinearMap(over(map.push), over(map.pull))(at, tangents)
    return out, [0] * len(out)


_linear.def_impl(_pushed)
_linear.def_abstract_eval(_shapes)
ad.primitive_jvps[_linear] = _derivative
ad.primitive_transposes[_linear] = _transpose
batching.primitive_batchers[_linear] = _batch
mlir.register_lowering(_linear, mlir.lower_fun(_pushed, multiple_results=True))
