"""The primitives that indices are usually computed with, in numpy: JAX would compile each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _broadcast_in_dim(params: Any, x: np.ndarray) -> np.ndarray:
    shape = [1] * len(params["shape"])
    for d, size in zip(params["broadcast_dimensions"], x.shape, strict=True):
        shape[d] = size
    return np.broadcast_to(x.reshape(shape), params["shape"])


def _iota(params: Any) -> np.ndarray:
    shape, d = params["shape"], params["dimension"]
    along = np.arange(shape[d], dtype=params["dtype"]).reshape([-1 if k == d else 1 for k in range(len(shape))])
    return np.broadcast_to(along, shape)


def _slice(params: Any, x: np.ndarray) -> np.ndarray:
    strides = params["strides"] or (1,) * x.ndim
    return x[tuple(slice(*s) for s in zip(params["start_indices"], params["limit_indices"], strides, strict=True))]


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: (lambda params, *x, f=f: f(*x)) for name, f in {
        "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
        "eq": np.equal, "ne": np.not_equal,
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs, "sign": np.sign,
        "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert,
        "floor": np.floor, "ceil": np.ceil, "rem": np.fmod,
    }.items()},
    "select_n": lambda params, which, *x: np.where(which, x[1], x[0]) if len(x) == 2 else np.choose(which, x),
    "convert_element_type": lambda params, x: x.astype(params["new_dtype"]),
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": lambda params, x: x.reshape(params["new_sizes"]),
    "squeeze": lambda params, x: np.squeeze(x, params["dimensions"]),
    "concatenate": lambda params, *x: np.concatenate(x, params["dimension"]),
    "transpose": lambda params, x: np.transpose(x, params["permutation"]),
    "slice": _slice,
    "iota": _iota,
    "clamp": lambda params, low, x, high: np.minimum(np.maximum(x, low), high),
    "copy": lambda params, x: x,
}  # fmt: skip
