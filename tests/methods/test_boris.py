"""Charges in magnetic fields: order against scipy, speed over 1e7 steps, the symplectic form, engines, refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import geomint as gm
from geomint.analysis import measure
from geomint.analysis.measure import Point
from geomint.methods.boris import Helix

AXIS = np.array([0.3, -0.5, 1.1])
MASS, CHARGE = np.array([1.0, 0.6]), np.array([1.0, -1.5])
Q0 = np.array([[0.6, 0.2, -0.3], [-0.5, 0.1, 0.4]])
V0 = np.array([[0.3, -0.5, 0.4], [0.2, 0.6, -0.3]])


def potential(q):
    return 0.5 * jnp.sum(q[:, 2] ** 2) + 0.3 * jnp.sum(q[0] * q[1]) + 0.2 * jnp.sum(q**4)


def field(q, t):
    """div B = 0."""
    lift = 0.4 * jnp.cos(1.3 * t)
    return jnp.stack([-lift * q[:, 0] * q[:, 2], -lift * q[:, 1] * q[:, 2], 1 + lift * q[:, 2] ** 2], axis=1)


def _scipy(b, drag=0.0, push=lambda t: 0.0, t_end=3.0):
    """The same charges by scipy, with numpy's cross product."""

    def right(t, y):
        q, v = y.reshape(2, 2, 3)
        force = -0.3 * q[::-1] - 0.8 * q**3 - q * [0, 0, 1] + CHARGE[:, None] * np.cross(v, b(q, t))
        force = force - drag * v + push(t)
        return np.ravel([v, force / MASS[:, None]])

    solved = solve_ivp(right, (0, t_end), np.ravel([Q0, V0]), method="DOP853", rtol=1e-13, atol=1e-14)
    return solved.y[:, -1].reshape(2, 2, 3)


def _moving(q, t):
    lift = 0.4 * np.cos(1.3 * t)
    x, y, z = q.T
    return np.stack([-lift * x * z, -lift * y * z, 1 + lift * z**2], axis=1)


STATED = {"mass": MASS[:, None], "charge": CHARGE}
MOVING = gm.System(potential, magnetic_field=field, **STATED)
UNIFORM = gm.System(potential, magnetic_field=AXIS, **STATED)
PUSHED = gm.System(
    potential, magnetic_field=AXIS, damping=0.2, force=lambda q, t: 0.3 * jnp.sin(2 * t) + 0 * q, **STATED
)
NAMES = ["B(q, t)", "order 4", "order 6", "drag", "Boris, drag"]
CASES = [
    (gm.Boris(), MOVING, (_moving,), 2),
    (gm.Composition(gm.Boris(), order=4), MOVING, (_moving,), 4),
    (gm.Composition(gm.MagneticSplitting(), order=6), UNIFORM, (lambda q, t: AXIS,), 6),
    (gm.MagneticSplitting(), PUSHED, (lambda q, t: AXIS, 0.2, lambda t: 0.3 * np.sin(2 * t)), 2),
    (gm.Boris(), PUSHED, (lambda q, t: AXIS, 0.2, lambda t: 0.3 * np.sin(2 * t)), 2),
]


@pytest.mark.parametrize(("method", "system", "by_scipy", "order"), CASES, ids=NAMES)
def test_order_against_scipy(method, system, by_scipy, order):
    exact, errors = _scipy(*by_scipy), []
    for n in (40, 80):
        run = gm.simulate(system, Q0, V0, method=method, dt=3 / n, t_end=3.0, save_every=n)
        errors.append(np.max(np.abs(np.array([run.q[-1], run.p[-1] / MASS[:, None]]) - exact)))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.3), errors
    assert errors[1] < {2: 5e-3, 4: 2e-4, 6: 1e-7}[order]
    if system is PUSHED:
        assert abs(run.energy_error[-1] - run.work[-1]) < 1e-2
        assert abs(run.work[-1]) > 0.05


