"""Neighbour lists, the sums over them, and runs whose lists are made again, outgrown and restored."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines import block
from geomint.io.fingerprint import fingerprint
from geomint.md import cells, neighbours, neighbours_gpu
from geomint.methods import State
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


def take(way, monkeypatch):
    """Lists by the compiled loops of the CPU, by array operations, or by the kernel of a GPU, interpreted."""
    if way != "loops":
        monkeypatch.setattr(cells, "by_loops", lambda q: False)
    if way == "kernel":
        monkeypatch.setattr(neighbours_gpu, "INTERPRET", True)
        monkeypatch.setattr(neighbours_gpu, "LANES", 64)
        monkeypatch.setattr(neighbours_gpu, "available", lambda: True)


@pytest.mark.parametrize("way", ["loops", "arrays", "kernel"])
@pytest.mark.parametrize(
    ("edges", "distance"),
    [((7.0, 5.0, 6.0), 1.6), ((4.0, 4.0, 9.0), 1.9), (None, 2.0), ((6.0, 7.0), 1.5), ((3.5, 3.5), 1.7)],
    ids=["cells", "few cells", "free", "plane", "plane, few cells"],
)
def test_lists_have_all_neighbours(edges, distance, way, monkeypatch):
    """In and outside the box, by cells and by comparing all pairs, in all ways to make lists."""
    if way == "kernel" and (edges is None or min(edges) // distance < cells.LEAST_CELLS):
        pytest.skip("there are no cells")
    take(way, monkeypatch)
    box = None if edges is None else gm.md.Box(edges)
    q = RANDOM.uniform(-9, 9, (150, 3 if edges is None else len(edges)))
    made = gm.md.Neighbours(distance - 0.2, 0.2, box).build(q)
    index, count = np.asarray(made.index), np.asarray(made.count)
    assert [set(row[:k]) for row, k in zip(index, count, strict=True)] == compared(q, box, distance)
    assert all(len(set(row[:k])) == k for row, k in zip(index, count, strict=True))
    if way == "kernel":  # it does not write beyond the end of a row
        short = neighbours._made(gm.md.Neighbours(distance - 0.2, 0.2, box), jnp.asarray(q), jnp.asarray(q), 3, 0)
        assert np.array_equal(short.index, index[:, :3])
        assert np.array_equal(short.count, count)
        if len(edges) == 2:  # also while another function is traced, as in the first step of a run
            found = []
            jax.eval_shape(lambda x: found.append(neighbours_gpu._finds_a_lattice()) or x, q)
            assert found == [True]


@pytest.mark.parametrize("way", ["loops", "arrays"])
def test_energy_and_derivatives_by_a_list(way, monkeypatch):
    """Against the sum over all pairs, whose derivatives are automatic."""
    take(way, monkeypatch)
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
    without = gm.System(MODEL.system.potential, symmetries=(gm.Translation(),))
    with pytest.raises(gm.ArchiveError, match="A run with neighbour lists"):
        gm.resume(tmp_path / "a.h5", system=without, t_end=200 * H)
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
    with pytest.raises(gm.InputError, match="the box has 3 edges"):
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


PLANE = gm.md.Box([6.0, 7.0])
REPULSION = gm.md.PairPotential(lambda r: 1 / r**6, cutoff=1.4, box=PLANE)


def test_messages():
    """What is answered where boxes, lists and pair energies are stated wrongly."""
    q = np.array([[0.0, 0.0], [1.2, 0.0]])
    stated = lambda **parts: gm.simulate(gm.System(**parts), q, method=gm.Verlet(), dt=H, t_end=H)
    with pytest.raises(gm.InputError, match=r"PairPotential\(box=...\) must be a periodic box, .* not \[8, 8\]"):
        gm.md.PairPotential(REPULSION.phi, cutoff=1.0, box=[8, 8])
    with pytest.raises(gm.InputError, match=r"Neighbours\(box=...\) must be a periodic box"):
        gm.md.Neighbours(1.0, 0.2, box=(8, 8))
    with pytest.raises(gm.InputError, match="neither potential nor fast has an argument `auxiliary`"):
        gm.System(potential=lambda q: jnp.sum(q**2), auxiliary=REPULSION.neighbours(0.3))
    with pytest.raises(gm.InputError, match="argument `auxiliary` is None here: so it is outside a run"):
        stated(potential=lambda q, auxiliary: jnp.sum(q) + auxiliary.room, auxiliary=REPULSION.neighbours(0.3))
    with pytest.raises(gm.InputError, match=r"an array of shape \(1,\); it returns shape \(\)"):
        stated(potential=gm.md.PairPotential(jnp.sum, cutoff=1.0))
    with pytest.raises(gm.InputError, match=r"PairPotential has positions q of shape \(n, 3\), like the box"):
        stated(potential=MODEL.system.potential)
    with pytest.raises(gm.InputError, match=r"PairPotential has positions q of shape \(n, 2\) or \(n, 3\), not \(4,\)"):
        gm.md.PairPotential(REPULSION.phi, cutoff=1.0)(np.arange(4.0))
    for make, misspelt, meant in (
        (gm.md.Box, "length", "lengths"),
        (gm.md.PairPotential, "cutof", "cutoff"),
        (gm.md.Neighbours, "skim", "skin"),
    ):
        with pytest.raises(TypeError, match=f"has no argument {misspelt!r}. Did you mean {meant}"):
            make(**{misspelt: 1.0})


def test_boxes_and_lists_can_be_pickled():
    """Also with the check of keywords around __init__; tasks of executors and caches depend on it."""
    for x in (PLANE, REPULSION.neighbours(0.3), MODEL.system.potential, MODEL.system):
        copy = pickle.loads(pickle.dumps(x))
        assert copy == x
        assert jax.tree.structure(copy) == jax.tree.structure(x)
    shape = MODEL.q0.shape
    assert fingerprint(pickle.loads(pickle.dumps(MODEL.system)), shape) == fingerprint(MODEL.system, shape)


def test_forces_at_several_positions_at_once():
    """As implicit methods evaluate them, for all stages."""
    mech = Mechanics(MODEL.system, MODEL.q0.shape)
    listed = mech.with_auxiliary(MODEL.system.auxiliary.build(MODEL.q0))
    q = jnp.asarray(MODEL.q0) + RANDOM.normal(size=(2, *MODEL.q0.shape)) * 0.02
    force = jax.jit(lambda m, x: m.force(x))
    at_once = jax.jit(jax.vmap(lambda x: listed.force(x)))(q)
    for stage, x in zip(at_once, q, strict=True):
        assert np.abs(stage - force(listed, x)).max() <= 1e-12 * np.abs(stage).max()


def test_lists_of_multistep_methods_reach_ahead():
    """Forces are taken k/2 steps ahead of what is shown: the list is made again so much earlier."""
    lists, step = REPULSION.neighbours(0.4), np.array([0.03, 0.0])
    q = RANDOM.uniform(0, 6, (20, 2))
    made = lists.build(q)
    moved = eqx.tree_at(lambda s: s.last, made, jnp.asarray(q + 2 * step))
    refreshed = jax.jit(lambda ahead: lists.refreshed(moved, jnp.asarray(q + 3 * step), ahead).reference)
    assert [bool(np.any(refreshed(ahead) != q)) for ahead in (1, 2, 3, 4)] == [False, False, True, True]
    asked = []
    stub = SimpleNamespace(refreshed=lambda state, q, ahead: asked.append(ahead))
    mech = SimpleNamespace(system=SimpleNamespace(auxiliary=stub), with_auxiliary=lambda state: mech)
    for method in (gm.Verlet(), gm.SymmetricMultistep(8)):
        still = SimpleNamespace(traits=method.traits, output=lambda m, x: State(x, x), step=lambda m, x, dt: x)
        block.stepped(still, mech, block.Accompanied(q, None), 0.01)
    assert asked == [1, 4]


@pytest.mark.slow
def test_a_run_is_resumed_with_another_skin(whole, tmp_path):
    """A larger skin is the remedy for a run that has outrun its lists; the motion differs by rounding only."""
    simulated(output=tmp_path / "a.h5", t_end=100 * H)
    pair = MODEL.system.potential
    wider = gm.System(pair, symmetries=(gm.Translation(),), auxiliary=pair.neighbours(1.0))
    assert np.abs(gm.resume(tmp_path / "a.h5", system=wider, t_end=200 * H).q - whole.q).max() < 1e-12


@pytest.mark.slow
def test_multistep_and_constrained_methods_with_lists():
    """Against the sum over all pairs."""
    q = np.stack(np.meshgrid(np.arange(4) * 1.2, np.arange(3) * 1.5), axis=-1).reshape(-1, 2)
    v = np.random.default_rng(0).normal(size=q.shape)
    rods = gm.Distances([(2 * i, 2 * i + 1) for i in range(6)], 1.2)
    for method, constraint in ((gm.SymmetricMultistep(8), None), (gm.Rattle(), rods)):
        both = [
            gm.System(REPULSION, constraint=constraint, auxiliary=lists) for lists in (None, REPULSION.neighbours(0.4))
        ]
        v0 = v if constraint is None else gm.project(both[0], q, v)[1]
        every, listed = (gm.simulate(s, q, v0, method=method, dt=0.002, t_end=0.4, save_every=20) for s in both)
        assert np.abs(every.q - listed.q).max() < 1e-12
