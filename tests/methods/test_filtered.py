"""The linearly implicit family on what only it can do; its orders and structure are in the property tests."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.analysis import measure
from geomint.analysis.measure import Point

PENDULUM = gm.models.double_pendulum()
STIFF = gm.penalize(PENDULUM.system, 20.0)
CHAIN = gm.models.chain(20)
SOFT_CHAIN = gm.penalize(CHAIN.system, 20.0)


def coupled_quartic():
    potential = lambda q: 0.25 * jnp.sum(q**4) + 0.5 * jnp.sum(q**2) + 0.4 * q[0] * q[1] ** 2 + 0.3 * q[0] * q[1] * q[2]
    return gm.System(potential, mass=np.array([1.0, 2.0, 0.5])), Point(
        np.array([0.7, -0.4, 0.5]), np.array([0.3, 0.5, -0.2])
    )


def moving_pendulum():
    run = gm.simulate(STIFF, PENDULUM.q0, PENDULUM.v0, method=gm.ZhangSkeel(0.4), dt=0.1, t_end=2.0)
    return STIFF, Point(run.q[-1], run.p[-1])


@pytest.mark.parametrize(("problem", "h"), [(coupled_quartic, 0.3), (moving_pendulum, 0.1)])
def test_symplecticity_needs_the_third_derivative(problem, h):
    system, at = problem()
    assert measure.symplecticity(gm.ZhangSkeel(0.4), system, at, h) < 1e-12
    assert measure.symplecticity(gm.SimplifiedZhangSkeel(0.4), system, at, h) > 1e-5
    assert measure.reversibility(gm.ZhangSkeel(0.4), system, at, h) < 1e-12


def test_the_filtered_force_is_a_gradient():
    """F = −∇Ũ with Ũ = U − ½c ∇Uᵀ(M + cH)⁻¹∇U, formed here with matrices."""
    system, at = coupled_quartic()
    mech, h, beta = gm.Mechanics(system, (3,)), 0.3, 0.4
    mass = jnp.diag(system.mass)

    def softened(x):
        g, hessian = jax.grad(mech.potential)(x), jax.hessian(mech.potential)(x)
        return mech.potential(x) - 0.5 * beta * h**2 * g @ jnp.linalg.solve(mass + beta * h**2 * hessian, g)

    method = gm.ZhangSkeel(beta)
    force, shift, status = jax.jit(lambda q: method.filter(mech, q, jnp.asarray(h)))(jnp.asarray(at.q))
    energy, slope = jax.jit(jax.value_and_grad(softened))(at.q)
    np.testing.assert_allclose(force, -slope, rtol=1e-13)
    np.testing.assert_allclose(method.filtered_potential(mech, jnp.asarray(at.q), shift), energy, rtol=1e-14)
    assert status == 0


def test_pushforward_newmark_is_verlet_on_the_moreau_envelope():
    system, at = coupled_quartic()
    mech = gm.Mechanics(system, (3,))
    method = gm.PushforwardNewmark(0.3)
    filtered = lambda x: method.filter(mech, x, jnp.asarray(0.3))
    envelope = lambda x: method.filtered_potential(mech, x, filtered(x).shift)
    force, slope = jax.jit(lambda x: (filtered(x).force, jax.grad(envelope)(x)))(jnp.asarray(at.q))
    np.testing.assert_allclose(force, -slope, rtol=1e-12)


def test_newmark_is_its_textbook_formula():
    system, at = coupled_quartic()
    mech, h, beta = gm.Mechanics(system, (3,)), 0.2, 0.3
    run = gm.simulate(system, at.q, p0=at.p, method=gm.Newmark(beta), dt=h, t_end=10 * h)
    a = np.asarray(jax.jit(jax.vmap(lambda q: mech.velocity(mech.force(q))))(run.q))
    np.testing.assert_allclose(
        run.q[1:], run.q[:-1] + h * run.v[:-1] + h**2 * ((0.5 - beta) * a[:-1] + beta * a[1:]), atol=1e-14
    )
    np.testing.assert_allclose(run.v[1:], run.v[:-1] + 0.5 * h * (a[:-1] + a[1:]), atol=1e-14)


def test_without_beta_it_is_verlet():
    system, at = coupled_quartic()
    go = lambda method: gm.simulate(system, at.q, p0=at.p, method=method, dt=0.1, t_end=5.0)
    np.testing.assert_allclose(go(gm.ZhangSkeel(0.0)).q, go(gm.Verlet()).q, atol=1e-13)


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.2, 0.24])
def test_linear_stability_limit(beta):
    """On V = ½q² the step is stable up to h = 2/√(1−4β)."""
    system = gm.System(lambda q: 0.5 * jnp.sum(q**2))
    trace = lambda h: np.trace(
        np.asarray(measure.step_jacobian(gm.ZhangSkeel(beta), system, jnp.ones(1), jnp.ones(1), jnp.asarray(h)))
    )
    stable, unstable = 1.0, 20.0
    for _ in range(40):
        middle = 0.5 * (stable + unstable)
        stable, unstable = (middle, unstable) if abs(trace(middle)) <= 2 else (stable, middle)
    assert stable == pytest.approx(2 / np.sqrt(1 - 4 * beta), rel=1e-6)


@pytest.mark.parametrize("beta", [0.25, 0.3, 0.4])
def test_no_linear_limit_from_a_quarter_on(beta):
    system = gm.System(lambda q: 0.5 * jnp.sum(q**2))
    for h in np.geomspace(0.1, 1e4, 60):
        assert (
            abs(
                np.trace(
                    np.asarray(
                        measure.step_jacobian(gm.ZhangSkeel(beta), system, jnp.ones(1), jnp.ones(1), jnp.asarray(h))
                    )
                )
            )
            <= 2 + 1e-9
        )


def test_structure_is_found_and_reported():
    go = lambda method: gm.simulate(SOFT_CHAIN, CHAIN.q0, CHAIN.v0, method=method, dt=0.01, t_end=0.1)
    run, forced = go(gm.ZhangSkeel(0.4)), go(gm.ZhangSkeel(0.4, solver="dense"))
    assert "band" in run.solver
    assert "dense" in forced.solver
    np.testing.assert_allclose(run.q, forced.q, rtol=1e-11)


def test_a_hessian_that_changes_its_pattern_is_noticed():
    """Two particles that feel each other only when near: at the start their Hessian has two independent blocks."""
    near = lambda q: jnp.where(q[1, 0] - q[0, 0] < 1, (1 - q[1, 0] + q[0, 0]) ** 3, 0.0)
    system = gm.System(lambda q: near(q) + 0.1 * jnp.sum(q**2) + 0.05 * jnp.sum(q**4))
    go = lambda solver: gm.simulate(
        system,
        [[-2.0, 0.0], [2.0, 0.0]],
        [[1.0, 0.1], [-1.0, 0.0]],
        method=gm.ZhangSkeel(0.3, solver=solver),
        dt=0.05,
        t_end=5.0,
    )
    with pytest.raises(gm.RunStopped, match="sparsity of the Hessian is no longer"):
        go("blocks")
    assert np.isfinite(go("dense").q).all()


def test_a_weak_coupling_that_appears_is_noticed():
    """The same with a coupling a thousandth as strong: what the linear solve leaves out is 1e-6 of the force."""
    near = lambda q: 1e-3 * jnp.where(q[1] - q[0] < 1, (1 - q[1] + q[0]) ** 3, 0.0)
    system = gm.System(lambda q: near(q) + 0.1 * jnp.sum(q**2) + 0.05 * jnp.sum(q**4))
    with pytest.raises(gm.RunStopped, match="sparsity of the Hessian is no longer"):
        gm.simulate(system, [-2.0, 2.0], [1.0, -1.0], method=gm.ZhangSkeel(0.3, solver="blocks"), dt=0.05, t_end=5.0)


def test_an_equation_that_was_not_solved_stops_the_run():
    """V = −q⁴ sends the body to infinity at t = .93; near the pole Newton's method finds no root."""
    escape = gm.System(lambda q: -jnp.sum(q**4))
    for every in (1, 50):
        with pytest.raises(gm.RunStopped, match=r"step 9, t = 0.9: Newton's .* filtered acceleration did not converge"):
            gm.simulate(escape, [1.0], method=gm.PushforwardNewmark(), dt=0.1, t_end=10.0, save_every=every)


