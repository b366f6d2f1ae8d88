"""Averages with errors, the distribution of the kinetic temperature, and the drift of the energy, against what is known
exactly."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm


def autoregressive(a, shape, seed=0):
    """x_{n+1} = a x_n + ξ, stationary, with variance 1/(1 − a²): ρ(k) = a^k, so that τ = ½ (1 + a)/(1 − a)."""
    from scipy.signal import lfilter  # here, so that only the process that runs this file imports it

    noise = np.random.default_rng(seed).normal(size=shape)
    noise[..., 0] /= np.sqrt(1 - a**2)
    return lfilter([1.0], [1.0, -a], noise, axis=-1)


@pytest.mark.parametrize("a", [0.0, 0.6, 0.95])
def test_autocorrelation_time_of_a_known_process(a):
    """The estimate has the standard deviation τ √(2(2W + 1)/n), W = 5τ (Madras and Sokal), and e^{−5} is cut off."""
    tau, n = 0.5 * (1 + a) / (1 - a), 400_000
    found = gm.autocorrelation_time(autoregressive(a, n))
    assert abs(found - tau) < tau * (4 * np.sqrt(2 * (10 * tau + 1) / n) + 0.01)
    members = gm.autocorrelation_time(autoregressive(a, (40, n // 40)))
    assert abs(members - tau) < tau * (4 * np.sqrt(2 * (10 * tau + 1) / n) + 0.03)


def test_errors_are_those_of_repeated_runs():
    """The standard deviation of 1000 means beside the errors that are claimed for each; without τ they would be three
    times too small."""
    x = 3.0 + autoregressive(0.8, (1000, 2000), seed=4)
    claimed = [gm.average(series) for series in x]
    spread = np.std([c.mean for c in claimed])
    assert abs(np.mean([c.error for c in claimed]) / spread - 1) < 0.1
    pulls = np.array([(c.mean - 3.0) / c.error for c in claimed])
    assert abs(np.mean(np.abs(pulls) < 1) - 0.683) < 0.05
    assert all(c.reliable for c in claimed)
    together = gm.average(x)
    assert abs(together.mean - 3.0) < 4 * together.error
    assert abs(together.error / (spread / np.sqrt(1000)) - 1) < 0.15
    assert not gm.average(x[0, :30]).reliable
    assert "too short" in repr(gm.average(x[0, :30]))


def test_series_without_correlation_or_noise():
    constant = gm.average(np.ones(10))
    assert (constant.mean, constant.error, constant.tau) == (1.0, 0.0, 0.5)
    alternating = gm.average(np.tile([1.0, -1.0], 500))
    assert alternating.tau == 0.5  # never better than independent samples
    for bad in (1.0, [1.0], np.ones((2, 2, 2)), [np.nan, 1.0], "a"):
        with pytest.raises(gm.InputError, match="average"):
            gm.average(bad)


def test_degrees_of_freedom():
    triangles = gm.System(constraint=gm.Distances([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)]))
    q = np.random.default_rng(0).normal(size=(6, 3))
    assert gm.degrees_of_freedom(triangles, q) == 12
    assert gm.degrees_of_freedom(triangles, q, centre_of_mass=True) == 9
    assert gm.degrees_of_freedom(gm.System(), q, centre_of_mass=True) == 15
    # Four points of a rigid square in the plane have six distances, of which five are independent.
    square = gm.System(constraint=gm.Distances([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3)]))
    assert gm.degrees_of_freedom(square, np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])) == 3
    with pytest.raises(gm.InputError, match="no degree of freedom"):
        gm.degrees_of_freedom(gm.System(), [[1.0, 2.0]], centre_of_mass=True)


def test_kinetic_temperatures_against_chi_squared():
    """Gaussian momenta of three particles in the plane, without total momentum: f = 4, at T = 1.7. A wrong temperature
    and a wrong number of degrees of freedom are told apart."""
    random, members, T = np.random.default_rng(9), 2000, 1.7
    mass = np.array([1.0, 2.0, 3.0])[:, None]
    p = np.sqrt(T * mass) * random.normal(size=(members, 3, 2))
    p -= mass / mass.sum() * p.sum(axis=1, keepdims=True)
    system = gm.System(mass=mass)
    run = gm.ensemble(system, np.zeros_like(p), p0s=p, method=gm.Verlet(), dt=0.01, t_end=0.02, engine="xla")
    found = gm.temperature_distribution(run, T, centre_of_mass=True)
    assert found.degrees_of_freedom == 4
    assert abs(found.mean - T) < 4 * found.error
    assert (
        abs(found.error / (T * np.sqrt(0.5 / members)) - 1) < 0.1
    )  # the three saved points of a member are one sample
    assert abs(found.variance / found.expected_variance - 1) < 0.2
    assert found.expected_variance == 2 * T**2 / 4
    assert 0.01 < found.p_value <= 1
    assert gm.temperature_distribution(run, T).p_value < 1e-4
    assert gm.temperature_distribution(run, 1.15 * T, centre_of_mass=True).p_value < 1e-4
    assert gm.temperature_distribution(run, T, centre_of_mass=True, boltzmann=1.15).p_value < 1e-4
    fitted = gm.temperature_distribution(run)
    assert fitted.expected == fitted.mean
    assert np.isnan(fitted.p_value)
    edges = np.linspace(0, 30, 6001)
    assert abs(np.sum(found.density(edges)) * (edges[1] - edges[0]) - 1) < 1e-5
    with pytest.raises(gm.InputError, match="temperature"):
        gm.temperature_distribution(run, -1.0)


def test_energy_drift_of_runge_kutta():
    """An oscillator loses the factor |R(ih)|² = 1 − h⁶/72 + h⁸/576 of its energy in a step of RK4."""
    h, n = 0.2, 400
    system = gm.System(lambda q: 0.5 * jnp.sum(q**2))
    q0, v0 = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[0.0, 1.0], [0.5, 0.0]])
    run = gm.simulate(system, q0, v0, method=gm.RungeKutta4(), dt=h, t_end=n * h, engine="xla")
    found, energy = gm.energy_drift(run), run.energy[0]
    times = h * np.arange(n + 1)
    exact = np.polyfit(times, energy * (1 - h**6 / 72 + h**8 / 576) ** np.arange(n + 1), 1)[0]
    assert abs(found.slope / exact - 1) < 1e-6
    assert found.degrees_of_freedom == 4
    assert found.per_degree == found.slope / 4
    assert found.error < 1e-3 * abs(found.slope)
    still = gm.energy_drift(gm.simulate(system, q0, v0, method=gm.Verlet(), dt=h, t_end=500 * h))
    assert abs(still.slope) < 4 * still.error
    many = gm.ensemble(
        system, np.stack([q0, 2 * q0]), np.stack([v0, 2 * v0]), method=gm.RungeKutta4(), dt=h, t_end=n * h
    )
    both = gm.energy_drift(many)
    assert abs(both.slope / (2.5 * exact) - 1) < 1e-6
    assert abs(both.error / abs(1.5 * exact) - 1) < 1e-6
    assert both.per_degree_error == both.error / 4
    with pytest.raises(gm.InputError, match="at least 3 saved points"):
        gm.energy_drift(run[:2])
