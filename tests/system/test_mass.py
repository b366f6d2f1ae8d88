"""Masses as sparse matrices and as blocks, against the same mass as a dense matrix."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import block_diag

import geomint as gm
from geomint.io.fingerprint import fingerprint
from geomint.models.elastic_sheet import consistent_mass, triangles
from geomint.numerics.linalg import structure
from geomint.numerics.linalg.sparse_matrix import SparseMatrix
from geomint.system.mass import mass_matrix
from geomint.system.mechanics import Mechanics

SIDE = 5
N = SIDE**2
MASS = consistent_mass(N, triangles(SIDE, SIDE), 0.3 + np.random.default_rng(3).uniform(size=2 * (SIDE - 1) ** 2))
RANDOM = np.random.default_rng(0)
Q0, V0 = 0.3 * RANDOM.normal(size=(N, 2)), RANDOM.normal(size=(N, 2))


def potential(q):
    """Nonlinear, and not the same in both components."""
    x = q.reshape(SIDE, SIDE, 2)
    bonds = jnp.sum(jnp.sin(x[1:] - x[:-1]) ** 2) + jnp.sum((x[:, 1:] - x[:, :-1]) ** 4)
    return bonds + jnp.sum(q[:, 0] * q[:, 1] ** 2) + jnp.sum(q**4 + q**2)


def fixed_ends(q):
    """Two nodes at a fixed distance from each other, and one on a circle."""
    return jnp.stack([jnp.sum((q[0] - q[-1]) ** 2), jnp.sum(q[7] ** 2)]) - LENGTHS


LENGTHS = np.array([np.sum((Q0[0] - Q0[-1]) ** 2), np.sum(Q0[7] ** 2)])


def dense(mass):
    return mass_matrix(gm.System(mass=mass).mass, Q0.shape)


def solve_as_large(monkeypatch):
    """Conjugate gradients for the small systems here: no dense matrices beyond 4 unknowns, and no bands."""
    monkeypatch.setattr(structure, "DENSE_LIMIT", 4)
    monkeypatch.setattr(structure, "BLOCK_LIMIT", 1)


@pytest.mark.parametrize(("flat", "large"), [(False, False), (False, True), (True, True)])
def test_products_and_solves(monkeypatch, flat, large):
    if large:
        solve_as_large(monkeypatch)
    matrix = sparse.kron(MASS, np.eye(2), format="coo") if flat else MASS
    mech = Mechanics(gm.System(mass=matrix), Q0.shape)
    assert (mech.system.mass.pattern.plan.kind == "matrix-free") == large
    full = np.kron(MASS.toarray(), np.eye(2))
    assert np.array_equal(dense(matrix), full)
    assert np.allclose(mech.momentum(V0).ravel(), full @ V0.ravel(), rtol=1e-14, atol=1e-15)
    velocity = jax.jit(lambda s: Mechanics(s, Q0.shape).velocity(V0))(mech.system)
    assert np.allclose(velocity.ravel(), np.linalg.solve(full, V0.ravel()), rtol=1e-12, atol=1e-13)
    assert np.allclose(mech.inertia.diagonal(Q0.shape).ravel(), np.diag(full), rtol=0, atol=0)


@pytest.mark.parametrize(
    "method",
    [
        gm.ImplicitMidpoint(solver="matrix-free"),
        *(pytest.param(method, marks=pytest.mark.slow) for method in (gm.Verlet(), gm.ZhangSkeel(), gm.Rattle())),
    ],
    ids=str,
)
def test_sparse_is_dense(monkeypatch, method):
    """The whole run, with the solvers of large systems; those of the dense mass are dense."""
    constraint, v0 = (fixed_ends, 0 * V0) if isinstance(method, gm.Rattle) else (None, V0)
    settings = {"dt": 0.02, "t_end": 0.4, "save_every": 20, "engine": "xla"}
    reference = gm.ImplicitMidpoint() if isinstance(method, gm.ImplicitMidpoint) else method
    exact = gm.simulate(gm.System(potential, dense(MASS), constraint), Q0, v0, method=reference, **settings)
    solve_as_large(monkeypatch)
    system = gm.System(potential, MASS.copy(), constraint)
    assert system.mass.pattern.plan.kind == "matrix-free"
    run = gm.simulate(system, Q0, v0, method=method, **settings)
    assert np.max(np.abs(run.q - exact.q)) < 1e-13
    assert np.max(np.abs(run.p - exact.p)) < 1e-13
    assert np.max(np.abs(run.v - exact.v)) < 1e-12
    assert np.max(np.abs(run.energy - exact.energy)) < 1e-12


def arrow(bar):
    """A band with a full last row and column, whose diagonal entry is not among the first of its row."""
    matrix = sparse.lil_matrix(bar * 100.0)
    matrix[-1, :], matrix[:, -1] = 1.0, np.ones((matrix.shape[0], 1))
    matrix[-1, -1] = 1000.0
    return matrix.tocsc()


BAR = sparse.diags([np.ones(599), np.full(600, 4.0), np.ones(599)], [-1, 0, 1])
BODIES = sparse.block_diag([np.array([[2.0, 1.0], [1.0, 3.0]])] * 300)


@pytest.mark.parametrize(
    ("matrix", "kind"),
    [
        (arrow(BAR), "matrix-free"),
        pytest.param(BAR, "banded", marks=pytest.mark.slow),
        pytest.param(BODIES, "blocks", marks=pytest.mark.slow),
    ],
    ids=["arrow", "bar", "bodies"],
)
def test_structure_of_the_mass(matrix, kind):
    """A bar has a band, separate bodies have blocks; a long row is stored apart."""
    right = np.random.default_rng(1).normal(size=(600, 2))
    made = SparseMatrix.of(matrix)
    assert made.pattern.plan.kind == kind
    assert made.values.size < 5 * 600
    assert abs(made.to_scipy() - matrix).max() == 0
    exact = np.linalg.solve(matrix.toarray(), right)
    both, one = jax.jit(lambda m, r: (m.factored().solve(r), m.factored().solve(r[:, 0])))(made, right)
    assert np.allclose(both, exact, rtol=1e-12, atol=1e-14)
    assert np.allclose(one, exact[:, 0], rtol=1e-12, atol=1e-14)
    assert np.allclose(made.diagonal, matrix.diagonal(), rtol=0, atol=0)


def test_large_dense_mass_is_factored():
    """No inverse beyond 400 unknowns: two triangular solves with the Cholesky factor."""
    root = np.random.default_rng(2).normal(size=(410, 410)) / 20
    mass = np.eye(410) + root @ root.T
    mech = Mechanics(gm.System(mass=mass), (410,))
    p = np.random.default_rng(3).normal(size=410)
    assert np.array_equal(mech.inertia.factored.factor, np.tril(mech.inertia.factored.factor))
    assert np.allclose(mech.velocity(p), np.linalg.solve(mass, p), rtol=1e-12, atol=1e-13)
    with pytest.raises(gm.errors.InputError, match="mass must be positive definite; its Cholesky"):
        gm.simulate(gm.System(mass=mass - 2 * np.eye(410)), p, method=gm.Verlet(), dt=0.1, t_end=0.1)


def assert_same_operators(system, full, tolerance):
    """M v, M⁻¹p, the kinetic energy, the drag and the damped flow."""

    @jax.jit
    def operators(system):
        mech = Mechanics(system, Q0.shape)
        flow = mech.damping_flow(Q0.shape)
        damped = flow.impulse(V0, Q0, 0.3), flow.integral(V0, Q0, 0.3)
        return mech.momentum(V0), mech.velocity(V0), mech.displacement(V0, 0.1), mech.kinetic(V0), mech.drag(V0), damped

    for x, y in zip(jax.tree.leaves(operators(system)), jax.tree.leaves(operators(full)), strict=True):
        assert np.max(np.abs(x - y)) < tolerance * np.max(np.abs(y))


def test_blocks():
    """A matrix (2, 2) for each body is the block-diagonal matrix; a damping acts on it too."""
    root = RANDOM.normal(size=(N, 2, 2))
    mass = np.eye(2) + root @ np.swapaxes(root, 1, 2)
    full = mass_matrix(gm.System(mass=mass).mass, Q0.shape)
    assert full[2:4, 2:4].tolist() == mass[1].tolist()
    assert np.count_nonzero(full) == mass.size
    assert_same_operators(gm.System(mass=mass, damping=0.3), gm.System(mass=full, damping=0.3), 1e-13)
    wrong = mass.copy()
    wrong[3] = [[1.0, 2.0], [2.0, 1.0]]
    with pytest.raises(gm.errors.InputError, match="positive definite; its smallest eigenvalue is -1"):
        gm.simulate(gm.System(potential, wrong), Q0, V0, method=gm.Verlet(), dt=0.02, t_end=0.2)
    with pytest.raises(gm.errors.InputError, match=r"blocks of several sizes are one matrix, scipy.sparse.block_diag"):
        gm.System(potential, [np.eye(2), np.eye(3)])
    with pytest.raises(gm.errors.InputError, match=r"same block for all bodies, np.broadcast_to\(mass, \(25, 2, 2\)\)"):
        gm.simulate(gm.System(potential, mass[0]), Q0, V0, method=gm.Verlet(), dt=0.02, t_end=0.2)
    with pytest.raises(gm.errors.InputError, match=r"mass has shape \(3, 2, 2\).*blocks \(25, 2, 2\)"):
        gm.simulate(gm.System(potential, mass[:3]), Q0, V0, method=gm.Verlet(), dt=0.02, t_end=0.2)


def test_wrong_sparse_masses():
    tilted, complex_, broken, indefinite, massless = (MASS.tolil() for _ in range(5))
    tilted[0, 1] += 1.0
    broken[2, 2] = np.nan
    indefinite[0, 1] = indefinite[1, 0] = 9.0
    massless[4, 4] = 0.0
    raised = lambda match: pytest.raises(gm.errors.InputError, match=match)
    with raised("mass must be symmetric; mass and its transpose differ by 1"):
        gm.System(mass=tilted.tocsr())
    with raised("mass must be real; this sparse matrix has entries of type complex128"):
        gm.System(mass=complex_.tocsr() * 1j)
    with raised("mass has entries that are not finite"):
        gm.System(mass=broken.tocsr())
    with raised(r"mass must be a square matrix; this sparse matrix has shape \(3, 25\)"):
        gm.System(mass=MASS[:3])
    run = lambda mass, **more: gm.simulate(
        gm.System(potential, mass, **more), Q0, V0, method=gm.Verlet(), dt=0.1, t_end=0.1
    )
    with raised(r"shape \(24, 24\), but q0 has shape \(25, 2\).*\(50, 50\), or \(25, 25\) to act on each"):
        run(MASS[:24, :24])
    with raised("mass must be positive definite; scaled .* its smallest eigenvalue is -"):
        run(indefinite.tocsr())
    with raised("mass must be positive definite; its diagonal entry 4 is 0"):
        run(massless.tocsr())
    with raised("a sparse damping must be a multiple of the mass"):
        run(MASS, damping=sparse.eye(N))
    large = sparse.kron(sparse.eye(20), MASS, format="lil")
    large[-1, :] = large[:, -1] = 1e-3  # a full row: neither blocks nor a band
    large[-1, -1] = large[0, 1] = large[1, 0] = 9.0
    with raised("mass must be positive definite; scaled .* smallest eigenvalue is -"):
        gm.simulate(gm.System(mass=large.tocsr()), np.zeros(500), **SHORT)
    for block in (np.ones((2, 2)), np.array([[1.0, 2.0], [2.0, 1.0]])):
        with raised("mass must be positive definite; scaled .* its Cholesky factorisation fails or has a pivot"):
            gm.simulate(gm.System(mass=sparse.block_diag([np.eye(1), *[block] * 250])), np.zeros(501), **SHORT)
    with raised("with a sparse mass the exact flow of this damping needs"):
        steady = gm.System(mass=sparse.kron(sparse.eye(20), MASS), damping=0.1)
        gm.simulate(steady, np.zeros(500), **SHORT)


def test_damping_by_a_multiple_of_the_mass():
    """D = γM, which is conformally symplectic, as with the dense matrices."""
    system, full = gm.System(mass=MASS, damping=0.4 * MASS), gm.System(mass=dense(MASS), damping=0.4 * dense(MASS))
    assert system.uniform_damping
    assert float(system.damping_rate) == pytest.approx(0.4, rel=1e-15)
    assert_same_operators(system, full, 1e-12)


SHORT: dict = {"method": gm.Verlet(), "dt": 0.1, "t_end": 0.1}


def coupled(pairs):
    matrix = 4 * sparse.eye(N, format="lil")
    for i, j in pairs:
        matrix[i, j] = matrix[j, i] = 1.0
    return matrix.tocsr()


def test_archive_and_members(monkeypatch, tmp_path):
    """Resumed bit for bit; another pattern is another system; members share the mass."""
    solve_as_large(monkeypatch)
    system, settings = gm.System(potential, MASS), {"method": gm.Verlet(), "dt": 0.02, "engine": "xla"}
    whole = gm.simulate(system, Q0, V0, t_end=0.4, **settings)
    gm.simulate(system, Q0, V0, t_end=0.2, output=tmp_path / "run.h5", **settings)
    again = gm.resume(tmp_path / "run.h5", system=gm.System(potential, MASS.tocoo()), t_end=0.4)
    assert np.array_equal(again.q, whole.q)
    assert np.array_equal(again.p, whole.p)
    with pytest.raises(gm.errors.GeomintError, match="is not the one that was run"):
        gm.resume(tmp_path / "run.h5", system=gm.System(potential, 2 * MASS), t_end=0.6)
    one, other = (gm.System(potential, coupled(pairs)) for pairs in ([(0, 2), (1, 3)], [(0, 3), (1, 2)]))
    assert np.array_equal(one.mass.values, other.mass.values)  # stored row by row: only the columns differ
    assert fingerprint(one, Q0.shape) != fingerprint(other, Q0.shape)
    members = gm.ensemble(system, np.stack([Q0, 0.9 * Q0]), np.stack([V0, V0]), t_end=0.4, **settings)
    assert np.max(np.abs(members.q[0] - whole.q)) < 1e-14


def test_gradient_with_respect_to_the_mass(monkeypatch):
    solve_as_large(monkeypatch)
    mass = gm.System(mass=MASS).mass

    def kinetic(factor):
        """½pᵀM⁻¹p with the entries of row and column 3 multiplied by a factor."""
        near = (mass.pattern.columns == 3) | (np.arange(N) == 3)[:, None]
        other = SparseMatrix(jnp.where(near, factor * mass.values, mass.values), mass.rest, mass.pattern)
        return Mechanics(gm.System(mass=other), Q0.shape).kinetic(V0)

    h = 1e-4
    centred = (kinetic(1.0 + h) - kinetic(1.0 - h)) / (2 * h)
    assert float(jax.grad(kinetic)(1.0)) == pytest.approx(float(centred), rel=1e-6)


@pytest.mark.parametrize("blocks", [True, False])
def test_masses_of_two_bodies_on_a_constraint(blocks):
    """Masses whose reading depends on the shape of q: a block for each body, and one number for each coordinate of two
    bodies in the plane, which is as square as a matrix."""
    q0, rods = np.array([[1.0, 0.0], [2.0, 0.0]]), gm.Distances([(None, 0), (0, 1)], 1.0)
    mass = np.array([[[2.0, 0.5], [0.5, 1.0]], [[3.0, 0.2], [0.2, 2.0]]]) if blocks else np.array([[1.0, 1.5], [2, 3]])
    runs = [
        gm.simulate(
            gm.System(lambda q: jnp.sum(q[:, 1]), m, rods), q0, method=gm.Rattle(), dt=0.02, t_end=1.0, engine="xla"
        )
        for m in (mass, block_diag(*mass) if blocks else np.diag(mass.ravel()))
    ]
    assert np.max(np.abs(runs[0].q - runs[1].q)) < 1e-13
    assert np.max(np.abs(runs[0].multipliers - runs[1].multipliers)) < 1e-12
