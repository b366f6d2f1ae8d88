"""Each example gives a number that theory or an independent computation knows."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import ellipk

import geomint as gm

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    """The module of an example by its name."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def test_every_example_is_tested():
    text = Path(__file__).read_text()
    assert all(f'example("{path.stem}")' in text for path in EXAMPLES.glob("*.py"))


def test_demo(example, tmp_path, capsys):
    """At equal cost Runge–Kutta loses the energy and Verlet does not; the error of a symmetric method of order 2 is
    bounded."""
    kepler, solar = example("demo").main(tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 20_000
    printed = capsys.readouterr().out
    assert "symplecticity" in printed
    assert "NOT AS CLAIMED" not in printed
    for runs in (kepler, solar):
        errors = [np.abs(run.energy_error / run.energy[0]) for _, run, _ in runs]
        half = [len(e) // 2 for e in errors]
        verlet, kutta, fourth = errors
        assert verlet[half[0] :].max() < 1.1 * verlet[: half[0]].max()
        assert fourth[half[2] :].max() < 1.5 * fourth[: half[2]].max()
        assert kutta[-1] > 100 * verlet.max()


def test_kepler_precession(example):
    measured, exact = example("kepler_precession").main()
    assert exact == pytest.approx(2 * np.pi / np.sqrt(1 - 0.04 / 0.84), rel=1e-14)  # L² = 1 − e²
    assert measured == pytest.approx(exact, abs=1e-7)


def test_outer_solar_system(example):
    """Pluto's resonant argument swings about 180° and never turns round, and the distance to Neptune is never much less
    than that of Pluto's aphelion from Neptune's orbit, 49.3 − 30.1 au: Libration of Pluto–Neptune, Science 145 (1964)
    1302."""
    low, high, apart, energy = example("outer_solar_system").main()
    assert (low + high) / 2 == pytest.approx(180, abs=6)
    assert 60 < low < high < 300
    assert 17 < apart < 19.2
    assert energy < 1e-8


def test_fpu_energy_exchange(example):
    """Against an adaptive Runge–Kutta method, with forces written out by hand."""
    overtakes, low, high = example("fpu_energy_exchange").main()
    model, omega = gm.models.fpu(), 50.0

    def right(_, y):
        x, e, vx, ve = y.reshape(4, 3)
        cubed = np.diff(np.concatenate([[0.0], np.stack([x - e, x + e], axis=1).ravel(), [0.0]]))[::2] ** 3
        return np.concatenate([vx, ve, cubed[1:] - cubed[:-1], cubed[:-1] + cubed[1:] - omega**2 * e])

    times = np.linspace(0, 200, 4001)
    y = solve_ivp(
        right,
        (0, 200),
        np.concatenate([model.q0.ravel(), model.v0.ravel()]),
        method="DOP853",
        rtol=1e-7,
        atol=1e-9,
        t_eval=times,
    ).y
    energies = 0.5 * (y[9:] ** 2 + omega**2 * y[3:6] ** 2)
    total = energies.sum(axis=0)
    assert overtakes == pytest.approx(times[np.argmax(energies[2] > energies[0])], abs=0.5)
    assert (low, high) == pytest.approx((total.min(), total.max()), abs=1e-3)
    assert low > 0.9
    assert high < 1.1


def test_henon_heiles_section(example):
    """The first crossings agree with an adaptive Runge–Kutta method that finds them as events."""
    module = example("henon_heiles_section")
    points = module.main(members=3, crossings=8)[1]
    q0s, v0s = module.starts(0.12, 3)
    upwards = lambda t, s: s[0]
    upwards.direction = 1
    right = lambda t, s: [s[2], s[3], -s[0] - 2 * s[0] * s[1], -s[1] - s[0] ** 2 + s[1] ** 2]
    exact = solve_ivp(right, (0, 60), [*q0s[1], *v0s[1]], method="DOP853", rtol=1e-12, atol=1e-12, events=upwards)
    states = exact.y_events[0][exact.t_events[0] > 0.1]
    assert np.all(points[:, 0] > 1.0)  # the start is no crossing
    np.testing.assert_allclose(points[:, 1:], states[:8, [1, 3]], atol=1e-8)


def test_long_run_resume(example):
    rows, same = example("long_run_resume").main()
    assert rows > 50
    assert same


def test_ensemble_pendulum(example):
    amplitudes, measured = example("ensemble_pendulum").main()
    np.testing.assert_allclose(measured, 4 * ellipk(np.sin(amplitudes / 2) ** 2), rtol=2e-5)


def test_gradient_shooting(example):
    """The target lies on the exact ellipse of eccentricity .6, whose velocity at the perihelion is √(1.6/.4) = 2."""
    np.testing.assert_allclose(example("gradient_shooting").main(), [0.0, 2.0], atol=1e-7)


def test_custom_symmetry(example):
    """Noether: the stated combination is kept to rounding by a symplectic splitting, its parts are not; Runge–Kutta
    keeps neither."""
    main = example("custom_symmetry").main
    both, first = main(gm.Verlet())
    assert both < 1e-12
    assert first > 0.1
    assert main(gm.RungeKutta4())[0] > 1e-6
