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


def test_a_run_is_not_resumed_with_another_force(tmp_path):
    oscillator = lambda q, v: 0.5 * jnp.sum(v**2 - q**2)
    make = lambda friction: gm.LagrangianSystem(oscillator, force=lambda q, v, t: -friction * v)
    gm.simulate(make(0.1), [0.5], method=gm.Variational(), dt=0.05, t_end=0.5, output=tmp_path / "run.h5")
    with pytest.raises(gm.ArchiveError, match="not the one that was run"):
        gm.resume(tmp_path / "run.h5", system=make(0.2), t_end=1.0)
    assert gm.resume(tmp_path / "run.h5", system=make(0.1), t_end=1.0).t[-1] == pytest.approx(1.0)


def test_equations_that_were_not_solved_stop_the_run():
    """V = −q⁴: the body is at infinity at t = .93."""
    escape = gm.System(lambda q: -jnp.sum(q**4))
    with pytest.raises(gm.RunStopped, match=r"at step 18, t = 0.9: the discrete Euler–Lagrange .* not solved"):
        gm.simulate(escape, [1.0], method=gm.Variational(), dt=0.05, t_end=10.0, save_every=100)


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


def test_a_penalised_system_keeps_its_fast_part():
    """½ω²|g|² comes on top of what was stiff before."""
    circle = lambda q: jnp.sum(q**2, keepdims=True) - 1
    system = gm.System(lambda q: q[1], fast=lambda q: 8 * jnp.sum(q**4), constraint=circle)
    soft = gm.Mechanics(gm.penalize(system, 30.0), (2,))
    q = np.array([0.3, -0.7])
    g = 0.3**2 + 0.7**2 - 1
    assert soft.potential(q) == pytest.approx(-0.7 + 8 * (0.3**4 + 0.7**4) + 450 * g**2, rel=1e-14)
    np.testing.assert_allclose(soft.fast_force(q), -(32 * q**3 + 900 * g * 2 * q), rtol=1e-13)


def test_multipliers_are_averaged_where_they_are_known():
    """At the ends the window is narrower: the first and the last value are ω²g themselves. With a filtered method g is
    that of the filtered positions, whose averages are nearer to λ = cos t: .048 at ω = 50, against .067."""
    system = gm.System(lambda q: 0.5 * (q[1] - q[0]) ** 2, constraint=lambda q: q[:1])
    run = gm.simulate(gm.penalize(system, 50.0), [0.0, 1.0], method=gm.ZhangSkeel(0.4), dt=0.02, t_end=6.0)
    found = gm.recover_multipliers(run, window=0.5)[:, 0]
    np.testing.assert_allclose(found[[0, -1]], 2500 * run.q_filtered[[0, -1], 0], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found[1], 2500 * np.mean(run.q_filtered[:3, 0]), rtol=1e-11)
    np.testing.assert_allclose(found[100], 2500 * np.mean(run.q_filtered[88:113, 0]), rtol=1e-11)
    middle = (run.t > 0.5) & (run.t < 5.5)
    assert np.sqrt(np.mean((found[middle] - np.cos(run.t[middle])) ** 2)) == pytest.approx(0.048, abs=0.002)


def test_errors_of_penalty():
    free = gm.System(lambda q: jnp.sum(q**2))
    with pytest.raises(gm.InputError, match="needs a gm.System with a constraint"):
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
