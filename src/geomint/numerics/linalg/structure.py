"""The solver that fits the structure of a symmetric operator, found from its products with vectors.

    independent blocks (molecules)        → batched small Cholesky
    a band after reordering (chains, rings) → block-tridiagonal cyclic reduction, O(n)
    small                                 → dense Cholesky
    large and unstructured                → matrix-free conjugate gradients
    dependent rows (on request)           → least squares by a pseudo-inverse

`Plan.solve` solves once with a symmetric positive definite operator; `Plan.factor` prepares an operator that is close
to one for many solves. The matrix is assembled from one product per colour (columns that share no row are multiplied
together), not from n products.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.sparse.linalg import bicgstab
from jaxtyping import Array

from ...errors import InputError, nearest
from . import cpu_kernels
from .bands import band_entries
from .cholesky import UNROLLED, block_tridiagonal_solve, factor_solve
from .colouring import Pattern, column_colours
from .conjugate_gradients import conjugate_gradients
from .elimination import Band, Blocks, CyclicReduction, Factored, Triangles, Tridiagonal
from .sparsity import Products, pattern

KINDS = ("auto", "blocks", "banded", "dense", "matrix-free", "least-squares")
DENSE_LIMIT = 400  # unknowns up to which a matrix without structure is formed
TINY = 32  # unknowns up to which a dense matrix is faster than every structure but independent blocks
RANK = 1e-11  # singular values smaller than this fraction of the largest count as zero
BLOCK_LIMIT = 24  # rows of a block up to which blocks and bands are faster than a dense matrix

WIDE, LONG = 4, 64  # rows of a block, and unknowns, from which a band is eliminated row by row

Apply = Callable[[Array], Array]


class Solved(NamedTuple):
    x: Array
    pivot: Array  # the smallest: not positive means the operator is not positive definite


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """How K x = r is solved. Plans with equal contents are equal and hash alike, so that nothing is recompiled."""

    kind: str
    n: int
    description: str
    colours: np.ndarray | None = None  # of the columns
    order: np.ndarray | None = None  # (count, size): which unknown stands in which row of which block; n for padding
    diagonal: np.ndarray | None = None  # (count, size, size): mask of the entries K_ii that exist
    lower: np.ndarray | None = None  # likewise K_{i+1,i}, for bands
    # Prefer the fewest operations to the shortest chain of dependent ones: other systems are solved at the same time.
    fewest: bool = False

    def __post_init__(self):
        digest = hashlib.sha256(f"{self.kind} {self.n} {self.fewest}".encode())
        for x in (self.colours, self.order, self.diagonal, self.lower):
            digest.update(b"-" if x is None else np.ascontiguousarray(x).tobytes())
        object.__setattr__(self, "digest", digest.hexdigest())

    def __hash__(self) -> int:
        return hash(self.__dict__["digest"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.__dict__["digest"] == other.__dict__["digest"]

    @property
    def assembled(self) -> bool:
        """Whether the solver uses the pattern found at the start (then a changed pattern must be detected)."""
        return self.kind in ("blocks", "banded")

    def solve(self, apply: Apply, right: Array, diagonal: Array | None = None, rough: bool = False) -> Solved:
        """K x = right, where apply(v) = K v on flat vectors. For conjugate gradients: `diagonal` is a positive diagonal
        near that of K, the preconditioner; with `rough` four digits will do."""
        if self.kind == "matrix-free":
            return _matrix_free(apply, right, diagonal, 1e-4 if rough else 0.0)
        if self.kind == "least-squares":
            return _least_squares(apply, right)
        if self.kind == "dense":
            x, pivot = factor_solve(self._matrix(apply, right.dtype)[None], right[None, :, None])
            return Solved(x[0, :, 0], pivot)
        products, diagonal = self._assembled(apply, right.dtype)
        r = self._in_blocks(right)
        if self.kind == "blocks":
            x, pivot = factor_solve(diagonal, r[..., None])
            x = x[..., 0]
        else:
            x, pivot = block_tridiagonal_solve(diagonal, self._lower(products), r)
        return Solved(self._flat(x), pivot)

    def factor(self, apply: Apply, dtype: Any, rough: bool = False) -> Factored:
        """K prepared for many solves, where apply(v) = K v and K need not be symmetric, only close to positive
        definite. With `rough`, reciprocals are accurate to ten digits only."""
        if self.kind == "matrix-free":
            return _Iterated(jax.tree_util.Partial(apply))
        if self.kind == "least-squares":
            return _Planned(self, Blocks(jnp.linalg.pinv(self._matrix(apply, dtype).T, rtol=RANK)[None]))
        if self.kind == "dense":
            return _Planned(self, self._blocks(self._matrix(apply, dtype).T[None], rough))
        if self.kind == "banded" and self._tridiagonal and cpu_kernels.available():
            return Tridiagonal.of(*self._rows(apply, dtype))
        if self._wide and self.order is not None and cpu_kernels.available():
            return _Planned(self, Band.of(self._band(apply, dtype), self.order.shape))
        products, diagonal = self._assembled(apply, dtype)
        if self.kind == "blocks":
            return _Planned(self, self._blocks(diagonal, rough))
        return _Planned(self, CyclicReduction.of(diagonal, self._lower(products), self._upper(products)))

    def product(self, apply: Apply, v: Array) -> Array:
        """K v from the entries in the pattern of the plan, for blocks and bands. It differs from apply(v) where K has
        other entries."""
        products, diagonal = self._assembled(apply, v.dtype)
        x = self._in_blocks(v)
        y = jnp.einsum("kij,kj->ki", diagonal, x)
        if self.kind == "banded":
            after = jnp.concatenate([x[1:], jnp.zeros_like(x[:1])])
            below = jnp.einsum("kij,kj->ki", self._lower(products), x)
            above = jnp.einsum("kij,kj->ki", self._upper(products), after)
            y = y + above + jnp.concatenate([jnp.zeros_like(x[:1]), below[:-1]])
        return self._flat(y)

    def _blocks(self, matrices: Array, rough: bool) -> Factored:
        return Triangles.of(matrices, rough) if self.fewest and matrices.shape[-1] <= UNROLLED else Blocks.of(matrices)

    def _matrix(self, apply: Apply, dtype: Any) -> Array:
        """Kᵀ: row i is K e_i."""
        return jax.vmap(apply)(jnp.eye(self.n, dtype=dtype))

    def _assembled(self, apply: Apply, dtype: Any) -> tuple[Array, Array]:
        """The products (colour, row), and the blocks on the diagonal."""
        assert self.colours is not None
        assert self.order is not None
        seeds = self.colours[None, :] == np.arange(self.colours.max() + 1)[:, None]
        products = jax.vmap(apply)(jnp.asarray(seeds, dtype))
        padding = (self.order == self.n)[..., None] * np.eye(self.order.shape[1])
        return products, self._gather(products, self.order, self.order, self.diagonal) + padding

    @property
    def _tridiagonal(self) -> bool:
        assert self.order is not None
        return self.order.shape[1] == 1 and self._natural_order

    def _rows(self, apply: Apply, dtype: Any) -> tuple[Array, Array, Array]:
        """The three diagonals of a tridiagonal K, each padded to n entries. The entries are selected from the products
        by masked sums, which XLA fuses, unlike a gather."""
        assert self.colours is not None
        assert self.lower is not None
        seeds = self.colours[None, :] == np.arange(self.colours.max() + 1)[:, None]
        products = jax.vmap(apply)(jnp.asarray(seeds, dtype))
        coupled = self.lower[: self.n - 1, 0, 0]
        before, after = (
            np.roll(seeds, 1, axis=1) & np.append(False, coupled),
            np.roll(seeds, -1, axis=1) & np.append(coupled, False),
        )
        picked = lambda mask: jnp.sum(jnp.where(mask, products, 0.0), axis=0)
        return picked(before), picked(seeds), picked(after)

    @property
    def _wide(self) -> bool:
        """Whether elimination row by row is faster than cyclic reduction: for a chain of 100 rigid bodies, blocks of 9,
        it takes a third of the time."""
        return self.kind == "banded" and self.order is not None and self.order.shape[1] >= WIDE and self.n >= LONG

    def _band(self, apply: Apply, dtype: Any) -> Array:
        """The entries K_ij at [i, w + j − i], rows and columns in the order of the blocks."""
        assert self.colours is not None
        entries = band_entries(self)
        seeds = self.colours[None, :] == np.arange(self.colours.max() + 1)[:, None]
        products = jax.vmap(apply)(jnp.asarray(seeds, dtype))
        return jnp.where(entries.known, products[entries.colours, entries.rows], 0.0)

    def _next(self) -> np.ndarray:
        assert self.order is not None
        return np.concatenate([self.order[1:], np.full_like(self.order[:1], self.n)])

    def _lower(self, products: Array) -> Array:
        assert self.order is not None
        return self._gather(products, self._next(), self.order, self.lower)

    def _upper(self, products: Array) -> Array:
        assert self.order is not None
        assert self.lower is not None
        return self._gather(products, self.order, self._next(), np.swapaxes(self.lower, -1, -2))

    def _in_blocks(self, right: Array) -> Array:
        if self.order is None:
            return right[None]
        if self._natural_order:
            return jnp.pad(right, (0, self.order.size - self.n)).reshape(self.order.shape)
        return jnp.concatenate([right, jnp.zeros(1, right.dtype)])[self.order]

    def _flat(self, x: Array) -> Array:
        if self.order is None:
            return x[0]
        if self._natural_order:
            return x.ravel()[: self.n]
        place = np.empty(self.n + 1, int)
        place[self.order.ravel()] = np.arange(self.order.size)
        return x.ravel()[place[: self.n]]

    @property
    def _natural_order(self) -> bool:
        """Whether the unknowns are in their natural order: then padding replaces a gather, which costs more."""
        assert self.order is not None
        return bool(np.array_equal(self.order.ravel()[: self.n], np.arange(self.n)))

    def _gather(self, products: Array, rows: np.ndarray, columns: np.ndarray, mask: np.ndarray | None) -> Array:
        """The entries K[rows, columns] from the coloured products: column j of K is in the product of its colour."""
        assert self.colours is not None
        assert mask is not None
        colour = np.concatenate([self.colours, [0]])[columns]
        row = np.minimum(rows, self.n - 1)
        entries = products[colour[:, None, :], row[:, :, None]]
        return jnp.where(mask, entries, 0.0)


class _Planned(Factored):
    """Factors of the matrix with its rows in the order of a plan."""

    plan: Plan = eqx.field(static=True)
    factored: Factored

    def solve(self, right: Array) -> Array:
        return self.plan._flat(self.factored.solve(self.plan._in_blocks(right)))


class _Iterated(Factored):
    """No factors; an inexact iterative solve. The caller iterates until its own residual vanishes."""

    apply: Any

    def solve(self, right: Array) -> Array:
        return bicgstab(self.apply, right, tol=1e-10, maxiter=500)[0]


def _matrix_free(apply: Apply, right: Array, diagonal: Array | None = None, tolerance: float = 0.0) -> Solved:
    """Conjugate gradients, differentiated as a linear solve. For a sheet of 20,000 nodes a product by differentiation
    takes 0.9 ms and one with an assembled sparse matrix 1.1 ms: nothing is assembled."""
    inverse = 1.0 if diagonal is None else jax.lax.stop_gradient(1 / diagonal)

    def solve(operator: Apply, r: Array) -> tuple[Array, Array]:
        return conjugate_gradients(operator, r, inverse, tolerance=tolerance)

    x, curvature = jax.lax.custom_linear_solve(apply, right, solve, symmetric=True, has_aux=True)
    return Solved(x, curvature)


def _least_squares(apply: Apply, right: Array) -> Solved:
    """The smallest x that minimises |K x − right|, for a symmetric K that may be singular."""

    def solve(operator: Apply, r: Array) -> Array:
        matrix = jax.vmap(operator)(jnp.eye(r.size, dtype=r.dtype))
        return jnp.linalg.pinv(matrix, rtol=RANK, hermitian=True) @ r

    return Solved(jax.lax.custom_linear_solve(apply, right, solve, symmetric=True), jnp.ones((), right.dtype))


def dense_plan(n: int) -> Plan:
    return Plan("dense", n, f"dense Cholesky of {n} unknowns")


def matrix_free_plan(n: int) -> Plan:
    return Plan("matrix-free", n, f"matrix-free conjugate gradients on {n} unknowns")


def least_squares_plan(n: int) -> Plan:
    """For operators with dependent rows. Above DENSE_LIMIT conjugate gradients: they converge to the smallest
    solution."""
    return (
        Plan("least-squares", n, f"least squares by the pseudo-inverse of {n} unknowns")
        if n <= DENSE_LIMIT
        else matrix_free_plan(n)
    )


def fallback(n: int) -> Plan:
    """The plan for an operator of unknown structure."""
    return dense_plan(n) if n <= DENSE_LIMIT else matrix_free_plan(n)


def find(products: Products, n: int, kind: str = "auto", tiny: int = TINY) -> Plan:
    """The plan for an operator given by its products; `kind` overrides the choice. Up to `tiny` unknowns a dense matrix
    is preferred to a band."""
    if kind not in KINDS:
        raise InputError(f"solver={kind!r}: there is no such solver." + nearest(kind, KINDS))
    if kind in ("dense", "matrix-free", "least-squares"):
        makers = {"dense": dense_plan, "matrix-free": matrix_free_plan, "least-squares": least_squares_plan}
        return makers[kind](n)
    return plan_of_pattern(pattern(products, n) if n > 1 else None, n, kind, tiny)


def plan_of_pattern(found: Pattern | None, n: int, kind: str = "auto", tiny: int = TINY) -> Plan:
    """The plan for an operator with nonzeros in a known symmetric pattern; None for an unknown one."""
    if found is not None:
        plan = _block_plan(found, n) if kind in ("auto", "blocks") else None
        if plan is None and kind in ("auto", "banded"):
            plan = _band_plan(found, n, tiny if kind == "auto" else 0)
        if plan is not None:
            return plan
    if kind != "auto":
        raise InputError(f"solver={kind!r} does not fit: the matrix has no such structure. Leave solver='auto'.")
    return fallback(n)


def _masks(found: Pattern, order: np.ndarray, rows: np.ndarray, n: int) -> np.ndarray:
    """(count, size, size): whether entry (rows[k, a], order[k, b]) is in the pattern."""
    from scipy import sparse

    padded: Pattern = sparse.csr_matrix(
        (found.data, found.indices, np.append(found.indptr, found.indptr[-1])), shape=(n + 1, n)
    ).astype(bool)
    padded = sparse.hstack([padded, sparse.csr_matrix((n + 1, 1), dtype=bool)], format="csr")
    a, b = np.broadcast_arrays(rows[:, :, None], order[:, None, :])
    return np.asarray(padded[a.ravel(), b.ravel()]).reshape(a.shape)


def _block_plan(found: Pattern, n: int) -> Plan | None:
    """Independent blocks, or None where there are none or they are too large."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(found, directed=False)
    sizes = np.bincount(label)
    size = int(sizes.max())
    if count < 2 or size > BLOCK_LIMIT:
        return None
    order = np.full((count, size), n)
    members = np.argsort(label, kind="stable")
    within = np.concatenate([np.arange(s) for s in sizes])
    order[label[members], within] = members
    colours = column_colours(found)
    what = f"batched Cholesky of {count} independent blocks of up to {size} unknowns, {colours.max() + 1} products"
    return Plan("blocks", n, what, colours, order, _masks(found, order, order, n))