def test_an_indefinite_matrix_between_two_saves_is_seen_at_the_next():
    """A bump 10 exp(−q²) bends downwards at its top, where the second step ends; the saves are far from it."""
    bump = gm.System(lambda q: 10 * jnp.sum(jnp.exp(-(q**2))))
    with pytest.raises(gm.RunStopped, match="at step 2, t = 1: M .* is not positive definite"):
        gm.simulate(bump, [-6.0], [6.0], method=gm.ZhangSkeel(0.4), dt=0.5, t_end=3.0, save_every=6)


def test_a_composition_is_its_substeps_each_with_its_own_filter():
    """A run that starts where another one ends shows the same filtered position there."""
    system, at = coupled_quartic()
    method = gm.Composition(gm.ZhangSkeel(0.4), order=4)
    run = gm.simulate(system, at.q, p0=at.p, method=method, dt=0.3, t_end=0.9)
    again = gm.simulate(system, run.q[-1], p0=run.p[-1], method=method, dt=0.3, t_end=0.0)
    assert np.max(np.abs(run.q_filtered[-1] - run.q[-1])) > 1e-4
    np.testing.assert_allclose(again.q_filtered[0], run.q_filtered[-1], rtol=0, atol=1e-14)
    # A step is its substeps one after another, each begun anew with the filter of its own length.
    mech, base, state = gm.Mechanics(system, (3,)), gm.ZhangSkeel(0.4), gm.methods.State(at.q, at.p)
    substep = jax.jit(lambda state, h: base.step(mech, base.init(mech, state, h), h))
    for gamma in method.coefficients:
        state = gm.methods.State(*substep(state, 0.3 * gamma)[:2])
    np.testing.assert_allclose(run.q[1], state.q, rtol=0, atol=1e-14)
    np.testing.assert_allclose(run.p[1], state.p, rtol=0, atol=1e-14)


