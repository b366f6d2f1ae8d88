"""A certificate can fail: methods that converge to another motion or to none, steps that are too long, forces."""

from __future__ import annotations

import time

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import geomint as gm
from geomint.analysis import certify, measure, reference
from geomint.analysis.measure import Point
from geomint.cli.app import app
from geomint.methods import Method
from geomint.system.lagrangian import derive

KEPLER = gm.models.kepler()


class Strong(Method):
    """Verlet with kicks of `factor`·V: symplectic, symmetric, reversible, and right only for a factor of one."""

    factor: float = 1.3

    @property
    def traits(self):
        return gm.Verlet().traits

    def step(self, mech, carry, dt):
        q, p = carry
        p = p + 0.5 * dt * self.factor * mech.force(q)
        q = q + mech.displacement(p, dt)
        return q, p + 0.5 * dt * self.factor * mech.force(q)


class Still(Strong):
    """Stays where it is, which no step improves."""

    def step(self, mech, carry, dt):
        return carry


def test_convergence_to_another_motion_is_told():
    look = lambda method: gm.certify(KEPLER.system, method, KEPLER.q0, KEPLER.v0, dt=KEPLER.dt, steps=1000)
    right = look(Strong(1.0))
    assert right.ok
    assert right["order"].measured == pytest.approx(2, abs=0.05)
    wrong = look(Strong(1.3))
    assert not wrong.ok
    assert wrong["order"].agrees is False
    assert wrong["smallest error"].measured > 1e-3
    assert "NOT AS CLAIMED" in str(wrong)
    assert [row.name for row in wrong.rows if row.agrees is False] == ["order"]  # all else is as claimed


def test_no_convergence_is_told():
    still = gm.certify(KEPLER.system, Still(), KEPLER.q0, KEPLER.v0, dt=KEPLER.dt, steps=1000)
    assert still["order"].agrees is False
    assert not still.ok


def test_an_exact_motion_has_no_order():
    """Of a free particle Verlet makes no error: there is no slope, and nothing wrong."""
    free = gm.certify(gm.System(lambda q: 0.0 * jnp.sum(q)), gm.Verlet(), [1.0, 2.0], [0.5, -1.0], dt=0.1, steps=1000)
    assert free.ok
    assert np.isnan(free["order"].measured)
    assert free["smallest error"].measured < 1e-15
    assert "exact to rounding here" in str(free)


@pytest.mark.parametrize("dt", [np.nan, np.inf, 0.0, -0.1, "a"])
def test_a_step_that_is_none(dt):
    began = time.monotonic()
    with pytest.raises(gm.InputError, match="dt must be"):
        gm.certify(KEPLER.system, gm.Verlet(), KEPLER.q0, KEPLER.v0, dt=dt)
    assert time.monotonic() - began < 10


def test_a_step_that_is_too_long_on_the_command_line():
    result = CliRunner().invoke(app, ["certify", "fpu", "Verlet", "--dt", "1"])
    assert result.exit_code == 2
    lines = result.output.strip().splitlines()
    assert len(lines) <= 2
    assert "dt = 1 can't be certified" in lines[0]
    assert "Take dt = 0.03125 or less" in " ".join(lines)  # 2/ω = .04 is the limit


def test_a_step_that_is_too_long_comes_with_one_that_is_not():
    system = gm.System(lambda q: 0.5 * jnp.sum(jnp.array([1.0, 9.0]) * q**2) + 0.1 * q[0] * q[1] ** 2)
    look = lambda dt: gm.certify(system, gm.Verlet(), [0.5, 0.3], [0.2, 0.0], dt=dt, steps=1000)
    with pytest.raises(gm.MeasurementError, match=r"dt = 0.7 can't be certified: .* Take dt = 0.35 or less") as error:
        look(0.7)  # hω = 2.1
    assert isinstance(error.value, gm.GeomintError)
    assert look(0.35).ok


