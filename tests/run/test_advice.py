"""Advice in messages is tried: what a message tells the user to do works, and what it says of the mistake is true."""

from __future__ import annotations

import re

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines.grid import grid

circle = gm.System(lambda q: jnp.sum(q[:, 1]), constraint=gm.Distances([(None, 0)], 1.0))
hanging = {"dt": 0.01, "t_end": 1.0, "save_every": 100, "engine": "xla"}


def message(call, error=gm.InputError):
    with pytest.raises(error) as raised:
        call()
    return str(raised.value)


def run(**stated):
    return gm.simulate(gm.System(**stated), [1.0, 0.5], method=gm.Verlet(), dt=0.1, t_end=0.2, engine="xla")


# --- signatures -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (
            {"potential": lambda: 0.0},
            r"potential is called with \(q\), and by name with \(t\); its signature is \(\): write a function of \(q\)",
        ),
        (
            {"potential": lambda q, k, m: 0.0},
            r"its signature is \(q, k, m\): k and m are none of these\. Write a function of the arguments listed",
        ),
        (
            {"potential": lambda q, k: 0.0},
            r"signature is \(q, k\): k is none of these, and the system has no params\. Leave it out, or give params",
        ),
        (
            {"potential": lambda q, a, b: 0.0, "params": 1.0},
            r"with \(q\), and by name with \(t, params\).*signature is \(q, a, b\): a and b are none of these",
        ),
        ({"potential": lambda *, q: 0.0}, r"signature is \(\*, q\): write a function of \(q\)"),
        (
            {"watch": {"x": lambda q, p, s: q}},
            r"watch\['x'\] is called with \(q\), and by name with \(p, v, t\); its signature is \(q, p, s\): s is none",
        ),
        (
            {"potential": lambda q: jnp.sum(q**2), "overrides": {"gradient": lambda: 0}},
            r"overrides\['gradient'\] is called with \(q\)",
        ),
        ({"force": lambda q, w: q}, r"force is called with \(q\), and by name with \(v, t\).*w is none of these"),
        ({"force": lambda v, t: -v}, r"its argument v would receive q, which comes first; write q there"),
        ({"watch": {"x": lambda p: p}}, r"watch\['x'\] is called with \(q\).*its argument p would receive q"),
        (
            {"potential": lambda q: jnp.sum(q**2), "overrides": {"gradient": lambda q, t: 2 * q}},
            r"overrides\['gradient'\] has the argument t, but no function of the system .* has it",
        ),
        (
            {"potential": lambda q, t: (1 + t) * jnp.sum(q**2), "overrides": {"gradient": lambda q: 2 * q}},
            r"overrides\['gradient'\] differs from the automatic derivative at q0 and t = 0\.731",
        ),
        ({"potential": lambda q: jnp.sum(q[5:9] * jnp.ones(3))}, r"potential raised TypeError for q of shape \(2,\)"),
        ({"potential": lambda q: {}["k"]}, r"potential raised KeyError for q of shape \(2,\): 'k'"),
        (
            {"potential": lambda q: None},
            r"potential\(q\) must return one number, but it returns None; is a `return` missing",
        ),
        ({"potential": lambda q: "V"}, r"potential\(q\) must return real numbers, but it returns str"),
    ],
)
def test_what_is_wrong_with_a_function(stated, words):
    assert re.search(words, message(lambda: run(**stated))), message(lambda: run(**stated))


def test_forces_and_lagrangians_of_a_wrong_signature():
    go = lambda **stated: gm.simulate(
        gm.LagrangianSystem(**stated), [0.3], method=gm.Variational(), dt=0.1, t_end=0.2, engine="xla"
    )
    kinetic = lambda q, v: jnp.sum(v**2)
    assert r"lagrangian is called with (q, v), and by name with (t); its signature is (q): write" in message(
        lambda: go(lagrangian=lambda q: 0.0)
    )
    assert "its argument t would receive v" in message(lambda: go(lagrangian=lambda q, t: 0.0))
    with pytest.raises(TypeError, match="has no argument 'damping'"):
        gm.LagrangianSystem(kinetic, damping=0.3)
    assert r"force is called with (q), and by name with (v, t); its signature is (q, w): w is none" in message(
        lambda: go(lagrangian=kinetic, force=lambda q, w: -w)
    )
    assert "must return an array of the shape of q, (1,), not (2,)" in message(
        lambda: go(lagrangian=kinetic, force=lambda q, v, t: jnp.zeros(2))
    )


