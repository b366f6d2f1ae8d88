"""Frames as VTKHDF (version 2, UnstructuredGrid with steps), which ParaView opens as a film.

    /VTKHDF                  NumberOfPoints, NumberOfCells, NumberOfConnectivityIds, Connectivity, Offsets, Types
    /VTKHDF/Points           the positions of all nodes, frame after frame
    /VTKHDF/PointData        velocity, frame after frame; body, once
    /VTKHDF/FieldData        energy, one for each frame
    /VTKHDF/Steps            Values (the times), and where in the arrays above a frame begins

Cells do not change: all frames share them. An elastic body (gm.fem.solid) has its tetrahedra or triangles, with held
nodes; any other system whose q are positions has a vertex for each particle.
"""

from __future__ import annotations

from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..system.inertia import inertia
from ..system.system import Stated
from .frames import Frames, FrameTopology
from .hdf5_frames import Hdf5Frames, growing

VTK_TYPES = {1: 1, 3: 5, 4: 10}  # by the number of corners: vertex, triangle, tetrahedron
POINTS, VELOCITY, ENERGY = "Points", "PointData/velocity", "FieldData/energy"
STARTS = {"PointOffsets": "points", "PointDataOffsets/velocity": "points", "FieldDataOffsets/energy": "frames"}
ZEROS = ("PartOffsets", "CellOffsets", "ConnectivityIdOffsets", "PointDataOffsets/body")


class MeshTopology(FrameTopology):
    """Nodes and cells of a system, and how rows become positions of all nodes."""

    def __init__(self, system: Stated | None, q_shape: tuple[int, ...], what: str):
        mass, self.q_shape = getattr(system, "mass", None), tuple(q_shape)
        self.elastic = _elastic(system)
        if mass is None or not q_shape or q_shape[-1] not in (2, 3):
            raise InputError(
                f"{what} is for elastic bodies and for particles, with q of shape (n, 3) or (n, 2), not {self.q_shape}."
            )
        self.velocity = jax.vmap(inertia(mass, self.q_shape).velocity)
        if self.elastic is None:
            self.count = int(np.prod(q_shape[:-1]))
            self.cells, self.bodies = np.arange(self.count)[:, None], np.arange(self.count)
        else:
            mesh = self.elastic.mesh
            self.count, self.cells, self.bodies = len(mesh.nodes), mesh.cells, mesh.bodies

    def frames(self, rows: dict[str, Any], t: np.ndarray, first: int, save_every: int) -> Frames:
        p = np.asarray(rows["p"])
        positions = self._nodes(jnp.asarray(rows["q"]), jnp.asarray(t))
        velocities = self._rates(self.velocity(jnp.asarray(p)), positions)
        steps = (first + np.arange(len(t))) * save_every
        return Frames(steps, np.asarray(t), positions, p, velocities, np.asarray(rows["energy"]))

    def _nodes(self, q: Any, t: Any) -> np.ndarray:
        """(frames, nodes, 3) from q."""
        if self.elastic is not None:
            q = jax.vmap(self.elastic.positions)(q, t)
        return _in_space(np.asarray(q).reshape(len(q), self.count, -1))

    def _rates(self, v: Any, positions: np.ndarray) -> np.ndarray:
        """The velocities of all nodes; those of held nodes are shown as 0."""
        held = None if self.elastic is None else self.elastic.held
        if held is None:
            return _in_space(np.asarray(v).reshape(len(v), self.count, -1))
        every = np.zeros_like(positions)
        every[:, np.asarray(held.free), : v.shape[-1]] = v
        return every


def _elastic(system: Any) -> Any:
    """The part of the system's energy that has a mesh."""
    parts = (getattr(system, name, None) for name in ("potential", "fast"))
    return next((x for x in parts if hasattr(x, "mesh") and hasattr(x, "positions")), None)


def _in_space(x: np.ndarray) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, 0), (0, 3 - x.shape[-1])))


class VTKHDF(Hdf5Frames):
    """A VTKHDF file."""

    root, topology_class = "VTKHDF", MeshTopology

    def describe(self) -> None:
        _describe(self.file, self.topology)

    def complete(self) -> int:
        root: Any = self.file[self.root]
        return min(len(root["Steps/Values"]), len(root[POINTS]) // self.topology.count)

    def _resize(self, count: int) -> None:
        root: Any = self.file["VTKHDF"]
        for name in (POINTS, VELOCITY):
            root[name].resize(count * self.topology.count, axis=0)
        for name in ("NumberOfParts", "Values", *STARTS, *ZEROS):
            root[f"Steps/{name}"].resize(count, axis=0)
        root[ENERGY].resize(count, axis=0)
        root["Steps"].attrs["NSteps"] = count
        self.count = count

    def append(self, frames: Frames) -> None:
        begin, end, n = self.count, self.count + len(frames.t), self.topology.count
        self._resize(end)
        root: Any = self.file["VTKHDF"]
        root[POINTS][begin * n : end * n] = frames.positions.reshape(-1, 3)
        root[VELOCITY][begin * n : end * n] = frames.velocities.reshape(-1, 3)
        root[ENERGY][begin:end] = frames.energy
        steps = root["Steps"]
        steps["Values"][begin:end], steps["NumberOfParts"][begin:end] = frames.t, 1
        for name, unit in STARTS.items():
            first = np.arange(begin, end) * (n if unit == "points" else 1)
            steps[name][begin:end] = first.reshape(-1, *[1] * (steps[name].ndim - 1))

    def cut(self, count: int) -> None:
        self._resize(count)


def _describe(file: h5py.File, topology: MeshTopology) -> None:
    """Everything but the frames."""
    root = file.create_group("VTKHDF")
    root.attrs["Version"] = np.array([2, 0])
    root.attrs.create("Type", b"UnstructuredGrid", dtype=h5py.string_dtype("ascii", len("UnstructuredGrid")))
    cells, corners = topology.cells, topology.cells.shape[1]
    for name, number in (("Points", topology.count), ("Cells", len(cells)), ("ConnectivityIds", cells.size)):
        root[f"NumberOf{name}"] = np.array([number])
    root["Connectivity"] = cells.ravel().astype(np.int64)
    root["Offsets"] = np.arange(len(cells) + 1, dtype=np.int64) * corners
    root["Types"] = np.full(len(cells), VTK_TYPES[corners], np.uint8)
    root["PointData/body"] = topology.bodies.astype(np.int64)
    for name in (POINTS, VELOCITY):
        growing(root, name, (3,), float)
    growing(root, ENERGY, (), float)
    steps = root.create_group("Steps")
    steps.attrs["NSteps"] = 0
    growing(steps, "Values", (), float)
    growing(steps, "NumberOfParts", (), np.int64)
    for name in (*STARTS, *ZEROS):
        # Those of cells have a column for each kind of cells, of which there is one.
        growing(steps, name, (1,) if name in ("CellOffsets", "ConnectivityIdOffsets") else (), np.int64)
