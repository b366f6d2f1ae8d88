"""An ASE `Atoms` as the start of a run, and saved points as ASE `Atoms`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import GeomintError, InputError
from ..md.atoms import Atoms
from ..md.box import Box
from ..system.checks import shown
from ..system.units import UnitSystem
from .frames import Frames, Topology


def ase(what: str) -> Any:
    """The package, or an error that says how to install it."""
    try:
        import ase as package
    except ImportError:
        raise GeomintError(f"{what} needs the package ase: pip install geomint[md]") from None
    return package


class Start(NamedTuple):
    """What an ASE `Atoms` says of a system: gm.System(potential, mass=mass, atoms=atoms), q0 and v0."""

    q0: np.ndarray  # (n, 3)
    v0: np.ndarray
    mass: np.ndarray  # (n, 1)
    atoms: Atoms


def from_ase(atoms: Any, units: UnitSystem | str | None = None) -> Start:
    """Positions, velocities, masses and labels of an ASE `Atoms`.

    units: those of the system, as for gm.md.Atoms; None: the units of ASE, which are ångströms, electronvolts and
    atomic mass units, with √(amu/eV) Å = 10.18 fs as the unit of time.
    """
    package = ase("from_ase")
    if not isinstance(atoms, package.Atoms):
        raise InputError(f"from_ase(atoms=...) takes an ase.Atoms, not {shown(atoms)}.")
    if not len(atoms):
        raise InputError("from_ase(atoms=...): there are no atoms in it.")
    periodic, cell = np.asarray(atoms.pbc), np.asarray(atoms.cell)
    if periodic.any() and not (periodic.all() and np.all(cell == np.diag(np.diag(cell))) and np.all(np.diag(cell) > 0)):
        raise InputError(
            "from_ase(atoms=...): boxes are periodic along all three axes and have right angles, with edges along x, y "
            f"and z; this one is periodic along {periodic.tolist()}, with the cell {cell.tolist()}."
        )
    labels = Atoms(list(atoms.symbols), units=units)
    scales = labels.scales
    box = Box(np.diag(cell) / scales.length) if periodic.any() else None
    mass = np.asarray(atoms.get_masses())[:, None] / scales.mass
    v0 = np.asarray(atoms.get_momenta()) / scales.momentum / mass
    return Start(np.asarray(atoms.positions) / scales.length, v0, mass, Atoms(labels.symbols, box, units=labels.units))


def to_ase(topology: Topology, frames: Frames) -> list[Any]:
    """An ASE `Atoms` for each frame, with momenta, masses, box, and info["time"] and info["total_energy"]."""
    package = ase("to_ase")
    made = []
    for k in range(len(frames.t)):
        info = {"time": float(frames.t[k]), "total_energy": float(frames.energy[k])}
        atoms = package.Atoms(
            topology.symbols, frames.positions[k], cell=topology.edges, pbc=topology.periodic, info=info
        )
        atoms.set_momenta(frames.momenta[k])
        if topology.masses is not None:
            atoms.set_masses(topology.masses)
        made.append(atoms)
    return made
