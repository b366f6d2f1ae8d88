"""What makes nodes and cells a mesh. Errors name the first cells or nodes that do not fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import InputError
from ..system.checks import shown

FLAT = 1e-10  # volume of a cell that counts as flat, relative to its longest edge to the power of the dimension
NAMED = 5  # cells or nodes that an error names


def checked_arrays(nodes: Any, cells: Any) -> tuple[np.ndarray, np.ndarray]:
    """Copies of both as arrays of floats and integers, with the right shapes and numbers of nodes in range."""
    try:
        x, c = np.array(nodes, float), np.asarray(cells)
    except (TypeError, ValueError):
        raise InputError(f"Mesh(nodes=...) must be positions of shape (n, 3) or (n, 2), not {shown(nodes)}.") from None
    if x.ndim != 2 or x.shape[1] not in (2, 3) or not len(x):
        raise InputError(f"Mesh(nodes=...) must have shape (n, 3), or (n, 2) in the plane, not {x.shape}.")
    if not np.all(np.isfinite(x)):
        raise InputError(f"Mesh(nodes=...): {_listed('node', ~np.all(np.isfinite(x), axis=1))} not finite.")
    corners = x.shape[1] + 1
    if c.ndim != 2 or c.shape[1] != corners or c.dtype.kind not in "iu" or not len(c):
        raise InputError(
            f"Mesh(cells=...) must be whole numbers of shape (m, {corners}), the nodes of each "
            f"{'tetrahedron' if corners == 4 else 'triangle'}, not {c.dtype} of shape {c.shape}."
        )
    outside = np.any((c < 0) | (c >= len(x)), axis=1)
    if np.any(outside):
        raise InputError(
            f"Mesh(cells=...): {_listed('cell', outside)} made of nodes that do not exist; there are {len(x)}, "
            "numbered from 0."
        )
    return x, np.array(c, np.int64)


def check(nodes: np.ndarray, cells: np.ndarray) -> None:
    ordered = np.sort(cells, axis=1)
    twice = np.any(ordered[:, 1:] == ordered[:, :-1], axis=1)
    if np.any(twice):
        raise InputError(f"Mesh: {_listed('cell', twice)} made of a node that occurs twice.")
    first, group, _ = equal_rows(ordered)
    repeated = first[group] != np.arange(len(cells))
    if np.any(repeated):
        raise InputError(f"Mesh: {_listed('cell', repeated)} made of the same nodes as an earlier cell.")
    _check_volumes(nodes, cells)
    missing = np.ones(len(nodes), bool)
    missing[cells] = False
    if np.any(missing):
        raise InputError(
            f"Mesh: {_listed('node', missing)} part of no cell: such a node would have no mass. Leave it out and "
            "renumber the cells (Mesh.from_meshio does that)."
        )
    _check_faces(cells)


def _check_volumes(nodes: np.ndarray, cells: np.ndarray) -> None:
    volumes = signed_volumes(nodes, cells)
    x = nodes[cells]
    longest = np.max(np.sqrt(np.sum((x[:, :, None] - x[:, None]) ** 2, axis=-1)), axis=(1, 2))
    flat = ~(np.abs(volumes) > FLAT * longest ** nodes.shape[1])
    if np.any(flat):
        raise InputError(f"Mesh: {_listed('cell', flat)} flat, without a volume.")
    inverted = volumes < 0
    if np.any(inverted):
        raise InputError(
            f"Mesh: {_listed('cell', inverted)} inverted, with a negative volume. Where only the order of the nodes is "
            "wrong, as in a mesh of another program, write Mesh(..., orient=True)."
        )


def _check_faces(cells: np.ndarray) -> None:
    """A face belongs to one cell, or to two that lie on different sides of it."""
    faces = faces_of(cells)
    owner = np.repeat(np.arange(len(cells)), faces.shape[1])
    faces = faces.reshape(-1, faces.shape[-1])
    order = np.argsort(faces, axis=1)
    key, parity = np.take_along_axis(faces, order, axis=1), _parity(order)
    _, group, count = equal_rows(key)
    sides = np.bincount(group, weights=parity)
    bad = (count > 2) | ((count == 2) & (sides != 0))
    if np.any(bad):
        at = np.flatnonzero(bad)[0]
        those = owner[group == at]
        raise InputError(
            f"Mesh: the cells {', '.join(map(str, those[:NAMED]))} share the face {key[group == at][0].tolist()} and "
            f"at least two of them lie on the same side of it: cells overlap"
            + (f" ({int(bad.sum())} faces of that kind)." if bad.sum() > 1 else ".")
        )


def equal_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of rows of whole numbers, in lexical order without repetition: where each occurs first, which of them each row
    is, and how often each occurs. As np.unique(axis=0), in a tenth of the time."""
    base, key, size = int(rows.max()) + 1, rows[:, 0], int(rows.max()) + 1
    for column in rows.T[1:]:
        if size * base > 2**62:
            _, key = np.unique(key, return_inverse=True)
            size = len(rows)
        key, size = key * base + column, size * base
    _, first, group, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    return first, group, count


def _parity(order: np.ndarray) -> np.ndarray:
    """1 for even, −1 for odd permutations, (k, 2) or (k, 3)."""
    if order.shape[1] == 2:
        return np.where(order[:, 0] == 0, 1, -1)
    return np.where((order[:, 1] - order[:, 0]) % 3 == 1, 1, -1)


def signed_volumes(nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
    edges = nodes[cells[:, 1:]] - nodes[cells[:, :1]]
    return np.linalg.det(edges) / math.factorial(nodes.shape[1])


def faces_of(cells: np.ndarray) -> np.ndarray:
    """(m, d + 1, d): the faces of each cell of positive volume, oriented outward; the k-th is opposite to node k."""
    corners = cells.shape[1]
    kept = [[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 2, 1]] if corners == 4 else [[1, 2], [2, 0], [0, 1]]
    return cells[:, np.array(kept)]


def checked_numbers(x: Any, count: int, name: str, what: str, callee: str) -> np.ndarray:
    """Numbers of nodes or elements, each once."""
    array = np.asarray(x)
    fits = array.ndim == 1 and (array.dtype.kind in "iu" or not array.size)
    if not fits or np.any(array < 0) or np.any(array >= count) or len(np.unique(array)) < len(array):
        raise InputError(
            f"{callee}({name}=...) must be the numbers of {what}, from 0 to {count - 1}, each once, not {shown(x)}."
            + (" Of a mask, take np.flatnonzero(mask)." if array.dtype == bool else "")
        )
    return array.astype(int)


def _listed(kind: str, chosen: np.ndarray) -> str:
    """ "cell 7 is", "cells 1, 2 and 8 more are"."""
    places = np.flatnonzero(chosen)
    if len(places) == 1:
        return f"{kind} {places[0]} is"
    rest = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
    return f"{kind}s {', '.join(map(str, places[:NAMED]))}{rest} are"
