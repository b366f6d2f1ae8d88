"""Which atoms the coordinates of a system are: `System(..., atoms=gm.md.Atoms("OHH", box=box))`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError, nearest
from ..numerics.keywords import checked_keywords
from ..system.checks import shown
from ..system.labels import Labels
from ..system.units import EV, PICOSECOND, UnitSystem
from ..system.units import checked as checked_units
from .box import Box, checked_box

_TABLE = """
X H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y
Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os
Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn
Nh Fl Mc Lv Ts Og
"""
ELEMENTS = tuple(_TABLE.split())  # by atomic number; X is an unnamed particle, as in ASE
_FORMULA = re.compile(r"(?:[A-Z][a-z]?\d*)+")
_PART = re.compile(r"([A-Z][a-z]?)(\d*)")
MOST_IN_FORMULA = 10**7  # atoms


class Scales(NamedTuple):
    """The units of a system in those of the formats: ångströms, atomic mass units, electronvolts, picoseconds."""

    length: float = 1.0
    mass: float = 1.0
    energy: float = 1.0
    time: float = 1.0

    @property
    def velocity(self) -> float:
        return self.length / self.time

    @property
    def momentum(self) -> float:
        """To ASE's unit, √(amu eV)."""
        return math.sqrt(self.mass * self.energy)


class Atoms(Labels):
    """Names for positions of shape (n, 3), (molecules, atoms, 3), or the same with two coordinates.

    symbols:   the chemical symbols of one molecule, as text or as a list: "OHH", "Ar", ["C", "O"]. They are repeated
               until all atoms have one, in the order of q: "OHH" is for q of shape (n, 3, 3), or (3n, 3), with an
               oxygen first in every molecule. "X" is a particle without a name.
    box:       the periodic box; None: that of the PairPotential or the neighbour lists of the system, if any.
    molecule:  the name of a molecule in PDB files (its residue), at most three letters.
    units:     the units of the system, such as gm.units.EV, or their name, such as "eV". Files are then written in
               ångströms, picoseconds and electronvolts, and figures name the units. None, and reduced units: numbers
               are written as they are.
    """

    @checked_keywords
    def __init__(
        self,
        symbols: str | Sequence[str],
        box: Box | None = None,
        molecule: str = "MOL",
        units: UnitSystem | str | None = None,
    ):
        self.symbols = _checked_symbols(symbols)
        self.box = checked_box(box, "Atoms")
        if not isinstance(molecule, str) or not re.fullmatch(r"[A-Za-z0-9]{1,3}", molecule):
            raise InputError(f"Atoms(molecule=...) is a name of one to three letters or digits, not {shown(molecule)}.")
        self.molecule = str(molecule)
        self.units = None if units is None else checked_units(units, "units", "Atoms")
        self.scales = _scales(self.units)
        self._key = (self.symbols, self.molecule, self.units, None if self.box is None else self.box.lengths)
        self._hash = hash(self._key)  # a system is hashed in every call of a compiled program

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atoms) and self._hash == other._hash and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Atoms({_formula(self.symbols)!r}, box={self.box})"

    def check(self, q_shape: tuple[int, ...]) -> None:
        self.count(q_shape)

    def in_box(self, box: Box) -> Atoms:
        if self.box is None:
            return Atoms(self.symbols, box, self.molecule, self.units)
        if self.box != box:
            raise InputError(
                f"atoms={self}: the potential has another box, {box}. Leave the box of the atoms out, or give the same "
                "one."
            )
        return self

    def count(self, q_shape: tuple[int, ...]) -> int:
        """The number of atoms in positions of this shape."""
        if len(q_shape) < 2 or q_shape[-1] not in (2, 3):
            raise InputError(f"{self}: positions have shape (n, 3) or (molecules, atoms, 3), not {tuple(q_shape)}.")
        n, size = math.prod(q_shape[:-1]), len(self.symbols)
        if n % size or (len(q_shape) > 2 and size > 1 and q_shape[-2] != size):
            raise InputError(
                f"{self} has {size} symbols for each molecule, and q of shape {tuple(q_shape)} has {n} atoms"
                + (f" in molecules of {q_shape[-2]}" if len(q_shape) > 2 else "")
                + ": give the symbols of one molecule, or one for each atom."
            )
        if self.box is not None and len(self.box.lengths) != q_shape[-1]:
            raise InputError(f"{self}: the box has {len(self.box.lengths)} edges, and q has shape {tuple(q_shape)}.")
        return n

    def of(self, q_shape: tuple[int, ...]) -> tuple[str, ...]:
        """The symbol of every atom."""
        return self.symbols * (self.count(q_shape) // len(self.symbols))

    def molecules(self, q_shape: tuple[int, ...]) -> np.ndarray:
        """For every atom the number of its molecule, from 0. Where the symbols of one molecule were repeated, each
        repetition is one; for q of shape (molecules, atoms, 3) they are those of q."""
        size = q_shape[-2] if len(q_shape) > 2 else len(self.symbols)
        return np.arange(self.count(q_shape)) // size


def as_points(x: np.ndarray, q_shape: tuple[int, ...]) -> np.ndarray:
    """Arrays (…, *q_shape) as points in space (…, atoms, 3); in the plane the third coordinate is 0."""
    leading = x.shape[: x.ndim - len(q_shape)]
    points = np.asarray(x).reshape(*leading, -1, q_shape[-1])
    missing = 3 - points.shape[-1]
    return np.pad(points, [(0, 0)] * (points.ndim - 1) + [(0, missing)]) if missing else points


def _checked_symbols(symbols: Any) -> tuple[str, ...]:
    """The symbols one by one; "H2O" is H, H, O."""
    refusal = InputError(
        f'Atoms(symbols=...) is the formula of a molecule such as "OHH", or a list of chemical symbols, '
        f"not {shown(symbols)}."
    )
    if isinstance(symbols, str):
        if not _FORMULA.fullmatch(symbols):
            raise refusal
        parts = [(name, int(count or 1)) for name, count in _PART.findall(symbols)]
        if not 0 < sum(count for _, count in parts) <= MOST_IN_FORMULA:
            raise refusal
        found = [name for name, count in parts for _ in range(count)]
    elif isinstance(symbols, (list, tuple, np.ndarray)) and all(isinstance(s, str) for s in symbols):
        found = [str(s) for s in symbols]
    else:
        raise refusal
    if not found:
        raise refusal
    for name in dict.fromkeys(found):
        if name not in ELEMENTS:
            raise InputError(f"Atoms: {shown(name)} is not a chemical symbol." + nearest(name, ELEMENTS))
    return tuple(found)


def _scales(units: UnitSystem | None) -> Scales:
    if units is None or not units.sized:
        return Scales()
    length, mass, energy = (units.size(x) / EV.size(x) for x in ("length", "mass", "energy"))
    return Scales(length, mass, energy, units.time / PICOSECOND)


def _formula(symbols: tuple[str, ...]) -> str:
    text = "".join(symbols)
    return text if len(text) <= 24 else f"{text[:20]}…"
