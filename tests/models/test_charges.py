"""Charges in traps, in a mirror and in a tokamak: exact solutions, stability, adiabatic invariants, orbits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq
from scipy.special import mathieu_b

import geomint as gm


def test_penning_trap():
    """Against the sum of its three motions."""
    model = gm.models.penning_trap(frequency=1.0, field=5.0)
    grid = {"dt": 0.04, "t_end": 200.0, "save_every": 50}
    root = np.sqrt(5.0**2 - 2)
    fast, slow = 0.5 * (5 + root), 0.5 * (5 - root)  # ζ = x + iy: ζ̈ = ½ζ − 5iζ̇
    assert fast == pytest.approx(4.898, abs=5e-4)
    assert slow == pytest.approx(0.102, abs=5e-4)
    zeta, rate = complex(*model.q0[:2]), complex(*model.v0[:2])
    outer = (1j * rate - slow * zeta) / (fast - slow)
    for method, bound in ((gm.Composition(gm.MagneticSplitting(), order=8), 1e-10), (gm.Boris(), 1.0)):
        run = gm.simulate(model.system, model.q0, model.v0, method=method, **grid)
        exact = outer * np.exp(-1j * fast * run.t) + (zeta - outer) * np.exp(-1j * slow * run.t)
        assert np.max(np.abs(run.q[:, 0] + 1j * run.q[:, 1] - exact)) < bound
        assert np.max(np.abs(run.q[:, 2] - model.q0[2] * np.cos(run.t))) < min(bound, 1e-1)
        assert np.max(np.abs(run.energy_error)) < 2e-2
    with pytest.raises(gm.InputError, match=r"field must be larger than √2·frequency = 1.41421"):
        gm.models.penning_trap(field=1.0)


def test_paul_trap():
    """The trace of the motion over a period π by scipy; it is −2 where Mathieu's function b₁(q) is zero, q = 0.908."""

    def trace(rf, dc=0.0):
        system = gm.models.paul_trap(dc, rf).system
        starts = np.array([[1.0, 0, 0], [0, 0, 0]]), np.array([[0, 0, 0], [1.0, 0, 0]])
        method = gm.Composition(gm.Verlet(), order=6)
        ends = gm.ensemble(system, *starts, method=method, dt=np.pi / 100, t_end=np.pi, save_every=100)
        return ends.q[0, -1, 0] + ends.p[1, -1, 0]

    def right(t, y):
        return np.concatenate([y[2:], -(0.1 - 0.8 * np.cos(2 * t)) * y[:2]])

    solved = solve_ivp(right, (0, np.pi), [1.0, 0, 0, 1], method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    assert trace(0.4, dc=0.1) == pytest.approx(solved[0] + solved[3], abs=1e-9)
    edge = brentq(lambda q: mathieu_b(1, q), 0.5, 1.5)
    assert edge == pytest.approx(0.908, abs=1e-4)
    assert trace(edge) == pytest.approx(-2, abs=1e-9)
    model = gm.models.paul_trap()
    run = gm.simulate(model.system, model.q0, model.v0, method=gm.Verlet(), dt=model.dt, t_end=1000 * np.pi)
    assert np.max(np.abs(run.q)) < 3
    assert np.max(np.abs(run.energy_error - run.work)) < 5e-3


def test_magnetic_mirror():
    """The magnetic moment over 1e6 steps, 800 reflections; turning points and period by the adiabatic theory,
    ½ż² + μ(1 + c z²) = ½v²."""
    model = gm.models.magnetic_mirror()
    run = gm.simulate(model.system, model.q0, model.v0, method=gm.Boris(), dt=0.1, t_end=1e5, save_every=10)
    moment, z = run.watched["magnetic moment"], run.q[:, 2]
    start = 0.5 * (0.3 * np.sin(1.0)) ** 2
    assert moment[0] == pytest.approx(start, rel=1e-3)
    assert np.ptp(moment) < 1e-3 * start
    tenths = [part.mean() for part in np.array_split(moment, 10)]
    assert np.ptp(tenths) < 1e-5 * start  # no drift
    assert z.max() == pytest.approx(np.sqrt((1 / np.sin(1.0) ** 2 - 1) / 0.04), rel=1e-4)
    up = run.t[1:][(z[1:] > 0) & (z[:-1] <= 0)]
    assert np.diff(up).mean() == pytest.approx(2 * np.pi / np.sqrt(2 * start * 0.04), rel=1e-3)
    assert np.max(np.abs(run.energy_error)) < 1e-15


def _orbit(t_end, **settings):
    model = gm.models.tokamak(**settings)
    dt = model.dt
    return gm.simulate(model.system, model.q0, model.v0, method=gm.Boris(), dt=dt, t_end=t_end * dt, save_every=50)


def _check(run):
    """Energy to rounding; the toroidal momentum oscillates, and its mean over the gyrations stays."""
    momentum = run.watched["toroidal momentum"]
    assert np.max(np.abs(run.energy_error)) < 1e-15 * run.energy[0]
    assert np.max(np.abs(momentum / momentum[0] - 1)) < 4e-6
    halves = [half.mean() for half in np.array_split(momentum, 2)]
    assert abs(halves[1] / halves[0] - 1) < 5e-7
    return np.hypot(run.q[:, 0], run.q[:, 1]), run.q[:, 2]


def test_tokamak():
    """A banana orbit stays on the outside and turns back in the toroidal direction; with twice the parallel velocity
    the charge passes around the axis R = 1. Both are thinner than 0.1, as in the paper."""
    banana, passing = _orbit(400_000), _orbit(400_000, parallel=2 * 4.816e-4)
    (r, z), (r2, z2) = _check(banana), _check(passing)
    assert (r.min(), r.max(), z.max()) == pytest.approx((1.0074, 1.0853, 0.0728), abs=2e-3)
    assert (r2.min(), r2.max(), z2.max()) == pytest.approx((0.9298, 1.0544, 0.0614), abs=2e-3)
    turns = lambda run: np.unwrap(np.arctan2(run.q[:, 1], run.q[:, 0]))[:: len(run.t) // 40]
    assert len(set(np.sign(np.diff(turns(banana))))) == 2
    assert len(set(np.sign(np.diff(turns(passing))))) == 1
    z = np.convolve(z, np.ones(40) / 40, "same")  # without the gyration
    up = banana.t[1:][(z[1:] > 0) & (z[:-1] <= 0)]
    assert np.diff(up) == pytest.approx(37_300, rel=2e-3)


@pytest.mark.slow
def test_tokamak_for_long():
    """2e8 steps, 1700 times around the banana."""
    model = gm.models.tokamak()
    grid = {"dt": model.dt, "t_end": 2e8 * model.dt, "save_every": 10_000}
    run = gm.simulate(model.system, model.q0, model.v0, method=gm.Boris(), **grid)
    momentum = run.watched["toroidal momentum"]
    assert np.max(np.abs(run.energy_error)) < 1e-15 * run.energy[0]
    assert np.max(np.abs(momentum / momentum[0] - 1)) < 4e-6
    tenths = [part.mean() for part in np.array_split(momentum, 10)]
    assert np.ptp(tenths) < 1e-7 * momentum[0]
