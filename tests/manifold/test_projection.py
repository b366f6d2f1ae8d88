"""gm.project: the nearest point with g(q) = 0, and a tangent velocity."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm


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
