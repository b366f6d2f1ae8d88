"""Boxes and balls, meshed without a mesh generator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..numerics.keywords import checked_keywords
from ..system.checks import positive, shown, whole
from .mesh import Mesh


@checked_keywords
def cube(cells: int = 8, edge: float = 1.0) -> Mesh:
    """The cube 0 ≤ x, y, z ≤ edge of cells³ small cubes, each cut into 24 tetrahedra that meet at its centre and at the
    centres of its faces; 8³ cells have 2969 nodes and 12,288 tetrahedra (Gonzalez, Schmidt, Ortiz 2010, section 5.2.1).

    cells: small cubes along an edge.
    edge:  the length of an edge.
    """
    n, edge = whole(cells, "cells", "cube", least=1), positive(edge, "edge", "cube")
    return box((edge,) * 3, (n,) * 3)


@checked_keywords
def box(lengths: Sequence[float], cells: Sequence[int] | int = 1) -> Mesh:
    """A box with a corner at the origin, cut as `cube`; in the plane a rectangle of cells with four triangles each.

    lengths: of the edges, three numbers, or two in the plane.
    cells:   how many cells there are along each edge; one number for all.
    """
    sizes = _numbers(lengths)
    d = len(sizes)
    counts = [cells] * d if np.ndim(cells) == 0 else list(cells)  # pyright: ignore[reportArgumentType]
    if len(counts) != d:
        raise InputError(f"box(cells={shown(cells)}): give {d} numbers, one for each edge, or one for all.")
    n = [whole(k, "cells", "box", least=1) for k in counts]
    # All nodes lie on a grid of half the spacing. A triangle has a corner cell-centre, face-centre, edge by edge.
    doubled, found = [2 * k for k in n], []
    corner = np.stack(np.meshgrid(*[2 * np.arange(k) for k in n], indexing="ij"), axis=-1).reshape(-1, d)
    centre = corner + 1
    for axis, side in itertools.product(range(d), (-1, 1)):
        face = centre + side * _unit(axis, d)
        others = [k for k in range(d) if k != axis]
        if d == 2:
            ends = [face - _unit(others[0], d), face + _unit(others[0], d)]
            found.append(np.stack([centre, *ends], axis=1))
            continue
        u, v = (_unit(k, d) for k in others)
        ring = [face - u - v, face + u - v, face + u + v, face - u + v]
        found += [np.stack([centre, face, ring[k], ring[(k + 1) % 4]], axis=1) for k in range(4)]
    places = np.stack(found, axis=1).reshape(-1, d + 1, d)  # the cells of one small box are consecutive
    number = np.ravel_multi_index(tuple(np.moveaxis(places, -1, 0)), tuple(k + 1 for k in doubled))
    used, cells_of = np.unique(number, return_inverse=True)
    at = np.stack(np.unravel_index(used, tuple(k + 1 for k in doubled)), axis=1)
    return Mesh(at * (np.array(sizes) / doubled), cells_of.reshape(number.shape), orient=True)


def _unit(axis: int, d: int) -> np.ndarray:
    return np.eye(d, dtype=int)[axis]


def _numbers(lengths: Any) -> list[float]:
    listed = list(lengths) if np.ndim(lengths) == 1 else []
    if len(listed) not in (2, 3):
        raise InputError(f"box(lengths={shown(lengths)}): give the lengths of two or three edges.")
    return [positive(x, "lengths", "box") for x in listed]


@checked_keywords
def ball(radius: float = 1.0, layers: int = 3, dim: int = 3) -> Mesh:
    """A ball around the origin with 20 layers³ tetrahedra: an icosahedron, each of whose 20 tetrahedra from the centre
    is divided `layers` times along its edges, with layers moved outward onto spheres. In the plane a disc, from
    a hexagon, with 6 layers² triangles.

    radius: of the ball.
    layers: of cells between the centre and the surface.
    dim:    3 for a ball, 2 for a disc.
    """
    radius, n = positive(radius, "radius", "ball"), whole(layers, "layers", "ball", least=1)
    d = whole(dim, "dim", "ball", least=2, most=3)
    corners, faces = _icosahedron() if d == 3 else _hexagon()
    # Integer barycentric coordinates of a divided simplex, the same on both sides of a shared face since the corners
    # of each simplex are in ascending order.
    lattice, small = _divided(d, n)
    weights = np.diff(np.concatenate([np.full((len(lattice), 1), n), lattice, np.zeros((len(lattice), 1), int)], 1))
    simplices = np.concatenate([np.full((len(faces), 1), len(corners)), np.sort(faces, axis=1)], axis=1)
    everywhere = np.zeros((len(simplices), len(lattice), len(corners) + 1), np.int64)
    for k in range(d + 1):
        everywhere[np.arange(len(simplices)), :, simplices[:, k]] += -weights[:, k]
    nodes, number = np.unique(everywhere.reshape(-1, len(corners) + 1), axis=0, return_inverse=True)
    cells = number.reshape(len(simplices), -1)[:, small].reshape(-1, d + 1)
    flat = nodes[:, :-1] @ corners / n
    # A node of the k-th layer has barycentric coordinates of the outer corners with the sum k.
    layer, length = nodes[:, :-1].sum(axis=1) / n, np.linalg.norm(flat, axis=1)
    scale = np.where(length > 0, layer / np.where(length > 0, length, 1.0), 0.0)
    return Mesh(radius * scale[:, None] * flat, cells, orient=True)


def _divided(d: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The simplex n ≥ x₁ ≥ … ≥ x_d ≥ 0 cut into nᵈ simplices, those of the unit cubes with one order of coordinates
    each (Freudenthal): the whole points, and the numbers of the corners of each simplex."""
    points = [x for x in itertools.product(range(n + 1), repeat=d) if all(a >= b for a, b in itertools.pairwise(x))]
    number = {x: k for k, x in enumerate(points)}
    found = []
    for start, order in itertools.product(points, itertools.permutations(range(d))):
        path = [start]
        for axis in order:
            path.append(tuple(x + (k == axis) for k, x in enumerate(path[-1])))
        if all(x in number for x in path):
            found.append([number[x] for x in path])
    return np.array(points), np.array(found)


def _icosahedron() -> tuple[np.ndarray, np.ndarray]:
    golden = (1 + math.sqrt(5)) / 2
    signs = np.array(list(itertools.product((-1, 1), repeat=2)))
    flat = np.stack([np.zeros(4), signs[:, 0], golden * signs[:, 1]], axis=1)
    corners = np.concatenate([np.roll(flat, k, axis=1) for k in range(3)])
    apart = np.linalg.norm(corners[:, None] - corners[None], axis=-1)
    near = np.abs(apart - 2) < 1e-9
    faces = [
        x for x in itertools.combinations(range(12), 3) if all(near[i, j] for i, j in itertools.combinations(x, 2))
    ]
    return corners / np.linalg.norm(corners[0]), np.array(faces)


def _hexagon() -> tuple[np.ndarray, np.ndarray]:
    angle = np.arange(6) * math.pi / 3
    return np.stack([np.cos(angle), np.sin(angle)], axis=1), np.array([[k, (k + 1) % 6] for k in range(6)])
