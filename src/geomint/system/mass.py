"""The mass, as the user states it: a number, an array that broadcasts to q, a block for each body, or a matrix, dense
or sparse. `inertia` has the products and solves with it."""

from __future__ import annotations

import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import InputError
from ..numerics.linalg.sparse_matrix import SparseMatrix
from ..numerics.linalg.structure import DENSE_LIMIT
from .checks import as_array

KINDS = "a number, an array that broadcasts to q, a block (d, d) for each body, or a matrix, dense or scipy.sparse"


def checked_mass(mass: Any) -> Any:
    if isinstance(mass, SparseMatrix):
        return mass
    if is_scipy_sparse(mass):
        return checked_sparse(mass, "mass")
    if not isinstance(mass, Tracer):
        try:
            mass = as_array(mass, "mass")
        except InputError as error:
            if "not finite" in str(error):
                raise
            joined = "; blocks of several sizes are one matrix, scipy.sparse.block_diag(mass)"
            raise InputError(f"mass must be {KINDS}{joined if isinstance(mass, list | tuple) else ''}.") from None
        if mass.size == 0:
            raise InputError(f"mass must be {KINDS}, not of shape {mass.shape}.")
    mass = jnp.asarray(mass, float)
    if isinstance(mass, Tracer):
        return mass
    square = mass.ndim >= 2 and mass.shape[-2] == mass.shape[-1]
    if not square and not np.all(np.asarray(mass) > 0):
        raise InputError(f"mass must be positive; its smallest entry is {np.min(mass):g}.")
    return mass


def is_scipy_sparse(x: Any) -> bool:
    sparse = sys.modules.get("scipy.sparse")  # whoever has such a matrix has imported it; importing takes 0.1 s
    return sparse is not None and sparse.issparse(x)


