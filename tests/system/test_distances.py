"""Rods whose lengths are those of the initial positions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm

PAIRS = [(None, 0), (0, 1)]
Q = np.array([[0.9, -0.1], [1.5, -1.6]])
LENGTHS = np.array([np.hypot(0.9, 0.1), np.hypot(0.6, 1.5)])
weight = lambda q: jnp.sum(q[:, 1])
STATED = gm.System(weight, constraint=gm.Distances(PAIRS))
STEPS = {"method": gm.Rattle(), "dt": 0.01, "t_end": 0.2}


def test_lengths_of_a_run(tmp_path):
    """The motion is that of the same rods with lengths given; archives are continued with the system as it was
    stated, and refuse other lengths."""
    given = gm.System(weight, constraint=gm.Distances(PAIRS, LENGTHS))
    run = gm.simulate(STATED, Q, **STEPS, output=tmp_path / "a.h5")
    np.testing.assert_allclose(run.system.constraint.lengths, LENGTHS, rtol=1e-15)
    assert STATED.constraint.lengths is None
    np.testing.assert_allclose(run.q, gm.simulate(given, Q, **STEPS).q, rtol=0, atol=1e-14)
    assert np.abs(run.constraint_residual).max() < 1e-14
    longer = gm.System(weight, constraint=gm.Distances(PAIRS, 1.01 * LENGTHS))
    with pytest.raises(gm.ArchiveError, match="the system given is not the one that was run"):
        gm.resume(tmp_path / "a.h5", system=longer, t_end=0.4)
    resumed = gm.resume(tmp_path / "a.h5", system=STATED, t_end=0.4)
    whole = gm.simulate(STATED, Q, **{**STEPS, "t_end": 0.4})
    assert np.array_equal(resumed.q, whole.q)
    assert gm.load(tmp_path / "a.h5", system=STATED).v.shape == (41, 2, 2)


def test_lengths_of_members(tmp_path):
    """Those of the first member; others must have the same."""
    few = {**STEPS, "t_end": 0.05}
    turned = Q @ np.array([[0.6, 0.8], [-0.8, 0.6]])
    run = gm.ensemble(STATED, [Q, turned], **few, output=tmp_path / "a.h5")
    np.testing.assert_allclose(run.system.constraint.lengths, LENGTHS, rtol=1e-15)
    assert np.abs(run.constraint_residual).max() < 1e-14
    assert gm.resume(tmp_path / "a.h5", system=STATED, t_end=0.1).q.shape == (2, 11, 2, 2)
    with pytest.raises(gm.InputError, match="of member 1 do not satisfy .* those of member 0 for all members"):
        gm.ensemble(STATED, [Q, 1.1 * Q], **few)


def test_lengths_elsewhere():
    """Combined with others, turned into springs, with fixed points, differentiated; what has no start says so."""
    rods = gm.Distances([((1.0, 2.0), 0), (0, 1)])
    np.testing.assert_allclose(rods.measured(Q).lengths, [np.hypot(0.1, 2.1), LENGTHS[1]], rtol=1e-15)
    slope = jax.jacobian(lambda q: rods.measured(q).lengths)(jnp.asarray(Q))
    along = (Q[1] - Q[0]) / LENGTHS[1]
    np.testing.assert_allclose(slope[1], [-along, along], rtol=1e-14)
    both = gm.System(weight, constraint=gm.Distances([(0, 1)]) & gm.OnSphere(LENGTHS[0], particles=[0]))
    q, v = gm.project(both, Q, np.ones_like(Q))
    np.testing.assert_allclose(q, Q, atol=1e-14)
    assert abs((v[1] - v[0]) @ along) < 1e-14
    assert gm.degrees_of_freedom(STATED, Q) == 2
    soft = gm.simulate(gm.penalize(STATED, 40.0), Q, method=gm.Verlet(), dt=0.001, t_end=0.002)
    assert soft.energy[0] == pytest.approx(-1.7, rel=1e-14)  # springs at rest
    with pytest.raises(gm.InputError, match=r"takes them from q0, which is not known here: give lengths"):
        STATED.constraint(jnp.asarray(Q))
    with pytest.raises(gm.InputError, match="particle 0 and particle 1 coincide at q0"):
        gm.simulate(STATED, [[1.0, 0.0], [1.0, 0.0]], **STEPS)
    with pytest.raises(TypeError, match="Did you mean lengths"):
        gm.Distances(PAIRS, length=1.0)


@pytest.mark.slow
def test_derivatives_by_q0_include_the_lengths():
    """Against differences of runs, whose lengths differ too; certified."""
    end = lambda q: gm.simulate(STATED, q, **STEPS).q[-1, 1, 0]
    x = np.random.default_rng(0).normal(size=Q.shape)
    change = float((end(Q + 1e-6 * x) - end(Q - 1e-6 * x)) / 2e-6)
    assert np.vdot(jax.grad(end)(jnp.asarray(Q)), x) == pytest.approx(change, rel=1e-7)
    assert gm.certify(STATED, gm.Rattle(), Q, dt=0.01, steps=500).ok
