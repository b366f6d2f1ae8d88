"""Colours of the columns of a sparse matrix such that columns of one colour share no row: one product of the matrix
with a vector per colour then gives all its entries (Curtis, Powell, Reid, J. Inst. Math. Appl. 13 (1974) 117).

Greedy in the natural order, which gives a band the fewest colours. The loop runs over the pattern itself, without the
graph of columns that share a row, and is compiled by numba: 1e5 unknowns of a triangle mesh take 0.1 s. Small patterns
are coloured by the same loop in Python, because importing numba takes longer.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

Pattern = Any  # a scipy.sparse matrix of booleans
IN_PYTHON = 20_000  # visits of entries up to which the loop is not compiled


def column_colours(pattern: Pattern) -> np.ndarray:
    """Colours such that columns of one colour share no row."""
    rows, columns = pattern.tocsr(), pattern.tocsc()
    lengths = np.diff(rows.indptr).astype(np.int64)
    loop: Any = _greedy if np.sum(lengths**2) <= IN_PYTHON else _compiled()
    visited = np.append(0, np.cumsum(lengths[columns.indices]))
    most = int(np.max(np.diff(visited[columns.indptr]), initial=0)) + 1
    colours = np.full(pattern.shape[1], -1, np.int64)
    taken = np.full(
        most, -1, np.int64
    )  # the last column for which a colour was taken; a column has at most `most` conflicts
    listed = (rows.indptr, rows.indices, columns.indptr, columns.indices)
    loop(*(x.astype(np.int64) for x in listed), colours, taken)
    return colours


def vertex_colours(conflicts: Pattern) -> np.ndarray:
    """Colours of the vertices of a graph, given by its adjacency matrix, such that neighbours differ: columns of the
    matrix with a row for each edge."""
    from scipy import sparse

    first, second = conflicts.nonzero()
    edges = np.flatnonzero(first != second)
    pairs = np.stack([first[edges], second[edges]], axis=1)
    shape = (len(edges), conflicts.shape[0])
    return column_colours(
        sparse.csr_matrix((np.ones(pairs.size, bool), (np.arange(len(edges)).repeat(2), pairs.ravel())), shape=shape)
    )


def _greedy(row_start, in_row, column_start, in_column, colours, taken):
    for j in range(len(colours)):
        for a in range(column_start[j], column_start[j + 1]):
            i = in_column[a]
            for b in range(row_start[i], row_start[i + 1]):
                colour = colours[in_row[b]]
                if colour >= 0:
                    taken[colour] = j
        colour = 0
        while taken[colour] == j:
            colour += 1
        colours[j] = colour


@functools.cache
def _compiled() -> Any:
    import numba  # deferred: importing it is slow

    from .numba_cache import cached_on_disk

    integers = numba.types.int64[::1]
    return cached_on_disk(lambda cache: numba.njit([(integers,) * 6], cache=cache)(_greedy))
