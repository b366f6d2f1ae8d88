"""Models of rigid bodies: each against a number known otherwise."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ellipk

import geomint as gm

FINE = gm.Composition(gm.LieVerlet(), order=4)


def test_a_free_top_turns_over_at_the_elliptic_period():
    """From m near the middle axis m₂ changes its sign every 2K(k²)/λ."""
    model = gm.models.free_top()
    i1, i2, i3 = 1.0, 2.0, 2.8
    m = np.array([0.02, 2.0, 0.02])
    twice, square = np.sum(m**2 / [i1, i2, i3]), m @ m
    above, below = twice * i3 - square, square - twice * i1
    assert square < twice * i2  # turns about the first axis
    rate = np.sqrt((i2 - i1) * above / (i1 * i2 * i3))
    half = 2 * ellipk((i3 - i2) * below / ((i2 - i1) * above)) / rate
    run = gm.simulate(model, method=gm.MoserVeselov(), dt=0.01)
    k = np.flatnonzero(np.diff(np.sign(run.p[:, 1])))
    turns = run.t[k] - run.p[k, 1] * 0.01 / (run.p[k + 1, 1] - run.p[k, 1])
    assert len(turns) >= 3
    np.testing.assert_allclose(np.diff(turns), half, rtol=2e-3)  # of the method, O(h²)


def test_the_magnetised_body_falls_to_a_root_of_its_energy():
    """With a = Ω₃, b = (RΩ)₃ = a and u = R₃₃: ½θ̇² = H − ½a² − u − ½a²(1 − u)/(1 + u)."""
    run = gm.simulate(gm.models.magnetised_body(), method=FINE, dt=0.02)
    energy, a = 0.5 * (1 + 0.04 + 0.01) + 1, 0.1
    assert run.energy[0] == pytest.approx(energy, abs=1e-15)
    lowest = brentq(lambda u: energy - a**2 / 2 - u - a**2 * (1 - u) / (2 * (1 + u)), -1 + 1e-9, 0)
    assert run.q[:, 2, 2].min() == pytest.approx(lowest, abs=2e-3)  # between two saves
    assert run.q[:, 2, 2].min() > lowest - 1e-6


@pytest.mark.parametrize(("phase", "frequency"), [(1, np.sqrt(3)), (-1, 1.0)])
def test_two_magnets_swing_with_their_frequencies(phase, frequency):
    model, small = gm.models.two_magnets(), 1e-3
    along = lambda angle: gm.rigid.rotation((0, 1, 0), np.pi / 2 - angle)
    q0, period = np.stack([along(small), along(phase * small)]), 2 * np.pi / frequency
    run = gm.simulate(model.system, q0, method=FINE, dt=period / 100, t_end=period, save_every=50)
    assert run.energy[0] == pytest.approx(-2, abs=1e-5)  # V = −2/d³ along n
    np.testing.assert_allclose(run.q[2], q0, atol=1e-8)
    assert np.abs(run.q[1] - q0).max() == pytest.approx(2 * small, rel=1e-3)


def test_a_conical_pendulum_keeps_its_height():
    model = gm.models.spherical_pendulum(length=2.0, angle=0.8, rate=1.0)
    period = 2 * np.pi * np.sqrt(2 * np.cos(0.8))
    run = gm.simulate(model, method=gm.Composition(gm.Rattle(), order=8), dt=period / 80, t_end=period, engine="xla")
    np.testing.assert_allclose(run.q[-1], model.q0, atol=1e-12)
    assert np.ptp(run.q[:, 2]) < 1e-12


def test_a_satellite_swings_about_the_direction_of_the_centre():
    model, frequency = gm.models.satellite(tilt=0.01), np.sqrt(3 * (1.0 - 0.4) / 1.2)
    run = gm.simulate(model, method=FINE, dt=0.05, t_end=15.0)
    x, axis = run.q[:, 0], run.q[:, 1:, 0]
    angle = np.arctan2(np.cross(x, axis)[:, 1], np.sum(x * axis, axis=1))
    np.testing.assert_allclose(angle, 0.01 * np.cos(frequency * run.t), atol=3e-4)  # the orbit turns slightly elliptic
    assert np.ptp(run.momentum_maps["spatial rotation"], axis=0).max() < 1e-13
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-4)


def test_the_heavy_top_in_both_representations():
    matrix, group = gm.models.heavy_top(), gm.models.heavy_top(representation="group")
    one, other = (
        gm.simulate(m, method=k, dt=0.02, t_end=1.0) for m, k in ((matrix, gm.Rattle()), (group, gm.MoserVeselov()))
    )
    np.testing.assert_allclose(one.q, other.q, atol=1e-13)
    np.testing.assert_allclose(one.energy, other.energy, atol=1e-12)
    maps = gm.models.heavy_top((1, 1, 0.5), (0.2, 0.1, 2), "group").system.named_symmetries
    assert list(maps) == ["spatial rotation[0.0, 0.0, 1.0]", "body rotation[0.0, 0.0, 1.0]"]
