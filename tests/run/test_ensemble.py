"""gm.ensemble: members with their own params, from the call to the archive, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm


def test_params_that_could_be_read_two_ways_belong_to_the_members_with_a_warning():
    system = gm.System(lambda q, k: jnp.sum(k * q**2) / 2, params=np.array([1.0, 4.0, 9.0]))
    with pytest.warns(UserWarning, match="params is ambiguous.*Treated as per-member"):
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


def test_ensembles_say_what_they_can_not_do():
    system = gm.System(lambda q: jnp.sum(q**4))
    with pytest.raises(gm.GeomintError, match="vmap over gm.simulate"):
        jax.grad(lambda q: gm.ensemble(system, q, method=gm.Verlet(), dt=0.1, t_end=1.0).q.sum())(jnp.ones((3, 2)))
    for q0s in (1.0, np.ones((0, 2))):
        with pytest.raises(gm.InputError, match="leading axis"):
            gm.ensemble(system, q0s, method=gm.Verlet(), dt=0.1, t_end=1.0)