def test_an_indefinite_matrix_stops_with_its_eigenvalue():
    system = gm.System(lambda q: -10 * jnp.sum(jnp.cos(q)) + q[0] * q[1])
    with pytest.raises(gm.RunStopped, match=r"t = .*not positive definite: its smallest eigenvalue .* about -?\d"):
        gm.simulate(system, [0.0, 0.1], [4.0, 6.5], method=gm.ZhangSkeel(0.4), dt=0.6, t_end=60.0)


def test_warnings_help():
    with pytest.warns(UserWarning, match=r"h²ω = 0.5 is above .3.*PushforwardNewmark"):
        gm.simulate(gm.penalize(PENDULUM.system, 50.0), PENDULUM.q0, method=gm.ZhangSkeel(0.4), dt=0.1, t_end=0.1)
    with pytest.warns(UserWarning, match=r"hω = .*above the limit"):
        gm.simulate(gm.System(lambda q: 50 * jnp.sum(q**2)), [0.1], method=gm.ZhangSkeel(0.1), dt=0.3, t_end=0.3)


def test_gradients_run_through_a_filtered_run():
    final = lambda q: gm.simulate(STIFF, q, PENDULUM.v0, method=gm.ZhangSkeel(0.4), dt=0.1, t_end=1.0).energy[-1]
    exact = jax.jit(jax.grad(final))(PENDULUM.q0)
    step = 1e-6
    for i in np.ndindex(2, 2):
        shift = np.zeros((2, 2))
        shift[i] = step
        assert exact[i] == pytest.approx(
            (final(PENDULUM.q0 + shift) - final(PENDULUM.q0 - shift)) / (2 * step), rel=1e-5, abs=1e-6
        )