@pytest.mark.parametrize(("method", "dt"), [(gm.Boris(), 1.0), (gm.Boris(), 0.1), (gm.MagneticSplitting(), 0.2)])
def test_speed_in_a_uniform_field(method, dt):
    """Over 1e7 steps. Without the carried |p|² the error is 1e-9 at dt = 1."""
    system, v0, n = gm.System(magnetic_field=AXIS), np.array([1.0, 0.2, -0.4]), 10**7
    run = gm.simulate(system, np.zeros(3), v0, method=method, dt=dt, t_end=n * dt, save_every=10**4, engine="native")
    speed, along = np.linalg.norm(run.p, axis=1), run.p @ AXIS / np.linalg.norm(AXIS)
    assert np.max(np.abs(speed / speed[0] - 1)) < 1e-15
    assert np.max(np.abs(along - along[0])) < 6e-11
    if isinstance(method, gm.MagneticSplitting):  # on the exact helix, after 1.9e6 revolutions
        rate, axis = np.linalg.norm(AXIS), AXIS / np.linalg.norm(AXIS)
        across = v0 - axis * (axis @ v0)
        angle = rate * run.t[-1]
        exact = axis * (axis @ v0) + np.cos(angle) * across + np.sin(angle) * np.cross(across, axis)
        assert np.max(np.abs(run.p[-1] - exact)) < 1e-8


def test_speed_with_an_electric_field():
    """A cycloid through 2000 stops, against compensated sums. Without a carried |p|² that follows the kicks the error
    is 3e-12."""
    system = gm.System(lambda q: -0.3 * q[0] - 0.1 * q[1], magnetic_field=np.array([0.0, 0.0, 1.0]))
    grid = {"method": gm.Boris(), "dt": 2 * np.pi / 64, "t_end": 4000 * np.pi, "save_every": 16, "engine": "native"}
    plain, compensated = (gm.simulate(system, np.zeros(3), compensated=c, **grid) for c in (False, True))
    assert np.max(np.abs(plain.p - compensated.p)) < 6e-13
    assert np.max(np.abs(compensated.energy_error)) < 1e-10


def test_a_charge_that_is_almost_stopped():
    """Half a kick leaves 1e-9 of its momentum, of which the carried |p|² knows no digit."""
    push = -2 * (1 - 1e-9)
    system = gm.System(lambda q: -push * q[2], magnetic_field=np.array([0.0, 0.0, 1.0]))
    run = gm.simulate(system, np.zeros(3), np.array([0.0, 0.0, 1.0]), method=gm.Boris(), dt=1.0, t_end=1.0)
    assert abs(run.p[-1, 2] - (1 + push)) < 1e-15


@pytest.mark.parametrize("method", [gm.Boris(), gm.MagneticSplitting()])
@pytest.mark.parametrize("pitch", [0.0, 1e-6])
def test_a_charge_that_moves_along_the_field(method, pitch):
    """The part of p normal to the field keeps its size, however small it is, over 3e4 steps."""
    along = AXIS / np.linalg.norm(AXIS)
    across = np.cross(along, [1.0, 0.0, 0.0])
    v0 = along + pitch * across / np.linalg.norm(across)
    run = gm.simulate(
        gm.System(magnetic_field=AXIS), np.zeros(3), v0, method=method, dt=0.3, t_end=9e3, save_every=1000
    )
    normal = np.linalg.norm(np.cross(run.p, along), axis=1)
    assert np.max(np.abs(normal - normal[0])) < 2e-14


def test_a_fall_along_the_field():
    """Released at rest in a potential whose force is along the field: the field does nothing."""
    start = 0.5 * np.ones((1, 3))
    runs = [
        gm.simulate(gm.System(lambda q: jnp.sum(q**2), magnetic_field=b), start, method=gm.Boris(), dt=0.02, t_end=2.0)
        for b in (None, np.full(3, 2.0))
    ]
    assert np.max(np.abs(runs[0].q - runs[1].q)) < 1e-14


