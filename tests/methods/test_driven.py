"""Forces, damping and explicit time: order against scipy, the work balance, conformal symplecticity, equal bits."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import geomint as gm
from geomint.analysis import measure
from geomint.analysis.measure import Point

T0, T_END = 0.3, 4.3
STEPS = (0.1, 0.05)
GAMMA, DRIVE = 0.3, (0.8, 1.7)


def torque(t, xp=np):
    return DRIVE[0] * xp.cos(DRIVE[1] * t)


# Pendula by their angle: the system, and θ̈ = a(t, θ, θ̇) for scipy.
FREE = {
    "damping and a torque": (
        gm.System(lambda q: -jnp.cos(q[0]), force=lambda q, t: torque(t, jnp) + 0 * q, damping=GAMMA),
        lambda t, x, v: -np.sin(x) - GAMMA * v + torque(t),
    ),
    "a potential of t": (
        gm.System(lambda q, t: -(1 + 0.5 * jnp.sin(2 * t)) * jnp.cos(q[0])),
        lambda t, x, v: -(1 + 0.5 * np.sin(2 * t)) * np.sin(x),
    ),
    "friction": (
        gm.System(lambda q: -jnp.cos(q[0]), force=lambda q, v, t: torque(t, jnp) - 0.2 * v**3, damping=GAMMA),
        lambda t, x, v: -np.sin(x) - GAMMA * v - 0.2 * v**3 + torque(t),
    ),
}
LIFT, RATE = 0.1, 5.0  # of the support of a pendulum on a moving circle


def _circle(q, t):
    return jnp.sum((q - jnp.stack([0 * t, LIFT * jnp.sin(RATE * t)])) ** 2, axis=1) - 1


def _on_circle(force=None, damping=None, constraint=lambda q: jnp.sum(q**2, axis=1) - 1):
    return gm.System(lambda q: q[0, 1], constraint=constraint, force=force, damping=damping)


def _lifted(t, x, v, damping=0.0):
    """θ̈ of a pendulum whose support moves; the drag is that of the velocity in space."""
    return -(1 - LIFT * RATE**2 * np.sin(RATE * t)) * np.sin(x) - damping * (
        v + LIFT * RATE * np.cos(RATE * t) * np.sin(x)
    )


def _turned(q, v, t):
    return torque(t, jnp) * jnp.stack([-q[:, 1], q[:, 0]], -1) - 0.2 * v * jnp.sum(v * v)


CONSTRAINED = {
    "a moving support": (_on_circle(constraint=_circle), _lifted),
    "a moving support and damping": (
        _on_circle(constraint=_circle, damping=GAMMA),
        functools.partial(_lifted, damping=GAMMA),
    ),
    "a torque, friction and damping": (_on_circle(_turned, GAMMA), FREE["friction"][1]),
    "damping by axis": (
        _on_circle(damping=np.array([[0.3, 0.1]])),
        lambda t, x, v: -np.sin(x) - (0.3 * np.cos(x) ** 2 + 0.1 * np.sin(x) ** 2) * v,
    ),
}


@functools.cache
def _reference(kind: str, name: str) -> float:
    """θ at the end."""
    acceleration = {"free": FREE, "constrained": CONSTRAINED}[kind][name][1]
    right = lambda t, y: [y[1], acceleration(t, *y)]
    return solve_ivp(right, (T0, T_END), [1.0, 0.5], method="DOP853", rtol=3e-14, atol=1e-15).y[0, -1]


def _errors(system, start, method, angle, exact, steps=STEPS):
    """Of the angle at the end, and of energy − work along the run, by the length of the step."""
    found = []
    for dt in steps:
        times = {"dt": dt, "t0": T0, "t_end": T_END, "save_every": round(0.2 / dt)}
        run = gm.simulate(system, *start, method=method, compensated=True, engine="xla", **times)
        balance = np.max(np.abs(run.energy_error - run.work))
        found.append([np.abs(np.sin((angle(run.q[-1]) - exact) / 2)), balance])
        assert np.max(np.abs(run.work)) > 0.05
    return np.array(found), run


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("damping and a torque", gm.Verlet()),
        ("damping and a torque", gm.Splitting("pefrl")),
        ("damping and a torque", gm.Composition(gm.Verlet(form="drift"), order=4)),
        ("a potential of t", gm.Verlet(form="drift")),
        ("a potential of t", gm.Splitting("mclachlan-atela")),
        ("a potential of t", gm.LobattoIIIAB(3)),
        ("friction", gm.Verlet()),
        ("friction", gm.Composition(gm.Verlet(), order=4)),
        ("friction", gm.Splitting("forest-ruth")),
        ("friction", gm.Gauss(2)),
        ("friction", gm.RungeKutta4()),
        ("friction", gm.Variational("galerkin", 2)),
    ],
)
def test_order_and_balance(name, method):
    system = FREE[name][0]
    errors, _ = _errors(system, ([1.0], [0.5]), method, lambda q: q[0], _reference("free", name))
    order = np.log2(errors[0] / errors[1])
    assert np.all(np.abs(order - method.traits.order) < 0.25), (order, errors)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("a moving support", gm.Composition(gm.Rattle(), order=4)),
        ("a moving support", gm.LobattoIIIAB(3)),
        ("a moving support and damping", gm.Rattle()),
        ("a moving support and damping", gm.Shake()),
        ("a moving support and damping", gm.Variational()),
        ("a torque, friction and damping", gm.Composition(gm.Rattle(), order=4)),
        ("a torque, friction and damping", gm.Shake()),
        ("damping by axis", gm.Rattle("two-stage")),
    ],
)
def test_order_and_balance_on_a_manifold(name, method):
    system, moving = CONSTRAINED[name][0], "moving" in name
    lift, speed = (LIFT * np.sin(RATE * T0), LIFT * RATE * np.cos(RATE * T0)) if moving else (0.0, 0.0)
    start = [[np.sin(1.0), lift - np.cos(1.0)]], [[0.5 * np.cos(1.0), speed + 0.5 * np.sin(1.0)]]
    last = LIFT * np.sin(RATE * T_END) if moving else 0.0
    angle = lambda q: np.arctan2(q[0, 0], last - q[0, 1])
    errors, run = _errors(system, start, method, angle, _reference("constrained", name), steps=(0.05, 0.025))
    order = np.log2(errors[0] / errors[1])
    assert np.all(np.abs(order - method.traits.order) < 0.25), (order, errors)
    assert np.max(np.abs(run.constraint_residual)) < 1e-14
    if method.traits.tangent:
        assert np.max(np.abs(run.velocity_residual)) < 1e-13


# --- structure ------------------------------------------------------------------------------------------------------
MASS = np.array([1.0, 3.0])
DAMPED = gm.System(
    lambda q: -jnp.cos(q[0]) + 0.3 * jnp.cos(q[1] - q[0]) + 0.1 * q[1] ** 4, mass=MASS, damping=0.4 * MASS
)


@pytest.mark.parametrize("method", [gm.Verlet(), gm.Composition(gm.Verlet(), order=4)], ids=lambda m: m.name)
def test_conformal_symplecticity(method):
    assert DAMPED.uniform_damping
    at, dt = Point(np.array([1.0, 0.5]), np.array([0.3, -0.8])), 0.3
    assert measure.symplecticity(method, DAMPED, at, dt, rate=0.4) < 1e-12
    assert measure.symplecticity(method, DAMPED, at, dt) > 1e-3
    assert measure.symmetry(method, DAMPED, at, dt) < 1e-12


@pytest.mark.parametrize("method", [gm.Rattle(), gm.Composition(gm.Rattle(), order=4)], ids=lambda m: m.name)
def test_conformal_symplecticity_on_a_manifold(method):
    rods = gm.Distances([(None, 0), (0, 1)], [1.0, 1.5])
    system = gm.System(lambda q: jnp.sum(q[:, 1]), mass=2.0, constraint=rods, damping=1.0)
    q, v = gm.project(system, [[0.6, -0.8], [1.5, -2.0]], [[0.5, 0.0], [0.3, 0.3]])
    assert measure.symplecticity(method, system, Point(q, 2 * v), 0.1, rate=0.5) < 1e-12
    assert measure.symplecticity(method, system, Point(q, 2 * v), 0.1) > 1e-3


def test_a_moving_constraint_keeps_the_symplectic_form_and_no_drift():
    system, _ = CONSTRAINED["a moving support"]
    q, v = np.array([[np.sin(1.0), -np.cos(1.0)]]), np.array([[0.5 * np.cos(1.0), LIFT * RATE + 0.5 * np.sin(1.0)]])
    assert measure.symplecticity(gm.Rattle(), system, Point(q, v), 0.1) < 1e-12
    run = gm.simulate(system, q, v, method=gm.Rattle(), dt=0.05, t_end=2000.0, save_every=50)
    error = run.energy_error - run.work
    half = len(error) // 2
    assert np.max(np.abs(error[half:])) < 1.3 * np.max(np.abs(error[:half]))  # no drift in 40,000 steps


def test_certify_reports_conformal_symplecticity():
    found = gm.certify(DAMPED, gm.Verlet(), [1.0, 0.5], [0.3, -0.3], dt=0.05, steps=200)
    assert found.ok
    assert found["conformal symplecticity"].holds
    assert found["conformal symplecticity"].claim == "yes"
    assert found["energy balance"].measured > 1.8


def test_symmetry_on_a_moving_support_from_rest():
    """Differences are measured relative to the momenta on the way: those at the start vanish."""
    model = gm.models.kapitza_pendulum()
    assert measure.symmetry(gm.Rattle(), model.system, Point(model.q0, 0 * model.v0), 0.016) < 1e-12


# --- time -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ["xla", "native"])
@pytest.mark.parametrize("method", [gm.Verlet(), gm.Composition(gm.Verlet(), order=4)], ids=lambda m: m.name)
def test_chunked_and_resumed_runs_have_the_same_bits(tmp_path, engine, method):
    system = FREE["friction"][0]
    settings = {"method": method, "dt": 0.05, "t0": T0, "engine": engine}
    whole = gm.simulate(system, [1.0], [0.5], t_end=T0 + 4.0, **settings)
    path = tmp_path / "run.h5"
    gm.simulate(system, [1.0], [0.5], t_end=T0 + 1.5, output=path, **settings)
    resumed = gm.resume(path, system=system, t_end=T0 + 4.0)
    rare = gm.simulate(system, [1.0], [0.5], t_end=T0 + 4.0, save_every=16, **settings)
    for name in ("q", "p", "work"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(resumed, name))
        np.testing.assert_array_equal(getattr(whole, name)[::16], getattr(rare, name))
    if engine == "native":
        assert whole.engine == "native"
        reference = gm.simulate(system, [1.0], [0.5], t_end=T0 + 4.0, **{**settings, "engine": "xla"})
        np.testing.assert_allclose(whole.q, reference.q, rtol=0, atol=1e-13)


@pytest.mark.parametrize("engine", ["xla", "native"])
def test_watched_functions_see_the_time_of_a_system_that_does_not_depend_on_it(engine):
    system = gm.System(lambda q: 0.5 * jnp.sum(q**2), watch={"t": lambda q, t: t + 0 * q[0]})
    run = gm.simulate(system, [1.0], method=gm.Verlet(), dt=0.1, t0=T0, t_end=T0 + 1.0, engine=engine)
    np.testing.assert_allclose(run.watched["t"], run.t, rtol=0, atol=1e-15)
    assert not system.driven


def test_members_and_gradients():
    """Members of an ensemble are runs; a gradient by params of a system that depends on t equals a difference."""
    system = gm.System(
        lambda q, params: -params["g"] * jnp.cos(q[0]),
        force=lambda q, t, params: params["a"] * jnp.cos(t) + 0 * q,
        damping=0.2,
        params={"g": 1.0, "a": 0.7},
    )
    settings = {"method": gm.Verlet(), "dt": 0.05, "t0": T0, "t_end": T0 + 2.0, "save_every": 20}
    members = gm.ensemble(system, [[1.0], [0.4]], [[0.5], [0.0]], engine="xla", **settings)
    alone = gm.simulate(system, [0.4], [0.0], engine="xla", **settings)
    np.testing.assert_allclose(members.q[1], alone.q, rtol=0, atol=1e-14)
    np.testing.assert_allclose(members.work[1], alone.work, rtol=0, atol=1e-14)

    def last(a):
        return gm.simulate(system.with_params({"g": 1.0, "a": a}), [1.0], [0.5], **settings).q[-1, 0]

    slope = (last(0.7 + 1e-6) - last(0.7 - 1e-6)) / 2e-6
    assert float(jax.grad(last)(0.7)) == pytest.approx(float(slope), rel=1e-6)
    backwards = lambda a: gm.simulate(
        system.with_params({"g": 1.0, "a": a}), [1.0], gradient="backwards", **settings
    ).q[-1, 0]
    with pytest.raises(gm.InputError, match="do not depend on t"):
        jax.grad(backwards)(0.7)


def test_the_damping_of_a_matrix_is_its_exact_flow():
    """Without a potential a single kick and drift solve q̈ = −M⁻¹D q̇ exactly in p."""
    from scipy.linalg import expm

    mass, damping = np.array([[2.0, 0.3], [0.3, 1.0]]), np.array([[0.5, 0.2], [0.2, 0.9]])
    system = gm.System(mass=mass, damping=damping)
    run = gm.simulate(system, [0.0, 0.0], [1.0, -0.5], method=gm.Verlet(), dt=0.5, t_end=2.0, engine="xla")
    exact = expm(-2.0 * damping @ np.linalg.inv(mass)) @ mass @ np.array([1.0, -0.5])
    np.testing.assert_allclose(run.p[-1], exact, rtol=1e-13)


@pytest.mark.parametrize(
    ("system", "method", "words"),
    [
        (FREE["friction"][0], gm.Splitting("pefrl"), "order 4 for forces of q and t only.*Composition"),
        (FREE["damping and a torque"][0], gm.Splitting("mclachlan-atela"), "this system has damping"),
        (gm.System(force=lambda q, t: 0 * q), gm.Splitting("calvo-sanz-serna"), "potentials only.*a force, whose work"),
        (FREE["damping and a torque"][0], gm.LobattoIIIAB(), "does not take systems with damping; use .*Verlet"),
        (FREE["a potential of t"][0], gm.ZhangSkeel(), "an energy that depends on t; use .*Verlet"),
        (FREE["a potential of t"][0], gm.EnergyStepping(height=0.1), "an energy that depends on t"),
        (CONSTRAINED["a moving support"][0], gm.SymmetricMultistep(4), "a constraint that depends on t; use .*Rattle"),
        (gm.System(lambda q: jnp.sum(q), damping=np.ones(5)), gm.Verlet(), "damping has shape"),
        (gm.System(lambda q: jnp.sum(q), damping=[[0.0, 1.0], [-1.0, 0.0]]), gm.Verlet(), "damping must be symmetric"),
    ],
)
def test_what_is_refused(system, method, words):
    q0 = np.array([[0.0, -1.0]]) if system.constraint is not None else np.array([0.1, 0.2])
    with pytest.raises(gm.InputError, match=words):
        gm.simulate(system, q0, method=method, dt=0.1, t_end=0.2)
