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
from geomint.numerics.hints import rough_reciprocal
from geomint.numerics.linalg import find, fixed_point, newton
from geomint.numerics.linalg.elimination import Blocks, Triangles
from geomint.numerics.linalg.sparsity import pattern
from geomint.numerics.linalg.structure import dense_plan, matrix_free_plan

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
        (chain(40, 2), "banded"),
        (chain(40, 1), "banded"),
        (chain(33, 3), "banded"),
        (chain(50, 1, ring=True), "banded"),
        (chain(60, 2, ring=True, shuffled=True), "banded"),
        (molecules(12, 9), "blocks"),
        (molecules(40, 3), "blocks"),
        (chain(2, 2), "dense"),
        (scattered(100), "dense"),
        (scattered(1500), "matrix-free"),
    ],
)
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


def test_a_diagonal_that_vanishes_where_it_is_probed_is_in_the_pattern():
    """A diagonal entry may be zero at the start of a run and not later: the plan has a place for it."""
    swap = sparse.csr_matrix(np.kron(np.eye(20), [[0.0, 1.0], [1.0, 0.0]]))
    assert pattern(products_of(swap), 40).diagonal().all()
    plan = find(products_of(swap), 40)
    assert plan.kind == "blocks"
    right = random.normal(size=40)
    later = swap + 3 * sparse.identity(40, format="csr")
    np.testing.assert_allclose(solve(later, plan, right).x, spsolve(later.tocsc(), right), rtol=1e-13)


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
    for way in (
        rough_reciprocal,
        jax.jit(rough_reciprocal),
        jax.vmap(rough_reciprocal),
        jax.jit(jax.vmap(jax.vmap(rough_reciprocal))),
    ):
        np.testing.assert_allclose(way(jnp.asarray(x)), 1 / x, rtol=1e-15)


def test_plans_for_many_members_differ_from_those_for_one():
    plan = dense_plan(3)
    assert dataclasses.replace(plan, fewest=True) != plan


# --- operators solved often -----------------------------------------------------------------------------------------
def pentadiagonal(n: int) -> sparse.csr_matrix:
    """In blocks of two, those beside the diagonal are triangular: the mask of one side is not that of the other."""
    places = (0, 1, -1, 2, -2)
    return sparse.csr_matrix(sparse.diags([random.uniform(1, 2, n - abs(k)) + 8 * (k == 0) for k in places], places))


def lopsided(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """With the same pattern, no longer symmetric."""
    rows = sparse.diags(random.uniform(0.7, 1.3, matrix.shape[0]))
    return sparse.csr_matrix(rows @ matrix)


@pytest.mark.parametrize(
    ("matrix", "kind"),
    [(chain(40, 1), "banded"), (pentadiagonal(36), "banded"), (molecules(12, 3), "blocks")],
    ids=["tridiagonal", "pentadiagonal", "molecules"],
)
def test_factored_solves_and_their_derivatives(matrix, kind):
    """K x = r with K not symmetric, as in constraint solvers; its derivative in reverse is a solve with Kᵀ."""
    plan, matrix = find(products_of(matrix), matrix.shape[0]), lopsided(matrix)
    assert plan.kind == kind, plan.description
    entries = matrix.tocoo()
    apply = lambda v: jnp.zeros(plan.n).at[entries.row].add(entries.data * v[entries.col])
    factored = lambda r: plan.factor(apply, r.dtype).solve(r)
    right, weights = random.normal(size=(2, plan.n))
    x, pulled = jax.jit(lambda r, w: (lambda y, pull: (y, pull(w)[0]))(*jax.vjp(factored, r)))(right, weights)
    np.testing.assert_allclose(x, spsolve(matrix.tocsc(), right), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(pulled, spsolve(matrix.T.tocsc(), weights), rtol=1e-11, atol=1e-13)


def test_plans_of_different_bands_are_different():
    """A coupling that is missing in one of two bands changes only the mask of the blocks below the diagonal. Plans are
    static arguments of compiled programs: if they were equal, a matrix would be solved with the pattern of another."""
    whole = chain(66, 1).tolil()
    cut = whole.copy()
    cut[33, 32] = cut[32, 33] = 0
    plans = [find(products_of(matrix.tocsr()), 66, "banded") for matrix in (cut, whole)]
    assert np.array_equal(plans[0].colours, plans[1].colours)
    assert plans[0] != plans[1]


@pytest.mark.parametrize(
    ("matrix", "places"), [(chain(33, 1), range(6)), (molecules(12, 3), range(0, 36, 5))], ids=["band", "blocks"]
)
def test_one_negative_pivot_is_noticed_wherever_it_is(matrix, places):
    """One negative entry on the diagonal, the rest dominant: the matrix is indefinite, and one pivot says so."""
    plan, entries = find(products_of(matrix), matrix.shape[0]), matrix.tocoo()
    apply = lambda data: lambda v: jnp.zeros(plan.n).at[entries.row].add(data * v[entries.col])
    pivot = jax.jit(lambda data: plan.solve(apply(data), jnp.ones(plan.n)).pivot)
    assert pivot(entries.data) > 0
    for place in places:
        assert not pivot(np.where((entries.row == place) & (entries.col == place), -1.0, entries.data)) > 0, place


def test_conjugate_gradients_end_at_round_off():
    """60 unknowns with eigenvalues from 1 to 100, each of them alone: 20 iterations are too few."""
    orthogonal = np.linalg.qr(random.normal(size=(60, 60)))[0]
    matrix = orthogonal * np.geomspace(1, 100, 60) @ orthogonal.T
    right = random.normal(size=60)
    x, curvature = jax.jit(lambda r: matrix_free_plan(60).solve(lambda v: jnp.asarray(matrix) @ v, r))(right)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, right), rtol=0, atol=1e-14)
    assert 0 < curvature < 100


