"""Systems of units: what a number of a molecular simulation means.

A system of units has a unit of length, of mass and of energy; the unit of time is length · √(mass/energy), so that the
equations of motion contain no factor:

    name       length   mass   energy     time
    eV         Å        amu    eV         10.1805 fs
    kcal/mol   Å        amu    kcal/mol   48.8882 fs
    kJ/mol     nm       amu    kJ/mol     1 ps
    SI         m        kg     J          s
    reduced    without sizes: σ = ε = m = k = 1

Temperatures are in kelvin, charges in those of the proton. In reduced units temperatures are energies.

    gm.units.EV.kT(300.0)                                # 0.025852
    gm.units.EV.convert(1.0, "energy", to=gm.units.KCAL) # 23.0605

Reference: CODATA 2022.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
from jax.core import Tracer

from ..errors import InputError, nearest
from .checks import as_array

ANGSTROM, NANOMETRE, PICOSECOND, FEMTOSECOND = 1e-10, 1e-9, 1e-12, 1e-15  # in metres and seconds
DALTON = 1.66053906892e-27  # kilograms
ELEMENTARY_CHARGE, AVOGADRO, BOLTZMANN = 1.602176634e-19, 6.02214076e23, 1.380649e-23  # exact
VACUUM_PERMITTIVITY = 8.8541878188e-12  # farads per metre
ELECTRONVOLT = ELEMENTARY_CHARGE  # joules
KILOCALORIE, KILOJOULE = 4184.0 / AVOGADRO, 1000.0 / AVOGADRO  # joules a particle, of one kcal/mol and one kJ/mol

# Powers of length, mass and energy.
QUANTITIES: dict[str, tuple[float, float, float]] = {
    "length": (1, 0, 0),
    "mass": (0, 1, 0),
    "energy": (0, 0, 1),
    "time": (1, 0.5, -0.5),
    "velocity": (0, -0.5, 0.5),
    "momentum": (0, 0.5, 0.5),
    "angular momentum": (1, 0.5, 0.5),
    "acceleration": (-1, -1, 1),
    "force": (-1, 0, 1),
    "frequency": (-1, -0.5, 0.5),
    "pressure": (-3, 0, 1),
    "volume": (3, 0, 0),
    "density": (-3, 1, 0),
    "number density": (-3, 0, 0),
    "stiffness": (-2, 0, 1),
    "diffusion": (1, -0.5, 0.5),
}


@dataclasses.dataclass(frozen=True)
class UnitSystem:
    """A system of units.

    name:          for error messages and figures
    length:        its unit, in metres
    mass:          its unit, in kilograms
    energy:        its unit, in joules
    length_label, mass_label, energy_label, time_label:  the names of the units on the axes of figures; none where empty
    thermal:       whether temperatures are energies (k = 1), as in reduced units; otherwise they are in kelvin
    """

    name: str
    length: float
    mass: float
    energy: float
    length_label: str = ""
    mass_label: str = ""
    energy_label: str = ""
    time_label: str = ""
    thermal: bool = False

    def __post_init__(self) -> None:
        for name in ("length", "mass", "energy"):
            x = getattr(self, name)
            if isinstance(x, bool) or not isinstance(x, int | float) or not 0 < x < math.inf:
                raise InputError(
                    f"UnitSystem({name}=...) is the size of a unit in metres, kilograms or joules, not {x!r:.60}."
                )

    def __repr__(self) -> str:
        return f"<units {self.name}>"

    @property
    def sized(self) -> bool:
        """Whether the units have a size; reduced units have none."""
        return self != REDUCED

    # --- constants --------------------------------------------------------------------------------------------------
    @property
    def time(self) -> float:
        """The unit of time, in seconds."""
        return self.length * math.sqrt(self.mass / self.energy)

    @property
    def boltzmann(self) -> float:
        """k, in units of energy a kelvin; 1 where temperatures are energies."""
        return 1.0 if self.thermal else BOLTZMANN / self.energy

    @property
    def coulomb(self) -> float:
        """K with the energy K/r of two elementary charges, e²/(4π ε₀); 1 in reduced units."""
        if not self.sized:
            return 1.0
        return ELEMENTARY_CHARGE**2 / (4 * math.pi * VACUUM_PERMITTIVITY) / (self.energy * self.length)

    def kT(self, temperature: float) -> float:
        """The energy kT of a temperature in kelvin, in units of energy: what gm.GeometricLangevin takes."""
        x = as_array(temperature, "temperature", "kT")
        if not isinstance(x, Tracer) and np.any(x < 0):
            raise InputError(f"kT(temperature={temperature!r:.60}): a temperature must be a number of at least 0.")
        return self.boltzmann * temperature

    def temperature(self, energy: float) -> float:
        """The temperature in kelvin with kT = energy."""
        return energy / self.boltzmann

    # --- conversions ------------------------------------------------------------------------------------------------
    def size(self, quantity: str) -> float:
        """The unit of a quantity in SI units."""
        if not self.sized:
            raise InputError(
                "reduced units have no size. To convert them, state those of the substance: "
                'gm.units.UnitSystem("argon", length=3.405e-10, mass=6.634e-26, energy=1.654e-21, thermal=True).'
            )
        if quantity == "temperature":
            return self.energy / BOLTZMANN if self.thermal else 1.0
        if quantity not in QUANTITIES:
            known = (*QUANTITIES, "temperature")
            raise InputError(f"there is no quantity {quantity!r:.60}." + _similar_and_known(quantity, known))
        length, mass, energy = QUANTITIES[quantity]
        return self.length**length * self.mass**mass * self.energy**energy

    def convert(self, x: Any, quantity: str, to: UnitSystem | str) -> Any:
        """A number or an array of these units in those of another system.

        quantity:  "energy", "length", "time", "mass", "temperature", "pressure", "velocity", "force", …
        to:        another system of units, or its name
        """
        other = checked(to, "to", "convert")
        if other is self:
            return x
        return x * (self.size(quantity) / other.size(quantity))

    def axis(self, what: str, quantity: str) -> str:
        """The label of an axis: axis("time", "time") is "time (10.18 fs)"."""
        unit = getattr(self, f"{quantity}_label", "")
        return f"{what} ({unit})" if unit else what


EV = UnitSystem("eV", ANGSTROM, DALTON, ELECTRONVOLT, "Å", "amu", "eV", "10.18 fs")  # the units of ASE
KCAL = UnitSystem("kcal/mol", ANGSTROM, DALTON, KILOCALORIE, "Å", "amu", "kcal/mol", "48.89 fs")
KJ = UnitSystem("kJ/mol", NANOMETRE, DALTON, KILOJOULE, "nm", "amu", "kJ/mol", "ps")  # the units of GROMACS, OpenMM
SI = UnitSystem("SI", 1.0, 1.0, 1.0, "m", "kg", "J", "s")
REDUCED = UnitSystem("reduced", 1.0, 1.0, 1.0, thermal=True)
SYSTEMS = {units.name: units for units in (EV, KCAL, KJ, SI, REDUCED)}


def all() -> dict[str, UnitSystem]:
    """The systems of units by name."""
    return dict(SYSTEMS)


def named(name: str) -> UnitSystem:
    """The system of units of this name: "eV", "kcal/mol", "kJ/mol", "SI" or "reduced"."""
    return checked(name, "name", "units.named")


def checked(units: Any, argument: str, callee: str) -> UnitSystem:
    """A system of units from itself or its name; an error of the function `callee` otherwise."""
    if isinstance(units, UnitSystem):
        return units
    if not isinstance(units, str) or units not in SYSTEMS:
        _unknown(units, argument, callee)
    return SYSTEMS[units]


def _unknown(units: Any, argument: str, callee: str) -> NoReturn:
    raise InputError(
        f"{callee}({argument}={units!r:.60}): there are no such units.{_similar_and_known(units, SYSTEMS)} Others are "
        "made by gm.units.UnitSystem(name, length, mass, energy), in metres, kilograms and joules."
    )


def _similar_and_known(name: Any, known: Iterable[str]) -> str:
    listed = f" Known: {', '.join(known)}."
    guess = nearest(name, known) if isinstance(name, str) else ""
    return guess + listed if guess.startswith(" Did") else listed


__all__ = ["EV", "KCAL", "KJ", "REDUCED", "SI", "UnitSystem", "all", "named"]
