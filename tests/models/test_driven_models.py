"""Models with motors, friction and moving supports."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import geomint as gm
from geomint.analysis.measure import Point, independent_reference

UNTIL = 4.0


class Cranks(NamedTuple):
    """Runs of the slider-crank with steps of 0.02 and 0.01, and their extrapolation to h = 0."""

    runs: list
    limit: dict


@pytest.fixture(scope="module")
def cranks():
    """In points by Rattle, in angles by Variational."""

    def runs_of(model, method):
        runs = [
            gm.simulate(model.system, model.q0, model.v0, method=method, dt=dt, t_end=UNTIL, save_every=round(0.2 / dt))
            for dt in (0.02, 0.01)
        ]
        coarse, fine = ({name: np.asarray(getattr(run, name)) for name in ("q", "p", "energy", "work")} for run in runs)
        return Cranks(runs, {name: fine[name] + (fine[name] - coarse[name]) / 3 for name in fine})

    return (
        runs_of(gm.models.driven_slider_crank(), gm.Rattle()),
        runs_of(gm.models.driven_slider_crank_angles(), gm.Variational()),
    )


def test_the_slider_crank_in_points_and_in_angles(cranks):
    points, angles = cranks
    theta, phi = angles.limit["q"].T
    pin = np.stack([np.cos(theta), np.sin(theta)], axis=-1)
    slider = pin + 3.0 * np.stack([np.cos(phi), np.sin(phi)], axis=-1)
    assert theta[-1] > np.pi  # the motor turns it over the top
    np.testing.assert_allclose(points.limit["q"], np.stack([pin, slider], axis=1), rtol=0, atol=1e-6)
    np.testing.assert_allclose(points.limit["work"], angles.limit["work"], rtol=0, atol=1e-6)
    for runs, limit in cranks:
        assert np.max(np.abs(limit["work"])) > 1.0
        assert np.max(np.abs(limit["energy"] - limit["energy"][0] - limit["work"])) < 1e-6
        assert np.max(np.abs(runs[1].constraint_residual)) < 1e-13
        assert np.max(np.abs(runs[1].velocity_residual)) < 1e-12
        balance = [np.max(np.abs(run.energy_error - run.work)) for run in runs]
        assert np.log2(balance[0] / balance[1]) == pytest.approx(2.0, abs=0.1)


def test_the_slider_crank_against_scipy(cranks):
    """By q̈ of the constrained Lagrangian, integrated by scipy: no method of geomint is involved."""
    runs, limit = cranks[1]
    model = gm.models.driven_slider_crank_angles()
    exact = independent_reference(model.system, Point(model.q0, np.zeros(2)), runs[0].t[1:])
    np.testing.assert_allclose(limit["q"][1:], exact.q, rtol=0, atol=2e-7)
    np.testing.assert_allclose(limit["p"][1:], exact.p, rtol=0, atol=1e-6)
    errors = [[np.max(np.abs(x[1:] - y)) for x, y in zip((run.q, run.p), exact, strict=True)] for run in runs]
    assert np.all(np.abs(np.log2(np.divide(*errors)) - 2) < 0.1)
    assert runs[0].multipliers.shape == (21, 1)


def test_kapitzas_pendulum_stands_upright():
    model = gm.models.kapitza_pendulum()
    settings = {"method": gm.Rattle(), "dt": model.dt, "t_end": model.t_end, "save_every": 10}
    run = gm.simulate(model.system, model.q0, model.v0, **settings)
    support = 0.1 * np.cos(30.0 * run.t)
    angle = np.arctan2(run.q[:, 0, 0], run.q[:, 0, 1] - support)
    assert np.max(np.abs(angle)) < 0.45
    assert np.max(np.abs(run.energy_error - run.work)) < 0.02 * np.max(np.abs(run.work))
    # It swings with √(½·3² − 1) = 1.87, less its nonlinearity: between 10 and 12 crossings in 20 units of time.
    slow = np.convolve(angle, np.ones(21) / 21, mode="valid")
    assert 10 <= np.sum(np.diff(np.sign(slow)) != 0) <= 12
    fallen = gm.models.kapitza_pendulum(frequency=10.0)
    run = gm.simulate(fallen.system, fallen.q0, fallen.v0, **settings)
    assert np.min(run.q[:, 0, 1]) < -0.8


def test_the_driven_pendulum_and_the_relativistic_oscillator():
    model = gm.models.driven_pendulum()
    exact = independent_reference(model.system, Point(model.q0, np.zeros(1)), np.array([10.0]))
    run = gm.simulate(
        model.system, model.q0, model.v0, method=gm.Composition(gm.Verlet(), order=4), dt=0.02, t_end=10.0
    )
    assert float(run.q[-1, 0]) == pytest.approx(float(exact.q[0, 0]), abs=1e-6)
    fast = gm.models.relativistic_oscillator()
    exact = independent_reference(fast.system, Point(fast.q0, 0.9 / np.sqrt(1 - 0.81) * np.ones(1)), np.array([10.0]))
    ends = [
        float(gm.simulate(fast.system, fast.q0, fast.v0, method=gm.Variational(), dt=dt, t_end=10.0).q[-1, 0])
        for dt in (0.05, 0.025)
    ]
    errors = np.abs(np.array(ends) - exact.q[0, 0])
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.1)
