"""Rigid bodies: what they are made of, their rotations, and the systems that follow.

Start with body.py: `RigidBody` has the inertia and the potential, and states a system on the group of rotations (or of
poses), or on matrices with a constraint. Configuration spaces themselves are in system/spaces.py and
system/matrix_group.py, the methods on groups in methods/lie_verlet.py and methods/moser_veselov.py.

May import: methods, system, numerics, errors. Models use it.
"""

from ..numerics.rotations import hat
from ..system.matrix_group import SE3, MatrixGroup
from ..system.spaces import SO3, Flat, Poses, Product, Space
from .body import Bodies, RigidBody
from .constraint import RigidPoses
from .orientation import from_quaternion, nearest_rotation, rotation, to_quaternion
from .symmetries import BodyRotation, SpatialRotation, SpatialTranslation

__all__ = [
    "SE3",
    "SO3",
    "Bodies",
    "BodyRotation",
    "Flat",
    "MatrixGroup",
    "Poses",
    "Product",
    "RigidBody",
    "RigidPoses",
    "Space",
    "SpatialRotation",
    "SpatialTranslation",
    "from_quaternion",
    "hat",
    "nearest_rotation",
    "rotation",
    "to_quaternion",
]
