"""simulate(until=): the run ends where the sign changes, as exactly as the method moves."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ellipk

import geomint as gm

ACCURATE = gm.Composition(gm.Verlet(form="drift"), order=8)


def test_a_quarter_of_the_period_of_a_pendulum(tmp_path):
    model = gm.models.pendulum()
    settings = {"method": ACCURATE, "dt": 0.05, "t_end": 50.0, "save_every": 8}
    run = gm.simulate(model.system, [1.0], [0.0], until=lambda q: q[0], **settings)
    assert run.stopped_at == pytest.approx(ellipk(np.sin(0.5) ** 2), abs=1e-14)  # T/4 = K(sin ½)
    assert run.t[-1] == run.stopped_at
    assert abs(run.q[-1, 0]) < 1e-16
    assert run.method.name == ACCURATE.name
    whole = gm.simulate(model.system, [1.0], [0.0], **settings)
    np.testing.assert_array_equal(run.q[:-1], whole.q[: len(run) - 1])  # the same steps before
    assert set(run.columns) == set(whole.columns)
    assert whole.stopped_at is None
    with pytest.warns(UserWarning, match="between two steps"):
        run.save(tmp_path / "run.h5")
    back = gm.load(tmp_path / "run.h5", system=model.system)
    np.testing.assert_array_equal(back.q, run.q[:-1])
    more = gm.resume(tmp_path / "run.h5", system=model.system)
    np.testing.assert_array_equal(more.q, whole.q)
    # A condition that never comes, by the same program.
    again = gm.simulate(model.system, [1.0], [0.0], **{**settings, "t_end": 1.2}, until=lambda q: q[0])
    assert again.stopped_at is None
    assert again.t[-1] == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("method", "error", "engine"),
    [(gm.Verlet(), 5e-4, "xla"), (gm.Verlet(), 5e-4, "native"), (gm.SymmetricMultistep(8), 1e-11, "native")],
)
def test_half_a_period_by_time_and_momentum(method, error, engine):
    oscillator = gm.models.harmonic_oscillator()
    settings = {"method": method, "dt": 0.05, "t_end": 10.0, "save_every": 20, "engine": engine}
    run = gm.simulate(oscillator.system, [1.0], [0.0], until=lambda q, p, t: p[0] * (t > 1), **settings)
    assert run.stopped_at == pytest.approx(np.pi, abs=error)
    assert abs(run.p[-1, 0]) < 1e-14
    assert run.engine == engine


def test_on_a_manifold_and_with_a_time_dependent_energy():
    model = gm.models.double_pendulum()
    run = gm.simulate(model, until=lambda q: q[0, 0] - 0.1, save_every=50)
    assert abs(run.q[-1, 0, 0] - 0.1) < 1e-15
    assert np.max(np.abs(run.constraint_residual[-1])) < 1e-14
    assert np.max(np.abs(run.velocity_residual[-1])) < 1e-13
    assert np.all(run.status == 0)
    # q̈ = 12 t² from rest: q = t⁴ reaches 2 at 2^¼; the order-8 method is exact for it
    system = gm.System(lambda q, t: -12 * t**2 * q[0], mass=1.0)
    timed = gm.simulate(system, [0.0], [0.0], method=ACCURATE, dt=0.1, t_end=3.0, until=lambda q: q[0] - 2)
    assert timed.stopped_at == pytest.approx(2**0.25, abs=1e-11)


def test_what_it_refuses(tmp_path):
    model = gm.models.harmonic_oscillator()
    with pytest.raises(gm.InputError, match="whole steps only"):
        gm.simulate(model, until=lambda q: q[0], output=tmp_path / "x.h5")
    with pytest.raises(gm.InputError, match="chooses its own times"):
        gm.simulate(model, method=gm.EnergyStepping(0.1), until=lambda q: q[0])
    with pytest.raises(gm.InputError, match="must return one number"):
        gm.simulate(model, until=lambda q: jnp.stack([q[0], q[0]]))
    with pytest.raises(gm.InputError, match="not True or False"):  # would stop where the sign falls to 0
        gm.simulate(model, until=lambda q: q[0] > 0.2)
    with pytest.raises(gm.InputError, match=r"until\(q, p\) is nan at the start"):
        gm.simulate(model, until=lambda q: jnp.log(q[0] - 5))
    with pytest.raises(gm.InputError, match="until uses index 7"):
        gm.simulate(model, until=lambda q: q[7])
    with pytest.raises(gm.InputError, match="until"):
        gm.simulate(model, until=lambda q, speed, height: q[0])
