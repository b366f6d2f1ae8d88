"""SETTLE for any triangle: against Newton's method and the matrix G M⁻¹Gᵀ itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.manifold.discovery import find_solver
from geomint.manifold.triangle import TriangleSolver, fits_triangle

SIDES = np.array([1.3, 0.8, 1.1])  # of the pairs below
PAIRS = [(2, 1), (0, 1), (2, 0)]
MASSES = np.array([3.0, 1.0, 2.0])[:, None]
RANDOM = np.random.default_rng(4)


def triangles(n):
    """n scalene triangles anywhere, turned anyhow, with tangent velocities."""
    a, b, c = SIDES[1], SIDES[2], SIDES[0]  # 01, 02, 12
    x = (a**2 + b**2 - c**2) / (2 * a)
    flat = np.array([[0, 0, 0], [a, 0, 0], [x, np.sqrt(b**2 - x**2), 0]])
    turns = np.linalg.qr(RANDOM.normal(size=(n, 3, 3)))[0]
    arms = np.einsum("aij,kj->aki", turns, flat)
    v = np.cross(RANDOM.normal(size=(n, 1, 3)), arms) + RANDOM.normal(size=(n, 1, 3))
    return arms + RANDOM.normal(size=(n, 1, 3)), v


def system(**settings):
    potential = lambda q: jnp.sum(jnp.sin(1.3 * q + jnp.arange(3))) + 0.3 * jnp.sum(q[:, 1:] ** 4)
    return gm.System(potential, constraint=gm.RigidMolecules(PAIRS, SIDES), **{"mass": MASSES, **settings})


@pytest.fixture(scope="module")
def start():
    return triangles(2)


def test_settle_is_newtons_method(start):
    """The same positions and multipliers to rounding, at a step that turns a molecule by a tenth of a radian."""
    one = system()
    closed, general = (
        gm.simulate(one, *start, method=gm.Rattle(solver=solver), dt=0.05, t_end=5.0, engine="xla")
        for solver in ("auto", "newton")
    )
    assert "SETTLE" in closed.solver
    assert "blocks" in general.solver
    np.testing.assert_allclose(closed.q, general.q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(closed.p, general.p, rtol=0, atol=1e-12)
    np.testing.assert_allclose(closed.multipliers, general.multipliers, rtol=0, atol=1e-11)
    assert np.max(np.abs(closed.multipliers)) > 1
    assert np.max(np.abs(closed.constraint_residual)) < 1e-14
    assert closed.energy_error[-1] == pytest.approx(general.energy_error[-1], abs=1e-11)


def test_the_impulse_and_the_gram_matrix(start):
    """Of one drift, without a run; masses may also differ between the molecules."""
    q, v = map(jnp.asarray, start)
    for mass in (2.5, MASSES * np.array([1.0, 5.0])[:, None, None]):
        one = system(mass=mass)
        mech, h = gm.Mechanics(one, q.shape), 0.07
        solver = find_solver("auto", 1.0, [(one, np.asarray(q))])
        assert isinstance(solver, TriangleSolver)
        p = mech.momentum(v) + RANDOM.normal(size=q.shape)
        placed = solver.place(mech, q, p, h, jnp.zeros(0))
        assert bool(placed.converged)
        there = q + mech.displacement(p - mech.constraint_force(q, placed.impulse), h)
        np.testing.assert_allclose(mech.constraint(there), 0, atol=4e-15)
        np.testing.assert_allclose(placed.normal_impulse, mech.constraint_force(q, placed.impulse), rtol=1e-15)
        g = np.asarray(jax.jacfwd(mech.constraint)(q)).reshape(6, 18)
        gram = g @ np.diag(np.broadcast_to(1 / np.asarray(mass), q.shape).ravel()) @ g.T
        right = RANDOM.normal(size=6)
        np.testing.assert_allclose(solver.gram_solve(mech, q, jnp.asarray(right)), np.linalg.solve(gram, right))


def test_frames_are_made_orthonormal_again(start):
    """A start that misses the constraint by 1e-9 is back on it after one step; an error of the frame that was passed on
    from step to step would add up over a run."""
    q, v = start
    q = q * (1 + 1e-9)
    run = gm.simulate(system(), q, v, method=gm.Rattle(), dt=0.05, t_end=0.25, engine="xla")
    assert 1e-9 < np.max(np.abs(run.constraint_residual[0])) < 1e-8
    assert np.max(np.abs(run.constraint_residual[2:])) < 1e-10


def test_a_step_that_turns_too_far(start):
    with pytest.raises(gm.RunStopped, match="a molecule turned too far in one step"):
        gm.simulate(system(), start[0], 40 * start[1], method=gm.Rattle(), dt=0.2, t_end=2.0, engine="xla")


def test_which_systems_get_it():
    fits = lambda one, shape=(2, 3, 3): fits_triangle(one, shape)
    assert fits(system())
    assert not fits(system(mass=RANDOM.uniform(1, 2, (3, 3))))  # along each axis another mass
    assert not fits(gm.System(constraint=gm.RigidMolecules(PAIRS[:2], SIDES[:2])))
    assert not fits(gm.System(constraint=gm.RigidMolecules([(0, 1), (0, 2), (0, 3)], SIDES)), (2, 4, 3))
    assert not fits(gm.System(constraint=gm.Distances(PAIRS, SIDES)), (3, 3))
