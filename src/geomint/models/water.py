"""Water: droplets of rigid molecules, or of molecules held by stiff springs.

Start with `water`. water_kinds.py has the constants of TIP3P, SPC/E and TIP4P, droplets.py the initial data.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..md import Atoms, PairPotential
from ..methods import StiffZhangSkeel
from ..numerics.module import Module
from ..system import units as unit_systems
from ..system.checks import flag, one_of
from ..system.constraints import RigidMolecules
from ..system.penalty import penalize
from ..system.symmetries import Rotation, Translation
from ..system.system import System
from ..system.units import UnitSystem
from .base import Model, NotNegative, Positive, Seed, count, model
from .droplets import droplet, thermal
from .water_kinds import KINDS, MASSES, Kind

SIDES = ((0, 1), (0, 2), (1, 2))
MOST = 50_000  # molecules
OVERLAP = 0.7  # ångströms between charges of different molecules; in liquid water they are at least 1.4 apart


class WaterEnergy(Module):
    """U = Σ_{a<b} (Σ_ij K e_i e_j / r_{ai,bj} + A/r_OO¹² − C/r_OO⁶) over pairs of molecules, q of shape (n, 3, 3).

    Charges are at sites that are linear functions of the atoms, so that the force on a massless site is distributed
    onto the three atoms of its molecule. The charges are constants of the compiled program.
    """

    kind: Kind = eqx.field(static=True)
    units: UnitSystem = eqx.field(static=True)

    def sites(self, q: Array) -> Array:
        """The positions of the charges, (3n, 3)."""
        share = self.kind.share
        if not share:
            return q.reshape(-1, 3)
        site = (1 - 2 * share) * q[:, 0] + share * (q[:, 1] + q[:, 2])
        return jnp.concatenate([site[:, None], q[:, 1:]], axis=1).reshape(-1, 3)

    def __call__(self, q: Array) -> Array:
        coulomb, oxygens = _pairs(len(q), self.kind, self.units)
        return coulomb(self.sites(q)) + oxygens(q[:, 0])

    def explain(self, q: Any) -> str:
        """Which charges of different molecules are so close that the energy has no meaning, and how close."""
        from scipy.spatial import KDTree  # takes a while to load

        sites = np.asarray(self.sites(jnp.asarray(q))) * (self.units.length / unit_systems.ANGSTROM)
        if not np.all(np.isfinite(sites)):
            return ""
        pairs = KDTree(sites).query_pairs(OVERLAP, output_type="ndarray")
        pairs = pairs[pairs[:, 0] // 3 != pairs[:, 1] // 3]
        if not len(pairs):
            return ""
        apart = np.linalg.norm(sites[pairs[:, 0]] - sites[pairs[:, 1]], axis=1)
        i, j = np.sort(pairs[np.argmin(apart)])
        names = ("the oxygen", "hydrogen 1", "hydrogen 2")
        named = " and ".join(f"{names[k % 3]} of molecule {k // 3}" for k in (i, j))
        more = f", and {len(pairs) - 1} more pairs overlap" if len(pairs) > 1 else ""
        return f"{named} are at the distance {apart.min():.3g} Å{more}; move the molecules apart"


@functools.lru_cache(64)
def _pairs(n: int, kind: Kind, units: UnitSystem) -> tuple[PairPotential, PairPotential]:
    """The potentials of the charges and of the oxygens."""
    length, energy = (unit_systems.KCAL.convert(1.0, x, units) for x in ("length", "energy"))
    repulsion, attraction = kind.repulsion * energy * length**12, kind.attraction * energy * length**6
    charges = np.tile([-2 * kind.charge, kind.charge, kind.charge], n)

    def lennard_jones(s: Array) -> Array:
        sixth = 1 / (s * s * s)
        return sixth * (repulsion * sixth - attraction)

    def electrostatic(r: Array, a: Any, b: Any) -> Array:
        return units.coulomb * a["charge"] * b["charge"] / r

    return (
        PairPotential(electrostatic, sites={"charge": charges}, molecules=3),
        PairPotential(lennard_jones, squared=True),
    )


def _units(x: Any, name: str, callee: str) -> Any:
    """Units with a size. Those of geomint by their name, with which an archive can make the model again."""
    found = unit_systems.checked(x, name, callee)
    if not found.sized:
        raise InputError(f"{callee}({name}={found.name!r}): atoms need units with a size, such as 'eV'.")
    return found.name if unit_systems.SYSTEMS.get(found.name) == found else found


@model
def water(
    n: Annotated[int, count(1, MOST)] = 1,
    kind: Annotated[str, one_of(*KINDS)] = "tip3p",
    rigid: Annotated[bool, flag] = True,
    units: Annotated[str, _units] = "eV",
    temperature: NotNegative = 200.0,
    omega: Positive = 20.0,
    seed: Seed = 0,
) -> Model:
    """n water molecules in free space, q of shape (n, 3, 3) with the oxygen first:

    U = Σ_{a<b} (Σ_ij K e_i e_j / r_{ai,bj} + A/r_OO¹² − C/r_OO⁶).

    kind:         "tip3p"; "spce"; or "tip4p", whose negative charge is at a massless site, from which the force is
                  distributed onto the three atoms
    rigid:        True: the three distances of a molecule are constraints, which methods solve in closed form
                  (SETTLE). False: stiff springs ½ω²g² in their place, g = r² − L² of the three distances (Tao and
                  Owhadi's (4.4)), as the fast part of the system
    units:        "eV" (Å, amu, 10.18 fs), "kcal/mol" (Å, amu, 48.89 fs), "kJ/mol" (nm, amu, ps), or a
                  gm.units.UnitSystem
    temperature:  of the initial velocities, in kelvin
    omega:        ω of the springs, in √eV/Å² whatever the units are

    One molecule tumbles and flies freely. More are a droplet: a piece of ice, up to 30 molecules relaxed to a minimum
    of U near it. The velocities are those of rigid molecules, with no total momentum and no angular momentum, and a
    kinetic energy of kT/2 for each of the 6n − 6 degrees of freedom; about half of it goes into the potential.
    """
    system_of_units = unit_systems.checked(units, "units", "water")
    of_kind = KINDS[kind]
    length = unit_systems.EV.convert(1.0, "length", system_of_units)
    q0 = droplet(n, of_kind)
    kT = unit_systems.EV.kT(temperature)
    v0 = thermal(q0, kT, np.random.default_rng(seed))
    system = System(
        WaterEnergy(of_kind, system_of_units) if n > 1 else None,
        mass=unit_systems.EV.convert(MASSES[:, None], "mass", system_of_units),
        constraint=RigidMolecules(SIDES, of_kind.sides * length),
        symmetries=(Translation(), Rotation()),
        atoms=Atoms("OHH", molecule="HOH", units=system_of_units),
    )
    dt = float(f"{1e-15 / system_of_units.time:.1g}")  # about a femtosecond
    what = f"{'rigid ' if rigid else ''}{kind.upper()} water molecule{'s' if n > 1 else ''}"
    settings: dict[str, Any] = {"dt": dt, "t_end": 2000 * dt}
    if not rigid:
        stiff = omega * unit_systems.EV.convert(1.0, "energy", system_of_units) ** 0.5 / length**2
        system = penalize(system, stiff)
        settings = {"method": StiffZhangSkeel(), "dt": dt / 2, "t_end": 1000 * dt}
    return Model(
        system,
        q0 * length,
        unit_systems.EV.convert(v0, "velocity", system_of_units),
        "water",
        f"a {what} tumbling in space" if n == 1 else f"a droplet of {n} {what}",
        **settings,
    )
