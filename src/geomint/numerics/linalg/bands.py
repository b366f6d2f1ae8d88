"""Where the entries of a band are found among the coloured products of a plan."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np


class BandEntries(NamedTuple):
    """(n, 2w + 1), of the entries of a band."""

    known: np.ndarray  # which are in the pattern
    colours: np.ndarray  # of their columns
    rows: np.ndarray


@functools.lru_cache(64)
def band_entries(plan: Any) -> BandEntries:
    """Of a plan of kind "banded", with rows and columns in the order of its blocks."""
    n, size = plan.n, plan.order.shape[1]
    here, below = np.nonzero(plan.diagonal), np.nonzero(plan.lower)
    i = np.concatenate([here[0] * size + here[1], (below[0] + 1) * size + below[1], below[0] * size + below[2]])
    j = np.concatenate([here[0] * size + here[2], below[0] * size + below[2], (below[0] + 1) * size + below[1]])
    w = int(np.max(np.abs(i - j)))
    known = np.zeros((n, 2 * w + 1), bool)
    known[i, w + j - i] = True
    column = np.clip(np.arange(n)[:, None] + np.arange(-w, w + 1), 0, n - 1)
    unknowns = plan.order.ravel()[:n]
    return BandEntries(known, plan.colours[unknowns[column]], np.broadcast_to(unknowns[:, None], known.shape))
