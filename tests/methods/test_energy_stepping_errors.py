"""Energy-stepping used wrongly, or where it can't go on: errors and warnings that speak."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm


@pytest.mark.parametrize("bad", [0, -1.0, float("nan"), float("inf")])
def test_heights_and_reaches_that_are_none(bad):
    with pytest.raises(gm.InputError, match="height must be (positive|finite)"):
        gm.EnergyStepping(bad)
    with pytest.raises(gm.InputError, match="reach must be (positive|finite)"):
        gm.EnergyStepping(1.0, reach=bad)


@pytest.mark.parametrize("bad", ["3", None])
def test_heights_that_are_no_numbers(bad):
    with pytest.raises(gm.InputError, match="height"):
        gm.EnergyStepping(bad)


def test_systems_and_starts_that_do_not_fit():
    go = lambda system, q0, v0=None, **more: gm.simulate(
        system, q0, v0, method=gm.EnergyStepping(0.1, **more), dt=0.1, t_end=1.0
    )
    square, pendulum = gm.System(lambda q: 0.5 * jnp.sum(q**2)), gm.models.double_pendulum()
    with pytest.raises(gm.InputError, match="v0 = 0.*stays at rest"):
        go(square, [1.0])
    with pytest.raises(gm.InputError, match="does not integrate constrained systems"):
        go(pendulum.system, pendulum.q0, pendulum.v0)
    with pytest.raises(gm.InputError, match="gm.LagrangianSystem"):
        go(gm.LagrangianSystem(lagrangian=lambda q, v: 0.5 * jnp.sum(v**2 - q**2)), [1.0], [1.0])
    with pytest.raises(gm.InputError, match="function 0 is -1 at q0"):
        go(square, [-1.0], [1.0], inside=lambda q: q)
    with pytest.raises(gm.InputError, match="function 0 is -1e-09 at q0"):
        go(square, [-1e-9], [1.0], inside=lambda q: q)


def test_methods_without_events_say_so():
    with pytest.raises(gm.InputError, match="equal length"):
        gm.simulate(gm.System(), [1.0], method=gm.Verlet(), dt=0.1, t_end=1.0).events  # noqa: B018


@pytest.mark.parametrize(
    "potential",
    [lambda q: jnp.sum(jnp.where(q > 1, 10.0, 0.0) + 0.1 * q**2), lambda q: jnp.sum(jnp.sqrt(1 - q))],
    ids=["jump", "nan"],
)
def test_a_potential_that_is_not_smooth_stops_the_run_and_keeps_what_was(potential):
    with pytest.raises(gm.RunStopped, match="first exit.*not finite.*inside") as stopped:
        gm.simulate(gm.System(potential), [0.0], [1.5], method=gm.EnergyStepping(0.1), dt=0.01, t_end=5.0)
    run = stopped.value.run
    assert 0.5 < run.t[-1] < 0.75
    assert 0.85 < run.q[-1, 0] <= 1
    assert np.max(np.abs(run.energy_error)) < 1e-13
    assert (run.events.times <= run.t[-1]).all()


def test_trapped_motions_are_told():
    bowl = gm.models.harmonic_bowl(0.5)
    with pytest.warns(UserWarning, match=r"trapped 1 times, \d+ reflections.*height = 0.0275"):
        gm.simulate(bowl.system, bowl.q0, bowl.v0, method=gm.EnergyStepping(0.11, 0.0), dt=1.0, t_end=500.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gm.simulate(bowl.system, bowl.q0, bowl.v0, method=gm.EnergyStepping(0.11, 0.02), dt=1.0, t_end=5.0)
