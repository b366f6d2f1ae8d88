"""A run whose energy error exceeds the scale of its energy says so, once, with a step that works; no other run does."""

from __future__ import annotations

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.methods import Method, Traits

KEPLER = gm.models.kepler()
PAIR = gm.System(lambda q, offset: offset + 0.5 * jnp.sum(jnp.array([1.0, 400.0]) * q**2), params=0.0)  # ω = 1 and 20
Q = np.array([1.0, 0.1])  # at rest, with the energy ½ + 2 = 2.5, all of which is released


def told(make):
    """The warnings of a run, and the run."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = make()
    return [str(w.message) for w in caught if w.category.__name__ == "InstabilityWarning"], run


def advised(message: str) -> float:
    return float(re.search(r"dt = (\S+) keeps the energy", message).group(1))


def pair(dt: float, offset: float = 0.0, saves: int = 60, save_every: int = 2, **more):
    settings = {"method": gm.Verlet(), "dt": dt, "t_end": saves * save_every * dt, "save_every": save_every, **more}
    return gm.simulate(PAIR.with_params(offset), Q, **settings)


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_an_unstable_step_is_told_with_one_that_works(offset):
    messages, run = told(lambda: pair(2.05 / 20, offset))
    assert len(messages) == 1
    # The energy of the motion is 2.5, whatever constant the potential has.
    index = int(np.argmax(np.abs(run.energy - run.energy[0]) > 2.5))
    assert index > 1
    assert f"at step {2 * index}, t = {run.t[index]:g}," in messages[0]
    scale = float(re.search(r"scale of the energy, (\S+):", messages[0]).group(1))
    assert scale == pytest.approx(2.5, rel=0.05)
    step = advised(messages[0])
    assert step < 2 / 20
    again, better = told(lambda: pair(step, offset))
    assert not again
    assert np.max(np.abs(better.energy_error)) < 2.5


def test_a_step_below_the_limit_is_not():
    """hω = 1.9: stable, with an energy error of (hω)²/4 = .9 of the energy of the fast oscillator."""
    messages, run = told(lambda: pair(1.9 / 20))
    assert not messages
    assert np.max(np.abs(run.energy_error)) == pytest.approx(0.9025 * 2, rel=0.01)
    assert f"energy error {np.max(np.abs(run.energy_error)):.2g}>" in repr(run)


def test_kepler_with_a_step_of_five():
    go = lambda dt: gm.simulate(KEPLER.system, KEPLER.q0, KEPLER.v0, method=gm.Verlet(), dt=dt, t_end=500.0)
    messages, run = told(lambda: go(5.0))
    assert np.max(np.abs(run.energy_error)) > 100  # the energy is −½
    assert len(messages) == 1
    assert "at step 1, t = 5," in messages[0]
    again, better = told(lambda: go(advised(messages[0])))
    assert not again
    assert np.max(np.abs(better.energy_error)) < 2  # the kinetic energy at the perihelion


def test_members_are_counted():
    v0s = np.stack([KEPLER.v0, 0.2 * KEPLER.v0, KEPLER.v0, 0.3 * KEPLER.v0])  # two of them fall almost into the centre
    settings = {"method": gm.Verlet(), "dt": 0.1, "t_end": 20.0}
    go = lambda **more: gm.ensemble(KEPLER.system, np.stack([KEPLER.q0] * 4), v0s, **settings, **more)
    for more in ({}, {"reduce": {"energy": gm.Mean("energy")}}):
        messages, _ = told(lambda more=more: go(**more))
        assert len(messages) == 1
        assert "of 2 of 4 members, first of member 1," in messages[0]
        again, run = told(
            lambda message=messages[0]: gm.simulate(
                KEPLER.system, KEPLER.q0, v0s[1], **{**settings, "dt": advised(message)}
            )
        )
        assert not again
        assert np.max(np.abs(run.energy_error)) < 25  # the kinetic energy at the perihelion is 24


def test_on_disk_and_resumed(tmp_path):
    path = tmp_path / "run.h5"
    messages, run = told(lambda: pair(2.002 / 20, saves=2, output=path))
    assert not messages
    assert np.max(np.abs(run.energy_error)) < 2.5
    messages, run = told(lambda: gm.resume(path, system=PAIR.with_params(0.0), t_end=120 * 2.002 / 20))
    assert len(messages) == 1
    index = int(np.argmax(np.abs(run.energy - run.energy[0]) > 2.5))
    assert f"at step {2 * index}, " in messages[0]
    assert f"energy error {np.max(np.abs(run.energy_error)):.2g}, on disk" in repr(run)


def test_a_sound_run_is_not_read_again(monkeypatch):
    from geomint.run.energy_scale import SavedPoints

    read = []
    whole = SavedPoints.column
    monkeypatch.setattr(SavedPoints, "column", lambda *a: read.append(np.size(whole(*a))) or whole(*a))
    messages, run = told(lambda: pair(0.1 / 20, saves=2000, save_every=1))
    assert not messages
    assert sum(read) < 60
    assert run.q.size == 4002


def test_rounding_at_rest_is_no_instability():
    """At an equilibrium where large terms cancel: the energy is rounding, and so is its error."""
    system = gm.System(lambda q: 1e8 * jnp.sum(q**2 - 2 * q / 3 + 1 / 9))
    messages, run = told(lambda: gm.simulate(system, np.full(3, 1 / 3), method=gm.Verlet(), dt=1e-5, t_end=0.01))
    assert np.max(np.abs(run.energy_error)) < 1e-6
    assert not messages


class Noisy(Method):
    """Symplectic Euler with random kicks, which feed energy."""

    @property
    def traits(self):
        return Traits(1, symplectic=False, symmetric=False, reversible=False, energy=None, momentum_maps=None)

    def init(self, mech, state, dt):
        return state.q, state.p, state.key, jnp.zeros((), jnp.uint32)

    def step(self, mech, carry, dt):
        q, p, key, n = carry
        noise = jax.random.normal(jax.random.fold_in(jax.random.wrap_key_data(key), n), q.shape)
        p = p + dt * mech.force(q) + jnp.sqrt(dt) * noise
        return q + dt * p, p, key, n + 1


def test_random_kicks_are_no_instability():
    go = lambda: gm.simulate(gm.models.pendulum().system, [0.1], method=Noisy(), dt=0.05, t_end=20.0, engine="xla")
    messages, run = told(go)
    assert not messages
    assert np.max(run.energy_error) > 100 * (1 - np.cos(0.1))  # what the start could release


@pytest.mark.slow
def test_forces_are_judged_by_energy_less_work():
    damped = gm.LagrangianSystem(lambda q, v: jnp.sum(v**2) / 2 - jnp.sum(q**2) / 2, force=lambda q, v, t: -0.3 * v)
    go = lambda dt: gm.simulate(damped, [1.0], [0.0], method=gm.Variational("trapezoid"), dt=dt, t_end=60 * dt)
    messages, run = told(lambda: go(0.5))
    assert not messages
    assert run.energy[-1] < 1e-3 * run.energy[0]  # all energy is gone, into work
    assert "error of energy − work" in repr(run)
    messages, _ = told(lambda: go(2.5))
    assert len(messages) == 1
    assert not told(lambda: go(advised(messages[0])))[0]