def _band_plan(found: Pattern, n: int, tiny: int) -> Plan | None:
    """A block-tridiagonal band, in the natural order or after reordering; None where the blocks are too large."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    natural = np.arange(n)
    reordered = reverse_cuthill_mckee(found, symmetric_mode=True)
    best = min(((_block_size(found, p), p) for p in (natural, reordered)), key=lambda pair: pair[0])
    size, permutation = best
    if size > BLOCK_LIMIT or (tiny and n <= max(tiny, 3 * size)):
        return None
    count = -(-n // size)
    count = 1 << (count - 1).bit_length()
    order = np.full(count * size, n)
    order[:n] = permutation
    order = order.reshape(count, size)
    below = np.concatenate([order[1:], np.full_like(order[:1], n)])
    colours = column_colours(found)
    what = (
        f"elimination in a tridiagonal band of {n}"
        if size == 1
        else f"elimination in a band of {-(-n // size)} blocks of {size}"
        if size >= WIDE and n >= LONG
        else f"cyclic reduction of {-(-n // size)} blocks of {size}"
    )
    what = f"{what} unknowns{' in a band' if what.startswith('cyclic') else ''}, {colours.max() + 1} products"
    return Plan("banded", n, what, colours, order, _masks(found, order, order, n), _masks(found, order, below, n))


def _block_size(found: Pattern, permutation: np.ndarray) -> int:
    """The smallest block for which the reordered pattern is block tridiagonal."""
    place = np.empty(len(permutation), int)
    place[permutation] = np.arange(len(permutation))
    rows, columns = found.nonzero()
    i, j = place[rows], place[columns]
    width = int(np.max(np.abs(i - j)))
    if (width + 1) // 2 > BLOCK_LIMIT:
        return width  # too large in any case
    return next(
        (b for b in range(max(1, (width + 1) // 2), width + 1) if np.max(np.abs(i // b - j // b)) <= 1), max(1, width)
    )
