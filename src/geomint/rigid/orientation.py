"""Rotations at the interface: matrices, unit quaternions, axis and angle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..numerics import rotations
from ..system.checks import as_array, number, vector


def rotation(axis: Sequence[float], angle: float) -> np.ndarray:
    """The matrix of a rotation about an axis.

    axis:   three numbers; only the direction counts.
    angle:  in radians, counterclockwise as seen from the tip of the axis.
    """
    a = np.array(vector(axis, "axis", "rotation", size=3))
    if not np.any(a):
        raise InputError("rotation(axis=[0, 0, 0]): axis must not be zero.")
    a = a / np.max(np.abs(a))  # so that the squares of very large or small components are finite
    half = 0.5 * number(angle, "angle", "rotation")
    return np.asarray(rotations.from_quaternion(jnp.asarray([np.cos(half), *(np.sin(half) * a / np.linalg.norm(a))])))


def from_quaternion(e: Any) -> np.ndarray:
    """The rotation matrices (..., 3, 3) of quaternions.

    e:  (..., 4), the scalar part first; each is divided by its length, which must not be zero.
    """
    e = as_array(e, "e", "from_quaternion")
    if not e.ndim or e.shape[-1] != 4:
        raise InputError(f"from_quaternion(e): e must have the shape (..., 4), not {e.shape}.")
    lengths = np.linalg.norm(e, axis=-1, keepdims=True)
    if not np.all(lengths > 0):
        raise InputError("from_quaternion(e): a quaternion of length 0 is no rotation.")
    return np.asarray(rotations.from_quaternion(e / lengths))


def to_quaternion(r: Any) -> np.ndarray:
    """The unit quaternions (..., 4) of rotation matrices, the scalar part first and not negative.

    r:  (..., 3, 3); matrices that are not rotations are refused.
    """
    from ..system.spaces import SO3

    r = as_array(r, "r", "to_quaternion")
    SO3().velocity_shape(r.shape)
    SO3().check(r, "r")
    return np.asarray(rotations.to_quaternion(r))


def nearest_rotation(r: Any) -> np.ndarray:
    """The rotation matrix nearest to each matrix (..., 3, 3), by its singular values.

    r:  matrices near rotations; one whose determinant is not positive is refused.
    """
    r = as_array(r, "r", "nearest_rotation")
    if r.ndim < 2 or r.shape[-2:] != (3, 3):
        raise InputError(f"nearest_rotation(r): r must have the shape (..., 3, 3), not {r.shape}.")
    if not np.all(np.linalg.det(r) > 0):
        raise InputError("nearest_rotation(r): the determinant is not positive; no rotation is near this matrix.")
    left, _, right = np.linalg.svd(r)
    return left @ right
