"""Sums over all pairs as a kernel for GPUs.

A lane is a particle i and adds up its own row in registers, over a part of the particles j, which all lanes read at the
same time; each pair is evaluated from both sides. The grid is blocks of `LANES` particles times parts of j, so many
that small systems fill the device too; the sums over the parts are added afterwards, in a fixed order. The function of
one pair is translated to fused operations like a step of the kernel engine.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engines.pallas import assembly
from ..engines.pallas.engine import PallasCode
from ..engines.scalar.fma_fusion import DeferredProduct
from ..engines.scalar.translate import ScalarInterpreter
from ..engines.scalar.values import filled
from .pair_reciprocals import Reciprocals
from .pair_terms import Chosen, Term, pair_program

LANES, WARPS = 128, 4  # particles i of one program of the grid, and its warps
PROGRAMS = 2112  # programs of the grid that fill a device: 16 for each of the 132 multiprocessors of an H100 or H200
UNROLLED = 4  # particles j of an iteration
LEAST = 32  # particles j of a program
NOWHERE = 2**30
INTERPRET = False  # run kernels without a GPU, for tests


class PairCode(Reciprocals, PallasCode):
    """Code of one pair, over the lanes."""

    def root(self, x: Any) -> tuple[Any, Any]:
        if self.interpret:
            return jnp.sqrt(x), 1 / jnp.sqrt(x)
        inverse = assembly.inverse_root(x)
        return jnp.where((x == 0) | (x == jnp.inf), x, x * inverse), inverse

    def reciprocal(self, x: Any) -> Any:
        return 1 / x if self.interpret else assembly.reciprocal(x)

    def product(self, x: Any, y: Any) -> Any:
        return x * y


class LeftOut(NamedTuple):
    """Which j each row leaves out: those from `low` to `high` − 1, and those of the columns `more` (k, rows)."""

    low: np.ndarray
    high: np.ndarray
    more: np.ndarray


class Shape(NamedTuple):
    """What is fixed when a kernel is compiled, besides its function."""

    particles: int
    blocks: int
    part: int  # particles j of a program
    interpret: bool

    @property
    def parts(self) -> int:
        return -(-self.particles // self.part)


def by_kernel(term: Term, order: int, *operands: Array) -> Array:
    """The operation `pair_sum` by a kernel."""
    function = functools.partial(_by_kernel, term, order)
    for _ in range(operands[0].ndim - 2):
        function = jax.vmap(function)
    return function(*operands)


def _by_kernel(term: Term, order: int, *operands: Array) -> Array:
    from jax.experimental import pallas as pl  # .4 s to import, and needed on a GPU alone

    vectors, sites = operands[: max(order, 1)], operands[max(order, 1) :]
    n, dimension = vectors[0].shape
    real, chosen = vectors[0].dtype, term.chosen(n)
    m = len(chosen.which)
    blocks = -(-m // LANES)
    part = -(-m // max(1, min(PROGRAMS // blocks, m // LEAST)))
    shape = Shape(m, blocks, part, INTERPRET)
    if term.on is not None:
        vectors, sites = [x[chosen.which] for x in vectors], [x[chosen.which] for x in sites]
    rows = jnp.concatenate([*(x.T for x in vectors), *(x[None] for x in sites)])
    rows = jnp.pad(rows, ((0, 0), (0, blocks * LANES - m)), mode="edge")
    outputs, out = dimension if order else 1, left_out(term, n, blocks * LANES)
    more: dict[str, Any] = {"interpret": True} if INTERPRET else {"compiler_params": _settings()}
    found = pl.pallas_call(
        functools.partial(_kernel, term, order, dimension, shape),
        out_shape=jax.ShapeDtypeStruct((shape.parts, outputs, blocks * LANES), real),
        grid=(blocks, shape.parts),
        name="geomint_pairs",
        **more,
    )(rows, *(jnp.asarray(x) for x in out))
    if order == 0:
        return 0.5 * jnp.sum(found)
    total = jnp.sum(found, axis=0).T[:m]
    return total if term.on is None else jnp.zeros((n, dimension), real).at[chosen.which].set(total)


def _settings() -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=WARPS, num_stages=1)


def _kernel(term: Term, order: int, dimension: int, shape: Shape, rows: Any, low: Any, high: Any, more: Any, out: Any):
    """One program: `LANES` rows, and a part of the columns."""
    from jax.experimental import pallas as pl

    mine, differing = pl.ds(pl.program_id(0) * LANES, LANES), max(order, 1) * dimension
    here = [rows[k, mine] for k in range(rows.shape[0])]
    first, last = low[mine], high[mine]
    others = [more[k, mine] for k in range(more.shape[0] if more.shape[0] > 1 else 0)]
    program = pair_program(term, order, dimension)

    def one(j: Any, sums: Any) -> Any:
        there = [rows[k, j] for k in range(rows.shape[0])]
        counts = (j < first) | (j >= last)
        for x in others:
            counts &= j != x
        apart = [_nearest(term, x - y, k, dimension) for k, (x, y) in enumerate(zip(here, there, strict=True))]
        apart = apart[:differing]
        sites = [jnp.broadcast_to(x, (LANES,)) for x in there[differing:]]
        code = PairCode(LANES, here[0].dtype, shape.interpret)
        given = [filled((), [x]) for x in (*apart, *here[differing:], *sites)]
        found = [x.item() for x in ScalarInterpreter(code).evaluate(program, given)]
        finite = {id(x) for x in apart}  # factors that need no mask; the others may be infinite where i = j
        masked = functools.cache(lambda k: jnp.where(counts, code.broadcast(by_id[k]), 0.0))
        by_id: dict[int, Any] = {}

        def part(x: Any) -> Any:
            by_id[id(x)] = x
            return x if id(x) in finite else masked(id(x))

        added = []
        for x, total in zip(found, sums, strict=True):
            product = isinstance(x, DeferredProduct)
            added.append(code.emit_fused("xy+z", part(x.x), part(x.y), total) if product else total + part(x))
        return added

    def several(k: Any, sums: Any) -> Any:
        for u in range(UNROLLED):
            sums = one(begin + k * UNROLLED + u, sums)
        return sums

    begin = pl.program_id(1) * shape.part
    end = jnp.minimum(begin + shape.part, shape.particles)
    whole = (end - begin) // UNROLLED
    sums = [jnp.zeros((LANES,), here[0].dtype) for _ in range(out.shape[1])]
    sums = jax.lax.fori_loop(0, whole, several, sums)
    sums = jax.lax.fori_loop(begin + whole * UNROLLED, end, one, sums)
    for c, x in enumerate(sums):
        out[pl.program_id(1), c, mine] = x


def _nearest(term: Term, d: Any, k: int, dimension: int) -> Any:
    if term.edges is None or k >= dimension:
        return d
    edge = term.edges[k]
    return d - edge * jnp.floor(d * (1.0 / edge) + 0.5)


def left_out(term: Term, n: int, padded: int) -> LeftOut:
    return _left_out(term, n, padded)


@functools.lru_cache(16)
def _left_out(term: Term, n: int, padded: int) -> LeftOut:
    chosen: Chosen = term.chosen(n)
    m = len(chosen.which)
    both = np.concatenate([chosen.excluded, chosen.excluded[:, ::-1]])
    of: dict[int, set[int]] = {}
    for i, j in both.tolist():
        of.setdefault(i, set()).add(j)
    low, high = np.arange(padded), np.arange(padded) + 1
    low[m:], high[m:] = 0, NOWHERE
    rest: dict[int, list[int]] = {}
    for i, js in of.items():
        a, b = i, i + 1
        while a - 1 in js:
            a -= 1
        while b in js:
            b += 1
        low[i], high[i] = a, b
        if outside := [j for j in js if not a <= j < b]:
            rest[i] = outside
    # At least two rows, so that the kernel has an array in any case; one row says that there is none.
    more = np.full((max(map(len, rest.values()), default=0) + 1, padded), NOWHERE)
    for i, js in rest.items():
        more[: len(js), i] = js
    return LeftOut(*(np.ascontiguousarray(x, np.int32) for x in (low, high, more)))
