"""How many pairs of particles have a distance in each of some bins."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .box import Box

PAIRS = 2**20  # at a time


def pair_counts(
    q: Array, edges: Array, box: Box | None, first: np.ndarray, second: np.ndarray, molecule: np.ndarray | None
) -> Array:
    """The number of distances |q_i − q_j| in each bin, over i in `first` and j in `second`, which are disjoint or
    equal; in the latter case every pair counts once. A bin includes its lower edge, and the last one both edges.

    molecule: the molecule of each particle, to leave pairs inside one out; None counts all.
    Counts are sums of integers, so that no order of summation changes them.
    """
    bins, same = len(edges) - 1, np.array_equal(first, second)
    size = max(1, min(len(first), PAIRS // max(1, len(second))))
    there, columns = q[second], jnp.asarray(second)
    of = None if molecule is None else jnp.asarray(molecule)

    def rows(numbers: Array) -> Array:
        """Counts of a block of `first`; numbers beyond its end are padding."""
        i = jnp.asarray(first)[jnp.minimum(numbers, len(first) - 1)]
        apart = q[i][:, None] - there[None]
        r = jnp.sqrt(jnp.sum((apart if box is None else box.nearest(apart)) ** 2, axis=-1))
        counted = jnp.broadcast_to((numbers < len(first))[:, None], r.shape)
        if same:
            counted &= columns[None] > i[:, None]
        if of is not None:
            counted &= of[columns][None] != of[i][:, None]
        place = jnp.searchsorted(edges, r, side="right") - 1
        place = jnp.where(r == edges[-1], bins - 1, place)
        place = jnp.where(counted & (place >= 0), place, bins)  # an extra bin for what does not count
        return jnp.zeros(bins + 1, int).at[place.ravel()].add(1)[:bins]

    blocks = jnp.arange(-(-len(first) // size) * size).reshape(-1, size)
    return rows(blocks[0]) if len(blocks) == 1 else jnp.sum(jax.lax.map(rows, blocks), axis=0)


def number_of_pairs(first: np.ndarray, second: np.ndarray, molecule: np.ndarray | None) -> int:
    """How many pairs `pair_counts` looks at."""
    same = np.array_equal(first, second)
    found = len(first) * (len(second) - same)
    if molecule is not None:
        inside = [np.bincount(molecule[group], minlength=int(molecule.max()) + 1) for group in (first, second)]
        found -= int(np.sum(inside[0] * (inside[1] - same)))
    return found // 2 if same else found


def shells(edges: np.ndarray, dimension: int) -> np.ndarray:
    """The volumes (in the plane: areas) between spheres of these radii."""
    return np.diff(4 / 3 * np.pi * edges**3 if dimension == 3 else np.pi * edges**2)
