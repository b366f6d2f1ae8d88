"""Meshes of linear simplices: tetrahedra in space, triangles in the plane; checked on entry."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..numerics.keywords import checked_keywords
from ..system.checks import as_array, shown
from . import mesh_checks
from .mesh_checks import faces_of, signed_volumes

CELL_TYPES = {3: "tetra", 2: "triangle"}  # meshio's names, by dimension


class Mesh:
    """A mesh of tetrahedra (nodes in space) or triangles (nodes in the plane). It does not change.

    nodes:   positions of the nodes, (n, 3) or (n, 2); in a solid, those without stress.
    cells:   (m, 4) or (m, 3) numbers of nodes, so ordered that volumes are positive.
    orient:  exchange two nodes of each cell of negative volume instead of refusing it.

    A mesh that is not one is refused, and the error names the cells or nodes: flat or inverted cells, nodes without
    a cell, cells or faces that occur twice, numbers out of range.
    """

    nodes: np.ndarray
    cells: np.ndarray

    @checked_keywords
    def __init__(self, nodes: Any, cells: Any, orient: bool = False):
        self.nodes, self.cells = mesh_checks.checked_arrays(nodes, cells)
        if orient:
            inverted = signed_volumes(self.nodes, self.cells) < 0
            self.cells[inverted] = self.cells[inverted][:, [1, 0, *range(2, self.cells.shape[1])]]
        mesh_checks.check(self.nodes, self.cells)
        for x in (self.nodes, self.cells):
            x.setflags(write=False)

    @functools.cached_property
    def _digest(self) -> bytes:
        return hashlib.sha256(self.nodes.tobytes() + self.cells.tobytes()).digest()

    def __hash__(self) -> int:
        return hash(self._digest)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Mesh) and self._digest == other._digest)

    def __repr__(self) -> str:
        return f"<Mesh of {len(self.cells)} {CELL_TYPES[self.dim]} cells and {len(self.nodes)} nodes>"

    @property
    def dim(self) -> int:
        """3 for tetrahedra, 2 for triangles."""
        return self.nodes.shape[1]

    @functools.cached_property
    def volumes(self) -> np.ndarray:
        """Of the cells, (m,); areas in the plane."""
        return signed_volumes(self.nodes, self.cells)

    @functools.cached_property
    def shape_gradients(self) -> np.ndarray:
        """(m, dim + 1, dim): the gradients of the functions that are linear in each cell and 1 at one of its nodes."""
        edges = self.nodes[self.cells[:, 1:]] - self.nodes[self.cells[:, :1]]
        inverse = np.linalg.inv(np.swapaxes(edges, 1, 2))  # row a is the gradient of the function of node a + 1
        return np.concatenate([-inverse.sum(axis=1, keepdims=True), inverse], axis=1)

    @functools.cached_property
    def _boundary(self) -> tuple[np.ndarray, np.ndarray]:
        faces = faces_of(self.cells)
        key = np.sort(faces.reshape(-1, self.dim), axis=1)
        first, _, count = mesh_checks.equal_rows(key)
        places = np.sort(first[count == 1])
        return faces.reshape(-1, self.dim)[places], places // faces.shape[1]

    @property
    def boundary_faces(self) -> np.ndarray:
        """(k, dim) numbers of nodes of the triangles (edges in the plane) of one cell only, oriented outward: seen from
        outside a triangle turns counterclockwise, and an edge has the inside on its left."""
        return self._boundary[0]

    @property
    def boundary_cells(self) -> np.ndarray:
        """(k,) the cell of each of `boundary_faces`."""
        return self._boundary[1]

    @functools.cached_property
    def boundary_nodes(self) -> np.ndarray:
        """The nodes of `boundary_faces`, ascending."""
        return np.unique(self.boundary_faces)

    @functools.cached_property
    def bodies(self) -> np.ndarray:
        """(n,) which connected part each node belongs to, numbered from 0."""
        from scipy import sparse
        from scipy.sparse.csgraph import connected_components

        i, j = np.repeat(self.cells[:, :1], self.cells.shape[1] - 1, axis=1).ravel(), self.cells[:, 1:].ravel()
        graph = sparse.coo_matrix((np.ones(len(i), bool), (i, j)), shape=(len(self.nodes),) * 2)
        return connected_components(graph, directed=False)[1]

    def where(self, condition: Callable[[np.ndarray], Any]) -> np.ndarray:
        """The numbers of the nodes for which condition(x) holds: mesh.where(lambda x: x[:, 2] < 0).

        condition: a function of all positions x (n, dim) that returns a boolean for each node.
        """
        chosen = np.asarray(condition(self.nodes))
        if chosen.shape != (len(self.nodes),) or chosen.dtype != bool:
            raise InputError(
                f"Mesh.where(condition): the function must return {len(self.nodes)} booleans, not {shown(chosen)}."
            )
        return np.flatnonzero(chosen)

    def moved(self, by: Sequence[float]) -> Mesh:
        """The mesh translated.

        by: the displacement.
        """
        along = as_array(by, "by", "Mesh.moved")
        if along.shape != (self.dim,):
            raise InputError(f"Mesh.moved(by=...): give {self.dim} numbers, not {shown(by)}.")
        return Mesh(self.nodes + along, self.cells)

    def mapped(self, map: Callable[[np.ndarray], Any]) -> Mesh:
        """The mesh with nodes at map(x); cells that it inverts are refused.

        map: a function of all positions (n, dim) that returns new ones.
        """
        return Mesh(map(self.nodes), self.cells)

    @staticmethod
    def union(meshes: Iterable[Mesh]) -> Mesh:
        """Several bodies as one mesh; nodes and cells keep their order.

        meshes: the bodies. Nodes at the same place stay different.
        """
        listed = list(meshes) if isinstance(meshes, Iterable) else []
        if not listed or not all(isinstance(x, Mesh) and x.dim == listed[0].dim for x in listed):
            raise InputError("Mesh.union(meshes): give meshes of one dimension, at least one.")
        start = np.cumsum([0, *(len(x.nodes) for x in listed)])
        cells = [x.cells + s for x, s in zip(listed, start[:-1], strict=True)]
        return Mesh(np.concatenate([x.nodes for x in listed]), np.concatenate(cells))

    # --- other programs ---------------------------------------------------------------------------------------------
    @staticmethod
    def from_meshio(mesh: Any, orient: bool = True) -> Mesh:
        """From a meshio.Mesh, or a file that meshio reads (Gmsh, VTK, Abaqus, …). Its tetrahedra are taken, or where it
        has none its triangles, which must lie in a plane z = constant; other cells are left out, and nodes without
        a cell dropped.

        mesh:    a meshio.Mesh, or a path.
        orient:  exchange two nodes of cells of negative volume, since formats differ in the order.
        """
        if isinstance(mesh, str | Path):
            mesh = _read(mesh)
        by_type = mesh.cells_dict
        dim = next((d for d, name in CELL_TYPES.items() if len(by_type.get(name, ()))), None)
        if dim is None:
            found = ", ".join(by_type) or "no cells"
            raise InputError(f"Mesh.from_meshio: the mesh has neither tetra nor triangle cells, but {found}.")
        cells, points = np.asarray(by_type[CELL_TYPES[dim]], int), np.asarray(mesh.points, float)
        used, flat = np.unique(cells, return_inverse=True)
        points = points[used]
        if dim == 2 and points.shape[1] == 3 and np.ptp(points[:, 2]) > 1e-12 * np.max(np.ptp(points, axis=0)):
            raise InputError("Mesh.from_meshio: the triangles do not lie in a plane z = constant.")
        return Mesh(points[:, :dim], flat.reshape(cells.shape), orient=orient)

    def to_meshio(self, **data: Any) -> Any:
        """As a meshio.Mesh, which writes itself: mesh.to_meshio().write("body.vtu").

        data: passed on to meshio.Mesh, such as point_data={"displacement": u}.
        """
        points = np.pad(self.nodes, ((0, 0), (0, 3 - self.dim)))  # most formats store three coordinates
        return _meshio().Mesh(points, [(CELL_TYPES[self.dim], self.cells)], **data)


def checked_mesh(mesh: Any, callee: str) -> Mesh:
    if not isinstance(mesh, Mesh):
        raise InputError(
            f"{callee}(mesh=...) must be a gm.fem.Mesh, such as gm.fem.cube() or gm.fem.Mesh.from_meshio(path), "
            f"not {shown(mesh)}."
        )
    return mesh


def _read(path: str | Path) -> Any:
    """A file by meshio, which prints what it can't read and ends the process."""
    meshio, said = _meshio(), io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return meshio.read(path)
    except (Exception, SystemExit) as error:  # parsers raise whatever the file makes them
        why = "" if isinstance(error, SystemExit) else f"{error}"
        why = " ".join(f"{said.getvalue()} {why}".split())
        raise InputError(f"Mesh.from_meshio({str(path)!r}): meshio can't read this file. {why}".rstrip()) from None


def _meshio() -> Any:
    try:
        import meshio
    except ImportError:
        raise InputError("meshes of other programs are read and written by meshio: pip install geomint[fem].") from None
    return meshio
