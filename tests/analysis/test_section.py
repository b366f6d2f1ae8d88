"""Poincaré sections: points on the section to rounding, at known times, the same from every engine."""

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines.pallas import engine as pallas

METHOD = gm.Composition(gm.Verlet(form="drift"), order=8)


def first(q):
    return q[0]


@pytest.fixture(scope="module")
def two_oscillators():
    """ω = 1 and √2: the section q₀ = 0 with p₀ > 0 is crossed at t = 3π/2 + 2πk from q = (1, 1) at rest."""
    return gm.System(lambda q: 0.5 * q[0] ** 2 + q[1] ** 2, mass=1.0)


def test_exact_crossings(two_oscillators):
    found = gm.section(two_oscillators, [1.0, 1.0], [0.0, 0.0], first, method=METHOD, dt=0.1, crossings=20)
    t = 1.5 * np.pi + 2 * np.pi * np.arange(20)
    np.testing.assert_allclose(found.t, t, atol=1e-10)
    np.testing.assert_allclose(found.q[:, 1], np.cos(np.sqrt(2) * t), atol=1e-9)
    assert np.max(np.abs(found.residual)) < 1e-16
    assert np.all(found.p[:, 0] > 0)
    np.testing.assert_allclose(found.energy, 1.5, atol=1e-10)
    assert (found.counts, len(found), found.members) == (20, 20, False)
    np.testing.assert_array_equal(found.coordinate("p[1]"), found.p[:, 1])
    assert len(found.plot().axes[0].lines[0].get_xdata()) == 20
    with pytest.raises(gm.InputError, match="shape"):
        found.coordinate("q[2]")


def test_both_directions_and_a_section_that_is_not_reached(two_oscillators):
    both = gm.section(
        two_oscillators, [1.0, 1.0], [0.0, 0.0], first, method=gm.Verlet(), dt=0.1, crossings=6, direction=0
    )
    assert list(np.sign(both.p[:, 0])) == [-1, 1, -1, 1, -1, 1]
    starts = np.array([[1.0, 0.5], [1.0, 3.0]])
    far = gm.section(
        two_oscillators, starts, np.zeros((2, 2)), lambda q: q[1] - 2, method=gm.Verlet(), dt=0.1, crossings=3,
        members=True, most_steps=500,
    )  # fmt: skip
    assert list(far.counts) == [0, 3]
    assert np.all(np.isnan(far.q[0]))
    none = gm.section(two_oscillators, starts[0], [0.0, 0.0], lambda q: q[1] - 2, method=gm.Verlet(), dt=0.1)
    assert len(none) == 0
    with pytest.raises(gm.InputError, match="needs f"):
        gm.section(two_oscillators, [1.0, 1.0], method=gm.Verlet(), dt=0.1)


def test_henon_heiles_on_three_engines(monkeypatch):
    """One by one through XLA, vectors of machine code, and a kernel."""
    monkeypatch.setattr(pallas, "INTERPRET", True)
    y, energy = np.array([-0.2, 0.0, 0.1, 0.3, 0.45]), 0.1
    px = np.sqrt(2 * energy - y**2 + 2 * y**3 / 3)
    q, v = np.stack([0 * y, y], 1), np.stack([px, 0 * y], 1)
    found = {
        engine: gm.section(
            gm.models.henon_heiles(), q, v, first, method=gm.Verlet(), dt=0.05, members=True, crossings=4, engine=engine
        )
        for engine in ("xla", "native", "kernel")
    }
    assert [each.run.engine for each in found.values()] == ["xla", "native", "kernel"]
    for each in found.values():
        assert np.max(np.abs(each.residual)) < 1e-15
        assert np.max(np.abs(each.q[..., 0])) < 1e-15
        assert np.max(np.abs(each.energy - energy)) < 1e-3  # that of Verlet
        np.testing.assert_allclose(each.q, found["xla"].q, atol=1e-12)
        np.testing.assert_allclose(each.t, found["xla"].t, atol=1e-12)


def test_a_driven_system_has_its_own_time():
    """q̈ = −cos t from q = 1 at rest: q = cos t, whose energy p²/2 + q cos t is known at the crossings."""
    system = gm.System(lambda q, t: q[0] * jnp.cos(t), mass=1.0)
    found = gm.section(system, [1.0], [0.0], first, method=METHOD, dt=0.1, crossings=3)
    np.testing.assert_allclose(found.t, 1.5 * np.pi + 2 * np.pi * np.arange(3), atol=1e-9)
    np.testing.assert_allclose(found.energy, 0.5, atol=1e-9)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda q: q[0] > 0.2, r"f\(q, p\) must return a number that changes its sign, not True or False"),
        (lambda q: q[5], "f uses index 5 of an axis of length 2"),
        (lambda q: q, r"f\(q, p\) must return one number"),
        (lambda q: jnp.sqrt(q[0] - 5), r"f\(q, p\) is nan at the start"),
    ],
)
def test_functions_whose_sign_says_nothing(two_oscillators, wrong, match):
    with pytest.raises(gm.InputError, match=match):
        gm.section(two_oscillators, [1.0, 1.0], [0.0, 0.0], wrong, method=gm.Verlet(), dt=0.1, crossings=3)


def test_indices_out_of_range_for_all_members(two_oscillators):
    start = np.ones((3, 2))
    with pytest.raises(gm.InputError, match="f uses index 5"):
        gm.section(two_oscillators, start, 0 * start, lambda q: q[5], method=METHOD, dt=0.1, crossings=3, members=True)


def test_a_motion_that_the_step_does_not_follow():
    """One of two starts leaves the basin of Hénon and Heiles, and is infinite after a finite time."""
    q0, v0 = np.array([[0.0, 0.1], [0.0, 0.9]]), np.array([[0.45, 0.0], [1.0, 1.0]])
    with pytest.warns(gm.InstabilityWarning, match="energy error of 1 of 2 trajectories exceeds"):
        gm.section(gm.models.henon_heiles(), q0, v0, first, dt=0.1, crossings=5, members=True)
