"""Methods on Lie groups, against the free top in elliptic functions, RATTLE on matrices and each other. What they claim
is measured by the property tests."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.rigid import SE3, Bodies, Flat, Product, RigidBody, SpatialRotation, rotation
from geomint.rigid.body import body_momentum
from helpers.free_top import FreeTop

MOMENTS, OMEGA, TURN = np.array([0.6, 0.8, 1.0]), np.array([3.0, 0.5, -0.9]), rotation((1, 2, 3), 0.7)
METHODS = [gm.LieVerlet(), gm.LieVerlet(map="exponential"), gm.MoserVeselov(), gm.CayleyVariationalEuler()]
METHODS += [gm.Composition(gm.LieVerlet(), order=4), gm.Composition(gm.MoserVeselov(), order=8)]
BY_MATRICES = [gm.Composition(gm.Rattle(), order=4)]  # of Rattle() itself the order is that of MoserVeselov()


def lopsided(R):
    """A potential on rotations without any symmetry."""
    return R[2, 2] + 0.3 * R[0, 1] ** 2 + 0.2 * R[1, 0]


def moved(system, q0, v0, method=None, dt=0.05, t_end=2.0, **more):
    return gm.simulate(system, q0, v0, method=method or gm.LieVerlet(), dt=dt, t_end=t_end, **more)


@pytest.mark.parametrize("method", [*METHODS, *BY_MATRICES], ids=repr)
def test_order_against_the_top_in_elliptic_functions(method):
    top, t_end = FreeTop(), 4.0
    body, kind = RigidBody(top.inertia), "matrix" if method in BY_MATRICES else "group"
    start = body.state(top.attitude(0.0), top.momentum(0.0) / top.inertia, representation=kind)
    exact = top.attitude(t_end), top.momentum(t_end)
    errors, coarse = [], 10 if method.traits.order == 8 else 40
    for steps in (coarse, 2 * coarse):
        grid = {"dt": t_end / steps, "t_end": t_end, "save_every": steps, "compensated": True, "engine": "xla"}
        run = gm.simulate(body.system(kind), *start, method=method, **grid)
        found = run.q[-1], body_momentum(run.q[-1], run.p[-1])
        errors.append([np.max(np.abs(x - y)) for x, y in zip(found, exact, strict=True)])
    # Without forces variational Euler is Lie-Verlet.
    order = 2 if isinstance(method, gm.CayleyVariationalEuler) else method.traits.order
    np.testing.assert_allclose(np.log2(np.divide(*errors)), order, atol=0.05 if order == 2 else 0.3)
    assert np.max(errors[1]) < {2: 0.02, 4: 1e-5, 8: 1e-9}[order]


def test_a_million_steps_stay_on_the_group():
    model = gm.models.heavy_top(representation="group")
    run = gm.simulate(model, method=gm.LieVerlet(), dt=0.01, t_end=1e4, save_every=10_000, engine="native")
    assert run.engine == "native"
    assert run.watched["orthogonality"].max() < 2e-15
    assert np.ptp(run.momentum_maps["spatial rotation[0.0, 0.0, 1.0]"]) < 2e-12
    assert np.abs(run.energy_error).max() < 1e-3


def test_moser_and_veselov_is_rattle_and_keeps_the_free_top():
    body = RigidBody(MOMENTS, potential=lopsided)
    runs = [
        moved(body.system(kind), *body.state(TURN, OMEGA, representation=kind), method)
        for kind, method in (("group", gm.MoserVeselov()), ("matrix", gm.Rattle()))
    ]
    np.testing.assert_allclose(runs[0].q, runs[1].q, atol=2e-13)
    np.testing.assert_allclose(runs[0].watched["casimir"], runs[1].watched["casimir"], rtol=1e-12)
    free = moved(RigidBody(MOMENTS).system(), TURN, OMEGA, gm.MoserVeselov(), dt=0.1, t_end=100.0)
    assert np.abs(free.energy_error).max() < 1e-13 * free.energy[0]
    assert np.ptp(free.watched["casimir"]) < 1e-13 * free.watched["casimir"][0]
    with pytest.raises(gm.RunStopped, match=r"turns by a radian or more"):
        moved(body.system(), TURN, 50 * OMEGA, gm.MoserVeselov(), dt=0.1)


def test_the_scalar_cubic_is_the_general_equation():
    ball = RigidBody(1.3, potential=lopsided).system()
    assert ball.mass.shape == ()
    general = dataclasses.replace(ball, mass=np.full(3, 1.3))
    cubic, newton = (moved(s, TURN, OMEGA, gm.CayleyVariationalEuler(), dt=0.2, t_end=8.0) for s in (ball, general))
    np.testing.assert_allclose(cubic.q, newton.q, atol=2e-13)


def test_tensors_and_axes():
    """A tensor is the same body in axes that are turned by S: R' = R S."""
    axes = rotation((2, -1, 1), 1.1)
    straight = RigidBody(MOMENTS, potential=lopsided).system()
    tilted = RigidBody(axes.T @ np.diag(MOMENTS) @ axes, potential=lambda R: lopsided(R @ axes.T)).system()
    one, other = moved(straight, TURN, OMEGA), moved(tilted, TURN @ axes, axes.T @ OMEGA)
    np.testing.assert_allclose(other.q @ axes.T, one.q, atol=1e-12)


