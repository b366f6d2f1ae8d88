"""What follows from a system by differentiation, against formulas done by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.run.inputs import check_overrides

random = np.random.default_rng(3)
Q, P, A = random.normal(size=(3, 4))
C = random.normal(size=(4, 4))
MASS = C @ C.T + 4 * np.eye(4)


def cubic(q):
    return jnp.sum(C @ q * q**2) / 3


def test_derivatives_of_the_potential():
    mech = gm.Mechanics(gm.System(cubic, fast=lambda q: 0.5 * jnp.sum(q**2)))
    third_tensor, hessian = (jax.jit(f)(Q) for f in (jax.jacfwd(jax.hessian(cubic)), jax.hessian(cubic)))
    np.testing.assert_allclose(mech.force(Q), -jax.grad(cubic)(Q) - Q, rtol=1e-14)
    np.testing.assert_allclose(mech.slow_force(Q) + mech.fast_force(Q), mech.force(Q), rtol=1e-14)
    np.testing.assert_allclose(jax.jit(lambda q, a: mech.hessian_product(q, a))(Q, A), hessian @ A + A, rtol=1e-13)
    np.testing.assert_allclose(
        jax.jit(lambda q, a: mech.third(q, a))(Q, A), np.einsum("ijk,j,k->i", third_tensor, A, A), rtol=1e-13
    )


@pytest.mark.parametrize("mass", [2.0, np.array([1.0, 2.0, 3.0, 4.0]), MASS])
def test_mass(mass):
    mech = gm.Mechanics(gm.System(cubic, mass=mass))
    matrix = mass if np.ndim(mass) == 2 else np.diag(np.broadcast_to(mass, 4))
    np.testing.assert_allclose(mech.velocity(P), np.linalg.solve(matrix, P), rtol=1e-13)
    np.testing.assert_allclose(mech.momentum(mech.velocity(P)), P, rtol=1e-13)
    np.testing.assert_allclose(mech.energy(Q, P), 0.5 * P @ np.linalg.solve(matrix, P) + cubic(Q), rtol=1e-13)


def test_a_square_mass_may_belong_to_the_entries():
    mass = np.array([[1.0, 2.0], [3.0, 4.0]])
    system = gm.System(lambda q: jnp.sum(q**2), mass=mass)
    run = gm.simulate(system, np.ones((2, 2)), np.ones((2, 2)), method=gm.Verlet(), dt=0.1, t_end=1.0)
    np.testing.assert_allclose(run.p[0], mass)
    np.testing.assert_allclose(run.v[-1], run.p[-1] / mass)


def test_constraints():
    g = lambda q: jnp.array([jnp.sum(q[:2] ** 2) - 1, q[2] * q[3] + q[0]])
    mech = gm.Mechanics(gm.System(cubic, mass=MASS, constraint=g))
    jacobian = np.array([[2 * Q[0], 2 * Q[1], 0, 0], [1, 0, Q[3], Q[2]]])
    np.testing.assert_allclose(mech.constraint_jacobian(Q), jacobian, rtol=1e-14)
    np.testing.assert_allclose(mech.constraint_rate(Q, A), jacobian @ A, rtol=1e-13)
    np.testing.assert_allclose(mech.constraint_force(Q, jnp.array([1.0, -2.0])), jacobian.T @ [1, -2], rtol=1e-13)
    np.testing.assert_allclose(
        mech.constraint_curvature(Q, A), [2 * A[0] ** 2 + 2 * A[1] ** 2, 2 * A[2] * A[3]], rtol=1e-13
    )
    # The acceleration keeps the second derivative of g at zero: G q̈ + g''(v, v) = 0.
    acceleration = mech.acceleration(Q, A)
    np.testing.assert_allclose(jacobian @ acceleration + mech.constraint_curvature(Q, A), 0, atol=1e-12)


def test_momentum_maps():
    q, p = random.normal(size=(2, 5, 3))
    skew = random.normal(size=(3, 3))
    skew = skew - skew.T
    big = np.kron(np.eye(5), skew)
    system = gm.System(
        symmetries=(
            gm.Translation(),
            gm.Rotation(),
            gm.Rotation((0, 2)),
            gm.Rotation(axis=(0, 0, 2)),
            gm.Generator(skew),
            gm.Generator(big),
        )
    )
    maps = gm.Mechanics(system).momentum_maps(q, p)
    angular = np.cross(q, p).sum(0)
    np.testing.assert_allclose(maps["translation"], p.sum(0), rtol=1e-13)
    np.testing.assert_allclose(maps["rotation"], angular, rtol=1e-12)
    np.testing.assert_allclose(maps["rotation[0, 2]"], -angular[1:2], rtol=1e-12)
    np.testing.assert_allclose(maps["rotation[0.0, 0.0, 2.0]"], 2 * angular[2:], rtol=1e-12)
    np.testing.assert_allclose(maps["generator"], [np.sum(p * (q @ skew.T))], rtol=1e-12)
    np.testing.assert_allclose(maps["generator 2"], maps["generator"], rtol=1e-12)


def test_translation_along_a_vector():
    """δq = (3, 4) for each particle: J = 3 Σp_x + 4 Σp_y, the vector as long as it was given."""
    q, p = random.normal(size=(2, 5, 2))
    maps = gm.Mechanics(gm.System(symmetries=(gm.Translation((3.0, 4.0)),))).momentum_maps(q, p)
    np.testing.assert_allclose(maps["translation[3.0, 4.0]"], [3 * p[:, 0].sum() + 4 * p[:, 1].sum()], rtol=1e-13)


@pytest.mark.parametrize("name", gm.models.all())
def test_overrides_of_models_agree_with_automatic_differentiation(name):
    """Models are made here and not at collection, where every worker would make all of them."""
    model = gm.models.named(name)
    if not isinstance(model.system, gm.System):
        return  # Lagrangians have no overrides
    check_overrides(model.system, model.q0)
    assert np.isfinite(jax.jit(lambda q: gm.Mechanics(model.system, q.shape).force(q))(model.q0)).all()


@pytest.mark.parametrize("name", gm.models.all())
def test_models_remember_how_they_were_made(name):
    model = gm.models.named(name)
    assert gm.models.named(model.system.origin).name == model.name == name
    assert gm.models.fpu(springs=5, omega=20.0).system.origin == "fpu(springs=5, omega=20.0)"


def test_outer_solar_system_is_the_real_one():
    """Jupiter's period from a run is 4331 to 4333 days; the energy of the table is that of the data, −3.2154e-8."""
    model = gm.models.outer_solar_system()
    run = gm.simulate(
        model.system, model.q0, model.v0, method=gm.Composition(gm.Verlet(), order=6), dt=20.0, t_end=20_000.0
    )
    jupiter = run.q[:, 1] - run.q[:, 0]
    angle = np.unwrap(np.arctan2(jupiter[:, 1], jupiter[:, 0]))
    period = np.interp(2 * np.pi, angle - angle[0], run.t)
    assert 4325 < period < 4340
    assert run.energy[0] == pytest.approx(-3.2154e-8, rel=1e-4)
    assert np.max(np.abs(run.energy_error / run.energy[0])) < 1e-9
