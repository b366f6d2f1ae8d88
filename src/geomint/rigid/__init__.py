"""Rigid bodies: what they are made of, their rotations, joints between them, and the systems that follow.

Start with body.py: `RigidBody` has the inertia and the potential, and states a system on the group of rotations (or of
poses), or on matrices with a constraint. Configuration spaces themselves are in system/spaces.py and
system/matrix_group.py, the methods on groups in methods/lie_verlet.py and methods/moser_veselov.py.

assembly.py has bodies with joints: joints.py states them, linkage.py is the constraint that follows. inertia.py has the
inertias of solids; mjcf.py and urdf.py open files.

May import: methods, system, numerics, errors. Models use it.
"""

from ..numerics.rotations import hat
from ..system.matrix_group import SE3, MatrixGroup
from ..system.spaces import SO3, Flat, Poses, Product, Space
from . import inertia
from .assembly import Assembly
from .body import Bodies, RigidBody
from .constraint import RigidPoses
from .inertia import MassProperties
from .joints import Ball, Cylindrical, Distance, Hinge, Joint, Slider, Universal, Weld
from .mjcf import from_mjcf
from .orientation import from_quaternion, nearest_rotation, rotation, to_quaternion
from .symmetries import BodyRotation, SpatialRotation, SpatialTranslation
from .urdf import from_urdf

__all__ = [
    "SE3",
    "SO3",
    "Assembly",
    "Ball",
    "Bodies",
    "BodyRotation",
    "Cylindrical",
    "Distance",
    "Flat",
    "Hinge",
    "Joint",
    "MassProperties",
    "MatrixGroup",
    "Poses",
    "Product",
    "RigidBody",
    "RigidPoses",
    "Slider",
    "Space",
    "SpatialRotation",
    "SpatialTranslation",
    "Universal",
    "Weld",
    "from_mjcf",
    "from_quaternion",
    "from_urdf",
    "hat",
    "inertia",
    "nearest_rotation",
    "rotation",
    "to_quaternion",
]
