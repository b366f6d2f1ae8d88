"""Where the entries of a wide band are found in the products of a matrix with the colours of its columns."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .structure import Plan


class BandEntries(NamedTuple):
    """(n, 2w + 1), of the entries of a band."""

    known: np.ndarray  # which are in the pattern
    colours: np.ndarray  # of their columns
    rows: np.ndarray


@functools.lru_cache(64)
def entries_of_band(plan: Plan) -> BandEntries:
    """Where the products of the colours of a plan stand in its band, in the order of its blocks."""
    assert plan.order is not None
    assert plan.colours is not None
    assert plan.diagonal is not None
    assert plan.lower is not None
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
