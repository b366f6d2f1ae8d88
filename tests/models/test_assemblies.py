"""Models of bodies with joints: motions and numbers that are known otherwise."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

import geomint as gm


def jacobian_and_residual(system, shape):
    mech = gm.Mechanics(system, shape)
    return jax.jit(lambda q: (mech.constraint_jacobian(q), mech.constraint(q)))


def test_a_chain_keeps_its_joints_and_momenta():
    """The angular momentum about the vertical is rate·Σ(1/12 + 1/300 + (k − ½)²)."""
    n, rate = 2, 1.3
    model = gm.models.rigid_chain(n=n, rate=rate)
    run = gm.simulate(model, t_end=0.2, save_every=10, engine="xla")
    expected = rate * (n * (1 / 12 + 1 / 300) + np.sum((np.arange(n) + 0.5) ** 2))
    np.testing.assert_allclose(run.momentum_maps["rotation"], expected, rtol=1e-12)
    assert np.max(np.abs(run.constraint_residual)) < 4e-16 * np.max(np.abs(run.q))
    assert np.max(np.abs(run.q[-1] - run.q[0])) > 0.1
    assert np.max(np.abs(run.energy_error)) < 1e-3
    floating = gm.models.rigid_chain(n=n, rate=rate, anchored=False)
    assert set(floating.system.named_symmetries) == {"translation", "rotation"}


def test_a_gyroscope_precesses_steadily():
    """A uniform rotation of the rings about z, and of the rotor about its turning axis: the accelerations of that
    motion are those of the equations of motion."""
    model = gm.models.gyroscope(spin=40.0, weight=0.7)
    mech = gm.Mechanics(model.system, model.q0.shape)
    found = np.asarray(jax.jit(lambda q, v: mech.acceleration(q, v))(model.q0, model.v0))
    precession = 9.81 * 0.7 / (0.5 * 0.8**2 * 40.0)
    about = np.array([0.0, 0.0, precession])
    rotor = about + np.array([40.0, 0.0, 0.0])
    rate = np.cross(about, rotor)  # of the rotor's angular velocity
    rows = len(model.q0) - 4
    expected = np.cross(about, np.cross(about, model.q0))
    q = model.q0[rows:]
    expected[rows:] = np.cross(rate, q) + np.cross(rotor, np.cross(rotor, q))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert np.max(np.abs(np.cross(rate, q))) > 5


def test_bricard_has_one_degree_of_freedom():
    """Of 60 equations for 60 coordinates 59 are independent, at the start and where the hinges satisfy the closing
    condition sin α + sin β + sin α sin β = 0."""
    model = gm.models.bricard()
    evaluate = jacobian_and_residual(model.system, model.q0.shape)
    q, moved = model.q0.copy(), np.zeros(model.q0.size)
    for _ in range(6):
        jacobian, _ = map(np.asarray, evaluate(q))
        assert jacobian.shape == (60, 60)
        assert np.sum(np.linalg.svd(jacobian, compute_uv=False) > 1e-7) == 59
        along = np.linalg.svd(jacobian)[2][-1]
        along *= 1.0 if along @ moved >= 0 else -1.0
        q, moved = q + 0.2 * along.reshape(q.shape), along
        for _ in range(4):
            jacobian, g = map(np.asarray, evaluate(q))
            q = q - np.linalg.lstsq(jacobian, g, rcond=1e-6)[0].reshape(q.shape)
    angles = model.system.angles(q)
    a, b = np.sin(angles[:2])
    assert abs(a) > 0.1
    assert abs(a + b + a * b) < 1e-12
    np.testing.assert_allclose(np.abs(angles), np.abs(np.tile(angles[:2], 3)), atol=1e-12)


def turned(bend, m=2.0, r=0.1, l=0.25):
    """The cat by the equation for its angular velocity alone: zero angular momentum about the centre of mass."""
    moment, arm = np.diag([m * (r**2 / 4 + l**2 / 12)] * 2 + [m * r**2 / 2]), np.array([0, 0, -l / 2])
    smooth = lambda s: np.clip(s, 0, 1) ** 3 * (10 - 15 * np.clip(s, 0, 1) + 6 * np.clip(s, 0, 1) ** 2)
    hat = lambda w: np.cross(w, np.eye(3)).T

    def spine(t):
        angle, around = bend * (smooth(5 * t) - smooth(5 * t - 4)), 2 * np.pi * smooth((5 * t - 0.5) / 4)
        return Rotation.from_rotvec(angle * np.array([np.cos(around), np.sin(around), 0])).as_matrix()

    def right(t, y):
        s, rate = spine(t), (spine(t + 1e-5) - spine(t - 1e-5)) / 2e-5
        apart, apart_rate = arm + s @ arm, rate @ arm  # of the centres of mass, each of reduced mass m/2
        relative = rate @ s.T
        omega = np.array([relative[2, 1], relative[0, 2], relative[1, 0]])
        matrix = moment + s @ moment @ s.T - 0.5 * m * hat(apart) @ hat(apart)
        push = s @ moment @ s.T @ omega + 0.5 * m * np.cross(apart, apart_rate)
        return (y.reshape(3, 3) @ hat(np.linalg.solve(matrix, -push))).ravel()

    y = solve_ivp(right, (0, 1), np.eye(3).ravel(), method="DOP853", rtol=1e-9, atol=1e-10).y[:, -1]
    return y.reshape(3, 3)


def test_a_cat_turns_over_without_angular_momentum():
    """By half a turn, as the equation for its angular velocity says; a step of half the length is four times nearer."""
    model, off = gm.models.turning_cat(), []
    exact = turned(1.7163)
    np.testing.assert_allclose(np.diag(exact), [-1, -1, 1], atol=1e-4)
    for dt in (0.01, 0.005):
        run = gm.simulate(model, dt=dt, save_every=20, engine="xla")
        assert np.max(np.abs(run.momentum_maps["rotation"])) < 1e-15
        assert np.max(np.abs(run.constraint_residual)) < 1e-14
        off.append(np.max(np.abs(run.system.rotations(run.q)[-1, 0] - exact)))
    assert off[1] < 2e-3
    assert off[0] / off[1] == pytest.approx(4, rel=0.1)
