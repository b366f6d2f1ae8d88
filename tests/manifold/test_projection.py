"""gm.project: the nearest point with g(q) = 0, and a tangent velocity."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.manifold import NewtonSolver
from geomint.manifold.gram import gram_product, gram_solve, unit_diagonal
from geomint.numerics.linalg.structure import fallback, matrix_free_plan
from geomint.system.mechanics import Mechanics


def test_project():
    model = gm.models.double_pendulum()
    random = np.random.default_rng(0)
    q, v = gm.project(model.system, model.q0 + 0.1 * random.normal(size=(2, 2)), random.normal(size=(2, 2)))
    mech = gm.Mechanics(model.system, (2, 2))
    assert np.max(np.abs(mech.constraint(q))) < 1e-14
    assert np.max(np.abs(mech.constraint_rate(q, v))) < 1e-14
    same = gm.project(model.system, q, v)
    np.testing.assert_allclose(same[0], q, atol=1e-14)
    np.testing.assert_allclose(same[1], v, atol=1e-14)
    with pytest.raises(gm.InputError, match="constraint"):
        gm.project(gm.System(lambda q: jnp.sum(q)), [1.0])


def test_project_says_where_there_is_nothing_to_project_to():
    """|q|² + 1 is nowhere zero, and no point of the unit circle has x = 3: an error, and no point."""
    for constraint in (lambda q: jnp.sum(q**2, keepdims=True) + 1, lambda q: jnp.stack([jnp.sum(q**2) - 1, q[0] - 3])):
        with pytest.raises(gm.InputError, match=r"project found no point with g\(q\) = 0 near q0"):
            gm.project(gm.System(lambda q: q[1], constraint=constraint), [1.0, 1.1])


def test_a_plane_through_the_origin():
    """g = q_3 has no rounding of its own where q_3 = 0: the point is found, and sin π in q_3 is a start."""
    plane = lambda q: jnp.stack([q[2], q[0] ** 2 + q[1] ** 2 - 1])
    system = gm.System(lambda q: 9.81 * q[1], constraint=plane)
    q, v = gm.project(system, [0.0, -1.1, 0.3], [1.0, 0.0, 1.0])
    np.testing.assert_allclose(q, [0, -1, 0], atol=1e-15)
    np.testing.assert_allclose(v, [1, 0, 0], atol=1e-15)
    run = gm.simulate(system, [0.0, -1.0, np.sin(np.pi)], [1.0, 0.0, 0.0], method=gm.Rattle(), dt=0.01, t_end=0.1)
    assert abs(run.q[-1, 2]) < 1e-15
    with pytest.raises(gm.InputError, match="do not satisfy the constraint"):
        gm.simulate(system, [0.0, -1.0, 1e-7], [1.0, 0.0, 0.0], method=gm.Rattle(), dt=0.01, t_end=0.1)


def test_the_diagonal_of_many_coupled_constraints():
    """405 bars meet at one hub, so that G M⁻¹Gᵀ is full: its diagonal comes from one constraint at a time."""
    angle = np.arange(405.0)
    q = np.concatenate([np.zeros((1, 2)), np.stack([np.cos(angle), np.sin(angle)], axis=1)])
    system = gm.System(lambda q: jnp.sum(q), constraint=lambda q: jnp.sum((q[1:] - q[0]) ** 2, axis=-1) - 1)
    scale = unit_diagonal(matrix_free_plan(405), lambda x: gram_product(system, jnp.asarray(q), x), float, 0.0)
    np.testing.assert_allclose(scale, 1 / np.sqrt(8), rtol=1e-14)  # |∂g_i|² = 4 + 4


class Inexact(Mechanics):
    """Products with G are off by 1e-20, as rounding makes them where they cancel."""

    def constraint_rate(self, q, v):
        return super().constraint_rate(q, v) + 1e-20


@pytest.mark.parametrize(
    "circle", [lambda q: jnp.sum(q**2, keepdims=True) - 1, lambda q, t: jnp.sum(q**2, keepdims=True) - 1 + 0 * t]
)
def test_the_projection_of_a_tangent_momentum_is_not_a_failure(circle):
    """The normal part of p is rounding alone, and so is the residual of the solve, which tells nothing about K then."""
    q, p = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
    mech, solver = Inexact(gm.System(constraint=circle, damping=0.3), q.shape), NewtonSolver(fallback(1))
    assert jnp.max(jnp.abs(solver.normal_part(mech, q, p))) < 1e-19
    assert jnp.all(jnp.isnan(gram_solve(solver.plan, mech, q, jnp.full(1, 1e-20))))  # without `noise`
    twice = Inexact(gm.System(constraint=lambda q: jnp.stack([q[0], q[0]]), damping=0.3), q.shape)
    assert jnp.any(jnp.isnan(NewtonSolver(fallback(2)).normal_part(twice, q, q)))  # a singular K is noticed
