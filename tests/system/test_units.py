"""Units against the table of CODATA in scipy, which states the constants independently."""

import pickle

import numpy as np
import pytest
from scipy import constants

import geomint as gm
from geomint.system.units import EV, KCAL, KJ, REDUCED, SI

CODATA = 3e-9  # scipy may have the table of 2018 or that of 2022; masses and ε₀ differ by 1.4e-9
close = lambda x: pytest.approx(x, rel=CODATA)
codata = constants.value


def test_constants_against_codata():
    assert EV.boltzmann == close(codata("Boltzmann constant in eV/K"))
    assert KJ.boltzmann == close(codata("molar gas constant") / 1e3)
    assert KCAL.boltzmann == close(codata("molar gas constant") / constants.calorie / 1e3)
    assert SI.boltzmann == codata("Boltzmann constant")
    # e²/(4π ε₀) is Hartree's energy times Bohr's radius.
    coulomb = codata("Hartree energy in eV") * codata("Bohr radius") / constants.angstrom
    assert EV.coulomb == close(coulomb)
    assert KCAL.coulomb == pytest.approx(332.06371, rel=1e-7)
    assert KJ.coulomb == pytest.approx(138.935458, rel=1e-8)  # the manual of GROMACS
    assert EV.kT(300.0) == close(300.0 * codata("kelvin-electron volt relationship"))
    assert KCAL.temperature(KCAL.kT(123.0)) == pytest.approx(123.0, rel=1e-15)


def test_the_unit_of_time():
    for units, energy in ((EV, constants.eV), (KCAL, 1e3 * constants.calorie / constants.Avogadro)):
        assert units.time == close(constants.angstrom * np.sqrt(codata("atomic mass constant") / energy))
    assert EV.time * 1e15 == pytest.approx(10.1805, abs=5e-5)
    assert KCAL.time * 1e15 == pytest.approx(48.888, abs=5e-4)
    assert KJ.time == pytest.approx(1e-12, rel=1e-9)


def test_conversions():
    assert EV.convert(1.0, "energy", to=KCAL) == close(constants.eV * constants.Avogadro / constants.calorie / 1e3)
    assert EV.convert(1.0, "energy", "kJ/mol") == close(constants.eV * constants.Avogadro / 1e3)
    assert EV.convert(2.0, "length", KJ) == pytest.approx(0.2, rel=1e-15)
    assert EV.convert(1.0, "pressure", to=SI) == close(constants.eV / constants.angstrom**3)  # 160.2 GPa
    assert SI.convert(constants.bar, "pressure", to=KJ) == pytest.approx(0.0602214076, rel=1e-9)
    assert KJ.convert(1.0, "velocity", to=SI) == pytest.approx(1e3, rel=1e-9)  # nm/ps in m/s
    assert KJ.convert(1.0, "density", to=SI) == close(codata("atomic mass constant") * 1e27)
    assert KCAL.convert(7.0, "temperature", EV) == 7.0
    # A momentum is a mass times a velocity, a force an energy by a length, in all units.
    for units in (EV, KCAL, KJ):
        size = units.size
        assert size("momentum") == pytest.approx(size("mass") * size("velocity"), rel=1e-14)
        assert size("force") * size("length") == pytest.approx(size("energy"), rel=1e-14)
        assert size("acceleration") * size("time") ** 2 == pytest.approx(size("length"), rel=1e-14)
        assert size("angular momentum") * size("frequency") == pytest.approx(size("energy"), rel=1e-14)
        assert size("diffusion") * size("time") == pytest.approx(size("length") ** 2, rel=1e-14)
    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(KCAL.convert(EV.convert(x, "stiffness", KCAL), "stiffness", EV), x, rtol=1e-14)


def test_reduced_units():
    assert REDUCED.boltzmann == REDUCED.coulomb == 1.0
    assert not REDUCED.sized
    with pytest.raises(gm.InputError, match="reduced units have no size"):
        REDUCED.convert(1.0, "energy", EV)
    with pytest.raises(gm.InputError, match="reduced units have no size"):
        EV.convert(1.0, "energy", REDUCED)
    argon = gm.units.UnitSystem("argon", length=3.405e-10, mass=6.634e-26, energy=1.654e-21, thermal=True)
    assert argon.time * 1e12 == pytest.approx(2.156, abs=1e-3)  # picoseconds, as textbooks have it
    assert argon.convert(0.722, "temperature", EV) == pytest.approx(86.5, abs=0.1)
    assert pickle.loads(pickle.dumps(REDUCED)) == REDUCED
    assert not pickle.loads(pickle.dumps(REDUCED)).sized


def test_names_and_errors():
    assert gm.units.named("eV") is EV
    assert set(gm.units.all()) == {"eV", "kcal/mol", "kJ/mol", "SI", "reduced"}
    with pytest.raises(gm.InputError, match=r"Did you mean eV\? Known: eV, kcal/mol, kJ/mol, SI, reduced"):
        gm.units.named("ev")
    with pytest.raises(gm.InputError, match=r"Atoms\(units='furlong'\): there are no such units.* Known: eV, kcal/mol"):
        gm.md.Atoms("Ar", units="furlong")
    with pytest.raises(gm.InputError, match=r"Atoms\(units=3\)"):
        gm.md.Atoms("Ar", units=3)
    with pytest.raises(gm.InputError, match=r"no quantity 'presure'. Did you mean pressure.* Known: length"):
        EV.convert(1.0, "presure", KCAL)
    with pytest.raises(gm.InputError, match=r"UnitSystem\(mass=...\) is the size of a unit"):
        gm.units.UnitSystem("x", 1.0, 0.0, 1.0)
    with pytest.raises(gm.InputError, match=r"kT\(temperature=-3\): a temperature must be a number of at least 0"):
        EV.kT(-3)
    with pytest.raises(gm.InputError, match=r"kT\(temperature=...\): temperature must be an array of numbers"):
        EV.kT("300 K")
    assert EV.axis("time", "time") == "time (10.18 fs)"
    assert REDUCED.axis("energy", "energy") == "energy"
    assert gm.md.Atoms("Ar", units="kJ/mol").units is KJ
    assert gm.md.Atoms("Ar", units="kJ/mol") != gm.md.Atoms("Ar", units=EV)
