"""What a Trajectory derives from its rows, against numbers known by hand."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines.grid import Grid
from geomint.run.trajectory import Checkpoint, Trajectory


def test_energy_errors_count_from_the_first_row():
    """Verlet on ½(p² + q²) keeps ½(p² + (1 − h²/4)q²) exactly, so H(t) − H(0) = h²(q² − q₀²)/8; members likewise."""
    h, system = 0.2, gm.System(lambda q: 0.5 * jnp.sum(q**2))
    run = gm.simulate(system, [1.0], [0.4], method=gm.Verlet(), dt=h, t_end=4.2)
    np.testing.assert_allclose(run.energy_error, h**2 * (run.q[:, 0] ** 2 - 1) / 8, rtol=0, atol=1e-15)
    assert np.max(np.abs(run.energy_error)) > 1e-3
    many = gm.ensemble(system, [[1.0], [3.0]], [[0.4], [0.1]], method=gm.Verlet(), dt=h, t_end=4.2)
    expected = h**2 * (many.q[..., 0] ** 2 - np.array([[1.0], [9.0]])) / 8
    np.testing.assert_allclose(many.energy_error, expected, rtol=0, atol=1e-14)


def test_velocities_of_kept_members_are_by_their_own_params():
    """L = ½m v² without forces: v stays 1, whatever m, and p = m. Three of four members are kept, in another order."""
    masses = np.array([1.0, 4.0, 9.0, 16.0])
    system = gm.LagrangianSystem(lambda q, v, m: 0.5 * m * jnp.sum(v**2), params=masses)
    grid = dict(method=gm.Variational(), dt=0.1, t_end=0.2, reduce={"p": gm.Mean("p")}, keep=[3, 1, -2])
    run = gm.ensemble(system, np.zeros((4, 1)), np.ones((4, 1)), params=masses, **grid)
    np.testing.assert_allclose(run.p[:, -1, 0], [16.0, 4.0, 9.0], rtol=1e-14)
    np.testing.assert_allclose(run.v[:, -1, 0], 1.0, rtol=1e-14)
    np.testing.assert_allclose(run.reduced["p"].mean[-1], [7.5], rtol=1e-14)


def test_the_force_that_holds_a_pendulum():
    """Hanging at rest, the rod pulls upwards with the weight m g = 2·9.81."""
    system = gm.System(lambda q: 2 * 9.81 * q[1], mass=2.0, constraint=lambda q: jnp.sum(q**2, keepdims=True) - 0.25)
    run = gm.simulate(system, [0.0, -0.5], method=gm.Rattle(), dt=0.01, t_end=0.05)
    np.testing.assert_allclose(run.constraint_forces, np.broadcast_to([0.0, 2 * 9.81], run.q.shape), rtol=0, atol=1e-11)


def test_the_save_at_which_a_member_fails():
    """q̈ = 4q³ from rest at q₀ is at infinity after .93/q₀: the first row without a number is the save after that."""
    escape = gm.System(lambda q: -jnp.sum(q**4))
    run = gm.ensemble(escape, [[0.3], [1.0], [0.5]], method=gm.Verlet(), dt=0.001, t_end=2.0, save_every=100)
    assert run.failed_at.tolist() == [-1, 10, 19]
    assert np.isfinite(run.q[1, :10]).all()
    assert not np.isfinite(run.q[1, 10]).any()


def test_a_late_start_is_a_whole_number_of_steps():
    """At t = 1e6 times are rounded to 1e-10, which is 1e-5 of a step of 1e-5: no reason to refuse 100 steps."""
    spring = gm.System(lambda q: 0.5 * jnp.sum(q**2))
    run = gm.simulate(spring, [1.0], method=gm.Verlet(), dt=1e-5, t0=1e6, t_end=1e6 + 1e-3)
    assert len(run) == 101
    assert run.q[-1, 0] == pytest.approx(np.cos(1e-3), rel=1e-12)


# --- trajectories ---------------------------------------------------------------------------------------
def test_what_a_trajectory_says_of_its_members():
    energy = np.array([[1.0, 1.5, 0.5], [2.0, 2.0, np.nan], [3.0, np.inf, 3.0]])
    run = Trajectory(
        None,
        gm.Verlet(),
        Grid(0.0, 1.0, 2, 1),
        np.arange(3.0),
        {"q": energy[..., None], "p": energy[..., None], "energy": energy},
        members=True,
    )
    assert np.array_equal(run.energy_error[:2], [[0.0, 0.5, -0.5], [0.0, 0.0, np.nan]], equal_nan=True)
    assert run.failed_at.tolist() == [-1, 2, 1]
    assert run.kept.tolist() == [0, 1, 2]
    assert run.constraint_residual.shape == run.multipliers.shape == (3, 3, 0)
    one = Trajectory(
        None, gm.Verlet(), Grid(0.0, 1.0, 2, 1), np.arange(3.0), {"q": energy[0][:, None], "energy": energy[0]}
    )
    assert one.energy_error.tolist() == [0.0, 0.5, -0.5]
    assert math.isclose(one.dt, 1.0)


def test_the_constraint_pulls_inwards_and_velocities_are_momenta_over_mass(tmp_path):
    """A mass that circles at speed v on a string of length l: the force on it is m v²/l, towards the centre."""
    length, mass, speed = 2.0, 3.0, 1.5
    system = gm.System(mass=mass, constraint=lambda q: jnp.array([jnp.sum(q**2) - length**2]))
    run = gm.simulate(
        system, [length, 0.0], [0.0, speed], method=gm.Rattle(), dt=0.001, t_end=0.01, output=tmp_path / "run.h5"
    )
    again = gm.load(tmp_path / "run.h5", system)
    for each in (run, again):
        np.testing.assert_allclose(
            np.asarray(each.constraint_forces)[5], -mass * speed**2 / length**2 * np.asarray(each.q)[5], rtol=1e-5
        )
        np.testing.assert_allclose(np.asarray(each.v) * mass, each.p, rtol=1e-15)
    assert isinstance(again.checkpoint, Checkpoint)
    assert again.checkpoint.step == 10
    with pytest.raises(gm.InputError, match="was run with Rattle.*not with Verlet"):
        gm.resume(tmp_path / "run.h5", system, method=gm.Verlet())
    with pytest.raises(gm.InputError, match="run without reduce="):
        gm.resume(tmp_path / "run.h5", system, reduce={})
    with pytest.raises(gm.InputError, match="holds one trajectory"):
        gm.resume(tmp_path / "run.h5", system, mesh="all")
    with pytest.raises(gm.ArchiveError, match="not the one that was run"):
        gm.load(tmp_path / "run.h5", gm.models.fpu().system)
    assert len(gm.resume(tmp_path / "run.h5", system)) == len(gm.resume(tmp_path / "run.h5", system, t_end=0.01)) == 11
