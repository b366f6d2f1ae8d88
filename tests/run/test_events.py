"""The loop runs methods that choose their own times; saving must not change the trajectory."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.methods import State, Traits
from geomint.methods.protocols import EventDriven
from geomint.run.events import Events


class Bouncing(EventDriven):
    """A ball over a floor, from bounce to bounce: exact flights, velocity reflected at q = 0. For this test only."""

    gravity: float = eqx.field(default=1.0)

    @property
    def traits(self):
        return Traits(99, True, True, True, "exact", None, event_driven=True)

    def init(self, mech, state, dt):
        return (state.q, state.p, state.t, state.q, state.p, state.t, 0)  # last event, the one before it, the number

    def step(self, mech, carry, dt):
        q, p, t, *_, count = carry
        flight = (p + jnp.sqrt(p**2 + 2 * self.gravity * q)) / self.gravity
        return (0 * q, -(p - self.gravity * flight), t + flight[0], q, p, t, count + 1)

    def time(self, carry):
        return carry[2]

    def between(self, mech, carry, t):
        *_, q, p, before, _ = carry
        s = t - before
        return State(q + p * s - 0.5 * self.gravity * s**2, p - self.gravity * s)

    def events(self, carry):
        return carry[-1]

    def event(self, carry):
        return jnp.array([carry[2], 0.0, 0.0])


class Undeclared(gm.Verlet):
    """Claims to choose its own times, but has no `time` that a loop could ask for."""

    @property
    def traits(self):
        return dataclasses.replace(super().traits, event_driven=True)


def fall(save_every, dt=0.25, t_end=60.0):
    system = gm.System(lambda q: jnp.sum(q))
    return gm.simulate(system, [1.0], [0.3], method=Bouncing(), dt=dt, t_end=t_end, save_every=save_every)


def test_events_between_looks():
    run = fall(1)
    assert run.energy_error == pytest.approx(0, abs=1e-12)
    assert (run.q >= -1e-12).all()
    velocity = np.sqrt(2 * 1.045)
    first = 0.3 + velocity
    exact = lambda t: velocity * ((t - first) % (2 * velocity)) - 0.5 * ((t - first) % (2 * velocity)) ** 2
    late = run.t > first
    np.testing.assert_allclose(run.q[late, 0], exact(run.t[late]), atol=1e-11)
    bounces = first + 2 * velocity * np.arange(len(run.events))
    np.testing.assert_allclose(run.events.times, bounces, atol=1e-11)
    assert bounces[-2] < 60.0 <= bounces[-1]


def test_saving_more_often_does_not_change_the_trajectory():
    assert np.array_equal(fall(1).q[::8], fall(8).q)
    assert np.array_equal(fall(1, dt=0.125).q[::2], fall(1).q)


def test_a_claim_without_the_functions_is_refused():
    with pytest.raises(gm.InputError, match="inherits from gm.methods.protocols.EventDriven; this one does only one"):
        gm.simulate(gm.System(jnp.sum), [1.0], method=Undeclared(), dt=0.25, t_end=1.0)


def test_events_of_an_ensemble_are_those_of_all_members():
    """Each member has its counts; their number is the sum."""
    events = Events(None, {"events": np.array([3, 4]), "up": np.array([2, 0]), "down": np.array([1, 4])})
    assert len(events) == 7
    assert repr(events) == "<7 events: 2 up, 5 down>"
    with pytest.raises(AttributeError, match="only counts its events"):
        _ = events.times
