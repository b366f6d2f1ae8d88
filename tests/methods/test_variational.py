"""Variational integrators: what they reduce to, Lagrangian systems, forces that do work, and the penalty limit."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import geomint as gm
from geomint.analysis import measure
from geomint.analysis.measure import Point
from geomint.models.pendula import from_angles
from geomint.system.lagrangian import derive

ANGLES = gm.models.double_pendulum_angles()
QUARTIC = gm.System(lambda q: 0.25 * jnp.sum(q**4) + q[0] * q[1] ** 2 + jnp.sum(q**2), mass=[[1.0, 0.2], [0.2, 2.0]])


@pytest.mark.parametrize(
    ("quadrature", "same"),
    [
        (gm.Variational("trapezoid"), gm.Verlet()),
        (gm.Variational("midpoint"), gm.ImplicitMidpoint()),
        (gm.Variational("galerkin", 2), gm.Gauss(2)),
    ],
)
def test_on_a_constant_mass_they_are_old_friends(quadrature, same):
    go = lambda method: gm.simulate(QUARTIC, [0.6, -0.3], [0.2, 0.4], method=method, dt=0.1, t_end=5.0)
    np.testing.assert_allclose(go(quadrature).q, go(same).q, atol=1e-12)
    np.testing.assert_allclose(go(quadrature).p, go(same).p, atol=1e-12)


def test_two_descriptions_of_the_double_pendulum_agree():
    """Angles by a sixth-order variational integrator, Cartesian coordinates by Dormand–Prince on the constrained
    equations."""
    times = np.arange(1, 51) * 0.2
    cartesian = gm.models.double_pendulum()
    exact = measure.independent_reference(cartesian.system, Point(cartesian.q0, 0 * cartesian.q0), times)
    run = gm.simulate(
        ANGLES.system, ANGLES.q0, ANGLES.v0, method=gm.Variational("galerkin", 3), dt=0.02, t_end=10.0, save_every=10
    )
    np.testing.assert_allclose(from_angles(run.q)[1:], exact.q, atol=1e-10)
    assert run.energy[0] == pytest.approx(-3)


@pytest.mark.parametrize(
    "method",
    [gm.Variational(), gm.Variational("trapezoid"), gm.Variational("galerkin", 2), gm.Composition(gm.Variational(), 4)],
    ids=repr,
)
def test_structure_on_a_position_dependent_mass(method):
    at = Point(np.array([0.4, 1.1]), np.array([0.3, -0.5]))
    order = measure.order(method, ANGLES.system, at, 0.1, refinements=8, engine="xla")  # as all other measurements
    assert order.order == pytest.approx(method.traits.order, abs=0.15)
    assert measure.symplecticity(method, ANGLES.system, at, 0.2) < 1e-12
    assert measure.symmetry(method, ANGLES.system, at, 0.2) < 1e-12
    assert measure.long_run(method, ANGLES.system, at, 0.05, steps=5000, engine="xla").excess < 0.5


def test_forces_do_the_work_that_is_counted():
    """Friction and a drive on a quartic oscillator: energy gained = work done, up to terms of the method's order."""
    system = gm.LagrangianSystem(
        lambda q, v: 0.5 * jnp.sum(v**2) - jnp.sum(q**4), force=lambda q, v, t: -0.2 * v + jnp.cos(0.7 * t)
    )
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
    system = gm.LagrangianSystem(
        lambda q, v: 0.5 * jnp.sum(v**2) - 0.5 * jnp.sum(q**2), force=lambda q, v, t: -0.2 * v + jnp.cos(omega * t)
    )
    run = gm.simulate(system, [0.0], [0.0], method=gm.Variational("midpoint"), dt=0.05, t_end=200.0)
    late = run.t > 150
    response = 1 / (1 - omega**2 + 0.2j * omega)
    np.testing.assert_allclose(run.q[late, 0], np.real(response * np.exp(1j * omega * run.t[late])), atol=2e-3)
    np.testing.assert_allclose(run.energy_error, run.work, atol=1e-11)


def test_time_of_a_force_is_right_after_a_resume(tmp_path):
    system = gm.LagrangianSystem(
        lambda q, v: 0.5 * jnp.sum(v**2) - jnp.sum(q**4), force=lambda q, v, t: jnp.sin(t) - 0.1 * v
    )
    go = lambda t, **more: gm.simulate(
        system, [0.5], [0.0], method=gm.Variational("galerkin", 2), dt=0.05, t_end=t, t0=1.0, **more
    )
    go(3.0, output=tmp_path / "run.h5")
    assert np.array_equal(gm.resume(tmp_path / "run.h5", system=system, t_end=5.0).q, go(5.0).q)


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
    """Tao and Owhadi's example of two degrees of freedom, with its exact solution: q₁ is held at 0, λ = cos t in
    geomint's sign (M q̈ = −∇V − Gᵀλ: 0 = q₂ − q₁ − λ), and the penalised q₁ oscillates as the paper's formula says."""
    system = gm.System(lambda q: 0.5 * (q[1] - q[0]) ** 2, constraint=lambda q: q[:1])
    omega = 50.0
    run = gm.simulate(
        gm.penalize(system, omega),
        [0.0, 1.0],
        method=gm.Composition(gm.Verlet(), order=4),
        dt=0.0005,
        t_end=6.0,
        save_every=4,
    )
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
    with pytest.raises(gm.InputError, match="the system has no constraint"):
        gm.penalize(free, 10.0)
    with pytest.raises(gm.InputError, match="positive"):
        gm.penalize(gm.models.double_pendulum().system, -1.0)
    run = gm.simulate(free, [1.0], method=gm.Verlet(), dt=0.1, t_end=1.0)
    with pytest.raises(gm.InputError, match="penalize"):
        gm.recover_multipliers(run, 0.2)


