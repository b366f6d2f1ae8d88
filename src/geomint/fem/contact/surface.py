"""The surface that contact is about: oriented triangles, their edges and vertices, and a tree of boxes over them.

Every vertex and every edge is owned by one of its faces, so that all pairs of a vertex with a face and of two edges are
found from the pairs of faces, each once (representative triangles: Curtis, Tamstorf, Manocha, I3D 2008). The tree is
made once from the positions at rest; its boxes follow the nodes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...errors import InputError

PAIRS = 512  # pairs of faces that the broad phase hands on at a time
STACK = 2048  # pairs of boxes that wait; a descent adds at most three for each level of the tree
EDGES = ((0, 1), (1, 2), (2, 0))  # of a face; edge i leads from its vertex i to the next


class Surface(NamedTuple):
    """Arrays of int32 that the compiled loops read."""

    faces: np.ndarray  # (faces, 3), counterclockwise from outside
    owned: np.ndarray  # (faces,): bits 0 to 2 for vertices that the face owns, 3 to 5 for its edges
    across: np.ndarray  # (faces, 3): the face on the other side of each edge, −1 for none
    body: np.ndarray  # (faces,): the number of the body
    children: np.ndarray  # (boxes, 2): of the tree, both larger than their parent; (−1, face) for a leaf

    @property
    def edges(self) -> np.ndarray:
        """(edges, 2), each once."""
        bit = self.owned[:, None] >> (3 + np.arange(3)) & 1
        return np.stack([self.faces, np.roll(self.faces, -1, axis=1)], axis=-1)[bit.astype(bool)]

    @property
    def vertices(self) -> np.ndarray:
        """The nodes of the surface, in ascending order."""
        return np.unique(self.faces)


def surface(points: Any, faces: Any, bodies: Any = None) -> Surface:
    """The surface of triangles over points (nodes, 3). bodies: a number for each face; connected parts by default."""
    points, faces = np.asarray(points, float), np.ascontiguousarray(faces, np.int32)
    if faces.ndim != 2 or faces.shape[1] != 3 or not len(faces):
        raise InputError(f"contact needs faces of shape (faces, 3), at least one, not {faces.shape}.")
    if faces.min() < 0 or faces.max() >= len(points):
        raise InputError(f"contact: faces refer to nodes 0 to {faces.max()}, and there are {len(points)} nodes.")
    body = _connected(faces, len(points)) if bodies is None else np.asarray(bodies, np.int32)
    across, edge_owner = _neighbours(faces)
    _, first = np.unique(faces.ravel(), return_index=True)
    owned = np.zeros(faces.size, np.int32)
    owned[first] = 1
    owned = owned.reshape(-1, 3) @ np.array([1, 2, 4], np.int32) + edge_owner @ np.array([8, 16, 32], np.int32)
    return Surface(faces, owned.astype(np.int32), across, body, _tree(points[faces].mean(axis=1), body))


def _connected(faces: np.ndarray, nodes: int) -> np.ndarray:
    """The number of the connected part that each face is in."""
    from scipy.sparse import coo_array  # deferred: importing it is slow
    from scipy.sparse.csgraph import connected_components

    i, j = faces[:, [0, 1]].ravel(), faces[:, [1, 2]].ravel()
    _, label = connected_components(coo_array((np.ones(len(i)), (i, j)), shape=(nodes, nodes)), directed=False)
    return np.unique(label[faces[:, 0]], return_inverse=True)[1].astype(np.int32)


def _neighbours(faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The face across every edge, (faces, 3), and whether a face owns the edge."""
    ends = np.stack([faces, np.roll(faces, -1, axis=1)], axis=-1).reshape(-1, 2)
    _, edge, count = np.unique(np.sort(ends, axis=1), axis=0, return_inverse=True, return_counts=True)
    if count.max() > 2:
        a, b = ends[np.flatnonzero(count[edge.ravel()] > 2)[0]]
        raise InputError(f"contact: the edge between nodes {a} and {b} belongs to more than two faces.")
    order = np.argsort(edge.ravel(), kind="stable")
    number = edge.ravel()[order]
    paired = np.flatnonzero(number[1:] == number[:-1])
    across = np.full(len(ends), -1, np.int32)
    first, second = order[paired], order[paired + 1]
    if np.any(ends[first, 0] == ends[second, 0]):
        a, b = ends[first[np.argmax(ends[first, 0] == ends[second, 0])]]
        raise InputError(f"contact: the two faces at the edge between nodes {a} and {b} have opposite orientations.")
    across[first], across[second] = second // 3, first // 3
    owner = np.ones(len(ends), np.int32)
    owner[second] = 0
    return across.reshape(-1, 3), owner.reshape(-1, 3)


def _tree(centres: np.ndarray, body: np.ndarray) -> np.ndarray:
    """Bodies are separated first, then faces, at the median along the longest extent."""
    children = np.zeros((2 * len(centres) - 1, 2), np.int32)
    made, waiting = 1, [(0, np.arange(len(centres)))]
    while waiting:
        box, part = waiting.pop()
        if len(part) == 1:
            children[box] = -1, part[0]
            continue
        left = _left_half(centres[part], body[part])
        children[box] = made, made + 1
        waiting += [(made, part[left]), (made + 1, part[~left])]
        made += 2
    return children


def _left_half(centres: np.ndarray, body: np.ndarray) -> np.ndarray:
    """Which faces go to the first child."""
    axis = int(np.argmax(np.ptp(centres, axis=0)))
    names, number = np.unique(body, return_inverse=True)
    if len(names) > 1:
        middle = np.bincount(number, centres[:, axis]) / np.bincount(number)
        first = np.zeros(len(names), bool)
        first[np.argsort(middle, kind="stable")[: len(names) // 2]] = True
        return first[number]
    first = np.zeros(len(centres), bool)
    first[np.argsort(centres[:, axis], kind="stable")[: len(centres) // 2]] = True
    return first