def test_helix():
    """By exact series of fractions."""
    angles = np.array([0.0, 1e-9, 1e-3, 0.5, 0.99999, 1.00001, 2.0, 5.0])
    found = Helix.of(jnp.asarray(angles**2))
    for i, angle in enumerate(angles):
        square = Fraction(angle) ** 2
        terms = [(-square) ** k for k in range(40)]
        for values, first in zip(found, (1, 2, 3), strict=True):
            exact = float(sum(t / math.factorial(2 * k + first) for k, t in enumerate(terms)))
            assert abs(float(values[i]) - exact) < 4e-16 * max(1.0, abs(exact)), (angle, first)


def test_symplectic_form():
    """In the canonical momentum P = p + e A, A = ½ B × q, one step of the splitting preserves dq ∧ dP; independent of
    the form that `measure` uses. A step of Boris does neither, and preserves the volume."""
    at, dt = Point(Q0, MASS[:, None] * V0), 0.7
    shift = np.zeros((12, 12))
    for i in range(2):
        potential_of = 0.5 * CHARGE[i] * np.cross(AXIS, np.eye(3)).T  # A(q) = this @ q
        shift[6 + 3 * i : 9 + 3 * i, 3 * i : 3 * i + 3] = potential_of
    canonical = np.eye(12) + shift
    omega = np.block([[np.zeros((6, 6)), np.eye(6)], [-np.eye(6), np.zeros((6, 6))]])
    defects = {}
    for method in (gm.MagneticSplitting(), gm.Boris()):
        j = np.asarray(measure.step_jacobian(method, UNIFORM, jnp.asarray(at.q), jnp.asarray(at.p), jnp.asarray(dt)))
        j = canonical @ j @ np.linalg.inv(canonical)
        defects[type(method).__name__] = np.max(np.abs(j.T @ omega @ j - omega)) / max(1, np.max(np.abs(j)) ** 2)
        assert abs(np.linalg.det(j) - 1) < 1e-12
        measured = measure.symplecticity(method, UNIFORM, at, dt)
        assert (measured < 1e-14) == (defects[type(method).__name__] < 1e-14)
    assert defects["MagneticSplitting"] < 1e-14
    assert defects["Boris"] > 1e-3


def test_engines_ensembles_and_archives(tmp_path):
    grid = {"method": gm.Boris(), "dt": 0.05, "t_end": 4.0, "save_every": 8}
    run = gm.simulate(MOVING, Q0, V0, engine="xla", **grid)
    native = gm.simulate(MOVING, Q0, V0, engine="native", **grid)
    assert native.engine.startswith("native")
    np.testing.assert_allclose(native.q, run.q, rtol=0, atol=1e-12)
    both = gm.ensemble(MOVING, np.stack([Q0, 1.1 * Q0]), np.stack([V0, V0]), engine="xla", **grid)
    np.testing.assert_allclose(both.q[0], run.q, rtol=0, atol=1e-12)
    path = tmp_path / "run.h5"
    gm.simulate(MOVING, Q0, V0, engine="xla", output=path, **(grid | {"t_end": 2.0}))
    resumed = gm.resume(path, system=MOVING, t_end=4.0)
    np.testing.assert_array_equal(resumed.q, run.q)
    np.testing.assert_array_equal(resumed.p, run.p)
    other = gm.System(potential, magnetic_field=lambda q, t: 1.01 * field(q, t), **STATED)
    with pytest.raises(gm.GeomintError, match="system"):
        gm.resume(path, system=other, t_end=6.0)


def test_the_plane_is_a_part_of_space():
    """B_z as a number, for each of two charges, equals a field along z."""
    well = lambda q: 0.5 * jnp.sum(q[:, :2] ** 2 * np.array([1.0, 1.7])) + 0.3 * jnp.sum(q[:, 0] ** 3)
    in_plane = gm.System(well, magnetic_field=lambda q: 1 + 0.3 * q[:, 0], **STATED)
    along_z = lambda q: jnp.stack([0 * q[:, 0], 0 * q[:, 0], 1 + 0.3 * q[:, 0]], axis=1)
    in_space = gm.System(well, magnetic_field=along_z, **STATED)
    grid = {"method": gm.Boris(), "dt": 0.1, "t_end": 5.0}
    flat = gm.simulate(in_plane, Q0[:, :2], V0[:, :2], **grid)
    deep = gm.simulate(in_space, Q0 * [1, 1, 0], V0 * [1, 1, 0], **grid)
    np.testing.assert_allclose(flat.q, deep.q[:, :, :2], rtol=0, atol=1e-13)
    np.testing.assert_allclose(flat.p, deep.p[:, :, :2], rtol=0, atol=1e-13)


