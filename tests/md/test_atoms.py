"""Names of atoms, and the shapes of positions that they fit."""

from __future__ import annotations

import numpy as np
import pytest

import geomint as gm
from geomint.md.atoms import ELEMENTS


def test_symbols_of_molecules():
    water = gm.md.Atoms("OHH")
    assert water.symbols == ("O", "H", "H") == gm.md.Atoms(["O", "H", "H"]).symbols
    assert gm.md.Atoms("CH3OH").symbols == ("C", "H", "H", "H", "O", "H")
    assert gm.md.Atoms("NaCl").symbols == ("Na", "Cl")
    for shape in ((2, 3, 3), (6, 3), (2, 3, 2)):
        assert water.of(shape) == tuple("OHHOHH")
        assert water.molecules(shape).tolist() == [0, 0, 0, 1, 1, 1]
    assert gm.md.Atoms("Ar").molecules((4, 3)).tolist() == [0, 1, 2, 3]
    assert gm.md.Atoms("Ar").molecules((2, 2, 3)).tolist() == [0, 0, 1, 1]
    assert len(ELEMENTS) == 119
    assert (ELEMENTS.index("Ar"), ELEMENTS.index("Og")) == (18, 118)


def test_labels_are_compared_by_value():
    box = gm.md.Box((3.0, 3.0, 3.0))
    a, b = gm.md.Atoms("OHH", box), gm.md.Atoms(["O", "H", "H"], gm.md.Box([3, 3, 3]))
    assert a == b
    assert hash(a) == hash(b)
    assert a != gm.md.Atoms("OHH")
    assert a != gm.md.Atoms("OH2", box, molecule="HOH")
    assert a != "OHH"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("water",), "formula of a molecule"),
        (("",), "formula of a molecule"),
        ((["O", "Hx"],), "'Hx' is not a chemical symbol"),
        (("Ar", "box"), "must be a periodic box"),
        (("Ar", None, "WATER"), "one to three letters"),
        (("Ar", None, "Ar", 3.0), r"no such units. Known: eV, kcal/mol.*UnitSystem\(name, length, mass, energy\)"),
    ],
)
def test_bad_labels(arguments, said):
    with pytest.raises(gm.InputError, match=said):
        gm.md.Atoms(*arguments)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((6,), r"shape \(n, 3\) or \(molecules, atoms, 3\)"),
        ((7, 3), "3 symbols for each molecule, and q of shape .* has 7 atoms"),
        ((3, 2, 3), "in molecules of 2"),
        ((3, 2), "the box has 3 edges"),
    ],
)
def test_positions_that_do_not_fit(shape, said):
    """Found before the run starts."""
    atoms = gm.md.Atoms("OHH", gm.md.Box((3.0, 3.0, 3.0)))
    with pytest.raises(gm.InputError, match=said):
        gm.simulate(gm.System(atoms=atoms), np.ones(shape), method=gm.Verlet(), dt=0.1, t_end=0.1)


def test_systems_take_labels_only():
    with pytest.raises(gm.InputError, match=r'atoms must be labels such as gm.md.Atoms\("OHH"\)'):
        gm.System(atoms="OHH")


def test_the_box_of_the_potential_is_that_of_the_atoms():
    box = gm.md.Box([5.0, 6.0, 7.0])
    pair = gm.md.PairPotential(lambda r: 0 * r, cutoff=1.0, box=box)
    assert gm.System(pair, atoms=gm.md.Atoms("Ar")).atoms == gm.md.Atoms("Ar", box)
    with pytest.raises(gm.InputError, match=r"atoms=Atoms\('Ar', .*the potential has another box, .*5.0"):
        gm.System(pair, atoms=gm.md.Atoms("Ar", gm.md.Box([9.0, 9.0, 9.0])))
    run = gm.simulate(gm.System(pair), [[0.1, 0, 0], [4.9, 0, 0]], method=gm.Verlet(), dt=0.1, t_end=0.1)
    assert gm.radial_distribution(run, bins=[0.0, 1.0, 2.0]).counts.tolist() == [2, 0]  # 0.2 apart, at two times


def test_positions_in_a_box():
    box = gm.md.Box([2.5, 3.0])
    assert box.wrapped(np.array([[-1e-17, 3.0], [2.5, -0.5], [-4, 7]])).tolist() == [[0, 0], [0, 2.5], [1, 1]]
    assert box.wrapped(np.array([4, 4])).tolist() == [1.5, 1.0]  # integers
    assert box.nearest([2, 2]).tolist() == [-0.5, -1.0]
    assert np.isnan(box.wrapped(np.array([np.nan, 0.0]))[0])
    with pytest.raises(gm.InputError, match="2 edges; positions have as many coordinates"):
        box.wrapped(np.ones((4, 3)))