# --- constrained Lagrangians ----------------------------------------------------------------------------------------
def test_a_constrained_lagrangian_is_refused_by_methods_that_do_not_take_it():
    lagrangian = lambda q, v: 0.5 * jnp.sum(v**2) - jnp.sum(q[:, 1])
    held = gm.LagrangianSystem(lagrangian, constraint=lambda q: jnp.sum(q**2, axis=1) - 1)
    start = np.array([[np.sin(1.0), -np.cos(1.0)]])
    for method in (gm.Rattle(), gm.Verlet(), gm.Composition(gm.Rattle())):
        assert "for a gm.LagrangianSystem use Variational" in message(
            lambda m=method: gm.simulate(held, start, method=m, **hanging)
        )
    told = message(lambda: gm.simulate(held, start, method=gm.Variational("galerkin", 2), **hanging))
    assert "does not integrate constrained systems" in told
    assert told.endswith("; use Variational().")
    angle = gm.simulate(
        gm.LagrangianSystem(lambda q, v: 0.5 * jnp.sum(v**2) + jnp.sum(jnp.cos(q))),
        [1.0],
        method=gm.Variational(),
        **hanging,
    )
    run = gm.simulate(held, start, method=gm.Variational(), **hanging)
    assert float(np.arctan2(run.q[-1, 0, 0], -run.q[-1, 0, 1])) == pytest.approx(float(angle.q[-1, 0]), abs=1e-4)


# --- constraints ----------------------------------------------------------------------------------------------------
def test_the_methods_named_for_constrained_systems_move_them():
    told = message(lambda: gm.simulate(circle, [[0.6, -0.8]], method=gm.Composition(gm.Verlet()), **hanging))
    listed = re.search(r"use (.+), or turn", told)[1]
    names = re.findall(r"\w+\((?:[^()]|\([^()]*\))*\)", listed)
    assert {"Rattle()", "Shake()"} <= set(names)
    assert any(name.startswith("Composition(base=Rattle()") for name in names)
    for name in names:
        method = gm.methods.named(name)
        method.check(circle)
        if isinstance(
            method, (gm.Rattle, gm.Shake)
        ):  # the others take long to compile, and are run in test_constrained
            moved = gm.simulate(circle, [[0.6, -0.8]], method=method, dt=0.01, t_end=0.1, save_every=10, engine="xla")
            assert np.max(np.abs(moved.constraint_residual)) < 1e-10
    gm.Verlet().check(gm.penalize(circle, 100.0))


def test_a_start_off_the_constraint_is_projected_as_told():
    start = [[0.7, -0.8]]
    assert "gm.project(system, q0, v0)" in message(
        lambda: gm.simulate(circle, start, method=gm.Rattle(), dt=0.01, t_end=0.1, engine="xla")
    )
    gm.simulate(circle, *gm.project(circle, start), method=gm.Rattle(), dt=0.01, t_end=0.1, save_every=10, engine="xla")


def test_penalize_and_project_say_which_part_is_missing():
    free, held = gm.System(), gm.LagrangianSystem(lambda q, v: jnp.sum(v**2), constraint=lambda q: q)
    for call in (lambda s: gm.penalize(s, 1.0), lambda s: gm.project(s, [1.0])):
        assert "the system has no constraint" in message(lambda c=call: c(free))
        assert "system must be a gm.System, not LagrangianSystem" in message(lambda c=call: c(held))