def test_motions_that_can_not_be_known():
    """A fall into the centre: the references end there, or differ, or need too long. All are errors of geomint."""
    at = Point(np.array([1.0, 0.0]), np.array([0.0, 1e-9]))
    with pytest.raises(gm.MeasurementError, match="take a smaller dt"):
        measure.reference(KEPLER.system, at, np.array([1.0, 2.0, 3.0]), 0.1)


@pytest.fixture(scope="module")
def driven():
    """A damped pendulum with a drive."""
    force = lambda q, v, t: -0.1 * v + 0.3 * jnp.cos(2 * t)
    return gm.LagrangianSystem(lambda q, v: jnp.sum(v**2) / 2 - jnp.sum(1 - jnp.cos(q)), force=force)


class Weak(gm.Variational):
    """Only nine tenths of the force."""

    def step(self, mech, carry, dt):
        whole = mech.system.force
        return super().step(eqx.tree_at(lambda m: m.system.force, mech, lambda *a: 0.9 * whole(*a)), carry, dt)


@pytest.mark.slow  # test_forces_are_not_certified_as_structure certifies a system with friction among the quick tests
def test_the_work_of_forces_is_in_the_balance(driven):
    certificate = gm.certify(driven, gm.Variational(), [1.0], [0.0], dt=0.1, steps=1000)
    assert certificate.ok
    assert certificate["energy balance"].measured == pytest.approx(2, abs=0.1)
    assert certificate["balance error"].measured < 0.01
    assert "energy drift" not in [row.name for row in certificate.rows]
    # The method's own count of its work, W = Σ h w f·v at the nodes, closes the balance as well.
    run = gm.simulate(driven, [1.0], [0.0], method=gm.Variational(), dt=0.1, t_end=40.0)
    assert np.max(np.abs(run.energy_error - run.work)) < 0.01 * np.max(np.abs(run.work))


def test_a_part_of_the_force_leaves_the_balance_open(driven):
    found = measure.balance(Weak(), driven, Point(np.array([1.0]), np.array([0.0])), 0.1)
    assert found.order < 0.5
    assert found.error > 0.01


def parallelogram(q):
    squared = lambda x: jnp.sum(x**2)
    return jnp.stack([squared(q[0]) - 1, squared(q[1] - q[0]) - 4, squared(q[1] - np.array([2.0, 0])) - 1])


FOUR_BAR = gm.System(lambda q: 0.3 * jnp.sum(q[:, 1]), constraint=parallelogram)


@pytest.mark.filterwarnings("ignore:constraints .* depend on each other")
def test_dependent_constraints_have_a_certificate(monkeypatch):
    """Started in a singular position: the multipliers of the reference are not determined there, the acceleration
    is."""
    monkeypatch.setattr(reference, "EVALUATIONS", 40_000)
    monkeypatch.setattr(certify, "ENGINE", "xla")  # one engine to compile for
    found = gm.certify(FOUR_BAR, gm.Rattle(), [[1.0, 0], [3.0, 0]], [[0, 1.0], [0, 1.0]], dt=0.02, steps=500)
    assert found.ok, found
    assert abs(found["order"].measured - 2) < 0.1


@pytest.mark.parametrize("factor", [1.0, 3.0], ids=["stated twice", "and scaled"])
def test_a_constraint_stated_twice_has_a_reference(factor):
    """Against a pendulum in its angle, θ'' = −cos θ."""
    from scipy.integrate import solve_ivp

    circle = lambda q: jnp.sum(q**2, keepdims=True) - 1
    system = gm.System(lambda q: q[1], constraint=lambda q: jnp.concatenate([circle(q), factor * circle(q)]))
    times = np.array([0.5, 1.0, 2.0])
    found = measure.independent_reference(system, Point(np.array([1.0, 0]), np.array([0, 1.0])), times)
    exact = solve_ivp(lambda t, y: [y[1], -np.cos(y[0])], (0, 2), [0, 1], "DOP853", times, rtol=3e-14, atol=1e-15).y
    np.testing.assert_allclose(found.q, np.stack([np.cos(exact[0]), np.sin(exact[0])], axis=1), rtol=0, atol=1e-11)
    np.testing.assert_allclose(np.linalg.norm(found.p, axis=1), np.abs(exact[1]), rtol=0, atol=1e-11)


