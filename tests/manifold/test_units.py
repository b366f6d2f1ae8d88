"""Constraints in any units: solving, projection and the check of a start."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from helpers.mechanisms import (
    run,
)


# --- units ----------------------------------------------------------------------------------------------------------
def rods_in_units(q, params):
    both = jnp.stack([jnp.sum(q[0] ** 2), jnp.sum((q[1] - q[0]) ** 2)]) - params["length"] ** 2
    return both * jnp.stack([1.0, params["factor"]])


def weights_in_units(q, params):
    return params["length"] * jnp.sum(q[:, 1])


def in_units(length, factor=1.0):
    """A double pendulum whose unit of length is `length`, and whose second rod is stated times `factor`. The functions
    are the same for all units, so that one compiled program serves them all."""
    system = gm.System(weights_in_units, constraint=rods_in_units, params={"length": length, "factor": factor})
    q0 = np.array([[0.6, -0.8], [1.4, -1.4]])
    v0 = 0.3 * np.array([[0.8, 0.6], [1.4, 1.4]])
    return system, length * q0, length * v0


@pytest.mark.parametrize("method", [gm.Rattle(), gm.LobattoIIIAB(3), gm.SymmetricMultistep(6)], ids=lambda m: m.name)
def test_units_do_not_matter(method):
    go = lambda *units: gm.simulate(*in_units(*units), method=method, dt=0.02, t_end=1.0, engine="xla")
    expected = go(1.0).q
    for length in (1e-12, 1e-10, 1e-5, 1e3, 1e7, 1e12):
        np.testing.assert_allclose(go(length).q / length, expected, rtol=0, atol=1e-11)
    for factor in (1e-8, 1e-3, 1e7, 1e8):
        seen = go(1.0, factor)
        assert "least squares" not in str(seen.solver)
        np.testing.assert_allclose(seen.q, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("length", [1e-12, 1e-10, 1e-5, 1.0, 1e12])
@pytest.mark.parametrize("factor", [1e-8, 1.0, 1e8])
def test_projection_in_any_units(length, factor):
    system, q0, v0 = in_units(length, factor)
    q, v = gm.project(system, q0 * [[1.05], [0.97]], v0)
    rods = np.sum(np.diff(q, axis=0, prepend=np.zeros((1, 2))) ** 2, axis=1)
    np.testing.assert_allclose(rods, length**2, rtol=3e-15)
    assert np.max(np.abs(q - q0)) < 0.1 * length
    arms, moving = np.diff(q, axis=0, prepend=np.zeros((1, 2))), np.diff(v, axis=0, prepend=np.zeros((1, 2)))
    assert np.max(np.abs(np.sum(arms * moving, axis=1))) < 1e-14 * length**2


@pytest.mark.parametrize("length", [1e-10, 1e-5, 1.0, 1e8])
def test_a_start_off_the_constraint_in_any_units(length):
    system, q0, v0 = in_units(length)
    go = lambda q, v: gm.simulate(system, q, v, method=gm.Rattle(), dt=0.01, t_end=0.01, engine="xla")
    with pytest.raises(gm.InputError, match=r"do not satisfy the constraint.*gm.project"):
        go(q0 * 0.5, v0)
    with pytest.raises(gm.InputError, match="do not satisfy"):
        go(q0 * (1 + 1e-7), v0)  # a few parts in 1e7 off
    with pytest.raises(gm.InputError, match="do not satisfy"):
        go(q0, v0 + 1e-6 * length)
    assert len(go(q0 * (1 + 1e-10), v0)) == 2
    far = gm.System(lambda q: 0.0 * q[0], constraint=lambda q: jnp.atleast_1d((q[0] - 1e3) ** 2 + q[1] ** 2 - 1e-10))
    with pytest.raises(gm.InputError, match="do not satisfy"):
        gm.simulate(far, np.array([1e3 + 0.5e-5, 0.0]), method=gm.Rattle(), dt=0.01, t_end=0.01)


@pytest.mark.parametrize("solver", ["newton", "sweep"])
def test_coordinates_outside_of_constraints_do_not_loosen_them(solver):
    """A chain of length 6 beside a coordinate of 1e12, as the attitude of a satellite beside its orbit in metres."""
    links = 6

    def rods(q):
        x = q[: 2 * links].reshape(links, 2)
        return jnp.sum(jnp.concatenate([x[:1], x[1:] - x[:-1]]) ** 2, axis=1) - 1

    system = gm.System(potential=lambda q: jnp.sum(q[1 : 2 * links : 2]), mass=1.0, constraint=rods)
    q0 = np.concatenate([np.stack([np.arange(1, links + 1), np.zeros(links)], 1).ravel(), [1e12]])
    seen = run((system, q0, np.zeros_like(q0)), gm.Rattle(solver=solver), 2000, 40.0)
    assert np.max(np.abs(seen.constraint_residual)) < 1e-14
