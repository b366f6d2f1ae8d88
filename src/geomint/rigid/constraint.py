"""The constraint of bodies by position and rotation matrix."""

from __future__ import annotations

from jaxtyping import Array

from ..errors import InputError
from ..system.constraints import Constraint, Orthogonal


class RigidPoses(Constraint):
    """RᵀR = I of bodies whose q of shape (4, 3), or (bodies, 4, 3), has the centre of mass in its first row and the
    rotation matrix R in the others; six equations for each body."""

    def residual(self, q: Array) -> Array:
        if q.shape[-2:] != (4, 3):
            raise InputError(f"RigidPoses holds bodies in q of shape (4, 3) or (bodies, 4, 3), not {q.shape}.")
        return Orthogonal().residual(q[..., 1:, :])