def test_gradients_run_through_a_variational_run():
    final = lambda v: gm.simulate(ANGLES.system, ANGLES.q0, v, method=gm.Variational(), dt=0.1, t_end=1.0).q[-1, 0]
    exact = jax.jit(jax.grad(final))(jnp.asarray([0.1, 0.2]))
    numeric = [(final(np.array([0.1, 0.2]) + d) - final(np.array([0.1, 0.2]) - d)) / 2e-6 for d in 1e-6 * np.eye(2)]
    np.testing.assert_allclose(exact, numeric, rtol=1e-6)


# --- Lagrangians that are not quadratic in v ------------------------------------------------------------------------
RELATIVISTIC = gm.LagrangianSystem(lambda q, v: -jnp.sum(jnp.sqrt(1 - v**2)) - 0.5 * jnp.sum(q**2))


def relativistic(q0, times):
    """q and p of H = √(1 + p²) + ½q², started at rest, by Dormand and Prince's method of order 8."""
    right = lambda t, y: [y[1] / np.sqrt(1 + y[1] ** 2), -y[0]]
    return solve_ivp(right, (0, times[-1]), [q0, 0.0], t_eval=times, method="DOP853", rtol=1e-13, atol=1e-13).y


@pytest.mark.parametrize(
    ("method", "start", "bound"),
    [
        (gm.Variational(), 2.0, 4e-4),
        (gm.Variational("galerkin", 3), 20.0, 1e-6),  # p up to 201, v to 1 − 1.2e-5
        *(
            pytest.param(m, q0, b, marks=pytest.mark.slow)
            for m, q0, b in [
                (gm.Variational("trapezoid"), 2.0, 1e-3),
                (gm.Variational("galerkin", 2), 2.0, 1e-7),
                (gm.Variational("galerkin", 5), 20.0, 1e-9),
                (gm.Composition(gm.Variational(), 4), 2.0, 1e-7),
            ]
        ),
    ],
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_a_relativistic_oscillator(method, start, bound):
    """L = −√(1 − v²) − ½q²: p = v/√(1 − v²) passes 1, where Newton's method from v = 0 leaves the range of v."""
    run = gm.simulate(RELATIVISTIC, [start], method=method, dt=0.02, t_end=20.0)
    q = relativistic(start, run.t)[0]
    assert np.max(np.abs(run.p)) == pytest.approx(np.sqrt((1 + 0.5 * start**2) ** 2 - 1), rel=1e-3)
    np.testing.assert_allclose(run.q[:, 0], q, atol=bound)
    np.testing.assert_allclose(run.v[:, 0], (run.p / np.sqrt(1 + run.p**2))[:, 0], rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(run.energy, np.sqrt(1 + run.p[:, 0] ** 2) + 0.5 * run.q[:, 0] ** 2, rtol=1e-13)
    assert np.max(np.abs(run.energy_error)) < 20 * bound


@pytest.mark.slow
def test_gradients_and_members_of_a_relativistic_oscillator():
    go = lambda v: gm.simulate(RELATIVISTIC, jnp.array([2.0]), v, method=gm.Variational(), dt=0.05, t_end=3.0)
    last = jax.jit(lambda v: go(v).q[-1, 0] + go(v).energy[-1])
    v, e = jnp.array([0.9]), 1e-6
    quotient = (last(v + e) - last(v - e)) / (2 * e)
    np.testing.assert_allclose(jax.grad(last)(v)[0], quotient, rtol=1e-6)
    several = gm.ensemble(
        RELATIVISTIC, [[2.0], [0.1], [2.0]], [[0.9], [0.0], [0.999999]], method=gm.Variational(), dt=0.05, t_end=3.0
    )
    np.testing.assert_allclose(several.q[0], go(np.array([0.9])).q, rtol=1e-13)
    np.testing.assert_allclose(
        several.energy, np.sqrt(1 + several.p[..., 0] ** 2) + 0.5 * several.q[..., 0] ** 2, rtol=1e-13
    )
    assert several.p[2, 0, 0] == pytest.approx(1 / np.sqrt(2e-6), rel=1e-6)


def test_a_lagrangian_whose_mass_vanishes_at_rest(tmp_path):
    """L = ¼|v|⁴ − ½q²: ∂²L/∂v² = 0 at v = 0, so that the velocity is found from the last one. Energy ¾v⁴ + ½q²."""
    system = gm.LagrangianSystem(lambda q, v: 0.25 * jnp.sum(v**4) - 0.5 * jnp.sum(q**2))
    go = lambda t_end, **more: gm.simulate(system, [0.1], [1.0], method=gm.Variational(), dt=0.01, t_end=t_end, **more)
    run = go(1.0)  # v stays between .8 and 1
    np.testing.assert_allclose(run.v, np.cbrt(run.p), rtol=1e-13)
    np.testing.assert_allclose(run.energy, 0.75 * run.v[:, 0] ** 4 + 0.5 * run.q[:, 0] ** 2, rtol=1e-13)
    assert np.max(np.abs(run.energy_error)) < 1e-5
    go(0.5, output=tmp_path / "run.h5")
    assert np.array_equal(gm.resume(tmp_path / "run.h5", system=system, t_end=1.0).q, run.q)


def test_a_momentum_without_a_velocity():
    """L = √(1 + v²) + .4q: ∂L/∂v = v/√(1 + v²) stays below 1, and p = .4t does not."""
    system = gm.LagrangianSystem(lambda q, v: jnp.sum(jnp.sqrt(1 + v**2)) + 0.4 * jnp.sum(q))
    with pytest.raises(gm.RunStopped, match="∂L/∂v|discrete Euler–Lagrange") as stopped:
        gm.simulate(system, [0.0], [0.0], method=gm.Variational("trapezoid"), dt=0.02, t_end=5.0)
    assert "log" not in str(stopped.value)
    assert stopped.value.time == pytest.approx(2.5, abs=0.1)
    v = derive(system, (1,)).velocity_at(jnp.zeros(1), jnp.array([1.5]))
    assert np.isnan(v).all()


def test_velocities_with_a_magnetic_term():
    """p = v + A(q) with A far larger than v: the velocity is right to the rounding of p, and counts as found."""
    system = gm.LagrangianSystem(lambda q, v: 0.5 * jnp.sum(v**2) + 1e8 * q[1] * v[0] + 0.1 * jnp.sum(v**4) / 4)
    mech = derive(system, (2,))
    q, v = jnp.array([0.3, 0.7]), jnp.array([1e-3, -2e-3])
    np.testing.assert_allclose(mech.velocity_at(q, mech.momentum_at(q, v)), v, atol=3e-8)


# --- what penalize keeps --------------------------------------------------------------------------------------------
def test_penalize_keeps_what_was_stated():
    """Every field but those that it replaces; a gradient by hand of the old fast part goes on to count, beside the
    springs."""
    system = gm.System(
        lambda q, k: k * q[1],
        mass=np.array([1.0, 2.0]),
        constraint=lambda q, k: q[:1] ** 2 + q[1:] ** 2 - 1,
        fast=lambda q, k: 3.0 * jnp.sum(q**4),
        symmetries=gm.Rotation((0, 1)),
        params=2.0,
        overrides={"gradient": lambda q, k: jnp.array([0.0, 1.0]) * k, "fast_gradient": lambda q, k: 12.0 * q**3},
        watch={"size": lambda q, p, k: jnp.sum(q**2)},
        origin="pendulum()",
    )
    free = gm.penalize(system, 30.0)
    replaced = {"constraint", "fast", "overrides", "origin"}
    for field in dataclasses.fields(system):
        if field.name not in replaced:
            before, after = getattr(system, field.name), getattr(free, field.name)
            assert after is before or jax.tree.all(jax.tree.map(np.array_equal, after, before)), field.name
    assert free.constraint is None
    assert free.origin is None
    q, mech = jnp.array([0.8, -0.9]), gm.Mechanics(free, (2,))
    stiff = lambda q: 0.5 * 30.0**2 * (q[0] ** 2 + q[1] ** 2 - 1) ** 2
    np.testing.assert_allclose(mech.fast_gradient(q), jax.grad(stiff)(q) + 12.0 * q**3, rtol=1e-13)
    np.testing.assert_allclose(mech.force(q), -(jax.grad(stiff)(q) + 12.0 * q**3 + jnp.array([0.0, 2.0])), rtol=1e-13)
    run = gm.simulate(free, [1.0, 0.0], method=gm.Verlet(), dt=0.001, t_end=0.2, save_every=20)
    np.testing.assert_allclose(run.watched["size"], 1.0, atol=0.02)  # the springs hold it near the circle


@pytest.mark.parametrize(
    "method",
    [gm.Gauss(2), gm.ImplicitMidpoint(), gm.Variational(), gm.Variational("galerkin", 3), gm.PushforwardNewmark()],
    ids=repr,
)
def test_implicit_methods_start_from_the_origin(method):
    """q̈ = −cos q from rest at 0: the size of the unknown is that of the step, not of q."""
    run = gm.simulate(gm.System(lambda q: jnp.sum(jnp.sin(q))), [0.0], [0.0], method=method, dt=0.01, t_end=0.5)
    assert run.q[-1, 0] == pytest.approx(-0.5 * 0.5**2, rel=2e-2)
    still = gm.simulate(gm.System(lambda q: jnp.sum(jnp.cosh(q))), [0.0], [0.0], method=method, dt=0.1, t_end=1.0)
    assert np.all(np.abs(still.q) < 1e-15)
