"""Fast parts that are quadratic near the start only, and members of an ensemble whose fast parts differ."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm


# --- quadratic near the start only ----------------------------------------------------------------------------------
def wall(q):
    """A stiff spring across, and along the way a soft spring that begins far away: at q₀ = 200."""
    return 50.0 * q[1] ** 2 + jnp.where(q[0] > 200.0, (q[0] - 200.0) ** 2, 0.0)


def test_a_fast_part_that_changes_on_the_way_stops_the_run():
    """The motion reaches the soft spring at t = 2; the exact flow of the quadratic part goes straight on from there."""
    system = gm.System(lambda q: 0.0 * jnp.sum(q), fast=wall)
    with pytest.raises(gm.RunStopped, match="quadratic near the start only.*use IMEX or RESPA") as stopped:
        gm.simulate(
            system, [0.0, 1.0], [100.0, 0.0], method=gm.Impulse(), dt=0.01, t_end=6.0, save_every=600
        )  # it is back before the save
    assert stopped.value.time == pytest.approx(2.0, abs=0.02)
    run = gm.simulate(system, [0.0, 1.0], [100.0, 0.0], method=gm.Impulse(), dt=0.01, t_end=1.9)  # and not before
    np.testing.assert_allclose(run.q, np.stack([100 * run.t, np.cos(10 * run.t)], axis=1), atol=1e-11)
    both = gm.ensemble(
        system,
        [[0.0, 1.0], [0.0, 1.0]],
        [[100.0, 0.0], [10.0, 0.0]],
        method=gm.Impulse(),
        dt=0.01,
        t_end=6.0,
        save_every=100,
    )
    assert both.failed_at.tolist() == [3, -1]


def test_imex_takes_its_general_form_then():
    """The discrete Legendre transforms of the midpoint rule hold where W is another quadratic function than at the
    start."""
    system, h = gm.System(lambda q: jnp.cos(q[0]), fast=wall), 0.05
    run = gm.simulate(system, [0.0, 1.0], [100.0, 0.0], method=gm.IMEX(), dt=h, t_end=4.0)
    assert not run.method.quadratic
    mech = gm.Mechanics(system, (2,))
    slow, fast = (
        jax.vmap(mech.slow_force)(jnp.asarray(run.q)),
        jax.vmap(mech.fast_gradient)(jnp.asarray(0.5 * (run.q[1:] + run.q[:-1]))),
    )
    moved = np.diff(run.q, axis=0) / h
    np.testing.assert_allclose(run.p[:-1], moved - 0.5 * h * slow[:-1] + 0.5 * h * fast, atol=1e-9)
    on_circle = gm.System(lambda q: q[0], fast=wall, constraint=lambda q: jnp.sum(q**2)[None] - 1)
    with pytest.raises(gm.InputError, match="polynomial of degree two"):
        gm.simulate(on_circle, [1.0, 0.0], method=gm.Rattle(gm.IMEX()), dt=0.1, t_end=1.0)


# --- ensembles ------------------------------------------------------------------------------------------------------
PAIRED = gm.System(
    lambda q, k: 0.25 * jnp.sum(q**4),
    fast=lambda q, k: 50.0 * jnp.sum(q**2) + k["pair"] * q[0] * q[1] + k["bend"] * jnp.sum(jnp.abs(q) ** 3),
    params={"pair": 0.0, "bend": 0.0},
)


STARTS = np.random.default_rng(0).normal(size=(20, 4))


def one_other(name, size, member=7):
    """Params of twenty members, all alike but for one that is not among the six looked at first."""
    odd = np.zeros(20)
    odd[member] = size
    return {"pair": np.zeros(20), "bend": np.zeros(20), name: odd}


@pytest.mark.parametrize(
    "method", [gm.Impulse(), pytest.param(gm.Composition(gm.Impulse()), marks=pytest.mark.slow)], ids=lambda m: m.name
)
def test_a_member_with_another_structure_is_moved_with_it(method):
    params = one_other("pair", 30.0)
    run = gm.ensemble(PAIRED, STARTS, params=params, method=method, dt=0.02, t_end=1.0, save_every=50)
    alone = gm.simulate(
        PAIRED.with_params({"pair": 30.0, "bend": 0.0}),
        STARTS[7],
        method=gm.Composition(gm.Verlet(), 6),
        dt=0.002,
        t_end=1.0,
        save_every=500,
    )
    np.testing.assert_allclose(run.q[7, -1], alone.q[-1], atol=0.02)
    assert np.max(np.abs(run.energy_error[7])) < 0.05


def test_a_member_with_another_structure_in_imex():
    system = gm.System(PAIRED.potential, fast=lambda q, k: 50.0 * jnp.sum(q**2) + k * q[0] * q[1], params=0.0)
    run = gm.ensemble(system, STARTS, params=one_other("pair", 30.0)["pair"], method=gm.IMEX(), dt=0.1, t_end=1.0)
    alone = gm.simulate(system.with_params(30.0), STARTS[7], method=gm.IMEX(solver="dense"), dt=0.1, t_end=1.0)
    assert run.method.quadratic
    assert "blocks" in run.solver
    np.testing.assert_allclose(run.q[7], alone.q, atol=1e-12)


def test_a_member_whose_fast_part_is_not_quadratic_is_refused():
    with pytest.raises(gm.InputError, match="not quadratic; use IMEX or RESPA.*member 7"):
        gm.ensemble(PAIRED, STARTS, params=one_other("bend", 5.0), method=gm.Impulse(), dt=0.02, t_end=1.0)


@pytest.mark.slow
def test_many_structures():
    """Each member couples another pair: the sample grows until it covers all of them, or nothing is assumed any
    more."""
    pairs = np.array([(i, j) for i in range(40) for j in range(i)])[::20]
    system = gm.System(
        lambda q, k: 0.25 * jnp.sum(q**4) + 5.0 * jnp.sum(q**2) + 3.0 * q[k[0]] * q[k[1]], params=pairs[0]
    )
    q = np.random.default_rng(1).normal(size=(len(pairs), 40))
    run = gm.ensemble(system, q, params=pairs, method=gm.ZhangSkeel(), dt=0.1, t_end=0.5)
    assert np.all(run.failed_at == -1)
    alone = gm.simulate(system.with_params(pairs[17]), q[17], method=gm.ZhangSkeel(solver="dense"), dt=0.1, t_end=0.5)
    np.testing.assert_allclose(run.q[17], alone.q, atol=1e-12)
