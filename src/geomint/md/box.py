"""A periodic box with right angles."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.keywords import checked_keywords
from ..numerics.module import Module
from ..system.checks import shown


class Box(Module):
    """A periodic box. Positions are not wrapped into it: trajectories stay continuous, and only differences are taken
    to the nearest image.

    lengths: of the edges, one number for each coordinate of a particle.
    """

    lengths: tuple[float, ...] = eqx.field(static=True)

    @checked_keywords
    def __init__(self, lengths: Any):
        try:
            found = np.asarray(lengths, float)
        except (TypeError, ValueError):
            raise InputError(f"Box(lengths=...) must be positive numbers, not {shown(lengths)}.") from None
        if found.ndim != 1 or len(found) not in (2, 3) or not np.all(np.isfinite(found) & (found > 0)):
            raise InputError(
                f"Box(lengths=...) must be two or three positive numbers, the edges of the box, not {shown(lengths)}."
            )
        self.lengths = tuple(found.tolist())

    @property
    def volume(self) -> float:
        return float(np.prod(self.lengths))

    def nearest(self, differences: Array) -> Array:
        """Differences (…, d) of positions, to the nearest image."""
        differences, edges = self._with_edges(differences)
        return differences - edges * jnp.round(differences / edges)

    def wrapped(self, q: Array) -> Array:
        """Positions (…, d) moved into the box, 0 ≤ x < length; for pictures."""
        q, edges = self._with_edges(q)
        inside = q - edges * jnp.floor(q / edges)
        return jnp.where((inside < 0) | (inside >= edges), 0.0, inside)  # rounded to an image of the origin

    def _with_edges(self, x: Any) -> tuple[Array, Array]:
        x = jnp.asarray(x)
        x = x.astype(jnp.result_type(x, float))  # edges as integers would be other ones
        if x.shape[-1:] != (len(self.lengths),):
            raise InputError(
                f"{self} has {len(self.lengths)} edges; positions have as many coordinates, not {x.shape}."
            )
        return x, jnp.asarray(self.lengths, x.dtype)


def checked_box(box: Any, of: str) -> Box | None:
    if box is not None and not isinstance(box, Box):
        raise InputError(
            f"{of}(box=...) must be a periodic box, such as gm.md.Box([8.0, 8.0]), or None, not {shown(box)}."
        )
    return box


def check_positions(q: Any, box: Box | None, of: str) -> None:
    """Raise an InputError where q is not a list of points, or their dimension is not that of the box."""
    if q.ndim != 2 or (box is not None and q.shape[1] != len(box.lengths)):
        wanted = "(n, 2) or (n, 3)" if box is None else f"(n, {len(box.lengths)}), like the box {box.lengths}"
        raise InputError(f"{of} has positions q of shape {wanted}, not {q.shape}.")