# --- roots ----------------------------------------------------------------------------------------------------------
def test_iterations_go_on_to_round_off():
    """x³ = 2 from far off by Newton's method; x = ½ cos x + ¼ sin x by a fixed point, half a digit a round."""
    found = newton(lambda x: x**3 - 2, jnp.array([50.0]), jnp.asarray(1.0))
    assert found.converged
    np.testing.assert_allclose(found.root, 2 ** (1 / 3), rtol=3e-16)
    slow = fixed_point(lambda x: x - 0.5 * jnp.cos(x) - 0.25 * jnp.sin(x), jnp.array([0.0, 1.0]), jnp.asarray(1.0))
    assert np.all(slow.converged)
    np.testing.assert_allclose(slow.root, 0.556603553798448, rtol=0, atol=3e-16)  # by 200 rounds in Python's floats


@pytest.mark.parametrize(
    ("solver", "residual", "start"),
    [
        (newton, lambda x: x**2 + 1, 0.3),
        (newton, jnp.cbrt, 1.0),
        (fixed_point, lambda x: x - 1.1 * jnp.cos(2 * x), 0.2),
        (fixed_point, lambda x: 0.2 * x - 1, 0.0),
    ],
    ids=["no root", "overshoots", "no contraction", "too slow"],
)
def test_a_root_that_was_not_found_is_not_called_one(solver, residual, start):
    """The last one gains a fifth of its error a round: after 50 rounds it is off by 7e-5."""
    assert not solver(residual, jnp.array([start]), jnp.asarray(1.0)).converged


def test_derivatives_of_a_fixed_point():
    """x = a cos x + b: dx = (cos x da + db)/(1 + a sin x), in reverse as forwards."""

    def root(a, b):
        return fixed_point(lambda x: x - a * jnp.cos(x) - b, jnp.zeros(3), jnp.asarray(1.0)).root

    a, b = jnp.array([0.3, -0.4, 0.5]), jnp.array([0.1, 0.7, -0.2])
    x = root(a, b)
    by_a, by_b = jnp.cos(x) / (1 + a * jnp.sin(x)), 1 / (1 + a * jnp.sin(x))
    weights = jnp.array([1.0, -2.0, 0.5])
    reverse = jax.grad(lambda a, b: weights @ root(a, b), (0, 1))(a, b)
    np.testing.assert_allclose(reverse, (weights * by_a, weights * by_b), rtol=1e-14)
    np.testing.assert_allclose(jax.jvp(root, (a, b), (weights, weights))[1], weights * (by_a + by_b), rtol=1e-14)
