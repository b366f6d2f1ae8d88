"""Meshes: the paper's cube, balls and boxes, and what is refused on entry."""

import re

import numpy as np
import pytest

import geomint as gm
from geomint import fem

UNIT = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])
TWO = [[0, 1, 2, 3], [4, 2, 1, 3]]


def enclosed(mesh):
    """The vector sum of the boundary's normals, and the volume by the divergence theorem."""
    x = mesh.nodes[mesh.boundary_faces]
    along = x[:, 1:] - x[:, :1]
    if mesh.dim == 3:
        normal = np.cross(along[:, 0], along[:, 1]) / 2
    else:
        normal = np.stack([along[:, 0, 1], -along[:, 0, 0]], axis=1)
    return np.sum(normal, axis=0), np.sum(normal * x.mean(axis=1)) / mesh.dim


def test_cube_of_the_paper():
    mesh = fem.cube()
    assert (len(mesh.nodes), len(mesh.cells), len(mesh.boundary_faces)) == (2969, 12288, 1536)
    np.testing.assert_allclose(mesh.volumes, 1 / 12288, rtol=1e-12)
    np.testing.assert_allclose(fem.solid(mesh, fem.NeoHookean(1.0, 1.0), 0.1).mass.sum(), 0.1, rtol=1e-12)


@pytest.mark.parametrize(
    ("mesh", "volume", "cells"),
    [
        (fem.box((1, 2, 3), (1, 2, 2)), 6.0, 96),
        (fem.box((1, 2), (3, 4)), 2.0, 48),
        (fem.ball(2.0, 4), None, 1280),
        (fem.ball(1.0, 5, dim=2), None, 150),
        (fem.Mesh.union([fem.cube(1), fem.cube(1).moved((1, 0, 0))]), 2.0, 48),
    ],
)
def test_boundary_is_closed_and_outward(mesh, volume, cells):
    total, inside = enclosed(mesh)
    np.testing.assert_allclose(total, 0, atol=1e-12)
    np.testing.assert_allclose(inside, mesh.volumes.sum(), rtol=1e-12)
    assert len(mesh.cells) == cells
    if volume is not None:
        np.testing.assert_allclose(inside, volume, rtol=1e-12)
    else:  # a polyhedron in the ball, with its corners on the sphere
        exact = {3: 4 / 3 * np.pi * 8, 2: np.pi}[mesh.dim]
        assert 0.95 * exact < inside < exact
        np.testing.assert_allclose(np.linalg.norm(mesh.nodes[mesh.boundary_nodes], axis=1), mesh.dim - 1, rtol=1e-12)
        assert mesh.volumes.max() < 5 * mesh.volumes.min()


def test_bodies_and_shape_gradients():
    mesh = fem.Mesh.union([fem.cube(1), fem.ball(layers=1).moved((3, 0, 0))])
    assert np.array_equal(mesh.bodies, np.repeat([0, 1], [len(fem.cube(1).nodes), 13]))
    # Σ_a x_a ⊗ ∇N_a is the gradient of x, and shape functions add up to 1.
    F = np.einsum("eai,eaj->eij", mesh.nodes[mesh.cells], mesh.shape_gradients)
    np.testing.assert_allclose(F, np.broadcast_to(np.eye(3), F.shape), atol=1e-12)
    np.testing.assert_allclose(mesh.shape_gradients.sum(axis=1), 0, atol=1e-12)
    assert np.array_equal(mesh.where(lambda x: x[:, 0] > 3.9), len(fem.cube(1).nodes) + np.flatnonzero(
        fem.ball(layers=1).nodes[:, 0] > 0.9))  # fmt: skip
    assert np.array_equal(mesh.boundary_faces[-1:] // len(fem.cube(1).nodes), [[1, 1, 1]])


@pytest.mark.parametrize(
    ("nodes", "cells", "named"),
    [
        (UNIT, [TWO[0], [2, 4, 1, 3]], "cell 1 is inverted.*orient=True"),
        (UNIT * [1, 1, 0], [TWO[0], TWO[1]], "cells 0, 1 are flat"),
        (UNIT, TWO[:1], "node 4 is part of no cell"),
        (UNIT, [*TWO, [3, 1, 0, 2]], "cell 2 is made of the same nodes as an earlier cell"),
        (UNIT, [TWO[0], [4, 2, 2, 3]], "cell 1 is made of a node that occurs twice"),
        (UNIT, [TWO[0], [5, 2, 1, 3]], "cell 1 is made of nodes that do not exist"),
        (np.where(UNIT == 0, np.nan, UNIT), TWO, "nodes 0, 1, 2, 3 are not finite"),
        # Three tetrahedra at the face 1 2 3; and two on the same side of 0 1 2.
        (np.vstack([UNIT, [[2, 2, 2]]]), [*TWO, [5, 2, 1, 3]], r"cells 0, 1, 2 share the face \[1, 2, 3\]"),
        (np.vstack([UNIT[:4], [[0.2, 0.2, 0.5]]]), [TWO[0], [0, 1, 2, 4]], r"cells 0, 1 share the face \[0, 1, 2\]"),
        (UNIT[:, :2], TWO, r"shape \(m, 3\)"),
    ],
)
def test_bad_meshes_are_named(nodes, cells, named):
    with pytest.raises(gm.InputError, match=named):
        fem.Mesh(nodes, cells)


def test_orientation_can_be_repaired():
    mesh = fem.Mesh(UNIT, [TWO[0], [2, 4, 1, 3]], orient=True)
    assert np.all(mesh.volumes > 0)
    assert np.array_equal(mesh.cells[0], TWO[0])


def test_meshio_both_ways(tmp_path):
    meshio = pytest.importorskip("meshio")
    mesh = fem.ball(layers=2)
    mesh.to_meshio().write(tmp_path / "ball.vtu")
    again = fem.Mesh.from_meshio(tmp_path / "ball.vtu")
    assert again == mesh
    assert hash(again) == hash(mesh)
    # Unused nodes are dropped, other cells left out, and inverted ones turned.
    points = np.vstack([[[9.0, 9, 9]], UNIT])
    mixed = meshio.Mesh(points, [("vertex", [[0]]), ("tetra", np.array([[2, 1, 3, 4], [5, 3, 2, 4]]))])
    assert len(fem.Mesh.from_meshio(mixed).nodes) == 5
    flat = fem.box((1, 2), 2)
    assert fem.Mesh.from_meshio(flat.to_meshio()) == flat
    (tmp_path / "bad.vtu").write_text("garbage")
    for name in ("bad.vtu", "none.msh", "none.unknown"):  # the first of which ends the process by itself
        with pytest.raises(gm.InputError, match="meshio can't read this file. ."):
            fem.Mesh.from_meshio(tmp_path / name)
    with pytest.raises(gm.InputError, match=re.escape("neither tetra nor triangle cells, but vertex")):
        fem.Mesh.from_meshio(meshio.Mesh(points, [("vertex", [[0]])]))
