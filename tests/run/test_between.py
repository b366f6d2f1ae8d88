"""run(t): the state between saved points, against runs that save every step and against the exact motion."""

import numpy as np
import pytest

import geomint as gm


def test_the_own_steps_of_the_method_and_its_order():
    bowl = gm.models.harmonic_oscillator()
    times = np.array([0.0, 0.05, 0.7, 1.0, 1.95, 2.0])
    for method, own in ((gm.Verlet(), 1e-14), (gm.EnergyStepping(0.05), 1e-14)):
        fine = gm.simulate(bowl.system, [1.0], [0.3], method=method, dt=0.05, t_end=2.0)
        run = gm.simulate(bowl.system, [1.0], [0.3], method=method, dt=0.05, t_end=2.0, save_every=20)
        there, which = run(times), np.round(times / 0.05).astype(int)
        np.testing.assert_allclose(there.q, fine.q[which], atol=own)
        np.testing.assert_allclose(there.p, fine.p[which], atol=own)
        np.testing.assert_allclose(there.energy, 0.5 * there.p[:, 0] ** 2 + 0.5 * there.q[:, 0] ** 2, atol=1e-15)
    errors = []
    t = np.linspace(0.013, 1.987, 17)
    for dt in (0.1, 0.05):
        run = gm.simulate(bowl.system, [1.0], [0.3], method=gm.Splitting("blanes-moan"), dt=dt, t_end=2.0)
        errors.append(np.max(np.abs(run(t).q[:, 0] - np.cos(t) - 0.3 * np.sin(t))))
    assert 3.7 < np.log2(errors[0] / errors[1]) < 4.3  # the order of the method
    assert errors[1] < 1e-8


def test_on_the_manifold_and_with_history():
    run = gm.simulate(gm.models.double_pendulum(), t_end=1.0, save_every=20)
    point = run(0.4321)
    assert abs(np.sum(point.q[0] ** 2) - 1) < 1e-14
    assert abs(point.energy - run.energy[0]) < 2 * np.max(np.abs(run.energy_error)) + 1e-14
    oscillator = gm.models.harmonic_oscillator()
    multistep = gm.SymmetricMultistep(8)
    far = gm.simulate(oscillator.system, [1.0], [0.0], method=multistep, dt=0.05, t_end=2.0, save_every=8)
    assert far(1.2345).q[0] == pytest.approx(np.cos(1.2345), abs=1e-11)


def test_what_it_refuses():
    oscillator = gm.models.harmonic_oscillator()
    run = gm.simulate(oscillator, t_end=1.0)
    with pytest.raises(gm.InputError, match="between 0 and 1"):
        run(1.5)
    many = gm.ensemble(oscillator.system, [[1.0], [2.0]], [[0.0], [0.0]], method=gm.Verlet(), dt=0.05, t_end=1.0)
    with pytest.raises(gm.InputError, match=r"run\[0\]\(t\)"):
        many(0.5)
    np.testing.assert_array_equal(many[1](0.5).q, many.q[1, 10])
