"""Variational integrators: what they reduce to, Lagrangian systems, forces that do work, and the penalty limit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint import measure
from geomint.measure import Point
from geomint.models.pendula import from_angles

ANGLES = gm.models.double_pendulum_angles()
QUARTIC = gm.System(lambda q: 0.25 * jnp.sum(q**4) + q[0] * q[1] ** 2 + jnp.sum(q**2), mass=[[1.0, 0.2], [0.2, 2.0]])


@pytest.mark.parametrize(
    ("quadrature", "same"), [(gm.Variational("trapezoid"), gm.Verlet()), (gm.Variational("midpoint"), gm.ImplicitMidpoint()), (gm.Variational("galerkin", 2), gm.Gauss(2))]
)
def test_on_a_constant_mass_they_are_old_friends(quadrature, same):
    go = lambda method: gm.simulate(QUARTIC, [0.6, -0.3], [0.2, 0.4], method=method, dt=0.1, t_end=5.0)
    np.testing.assert_allclose(go(quadrature).q, go(same).q, atol=1e-12)
    np.testing.assert_allclose(go(quadrature).p, go(same).p, atol=1e-12)


def test_two_descriptions_of_the_double_pendulum_agree():
    """Angles by a sixth-order variational integrator, Cartesian coordinates by Dormand–Prince on the constrained equations."""
    times = np.arange(1, 51) * 0.2
    cartesian = gm.models.double_pendulum()
    exact = measure.independent_reference(cartesian.system, Point(cartesian.q0, 0 * cartesian.q0), times)
    run = gm.simulate(ANGLES.system, ANGLES.q0, ANGLES.v0, method=gm.Variational("galerkin", 3), dt=0.02, t_end=10.0, save_every=10)
    np.testing.assert_allclose(from_angles(run.q)[1:], exact.q, atol=1e-10)
    assert run.energy[0] == pytest.approx(-3)


@pytest.mark.parametrize("method", [gm.Variational(), gm.Variational("trapezoid"), gm.Variational("galerkin", 2), gm.Composition(gm.Variational(), 4)], ids=repr)
def test_structure_on_a_position_dependent_mass(method):
    at = Point(np.array([0.4, 1.1]), np.array([0.3, -0.5]))
    assert measure.order(method, ANGLES.system, at, 0.1).order == pytest.approx(method.traits.order, abs=0.15)
    assert measure.symplecticity(method, ANGLES.system, at, 0.2) < 1e-12
    assert measure.symmetry(method, ANGLES.system, at, 0.2) < 1e-12
    assert measure.long_run(method, ANGLES.system, at, 0.05, steps=5000).excess < 0.5


def test_forces_do_the_work_that_is_counted():
    """Friction and a drive on a quartic oscillator: energy gained = work done, up to terms of the method's order."""
    system = gm.LagrangianSystem(lambda q, v: 0.5 * jnp.sum(v**2) - jnp.sum(q**4), force=lambda q, v, t: -0.2 * v + jnp.cos(0.7 * t))
    imbalance = []
    for dt in (0.05, 0.025):
        run = gm.simulate(system, [0.5], [0.0], method=gm.Variational("midpoint"), dt=dt, t_end=20.0)
        imbalance.append(np.max(np.abs(run.energy_error - run.work)))
    assert 1e-6 < imbalance[0] < 0.02
    assert np.max(np.abs(run.work)) > 0.2
    assert imbalance[0] / imbalance[1] == pytest.approx(4, rel=0.2)


def test_a_driven_oscillator_finds_its_limit_cycle():
    """q̈ + .2q̇ + q = cos ωt settles on Re e^{iωt}/(1 − ω² + .2iω); midpoint balances energy and work exactly on it."""
    omega = 0.7
    system = gm.LagrangianSystem(lambda q, v: 0.5 * jnp.sum(v**2) - 0.5 * jnp.sum(q**2), force=lambda q, v, t: -0.2 * v + jnp.cos(omega * t))
    run = gm.simulate(system, [0.0], [0.0], method=gm.Variational("midpoint"), dt=0.05, t_end=200.0)
    late = run.t > 150
    response = 1 / (1 - omega**2 + 0.2j * omega)
    np.testing.assert_allclose(run.q[late, 0], np.real(response * np.exp(1j * omega * run.t[late])), atol=2e-3)
    np.testing.assert_allclose(run.energy_error, run.work, atol=1e-11)


