"""Sums over all elements, V = Σ_e w_e W(F_e), and their derivatives: one JAX primitive, closed under differentiation.

As `pair_sum` of gm.md, the operation `element_sum` has the order k of a derivative of V: 0 is V itself, 1 the gradient
by the nodes, and k > 1 the derivative of V in k − 1 directions. Its derivative along dq is the operation of order k + 1
with one more direction; by symmetry its transpose in a direction is the same operation with the cotangent in that
place. Nothing of the size of a stiffness matrix is stored. Derivatives by moduli and by the geometry are automatic.

Forces are first written for each element, and then gathered by each node from the list of its elements. So every sum
has one fixed order on every device, and results are equal bit for bit. On the CPU each order is machine code of its own
(element_code.py); elsewhere, and for other types than float64, array operations.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from ..numerics.compilation import jit
from . import element_gpu, element_groups
from .element_terms import Components, ElementTerm, rows

WIDTH = 8  # elements whose forces are stored side by side; the number of elements is padded to a multiple of it

element_sum_p = Primitive("element_sum")


class Geometry(NamedTuple):
    """The elements as arrays, structure by structure. Elements of weight 0 fill the last group of `WIDTH`.

    The contribution of element e to component c of its node a is stored at entry(e, a) + WIDTH·c, where
    entry(e, a) = (e div WIDTH)(d + 1) d WIDTH + a d WIDTH + e mod WIDTH.
    """

    gradients: Any  # (d·d, m): G_aj of the nodes 1 … d
    weights: Any  # (m,): the volumes
    cells: Any  # (d + 1, m), int32
    starts: Any  # (n + 1,), int32: which part of `entries` belongs to each node
    entries: Any  # ((d + 1)·elements,), int32, ascending for each node
    table: Any  # (n, most), int32: the same entries as a table, −1 for padding
    patches: Any = None  # for GPUs: Groups (element_groups.py) or Patches (element_gpu.py)

    @classmethod
    def of(cls, nodes: int, cells: np.ndarray, gradients: np.ndarray, weights: np.ndarray) -> Geometry:
        """cells (m, d + 1), gradients of all d + 1 shape functions (m, d + 1, d), volumes (m,)."""
        m, corners = cells.shape
        d = corners - 1
        places = np.minimum(np.arange(-(-m // WIDTH) * WIDTH), m - 1)
        of_cell = (np.arange(m) // WIDTH) * (corners * d * WIDTH) + np.arange(m) % WIDTH
        entry = of_cell[:, None] + np.arange(corners) * d * WIDTH
        order = np.argsort(cells.ravel(), kind="stable")
        count = np.bincount(cells.ravel(), minlength=nodes)
        starts = np.append(0, np.cumsum(count))
        entries = entry.ravel()[order]
        table = np.full((nodes, int(count.max())), -1)
        owner = np.repeat(np.arange(nodes), count)
        table[owner, np.arange(len(entries)) - starts[owner]] = entries
        whole = lambda x: jnp.asarray(np.ascontiguousarray(x, np.int32))
        return cls(
            jnp.asarray(np.ascontiguousarray(gradients[places][:, 1:].reshape(len(places), -1).T)),
            jnp.asarray(np.where(np.arange(len(places)) < m, weights[places], 0.0)),
            whole(cells[places].T),
            whole(starts),
            whole(entries),
            whole(table),
            _for_gpus(nodes, cells, gradients, weights) if element_gpu.wanted() else None,
        )


def _for_gpus(nodes: int, cells: np.ndarray, gradients: np.ndarray, weights: np.ndarray) -> Any:
    groups = element_groups.Groups.of(nodes, cells, gradients, weights)
    return element_gpu.Patches.of(nodes, cells) if groups is None else groups


FLOATS = 2  # of the arrays of a Geometry, those that may be differentiated by; they come first
ARRAYS = 6  # of a Geometry, before those of its patches


def element_sum(term: ElementTerm, order: int, vectors: Sequence[Any], numbers: Sequence[Any], geometry: Any) -> Array:
    """vectors: x (…, n, d), the positions of all nodes, and then the directions, of the same shape; numbers: those of
    the material, each () or (m,)."""
    if isinstance(groups := getattr(geometry, "patches", None), element_groups.Groups):
        term = dataclasses.replace(term, pattern=groups.pattern)
    return element_sum_p.bind(*vectors, *numbers, *jax.tree.leaves(geometry), term=term, order=order)


class Split(NamedTuple):
    vectors: list[Any]
    numbers: list[Any]
    geometry: list[Any]


def split(term: ElementTerm, order: int, operands: Sequence[Any]) -> Split:
    count = max(order, 1)
    numbers = count + term.parameters
    return Split(list(operands[:count]), list(operands[count:numbers]), list(operands[numbers:]))


@element_sum_p.def_abstract_eval
def _shape(x: Any, *others: Any, term: ElementTerm, order: int) -> Any:
    return x.update(shape=x.shape if order else x.shape[:-2], weak_type=False)


@functools.partial(jit, static_argnums=(0, 1))
def _evaluated(term: ElementTerm, order: int, *operands: Array) -> Array:
    return element_sum_p.bind(*operands, term=term, order=order)


element_sum_p.def_impl(lambda *operands, term, order: _evaluated(term, order, *operands))


# --- derivatives ------------------------------------------------------------------------------------------------------
def _jvp(primals: Any, tangents: Any, *, term: ElementTerm, order: int) -> tuple[Any, Any]:
    whole, moved = split(term, order, primals), split(term, order, tangents)
    floats = len(primals) - len(whole.geometry) + FLOATS
    if any(type(t) is not ad.Zero for t in (*moved.numbers, *moved.geometry[:FLOATS])):
        given = [ad.instantiate_zeros(t) for t in tangents[:floats]]
        function = lambda *x: by_arrays(term, order, *x, *primals[floats:])
        return jax.jvp(function, tuple(primals[:floats]), tuple(given))
    bind = lambda k, *vectors: element_sum(term, k, vectors, whole.numbers, whole.geometry)
    terms = []
    if type(moved.vectors[0]) is not ad.Zero:
        along = bind(order + 1, *whole.vectors, *([] if order == 0 else [moved.vectors[0]]))
        terms.append(along if order else jnp.sum(along * moved.vectors[0], axis=(-2, -1)))
    for k, u in enumerate(moved.vectors[1:], 1):
        if type(u) is not ad.Zero:
            terms.append(bind(order, *whole.vectors[:k], u, *whole.vectors[k + 1 :]))
    out = bind(order, *whole.vectors)
    return out, functools.reduce(jnp.add, terms) if terms else jnp.zeros_like(out)


def _transpose(cotangent: Any, *operands: Any, term: ElementTerm, order: int) -> list[Any]:
    """The operation is linear in each direction."""
    (at,) = (k for k, x in enumerate(operands) if ad.is_undefined_primal(x))
    if type(cotangent) is ad.Zero:
        return [ad.Zero(x.aval) if k == at else None for k, x in enumerate(operands)]
    back = element_sum_p.bind(*operands[:at], cotangent, *operands[at + 1 :], term=term, order=order)
    return [back if k == at else None for k in range(len(operands))]


def _batched(operands: Any, axes: Any, *, term: ElementTerm, order: int) -> tuple[Array, int]:
    size = next(x.shape[k] for x, k in zip(operands, axes, strict=True) if k is not None)
    whole, axis = split(term, order, operands), split(term, order, axes)
    if any(k is not None for k in axis.geometry):
        function = functools.partial(by_arrays, term, order)
        return jax.vmap(function, in_axes=tuple(axes))(*operands), 0
    spread = lambda x, k: jnp.broadcast_to(x, (size, *x.shape)) if k is None else jnp.moveaxis(x, k, 0)
    vectors = [spread(x, k) for x, k in zip(whole.vectors, axis.vectors, strict=True)]
    numbers, members = whole.numbers, vectors[0].shape[:-2]
    if any(k is not None or x.ndim > 1 for x, k in zip(numbers, axis.numbers, strict=True)):
        numbers = [_with_members(x, k, members) for x, k in zip(numbers, axis.numbers, strict=True)]
    return element_sum(term, order, vectors, numbers, whole.geometry), 0


def _with_members(x: Array, axis: int | None, members: tuple[int, ...]) -> Array:
    """A number of the material with the axes of the members before its own: 1 or m entries."""
    x = x[None] if axis is None else jnp.moveaxis(x, axis, 0)
    before = x.shape[:1] if x.ndim < 1 + len(members) else x.shape[: len(members)]
    own = x.shape[len(before) :] or (1,)
    return jnp.broadcast_to(x.reshape(*before, *[1] * (len(members) - len(before)), *own), (*members, *own))


ad.primitive_jvps[element_sum_p] = _jvp
ad.primitive_transposes[element_sum_p] = _transpose
batching.primitive_batchers[element_sum_p] = _batched


# --- by array operations ----------------------------------------------------------------------------------------------
def by_arrays(term: ElementTerm, order: int, *operands: Array) -> Array:
    """The operation by array operations."""
    vectors, numbers, geometry = split(term, order, operands)
    function = lambda x, n: _by_arrays(term, order, x, n, Geometry(*geometry[:ARRAYS]))
    for _ in range(vectors[0].ndim - 2):
        own = [0 if x.ndim > 1 else None for x in numbers]
        function = jax.vmap(function, in_axes=(0, own))
    return function(vectors, numbers)


def _by_arrays(term: ElementTerm, order: int, vectors: Any, numbers: Any, geometry: Geometry) -> Array:
    d, n = term.dim, vectors[0].shape[0]
    D, *along = (differences(x, geometry.cells) for x in vectors)
    (G,) = rows(list(geometry.gradients), 1, d)
    numbers = [padded(x, geometry.weights.shape[0]) for x in numbers]
    if order == 0:
        return jnp.sum(term.energy(D, G, geometry.weights, numbers))
    forces = term.forces(D, along, G, geometry.weights, numbers)
    nodes = [
        [-sum(forces[i][1:], forces[i][0]) for i in range(d)],
        *([forces[i][a] for i in range(d)] for a in range(d)),
    ]
    stored = jnp.stack([jnp.stack(x) for x in nodes]).reshape(d + 1, d, -1, WIDTH).transpose(2, 0, 1, 3).ravel()
    parts = stored[geometry.table[:, :, None] + WIDTH * jnp.arange(d)]
    return jnp.sum(jnp.where(geometry.table[:, :, None] >= 0, parts, 0.0), axis=1).reshape(n, d)


def differences(x: Array, cells: Array) -> Components:
    """D_ia of all elements."""
    d = x.shape[1]
    at = [[x[:, i][cells[a]] for a in range(d + 1)] for i in range(d)]
    return [[at[i][a] - at[i][0] for a in range(1, d + 1)] for i in range(d)]


def padded(x: Array, elements: int) -> Array:
    """A number of the material for each element, the last one repeated."""
    if x.ndim == 0 or x.shape[-1] in (1, elements):
        return x
    missing = elements - x.shape[-1]
    return jnp.concatenate([x, jnp.broadcast_to(x[..., -1:], (*x.shape[:-1], missing))], axis=-1)


# --- by machine code --------------------------------------------------------------------------------------------------
def by_machine_code(term: ElementTerm, order: int, *operands: Array) -> Array:
    """The operation by machine code of the CPU; by array operations where that does not cover the material."""
    from ..engines.scalar.values import NotCovered
    from . import element_code

    vectors, numbers, geometry = split(term, order, operands)
    if any(x.dtype != np.float64 for x in (*vectors, *numbers, *geometry[:FLOATS])):
        return by_arrays(term, order, *operands)
    try:
        name = element_code.sum_target(term, order)
    except NotCovered:
        return by_arrays(term, order, *operands)
    lists = geometry[FLOATS : ARRAYS - 1]
    kernel, members = element_code.sum_kernel(term, order), vectors[0].shape[:-2]
    out, _ = element_code.call(
        kernel, name, vectors, numbers, geometry[:FLOATS], lists if order else lists[:1], members
    )
    return out if order else out[..., 0]


def _by_kernel(term: ElementTerm, order: int, *operands: Array) -> Array:
    """The operation by a kernel for GPUs; by array operations where that does not cover the material."""
    from ..engines.scalar.values import NotCovered

    vectors, numbers, arrays = split(term, order, operands)
    geometry, tables = Geometry(*arrays[:ARRAYS]), arrays[ARRAYS:]
    usable = all(x.dtype == vectors[0].dtype for x in (*vectors, *numbers, *arrays[:FLOATS]))
    if order == 0 or not tables or not usable:
        return by_arrays(term, order, *operands)
    try:
        numbers = [padded(x, geometry.weights.shape[0]) for x in numbers]
        if term.pattern is None:
            return element_gpu.forces(term, order, vectors, numbers, geometry, element_gpu.Patches(*tables))
        nodes, shapes, places = tables
        groups = element_groups.Groups(nodes, shapes, places, term.pattern)
        return element_groups.forces(term, order, vectors, numbers, groups, element_gpu.INTERPRET)
    except NotCovered:
        return by_arrays(term, order, *operands)


# --- lowering ---------------------------------------------------------------------------------------------------------
def _expanded(equation: Any) -> Any:
    """The operation as a program of plain primitives, for whatever interprets jaxprs."""
    term, order = equation.params["term"], equation.params["order"]
    return _expansion(term, order, tuple((v.aval.shape, v.aval.dtype) for v in equation.invars))


@functools.lru_cache(64)
def _expansion(term: ElementTerm, order: int, avals: tuple[Any, ...]) -> Any:
    return jax.make_jaxpr(functools.partial(by_arrays, term, order))(*(jax.ShapeDtypeStruct(*x) for x in avals))


# See numerics/interpreter.py.
element_sum_p.expanded = _expanded  # pyright: ignore[reportAttributeAccessIssue]


def _lowering(function: Any) -> Any:
    return mlir.lower_fun(lambda *x, term, order: function(term, order, *x), multiple_results=False)


mlir.register_lowering(element_sum_p, _lowering(by_arrays))
mlir.register_lowering(element_sum_p, _lowering(by_machine_code), platform="cpu")
mlir.register_lowering(element_sum_p, _lowering(_by_kernel), platform="cuda")
