"""Neighbour lists, the sums over them, and runs whose lists are made again, outgrown and restored."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.md import cells, neighbours
from geomint.run import loop
from geomint.system.mechanics import Mechanics

CUTOFF, SKIN, H = 1.6, 0.3, 0.004
MODEL = gm.models.lennard_jones_fluid(atoms=256, cutoff=CUTOFF, skin=SKIN)
RANDOM = np.random.default_rng(5)


def simulated(t_end=200 * H, **settings):
    start = MODEL.system, MODEL.q0, MODEL.v0
    return gm.simulate(*start, method=gm.Verlet(), dt=H, t_end=t_end, save_every=20, **settings)


@pytest.fixture(scope="module")
def whole():
    return simulated()


def compared(q, box, distance):
    """The neighbours of each particle, by comparing all pairs in numpy."""
    d = q[:, None] - q[None]
    d = d if box is None else d - np.array(box.lengths) * np.rint(d / np.array(box.lengths))
    near = np.sum(d**2, axis=-1) < distance**2
    np.fill_diagonal(near, False)
    return [set(np.flatnonzero(row)) for row in near]


@pytest.mark.parametrize("way", ["loops", "arrays"])
@pytest.mark.parametrize(
    ("edges", "distance"),
    [((7.0, 5.0, 6.0), 1.6), ((4.0, 4.0, 9.0), 1.9), (None, 2.0), ((6.0, 7.0), 1.5), ((3.5, 3.5), 1.7)],
    ids=["cells", "few cells", "free", "plane", "plane, few cells"],
)
def test_lists_have_all_neighbours(edges, distance, way, monkeypatch):
    """In and outside the box, by cells and by comparing all pairs, on both ways to make lists."""
    if way == "arrays":
        monkeypatch.setattr(cells, "by_loops", lambda q: False)
    box = None if edges is None else gm.md.Box(edges)
    q = RANDOM.uniform(-9, 9, (150, 3 if edges is None else len(edges)))
    made = gm.md.Neighbours(distance - 0.2, 0.2, box).build(q)
    index, count = np.asarray(made.index), np.asarray(made.count)
    assert [set(row[:k]) for row, k in zip(index, count, strict=True)] == compared(q, box, distance)
    assert all(len(set(row[:k])) == k for row, k in zip(index, count, strict=True))


@pytest.mark.parametrize("way", ["loops", "arrays"])
def test_energy_and_derivatives_by_a_list(way, monkeypatch):
    """Against the sum over all pairs, whose derivatives are automatic."""
    if way == "arrays":
        monkeypatch.setattr(cells, "by_loops", lambda q: False)
    mech = Mechanics(MODEL.system, MODEL.q0.shape)
    q = jnp.asarray(MODEL.q0 + RANDOM.normal(size=MODEL.q0.shape) * 0.05)
    x = jnp.asarray(RANDOM.normal(size=q.shape))
    listed = mech.with_auxiliary(MODEL.system.auxiliary.build(q))
    every = jax.jit(lambda m, q: (m.potential(q), m.force(q), m.hessian_product(q, x)))
    for a, b in zip(every(listed, q), every(mech, q), strict=True):
        assert jnp.max(jnp.abs(a - b)) <= 1e-12 * jnp.max(jnp.abs(b))


def test_the_cut_off_is_smooth():
    """φ, its slope and its curvature vanish at the cut-off, and are those of φ before the onset."""
    pair = MODEL.system.potential
    end, on = CUTOFF**2, (0.9 * CUTOFF) ** 2
    derivatives = [pair.of, jax.grad(pair.of), jax.grad(jax.grad(pair.of))]
    for f in derivatives:
        assert abs(f(end * (1 - 1e-9))) < 1e-6
    assert pair.of(on - 0.1) == pair.phi(on - 0.1)
    assert jax.grad(pair.of)(on - 0.1) == jax.grad(pair.phi)(on - 0.1)


def test_energy_and_momentum(whole):
    """A smooth potential: the energy error is of second order, and the total momentum round-off."""
    half = gm.simulate(MODEL.system, MODEL.q0, MODEL.v0, method=gm.Verlet(), dt=H / 2, t_end=200 * H, save_every=40)
    ratio = np.abs(whole.energy_error).max() / np.abs(half.energy_error).max()
    assert 3.5 < ratio < 4.5
    assert np.abs(whole.momentum_maps["translation"]).max() < 1e-11
    assert np.abs(whole.q[-1] - half.q[-1]).max() < 1e-2  # the same motion, over so short a time


def test_chunked_and_resumed_runs_are_the_same(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHUNK_SECONDS", 0.001)
    chunked = simulated(output=tmp_path / "a.h5", t_end=100 * H)
    resumed = gm.resume(tmp_path / "a.h5", system=MODEL.system, t_end=200 * H)
    assert np.array_equal(chunked.q, whole.q[:6])
    assert np.array_equal(resumed.q, whole.q)
    assert np.array_equal(resumed.p, whole.p)


def test_lists_that_outgrow_their_room(whole, tmp_path, monkeypatch):
    """Room for what the lattice has at the start, too little for the fluid: steps are repeated with more room. The
    numbers are those of a run with enough room, however the run is cut; also when it is interrupted while growing."""
    monkeypatch.setattr(neighbours, "_roomy", lambda found, n: found)
    grown = []
    more_room = gm.md.Neighbours.grown

    def growing(self, state, overflowed):
        grown.append(state.room)
        if len(grown) == 2:
            raise KeyboardInterrupt
        return more_room(self, state, overflowed)

    monkeypatch.setattr(gm.md.Neighbours, "grown", growing)
    with pytest.raises(gm.Interrupted):
        simulated(output=tmp_path / "b.h5")
    run = gm.resume(tmp_path / "b.h5", system=MODEL.system)
    assert len(grown) >= 3
    assert grown == sorted(grown)
    assert np.array_equal(run.q, whole.q)
    assert np.array_equal(run.p, whole.p)


def test_a_step_beyond_the_skin_stops_the_run():
    """An incomplete list never gives a number."""
    fast = MODEL.v0.copy()
    fast[0] = [60.0, 0, 0]
    with pytest.raises(gm.RunStopped, match=r"half its skin of 0.3: take a smaller dt or a larger skin"):
        gm.simulate(MODEL.system, MODEL.q0, fast, method=gm.Verlet(), dt=H, t_end=20 * H)


def test_what_is_refused():
    pair = MODEL.system.potential
    with pytest.raises(gm.InputError, match="smaller than twice the cut-off"):
        gm.md.PairPotential(pair.phi, cutoff=2.0, box=gm.md.Box([3.0, 9.0, 9.0]))
    with pytest.raises(gm.InputError, match="smaller than twice"):
        gm.md.Neighbours(1.4, 0.2, gm.md.Box([3.0, 9.0, 9.0]))
    with pytest.raises(gm.InputError, match="onset must be smaller"):
        gm.md.PairPotential(pair.phi, cutoff=2.0, onset=2.0)
    with pytest.raises(gm.InputError, match="two or three positive numbers"):
        gm.md.Box([1.0, -1.0])
    with pytest.raises(gm.InputError, match="auxiliary must be neighbour lists"):
        gm.System(potential=pair, auxiliary=0.3)
    with pytest.raises(gm.InputError, match=r"positions q of shape \(n, 3\)"):
        gm.simulate(MODEL.system, MODEL.q0[:, :2], method=gm.Verlet(), dt=H, t_end=H)
    with pytest.raises(gm.InputError, match="take at least"):
        gm.models.lennard_jones_fluid(atoms=100)
    members = np.stack([MODEL.q0] * 2)
    with pytest.raises(gm.InputError, match="does not take systems with neighbour lists"):
        gm.ensemble(MODEL.system, members, method=gm.Verlet(), dt=H, t_end=H)
    with pytest.raises(gm.InputError, match="does not take systems with neighbour lists"):
        gm.simulate(MODEL.system, MODEL.q0, method=gm.EnergyStepping(height=0.1), dt=H, t_end=H)
    with pytest.raises(gm.GeomintError, match="inside jax.grad"):
        jax.grad(lambda q: gm.simulate(MODEL.system, q, method=gm.Verlet(), dt=H, t_end=H).q[-1, 0, 0])(MODEL.q0)
