"""Cases a reviewer broke once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm


def coupled(q, k):
    d = jnp.diff(q)
    return jnp.sum(q**2) / 2 + k * jnp.sum(d**2) + k * jnp.sum(d**4)


def test_params_that_could_be_read_two_ways_belong_to_the_members_with_a_warning():
    system = gm.System(lambda q, k: jnp.sum(k * q**2) / 2, params=np.array([1.0, 4.0, 9.0]))
    with pytest.warns(UserWarning, match="Treated as per-member"):
        run = gm.ensemble(system, np.ones((3, 1)), method=gm.Verlet(), dt=0.001, t_end=1.0)
    np.testing.assert_allclose(run.q[:, -1, 0], np.cos([1.0, 2.0, 3.0]), atol=1e-5)
    said = gm.ensemble(system, np.ones((3, 1)), params=system.params, method=gm.Verlet(), dt=0.001, t_end=1.0)
    assert np.array_equal(said.q, run.q)


def test_lagrangian_members_with_their_own_params():
    """L = ½m v² − ½q²: the momentum of each member is its own mass times v."""
    system = gm.LagrangianSystem(
        lambda q, v, m: 0.5 * m * jnp.sum(v**2) - 0.5 * jnp.sum(q**2), params=np.array([1.0, 4.0])
    )
    run = gm.ensemble(system, np.zeros((2, 1)), np.ones((2, 1)), method=gm.Variational(), dt=0.01, t_end=1.0)
    np.testing.assert_allclose(run.p[:, 0, 0], [1.0, 4.0])
    np.testing.assert_allclose(run.v[:, 0, 0], [1.0, 1.0])
    np.testing.assert_allclose(run.q[:, -1, 0], [np.sin(1.0), 2 * np.sin(0.5)], atol=1e-4)


def test_params_of_the_system_may_lead_with_the_member():
    system = gm.System(lambda q, k: k * jnp.sum(q**2) / 2, params=np.array([1.0, 4.0, 9.0]))
    run = gm.ensemble(system, np.ones((3, 1)), method=gm.Verlet(), dt=0.001, t_end=1.0)
    np.testing.assert_allclose(run.q[:, -1, 0], np.cos([1.0, 2.0, 3.0]), atol=1e-5)


def test_members_with_their_own_params_are_kept_and_resumed(tmp_path):
    system = gm.System(lambda q, k: k * jnp.sum(q**2) / 2, params=np.array([1.0, 2.0, 3.0]))
    go = lambda t, **more: gm.ensemble(system, np.ones((3, 2)), method=gm.Verlet(), dt=0.01, t_end=t, **more)
    go(0.1).save(tmp_path / "saved.h5")
    go(0.1, output=tmp_path / "streamed.h5")
    for name in ("saved.h5", "streamed.h5"):
        assert np.array_equal(gm.resume(tmp_path / name, system=system, t_end=0.2).q, go(0.2).q)
        with pytest.raises(gm.ArchiveError, match="not the one that was run"):
            gm.resume(tmp_path / name, system=system.with_params(np.array([1.0, 2.0, 4.0])), t_end=0.3)


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
    for which, exact in enumerate(jax.grad(final, argnums=(0, 1))(0.7, 1.3)):
        at = lambda s, which=which: final(*(np.array([0.7, 1.3]) + s * np.eye(2)[which]))
        assert exact == pytest.approx((at(1e-6) - at(-1e-6)) / 2e-6, rel=1e-5)


def test_a_filtered_run_inside_jit():
    chain = gm.models.chain(20)
    system = gm.penalize(chain.system, 20.0)
    go = lambda q: gm.simulate(system, q, method=gm.ZhangSkeel(), dt=0.01, t_end=0.05)
    np.testing.assert_allclose(jax.jit(lambda q: go(q).q[-1])(chain.q0), go(chain.q0).q[-1], rtol=1e-12)


def near(q):
    apart = jnp.diff(q)
    return jnp.sum(q**2) / 2 + jnp.sum(jnp.where(apart < 1.0, (1 - apart**2) ** 3, 0.0))


def test_a_plan_belongs_to_its_start():
    system = gm.System(near)
    go = lambda spacing: gm.simulate(system, np.arange(40) * spacing, method=gm.ZhangSkeel(), dt=0.001, t_end=0.01)
    assert "independent blocks" in go(5.0).solver
    assert "band" in go(0.3).solver


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


def test_forces_are_not_certified_as_structure():
    driven = gm.LagrangianSystem(lambda q, v: jnp.sum(v**2) / 2 - jnp.sum(q**2) / 2, force=lambda q, v, t: -0.1 * v)
    certificate = gm.certify(driven, gm.Variational(), [1.0], [0.0], dt=0.1, steps=200)
    assert certificate.ok
    assert certificate["symplecticity"].holds is False
    assert certificate["energy balance"].measured == pytest.approx(2, abs=0.1)
    assert certificate["balance error"].measured < 0.01


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gm.System(lambda q: np.sin(q).sum()), "potential uses numpy.*jnp"),
        (lambda: gm.System(lambda q: jnp.sum(q) if q[0] > 0 else 0.0), "potential uses numpy.*`if`"),
        (lambda: gm.System(lambda q, k: jnp.sum(q)), "no params"),
        (lambda: gm.System(lambda q: jnp.sum(q), params=1.0), "has params"),
    ],
)
def test_functions_written_the_wrong_way(make, words):
    with pytest.raises(gm.InputError, match=words):
        gm.simulate(make(), [1.0], method=gm.Verlet(), dt=0.1, t_end=1.0)


def test_ensembles_say_what_they_can_not_do():
    system = gm.System(lambda q: jnp.sum(q**4))
    with pytest.raises(gm.GeomintError, match="vmap over gm.simulate"):
        jax.grad(lambda q: gm.ensemble(system, q, method=gm.Verlet(), dt=0.1, t_end=1.0).q.sum())(jnp.ones((3, 2)))
    for q0s in (1.0, np.ones((0, 2))):
        with pytest.raises(gm.InputError, match="leading axis"):
            gm.ensemble(system, q0s, method=gm.Verlet(), dt=0.1, t_end=1.0)


def test_project():
    model = gm.models.double_pendulum()
    random = np.random.default_rng(0)
    q, v = gm.project(model.system, model.q0 + 0.1 * random.normal(size=(2, 2)), random.normal(size=(2, 2)))
    mech = gm.Mechanics(model.system, (2, 2))
    assert np.max(np.abs(mech.constraint(q))) < 1e-14
    assert np.max(np.abs(mech.constraint_rate(q, v))) < 1e-14
    same = gm.project(model.system, q, v)
    np.testing.assert_allclose(same[0], q, atol=1e-14)
    np.testing.assert_allclose(same[1], v, atol=1e-14)
    with pytest.raises(gm.InputError, match="constraint"):
        gm.project(gm.System(lambda q: jnp.sum(q)), [1.0])


def test_project_says_where_there_is_nothing_to_project_to():
    """|q|² + 1 is nowhere zero, and no point of the unit circle has x = 3: an error, and no point."""
    for constraint in (lambda q: jnp.sum(q**2, keepdims=True) + 1, lambda q: jnp.stack([jnp.sum(q**2) - 1, q[0] - 3])):
        with pytest.raises(gm.InputError, match=r"project found no point with g\(q\) = 0 near q0"):
            gm.project(gm.System(lambda q: q[1], constraint=constraint), [1.0, 1.1])
