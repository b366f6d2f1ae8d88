"""Trigonometric methods: their filters as printed in the literature, one step by an independent formula, affine and
unstable fast parts, and fast parts that are quadratic near the start only."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad_vec
from scipy.linalg import eigh, expm

import geomint as gm
from geomint.methods import FILTERS

# Hairer, Lubich, Wanner, section XIII.2.2: (A) to (E) and (G), by their formulas in numpy, for real and imaginary x.
csinc = lambda x: np.sinc(x / np.pi)
PRINTED = {
    "gautschi": (lambda x: csinc(x / 2) ** 2, lambda x: 1 + 0 * x),
    "deuflhard": (csinc, lambda x: 1 + 0 * x),
    "garcia-archilla": (lambda x: csinc(x) * csinc(x), csinc),
    "hochbruck-lubich": (lambda x: csinc(x / 2) ** 2, lambda x: csinc(x) * (1 + np.sin(x / 2) ** 2 / 3)),
    "hairer-lubich": (lambda x: csinc(x) ** 2, lambda x: 1 + 0 * x),
    "grimm-hochbruck": (lambda x: csinc(x) ** 3, csinc),
}
ALL = pytest.mark.parametrize("name", list(PRINTED))
Z = np.concatenate([-np.geomspace(1e-9, 40, 12), [0.0], np.geomspace(1e-9, 900, 40)])


# --- the functions --------------------------------------------------------------------------------------------------
def test_functions_of_the_square():
    """sinc, (1 − cos)/x² and (1 − sinc)/x², against complex arithmetic; on both sides of every branch."""
    from geomint.methods.trigonometric_flow import c2, c3, sinc

    sinc, c2, c3 = map(jax.jit, (sinc, c2, c3))
    for z in (Z, np.array([-1 - 1e-9, -1 + 1e-9, 1 - 1e-9, 1 + 1e-9])):
        x = np.sqrt(z.astype(complex))
        np.testing.assert_allclose(sinc(z), csinc(x).real, rtol=1e-14, atol=1e-15)
        np.testing.assert_allclose(z * c2(z), (1 - np.cos(x)).real, rtol=1e-14, atol=3e-15)
        np.testing.assert_allclose(z * c3(z), (1 - csinc(x)).real, rtol=1e-14, atol=3e-15)
    np.testing.assert_allclose([c2(0.0), c3(0.0)], [1 / 2, 1 / 6], rtol=1e-15)
    slopes = [jax.jit(jax.grad(f))(0.0) for f in (sinc, c2, c3)]
    np.testing.assert_allclose(slopes, [-1 / 6, -1 / 24, -1 / 120], rtol=1e-15)


@ALL
def test_filters_are_the_printed_ones(name):
    psi, phi = PRINTED[name]
    x = np.sqrt(Z.astype(complex))
    np.testing.assert_allclose(FILTERS[name].psi(Z), psi(x).real, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(FILTERS[name].phi(Z), phi(x).real, rtol=1e-13, atol=1e-15)
    chi = np.zeros_like(Z) if FILTERS[name].chi is None else FILTERS[name].chi(Z)
    np.testing.assert_allclose(Z * chi, 1 - phi(x).real, rtol=1e-13, atol=1e-14)


@ALL
def test_conditions_on_the_filters(name):
    """Consistent (ψ(0) = φ(0) = 1); symplectic if ψ = sinc φ, (B) and (C); of uniform energy conservation if ψ =
    sinc² φ, (E) and (G) (Hairer, Lubich, Wanner, chapter XIII); and (D), whose φ agrees with ψ to fourth order and
    vanishes at all multiples of π from the first on."""
    x = np.linspace(0.3, 20, 200)
    psi, phi = (np.asarray(f(x**2)) for f in FILTERS[name][:2])
    assert FILTERS[name].psi(0.0) == FILTERS[name].phi(0.0) == 1
    assert np.allclose(psi, csinc(x) * phi, atol=1e-14) is (name in ("deuflhard", "garcia-archilla"))
    assert np.allclose(psi, csinc(x) ** 2 * phi, atol=1e-14) is (name in ("hairer-lubich", "grimm-hochbruck"))
    assert gm.Trigonometric(name).traits.symplectic is (name in ("deuflhard", "garcia-archilla"))
    if name == "hochbruck-lubich":
        apart = lambda x: float(FILTERS[name].psi(x**2) - FILTERS[name].phi(x**2))
        assert apart(0.2) / apart(0.1) == pytest.approx(16, rel=0.02)
        np.testing.assert_allclose(FILTERS[name].phi((np.pi * np.arange(1, 5)) ** 2), 0, atol=1e-15)


# --- one step -------------------------------------------------------------------------------------------------------
def problem(kind):
    """V nonlinear and coupled, W = ½(q − r)ᵀK(q − r) with stiff, soft and negative stiffness: the system, M, K, r,
    ∇V."""
    if kind == "diagonal":
        mass, matrix = np.diag([1.0, 2.0, 0.5]), np.diag([4.0, 900.0, -40.0])
    else:
        a, b = np.random.default_rng(3).normal(size=(2, 3, 3))
        mass = np.eye(3) + 0.3 * b @ b.T
        turn = np.linalg.qr(a)[0]
        matrix = turn @ np.diag([500.0, 9.0, -60.0]) @ turn.T
    rest = np.array([0.5, -1.0, 2.0])
    potential = lambda q: 0.25 * jnp.sum(q**4) + q[0] * q[1] * q[2] + jnp.sin(q[0])
    gradient = lambda q: q**3 + np.array([q[1] * q[2] + np.cos(q[0]), q[0] * q[2], q[0] * q[1]])
    fast = lambda q: 0.5 * (q - rest) @ (jnp.asarray(matrix) @ (q - rest))
    stated = np.diag(mass) if kind == "diagonal" else mass
    return gm.System(potential, mass=stated, fast=fast), mass, matrix, rest, gradient


def stepped(method, system, q, v, mass, h):
    """One step of a method, not compiled: q' and v'."""
    mech, ready = gm.Mechanics(system, q.shape), method.prepare([(system, q)])
    carry = ready.init(mech, gm.methods.State(jnp.asarray(q), jnp.asarray(mass @ v)), jnp.asarray(h))
    end = ready.output(mech, ready.step(mech, carry, jnp.asarray(h)))
    return np.asarray(end.q), np.linalg.solve(mass, np.asarray(end.p))


@pytest.mark.parametrize("kind", ["diagonal", "full"])
@ALL
def test_one_step_is_the_printed_formula(name, kind):
    """(XIII.2.7) and (XIII.2.8) of Hairer, Lubich, Wanner, in the modes of K with respect to M, about the rest
    position."""
    system, mass, matrix, rest, gradient = problem(kind)
    q, v, h = np.array([1.0, 0.3, -0.5]), np.array([0.4, -2.0, 1.0]), 0.3
    squares, modes = eigh(matrix, mass)
    x = h * np.sqrt(squares.astype(complex))
    of = lambda f: ((modes * f(x)) @ modes.T @ mass).real
    psi, phi = PRINTED[name]
    slow = lambda at: -np.linalg.solve(mass, gradient(rest + of(phi) @ (at - rest)))
    one = lambda x: psi(x) / csinc(x)
    moved = rest + of(np.cos) @ (q - rest) + h * of(csinc) @ v + 0.5 * h**2 * of(psi) @ slow(q)
    turned = (
        -of(lambda x: x * np.sin(x)) @ (q - rest) / h
        + of(np.cos) @ v
        + 0.5 * h * (of(lambda x: np.cos(x) * one(x)) @ slow(q) + of(one) @ slow(moved))
    )
    found = stepped(gm.Trigonometric(name), system, q, v, mass, h)
    np.testing.assert_allclose(found[0], moved, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found[1], turned, rtol=1e-10, atol=1e-10)


def test_the_mollifier_is_an_average_of_the_fast_motion():
    """García-Archilla, Sanz-Serna, Skeel: Φq is the mean over [0, h] of the motion of W alone that starts at q at
    rest; here with a constant force, with and without stiffness against it."""
    matrix, force, h = np.array([[30.0, 4.0, 0.0], [4.0, -2.0, 0.0], [0.0, 0.0, 0.0]]), np.array([1.0, -2.0, 5.0]), 0.7
    for rotated in (np.eye(3), np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]):
        k, b = rotated @ matrix @ rotated.T, rotated @ force
        system = gm.System(
            lambda q: 0.0 * jnp.sum(q), fast=lambda q, k=k, b=b: 0.5 * q @ (jnp.asarray(k) @ q) + jnp.asarray(b) @ q
        )
        q, mech = np.array([0.3, -0.4, 0.9]), gm.Mechanics(system, (3,))
        flow = gm.MollifiedImpulse().prepare([(system, q)]).flow(mech, jnp.asarray(q), jnp.asarray(h))
        np.testing.assert_allclose(
            flow.positions(jnp.asarray(q)),
            quad_vec(lambda t, k=k, b=b, q=q: at(t, k, b, q, 0 * q)[:3], 0, h)[0] / h,
            rtol=1e-12,
        )


def at(t, matrix, force, q, v):
    """(q, v) at time t of q̈ = −Kq − b."""
    n = len(q)
    zero, eye, column = np.zeros((n, n)), np.eye(n), np.zeros((n, 1))
    whole = np.block([[zero, eye, column], [-matrix, zero, -force[:, None]], [np.zeros((1, 2 * n + 1))]])
    return (expm(t * whole) @ np.concatenate([q, v, [1.0]]))[: 2 * n]


# --- affine and unstable fast parts ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "method",
    [
        gm.Impulse(),
        *(pytest.param(m, marks=pytest.mark.slow) for m in (gm.Trigonometric("hochbruck-lubich"), gm.Gautschi())),
    ],
    ids=lambda m: m.name,
)
def test_a_constant_force_and_a_saddle(method):
    """W = 50q₀² + q₁ − ½q₂²: q₀ oscillates, q₁ falls (to −2 at t = 2), q₂ = cosh t; and the same turned, where
    nothing is diagonal."""
    matrix, force = np.diag([100.0, 0.0, -1.0]), np.array([0.0, 1.0, 0.0])
    turn = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
    for r in (np.eye(3), turn):
        k, b = jnp.asarray(r @ matrix @ r.T) if r is turn else None, jnp.asarray(r @ force)
        fast = (
            (lambda q, k=k, b=b: 0.5 * q @ (k @ q) + b @ q)
            if r is turn
            else (lambda q: 50.0 * q[0] ** 2 + q[1] - 0.5 * q[2] ** 2)
        )
        run = gm.simulate(
            gm.System(lambda q: 0.0 * jnp.sum(q), fast=fast), r @ [1.0, 0.0, 1.0], method=method, dt=0.1, t_end=2.0
        )
        exact = np.stack([np.cos(10 * run.t), -0.5 * run.t**2, np.cosh(run.t)], axis=1)
        np.testing.assert_allclose(run.q @ r, exact, atol=1e-12)
        np.testing.assert_allclose((run.p @ r)[-1], [-10 * np.sin(20.0), -2.0, np.sinh(2.0)], atol=1e-11)
        assert np.max(np.abs(run.energy_error)) < 1e-11


@pytest.mark.parametrize("method", [gm.IMEX(), gm.RESPA()], ids=lambda m: m.name)
def test_the_same_for_the_methods_that_do_not_follow_it_exactly(method):
    fast = lambda q: 50.0 * q[0] ** 2 + q[1] - 0.5 * q[2] ** 2
    run = gm.simulate(
        gm.System(lambda q: 0.0 * jnp.sum(q), fast=fast), [0.0, 0.0, 1.0], method=method, dt=0.02, t_end=2.0
    )
    np.testing.assert_allclose(run.q[-1], [0.0, -2.0, np.cosh(2.0)], atol=3e-4)


@pytest.mark.slow
def test_a_weight_on_a_spring_on_a_circle():
    """Rattle(IMEX()) with a constant force and a negative stiffness in its fast part, against Rattle with short
    steps."""
    fast = lambda q: 8.0 * jnp.sum((q[1] - q[0]) ** 2) + q[1, 1] - 0.5 * q[1, 0] ** 2
    system = gm.System(lambda q: q[0, 1], fast=fast, constraint=gm.Distances([(None, 0)]))
    go = lambda method, dt: (
        gm.simulate(system, [[0.6, -0.8], [0.5, -1.1]], method=method, dt=dt, t_end=2.0, save_every=round(0.4 / dt)).q
    )
    np.testing.assert_allclose(go(gm.Rattle(gm.IMEX()), 0.002), go(gm.Rattle(), 0.002), atol=2e-4)


def test_stiffness_zero_is_the_limit_of_small_stiffness():
    """Functions of the stiffness have no jump at 0: a constant force with a spring of 1e-9 and without."""
    ends = []
    for k in (0.0, 1e-9, -1e-9):
        system = gm.System(
            lambda q: 0.25 * jnp.sum(q**4), fast=lambda q, k=k: 0.5 * k * q[0] ** 2 + 3.0 * q[0] + 50.0 * q[1] ** 2
        )
        ends.append(stepped(gm.MollifiedImpulse(), system, np.array([0.3, 0.5]), np.array([1.0, 0.2]), np.eye(2), 0.5))
    np.testing.assert_allclose(ends[1], ends[0], atol=1e-9)
    np.testing.assert_allclose(ends[2], ends[0], atol=1e-9)


# --- motions without stiffness, and slow ones -----------------------------------------------------------------------
def test_a_slow_motion_beside_a_very_fast_one():
    """ω = 1e6 and 1 in a full matrix, where eigh leaves 1e-16 · 1e12 = 1e-4 of the slow ω²."""
    turn = np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    matrix = jnp.asarray(turn @ np.diag([1e12, 1.0]) @ turn.T)
    system = gm.System(lambda q: 0.0 * jnp.sum(q), fast=lambda q: 0.5 * q @ (matrix @ q))
    run = gm.simulate(system, turn[:, 1], method=gm.Impulse(), dt=0.1, t_end=3.1)
    np.testing.assert_allclose((run.q @ turn[:, 1])[-1], np.cos(3.1), atol=1e-3)


def test_a_stiff_block_leaves_a_soft_one_alone():
    """Two pairs that do not know of each other, ω² = 2e20 and 2, each with a free motion."""
    fast = lambda q: 0.5e20 * (q[0] - q[2]) ** 2 + 0.5 * (q[1] - q[3]) ** 2
    system = gm.System(lambda q: 0.0 * jnp.sum(q), fast=fast)
    run = gm.simulate(system, [0.0, 0.5, 0.0, -0.5], [1.0] * 4, method=gm.MollifiedImpulse(), dt=0.1, t_end=5.0)
    np.testing.assert_allclose(run.q[:, 1] - run.q[:, 3], np.cos(np.sqrt(2) * run.t), atol=1e-12)
    np.testing.assert_allclose(run.q[:, 0] + run.q[:, 2], 2 * run.t, atol=1e-12)
    np.testing.assert_allclose(run.q[:, 1] + run.q[:, 3], 2 * run.t, atol=1e-12)


def test_the_warning_of_a_pole_does_not_depend_on_units():
    """ψ₁ at the eigenvalues, not the entries of a matrix: the same springs with q₁ in a unit that is 1e4 times larger.
    A true pole, at hω = π, is seen in both units."""
    for unit in (1.0, 1e4):
        fast = lambda q, unit=unit: 0.5 * (q[0] - unit * q[1]) ** 2 + 0.5 * q[0] ** 2
        system = gm.System(lambda q: 0.0 * jnp.sum(q), fast=fast, mass=np.array([1.0, unit**2]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gm.simulate(system, [1.0, 0.0], method=gm.Gautschi(), dt=1.0, t_end=1.0)
        frequency = np.sqrt((3 + np.sqrt(5)) / 2)
        with pytest.warns(UserWarning, match="near a multiple of π"):
            gm.simulate(system, [1.0, 0.0], method=gm.Gautschi(), dt=np.pi / frequency, t_end=np.pi / frequency)


# --- derivatives ----------------------------------------------------------------------------------------------------
def test_the_derivative_of_a_matrix_function_has_no_pole_where_eigenvalues_coincide():
    from geomint.methods.trigonometric_flow import _matrix_functions, c2, sinc

    functions = (c2, lambda z: z * sinc(z))
    turn = np.linalg.qr(np.random.default_rng(8).normal(size=(4, 4)))[0]
    for values in ([3.0, 3.0, 3.0, -2.0], [0.0, 0.0, 900.0, 900.0 + 1e-7], [0.5, 2.0, 40.0, -9.0]):
        matrix, move = turn @ np.diag(values) @ turn.T, np.random.default_rng(9).normal(size=(4, 4))
        move, e = move + move.T, 1e-4
        whole = jax.jit(lambda x: jnp.stack(_matrix_functions(functions, x)))
        found = jax.jvp(whole, (jnp.asarray(matrix),), (jnp.asarray(move),))[1]
        quotient = (
            8 * (whole(matrix + e * move) - whole(matrix - e * move))
            - (whole(matrix + 2 * e * move) - whole(matrix - 2 * e * move))
        ) / (12 * e)
        np.testing.assert_allclose(found, quotient, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
def test_gradients_by_the_stiffness():
    """A spring in the plane, whose two frequencies are equal, beside motions without stiffness."""
    q0 = np.array([[0.3, 0.5], [0.1, -0.4]])

    @jax.jit
    def last(k):
        system = gm.System(
            lambda q, k: 0.25 * jnp.sum(q**4),
            fast=lambda q, k: 0.5 * k * jnp.sum((q[0] - q[1]) ** 2) + q[0, 0],
            params=k,
        )
        return gm.simulate(system, q0, method=gm.MollifiedImpulse(), dt=0.1, t_end=1.0).q[-1, 0, 1]

    quotient = (last(49.001) - last(48.999)) / 2e-3
    np.testing.assert_allclose(jax.grad(last)(49.0), quotient, rtol=1e-6)