@pytest.mark.parametrize("mass", [3.0, np.array([[1.0], [2.0]]), np.diag([1.0, 2, 3, 4]) + 0.3])
def test_the_acceleration_of_the_reference(mass):
    """Multipliers by the normal equations, where those are regular."""
    rods = gm.Distances([(None, 0), (0, 1)], 1.0)
    system = gm.System(lambda q: jnp.sum(q[:, 1] + q[:, 0] ** 3), mass=mass, constraint=rods)
    q, v = np.array([[0.6, 0.8], [1.6, 0.8]]), np.array([[-0.8, 0.6], [-0.8, 0.1]])
    expected = derive(system, q.shape).acceleration(jnp.asarray(q), jnp.asarray(v))
    found = reference.Acceleration(system, q.shape)(q, v, 0.0)
    np.testing.assert_allclose(found, np.ravel(expected), rtol=1e-12, atol=1e-13)


def test_a_motion_without_a_value_is_given_up_at_once(monkeypatch):
    monkeypatch.setattr(reference, "EVALUATIONS", 10 * reference.NOT_FINITE)
    system = gm.System(lambda q: jnp.sum(jnp.sqrt(q)))
    with pytest.raises(gm.MeasurementError, match="acceleration is not finite at t = "):
        measure.independent_reference(system, Point(np.array([-1.0]), np.array([0.0])), np.array([1.0]))


TRUSS = gm.System(lambda q: jnp.sum(q[:, 1]), constraint=gm.Distances([(None, 0), ((2.0, 0.0), 0)], [1.5, 1.5]))


@pytest.mark.parametrize(
    ("system", "method", "q0"),
    [
        (gm.System(lambda q: -jnp.cos(q[0])), gm.Verlet(), [0.0]),
        (gm.System(lambda q: 1e6 * jnp.sum((q - 0.7) ** 4 + jnp.exp(q) - np.exp(0.7) * q)), gm.Verlet(), [0.7]),
        (TRUSS, gm.Rattle(), [[1.0, np.sqrt(1.25)]]),
    ],
    ids=["free", "to rounding", "rigid"],
)
def test_an_equilibrium_at_rest_is_told(system, method, q0):
    with pytest.raises(gm.MeasurementError, match="q0 is an equilibrium .* nothing moves"):
        gm.certify(system, method, q0, dt=0.05, steps=500)


def test_a_start_at_rest_beside_an_equilibrium_moves():
    system = gm.System(lambda q: -jnp.cos(q[0]))
    assert not measure.is_equilibrium(system, Point(np.array([1e-9]), np.array([0.0])))
    assert not measure.is_equilibrium(system, Point(np.array([0.0]), np.array([1e-9])))
    pendulum = gm.System(lambda q: q[0, 1], constraint=gm.Distances([(None, 0)], 1.0))
    assert not measure.is_equilibrium(pendulum, Point(np.array([[1e-9, -1.0]]), np.zeros((1, 2))))
    assert measure.is_equilibrium(pendulum, Point(np.array([[0.0, -1.0]]), np.zeros((1, 2))))


def test_forces_are_not_certified_as_structure():
    driven = gm.LagrangianSystem(lambda q, v: jnp.sum(v**2) / 2 - jnp.sum(q**2) / 2, force=lambda q, v, t: -0.1 * v)
    certificate = gm.certify(driven, gm.Variational(), [1.0], [0.0], dt=0.1, steps=200)
    assert certificate.ok
    assert certificate["symplecticity"].holds is False
    assert certificate["energy balance"].measured == pytest.approx(2, abs=0.1)
    assert certificate["balance error"].measured < 0.01
