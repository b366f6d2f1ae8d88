"""Sums over all pairs as a kernel for GPUs.

Each pair is evaluated once. Particles are cut into blocks of 32 · `rows` consecutive ones, and a program of the grid,
which is one warp, takes a block A with one or several groups of 32 particles of another block B: a lane holds `rows`
particles i of A and one particle j of the group, evaluates them, and adds the result to the sums of i and, with the
opposite sign, to that of j. Then the particles j move on to the next lane with their sums, and after 32 such rotations
every pair of the tile has been evaluated. Block A takes the blocks B = A, A + 1, …, A + ⌊b/2⌋ modulo the number b of
blocks, so that each pair of blocks meets once and all programs have the same length. Sums are written for each tile and
added up afterwards in a fixed order: results do not depend on the order in which programs end.

The function of one pair is translated to fused operations like a step of the kernel engine.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engines.pallas import assembly
from ..engines.pallas.code import PallasCode
from ..engines.scalar.fma_fusion import DeferredProduct
from ..engines.scalar.translate import ScalarInterpreter
from ..engines.scalar.values import filled
from .pair_terms import Chosen, Term, pair_program

LANES = 32  # of a warp; also the particles j of a group
ROWS = {0: 1, 1500: 2, 8000: 4}  # particles i of a lane, from so many particles on: more of them use fewer rotations
PROGRAMS = 16896  # a program takes several groups where there are more than so many programs: 32 warps for each of the
# 4 · 132 quarters of the multiprocessors of an H100 or H200
UNROLLED = 4  # pairs of a lane in an iteration, of as many rotations as that takes; a power of two
NUMBERS = 2**26  # of sums in memory at a time; larger systems take several launches
NOWHERE = 2**30
INTERPRET = False  # run kernels without a GPU, for tests


class PairCode(PallasCode):
    """Code of one pair, over the lanes."""

    by_reciprocals = True


class LeftOut(NamedTuple):
    """Which j each row leaves out: those from `low` to `high` − 1, and those of the columns `more` (k, rows)."""

    low: np.ndarray
    high: np.ndarray
    more: np.ndarray


class Shape(NamedTuple):
    """What is fixed when a kernel is compiled, besides its function."""

    particles: int
    rows: int  # particles i of a lane
    run: int  # groups of a program
    programs: int  # along the groups of all blocks B, in one launch
    reach: int  # the largest difference of the numbers of two particles whose pair is left out
    interpret: bool

    @property
    def block(self) -> int:
        return self.rows * LANES

    @property
    def unrolled(self) -> int:
        """Rotations of an iteration."""
        return min(max(1, UNROLLED // self.rows), LANES)

    @property
    def blocks(self) -> int:
        return -(-self.particles // self.block)

    @property
    def groups(self) -> int:
        """Of the blocks B that a block meets."""
        return (self.blocks // 2 + 1) * self.rows

    @property
    def offsets(self) -> int:
        """Blocks B that a block meets in one launch."""
        return self.run * self.programs // self.rows

    @property
    def launches(self) -> int:
        return -(-self.groups // (self.run * self.programs))

    @property
    def far(self) -> int:
        """Blocks whose numbers differ by so many have no pair that is left out."""
        return 1 + -(-self.reach // self.block)

    @property
    def full(self) -> int:
        """Blocks without padding: all, or all but the last one."""
        return self.particles // self.block


def shape_of(particles: int, numbers: int, reach: int) -> Shape:
    """`numbers`: that a particle adds up. The groups of a launch are those of whole blocks B."""
    rows = next(rows for least, rows in sorted(ROWS.items(), reverse=True) if particles >= least)
    one = Shape(particles, rows, 1, 1, reach, INTERPRET)
    run = one.blocks * one.groups // PROGRAMS
    run = run // rows * rows or 1
    together = rows // math.gcd(rows, run)  # programs of a block B
    most = NUMBERS * rows // ((run + rows) * numbers * one.blocks * one.block)
    programs = min(max(1, most // together), -(-one.groups // (run * together)))
    return one._replace(run=run, programs=programs * together)


def by_kernel(term: Term, order: int, *operands: Array) -> Array:
    """The operation `pair_sum` by a kernel."""
    function = functools.partial(_by_kernel, term, order)
    for _ in range(operands[0].ndim - 2):
        function = jax.vmap(function)
    return function(*operands)


def _by_kernel(term: Term, order: int, *operands: Array) -> Array:
    vectors, sites = operands[: max(order, 1)], operands[max(order, 1) :]
    n, dimension = vectors[0].shape
    chosen, numbers = term.chosen(n), dimension if order else 1
    m = len(chosen.which)
    shape = shape_of(m, numbers, int(np.max(np.ptp(chosen.excluded, axis=1), initial=0)))
    padded = shape.blocks * shape.block
    # Gathers instead of slices, pads and scatters, because XLA fuses them into one GPU kernel: for a thousand molecules
    # each further kernel of a step counts.
    taken = np.pad(chosen.which, (0, padded - m), mode="edge")
    rows = jnp.concatenate([*(x[taken].T for x in vectors), *(x[taken][None] for x in sites)])
    out = [jnp.asarray(x) for x in left_out(term, n, padded)]
    launch = functools.partial(_launch, term, order, dimension, shape, rows, out)
    if shape.launches == 1:
        total = launch(0)
    else:
        zero = jnp.zeros((numbers, padded), rows.dtype)
        total = jax.lax.fori_loop(0, shape.launches, lambda k, total: total + launch(k), zero)
    if order == 0:
        return jnp.sum(total)
    if term.on is None:
        return total.T[:m]
    place = np.full(n, -1)
    place[chosen.which] = np.arange(m)
    return jnp.where(place[:, None] >= 0, total.T[np.maximum(place, 0)], 0.0)


def _launch(term: Term, order: int, dimension: int, shape: Shape, rows: Any, out: Any, launch: Any) -> Array:
    """The sums (numbers, padded particles) over the groups of one launch."""
    from jax.experimental import pallas as pl  # .4 s to import, and needed on a GPU alone

    numbers, padded, kind = dimension if order else 1, rows.shape[1], rows.dtype
    # Sums of i, for each program, and after them of j, for each block A that a block meets.
    sums = shape.programs + (shape.offsets if order else 0)
    more: dict[str, Any] = {"interpret": True} if shape.interpret else {"compiler_params": _settings()}
    found = pl.pallas_call(
        functools.partial(_kernel, term, order, dimension, shape),
        out_shape=jax.ShapeDtypeStruct((sums, numbers, padded), kind),
        grid=(shape.blocks, shape.programs),
        name="geomint_pairs",
        **more,
    )(jnp.reshape(jnp.asarray(launch * shape.run * shape.programs, jnp.int32), 1), rows, *out)
    return jnp.sum(found, axis=0)


def _settings() -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=1, num_stages=1)


class Row(NamedTuple):
    """Particles i, one in each lane."""

    values: list[Any]
    low: Any  # the first and
    high: Any  # the last particle, plus 1, of those around i without a pair with it, i itself included
    others: list[Any]  # without a pair with i


def _kernel(term: Term, order: int, dimension: int, shape: Shape, first: Any, rows: Any, *refs: Any) -> None:
    """One program: a block A with `run` groups."""
    from jax.experimental import pallas as pl

    low, high, more, out = refs
    a, begin = pl.program_id(0), first[0] + pl.program_id(1) * shape.run
    mine = [pl.ds(a * shape.block + k * LANES, LANES) for k in range(shape.rows)]
    others = range(more.shape[0] if more.shape[0] > 1 else 0)
    values = lambda at: [rows[c, at] for c in range(rows.shape[0])]
    here = [Row(values(at), low[at], high[at], [more[c, at] for c in others]) for at in mine]
    zeros = [jnp.zeros((LANES,), rows.dtype) for _ in range(out.shape[1])]
    lanes = jnp.arange(LANES, dtype=jnp.int32)
    next_lane = (lambda x: jnp.roll(x, -1)) if shape.interpret else assembly.next_lane

    def group(k: Any, sums: Any) -> Any:
        number = begin + k
        offset = jax.lax.div(number, np.int32(shape.rows))
        b = jax.lax.rem(a + offset, np.int32(shape.blocks))
        at = b * shape.block + jax.lax.rem(number, np.int32(shape.rows)) * LANES
        # Inside a block the particles j after i are taken.
        block = [row._replace(low=jnp.where(offset == 0, np.int32(0), row.low)) for row in here]

        def rotations(masked: bool, k: Any, moving: Any) -> Any:
            for turn in range(shape.unrolled):
                sums, there, theirs = moving
                j = at + ((lanes + (k * shape.unrolled + turn)) & (LANES - 1)) if masked else None
                added = []
                for row, total in zip(block, sums, strict=True):
                    total, theirs = _pair(term, order, dimension, shape, row, there, j, total, theirs)
                    added.append(total)
                moving = added, [next_lane(x) for x in there], [next_lane(x) for x in theirs]
            return moving

        # Of an even number of blocks the last offset leads to each pair of blocks twice.
        counts = (number < shape.groups) & ((2 * offset != shape.blocks) | (a < offset))
        whole = (jnp.abs(a - b) >= shape.far) & (jnp.maximum(a, b) < shape.full)  # all pairs count: no masks
        moving = sums, values(pl.ds(at, LANES)), zeros if order else []
        for masked, taken in ((True, counts & ~whole), (False, counts & whole)):
            turns = jnp.where(taken, np.int32(LANES // shape.unrolled), np.int32(0))
            moving = jax.lax.fori_loop(np.int32(0), turns, functools.partial(rotations, masked), moving)
        sums, _, theirs = moving
        met = shape.programs + offset - jax.lax.div(first[0], np.int32(shape.rows))
        for c, x in enumerate(theirs):
            out[met, c, pl.ds(at, LANES)] = x
        return sums

    sums = jax.lax.fori_loop(np.int32(0), np.int32(shape.run), group, [zeros] * shape.rows)
    for at, total in zip(mine, sums, strict=True):
        for c, x in enumerate(total):
            out[pl.program_id(1), c, at] = x


def _pair(
    term: Term, order: int, dimension: int, shape: Shape, row: Row, there: Any, j: Any, sums: Any, theirs: Any
) -> tuple[Any, Any]:
    """The sums of i and of j (none for the energy) with the pair of each lane added. j: the particle of each lane, from
    which follows whether the pair counts; None where all pairs do."""
    differing = max(order, 1) * dimension
    apart = [_nearest(term, x - y, k, dimension) for k, (x, y) in enumerate(zip(row.values, there, strict=True))]
    apart = apart[:differing]
    code = PairCode(LANES, row.values[0].dtype, shape.interpret)
    given = [filled((), [x]) for x in (*apart, *row.values[differing:], *there[differing:])]
    found = [x.item() for x in ScalarInterpreter(code).evaluate(pair_program(term, order, dimension), given)]
    # Factors of distances need no mask; the others may be infinite where i = j.
    part = code.broadcast if j is None else _masked(code, row, j, shape.particles, {id(x) for x in apart})
    added, taken = [], []
    for k, (x, total) in enumerate(zip(found, sums, strict=True)):
        if isinstance(x, DeferredProduct):
            factors = part(x.x), part(x.y)
            added.append(code.emit_fused("xy+z", *factors, total))
            taken += [code.emit_fused("z-xy", *factors, theirs[k])] if theirs else []
        else:
            value = part(x)
            added.append(total + value)
            taken += [theirs[k] - value] if theirs else []
    return added, taken


def _masked(code: PairCode, row: Row, j: Any, particles: int, finite: set[int]) -> Any:
    """A function of a number of the pairs: 0 where a pair does not count, except for those of `finite`."""
    counts = ((j < row.low) | (j >= row.high)) & (j < particles)
    for x in row.others:
        counts &= j != x
    found: dict[int, Any] = {}

    def part(x: Any) -> Any:
        if id(x) not in found:
            found[id(x)] = x if id(x) in finite else jnp.where(counts, code.broadcast(x), 0.0), x
        return found[id(x)][0]

    return part


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
