"""The mass as an operator: M v, M⁻¹p and drifts h M⁻¹p, by what the user stated.

a number, or an array that broadcasts to q     entry by entry
an array (…, d, d) for q of shape (…, d)       a block for each body
a matrix on the flattened q                    its inverse up to DENSE_LIMIT unknowns, its Cholesky factor beyond
a sparse matrix on the flattened q, or on its first axis (the same for each component)      see `sparse_matrix`
"""

from __future__ import annotations

import abc
import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ..errors import InputError
from ..numerics.linalg.cholesky import small_apply
from ..numerics.linalg.elimination import Factored, invert
from ..numerics.linalg.sparse_matrix import Cholesky, Inverse, SparseMatrix
from ..numerics.linalg.structure import DENSE_LIMIT
from ..numerics.module import Module
from .mass import mass_is_blocks, mass_is_matrix


class Inertia(Module):
    """M, prepared for solves."""

    @abc.abstractmethod
    def momentum(self, v: Array) -> Array:
        """M v."""

    @abc.abstractmethod
    def velocity(self, p: Array) -> Array:
        """M⁻¹p."""

    @abc.abstractmethod
    def diagonal(self, shape: tuple[int, ...]) -> Array:
        """The diagonal of M, for q of that shape."""

    def displacement(self, p: Array, h: Array) -> Array:
        """h M⁻¹p."""
        return h * self.velocity(p)


class EntryInertia(Inertia):
    """A number, or an array that broadcasts to q."""

    mass: Array
    inverse: Array  # a product a step instead of a division, which costs several times more

    def momentum(self, v: Array) -> Array:
        return v * self.mass

    def velocity(self, p: Array) -> Array:
        return p * self.inverse

    def diagonal(self, shape: tuple[int, ...]) -> Array:
        return jnp.broadcast_to(self.mass, shape)

    def displacement(self, p: Array, h: Array) -> Array:
        return (h * self.inverse) * p  # h M⁻¹ is formed once, outside the loop over steps


class BlockInertia(Inertia):
    """A matrix (d, d) for each body, q of shape (…, d)."""

    mass: Array
    inverse: Array

    @classmethod
    def of(cls, mass: Array) -> BlockInertia:
        d = mass.shape[-1]
        inverse = invert(mass.reshape(-1, d, d)).reshape(mass.shape)
        return cls(mass, 0.5 * (inverse + jnp.swapaxes(inverse, -1, -2)))

    def momentum(self, v: Array) -> Array:
        return small_apply(self.mass, v)

    def velocity(self, p: Array) -> Array:
        return small_apply(self.inverse, p)

    def diagonal(self, shape: tuple[int, ...]) -> Array:
        return jnp.diagonal(self.mass, axis1=-2, axis2=-1)


class MatrixInertia(Inertia):
    """A dense matrix on the flattened q."""

    mass: Array
    factored: Factored

    def momentum(self, v: Array) -> Array:
        return (self.mass @ v.ravel()).reshape(v.shape)

    def velocity(self, p: Array) -> Array:
        return self.factored.solve(p.ravel()).reshape(p.shape)

    def diagonal(self, shape: tuple[int, ...]) -> Array:
        return jnp.diagonal(self.mass).reshape(shape)


class SparseInertia(Inertia):
    """A sparse matrix on the flattened q, or on its first axis."""

    mass: SparseMatrix
    factored: Factored

    def _as_rows(self, x: Array) -> Array:
        return x if x.shape[:1] == self.mass.shape[:1] else x.ravel()

    def momentum(self, v: Array) -> Array:
        return self.mass.product(self._as_rows(v)).reshape(v.shape)

    def velocity(self, p: Array) -> Array:
        return self.factored.solve(self._as_rows(p)).reshape(p.shape)

    def diagonal(self, shape: tuple[int, ...]) -> Array:
        n = self.mass.shape[0]
        return jnp.broadcast_to(self.mass.diagonal[:, None], (n, math.prod(shape) // n)).reshape(shape)


def inertia(mass: Any, shape: tuple[int, ...] | None) -> Inertia:
    """The operator of a mass for q of that shape. Without a shape it is known for numbers and sparse matrices only; a
    square array is then taken for a matrix, although it may have one number for each coordinate of two bodies."""
    if isinstance(mass, SparseMatrix):
        return SparseInertia(mass, mass.factored())
    square = mass.ndim == 2 and mass.shape[0] == mass.shape[1]
    if square and (shape is None or mass_is_matrix(mass, shape)):
        return MatrixInertia(mass, (Inverse if len(mass) <= DENSE_LIMIT else Cholesky).of(mass))
    if shape is not None and mass_is_blocks(mass, shape):
        return BlockInertia.of(mass)
    return EntryInertia(mass, 1 / mass)


# --- a root of the mass -----------------------------------------------------------------------------------------------
def mass_root(mass: Any, shape: tuple[int, ...] | None) -> Array | None:
    """L with L Lᵀ = M, for `root_product`; None where the root is taken entry by entry. Without a shape the mass is
    checked only."""
    if isinstance(mass, SparseMatrix):
        if mass.shape[0] > DENSE_LIMIT:
            raise InputError(
                f"the square root of a sparse mass of {mass.shape[0]} unknowns is needed here, and computed up to "
                f"{DENSE_LIMIT}; state a lumped mass, the array of its diagonal."
            )
        return None if shape is None else jnp.linalg.cholesky(mass.dense())
    if shape is None or not mass_is_matrix(mass, shape):
        return None
    return jnp.linalg.cholesky(mass)


def root_product(mass: Any, root: Array | None, x: Array) -> Array:
    """L x."""
    if root is None:
        return jnp.sqrt(mass) * x
    if root.ndim > 2:
        return small_apply(root, x)
    return (root @ x.reshape(len(root), -1)).reshape(x.shape)
