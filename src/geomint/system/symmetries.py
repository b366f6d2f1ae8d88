"""Symmetries that a user states, and the momentum maps that Noether's theorem gives for them.

A one-parameter group acting by δq = ξ(q) has the momentum map J(q, p) = ⟨p, ξ(q)⟩, constant along the motion whenever
V and the kinetic energy are invariant: ∇V(q)·ξ(q) = 0 and M ξ'(q) + ξ'(q)ᵀM = 0. The last axis of q is space; the axes
before it count particles.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.module import Module
from .checks import as_array, shown, vector, whole


class Symmetry(Module):
    """A group action by its infinitesimal generators; `generators(q)` stacks ξ₁(q), ξ₂(q), … on a leading axis."""

    degree: ClassVar[int] = 1  # of ξ in q: 0 for translations, 1 for linear actions

    @abc.abstractmethod
    def generators(self, q: Array) -> Array:
        """ξ₁(q), ξ₂(q), …, each of the shape of q."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The key of its momentum map in `run.momentum_maps`."""

    def momentum_map(self, q: Array, p: Array) -> Array:
        """J_i = ⟨p, ξ_i(q)⟩, one number for each generator."""
        return jnp.sum((self.generators(q) * p).reshape(-1, q.size), axis=1)


def _space(q: Array) -> int:
    return q.shape[-1] if q.ndim else 1


class Translation(Symmetry):
    """δq = e for all particles: the total linear momentum. `direction` picks one vector; all axes of space without
    it."""

    direction: tuple[float, ...] | None = eqx.field(static=True, default=None)
    degree: ClassVar[int] = 0

    def __init__(self, direction: Sequence[float] | None = None):
        self.direction = None if direction is None else vector(direction, "direction", "Translation")
        if self.direction is not None and not any(self.direction):
            raise InputError(f"Translation(direction={shown(direction)}): direction must not be zero.")

    @property
    def name(self) -> str:
        return "translation" if self.direction is None else f"translation{list(self.direction)}"

    def generators(self, q: Array) -> Array:
        d = _space(q)
        if self.direction is not None and len(self.direction) != d:
            raise InputError(
                f"Translation(direction=...) has {len(self.direction)} components, but the last axis of q has {d}."
            )
        vectors = np.eye(d) if self.direction is None else np.asarray([self.direction])
        everyone = jnp.ones((q.size // d, 1))
        return (everyone * vectors[:, None, :]).reshape(-1, *q.shape)


class Rotation(Symmetry):
    """δq = Ω q for every particle: angular momentum.

    `Rotation((i, j))` turns the plane of coordinates i and j (x_i p_j − x_j p_i); `Rotation(axis=(a, b, c))` turns
    about an axis in space; `Rotation()` is the plane in two dimensions and all three axes in three.
    """

    plane: tuple[int, int] | None = eqx.field(static=True, default=None)
    axis: tuple[float, ...] | None = eqx.field(static=True, default=None)

    def __init__(self, plane: Sequence[float] | None = None, axis: Sequence[float] | None = None):
        if plane is not None and axis is not None:
            raise InputError("Rotation takes a plane (i, j) or an axis (a, b, c), not both.")
        plane = None if plane is None else vector(plane, "plane", "Rotation")
        if plane is not None and len(plane) == 3:  # Rotation((0, 0, 1)): three numbers are an axis
            plane, axis = None, plane
        if plane is not None:
            plane = tuple(whole(x, "plane", "Rotation", least=0, most=2**31) for x in plane)
            if len(plane) != 2 or plane[0] == plane[1]:
                raise InputError(f"Rotation(plane={plane}): a plane is two different coordinate numbers, as in (0, 1).")
        if axis is not None:
            axis = vector(axis, "axis", "Rotation", size=3)
            if not any(axis):
                raise InputError(f"Rotation(axis={axis}): axis must not be zero.")
        self.plane, self.axis = plane, axis

    @property
    def name(self) -> str:
        which = self.plane if self.plane is not None else self.axis
        return "rotation" if which is None else f"rotation{list(which)}"

    def generators(self, q: Array) -> Array:
        matrices = np.stack([self._matrix(i, _space(q)) for i in range(self._count(_space(q)))])
        return jnp.einsum("kij,...j->k...i", matrices, q)

    def _count(self, d: int) -> int:
        if self.plane is None and self.axis is None and d == 3:
            return 3
        return 1

    def _matrix(self, k: int, d: int) -> np.ndarray:
        """The k-th skew matrix Ω, with δq = Ω q."""
        omega = np.zeros((d, d))
        if self.plane is not None or d == 2:
            i, j = self.plane or (0, 1)
            if max(i, j) >= d:
                raise InputError(f"Rotation(plane={self.plane}): the last axis of q has only {d} coordinates.")
            omega[i, j], omega[j, i] = -1.0, 1.0
            return omega
        if d != 3:
            raise InputError(f"Rotation() needs the last axis of q to be 2 or 3, not {d}; give a plane (i, j).")
        a = np.eye(3)[k] if self.axis is None else np.asarray(self.axis)
        return np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])


class Generator(Symmetry):
    """δq = A q for a matrix A that acts on each particle (d, d) or on the whole flattened q (n, n)."""

    matrix: Array

    def __init__(self, matrix: Array):
        self.matrix = jnp.asarray(as_array(matrix, "matrix", "Generator"))
        if self.matrix.ndim != 2 or self.matrix.shape[0] != self.matrix.shape[1] or not self.matrix.size:
            raise InputError(
                f"Generator(matrix=...): matrix must be a square matrix, not of shape {self.matrix.shape}."
            )

    @property
    def name(self) -> str:
        return "generator"

    def generators(self, q: Array) -> Array:
        n = self.matrix.shape[0]
        if n == q.size:
            return (self.matrix @ q.ravel()).reshape(1, *q.shape)
        if n == _space(q):
            return jnp.einsum("ij,...j->...i", self.matrix, q)[None]
        raise InputError(
            f"Generator(A): A is {n}×{n}, but q has shape {q.shape}; A must be {q.size}×{q.size} or "
            f"{_space(q)}×{_space(q)}."
        )