def test_without_field_it_is_verlet():
    system = gm.System(potential, mass=MASS[:, None])
    grid = {"dt": 0.1, "t_end": 5.0}
    verlet = gm.simulate(system, Q0, V0, method=gm.Verlet(form="drift"), **grid)
    for method in (gm.Boris(), gm.MagneticSplitting()):
        np.testing.assert_allclose(gm.simulate(system, Q0, V0, method=method, **grid).q, verlet.q, rtol=0, atol=1e-13)


def test_gradients():
    system = gm.System(potential, magnetic_field=lambda q, k: k * AXIS, params=1.0, **STATED)

    def end(k):
        run = gm.simulate(system.with_params(k), Q0, V0, method=gm.Boris(), dt=0.1, t_end=2.0, save_every=20)
        return run.q[-1, 0, 0]

    both = [float(end(1 + s)) for s in (1e-5, -1e-5)]
    assert float(jax.grad(end)(1.0)) == pytest.approx((both[0] - both[1]) / 2e-5, rel=1e-8)


def test_certificates():
    problem = gm.models.penning_trap()
    for method, symplectic in ((gm.Boris(), False), (gm.MagneticSplitting(), True)):
        found = gm.certify(problem.system, method, problem.q0, problem.v0, dt=problem.dt, steps=2000)
        assert found.ok, found
        assert found["symplecticity"].holds is symplectic
        assert found["volume"].holds is True
        assert found["reversibility"].holds is False


def _refused(system, q0=Q0, method=None, match=""):
    with pytest.raises(gm.InputError, match=match):
        gm.simulate(system, q0, method=gm.Boris() if method is None else method, dt=0.1, t_end=1.0)


def test_what_is_refused():
    _refused(MOVING, method=gm.Verlet(), match=r"Verlet\(\) does not take .* magnetic field that is a function; use Bo")
    _refused(UNIFORM, method=gm.ImplicitMidpoint(), match="uniform magnetic field; use Boris.*, MagneticSplitting.*")
    _refused(
        MOVING, method=gm.MagneticSplitting(), match=r"MagneticSplitting\(\) does not take .*; use Boris\(\), Runge"
    )
    _refused(gm.System(magnetic_field=AXIS), np.zeros(4), match=r"q0 has shape \(4,\)")
    _refused(gm.System(magnetic_field=AXIS, mass=np.eye(6) + 0.1), match="a matrix is not possible")
    _refused(gm.System(magnetic_field=AXIS, mass=np.array([1.0, 2.0, 1.0])), match="the same along all axes")
    _refused(gm.System(magnetic_field=AXIS, charge=np.ones(3)), match=r"an array \(2,\), one for each")
    _refused(gm.System(magnetic_field=lambda q: q[:, 0]), match=r"broadcasts to \(2, 3\); it has shape \(2,\)")
    _refused(gm.System(magnetic_field=AXIS), Q0[:, :2], match="B_z at each particle")
    _refused(gm.System(magnetic_field=2.0), match=r"three components; .* it has shape \(\).*np.array\(\[0, 0, B\]\)")
    _refused(gm.System(magnetic_field=lambda q: q[:, :1]), match=r"three components; .* it has shape \(2, 1\)")
    _refused(gm.System(magnetic_field=lambda q, v: v), match="magnetic_field is called with")
    with pytest.raises(gm.InputError, match="no magnetic_field"):
        gm.System(potential, charge=2.0)
    with pytest.raises(gm.InputError, match="magnetic_field must be an array of numbers"):
        gm.System(potential, magnetic_field="strong")
