"""Translations and rotations of an assembly, and which of them gravity and the joints to the world leave."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..system.symmetries import Symmetry
from .joints import PlacedJoint
from .linkage import Directors

PARALLEL = 1e-12


class AssemblyMotion(Symmetry):
    """δx = A x + b for points, δd = A d for directions."""

    matrices: Array  # (k, 3, 3)
    shifts: Array  # (k, 3)
    centres: tuple[int, ...] = eqx.field(static=True)  # the rows of q that are points
    called: str = eqx.field(static=True)

    @property
    def name(self) -> str:
        return self.called

    def generators(self, q: Array) -> Array:
        is_point = np.zeros((len(q), 1))
        is_point[list(self.centres)] = 1.0
        return jnp.einsum("kij,rj->kri", self.matrices, q) + is_point * self.shifts[:, None, :]


def translation(directors: Directors, directions: np.ndarray) -> AssemblyMotion:
    """Along directions (k, 3)."""
    zeros = jnp.zeros((len(directions), 3, 3))
    return AssemblyMotion(zeros, jnp.asarray(directions), _centres(directors), "translation")


def rotation(directors: Directors, axes: np.ndarray, point: np.ndarray) -> AssemblyMotion:
    """About axes (k, 3) through a point."""
    matrices = np.array([np.cross(axis, np.eye(3)).T for axis in axes])
    return AssemblyMotion(jnp.asarray(matrices), jnp.asarray(-matrices @ point), _centres(directors), "rotation")


def _centres(directors: Directors) -> tuple[int, ...]:
    return tuple(directors.starts[:-1].tolist())


def found_symmetries(directors: Directors, joints: Sequence[PlacedJoint], gravity: np.ndarray) -> tuple[Symmetry, ...]:
    """The translations and rotations under which gravity and the joints to the world do not change."""
    anchors = [joint for joint in joints if joint.first == 0]
    weight = np.linalg.norm(gravity)
    vertical = None if weight == 0 else gravity / weight
    if not anchors:
        level = np.eye(3) if vertical is None else np.linalg.svd(vertical[None])[2][1:]
        axes = np.eye(3) if vertical is None else -vertical[None]
        return translation(directors, level), rotation(directors, axes, np.zeros(3))
    points = np.array([joint.points[0] for joint in anchors])
    about_point = all(joint.dots is None and joint.directions is None and joint.moving is None for joint in anchors)
    if about_point and np.all(points == points[0]):
        axes = np.eye(3) if vertical is None else -vertical[None]
        return (rotation(directors, axes, points[0]),)
    one = anchors[0]
    axis = one.axis if len(anchors) == 1 and one.directions is None and one.moving is None else None
    if axis is not None and (vertical is None or abs(abs(axis @ vertical) - 1) < PARALLEL):
        return (rotation(directors, axis[None], points[0]),)
    return ()
