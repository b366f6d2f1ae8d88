"""Methods for fast and slow forces, on what only they can do; their orders and structure are in the property tests."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import geomint as gm
from geomint.analysis import measure
from geomint.analysis.measure import Point
from geomint.papers.stern_grinspun_2009.modified_mass import apart, dense_oscillator, heavier

CHAIN = gm.models.elastic_chain(100)
PENDULUM = gm.models.stiff_double_pendulum()


def quartic_fast():
    """Three coordinates, W quartic and coupled."""
    fast = lambda q: 50.0 * jnp.sum(q**2) + 20.0 * jnp.sum(q**4) + 10.0 * q[0] ** 2 * q[1] * q[2]
    system = gm.System(
        lambda q: 0.5 * jnp.sum((q[1:] - q[:-1]) ** 2) + jnp.cos(q[0]), mass=np.array([1.0, 2.0, 0.5]), fast=fast
    )
    return system, Point(np.array([0.4, -0.3, 0.5]), np.array([1.0, 0.5, -0.7]))


def only_fast(fast, mass=1.0):
    return gm.System(lambda q: 0.0 * jnp.sum(q), mass=mass, fast=fast)


# --- what is found before the run -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fast", "quadratic"),
    [
        (lambda q: 50.0 * jnp.sum((q - 3.0) ** 2) + 2.0 * q[0] - q[1], True),
        (lambda q: 1e6 * q[0] * q[1] + jnp.sum(q), True),
        (lambda q: 0.0 * jnp.sum(q), True),
        (lambda q: jnp.sum(q**2) + 1e-3 * jnp.sum(q**4), False),
        (lambda q: jnp.sum(jnp.cos(q)), False),
        (lambda q: jnp.sum(q**2) + jnp.sum(jnp.abs(q) ** 3), False),
    ],
)
def test_quadratic_or_not(fast, quadratic):
    assert gm.IMEX().prepare([(only_fast(fast), np.array([0.5, 0.2]))]).quadratic is quadratic


@pytest.mark.parametrize(
    ("model", "quadratic"),
    [(gm.models.fpu(), True), (gm.models.fast_slow_oscillator(), True), (CHAIN, True), (PENDULUM, False)],
    ids=lambda x: getattr(x, "name", ""),
)
def test_the_models_fast_parts(model, quadratic):
    assert gm.IMEX().prepare([(model.system, model.q0)]).quadratic is quadratic


def test_the_chain_is_solved_in_its_band():
    run = gm.simulate(CHAIN.system, CHAIN.q0, CHAIN.v0, method=gm.IMEX(), dt=0.1, t_end=20.0)
    assert "tridiagonal" in run.solver
    dense = gm.simulate(CHAIN.system, CHAIN.q0, CHAIN.v0, method=gm.IMEX(solver="dense"), dt=0.1, t_end=20.0)
    assert "dense" in dense.solver
    np.testing.assert_allclose(run.q, dense.q, atol=1e-9)
    assert np.max(np.abs(run.energy_error)) < 1e-3 * run.energy[0]


def test_a_long_chain():
    long = gm.models.elastic_chain(10_000)
    run = gm.simulate(long.system, long.q0, long.v0, method=gm.IMEX(), dt=0.1, t_end=1.0)
    assert "tridiagonal band of 10000" in run.solver
    assert np.max(np.abs(run.energy_error)) < 1e-9 * run.energy[0]


# --- IMEX -----------------------------------------------------------------------------------------------------------
def test_imex_is_verlet_with_another_mass():
    h = 0.3  # and 50 steps: each adds its rounding, 2e-15, to the phases, and engines and methods round differently
    system, q0, v0 = dense_oscillator()
    run = gm.simulate(system, q0, v0, method=gm.IMEX(), dt=h, t_end=50 * h)
    verlet = gm.simulate(heavier(system, q0, h), q0, p0=run.p[0], method=gm.Verlet(), dt=h, t_end=50 * h)
    newton = gm.simulate(system, q0, v0, method=gm.IMEX(quadratic=False, plan=run.method.plan), dt=h, t_end=50 * h)
    assert run.method.quadratic
    assert not newton.method.quadratic
    assert apart(run, verlet).max() < 2e-13
    assert apart(run, newton).max() < 2e-13


def test_imex_is_its_formula_where_the_fast_part_is_quartic():
    system, at = quartic_fast()
    h, mech = 0.1, gm.Mechanics(system, (3,))
    run = gm.simulate(system, at.q, p0=at.p, method=gm.IMEX(), dt=h, t_end=2.0)
    assert not run.method.quadratic
    slow = np.asarray(jax.jit(jax.vmap(mech.slow_force))(run.q))
    fast = np.asarray(jax.jit(jax.vmap(mech.fast_gradient))(0.5 * (run.q[1:] + run.q[:-1])))
    moved = system.mass * np.diff(run.q, axis=0) / h  # the discrete Legendre transforms
    np.testing.assert_allclose(run.p[:-1], moved - 0.5 * h * slow[:-1] + 0.5 * h * fast, atol=1e-12)
    np.testing.assert_allclose(run.p[1:], moved + 0.5 * h * slow[1:] - 0.5 * h * fast, atol=1e-12)


@pytest.mark.parametrize(
    "problem", [quartic_fast, lambda: (PENDULUM.system, Point(PENDULUM.q0 * 1.003, PENDULUM.q0[::-1] * 0.3))]
)
def test_imex_with_newtons_method_is_symplectic_and_reversible(problem):
    system, at = problem()
    ready = gm.IMEX().prepare([(system, at.q)])
    assert not ready.quadratic
    assert measure.symplecticity(ready, system, at, 0.1) < 1e-12
    assert measure.reversibility(gm.IMEX(), system, at, 0.1) < 1e-11


def test_imex_stops_where_its_midpoint_is_not_found():
    """A fast part −q⁴ sends the body to infinity at t = .93."""
    with pytest.raises(gm.RunStopped, match=r"at step 9, t = 0.9: Newton's .* implicit midpoint .* did not converge"):
        gm.simulate(gm.System(fast=lambda q: -jnp.sum(q**4)), [1.0], method=gm.IMEX(), dt=0.1, t_end=10.0)


def test_imex_holds_the_energy_of_the_stiff_pendulum():
    errors = []
    for h in (0.04, 0.02, 0.01):
        run = gm.simulate(PENDULUM.system, PENDULUM.q0, PENDULUM.v0, method=gm.IMEX(), dt=h, t_end=20.0)
        errors.append(np.max(np.abs(run.energy_error)))
    assert errors[0] < 5e-3
    assert errors[2] < errors[1] < errors[0]


@pytest.mark.parametrize("omega", [0.0, 1.0, 30.0, 1e3, 1e4])
def test_imex_is_stable_as_long_as_the_slow_spring_alone_would_be(omega):
    """½ trace of a step is 1 − h²(1 + ω²)/(2m), m = 1 + (hω/2)², which passes −1 at h = 2 for every ω."""
    system = gm.models.fast_slow_oscillator(omega).system
    ready, zero = gm.IMEX().prepare([(system, np.ones(1))]), jnp.zeros(1)
    beyond = lambda h: (
        float(-1 - 0.5 * jnp.trace(measure.step_jacobian(ready, system, zero, zero, h))) * (1 + (0.5 * h * omega) ** 2)
    )
    assert beyond(2.0) == pytest.approx(0.0, abs=1e-6)
    assert beyond(1.99) == pytest.approx(2 * (0.995**2 - 1), rel=1e-4)  # stable
    assert beyond(2.01) == pytest.approx(2 * (1.005**2 - 1), rel=1e-4)  # unstable


def test_the_stability_limit_in_a_run():
    model = gm.models.fast_slow_oscillator(20.0)
    grown = lambda h: np.max(np.abs(gm.simulate(model.system, model.q0, method=gm.IMEX(), dt=h, t_end=1000 * h).q))
    assert grown(2.0) < 1.01
    assert grown(2.01) > 1e3


@pytest.mark.parametrize("power", [2, 4])
def test_gradients_run_through_imex(power):
    """With respect to the frequency and the start, by differentiation and by a difference quotient; W quadratic and
    not."""

    fast = lambda q, k: k["omega"] ** 2 * jnp.sum((q - 0.1) ** power) / power

    @jax.jit
    def last(x):
        system = gm.System(lambda q, k: 0.25 * jnp.sum(q**4), fast=fast, params={"omega": x[0]})
        return gm.simulate(system, x[1:], method=gm.IMEX(), dt=0.1, t_end=2.0).q[-1, 0]

    at, e = jnp.array([7.0, 1.0]), 1e-5
    quotient = [(last(at.at[k].add(e)) - last(at.at[k].add(-e))) / (2 * e) for k in range(2)]
    np.testing.assert_allclose(jax.grad(last)(at), quotient, rtol=1e-6, atol=1e-8)


def test_a_resumed_chain_is_the_same_to_the_last_bit(tmp_path):
    go = lambda t_end, **more: gm.simulate(
        CHAIN.system, CHAIN.q0, CHAIN.v0, method=gm.IMEX(), dt=0.1, t_end=t_end, **more
    )
    go(3.0, output=tmp_path / "run.h5")
    resumed, whole = gm.resume(tmp_path / "run.h5", CHAIN.system, t_end=8.0), go(8.0)
    assert "tridiagonal" in whole.solver
    assert np.array_equal(resumed.q, whole.q)
    assert np.array_equal(resumed.p, whole.p)


# --- multiple time steps --------------------------------------------------------------------------------------------
def test_respa_without_a_fast_force_is_verlet():
    slow = lambda q: 0.25 * jnp.sum(q**4) + q[0] * q[1]
    at = np.array([0.8, -0.3]), np.array([0.2, 0.5])
    go = lambda system, method: gm.simulate(system, *at, method=method, dt=0.1, t_end=5.0)
    for inner in (1, 3):
        np.testing.assert_allclose(
            go(gm.System(slow, fast=lambda q: 0.0 * jnp.sum(q)), gm.RESPA(inner)).q,
            go(gm.System(slow), gm.Verlet()).q,
            atol=1e-13,
        )


def test_respa_without_a_slow_force_is_a_sequence_of_smaller_steps():
    fast = lambda q: 10.0 * jnp.sum(q**2) + jnp.sum(q**4)
    go = lambda inner, dt: gm.simulate(
        only_fast(fast),
        np.array([0.8, -0.3]),
        np.array([0.2, 0.5]),
        method=gm.RESPA(inner),
        dt=dt,
        t_end=5.0,
        save_every=round(0.1 / dt),
    )
    np.testing.assert_allclose(go(4, 0.1).q, go(1, 0.025).q, atol=1e-12)


def test_respa_with_many_inner_steps_is_the_impulse_method():
    model = gm.models.fpu()
    go = lambda method: gm.simulate(model.system, model.q0, model.v0, method=method, dt=0.02, t_end=2.0)
    assert np.max(np.abs(go(gm.RESPA(500)).q - go(gm.Impulse()).q)) < 1e-5


@pytest.mark.parametrize("inner", [0, -1, 2.5])
def test_respa_counts_its_inner_steps(inner):
    with pytest.raises(gm.InputError, match="at least 1"):
        gm.RESPA(inner)


@pytest.mark.parametrize("method", [gm.IMEX(), gm.RESPA(), gm.Impulse(), gm.Gautschi()], ids=lambda m: m.name)
def test_without_a_fast_part_they_say_so(method):
    model = gm.models.pendulum()
    with pytest.raises(gm.InputError, match="fast"):
        gm.simulate(model.system, model.q0, model.v0, method=method, dt=0.1, t_end=1.0)


# --- trigonometric methods ------------------------------------------------------------------------------------------
def springs(kind):
    """(fast part, mass, K, rest position) of a pure quadratic W = ½(q − a)ᵀK(q − a)."""
    rest = np.array([0.5, -1.0, 2.0])
    if kind == "diagonal":
        matrix, mass = np.diag([4.0, 900.0, 0.0]), np.array([1.0, 2.0, 0.5])
    else:
        a, b = np.random.default_rng(5).normal(size=(2, 3, 3))
        matrix, mass = 100 * a @ a.T, np.eye(3) + 0.3 * b @ b.T
        if kind == "with a free motion":
            matrix = 400.0 * np.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])
    return lambda q: 0.5 * (q - rest) @ (jnp.asarray(matrix) @ (q - rest)), mass, matrix, rest


@pytest.mark.parametrize("kind", ["diagonal", "full", "with a free motion"])
@pytest.mark.parametrize(
    "method",
    [gm.Impulse(), gm.Gautschi(), gm.MollifiedImpulse(), gm.Trigonometric("hochbruck-lubich")],
    ids=lambda m: m.name,
)
def test_exact_where_there_is_no_slow_force(method, kind):
    fast, mass, matrix, rest = springs(kind)
    q0, v0, h = np.array([1.0, 0.3, -0.5]), np.array([0.4, -2.0, 1.0]), 0.7
    run = gm.simulate(only_fast(fast, mass), q0, v0, method=method, dt=h, t_end=20 * h)
    inverse = np.linalg.inv(np.diag(mass) if np.ndim(mass) == 1 else mass)
    generator = np.block([[np.zeros((3, 3)), np.eye(3)], [-inverse @ matrix, np.zeros((3, 3))]])
    exact = np.stack([expm(k * h * generator) @ np.concatenate([q0 - rest, v0]) for k in range(21)])
    np.testing.assert_allclose(run.q, exact[:, :3] + rest, atol=1e-10)
    np.testing.assert_allclose(run.v, exact[:, 3:], atol=1e-9)


@pytest.mark.parametrize("method", [gm.Impulse(), gm.Trigonometric("gautschi")], ids=lambda m: m.name)
def test_no_exact_flow_of_a_quartic(method):
    system, at = quartic_fast()
    with pytest.raises(gm.InputError, match="not quadratic; use IMEX or RESPA"):
        gm.simulate(system, at.q, method=method, dt=0.1, t_end=1.0)


def test_no_diagonalisation_of_a_long_chain():
    long = gm.models.elastic_chain(601)
    with pytest.raises(gm.InputError, match="601 coordinates, more than 600; use IMEX"):
        gm.simulate(long.system, long.q0, long.v0, method=gm.Gautschi(), dt=0.1, t_end=1.0)
    many = gm.models.fpu(springs=400)  # diagonal already
    run = gm.simulate(many.system, many.q0, many.v0, method=gm.Impulse(), dt=0.01, t_end=0.1)
    assert np.max(np.abs(run.energy_error)) < 1e-2


def test_a_misspelt_filter():
    with pytest.raises(gm.InputError, match=r"filter must be one of the \d known. Did you mean hairer-lubich"):
        gm.Trigonometric("hairer-lubisch")


@pytest.mark.parametrize(
    ("named", "filter"),
    [(gm.Impulse(), "deuflhard"), (gm.MollifiedImpulse(), "garcia-archilla"), (gm.Gautschi(), "gautschi")],
    ids=lambda x: getattr(x, "name", x),
)
def test_the_named_methods_are_members_of_the_family(named, filter):
    model = gm.models.fpu()
    go = lambda method: gm.simulate(model.system, model.q0, model.v0, method=method, dt=0.1, t_end=5.0)
    np.testing.assert_array_equal(go(named).q, go(gm.Trigonometric(filter)).q)


def test_resonance_is_where_it_is_said_to_be():
    """At hω = π the impulse method only kicks: p grows by h q a step."""
    h = 0.1
    model = gm.models.fast_slow_oscillator(np.pi / h)
    go = lambda method: gm.simulate(model.system, model.q0, method=method, dt=h, t_end=100.0)
    assert abs(go(gm.Impulse()).p[-1, 0]) == pytest.approx(100.0, rel=1e-6)
    run = go(gm.IMEX())
    assert np.max(np.abs(run.energy_error)) < 2.6e-3 * run.energy[0]