def test_a_large_free_system_is_not_sent_to_a_method_for_constrained_ones():
    large = gm.System(lambda q: jnp.sum(q**4))
    told = message(lambda: gm.simulate(large, np.ones(400), method=gm.LobattoIIIAB(3), dt=0.1, t_end=0.1, engine="xla"))
    gm.methods.named(re.search(r"use (Composition\(.*\)), which", told)[1]).check(large)


# --- times ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dt", "t_end", "t0"),
    [
        (0.3, 1.0, 0.0),
        (0.07, 1.0, 0.27),
        (1e-3, 1e9 + 0.0015, 1e9),
        (1 / 3, 7.1, 0.0),
        (1e-9, 3.14159e-7, 0.0),
        (2.0, 1.0, 0.0),
        (123.456, 1e6, -5.0),
    ],
)
def test_times_that_are_told_to_fit_do(dt, t_end, t0):
    told = message(lambda: grid(dt, t_end, t0))
    ends, steps = (
        re.search(r"t_end = (\S+) or (\S+); or dt = (\S+) or (\S+)\.$", told).groups()[:2],
        re.search(r"or dt = (\S+) or (\S+)\.$", told).groups(),
    )
    for end in ends:
        grid(dt, float(end), t0)
    for step in steps:
        grid(float(step), t_end, t0)


@pytest.mark.parametrize(
    ("steps", "every"), [(10, 3), (1000, 999), (10, 100), (2**31 - 1, 2**20), (997, 2), (10**15, 10**9 + 7)]
)
def test_saves_that_are_told_to_fit_do(steps, every):
    told = message(lambda: grid(1.0, float(steps), 0.0, every))
    divisors, ends = re.search(r"Nearest that do: (.+); or t_end = (.+)\.$", told).groups()
    for divisor in divisors.split(" or "):
        grid(1.0, float(steps), 0.0, int(divisor))
    for end in ends.split(" or "):
        assert float(end) > 0
        grid(1.0, float(end), 0.0, every)


# --- others ---------------------------------------------------------------------------------------------------------
def test_a_splitting_for_the_step_told():
    stiff = gm.System(lambda q: 50 * jnp.sum(q**2))
    most = float(re.search(r"Take dt < (\S+)\.$", message(lambda: gm.adaptive_splitting(stiff, [1.0], dt=1.0)))[1])
    assert most == pytest.approx(0.4, rel=1e-3)  # hω < 4 for ω = 10
    gm.adaptive_splitting(stiff, [1.0], dt=0.99 * most)


def test_an_energy_that_is_not_finite_names_its_part():
    assert "fast(q0) is not finite" in message(lambda: run(fast=lambda q: jnp.sum(q) * jnp.nan))
    assert "potential(q0) is not finite" in message(lambda: run(potential=lambda q: jnp.log(-jnp.sum(q**2))))
    fly = lambda: gm.simulate(gm.System(), [1.0], [1e200], method=gm.Verlet(), dt=0.1, t_end=0.1, engine="xla")
    assert "v0 (or p0) or mass is too large" in message(fly)


def test_a_force_or_field_that_is_not_finite_is_named():
    """At the time of the failing step, not at t = 0; a longer or shorter step would change nothing."""
    late = lambda q, t: jnp.where(t > 0.15, jnp.nan, 0.0) + 0 * q
    force = message(lambda: run(force=late), gm.RunStopped)
    assert "step 2" in force
    assert "force is not finite at the last good state" in force
    field = gm.System(magnetic_field=lambda q: jnp.nan * q)
    grid = {"method": gm.Boris(), "dt": 0.1, "t_end": 0.1, "engine": "xla"}
    found = message(lambda: gm.simulate(field, np.ones(3), np.ones(3), **grid), gm.RunStopped)
    assert "magnetic_field is not finite at the last good state" in found


def test_a_billion_saves_are_refused_before_they_are_allocated():
    told = message(lambda: gm.simulate(gm.System(), np.ones(1000), method=gm.Verlet(), dt=1.0, t_end=1e9, engine="xla"))
    assert re.search(r"1000000001 saved points need 1\.49e\+04 GiB.*save_every.*output=", told)