def checked_sparse(matrix: Any, name: str) -> Any:
    """A scipy.sparse matrix, checked for all that does not need the shape of q; a number where it is 1 × 1."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.shape[0]:
        raise InputError(f"{name} must be a square matrix; this sparse matrix has shape {matrix.shape}.")
    if np.issubdtype(matrix.dtype, np.complexfloating):
        raise InputError(f"{name} must be real; this sparse matrix has entries of type {matrix.dtype}.")
    rows = matrix.tocsr().astype(float)
    if not np.all(np.isfinite(rows.data)):
        wrong = rows.data[~np.isfinite(rows.data)][:3]
        raise InputError(f"{name} has entries that are not finite: {wrong}.")
    if rows.shape == (1, 1):
        return jnp.asarray(rows.toarray()[0, 0])
    largest, off = abs(rows).max(), abs(rows - rows.T).max()
    if off > 1e-12 * largest:
        raise InputError(f"{name} must be symmetric; {name} and its transpose differ by {off:.2g}.")
    return SparseMatrix.of(rows)


def mass_is_matrix(mass: Any, q_shape: tuple[int, ...]) -> bool:
    """Whether a mass couples entries of q: it does, unless it broadcasts to q."""
    if isinstance(mass, SparseMatrix):
        return True
    try:
        return np.broadcast_shapes(mass.shape, q_shape) != tuple(q_shape)
    except ValueError:
        return True


def mass_is_blocks(mass: Any, q_shape: tuple[int, ...]) -> bool:
    """Whether a mass is a matrix (d, d) for each body, q of shape (…, d)."""
    return len(q_shape) > 1 and not isinstance(mass, SparseMatrix) and mass.shape == (*q_shape, q_shape[-1])


def mass_matrix(mass: Any, q_shape: tuple[int, ...]) -> Any:
    """M on the flattened q as a dense matrix, for analyses of small systems."""
    n = int(np.prod(q_shape))
    if isinstance(mass, SparseMatrix):
        dense = mass.to_scipy().toarray()
        return dense if len(dense) == n else np.kron(dense, np.eye(n // len(dense)))
    mass = np.asarray(mass)
    if mass_is_blocks(mass, q_shape):
        from scipy.linalg import block_diag

        return block_diag(*mass.reshape(-1, *mass.shape[-2:]))
    return mass if mass_is_matrix(mass, q_shape) else np.diag(np.broadcast_to(mass, q_shape).ravel())


def check_unambiguous(mass: Any, q_shape: tuple[int, ...], name: str = "mass") -> None:
    """Refuse a mass (or a damping) that fits q in two ways: [1, 3] for two bodies in the plane may be meant for the
    bodies or for the axes, and broadcasting would silently take the last axes. A mass with equal entries is accepted:
    both readings agree."""
    shape, k = tuple(mass.shape), mass.ndim
    fitting = [first for first in range(len(q_shape) - k + 1) if q_shape[first : first + k] == shape]
    if k == 0 or 1 in shape or len(fitting) < 2:
        return
    if not isinstance(mass, Tracer) and np.all(np.asarray(mass) == np.ravel(mass)[0]):
        return
    readings = []
    for first in fitting:
        places = ", ".join(":" if first <= d < first + k else "None" for d in range(len(q_shape)))
        meant = (
            " (one for each body)"
            if first == 0
            else " (one for each coordinate axis)"
            if first + k == len(q_shape)
            else ""
        )
        readings.append(
            f"{name}[{places}] for axis {first}{meant}"
            if k == 1
            else f"{name}[{places}] for axes {first} to {first + k - 1}{meant}"
        )
    raise InputError(
        f"{name} of shape {shape} can be read in {len(fitting)} ways for q0 of shape {q_shape}; write "
        f"{', or '.join(readings)}."
    )


def check_mass(system: Any, q_shape: tuple[int, ...]) -> None:
    """Now that the shape of q is known: the mass broadcasts to it, or is symmetric and positive definite."""
    mass, shape, n = system.mass, system.mass.shape, int(np.prod(q_shape))
    if isinstance(mass, SparseMatrix):
        return _check_sparse(mass, tuple(q_shape))
    check_unambiguous(mass, tuple(q_shape))
    matrix, blocks = mass_is_matrix(mass, q_shape), mass_is_blocks(mass, q_shape)
    if matrix and not blocks and shape != (n, n):
        blocks_of = (*q_shape, q_shape[-1]) if len(q_shape) > 1 else None
        each = f", blocks {blocks_of}" if blocks_of else ""
        hint = ""
        if blocks_of and shape == blocks_of[-2:]:
            hint = f" For the same block for all bodies, np.broadcast_to(mass, {blocks_of})."
        elif len(shape) == 3 and shape[0] * shape[1] == n and shape[1] == shape[2]:
            hint = " For blocks on the flattened q, scipy.sparse.block_diag(mass)."
        raise InputError(
            f"mass has shape {shape}, but q0 has shape {tuple(q_shape)}: give a number, an array that broadcasts "
            f"to {tuple(q_shape)}{each}, or a matrix ({n}, {n}).{hint}"
        )
    if len(shape) < 2 or shape[-2] != shape[-1] or isinstance(mass, Tracer):
        return
    mass = np.asarray(mass)
    if not matrix:
        if not np.all(mass > 0):
            raise InputError(f"mass must be positive; its smallest entry is {mass.min():g}.")
        return
    off = np.max(np.abs(mass - np.swapaxes(mass, -1, -2)))
    if off > 1e-12 * np.max(np.abs(mass)):
        raise InputError(f"mass must be symmetric; mass and its transpose differ by {off:.2g}.")
    _check_definite(mass)


def _check_definite(mass: np.ndarray) -> None:
    """Of a matrix, or of a batch of them; beyond DENSE_LIMIT unknowns by a Cholesky factorisation, which costs less
    than eigenvalues."""
    if mass.shape[-1] <= DENSE_LIMIT:
        smallest = float(np.min(np.linalg.eigvalsh(mass)[..., 0]))
        if smallest <= 0:
            raise InputError(f"mass must be positive definite; its smallest eigenvalue is {smallest:.3g}.")
        return
    try:
        np.linalg.cholesky(mass)
    except np.linalg.LinAlgError:
        raise InputError("mass must be positive definite; its Cholesky factorisation fails.") from None


def _check_sparse(mass: SparseMatrix, q_shape: tuple[int, ...]) -> None:
    from scipy import sparse

    n, size = mass.shape[0], int(np.prod(q_shape))
    if n not in (size, q_shape[0] if q_shape else 1):
        first = f", or ({q_shape[0]}, {q_shape[0]}) to act on each component" if len(q_shape) > 1 else ""
        raise InputError(
            f"mass is a sparse matrix of shape {mass.shape}, but q0 has shape {q_shape}: give one of shape "
            f"({size}, {size}){first}."
        )
    if isinstance(mass.values, Tracer):
        return
    matrix = mass.to_scipy()
    through = matrix.diagonal()
    if np.min(through) <= 0:
        i = int(np.argmin(through))
        raise InputError(f"mass must be positive definite; its diagonal entry {i} is {through[i]:g}.")
    scale = sparse.diags(1 / np.sqrt(through))
    scaled = (scale @ matrix @ scale).tocsr()
    narrow = mass.pattern.plan.assembled and n > DENSE_LIMIT
    if narrow and _smallest_pivot(scaled) <= 1e-13:
        raise InputError(
            "mass must be positive definite; scaled to a diagonal of ones, its Cholesky factorisation fails or has a "
            "pivot of the size of rounding."
        )
    if not narrow and (smallest := _smallest_eigenvalue(scaled)) <= 1e-13:
        raise InputError(
            f"mass must be positive definite; scaled to a diagonal of ones, its smallest eigenvalue is {smallest:.3g}."
        )


def _smallest_pivot(matrix: Any) -> float:
    """Of the Cholesky factorisation of a sparse matrix with blocks or a band; 0 where it fails."""
    from scipy.linalg import cholesky_banded
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    entries = matrix[order][:, order].tocoo()
    below = entries.row - entries.col
    band = np.zeros((int(below.max()) + 1, matrix.shape[0]))
    lower = below >= 0
    band[below[lower], entries.col[lower]] = entries.data[lower]
    try:
        return float(np.min(cholesky_banded(band, lower=True)[0]) ** 2)
    except np.linalg.LinAlgError:
        return 0.0


def _smallest_eigenvalue(scaled: Any) -> float:
    """Of a large matrix by Lanczos iterations, which approach it from above: a value that is not positive proves that
    the matrix is not definite."""
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    if scaled.shape[0] <= DENSE_LIMIT:
        return float(np.linalg.eigvalsh(scaled.toarray())[0])
    settings: Any = {"tol": 1e-2, "maxiter": 300, "v0": np.random.default_rng(0).normal(size=scaled.shape[0])}
    try:
        return float(eigsh(scaled, k=1, which="SA", return_eigenvectors=False, **settings)[0])
    except ArpackNoConvergence as unfinished:
        return float(np.min(unfinished.eigenvalues, initial=1.0))
