"""Frames as H5MD 1.1 (de Buyl, Colberg and Höfling 2014), which MDAnalysis and others open.

/h5md                                     version, author, creator
/particles/trajectory/box                 dimension, boundary; edges where there is a box
/particles/trajectory/position, velocity  step, time, value
/particles/trajectory/species, mass       atomic numbers; masses
/observables/energy                       step, time, value
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from ..md.atoms import ELEMENTS
from .frames import Frames, Topology
from .hdf5_frames import Hdf5Frames, growing

PARTICLES = "particles/trajectory"
STEP, TIME = f"{PARTICLES}/position/step", f"{PARTICLES}/position/time"  # which all other elements link to
EDGES = f"{PARTICLES}/box/edges/value"


class H5MD(Hdf5Frames):
    """An H5MD file."""

    root = "h5md"

    def describe(self) -> None:
        _describe(self.file, self.topology)

    def complete(self) -> int:
        return min(len(x) for x in self._series())

    def _series(self) -> list[Any]:
        """All datasets with a row for each frame."""
        names = [STEP, TIME, EDGES, *(f"{PARTICLES}/{name}/value" for name in ("position", "velocity"))]
        return [self.file[name] for name in (*names, "observables/energy/value") if name in self.file]

    def append(self, frames: Frames) -> None:
        begin, end = self.count, self.count + len(frames.t)
        for x in self._series():
            x.resize(end, axis=0)
        rows = {
            STEP: frames.step,
            TIME: frames.t,
            f"{PARTICLES}/position/value": frames.positions,
            f"{PARTICLES}/velocity/value": frames.velocities,
            "observables/energy/value": frames.energy,
        }
        if self.topology.edges is not None:
            rows[EDGES] = np.broadcast_to(
                self.topology.edges, (len(frames.t), 3)
            )  # MDAnalysis reads one for each frame
        for name, x in rows.items():
            series: Any = self.file[name]
            series[begin:end] = x
        self.count = end

    def cut(self, count: int) -> None:
        for x in self._series():
            x.resize(count, axis=0)
        self.count = count


def _describe(file: h5py.File, topology: Topology) -> None:
    """Everything but the frames."""
    from importlib.metadata import version

    about = file.create_group("h5md")
    about.attrs["version"] = np.array([1, 1])
    about.create_group("author").attrs["name"] = "N/A"
    creator = about.create_group("creator").attrs
    creator["name"], creator["version"] = "geomint", version("geomint")
    if topology.has_units:
        about.create_group("modules/units").attrs["version"] = np.array([1, 0])
    n = len(topology.symbols)
    units = ("Angstrom", "ps", "Angstrom ps-1", "eV", "u") if topology.has_units else (None,) * 5
    length, time, speed, energy, mass = units
    _series(file, STEP, (), np.int64)
    _series(file, TIME, (), float, time)
    _series(file, f"{PARTICLES}/position/value", (n, 3), float, length)
    _series(file, f"{PARTICLES}/velocity/value", (n, 3), float, speed)
    _series(file, "observables/energy/value", (), float, energy)
    box = file.create_group(f"{PARTICLES}/box")
    box.attrs["dimension"] = 3
    box.attrs["boundary"] = np.array([b"periodic" if axis else b"none" for axis in topology.periodic])
    linked = ["velocity", *(["box/edges"] if topology.edges is not None else [])]
    if topology.edges is not None:
        _series(file, EDGES, (3,), float, length)
    for group in (*(f"{PARTICLES}/{name}" for name in linked), "observables/energy"):
        file[f"{group}/step"], file[f"{group}/time"] = file[STEP], file[TIME]
    file[f"{PARTICLES}/species"] = np.array([ELEMENTS.index(symbol) for symbol in topology.symbols])
    if topology.masses is not None:
        file[f"{PARTICLES}/mass"] = topology.masses
        if mass:
            file[f"{PARTICLES}/mass"].attrs["unit"] = mass


def _series(file: h5py.File, name: str, shape: tuple[int, ...], dtype: Any, unit: str | None = None) -> None:
    made = growing(file, name, shape, dtype)
    if unit is not None:
        made.attrs["unit"] = unit
