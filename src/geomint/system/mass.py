"""The mass, as the user states it: a number, an array that broadcasts to q, or a matrix."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..errors import InputError
from .checks import as_array


def checked_mass(mass: Any) -> Array:
    if not isinstance(mass, Tracer):
        try:
            mass = as_array(mass, "mass")
        except InputError as error:
            if "not finite" in str(error):
                raise
            raise InputError(f"mass must be a number, an array that broadcasts to q, or a matrix: {error}") from None
        if mass.size == 0:
            raise InputError(
                f"mass must be a number, an array that broadcasts to q, or a matrix, not of shape {mass.shape}."
            )
    mass = jnp.asarray(mass, float)
    if isinstance(mass, Tracer):
        return mass
    square = mass.ndim == 2 and mass.shape[0] == mass.shape[1]
    if not square and not np.all(np.asarray(mass) > 0):
        raise InputError(f"mass must be positive; its smallest entry is {np.min(mass):g}.")
    return mass


def mass_is_matrix(mass_shape: tuple[int, ...], q_shape: tuple[int, ...]) -> bool:
    """Whether a mass of this shape is a matrix on the flattened q (it is, unless it broadcasts to q)."""
    try:
        return np.broadcast_shapes(mass_shape, q_shape) != tuple(q_shape)
    except ValueError:
        return True


def check_unambiguous(mass: Any, q_shape: tuple[int, ...], name: str = "mass") -> None:
    """Refuse a mass (or a damping) that fits q in two ways: [1, 3] for two bodies in the plane may be meant for the
    bodies or for the axes, and broadcasting would silently take the last axes. A mass with equal entries is accepted:
    both readings agree."""
    shape, k = tuple(mass.shape), mass.ndim
    fitting = [first for first in range(len(q_shape) - k + 1) if q_shape[first : first + k] == shape]
    if k == 0 or 1 in shape or len(fitting) < 2:
        return
    if not isinstance(mass, Tracer) and np.all(np.asarray(mass) == np.ravel(mass)[0]):
        return
    readings = []
    for first in fitting:
        places = ", ".join(":" if first <= d < first + k else "None" for d in range(len(q_shape)))
        meant = (
            " (one for each body)"
            if first == 0
            else " (one for each coordinate axis)"
            if first + k == len(q_shape)
            else ""
        )
        readings.append(
            f"{name}[{places}] for axis {first}{meant}"
            if k == 1
            else f"{name}[{places}] for axes {first} to {first + k - 1}{meant}"
        )
    raise InputError(
        f"{name} of shape {shape} can be read in {len(fitting)} ways for q0 of shape {q_shape}; write "
        f"{', or '.join(readings)}."
    )


def check_mass(system: Any, q_shape: tuple[int, ...]) -> None:
    """Now that the shape of q is known: the mass broadcasts to it, or is a symmetric positive definite matrix."""
    shape = system.mass.shape
    n = int(np.prod(q_shape))
    check_unambiguous(system.mass, tuple(q_shape))
    if mass_is_matrix(shape, q_shape) and shape != (n, n):
        raise InputError(
            f"mass has shape {shape}, but q0 has shape {tuple(q_shape)}: give a number, an array that broadcasts "
            f"to {tuple(q_shape)}, or a matrix ({n}, {n})."
        )
    if len(shape) < 2 or shape[0] != shape[1] or isinstance(system.mass, Tracer):
        return
    mass = np.asarray(system.mass)
    if not mass_is_matrix(shape, q_shape):
        if not np.all(mass > 0):
            raise InputError(f"mass must be positive; its smallest entry is {mass.min():g}.")
        return
    if np.max(np.abs(mass - mass.T)) > 1e-12 * np.max(np.abs(mass)):
        raise InputError(
            f"mass must be symmetric; mass and its transpose differ by {np.max(np.abs(mass - mass.T)):.2g}."
        )
    smallest = np.linalg.eigvalsh(mass)[0]
    if smallest <= 0:
        raise InputError(f"mass must be positive definite; its smallest eigenvalue is {smallest:.3g}.")
