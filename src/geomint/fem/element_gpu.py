"""Forces of all elements by a kernel for GPUs, with one fixed order of all sums.

Elements are cut into patches of `PATCH`, one for each lane of a program. A program computes the forces on the nodes of
its elements, writes them to memory of its own, which stays in the cache since it serves one patch after another, and
after a barrier each lane adds up one node of the patch, from the list of its elements there. These sums of patches are
then added up for each node of the mesh. So the gradients of the shape functions, most of what is read, are read once,
and nothing of the size of the elements is written to main memory.

Neighbouring elements should have neighbouring numbers, as from most mesh generators: a patch of elements far apart has
many nodes, and as many sums.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engines.pallas.engine import PallasCode
from ..engines.scalar.fma_fusion import DeferredProduct
from ..engines.scalar.translate import ScalarInterpreter
from ..engines.scalar.values import filled
from .element_groups import added_up
from .element_terms import ElementTerm, element_program

PATCH = 128  # elements of a program
PROGRAMS = 132 * 4  # at the same time: four for each multiprocessor of an H100 or H200
WARPS = 4
AHEAD = 8  # entries of a node whose forces are read at once, so that they wait for memory together
INTERPRET = False  # run kernels without a GPU, for tests


class Patches(NamedTuple):
    """The elements in patches, and the sums of patches of each node."""

    starts: Any  # (patches, N + 1), int32: where the entries of each node of the patch begin
    entries: Any  # (patches, (d + 1)·PATCH), int32: a·PATCH + e for node a of element e, ascending for each node
    places: Any  # (most, n), int32: patch·N + k for each patch that has the node as its k-th; −1 for padding

    @classmethod
    def of(cls, nodes: int, cells: np.ndarray) -> Patches:
        """cells (m, d + 1). Elements that fill up the last patch add nothing."""
        m, corners = cells.shape
        count = -(-m // PATCH)
        patch = np.repeat(np.arange(m) // PATCH, corners)
        # Entries ordered by patch, node, corner and element.
        slot = (np.arange(corners) * PATCH + np.arange(m)[:, None] % PATCH).ravel()
        order = np.lexsort((slot, cells.ravel(), patch))
        node, patch, slot = cells.ravel()[order], patch[order], slot[order]
        first = np.flatnonzero(np.append(True, (node[1:] != node[:-1]) | (patch[1:] != patch[:-1])))
        begins = np.searchsorted(patch, np.arange(count + 1))  # of the patches
        of_patch = patch[first]
        k = np.arange(len(first)) - np.searchsorted(of_patch, np.arange(count))[of_patch]
        width = 1 << int(k.max()).bit_length()
        starts = np.repeat((begins[1:] - begins[:-1])[:, None], width + 1, axis=1)
        starts[of_patch, k] = first - begins[of_patch]
        entries = np.zeros((count, corners * PATCH))
        entries[patch, np.arange(len(slot)) - begins[patch]] = slot
        by_node = np.argsort(node[first], kind="stable")
        often = np.bincount(node[first], minlength=nodes)
        places = np.full((int(often.max()), nodes), -1)
        rank = np.arange(len(first)) - np.repeat(np.cumsum(often) - often, often)
        places[rank, node[first][by_node]] = (of_patch * width + k)[by_node]
        return cls(*(jnp.asarray(np.ascontiguousarray(x, np.int32)) for x in (starts, entries, places)))


def wanted() -> bool:
    """Whether meshes need patches."""
    return INTERPRET or jax.default_backend() == "gpu"


class Shape(NamedTuple):
    """What is fixed when a kernel is compiled, besides its function."""

    members: int
    nodes: int
    elements: int
    patches: int
    width: int
    strides: tuple[tuple[int, int], ...]  # of the numbers of the material, by members and by elements
    interpret: bool


def forces(
    term: ElementTerm, order: int, vectors: Sequence[Any], numbers: Sequence[Any], geometry: Any, patches: Patches
) -> Array:
    """The operation `element_sum` of order ≥ 1."""
    d, (*members, n, _) = term.dim, vectors[0].shape
    count = int(np.prod(members))
    elements, width = geometry.weights.shape[0], patches.starts.shape[1] - 1
    strides = tuple((x.shape[-1] if x.ndim > 1 else 0, int(x.ndim > 0 and x.shape[-1] > 1)) for x in numbers)
    shape = Shape(count, n, elements, patches.starts.shape[0], width, strides, INTERPRET)
    flat = [x.ravel() for x in (*vectors, *numbers, geometry.gradients, geometry.weights, geometry.cells)]
    sums = _launch(term, order, shape, [*flat, patches.starts.ravel(), patches.entries.ravel()])
    sums = sums.reshape(count, d, shape.patches * width)
    return added_up(sums, patches.places).reshape(*members, n, d)


def _launch(term: ElementTerm, order: int, shape: Shape, operands: list[Any]) -> Array:
    from jax.experimental import pallas as pl  # .4 s to import, and needed on a GPU alone

    d, kind = term.dim, operands[0].dtype
    programs = min(PROGRAMS, shape.members * shape.patches)
    out = [
        jax.ShapeDtypeStruct((shape.members * d * shape.patches * shape.width,), kind),
        jax.ShapeDtypeStruct((programs * (d + 1) * d * PATCH,), kind),
    ]
    more: dict[str, Any] = {"interpret": True} if shape.interpret else {"compiler_params": _settings()}
    kernel = functools.partial(_kernel, term, order, shape, programs)
    sums, _ = pl.pallas_call(kernel, out_shape=out, grid=(programs,), name="geomint_elements", **more)(*operands)
    return sums


def _settings() -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=WARPS, num_stages=1)


def _barrier(interpret: bool) -> None:
    from jax.experimental.pallas import triton

    if not interpret:
        triton.debug_barrier()


def _kernel(term: ElementTerm, order: int, shape: Shape, programs: int, *refs: Any) -> None:
    """One program: the patches program, program + programs, … of all members."""
    from jax.experimental import pallas as pl

    program, work = pl.program_id(0), np.int32(shape.members * shape.patches)
    rounds = jax.lax.div(work - program + np.int32(programs - 1), np.int32(programs))

    def one(k: Any, carry: Any) -> Any:
        item = program + k * np.int32(programs)
        member, patch = jax.lax.div(item, np.int32(shape.patches)), jax.lax.rem(item, np.int32(shape.patches))
        _patch(term, order, shape, program, member, patch, refs)
        return carry

    jax.lax.fori_loop(np.int32(0), rounds, one, np.int32(0))


def _patch(term: ElementTerm, order: int, shape: Shape, program: Any, member: Any, patch: Any, refs: Any) -> None:
    d, vectors = term.dim, max(order, 1)
    given = refs[:vectors]
    numbers = refs[vectors : vectors + term.parameters]
    gradients, weights, cells, starts, entries, sums, memory = refs[vectors + term.parameters :]
    lanes = jnp.arange(PATCH, dtype=jnp.int32)
    element = patch * np.int32(PATCH) + lanes
    exists = element < shape.elements
    element = jnp.minimum(element, np.int32(shape.elements - 1))
    places = [
        (cells[element + np.int32(a * shape.elements)] + member * np.int32(shape.nodes)) * np.int32(d)
        for a in range(d + 1)
    ]
    inputs = []
    for x in given:
        at = [[x[place + np.int32(i)] for place in places] for i in range(d)]
        inputs += [at[i][a] - at[i][0] for i in range(d) for a in range(1, d + 1)]
    inputs += [gradients[element + np.int32(k * shape.elements)] for k in range(d * d)]
    inputs.append(jnp.where(exists, weights[element], 0.0))
    for x, (by_member, by_element) in zip(numbers, shape.strides, strict=True):
        inputs.append(x[member * np.int32(by_member) + element * np.int32(by_element)])
    code = PallasCode(PATCH, given[0].dtype, shape.interpret)
    program_of_element = element_program(term, order)
    found = ScalarInterpreter(code).evaluate(program_of_element, [filled((), [x]) for x in inputs])
    values = [x.item() for x in found]
    values = [code.broadcast(x.x) * code.broadcast(x.y) if isinstance(x, DeferredProduct) else x for x in values]
    own = program * np.int32((d + 1) * d * PATCH)
    for i in range(d):
        row = [code.broadcast(x) for x in values[i * d : (i + 1) * d]]
        for a, force in enumerate([-functools.reduce(jnp.add, row), *row]):
            memory[own + np.int32((i * (d + 1) + a) * PATCH) + lanes] = force
    _barrier(shape.interpret)
    _add_up(d, shape, member, patch, own, starts, entries, sums, memory)
    _barrier(shape.interpret)


def _add_up(
    d: int, shape: Shape, member: Any, patch: Any, own: Any, starts: Any, entries: Any, sums: Any, memory: Any
) -> None:
    """The sums of one patch: a lane for each of its nodes."""
    lanes = jnp.arange(shape.width, dtype=jnp.int32)
    at = patch * np.int32(shape.width + 1) + lanes
    begin, end = starts[at], starts[at + 1]
    first = patch * np.int32((d + 1) * PATCH)

    def further(r: Any, totals: list[Any]) -> list[Any]:
        at = [begin + r * np.int32(AHEAD) + np.int32(k) for k in range(AHEAD)]
        counts = [x < end for x in at]
        slots = [own + entries[first + jnp.where(c, x, 0)] for c, x in zip(counts, at, strict=True)]
        parts = [[memory[x + np.int32(i * (d + 1) * PATCH)] for i in range(d)] for x in slots]
        for c, part in zip(counts, parts, strict=True):
            totals = [x + jnp.where(c, y, 0.0) for x, y in zip(totals, part, strict=True)]
        return totals

    zero = [jnp.zeros((shape.width,), memory.dtype) for _ in range(d)]
    rounds = jax.lax.div(jnp.max(end - begin) + np.int32(AHEAD - 1), np.int32(AHEAD))
    totals = jax.lax.fori_loop(np.int32(0), rounds, further, zero)
    for i, x in enumerate(totals):
        row = (member * np.int32(d) + np.int32(i)) * np.int32(shape.patches) + patch
        sums[row * np.int32(shape.width) + lanes] = x
