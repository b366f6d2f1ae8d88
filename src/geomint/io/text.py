"""Frames as text: extended XYZ and PDB, in the dialects that ASE writes.

The lines are formatted here, a frame at a time: ASE's writers take 20 ms (XYZ) and 17 ms (PDB) for a frame of 3000
atoms, these 8 ms and 4 ms. tests/io/test_frames.py compares them with ASE's byte for byte.
All frames have the same number of lines, by which a file is cut.
"""

from __future__ import annotations

import abc
import os
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from ..errors import InputError
from .files import synchronise
from .frames import FrameFile, Frames, Topology

BLOCK = 2**20  # bytes that are read at a time to count lines


class TextFrames(FrameFile):
    """A file of frames that have `lines` lines each."""

    lines: int

    def __init__(self, path: Path, topology: Topology, file: BinaryIO, count: int):
        self.path, self.topology, self.file, self.count = path, topology, file, count
        self.prepare()

    @classmethod
    def create(cls, path: Path, topology: Topology) -> Self:
        return cls(path, topology, path.open("x+b"), 0)

    @classmethod
    def reopen(cls, path: Path, topology: Topology, count: int) -> Self | None:
        try:
            opened = cls(path, topology, path.open("r+b"), count)
        except FileNotFoundError:
            return None
        if opened._end_of(count) is None:
            opened.close()
            return None
        opened.cut(count)
        return opened

    @abc.abstractmethod
    def prepare(self) -> None:
        """Set `lines` and the parts of a frame that are the same in all of them."""

    @abc.abstractmethod
    def text(self, frames: Frames, k: int) -> str:
        """The k-th of these frames, which will be frame self.count of the file."""

    def append(self, frames: Frames) -> None:
        for k in range(len(frames.t)):
            self.file.write(self.text(frames, k).encode("ascii"))
            self.count += 1

    def synchronise(self) -> None:
        self.file.flush()
        synchronise(self.file.fileno())

    def cut(self, count: int) -> None:
        self.file.flush()
        end = self._end_of(count)
        if end is None:
            raise OSError(f"it has fewer than {count} frames")
        os.truncate(self.file.fileno() if os.name != "nt" else self.path, end)
        self.file.seek(end)
        self.count = count

    def _end_of(self, count: int) -> int | None:
        """The number of bytes of the first `count` frames; None where there are fewer."""
        missing, at = count * self.lines, 0
        self.file.seek(0)
        while missing > 0:
            block = self.file.read(BLOCK)
            if not block:
                return None
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            if len(ends) >= missing:
                return at + int(ends[missing - 1]) + 1
            missing, at = missing - len(ends), at + len(block)
        return at

    def close(self) -> None:
        self.file.close()


class ExtendedXYZ(TextFrames):
    """Symbols, positions and momenta, with time, energy and box in the second line of a frame, and masses where
    each atom has one. Momenta are in ASE's unit, √(amu eV), times in
    picoseconds, where the system has units."""

    def prepare(self) -> None:
        topology, cell = self.topology, ""
        self.lines = len(topology.symbols) + 2
        if topology.edges is not None:
            cell = f'Lattice="{" ".join(str(x) for x in np.diag(topology.edges).ravel().tolist())}" '
        masses = topology.masses
        columns = "species:S:1:pos:R:3:momenta:R:3" + ":masses:R:1" * (masses is not None)
        periodic = " ".join("FT"[axis] for axis in topology.periodic)
        self.head = f'{len(topology.symbols)}\n{cell}Properties={columns} time=%r total_energy=%r pbc="{periodic}"\n'
        ends = [""] * len(topology.symbols) if masses is None else [f" {m:16.8f}" for m in masses]
        numbers = " ".join(["%16.8f"] * 6)
        self.body = "".join(f"{s:<2} {numbers}{end}\n" for s, end in zip(topology.symbols, ends, strict=True))

    def text(self, frames: Frames, k: int) -> str:
        numbers = np.concatenate([frames.positions[k], frames.momenta[k]], axis=1)
        return self.head % (float(frames.t[k]), float(frames.energy[k])) + self.body % tuple(numbers.ravel().tolist())


class PDB(TextFrames):
    """Positions with three digits behind the point, a MODEL for each frame; molecules are residues."""

    LIMITS = -999.9995, 9999.9995  # what eight columns hold

    def prepare(self) -> None:
        topology = self.topology
        self.lines, self.head = len(topology.symbols) + 2, ""
        if topology.edges is not None:
            self.lines += 1
            edges = "".join(f"{x:9.3f}" for x in topology.edges)
            self.head = f"CRYST1{edges}  90.00  90.00  90.00 P 1\n"
        name, lines = topology.atoms.molecule.ljust(4), []
        for i, (symbol, molecule) in enumerate(zip(topology.symbols, topology.molecules.tolist(), strict=True)):
            atom = f"ATOM  {(i + 1) % 100000:5d} {symbol:>4} {name:>4} {molecule % 9999 + 1:4d}    "
            lines.append(atom + f"%8.3f%8.3f%8.3f  1.00  0.00          {symbol.upper():>2}  \n")
        self.body = "".join(lines) + "ENDMDL\n"

    def text(self, frames: Frames, k: int) -> str:
        x = frames.positions[k]
        if not np.all((x > self.LIMITS[0]) & (x < self.LIMITS[1])):
            worst = x.flat[np.argmax(np.abs(x))]
            raise InputError(
                f"{self.path}: a coordinate of {worst:g} does not fit the columns of a PDB file, which hold "
                "-999.999 to 9999.999; write .xyz or .h5md instead."
            )
        return f"{self.head}MODEL     {self.count + 1}\n" + self.body % tuple(x.ravel().tolist())
