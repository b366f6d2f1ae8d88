"""Walls and hard spheres: `inside` of energy-stepping. Momentum is what the walls give, pressure what kinetic theory
says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.models.hard_spheres import apart, between_walls

FREE = gm.System()
WALLS = between_walls(4.0, 0.5)


def go(q0, v0, inside, t_end=3.0, dt=0.1, system=FREE, height=1.0, engine="xla", **more):
    """By XLA, which compiles a run in half the time."""
    method = gm.EnergyStepping(height, inside=inside)
    return gm.simulate(system, q0, v0, method=method, dt=dt, t_end=t_end, engine=engine, **more)


def box(n=16, t_end=20.0, dt=0.01, **more):
    model = gm.models.hard_spheres(n=n, **more)
    return model, go(model.q0, model.v0, model.inside, t_end, dt, engine="auto")


def test_nothing_overlaps_and_the_energy_stays():
    model, run = box()
    assert len(run.events) > 100
    assert np.max(np.abs(run.energy_error)) < 1e-13 * run.energy[0]
    for c in model.inside:
        assert np.min(jax.vmap(c)(jnp.asarray(run.q))) > -1e-12
    # Between looks without an event they fly straight: the least distance on the way, by formula.
    i, j = np.triu_indices(16, 1)
    straight = np.flatnonzero(np.diff(np.searchsorted(run.events.times, run.t)) == 0)
    d, u = (x[straight][:, i] - x[straight][:, j] for x in (run.q, run.p))
    s = np.clip(-np.sum(d * u, axis=2) / np.sum(u * u, axis=2), 0, 0.01)
    least = np.linalg.norm(d + s[..., None] * u, axis=2).min()
    assert 1 - 1e-12 < least < 1.01  # they do meet
    assert len(straight) > 0.6 * len(run.t)
    assert (run.events.codes == 4).all()


def test_only_walls_change_the_total_momentum():
    """Between two looks with one event each: a pair keeps Σp, a wall turns round one component of one sphere."""
    _, run = box(t_end=5.0, dt=1e-4)
    at = np.searchsorted(run.t, run.events.times)
    alone = np.flatnonzero((np.diff(at, prepend=-1) > 0) & (np.diff(at, append=10**9) > 0))
    change = (run.p[at] - run.p[at - 1])[alone]
    moved = np.any(change != 0, axis=2).sum(axis=1)
    assert set(moved) == {1, 2}
    assert len(alone) > 0.9 * len(at)
    pairs, walls = change[moved == 2], change[moved == 1]
    assert np.max(np.abs(pairs.sum(axis=1))) < 1e-13
    assert (np.count_nonzero(walls, axis=(1, 2)) == 1).all()
    before = run.p[at - 1][alone][moved == 1]
    np.testing.assert_allclose(walls[walls != 0], -2 * before[walls != 0], rtol=1e-14)
    np.testing.assert_allclose(
        run.p[-1].sum(axis=0) - run.p[0].sum(axis=0),
        (run.p[at] - run.p[at - 1])[np.unique(at, return_index=True)[1]].sum(axis=(0, 1)),
        atol=1e-11,
    )


def test_a_pair_as_in_textbooks():
    """Against a formula: equal masses exchange what they have along the line of centres."""
    q0, v0 = np.array([[0.0, 0.0], [3.0, 0.6]]), np.array([[1.0, 0.1], [-0.5, 0.0]])
    run = go(q0, v0, apart(2, 1.0), 4.0)
    d, u = q0[1] - q0[0], v0[1] - v0[0]
    t = (-(d @ u) - np.sqrt((d @ u) ** 2 - (u @ u) * (d @ d - 1))) / (u @ u)
    n = d + t * u
    give = (u @ n) * n
    np.testing.assert_allclose(run.events.times, [t], rtol=1e-14)
    np.testing.assert_allclose(run.v[-1], v0 + np.stack([give, -give]), rtol=0, atol=1e-14)


FOUR_APART = apart(4, 1.0)  # one program for all runs of up to four spheres; those not needed rest far away
FAR = [[50.0, 0.0], [60.0, 0.0]]


def test_at_the_same_time():
    pairs = go(
        [[0.0, 0.0], [3.0, 0.0], [0.0, 5.0], [3.0, 5.0]],
        [[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]],
        FOUR_APART,
    )
    np.testing.assert_allclose(pairs.events.times, [1, 1], atol=1e-15)
    np.testing.assert_allclose(pairs.q[-1], [[-1, 0], [4, 0], [-1, 5], [4, 5]], atol=1e-13)
    one_moves = [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    cradle = go([[0.0, 0.0], [3.0, 0.0], [4.0, 0.0], *FAR[:1]], one_moves, FOUR_APART, 5.0)
    np.testing.assert_allclose(cradle.p[-1], [[0, 0], [0, 0], [1, 0], [0, 0]], atol=1e-14)
    corner = go([[1.0, 1.0]], [[-1.0, -1.0]], WALLS)
    np.testing.assert_allclose(corner.q[-1], [[3, 3]], atol=1e-13)
    touching = go([[0.0, 0.0], [1.0, 0.0], *FAR], one_moves, FOUR_APART, 1.0)
    np.testing.assert_allclose(touching.p[-1], [[0, 0], [1, 0], [0, 0], [0, 0]], atol=1e-14)


def test_three_at_the_same_time():
    three = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3**0.5]])
    run = go([*three, *FAR[:1]], [*(three.mean(axis=0) - three), [0.0, 0.0]], FOUR_APART, 3.0)
    assert np.max(np.abs(run.energy_error)) < 1e-13
    assert np.min(jax.vmap(FOUR_APART)(jnp.asarray(run.q))) > -1e-12
    assert len(run.events) >= 3


def test_sliding_along_a_wall():
    run = go([[0.5, 1.0]], [[0.0, -1.0]], WALLS, 10.0)
    np.testing.assert_allclose(run.events.times, [0.5, 3.5, 6.5, 9.5], atol=1e-13)
    assert np.ptp(run.q[:, 0, 0]) == 0


def test_walls_and_a_potential():
    run = go(
        [[1.0, 2.0]],
        [[0.3, 0.1]],
        between_walls(4.0, 0.5),
        50.0,
        system=gm.System(lambda q: jnp.sum(q[:, 1])),
        height=0.05,
    )
    assert all(run.events.counts[kind] > 0 for kind in ("up", "down", "reflected", "wall"))
    assert np.max(np.abs(run.energy_error)) < 1e-13
    assert run.q.min() > 0.5 - 1e-12
    assert run.q[:, 0, 0].max() < 3.5 + 1e-12
    assert np.max(np.abs(run.q[:, 0, 1] + 0.5 * np.sum(run.p**2, axis=(1, 2)) - run.energy)) < 0.05 + 1e-12


def test_a_run_with_walls_is_resumed_with_the_same_walls(tmp_path):
    """Those of the model are made again, others have to be given again."""
    model, path = gm.models.hard_spheres(), tmp_path / "run.h5"
    walls = (*model.inside, lambda q: 9.0 - q.ravel())
    method = gm.EnergyStepping(1.0, inside=walls)
    go(model.q0, model.v0, walls, 5.0, system=model.system, output=path)
    with pytest.raises(gm.InputError, match=r"inside.*method=method"):
        gm.resume(path, t_end=10.0)
    with pytest.raises(gm.InputError, match="was run with"):
        gm.resume(path, t_end=10.0, method=gm.EnergyStepping(2.0, inside=walls))
    resumed, whole = (
        gm.resume(path, t_end=10.0, method=method),
        go(model.q0, model.v0, walls, 10.0, system=model.system),
    )
    assert np.array_equal(resumed.q, whole.q)
    assert np.array_equal(resumed.events.records, whole.events.records)


def pressure(n, side, radius, members, t_end, seed):
    """2Σ|p_n| over perimeter and time, in units of N k T / area of the box that centres can reach, and its standard
    error over members."""
    model = gm.models.hard_spheres(n=n, box=side, radius=radius)
    rng = np.random.default_rng(seed)
    v0 = rng.normal(size=(members, n, 2))
    v0 *= np.sqrt(n * 2 / np.sum(v0**2, axis=(1, 2), keepdims=True))  # k T = 1 for every member: energy n d/2
    # The virial theorem for the walls: over long times  Σ wall impulses = 2 K t + …; measured here from the momenta
    # themselves, by
    # watching how often and how hard: between looks so short that hardly two events fall into one.
    dt = 0.1 * side / (n * 40)
    run = gm.ensemble(
        model.system,
        np.stack([model.q0] * members),
        v0,
        method=gm.EnergyStepping(1.0, inside=model.inside),
        dt=dt,
        t_end=np.ceil(t_end / dt) * dt,
        engine="xla",
    )
    change = np.diff(run.p, axis=1)
    mirrored = np.isclose(run.p[:, 1:], -run.p[:, :-1], rtol=0, atol=1e-12) & (change != 0)
    given = np.sum(np.abs(change) * mirrored, axis=(1, 2, 3)) / (run.t[-1] * 4 * (side - 2 * radius))
    each = given * (side - 2 * radius) ** 2 / n
    return each.mean(), each.std(ddof=1) / np.sqrt(members), run


def test_pressure_of_a_dilute_gas():
    measured, error, run = pressure(4, 10.0, 0.02, 64, 30.0, 0)
    assert np.max(np.abs(run.energy_error)) < 1e-13 * run.energy.max()
    assert error < 0.02
    assert (
        abs(measured - 1) < 4 * error + 0.01
    )  # first virial correction, n b / A = 4·2π r²/100 ≈ 1e-4, and two events in one look


@pytest.mark.slow
def test_first_virial_correction_of_discs():
    """P A / N k T = 1 + (N − 1) b / A, b = 2π r² (half the area a pair excludes), for density 0.08 with the next term
    0.78·(b ρ)²."""
    n, side, radius = 16, 20.0, 0.5
    measured, error, _ = pressure(n, side, radius, 64, 200.0, 1)
    area = (side - 2 * radius) ** 2
    x = 2 * np.pi * radius**2 * (n - 1) / area
    assert error < 0.01
    assert abs(measured - (1 + x + 0.782 * x**2)) < 4 * error + 0.01
    assert measured - 1 > 4 * error
