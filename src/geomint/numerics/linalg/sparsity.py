"""Which entries of a symmetric operator can be nonzero, found from a few of its products with vectors.

This is group testing: columns are probed in groups whose size halves from level to level. Two groups that have no row
in common on the coarser level share one product; random entries keep sums from cancelling. A band of width w in n
unknowns takes about w log n products, not n.

The operator is probed at several points near the start, so that an entry that vanishes by chance at one of them (a
straight chain, a symmetric molecule) is still found.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .colouring import Pattern, column_colours

Products = Callable[[np.ndarray], np.ndarray]  # (k, n) vectors -> (k, n), where nonzero at any of the probed points

SMALL = 64  # unknowns up to which every column is probed separately
TOGETHER = 2**19  # entries of the vectors that are multiplied in one call
TOO_MANY = 400  # products a level may take before the operator counts as unstructured


def pattern(products: Products, n: int) -> Pattern | None:
    """The (symmetric) pattern of the operator, or None where it is not sparse."""
    from scipy import sparse

    if n <= SMALL:
        found = products(np.eye(n)) != 0
        return sparse.csr_matrix(found | found.T | np.eye(n, dtype=bool))
    random = np.random.default_rng(20260101)
    values = random.uniform(0.5, 1.5, n) * random.choice([-1.0, 1.0], n)
    size = 1 << (n - 1).bit_length()
    known: Pattern = sparse.csr_matrix(np.ones((1, 1), bool))
    while size > 1:
        size //= 2
        groups = -(-n // size)
        split: Pattern = sparse.kron(known, np.ones((2, 2), bool), format="csr")[:groups, :groups]
        if np.max(np.diff(split.indptr)) > TOO_MANY or (colours := column_colours(split)).max() + 1 > TOO_MANY:
            return None  # a row of k entries takes k colours
        group = np.arange(n) // size
        touched = _touched(products, values, group, colours, groups)
        # Where a colour has nonzeros in a row group, they come from the only group of that colour that may have some.
        rows, columns = split.nonzero()
        keep = touched[colours[columns], rows]
        known = sparse.csr_matrix((np.ones(keep.sum(), bool), (rows[keep], columns[keep])), shape=(groups, groups))
        known = ((known + known.T + sparse.diags(np.ones(groups))) > 0).tocsr()
    return known


def _touched(products: Products, values: np.ndarray, group: np.ndarray, colours: np.ndarray, groups: int) -> np.ndarray:
    """(colour, row group): whether the product with all columns of that colour has nonzeros in the group. Products are
    taken a fixed number at a time, so that one compiled program of bounded memory serves all of them."""
    result = np.zeros((colours.max() + 1, groups), bool)
    batch_size = int(np.clip(TOGETHER // len(values), 1, 8))
    for begin in range(0, len(result), batch_size):
        batch = np.arange(begin, begin + batch_size)
        hit = products(np.where(colours[group][None, :] == batch[:, None], values, 0.0)) != 0
        for k, row in zip(batch[batch < len(result)], hit, strict=False):
            result[k, np.unique(group[row])] = True
    return result