@pytest.mark.slow
def test_conjugate_gradients_stay_symplectic_on_a_large_network():
    """10,000 particles joined at random: dq₁·dp₂ − dp₁·dq₂ of two sampled tangents is kept to 1e-10."""
    random = np.random.default_rng(0)
    n = 10_000
    i, j = (
        np.concatenate([np.arange(n - 1), random.integers(0, n, 2 * n)]),
        np.concatenate([np.arange(1, n), random.integers(0, n, 2 * n)]),
    )
    q = random.normal(size=(n, 3))
    apart = np.linalg.norm(q[i] - q[j], axis=1) > 0.5  # a spring pushed through a point would make M + cH indefinite
    i, j = i[apart], j[apart]
    rest = np.linalg.norm(q[i] - q[j], axis=1)
    system = gm.System(lambda x: 0.5 * jnp.sum((jnp.sqrt(jnp.sum((x[i] - x[j]) ** 2, axis=1)) - 0.9 * rest) ** 2))
    method = gm.ZhangSkeel(0.4).prepare([(system, q)])
    assert "conjugate" in method.linear_solver
    mech, p, h = gm.Mechanics(system, q.shape), jnp.asarray(0.1 * random.normal(size=(n, 3))), jnp.asarray(0.5)

    def step(x, y):
        state = method.step(mech, method.init(mech, gm.methods.State(x, y), h), h)
        return state[0], state[1]

    assert method.status(method.step(mech, method.init(mech, gm.methods.State(jnp.asarray(q), p), h), h)) == 0
    one, two = random.normal(size=(2, 2, n, 3))
    moved = [jax.jit(lambda a, b: jax.jvp(step, (jnp.asarray(q), p), (a, b))[1])(*tangent) for tangent in (one, two)]
    product = lambda u, v: float(jnp.sum(u[0] * v[1]) - jnp.sum(u[1] * v[0]))
    size = float(np.linalg.norm(one) * np.linalg.norm(two))
    assert abs(product(*moved) - product(one, two)) < 1e-10 * size


def coupled(q, k):
    d = jnp.diff(q)
    return jnp.sum(q**2) / 2 + k * jnp.sum(d**2) + k * jnp.sum(d**4)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(gm.ZhangSkeel(), marks=pytest.mark.slow),
        gm.Composition(gm.ZhangSkeel(), 4),
        pytest.param(gm.PushforwardNewmark(), marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_gradients_in_params_and_mass_of_filtered_methods(method):
    final = lambda k, m: gm.simulate(
        gm.System(coupled, params=k, mass=m), np.linspace(0, 1, 5), method=method, dt=0.05, t_end=0.2
    ).q[-1, 0]
    for which, exact in enumerate(jax.jit(jax.grad(final, argnums=(0, 1)))(0.7, 1.3)):
        at = lambda s, which=which: final(*(np.array([0.7, 1.3]) + s * np.eye(2)[which]))
        assert exact == pytest.approx((at(1e-6) - at(-1e-6)) / 2e-6, rel=1e-5)


def test_a_filtered_run_inside_jit():
    go = lambda q: gm.simulate(SOFT_CHAIN, q, method=gm.ZhangSkeel(0.4), dt=0.01, t_end=0.05)
    np.testing.assert_allclose(jax.jit(lambda q: go(q).q[-1])(CHAIN.q0), go(CHAIN.q0).q[-1], rtol=1e-12)


def near(q):
    apart = jnp.diff(q)
    return jnp.sum(q**2) / 2 + jnp.sum(jnp.where(apart < 1.0, (1 - apart**2) ** 3, 0.0))


def test_a_plan_belongs_to_its_start():
    system = gm.System(near)
    found = lambda spacing: (
        gm.methods.protocols.prepare(gm.ZhangSkeel(), [(system, np.arange(40) * spacing)]).linear_solver
    )
    assert "independent blocks" in found(5.0)
    assert "band" in found(0.3)


def test_a_plan_of_an_ensemble_covers_its_members():
    q = np.linspace(0, 1, 40)
    run = gm.ensemble(
        gm.System(coupled, params=0.0),
        np.stack([q] * 3),
        params=np.array([0.0, 0.5, 1.0]),
        method=gm.ZhangSkeel(),
        dt=0.05,
        t_end=0.5,
    )
    assert list(run.failed_at) == [-1, -1, -1]
    alone = gm.simulate(gm.System(coupled, params=1.0), q, method=gm.ZhangSkeel(), dt=0.05, t_end=0.5)
    np.testing.assert_allclose(run.q[2], alone.q, rtol=1e-11, atol=1e-13)
