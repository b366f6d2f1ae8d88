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
from ..fem.elastic import elastic_body
from ..rigid.assembly import Assembly
from ..system.inertia import inertia
from ..system.spaces import Flat, space_of
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
        self.elastic = elastic_body(system)
        if mass is None or not q_shape or q_shape[-1] not in (2, 3):
            raise InputError(
                f"{what} is for elastic bodies and for particles, with q of shape (n, 3) or (n, 2), not {self.q_shape}."
            )
        if isinstance(system, Assembly) or not isinstance(space_of(system), Flat):
            raise InputError(f"{what} is for elastic bodies and for particles; here q has axes of rigid bodies too.")
        self.velocity = jax.vmap(inertia(mass, self.q_shape).velocity)
        if self.elastic is None:
            self.count = int(np.prod(q_shape[:-1]))
            self.cells, self.bodies = np.arange(self.count)[:, None], np.arange(self.count)
        else:
            mesh = self.elastic.mesh
            self.count, self.cells, self.bodies = len(mesh.nodes), mesh.cells, mesh.bodies

    def frames(self, rows: dict[str, Any], t: np.ndarray, first: int, save_every: int) -> Frames:
        p = np.asarray(rows["p"])
        q, v = jnp.asarray(rows["q"]), self.velocity(jnp.asarray(p))
        if self.elastic is not None:
            q, v = jax.vmap(self._of_all_nodes)(q, v, jnp.asarray(t, float))
        positions, velocities = (_in_space(np.asarray(x).reshape(len(t), self.count, -1)) for x in (q, v))
        steps = (first + np.arange(len(t))) * save_every
        return Frames(steps, np.asarray(t), positions, p, velocities, np.asarray(rows["energy"]))

    def _of_all_nodes(self, q: Any, v: Any, t: Any) -> tuple[Any, Any]:
        """Positions and velocities; held nodes move along their path, or not at all."""
        assert self.elastic is not None
        return jax.jvp(self.elastic.positions, (q, t), (v, jnp.ones_like(t)))


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
