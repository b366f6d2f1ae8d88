"""Tools for fast and slow parts: the fast part found, its energies watched, a splitting for its frequency."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.analysis.fast_slow import expected_energy_error

FPU = gm.models.fpu()
WHOLE = gm.System(lambda q: FPU.system.potential(q) + FPU.system.fast(q))


def test_the_stiff_springs_are_found():
    """At rest the soft springs of the chain are quartic: only the stiff ones have a frequency."""
    split = gm.split_quadratic(WHOLE, FPU.q0 * 0 + 1e-3)
    q = np.random.default_rng(0).normal(size=FPU.q0.shape)
    assert float(split.fast(q)) == pytest.approx(float(FPU.system.fast(q)), rel=1e-5)
    mech, whole = gm.Mechanics(split, q.shape), gm.Mechanics(WHOLE, q.shape)
    np.testing.assert_allclose(mech.force(jnp.asarray(q)), whole.force(jnp.asarray(q)), rtol=1e-12, atol=1e-9)


def test_oscillatory_energies_are_watched():
    system = gm.watch_oscillations(FPU.system, FPU.q0)
    run = gm.simulate(system, FPU.q0, FPU.v0, method=gm.IMEX(), dt=0.1, t_end=200.0)
    parts, total = run.watched["oscillatory energies"], run.watched["oscillatory energy"]
    by_hand = 0.5 * (run.p[:, 1] ** 2 + 50.0**2 * run.q[:, 1] ** 2)
    np.testing.assert_allclose(np.sort(parts, axis=1), np.sort(by_hand, axis=1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(total, by_hand.sum(axis=1), rtol=1e-12)
    assert total.min() > 0.9
    assert total.max() < 1.15


def test_watched_quantities_are_archived(tmp_path):
    system = gm.System(
        lambda q: jnp.sum(q**4), watch={"size": lambda q, p: jnp.sum(q**2), "virial": lambda q, p: q * p}
    )
    go = lambda t_end, **more: gm.simulate(system, [1.0, 2.0], method=gm.Verlet(), dt=0.1, t_end=t_end, **more)
    whole = go(2.0)
    np.testing.assert_allclose(whole.watched["virial"], whole.q * whole.p)
    go(1.0, output=tmp_path / "run.h5")
    resumed = gm.resume(tmp_path / "run.h5", system=system, t_end=2.0)
    assert np.array_equal(resumed.watched["size"], whole.watched["size"])
    assert set(gm.load(tmp_path / "run.h5").watched) == {"size", "virial"}
    with pytest.raises(gm.InputError, match="without '/'"):
        gm.System(watch={"a/b": lambda q, p: q})


def test_no_gap_is_an_error():
    with pytest.raises(gm.InputError, match="no gap"):
        gm.split_quadratic(gm.System(lambda q: 0.5 * jnp.sum(np.array([1.0, 2.0, 4.0]) * q**2)), np.ones(3))
    with pytest.raises(gm.InputError, match="quadratic fast part"):
        gm.watch_oscillations(WHOLE, FPU.q0)
    with pytest.raises(gm.InputError, match="nowhere positive"):
        gm.watch_oscillations(gm.System(lambda q: jnp.sum(q**4), fast=lambda q: q[0] - jnp.sum(q**2)), np.ones(2))
    with pytest.raises(gm.InputError, match="no minimum"):
        gm.split_quadratic(gm.System(lambda q: jnp.sum(q)), np.ones(2))


# --- adaptive splittings --------------------------------------------------------------------------------------------
OSCILLATOR = gm.System(lambda q: 0.5 * jnp.sum(q**2))


def test_expected_error_against_the_formula():
    """Blanes, Casas, Sanz-Serna 2014: ρ of the two-stage family in closed form."""
    b, h = 0.2, np.linspace(0.1, 2.0, 20)
    above = h**4 * (2 * b**2 * (0.5 - b) * h**2 + 4 * b**2 - 6 * b + 1) ** 2
    below = 8 * (2 - b * h**2) * (2 - (0.5 - b) * h**2) * (1 - b * (0.5 - b) * h**2)
    np.testing.assert_allclose(expected_energy_error(gm.MultiStage((b,)).stages, h), above / below, rtol=1e-10)


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("dt", [0.5, 1.5, 2.0])
def test_adaptive_splitting_is_the_best_of_its_family(stages, dt):
    method = gm.adaptive_splitting(OSCILLATOR, np.ones(2), dt, stages=stages)
    grid = np.linspace(dt / 400, dt, 400)
    found = expected_energy_error(method.stages, grid).max()
    names = (
        ["two-stage", "two-stage-minimum-error", "two-stage-linear"]
        if stages == 2
        else ["three-stage", "three-stage-minimum-error"]
    )
    assert all(found <= 1.001 * expected_energy_error(gm.Splitting(name).stages, grid).max() for name in names)
    assert found < expected_energy_error(gm.Verlet().stages, grid / stages).max()


def test_at_a_step_of_two_the_known_coefficient_comes_out():
    """b = .211781 is the coefficient for steps up to 2: Blanes, Casas, Sanz-Serna 2014."""
    assert gm.adaptive_splitting(OSCILLATOR, np.ones(2), 2.0).half[0] == pytest.approx(0.211781, abs=2e-6)


def test_bad_steps():
    with pytest.raises(gm.InputError, match="Take dt < 4"):
        gm.adaptive_splitting(OSCILLATOR, np.ones(2), 5.0)
    with pytest.raises(gm.InputError, match="stages must be 2 or 3"):
        gm.adaptive_splitting(OSCILLATOR, np.ones(2), 1.0, stages=4)
