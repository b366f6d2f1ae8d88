"""Frames: the saved points of a run as other programs read them, atoms with positions and velocities.

A format is a subclass of `FrameFile`: text.py has extended XYZ and PDB, h5md.py has H5MD, and frame_files.py chooses
one by the ending of the file name. A file of frames is written beside the archive of a run (sinks.py), which remains
the record of the run: it has all digits and the checkpoints. The frames are a function of the rows of the archive, so
that a file of frames can be cut back to any row, or be made again.
"""

from __future__ import annotations

import abc
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..md.atoms import Atoms, Scales, as_points
from ..system.inertia import inertia
from ..system.mass import mass_is_matrix
from ..system.system import Stated


class Frames(NamedTuple):
    """Some saved points, in the units of the file; the leading axis is that of saved points."""

    step: np.ndarray
    t: np.ndarray
    positions: np.ndarray  # (n, atoms, 3)
    momenta: np.ndarray
    velocities: np.ndarray
    energy: np.ndarray


class FrameTopology(abc.ABC):
    """What all frames of a run share, for one kind of files."""

    @abc.abstractmethod
    def __init__(self, system: Stated | None, q_shape: tuple[int, ...], what: str):
        """what: for the error where the system has no such frames, such as "x.xyz"."""

    @abc.abstractmethod
    def frames(self, rows: dict[str, Any], t: np.ndarray, first: int, save_every: int) -> Frames:
        """Frames of rows q, p and energy, of which the first is saved point number `first`."""


class Topology(FrameTopology):
    """What all frames of a run share: symbols, molecules, masses, box, and how rows become frames."""

    def __init__(self, system: Stated | None, q_shape: tuple[int, ...], what: str):
        """what: for the error where the system has no atoms, such as "x.xyz"."""
        atoms = getattr(system, "atoms", None)
        if not isinstance(atoms, Atoms):
            hint = 'gm.System(..., atoms=gm.md.Atoms("OHH")) names those of water'
            raise InputError(f"{what} needs to know which atoms the coordinates are: {hint}.")
        self.atoms, self.q_shape, self.scales = atoms, tuple(q_shape), atoms.scales
        self.symbols = atoms.of(self.q_shape)
        self.molecules = atoms.molecules(self.q_shape)
        self.mass = system.mass  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
        self.matrix = mass_is_matrix(self.mass, self.q_shape)

    @property
    def has_units(self) -> bool:
        return self.atoms.units is not None and self.atoms.units.sized

    @property
    def masses(self) -> np.ndarray | None:
        """One for each atom, in atomic mass units; None where the mass is a matrix, or differs along the axes."""
        if self.matrix:
            return None
        each = np.broadcast_to(self.mass, self.q_shape).reshape(-1, self.q_shape[-1])
        return each[:, 0] * self.scales.mass if np.all(each == each[:, :1]) else None

    @property
    def edges(self) -> np.ndarray | None:
        """Of the periodic box, (3,); 0 across the plane."""
        if self.atoms.box is None:
            return None
        return np.array([*self.atoms.box.lengths, 0.0][:3]) * self.scales.length

    @property
    def periodic(self) -> tuple[bool, bool, bool]:
        if self.atoms.box is None:
            return (False, False, False)
        return (True, True, len(self.atoms.box.lengths) == 3)

    def frames(self, rows: dict[str, Any], t: np.ndarray, first: int, save_every: int) -> Frames:
        """Frames of rows q, p and energy, of which the first is saved point number `first`."""
        scales: Scales = self.scales
        p = np.asarray(rows["p"])
        points = lambda x, unit: as_points(np.asarray(x), self.q_shape) * unit
        return Frames(
            (first + np.arange(len(t))) * save_every,
            np.asarray(t) * scales.time,
            points(rows["q"], scales.length),
            points(p, scales.momentum),
            points(self._velocities(p), scales.velocity),
            np.asarray(rows["energy"]) * scales.energy,
        )

    def _velocities(self, p: np.ndarray) -> np.ndarray:
        if not self.matrix:
            return p / np.asarray(self.mass)
        return np.asarray(jax.vmap(inertia(self.mass, self.q_shape).velocity)(jnp.asarray(p)))


class FrameFile(abc.ABC):
    """A file of frames, open for writing behind its last frame. `count` is the number of frames."""

    path: Path
    count: int
    topology_class: ClassVar[type[FrameTopology]] = Topology  # what `create` and `reopen` are given

    @classmethod
    @abc.abstractmethod
    def create(cls, path: Path, topology: Any) -> Self:
        """A new file without frames; FileExistsError where there is one."""

    @classmethod
    @abc.abstractmethod
    def reopen(cls, path: Path, topology: Any, count: int) -> Self | None:
        """The file, cut behind its first `count` frames; None where it does not have so many, or is damaged."""

    @abc.abstractmethod
    def append(self, frames: Frames) -> None:
        """Write frames behind the last one."""

    @abc.abstractmethod
    def synchronise(self) -> None:
        """Wait until all frames are on the disk."""

    @abc.abstractmethod
    def cut(self, count: int) -> None:
        """Drop all but the first `count` frames."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close; a second call does nothing."""