def test_poses_products_and_several_bodies():
    """A free body as a pose, as a product of spaces, and as one of two that do not touch."""
    potential = lambda q: lopsided(q[1:]) + 0.4 * jnp.sum(q[0] ** 4) + 0.3 * q[0, 0] * q[1, 1]
    body = RigidBody(MOMENTS, 1.7, potential)
    q0, v0 = body.state(TURN, OMEGA, (0.4, -0.1, 0.2), (0.1, 0.5, -0.3))
    alone = moved(body.system(), q0, v0)
    flat = lambda x: jnp.concatenate([x[9:], x[:9]]).reshape(4, 3)
    space = Product([(gm.rigid.SO3(), (3, 3)), (Flat(), (3,))])
    mass = np.concatenate([MOMENTS, np.full(3, 1.7)])
    product = gm.System(lambda x: potential(flat(x)), mass=mass, space=space)
    by_product = moved(product, np.append(TURN.ravel(), q0[0]), np.append(OMEGA, v0[0]))
    np.testing.assert_allclose(by_product.q[:, 9:], alone.q[:, 0], atol=1e-12)
    np.testing.assert_allclose(by_product.q[:, :9].reshape(-1, 3, 3), alone.q[:, 1:], atol=1e-12)
    pair = Bodies([body, body], lambda q: potential(q[0]) + potential(q[1])).system()
    both = moved(pair, np.stack([q0, q0]), np.stack([v0, 0 * v0]))
    np.testing.assert_allclose(both.q[:, 0], alone.q, atol=1e-12)
    assert np.abs(both.q[:, 1] - alone.q).max() > 0.1


def test_rigid_motions_as_one_group():
    """SE(3) by matrices (4, 4), whose velocities are those of the body, against positions and rotations."""
    potential = lambda x, R: lopsided(R) + 0.5 * jnp.sum(x**2) + 0.3 * x[0] * R[1, 1]
    body = RigidBody(MOMENTS, 1.7, lambda q: potential(q[0], q[1:]), SpatialRotation((0, 0, 1)))
    x, v = np.array([0.4, -0.1, 0.2]), np.array([0.1, 0.5, -0.3])
    motion = np.eye(4)
    motion[:3, :3], motion[:3, 3] = TURN, x
    mass = np.concatenate([np.full(3, 1.7), MOMENTS])
    group = gm.System(lambda g: potential(g[:3, 3], g[:3, :3]), mass=mass, space=SE3())
    apart = []
    for dt in (0.02, 0.01):
        one = moved(body.system(), *body.state(TURN, OMEGA, x, v), gm.LieVerlet(map="exponential"), dt, 1.0)
        other = moved(group, motion, np.append(TURN.T @ v, OMEGA), gm.LieVerlet(map="exponential"), dt, 1.0)
        apart.append(
            np.abs(other.q[-1][:3, 3] - one.q[-1][0]).max() + np.abs(other.q[-1][:3, :3] - one.q[-1][1:]).max()
        )
        assert np.abs(other.q[-1][3] - [0, 0, 0, 1]).max() < 1e-14
    assert apart[1] < 1e-3
    assert np.log2(apart[0] / apart[1]) == pytest.approx(2, abs=0.05)  # both have order 2
