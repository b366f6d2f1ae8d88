"""The magnetic field of a system: the force e v × B(q, t) on each particle.

The last axis of q is space. In space (3 coordinates) B is a vector at each particle; in the plane (2 coordinates) it is
normal to the plane, and stated by its component B_z, one number for each particle. v × B is then (v_y B_z, −v_x B_z).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..errors import InputError
from ..numerics.module import Module
from .checks import as_array
from .mass import mass_is_matrix


class UniformField(Module):
    """A field that depends neither on q nor on t; stated as numbers instead of a function."""

    field: Any

    def __call__(self, q: Any) -> Any:
        return self.field


def checked_charge(charge: Any, has_field: bool) -> Array | None:
    """A number, or one for each particle; 1 where it is None. None without a magnetic field."""
    if charge is None:
        charge = 1.0
    if not has_field:
        if isinstance(charge, Tracer) or np.any(np.asarray(charge) != 1.0):
            raise InputError(
                "charge is the charge in the force e v × B, and the system has no magnetic_field; the potential is an "
                "energy, and contains the charges."
            )
        return None
    return jnp.asarray(charge if isinstance(charge, Tracer) else as_array(charge, "charge"), float)


def field_shape(q_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of B for q of this shape: that of q in space, without its last axis in the plane."""
    return q_shape if q_shape[-1] == 3 else q_shape[:-1]


def cross(a: Array, b: Array) -> Array:
    """a × b along the last axis; in the plane b is a number for each vector a. Written in components, which every
    engine covers."""
    if a.shape[-1] == 2:
        return jnp.stack([a[..., 1] * b, -a[..., 0] * b], axis=-1)
    (x, y, z), (u, v, w) = ((c[..., 0], c[..., 1], c[..., 2]) for c in (a, b))
    return jnp.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=-1)


def squared(b: Array, q_shape: tuple[int, ...]) -> Array:
    """|b|² of each particle, with a last axis of length 1."""
    return jnp.sum(b * b, axis=-1, keepdims=True) if q_shape[-1] == 3 else (b * b)[..., None]


def check_magnetic(system: Any, q_shape: tuple[int, ...]) -> None:
    """Now that the shape of q is known: space has two or three axes, and a particle has one mass and one charge."""
    if system.magnetic_field is None:
        return
    if not q_shape or q_shape[-1] not in (2, 3):
        raise InputError(
            f"magnetic_field is for particles in space, q of shape (n, 3) or (3,), or in the plane, (n, 2) or (2,); "
            f"q0 has shape {q_shape}."
        )
    mass, charge = system.mass, system.charge
    if mass_is_matrix(mass, q_shape):
        raise InputError(
            f"with a magnetic_field the mass must be a number or an array that broadcasts to q0 of shape {q_shape}, "
            "with one mass for each particle; a matrix is not possible."
        )
    along = np.broadcast_shapes(mass.shape, (1,))[-1]
    equal = along == 1 or (not isinstance(mass, Tracer) and np.all(np.asarray(mass) == np.asarray(mass)[..., :1]))
    if not equal:
        raise InputError(
            "with a magnetic_field the mass must be the same along all axes of a particle; give one for each particle, "
            "as mass[:, None]."
        )
    particles = q_shape[:-1]
    if charge.shape not in ((), particles):
        raise InputError(
            f"charge has shape {charge.shape}, but q0 has shape {q_shape}: give a number, or an array {particles}, one "
            "for each particle."
        )


def as_field(b: Array, q_shape: tuple[int, ...]) -> Array:
    """What magnetic_field returned, in the shape of a field."""
    shape = field_shape(q_shape)
    try:
        fits = np.broadcast_shapes(b.shape, shape) == shape
    except ValueError:
        fits = False
    in_space = q_shape[-1] == 3
    scalar = in_space and b.shape[-1:] != (3,)  # would be broadcast to the vector (B, B, B)
    if scalar or not fits:
        where = "a vector at each particle, with three components" if in_space else "B_z at each particle"
        hint = " A field along z is np.array([0, 0, B])." if fits else ""
        raise InputError(
            f"magnetic_field must be {where}; for q of shape {q_shape} an array that broadcasts to {shape}; it has "
            f"shape {b.shape}.{hint}"
        )
    return jnp.broadcast_to(b, shape)
