"""Forces of meshes that repeat one pattern of elements, by a kernel for GPUs with one fixed order of all sums.

Generated meshes are often made of groups of consecutive elements that share nodes in the same way: the 24 tetrahedra of
a small cube have 15 nodes, and the four at one of its faces have six. A lane computes one group, with the forces on its
nodes in registers, and writes one sum for each node of the group: for 24 tetrahedra 45 numbers instead of 288. These
sums are then added up for each node of the mesh. No lane waits for another. Where all groups have the same shape, but
for rounding, one copy of the shape functions serves all of them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engines.pallas.code import PallasCode
from ..engines.scalar.fma_fusion import DeferredProduct
from ..engines.scalar.translate import ScalarInterpreter
from ..engines.scalar.values import filled
from .element_terms import ElementTerm, element_program

SIZES = (4,)  # elements of a group that are looked for, the best first
LANES, WARPS = 128, 4  # groups of a program, and its warps
EQUAL = 1e-12  # shapes apart by less than this, relative to the largest number, are equal but for rounding

Pattern = tuple[tuple[int, ...], ...]  # for each element of a group its nodes, as numbers within the group


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["nodes", "shapes", "places"],
    meta_fields=["pattern"],
)
@dataclasses.dataclass(frozen=True)
class Groups:
    """The elements in groups."""

    nodes: Any  # (nodes of a group, groups), int32
    shapes: Any  # (elements of a group·(d·d + 1), kinds): G_aj of the nodes 1 … d, and volume; groups are in the order
    # of their kinds, as many of each
    places: Any  # (most, n), int32: u·groups + g for each group g that has the node as its u-th; −1 for padding
    pattern: Pattern

    @classmethod
    def of(cls, n: int, cells: np.ndarray, gradients: np.ndarray, weights: np.ndarray) -> Groups | None:
        """cells (m, d + 1), gradients of all shape functions (m, d + 1, d), volumes (m,); None without a pattern."""
        for size in SIZES:
            if len(cells) % size == 0 and (found := _ordered(cells, size)) is not None:
                return cls._made(n, cells, gradients, weights, *found)
        return None

    @classmethod
    def _made(cls, n: int, cells: Any, gradients: Any, weights: Any, pattern: Any, order: Any) -> Groups:
        m, size = len(cells), len(pattern)
        groups = m // size
        ordered = np.take_along_axis(cells, order, 1).reshape(groups, -1)
        _, first = np.unique(np.ravel(pattern), return_index=True)
        turned = np.take_along_axis(gradients, order[:, :, None], 1)[:, 1:].reshape(m, -1)
        shapes = np.concatenate([turned, weights[:, None]], 1).reshape(groups, size, -1)
        shapes = np.ascontiguousarray(_kinds(shapes).reshape(-1, size * shapes.shape[-1]).T)
        by_kind = np.arange(groups).reshape(-1, shapes.shape[1]).T.ravel()
        nodes = np.ascontiguousarray(ordered[:, first].T[:, by_kind])
        whole = lambda x: jnp.asarray(np.ascontiguousarray(x, np.int32))
        return cls(whole(nodes), jnp.asarray(shapes), whole(_places(n, nodes)), pattern)


def _places(n: int, nodes: np.ndarray) -> np.ndarray:
    """`places` of Groups."""
    place = np.argsort(nodes.ravel(), kind="stable")
    node, often = nodes.ravel()[place], np.bincount(nodes.ravel(), minlength=n)
    rank = np.arange(nodes.size) - np.repeat(np.cumsum(often) - often, often)
    places = np.full((int(often.max()), n), -1)
    places[rank, node] = place
    return places


def _ordered(cells: np.ndarray, size: int) -> tuple[Pattern, np.ndarray] | None:
    """The pattern of the first group, and for each element the order of its nodes in which its group has this pattern:
    as they are, or with the last two exchanged in all elements of the group."""
    corners = cells.shape[1]
    straight = np.arange(corners)
    turned = np.append(straight[:-2], [corners - 1, corners - 2])
    grouped = cells.reshape(-1, size, corners)
    _, first, inverse = np.unique(grouped[0], return_index=True, return_inverse=True)
    wanted = np.argsort(np.argsort(first))[inverse.ravel()]  # numbered by where they first occur
    first = np.sort(first)
    flat = [grouped[..., x].reshape(len(grouped), -1) for x in (straight, turned)]
    same = np.array([np.all(x == x[:, first[wanted]], axis=1) for x in flat])
    if not same.any(axis=0).all():
        return None
    order = np.repeat(np.where(same[0][:, None], straight, turned), size, axis=0)
    return tuple(tuple(int(k) for k in x) for x in wanted.reshape(size, corners)), order


def _kinds(shapes: np.ndarray) -> np.ndarray:
    """(kinds, …) of shapes (groups, elements, numbers): the few shapes that the groups repeat in turn, or all."""
    numbers = np.abs(shapes).reshape(-1, shapes.shape[-1])
    bound = EQUAL * np.append(np.full(shapes.shape[-1] - 1, numbers[:, :-1].max()), numbers[:, -1].max())
    for kinds in (1, 2, 3, 4, 6):
        if len(shapes) % kinds == 0:
            turns = shapes.reshape(-1, kinds, *shapes.shape[1:])
            if np.all(np.abs(turns - turns[:1]) <= bound):
                return turns.mean(axis=0)
    return shapes


class Layout(NamedTuple):
    """What is fixed when a kernel is compiled, besides its function."""

    nodes: int
    groups: int
    kinds: int
    pattern: Pattern
    strides: tuple[tuple[int, int], ...]  # of the numbers of the material, by members and by elements
    interpret: bool

    @property
    def width(self) -> int:
        return 1 + max(max(x) for x in self.pattern)


def forces(
    term: ElementTerm, order: int, vectors: Sequence[Any], numbers: Sequence[Any], groups: Groups, interpret: bool
) -> Array:
    """The operation `element_sum` of order ≥ 1."""
    from jax.experimental import pallas as pl  # .4 s to import, and needed on a GPU alone

    d, (*members, n, _) = term.dim, vectors[0].shape
    count, kind = int(np.prod(members)), vectors[0].dtype
    strides = tuple((x.shape[-1] if x.ndim > 1 else 0, int(x.ndim > 0 and x.shape[-1] > 1)) for x in numbers)
    layout = Layout(n, groups.nodes.shape[1], groups.shapes.shape[1], groups.pattern, strides, interpret)
    flat = [x.ravel() for x in (*vectors, *numbers, groups.nodes, groups.shapes)]
    out = jax.ShapeDtypeStruct((count * d * layout.width * layout.groups,), kind)
    more: dict[str, Any] = {"interpret": True} if interpret else {"compiler_params": _settings(WARPS)}
    kernel = functools.partial(_kernel, term, order, layout)
    grid = (-(-layout.groups // LANES) * count,)
    sums = pl.pallas_call(kernel, out_shape=out, grid=grid, name="geomint_groups", **more)(*flat)
    # A kernel for these sums is no faster than XLA's loop over the nodes: 87.9 against 85.7 µs a step of 1.5 million
    # tetrahedra on an H200.
    return added_up(sums.reshape(count, d, -1), groups.places).reshape(*members, n, d)


def _divided(x: Any, by: int) -> tuple[Any, Any]:
    """Quotient and remainder."""
    return jax.lax.div(x, np.int32(by)), jax.lax.rem(x, np.int32(by))


def added_up(sums: Any, places: Any) -> Any:
    """(members, n, d), the sums of each node from those (members, d, …) of its places."""
    total: Any = 0.0
    for place in places:  # written out, so that the order is fixed and all is one loop over the nodes
        total = total + jnp.where(place >= 0, jnp.take(sums, place, axis=2, mode="clip"), 0.0)
    return jnp.swapaxes(total, 1, 2)


def _settings(warps: int) -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=warps, num_stages=1)


def _kernel(term: ElementTerm, order: int, layout: Layout, *refs: Any) -> None:
    """One program: `LANES` groups of one member."""
    from jax.experimental import pallas as pl

    d, vectors, size = term.dim, max(order, 1), len(layout.pattern)
    given, numbers = refs[:vectors], refs[vectors : vectors + term.parameters]
    nodes, shapes, sums = refs[vectors + term.parameters :]
    member, block = _divided(pl.program_id(0), -(-layout.groups // LANES))
    group = block * np.int32(LANES) + jnp.arange(LANES, dtype=jnp.int32)
    group = jnp.minimum(group, np.int32(layout.groups - 1))  # lanes beyond the last group repeat it
    of_each = layout.groups // layout.kinds
    of_kind = jax.lax.div(group, jnp.full_like(group, of_each))
    stated = jax.lax.rem(group, jnp.full_like(group, of_each)) * np.int32(layout.kinds) + of_kind  # in the mesh
    row = [nodes[group + np.int32(u * layout.groups)] for u in range(layout.width)]
    row = [(x + member * np.int32(layout.nodes)) * np.int32(d) for x in row]
    at = [[[x[u + np.int32(i)] for u in row] for i in range(d)] for x in given]
    code = PallasCode(LANES, given[0].dtype, layout.interpret)
    program = element_program(term, order)
    totals: list[list[Any]] = [[None] * layout.width for _ in range(d)]
    plus = lambda x, y: y if x is None else x + y
    for k, corners in enumerate(layout.pattern):
        inputs = [x[i][u] - x[i][corners[0]] for x in at for i in range(d) for u in corners[1:]]
        inputs += [shapes[of_kind + np.int32((k * (d * d + 1) + j) * layout.kinds)] for j in range(d * d + 1)]
        element = stated * np.int32(size) + np.int32(k)
        for x, (by_member, by_element) in zip(numbers, layout.strides, strict=True):
            inputs.append(x[member * np.int32(by_member) + element * np.int32(by_element)])
        found = ScalarInterpreter(code).evaluate(program, [filled((), [x]) for x in inputs])
        values = [x.item() for x in found]
        values = [code.broadcast(x.x) * code.broadcast(x.y) if isinstance(x, DeferredProduct) else x for x in values]
        for i in range(d):
            parts = [code.broadcast(x) for x in values[i * d : (i + 1) * d]]
            for u, force in zip(corners, [-functools.reduce(jnp.add, parts), *parts], strict=True):
                totals[i][u] = plus(totals[i][u], force)
    for i in range(d):
        for u in range(layout.width):
            place = (member * np.int32(d) + np.int32(i)) * np.int32(layout.width) + np.int32(u)
            sums[place * np.int32(layout.groups) + group] = totals[i][u]
