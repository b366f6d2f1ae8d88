"""Symmetries of rigid bodies: rotations and translations of space, rotations of a body about its own axis.

They act on q of shape (3, 3) or (4, 3) (with a leading axis for several bodies), by matrices and on the group alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.rotations import hat
from ..system.checks import vector
from ..system.symmetries import Symmetry


def _axes(axis: Sequence[float] | None, callee: str) -> tuple[tuple[float, ...], ...]:
    if axis is None:
        return tuple(map(tuple, np.eye(3).tolist()))
    given = vector(axis, "axis", callee, size=3)
    if not any(given):
        raise InputError(f"{callee}(axis={list(given)}): axis must not be zero.")
    return (given,)


class _AboutAxes(Symmetry):
    axes: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    word: ClassVar[str] = ""

    @property
    def name(self) -> str:
        return self.word if len(self.axes) == 3 else f"{self.word}{list(self.axes[0])}"


class SpatialRotation(_AboutAxes):
    """Rotations of space, δR = âR and δx = a × x: the angular momentum in space, a·(R m + x × p).

    axis:  the vector a; all three axes without it.
    """

    word: ClassVar[str] = "spatial rotation"

    def __init__(self, axis: Sequence[float] | None = None):
        self.axes = _axes(axis, "SpatialRotation")

    def generators(self, q: Array) -> Array:
        a = hat(jnp.asarray(self.axes, q.dtype))
        turned = jnp.einsum("kij,...jl->k...il", a, q[..., -3:, :])
        if q.shape[-2] == 3:
            return turned
        moved = jnp.einsum("kij,...j->k...i", a, q[..., 0, :])
        return jnp.concatenate([moved[..., None, :], turned], axis=-2)


class BodyRotation(_AboutAxes):
    """Rotations of the body about an axis of its own, δR = R b̂: the component b·m of the body momentum. A symmetry of
    bodies of revolution in potentials that do not see the rotation.

    axis:  the vector b in the body; all three axes without it (a ball).
    """

    word: ClassVar[str] = "body rotation"

    def __init__(self, axis: Sequence[float] | None = None):
        self.axes = _axes(axis, "BodyRotation")

    def generators(self, q: Array) -> Array:
        turned = jnp.einsum("...ij,kjl->k...il", q[..., -3:, :], hat(jnp.asarray(self.axes, q.dtype)))
        if q.shape[-2] == 3:
            return turned
        return jnp.concatenate([jnp.zeros_like(turned[..., :1, :]), turned], axis=-2)


class SpatialTranslation(_AboutAxes):
    """Translations of free bodies, δx = a: the total linear momentum.

    axis:  the vector a; all three axes without it.
    """

    word: ClassVar[str] = "spatial translation"
    degree: ClassVar[int] = 0

    def __init__(self, axis: Sequence[float] | None = None):
        self.axes = _axes(axis, "SpatialTranslation")

    def generators(self, q: Array) -> Array:
        if q.shape[-2] != 4:
            raise InputError("SpatialTranslation needs bodies with a position: RigidBody(mass=...).")
        rows = jnp.asarray(self.axes, q.dtype).reshape(-1, *(1,) * (q.ndim - 1), 3)
        moved = jnp.broadcast_to(rows, (len(self.axes), *q.shape[:-2], 1, 3))
        still = jnp.zeros((len(self.axes), *q.shape[:-2], 3, 3), q.dtype)
        return jnp.concatenate([moved, still], axis=-2)
