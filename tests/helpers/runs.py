"""Runs compared with each other."""

from __future__ import annotations

import jax
import numpy as np


def same(a, b) -> bool:
    """Equal in every saved quantity, bit for bit."""
    flat = lambda r: jax.tree.leaves({**r.columns, "t": r.t})
    return all(np.array_equal(x, y) for x, y in zip(flat(a), flat(b), strict=True))


def close(expected, got, what=1e-12) -> None:
    """Equal in every saved quantity, to rounding."""
    for a, b in zip(jax.tree.leaves(expected.columns), jax.tree.leaves(got.columns), strict=True):
        np.testing.assert_allclose(a, b, rtol=what, atol=what * max(1.0, float(np.max(np.abs(a), initial=0.0))))
