"""Sums over all pairs, V = Σ_{i<j} S φ, and their derivatives: one JAX primitive, closed under differentiation.

The operation `pair_sum` has the order k of a derivative of V: for k = 0 it is V itself, for k = 1 the gradient, for
k > 1 the derivative of V in k − 1 directions,

    (D^k V(q)[u₁, …, u_{k−1}])_i = Σ_j D^{k−1} w(q_i − q_j)[u₁ᵢ − u₁ⱼ, …],      w(d) = 2 φ'(|d|²) d.

Its derivative along dq is the operation of order k + 1 with one more direction, and since derivatives are symmetric in
their directions, the transpose in u is the same operation with the cotangent in place of u. So forces, Hessian products
and third derivatives are sums over pairs of the same form, forwards and backwards; nothing of the size of all pairs is
stored. Derivatives by the parameters of sites are automatic (`by_rows`).

On the CPU each order is machine code of its own (pair_code.py), on a GPU a kernel (pair_gpu.py), elsewhere and for
other types than float64 array operations on some rows of pairs at a time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from ..numerics.compilation import jit
from .pair_terms import Term, squared

FEW = 35  # particles up to which interpreters of jaxprs see the sum written out over its pairs
ROWS = 2**20  # pairs at a time where array operations compare all pairs

pair_sum_p = Primitive("pair_sum")


def pair_sum(term: Term, order: int, *operands: Array) -> Array:
    """Operands: q (…, n, d), then the directions of the same shape, then the parameters of the sites (…, n)."""
    return pair_sum_p.bind(*operands, term=term, order=order)


def split(order: int, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """q and the directions; the parameters of the sites."""
    vectors = max(order, 1)
    return list(operands[:vectors]), list(operands[vectors:])


@pair_sum_p.def_abstract_eval
def _shape(q: Any, *others: Any, term: Term, order: int) -> Any:
    return q.update(shape=q.shape if order else q.shape[:-2], weak_type=False)


@functools.partial(jit, static_argnums=(0, 1))
def _evaluated(term: Term, order: int, *operands: Array) -> Array:
    return pair_sum(term, order, *operands)


pair_sum_p.def_impl(lambda *operands, term, order: _evaluated(term, order, *operands))


# --- derivatives ------------------------------------------------------------------------------------------------------
def _jvp(primals: Any, tangents: Any, *, term: Term, order: int) -> tuple[Any, Any]:
    vectors, sites = split(order, primals)
    moved, sites_moved = split(order, tangents)
    if any(type(t) is not ad.Zero for t in sites_moved):
        tangents = [ad.instantiate_zeros(t) for t in tangents]
        return jax.jvp(lambda *x: by_rows(term, order, *x), tuple(primals), tuple(tangents))
    out = pair_sum(term, order, *primals)
    terms = []
    if type(moved[0]) is not ad.Zero:
        up = pair_sum(term, order + 1, *vectors, *([] if order == 0 else [moved[0]]), *sites)
        terms.append(up if order else jnp.sum(up * moved[0], axis=(-2, -1)))
    for k, u in enumerate(moved[1:], 1):
        if type(u) is not ad.Zero:
            terms.append(pair_sum(term, order, *vectors[:k], u, *vectors[k + 1 :], *sites))
    return out, functools.reduce(jnp.add, terms) if terms else jnp.zeros_like(out)


def _transpose(cotangent: Any, *operands: Any, term: Term, order: int) -> list[Any]:
    """The operation is linear in each direction."""
    (at,) = (k for k, x in enumerate(operands) if ad.is_undefined_primal(x))
    if type(cotangent) is ad.Zero:
        return [ad.Zero(x.aval) if k == at else None for k, x in enumerate(operands)]
    back = pair_sum(term, order, *operands[:at], cotangent, *operands[at + 1 :])
    return [back if k == at else None for k in range(len(operands))]


def _batched(operands: Any, axes: Any, *, term: Term, order: int) -> tuple[Array, int]:
    size = next(x.shape[k] for x, k in zip(operands, axes, strict=True) if k is not None)
    spread = lambda x, k: jnp.broadcast_to(x, (size, *x.shape)) if k is None else jnp.moveaxis(x, k, 0)
    return pair_sum(term, order, *map(spread, operands, axes)), 0


ad.primitive_jvps[pair_sum_p] = _jvp
ad.primitive_transposes[pair_sum_p] = _transpose
batching.primitive_batchers[pair_sum_p] = _batched


# --- by array operations ----------------------------------------------------------------------------------------------
def by_rows(term: Term, order: int, *operands: Array) -> Array:
    """The operation by array operations on some rows of pairs at a time, each pair from both sides."""
    function = functools.partial(_by_rows, term, order)
    for _ in range(operands[0].ndim - 2):
        function = jax.vmap(function)
    return function(*operands)


def _by_rows(term: Term, order: int, *operands: Array) -> Array:
    vectors, sites = split(order, operands)
    n, dimension = vectors[0].shape
    which, excluded = term.chosen(n)
    m = len(which)
    if term.on is not None:
        vectors, sites = [x[which] for x in vectors], [x[which] for x in sites]
    left_out, size = _rows_of(excluded, m), max(1, min(m, ROWS // max(m, 1)))
    far = 1.0 if term.cutoff is None else term.cutoff

    @jax.checkpoint
    def rows(i: Array) -> Array:
        at = jnp.minimum(i, m - 1)
        pair = (jnp.arange(m)[None] != i[:, None]) & (i[:, None] < m)
        if left_out is not None:
            pair &= ~jnp.any(jnp.asarray(left_out)[at][:, None, :] == jnp.arange(m)[None, :, None], axis=-1)
        apart = [[x[:, k][at][:, None] - x[None, :, k] for k in range(dimension)] for x in vectors]
        d, along = [term.nearest(x, k) for k, x in enumerate(apart[0])], apart[1:]
        d = [jnp.where(pair, x, far if k == 0 else 0.0) for k, x in enumerate(d)]
        here, there = [x[at][:, None] for x in sites], [x[None] for x in sites]
        if order == 0:
            return jnp.sum(jnp.where(pair, 0.5 * term.energy(squared(d), here, there), 0.0))
        parts = term.derivative(d, along, here, there)
        return jnp.stack([jnp.sum(jnp.where(pair, x, 0.0), axis=1) for x in parts], axis=-1)

    found = jax.lax.map(rows, jnp.arange(-(-m // size) * size).reshape(-1, size))
    if order == 0:
        return jnp.sum(found)
    total = found.reshape(-1, dimension)[:m]
    return total if term.on is None else jnp.zeros((n, dimension), total.dtype).at[which].set(total)


def left_out(term: Term, n: int) -> np.ndarray | None:
    """For each of n particles those that it has no pair with, filled up with its own number; None where all have."""
    which, excluded = term.chosen(n)
    return _rows_of(which[excluded], n)


def _rows_of(excluded: np.ndarray, m: int) -> np.ndarray | None:
    """For each particle the places of those that it has no pair with, filled up with its own."""
    if not len(excluded):
        return None
    both = np.concatenate([excluded, excluded[:, ::-1]])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    count = np.bincount(both[:, 0], minlength=m)
    table = np.repeat(np.arange(m)[:, None], count.max(), axis=1)
    table[both[:, 0], np.arange(len(both)) - np.repeat(np.cumsum(count) - count, count)] = both[:, 1]
    return table


# --- by machine code --------------------------------------------------------------------------------------------------
def by_machine_code(term: Term, order: int, *operands: Array) -> Array:
    """The operation by machine code of the CPU; by array operations where that does not cover φ."""
    from ..engines.scalar.values import NotCovered
    from . import pair_code
    from .pair_tables import tables

    *batch, n, dimension = operands[0].shape
    if any(x.dtype != np.float64 for x in operands):
        return by_rows(term, order, *operands)
    try:
        name = pair_code.target(term, order, dimension)
    except NotCovered:
        return by_rows(term, order, *operands)
    lanes = pair_code.machine.widest()
    table = tables(term, n, math.prod(batch), pair_code.ROWS, lanes)
    padded = -(-len(table.which) // lanes) * lanes
    result = jax.ShapeDtypeStruct(operands[0].shape if order else tuple(batch), np.float64)
    scratch = jax.ShapeDtypeStruct((pair_code.memory(term, order, dimension, padded),), np.float64)
    return jax.ffi.ffi_call(name, (result, scratch))(*operands, *table)[0]


def _by_kernel(term: Term, order: int, *operands: Array) -> Array:
    from ..engines.scalar.values import NotCovered
    from .pair_gpu import by_kernel

    if any(x.dtype != jnp.result_type(float) for x in operands):
        return by_rows(term, order, *operands)
    try:
        return by_kernel(term, order, *operands)
    except NotCovered:
        return by_rows(term, order, *operands)


# --- written out ------------------------------------------------------------------------------------------------------
def by_pairs(term: Term, order: int, *operands: Array) -> Array:
    """The operation over index pairs, which the engines of scalar code turn into straight-line code."""
    vectors, sites = split(order, operands)
    i, j = term.pairs(len(vectors[0]))
    apart = [[x[i, k] - x[j, k] for k in range(x.shape[1])] for x in vectors]
    d = [term.nearest(x, k) for k, x in enumerate(apart[0])]
    here, there = [x[i] for x in sites], [x[j] for x in sites]
    if order == 0:
        return jnp.sum(term.energy(squared(d), here, there))
    parts = jnp.stack(term.derivative(d, apart[1:], here, there), axis=-1)
    return jnp.zeros_like(vectors[0]).at[i].add(parts).at[j].add(-parts)


def _expanded(equation: Any) -> Any:
    """The operation as a program of plain primitives, for whatever interprets jaxprs."""
    term, order = equation.params["term"], equation.params["order"]
    return _expansion(term, order, tuple((v.aval.shape, v.aval.dtype) for v in equation.invars))


@functools.lru_cache(64)
def _expansion(term: Term, order: int, avals: tuple[Any, ...]) -> Any:
    single = len(avals[0][0]) == 2
    way = by_pairs if single and avals[0][0][0] <= FEW else by_rows
    return jax.make_jaxpr(functools.partial(way, term, order))(*(jax.ShapeDtypeStruct(*x) for x in avals))


# See numerics/interpreter.py.
pair_sum_p.expanded = _expanded  # pyright: ignore[reportAttributeAccessIssue]
pair_sum_p.by_reciprocals = True  # pyright: ignore[reportAttributeAccessIssue]


def _lowering(function: Any) -> Any:
    return mlir.lower_fun(lambda *x, term, order: function(term, order, *x), multiple_results=False)


mlir.register_lowering(pair_sum_p, _lowering(by_rows))
mlir.register_lowering(pair_sum_p, _lowering(by_machine_code), platform="cpu")
mlir.register_lowering(pair_sum_p, _lowering(_by_kernel), platform="cuda")
