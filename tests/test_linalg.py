"""Structure is found, and the solver it leads to is right; against scipy's direct solvers."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import spsolve

import geomint as gm
from geomint.hints import rough_reciprocal
from geomint.linalg import find
from geomint.linalg.elimination import Blocks, Triangles
from geomint.linalg.sparsity import pattern
from geomint.linalg.structure import dense

random = np.random.default_rng(5)


def chain(links: int, size: int, ring: bool = False, shuffled: bool = False) -> sparse.csr_matrix:
    """Blocks coupled to their neighbours on a line or a ring, diagonally dominant."""
    coupling = sparse.diags([np.ones(links - 1), np.ones(links - 1)], [1, -1]).tolil()
    if ring:
        coupling[0, links - 1] = coupling[links - 1, 0] = 1
    block = random.normal(size=(size, size))
    block = block + block.T
    matrix = sparse.csr_matrix(sparse.kron(coupling, block) + np.abs(block).sum() * 4 * sparse.identity(links * size))
    order = random.permutation(links * size) if shuffled else np.arange(links * size)
    return matrix[order][:, order]


def molecules(count: int, size: int) -> sparse.csr_matrix:
    blocks = [(lambda a: a @ a.T + size * np.eye(size))(random.normal(size=(size, size))) for _ in range(count)]
    order = random.permutation(count * size)
    return sparse.csr_matrix(sparse.block_diag(blocks))[order][:, order]


def scattered(n: int) -> sparse.csr_matrix:
    a = sparse.random(n, n, 6 / n, random_state=2)
    return sparse.csr_matrix(a + a.T + 20 * sparse.identity(n))


def products_of(matrix, counted=None):
    def products(vectors):
        if counted is not None:
            counted.append(len(vectors))
        return (matrix @ vectors.T).T

    return products


def solve(matrix, plan, right):
    entries = matrix.tocoo()
    apply = lambda v: jnp.zeros(plan.n).at[entries.row].add(entries.data * v[entries.col])
    return jax.jit(lambda r: plan.solve(apply, r))(right)


@pytest.mark.parametrize(
    ("matrix", "kind"),
    [
        (chain(40, 2), "banded"), (chain(40, 1), "banded"), (chain(33, 3), "banded"), (chain(50, 1, ring=True), "banded"),
        (chain(60, 2, ring=True, shuffled=True), "banded"), (molecules(12, 9), "blocks"), (molecules(40, 3), "blocks"),
        (chain(2, 2), "dense"), (scattered(100), "dense"), (scattered(1500), "matrix-free"),
    ],
)  # fmt: skip
def test_the_solver_fits_the_matrix_and_is_right(matrix, kind):
    plan = find(products_of(matrix), matrix.shape[0])
    assert plan.kind == kind, plan.description
    right = random.normal(size=matrix.shape[0])
    x, pivot = solve(matrix, plan, right)
    np.testing.assert_allclose(x, spsolve(matrix.tocsc(), right), rtol=1e-11, atol=1e-13)
    assert pivot > 0


def test_a_band_is_found_with_few_products():
    matrix, counted = chain(5000, 2), []
    found = pattern(products_of(matrix, counted), 10_000)
    assert (found != (matrix != 0)).nnz == 0
    assert sum(counted) < 150


@pytest.mark.parametrize("matrix", [chain(20, 2), molecules(5, 4), scattered(50)])
def test_an_indefinite_matrix_is_noticed(matrix):
    shifted = (matrix - 30 * sparse.identity(matrix.shape[0])).tocsr()
    plan = find(products_of(shifted), matrix.shape[0])
    assert np.linalg.eigvalsh(shifted.toarray())[0] < 0
    assert not solve(shifted, plan, np.ones(matrix.shape[0])).pivot > 0


def test_equal_structures_make_equal_plans():
    one, other = find(products_of(chain(40, 2)), 80), find(products_of(chain(40, 2)), 80)
    assert one == other
    assert hash(one) == hash(other)
    assert one != find(products_of(chain(41, 2)), 82)


def test_a_plan_can_be_asked_for():
    matrix = chain(40, 2)
    for kind in ("banded", "dense", "matrix-free"):
        plan = find(products_of(matrix), 80, kind)
        assert plan.kind == kind
        right = random.normal(size=80)
        np.testing.assert_allclose(solve(matrix, plan, right).x, spsolve(matrix.tocsc(), right), rtol=1e-11)
    with pytest.raises(gm.InputError, match="does not fit"):
        find(products_of(matrix), 80, "blocks")
    with pytest.raises(gm.InputError, match="dense"):
        find(products_of(matrix), 80, "dens")


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("rough", [False, True])
def test_small_systems_by_triangles(size, rough):
    """As with the inverse, for matrices close to positive definite ones, not symmetric."""
    roots = random.normal(size=(20, size, size))
    matrices = roots @ roots.swapaxes(1, 2) + np.eye(size) + 0.05 * random.normal(size=roots.shape)
    right = random.normal(size=(20, size))
    found = jax.jit(lambda a, r: Triangles.of(a, rough).solve(r))(matrices, right)
    np.testing.assert_allclose(found, np.linalg.solve(matrices, right[..., None])[..., 0], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found, Blocks.of(jnp.asarray(matrices)).solve(jnp.asarray(right)), rtol=1e-9, atol=1e-11)


def test_rough_reciprocals_are_exact_where_nobody_knows_better():
    x = random.normal(size=(5, 7))
    for way in (rough_reciprocal, jax.jit(rough_reciprocal), jax.vmap(rough_reciprocal), jax.jit(jax.vmap(jax.vmap(rough_reciprocal)))):
        np.testing.assert_allclose(way(jnp.asarray(x)), 1 / x, rtol=1e-15)


def test_plans_for_many_members_differ_from_those_for_one():
    plan = dense(3)
    assert dataclasses.replace(plan, fewest=True) != plan
