"""Operations that only move entries, in numpy. XLA would compile a program for each of them and each shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def _broadcast(p: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    shape = [1] * len(p["shape"])
    for axis, size in zip(p["broadcast_dimensions"], x.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), p["shape"])


def _slice(p: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    strides = p["strides"] or (1,) * x.ndim
    return x[tuple(slice(*ends) for ends in zip(p["start_indices"], p["limit_indices"], strides, strict=True))]


def _pad(p: Mapping[str, Any], x: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Before, after and between the entries of an axis; a negative number before or after cuts entries off."""
    sizes, places = [], []
    for size, (low, high, interior) in zip(x.shape, p["padding_config"], strict=True):
        sizes.append(max(0, low + high + size + max(0, size - 1) * interior))
        places.append(low + (1 + interior) * np.arange(size))
    kept = [np.flatnonzero((at >= 0) & (at < size)) for at, size in zip(places, sizes, strict=True)]
    out = np.full(sizes, value)
    out[np.ix_(*(at[k] for at, k in zip(places, kept, strict=True)))] = x[np.ix_(*kept)]
    return out


# By the name of the primitive: a function of its parameters and the arrays.
MOVED: dict[str, Callable[..., np.ndarray]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda p, x: x.reshape(p["new_sizes"]),
    "squeeze": lambda p, x: np.squeeze(x, axis=tuple(p["dimensions"])),
    "transpose": lambda p, x: x.transpose(p["permutation"]),
    "slice": _slice,
    "rev": lambda p, x: np.flip(x, axis=tuple(p["dimensions"])),
    "concatenate": lambda p, *parts: np.concatenate(parts, axis=p["dimension"]),
    "pad": _pad,
}
