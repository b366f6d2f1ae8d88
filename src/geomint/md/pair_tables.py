"""Which vectors of particles j need masks, for the loop over pairs of pair_code.py.

The loop runs over blocks of `rows` particles i, and for each over the vectors of `lanes` particles j that contain any
j > i. Most vectors take part as a whole. Those that do not (at the diagonal, with an excluded pair, at the end of the
particles) are entries of a table with a mask for each i. The last vector is always an entry.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from .pair_terms import Term


class Tables(NamedTuple):
    """The tables, in the order of the arguments of the handler; 32-bit integers but for the masks."""

    which: np.ndarray  # the particles that take part
    settings: np.ndarray  # numbers of all particles, of those that take part, of vectors, of blocks, of members
    starts: np.ndarray  # (blocks + 1,): which entries are those of a block
    at: np.ndarray  # the vector of each entry, ascending in a block
    masks: np.ndarray  # (entries, rows): bit k is set where the pair with the k-th particle of the vector counts


@functools.lru_cache(32)
def tables(term: Term, n: int, members: int, rows: int, lanes: int) -> Tables:
    which, excluded = term.chosen(n)
    m = len(which)
    width, blocks = -(-m // lanes), -(-m // rows)
    i = np.arange(blocks * rows)
    diagonal = (i // rows * rows // lanes)[:, None] * lanes + np.arange(lanes + (rows - 1) // lanes * lanes)
    i_d, j_d = np.broadcast_to(i[:, None], diagonal.shape)[diagonal <= i[:, None]], diagonal[diagonal <= i[:, None]]
    i_e, j_e = np.broadcast_arrays(i[:, None], width * lanes - 1 - np.arange(lanes)[None])
    outside = (j_e >= m) | (j_e <= i_e) | (i_e >= m)
    # The last vector is an entry of every block, with or without a pair that is left out.
    listed = np.concatenate([i[::rows] // rows * width + width - 1, i_d // rows * width + j_d // lanes])
    left_i = np.concatenate([i_d, i_e[outside], excluded[:, 0]])
    left_j = np.concatenate([j_d, j_e[outside], excluded[:, 1]])
    keys = np.unique(np.concatenate([listed, left_i // rows * width + left_j // lanes]))
    masks = np.full((len(keys), rows), 2**lanes - 1)
    place = np.searchsorted(keys, left_i // rows * width + left_j // lanes)
    np.bitwise_and.at(masks, (place, left_i % rows), ~(1 << (left_j % lanes)))
    starts = np.searchsorted(keys, np.arange(blocks + 1) * width)
    whole = lambda x: np.ascontiguousarray(x, np.int32)
    settings = whole([n, m, width, blocks, members])
    kind = np.uint8 if lanes == 8 else np.int32
    return Tables(whole(which), settings, whole(starts), whole(keys % width), masks.astype(kind))
