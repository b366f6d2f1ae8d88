"""Primitives of JAX on known arrays. JAX compiles a program for each primitive and each shape, which takes hundreds of
times as long as numpy; where numpy gives the same bits, it is used."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .interpreter import RuleTable

RULES = RuleTable()  # functions of (parameters of the equation, *arrays); None where only JAX knows the result


def on_known(equation: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of an equation, which may be traced, on arrays that are not."""
    rule = RULES.get(equation.primitive.name)
    with np.errstate(all="ignore"):
        result = None if rule is None else rule(equation.params, *arrays)
    if result is not None:
        return [np.asarray(result)]
    with jax.ensure_compile_time_eval():
        results = equation.primitive.bind(*arrays, **equation.params)
    return [np.asarray(x) for x in (results if equation.primitive.multiple_results else [results])]


# --- entries are moved ------------------------------------------------------------------------------------------------
@RULES.enter("broadcast_in_dim")
def _broadcast(parameters: Any, x: np.ndarray) -> np.ndarray:
    shape = np.ones(len(parameters["shape"]), int)
    shape[list(parameters["broadcast_dimensions"])] = x.shape
    return np.broadcast_to(x.reshape(shape), parameters["shape"])


@RULES.enter("reshape")
def _reshape(parameters: Any, x: np.ndarray) -> np.ndarray | None:
    return x.reshape(parameters["new_sizes"]) if parameters["dimensions"] is None else None


@RULES.enter("slice")
def _slice(parameters: Any, x: np.ndarray) -> np.ndarray:
    strides = parameters["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, parameters["start_indices"], parameters["limit_indices"], strides))]


@RULES.enter("dynamic_slice")
def _dynamic_slice(parameters: Any, x: np.ndarray, *start: np.ndarray) -> np.ndarray | None:
    sizes = parameters["slice_sizes"]
    if len(start) != x.ndim:
        return None
    first = [min(max(int(i), 0), n - size) for i, n, size in zip(start, x.shape, sizes, strict=True)]
    return x[tuple(slice(i, i + size) for i, size in zip(first, sizes, strict=True))]


@RULES.enter("pad")
def _pad(parameters: Any, x: np.ndarray, filler: np.ndarray) -> np.ndarray:
    """Entries of x are `inside` + 1 places apart, after `low` places; negative numbers of places cut entries off."""
    places, kept, shape = [], [], []
    for n, (low, high, inside) in zip(x.shape, parameters["padding_config"], strict=True):
        at = low + (inside + 1) * np.arange(n)
        shape.append(low + n + max(n - 1, 0) * inside + high)
        kept.append(np.flatnonzero((at >= 0) & (at < shape[-1])))
        places.append(at[kept[-1]])
    out = np.full(shape, filler)
    out[np.ix_(*places)] = x[np.ix_(*kept)]
    return out


@RULES.enter("iota")
def _iota(parameters: Any, *sizes: np.ndarray) -> np.ndarray | None:
    shape, axis = parameters["shape"], parameters["dimension"]
    if sizes or parameters["dtype"].kind not in "iuf":
        return None
    along = [n if k == axis else 1 for k, n in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[axis], dtype=parameters["dtype"]).reshape(along), shape)


RULES.update(
    squeeze=lambda parameters, x: np.squeeze(x, tuple(parameters["dimensions"])),
    transpose=lambda parameters, x: np.transpose(x, parameters["permutation"]),
    rev=lambda parameters, x: np.flip(x, parameters["dimensions"]),
    concatenate=lambda parameters, *several: np.concatenate(several, parameters["dimension"]),
    stack=lambda parameters, *several: np.stack(several, parameters["axis"]),
    copy=lambda _, x: x,
    copy_p=lambda _, x: x,
)


# --- arithmetic that is exact, or rounded in the only way there is ----------------------------------------------------
@RULES.enter("convert_element_type")
def _convert(parameters: Any, x: np.ndarray) -> np.ndarray | None:
    """Not from floats to integers, where processors differ beyond the largest integer."""
    new = parameters["new_dtype"]
    fits = isinstance(new, np.dtype) and ((x.dtype.kind in "biu" and new.kind in "biuf") or x.dtype == new)
    return x.astype(new) if fits else None


@RULES.enter("select_n")
def _select(_: Any, which: np.ndarray, *cases: np.ndarray) -> np.ndarray | None:
    return np.where(which, cases[1], cases[0]) if which.dtype == bool and len(cases) == 2 else None


def _arithmetic(function: Callable[..., Any], kinds: str) -> Callable[..., np.ndarray | None]:
    """The rule of a function of numbers of one type, for certain kinds of types."""
    return lambda _, *operands: function(*operands) if operands[0].dtype.kind in kinds else None


RULES.update(
    {"not": _arithmetic(operator.invert, "biu"), "div": _arithmetic(operator.truediv, "f")},
    **{name: _arithmetic(getattr(operator, name), "iuf") for name in ("add", "sub", "mul", "neg")},
    **{name: _arithmetic(getattr(operator, name), "biuf") for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: _arithmetic(getattr(operator, f"{name}_"), "biu") for name in ("and", "or")},
    xor=_arithmetic(operator.xor, "biu"),
)
