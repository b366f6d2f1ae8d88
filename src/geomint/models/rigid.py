"""Rigid bodies without angles: a top by its rotation matrix. Rigid molecules are in water.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..system.checks import bounded, vector
from ..system.constraints import Orthogonal
from ..system.symmetries import Generator, Rotation, Symmetry
from ..system.system import System
from .base import Model, model

Three = Annotated[Sequence[float], bounded(vector, size=3)]


def hat(omega: np.ndarray) -> np.ndarray:
    """The skew matrix Ω̂ with Ω̂ x = Ω × x."""
    return np.cross(omega, np.eye(3)).T


@model
def heavy_top(inertia: Three = (0.6, 0.8, 1.0), momentum: Three = (1.8, 0.4, -0.9)) -> Model:
    """A rigid body with one point fixed, by its rotation matrix Q from body to space (Console, Hairer and Lubich
    2013, example 3; Hairer, Lubich, Wanner, section VII.5):

    H = ½ tr(P D⁻¹Pᵀ) + q₃₃,   QᵀQ = I,   P = Q̇D,   d_i = ½(I_j + I_k − I_i).

    inertia:   the principal moments I; each must be smaller than the sum of the others.
    momentum:  angular momentum m in the body at the start, where Q = I: Q̇ = QΩ̂ with Ω_i = m_i/I_i, so H = ½ m·Ω + 1.

    The system is symmetric under rotations of space about the vertical: (Qm)₃ is conserved. Where I₁ = I₂ (Lagrange's
    top) it is symmetric under rotations of the body about its axis too: m₃ is conserved, up to its sign the momentum
    map of the second symmetry.
    """
    moments, m = np.array(inertia), np.array(momentum)
    d = 0.5 * moments.sum() - moments
    if not np.all(d > 0):
        raise InputError(
            f"heavy_top(inertia={moments.tolist()}): each moment of inertia of a body is smaller than the sum of the "
            "other two."
        )
    # δQ = ê₃Q mixes the rows of Q, and symmetries act on the last axis; on the flattened Q, row by row, it is ê₃ ⊗ I.
    symmetries: tuple[Symmetry, ...] = (Generator(jnp.kron(hat(np.eye(3)[2]), np.eye(3))),)
    if moments[0] == moments[1]:
        symmetries += (Rotation((0, 1)),)  # δQ = −Qê₃
    system = System(lambda q: q[2, 2], mass=d[None, :], constraint=Orthogonal(), symmetries=symmetries)
    return Model(
        system, np.eye(3), hat(m / moments), "heavy_top", "a spinning top as a rotation matrix", dt=0.01, t_end=20.0
    )
