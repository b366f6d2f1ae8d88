"""Radial distributions: of runs and inside the runs of ensembles, against numpy."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.md import distances

BOX, FREE = gm.md.Box((4.0, 5.0, 6.0)), None
WATER = gm.md.Atoms("OHH", BOX)
SYSTEM = gm.System(lambda q: 0.5 * jnp.sum(q**2), atoms=WATER)
RANDOM = np.random.default_rng(11)
Q = RANDOM.uniform(-6, 6, (5, 4, 3, 3))  # members of four molecules


def by_hand(q, box, groups, molecules):
    """All distances of pairs (i, j), i < j, of which one is in each group and which are in two molecules."""
    points, found = q.reshape(-1, q.shape[-1]), []
    for i, j in itertools.combinations(range(len(points)), 2):
        belongs = (i in groups[0] and j in groups[1]) or (j in groups[0] and i in groups[1])
        if belongs and molecules[i] != molecules[j]:
            d = points[i] - points[j]
            d = d if box is None else d - np.array(box.lengths) * np.rint(d / np.array(box.lengths))
            found.append(np.sqrt(np.sum(d**2)))
    return found


def counted(reduction, q, valid):
    """A reduced tile, with a leading axis of one row."""
    tile = jax.jit(lambda q, valid: reduction.of_tile(q, valid))(q, valid)
    return {k: np.asarray(x)[None] for k, x in tile.items()}


EVERY, OXYGEN, HYDROGEN = range(12), (0, 3, 6, 9), (1, 2, 4, 5, 7, 8, 10, 11)
MOLECULES = np.arange(12) // 3
CASES = {
    "free": ({"between": (range(11), range(11)), "range": (1.0, 14.0)}, FREE, (range(11), range(11)), range(12)),
    "O–O": ({"atoms": WATER, "between": ("O", "O")}, BOX, (OXYGEN, OXYGEN), range(12)),
    "O–H": ({"atoms": WATER, "between": ("O", "H"), "intramolecular": False}, BOX, (OXYGEN, HYDROGEN), MOLECULES),
    "molecules": ({"molecule": 3, "intramolecular": False, "box": BOX}, BOX, (EVERY, EVERY), MOLECULES),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_counts_are_those_of_numpy(case, monkeypatch):
    """Over two tiles, one member of which does not count, with blocks of rows."""
    monkeypatch.setattr(distances, "PAIRS", 40)
    stated, box, groups, molecules = CASES[case]
    reduction = gm.RadialDistribution(bins=7, **stated)
    valid = np.array([True, True, False, True, True])
    tiles = [counted(reduction, Q[a:b], valid[a:b]) for a, b in ((0, 3), (3, 5))]
    found = reduction.joined(tiles, np.array([4]))
    listed = [by_hand(q, box, groups, molecules) for q in Q[valid]]
    counts = np.histogram(np.concatenate(listed), reduction.edges)[0]
    assert counts.sum() > 0
    assert np.array_equal(found["counts"][0], counts)
    edges, pairs = reduction.edges, 4 * len(listed[0])
    width = np.diff(edges) if box is None else np.diff(4 / 3 * np.pi * edges**3) / np.prod(box.lengths)
    np.testing.assert_allclose(found["distribution"][0], counts / pairs / width, rtol=1e-14)
    made_again = gm.RadialDistribution.restored("q", reduction.settings)
    assert all(np.array_equal(made_again.settings[k], x) for k, x in reduction.settings.items())


def test_inside_an_ensemble(tmp_path):
    """Counted inside the run, archived, resumed without stating it again, and counted afterwards: the same numbers."""
    reduce = {"oxygens": gm.RadialDistribution(bins=9, atoms=WATER, between=("O", "O"))}
    run = lambda t_end, **more: gm.ensemble(
        SYSTEM, Q, 0.3 * Q, method=gm.Verlet(), dt=0.1, save_every=2, t_end=t_end, reduce=reduce, keep=range(5), **more
    )
    all_kept = run(1.0)
    whole = all_kept.reduced["oxygens"]
    run(0.6, output=tmp_path / "run.h5")
    held = gm.resume(tmp_path / "run.h5", system=SYSTEM, t_end=1.0).reduced["oxygens"]
    assert held.counts.shape == (6, 9)
    assert np.array_equal(held.counts, whole.counts)
    assert np.array_equal(held.distribution, whole.distribution)
    assert np.array_equal(held.edges, np.linspace(0, 2, 10))
    after = gm.radial_distribution(all_kept, 9, between=("O", "O"))
    assert np.array_equal(after.counts, whole.counts.sum(axis=0))
    np.testing.assert_allclose(after.distribution, whole.distribution.mean(axis=0), rtol=1e-13)
    listed = [by_hand(q, BOX, (OXYGEN, OXYGEN), range(12)) for q in all_kept.q[:, 3]]
    assert np.array_equal(whole.counts[3], np.histogram(np.concatenate(listed), 9, (0, 2))[0])
    loaded = gm.load(tmp_path / "run.h5").to_xarray()
    assert loaded["oxygens_distribution"].dims == ("time", "oxygens_bin")


@pytest.mark.parametrize("dimension", [2, 3])
def test_particles_that_do_not_know_of_each_other(dimension):
    """g = 1 in a box, within 5 standard deviations of the counts."""
    box = gm.md.Box((3.0, 4.0, 5.0)[:dimension])
    q = RANDOM.uniform(0, 1, (4, 300, dimension)) * np.array(box.lengths)
    reduction = gm.RadialDistribution(bins=12, box=box)
    found = reduction.joined([counted(reduction, q, np.ones(4, bool))], np.ones(1))
    g, counts = found["distribution"][0], found["counts"][0]
    assert counts.min() > 20
    assert np.all(np.abs(g - 1) < 5 * g / np.sqrt(counts))


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({}, "bins= as edges, or their number and range"),
        ({"bins": [-1.0, 1.0]}, "distances begin at 0"),
        (
            {"box": BOX, "range": (0, 2.5)},
            "up to half its shortest edge, 2, and the last edge .* is 2.5",
        ),
        ({"box": BOX, "between": ("O", "O")}, "give atoms=gm.md.Atoms"),
        ({"atoms": WATER, "between": ("O", "Ar")}, "has no 'Ar'"),
        ({"atoms": WATER, "between": ([0, 1], [1])}, "equal or disjoint groups"),
        ({"atoms": WATER, "between": ([0], [3])}, "a molecule has 3 particles"),
        ({"atoms": WATER, "between": "O"}, "two groups"),
        ({"atoms": WATER, "between": ([0.5], [1])}, "a symbol or a list of numbers"),
        ({"box": BOX, "intramolecular": False}, "give the size of a molecule"),
        ({"atoms": "OHH"}, "atoms must be gm.md.Atoms"),
    ],
)
def test_bad_statements(stated, said):
    with pytest.raises(gm.InputError, match=said):
        gm.RadialDistribution(**stated)


def test_shapes_that_do_not_fit():
    run = gm.simulate(gm.System(), [1.0, 2.0], method=gm.Verlet(), dt=0.1, t_end=0.1)
    with pytest.raises(gm.InputError, match=r"shape \(n, 3\) or \(n, 2\), not \(2,\)"):
        gm.radial_distribution(run)
    five = gm.simulate(gm.System(), np.eye(5, 3), method=gm.Verlet(), dt=0.1, t_end=0.1)
    density = gm.radial_distribution(five, 3)  # in free space, up to the largest extent
    assert abs(np.sum(density.distribution * np.diff(density.edges)) - 1) < 1e-12
    assert density.edges[-1] == 3**0.5
    with pytest.raises(gm.InputError, match="5 particles are not molecules of 3"):
        gm.radial_distribution(five, molecule=3)
    with pytest.raises(gm.InputError, match=r"the box \(2.0, 2.0\) does not fit"):
        gm.radial_distribution(five, box=gm.md.Box((2.0, 2.0)))
    with pytest.raises(gm.InputError, match="there are 5 particles"):
        gm.radial_distribution(five, between=([0], [7]))
