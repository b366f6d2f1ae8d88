"""Arrays of gm.ensemble without the member axis, which all members share, and models in place of a system."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm

SPRING = gm.System(
    lambda q, k: k["stiffness"] * jnp.sum((q - k["rest"]) ** 2) / 2, params={"stiffness": 1.0, "rest": 0}
)
GRID = {"method": gm.Verlet(), "dt": 0.001, "t_end": 1.0, "save_every": 500}
STIFFNESS = np.array([1.0, 4.0, 9.0])
Q, V = np.array([1.0, 0.5]), np.array([0.0, 2.0])


def end(q, v, stiffness, rest=0.0):
    """The exact motion at t = 1."""
    omega = np.sqrt(stiffness)
    return rest + (q - rest) * np.cos(omega) + v * np.sin(omega) / omega


def test_what_has_no_member_axis_is_shared():
    """Positions, velocities, momenta and leaves of params: the members are those of the exact motions, and the numbers
    those of arrays that were repeated by hand."""
    own = {"stiffness": STIFFNESS, "rest": np.zeros(3)}
    qs, vs = Q + 0.1 * np.arange(3)[:, None], V + 0.1 * np.arange(3)[:, None]
    whole = gm.ensemble(SPRING, qs, np.stack([V] * 3), params=own, **GRID)
    np.testing.assert_allclose(whole.q[:, -1], end(qs, V, STIFFNESS[:, None]), atol=1e-5)
    one_leaf = {"stiffness": STIFFNESS, "rest": 0.0}
    for shared in (
        gm.ensemble(SPRING, qs, V, params=own, **GRID),
        gm.ensemble(SPRING, qs, p0s=V, params=own, **GRID),
        gm.ensemble(SPRING, qs, V, params=one_leaf, **GRID),
    ):
        assert np.array_equal(shared.q, whole.q)
        assert shared.spread == "states and params"
    of_velocities = gm.ensemble(SPRING, Q, vs, params=one_leaf, **GRID)
    np.testing.assert_allclose(of_velocities.q[:, -1], end(Q, vs, STIFFNESS[:, None]), atol=1e-5)
    assert np.array_equal(of_velocities.q[:, 0], np.stack([Q] * 3))
    # The energy is not defined for one number: q is one state, and params count the members.
    springs = gm.System(lambda q, k: k * (q[0] ** 2 + q[1] ** 2) / 2, params=1.0)
    for start in ((Q, V), (Q,)):
        counted = gm.ensemble(springs, *start, params=STIFFNESS, **GRID)
        v = start[1] if len(start) > 1 else 0.0
        np.testing.assert_allclose(counted.q[:, -1], end(Q, v, STIFFNESS[:, None]), atol=1e-5)
    # All of params shared, as with_params would state them.
    alike = gm.ensemble(SPRING, qs, V, params={"stiffness": 4.0, "rest": 0.5}, **GRID)
    assert alike.spread == "states"
    np.testing.assert_allclose(alike.q[:, -1], end(qs, V, 4.0, 0.5), atol=1e-5)


def test_a_shared_leaf_is_kept_and_resumed(tmp_path):
    params = {"stiffness": STIFFNESS, "rest": 0.25}
    go = lambda t, **more: gm.ensemble(SPRING, np.stack([Q] * 3), V, params=params, **GRID | {"t_end": t} | more)
    run = go(0.5, output=tmp_path / "run.h5")
    again = gm.resume(tmp_path / "run.h5", system=SPRING.with_params(params), t_end=1.0)
    assert np.array_equal(again.q, go(1.0).q)
    assert np.array_equal(gm.load(tmp_path / "run.h5", system=SPRING.with_params(params)).v[:, :2], run.v)


def test_a_model_in_place_of_a_system():
    model = gm.models.pendulum()
    gravity = np.linspace(0.5, 2.0, 4)
    grid = {"method": gm.Verlet(), "dt": model.dt, "t_end": model.t_end, "save_every": 100}
    run = gm.ensemble(model, params={**model.system.params, "gravity": gravity}, method=gm.Verlet(), save_every=100)
    start = [np.stack([x] * 4) for x in (model.q0, model.v0)]
    expected = gm.ensemble(model.system, *start, params={"length": np.ones(4), "gravity": gravity}, **grid)
    assert np.array_equal(run.q, expected.q)
    angles = np.linspace(0.1, 1.0, 3)[:, None]
    assert np.array_equal(
        gm.ensemble(model, angles, **grid).q, gm.ensemble(model.system, angles, np.stack([model.v0] * 3), **grid).q
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"q0s": None}, "ensemble needs q0s"),
        ({"v0s": np.ones((2, 2))}, r"v0s has shape \(2, 2\), but q0s has shape \(3, 2\).*which all members share"),
        ({"v0s": np.ones(3)}, r"v0s has shape \(3,\), but q0s has shape \(3, 2\)"),
        ({"q0s": np.ones(2), "v0s": np.ones((0, 2))}, r"v0s has shape \(0, 2\): there is no member"),
        ({"params": {"stiffness": np.ones(5), "rest": 0.0}}, "3 members, whose params are shared or of a wrong length"),
        ({"params": {"stiffness": np.ones(5), "rest": np.ones(4)}}, "no leaf has a leading axis of 3 members"),
        (
            {"system": gm.System(lambda q, k: jnp.sum(k) * jnp.sum(q**2), params=1.0), "params": np.ones(5)},
            r"could be 3 members.*or 5 members that share q0s.*np.broadcast_to\(q0, \(5, 3, 2\)\)",
        ),
        (
            {
                "system": gm.System(
                    lambda q, k: k["a"] * jnp.sum(q**2) + k["b"][2], params={"a": 1.0, "b": np.ones(3)}
                ),
                "params": {"a": np.ones(3), "b": np.ones(3)},
            },
            r"params\['b'\] has a leading axis of 3.*np.broadcast_to\(x, \(3, 3\)\)",
        ),
        ({"system": gm.models.pendulum(), "q0s": None}, "do not say how many members there are.*no leaf"),
    ],
)
def test_messages(arguments, words):
    with pytest.raises(gm.InputError, match=words):
        gm.ensemble(**{"system": SPRING, "q0s": np.ones((3, 2)), **GRID, **arguments})