def test_time_of_a_force_is_right_after_a_resume(tmp_path):
    make = lambda: gm.LagrangianSystem(lambda q, v: 0.5 * jnp.sum(v**2) - jnp.sum(q**4), force=lambda q, v, t: jnp.sin(t) - 0.1 * v)
    go = lambda t, **more: gm.simulate(make(), [0.5], [0.0], method=gm.Variational("galerkin", 2), dt=0.05, t_end=t, t0=1.0, **more)
    go(3.0, output=tmp_path / "run.h5")
    assert np.array_equal(gm.resume(tmp_path / "run.h5", system=make(), t_end=5.0).q, go(5.0).q)


def test_errors_of_lagrangian_systems():
    with pytest.raises(gm.InputError, match=r"constant mass.*Variational"):
        gm.simulate(ANGLES.system, ANGLES.q0, method=gm.Verlet(), dt=0.1, t_end=1.0)
    with pytest.raises(gm.InputError, match=r"lagrangian\(q\) must return one number"):
        gm.simulate(gm.LagrangianSystem(lambda q, v: v**2), [1.0], method=gm.Variational(), dt=0.1, t_end=1.0)
    with pytest.raises(gm.InputError, match="degree"):
        gm.Variational("midpoint", 3)


def test_penalty_and_multipliers():
    """Tao and Owhadi's example of two degrees of freedom, with its exact solution: q₁ is held at 0, λ = cos t in geomint's sign
    (M q̈ = −∇V − Gᵀλ: 0 = q₂ − q₁ − λ), and the penalised q₁ oscillates as the paper's formula says."""
    system = gm.System(lambda q: 0.5 * (q[1] - q[0]) ** 2, constraint=lambda q: q[:1])
    omega = 50.0
    run = gm.simulate(gm.penalize(system, omega), [0.0, 1.0], method=gm.Composition(gm.Verlet(), order=4), dt=0.0005, t_end=6.0, save_every=4)
    root = np.sqrt(4 + omega**4)
    slow, fast = np.sqrt((2 + omega**2 - root) / 2), np.sqrt((2 + omega**2 + root) / 2)
    np.testing.assert_allclose(run.q[:, 0], (np.cos(slow * run.t) - np.cos(fast * run.t)) / root, atol=5e-7)
    recovered = gm.recover_multipliers(run, window=4 * 2 * np.pi / omega)
    middle = (run.t > 0.5) & (run.t < 5.5)
    assert np.sqrt(np.mean((recovered[middle, 0] - np.cos(run.t[middle])) ** 2)) < 0.02


def test_errors_of_penalty():
    free = gm.System(lambda q: jnp.sum(q**2))
    with pytest.raises(gm.InputError, match="the system has no constraint"):
        gm.penalize(free, 10.0)
    with pytest.raises(gm.InputError, match="positive"):
        gm.penalize(gm.models.double_pendulum().system, -1.0)
    run = gm.simulate(free, [1.0], method=gm.Verlet(), dt=0.1, t_end=1.0)
    with pytest.raises(gm.InputError, match="penalize"):
        gm.recover_multipliers(run, 0.2)


def test_gradients_run_through_a_variational_run():
    final = lambda v: gm.simulate(ANGLES.system, ANGLES.q0, v, method=gm.Variational(), dt=0.1, t_end=1.0).q[-1, 0]
    exact = jax.grad(final)(jnp.asarray([0.1, 0.2]))
    numeric = [(final(np.array([0.1, 0.2]) + d) - final(np.array([0.1, 0.2]) - d)) / 2e-6 for d in 1e-6 * np.eye(2)]
    np.testing.assert_allclose(exact, numeric, rtol=1e-6)
