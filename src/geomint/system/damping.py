"""Linear damping as its exact flow.

With q and the force N held, ṗ = N − D M⁻¹p has the solution

    p(h) = p + h φ₁(−Γh)(N − Γp),      ∫₀ʰ p = h φ₁(−Γh) p + h² φ₂(−Γh) N,      Γ = D M⁻¹,

φ₁(x) = (eˣ − 1)/x, φ₂(x) = (eˣ − 1 − x)/x². For Γ = γ, a number, this map scales dq ∧ dp by exp(−γh) if N is a
gradient: it is conformally symplectic, and so is every sequence of it and of symplectic maps. Steps may be negative.

Reference: McLachlan, Perlmutter, J. Geom. Phys. 39 (2001) 276; Bhatt, Floyd, Moore, J. Sci. Comput. 66 (2016) 1234.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..errors import InputError
from ..numerics.linalg.sparse_matrix import SparseMatrix
from ..numerics.linalg.structure import DENSE_LIMIT
from ..numerics.module import Module
from .checks import as_array
from .inertia import inertia
from .mass import check_unambiguous, checked_sparse, is_scipy_sparse, mass_is_matrix

SERIES = 0.3  # |x| up to which φ₂ is summed: its closed form loses digits by cancellation
TERMS = 13  # of that sum: 0.3¹³/15! is 1e-19


def phi1(x: Array) -> Array:
    """(eˣ − 1)/x."""
    safe = jnp.where(x == 0, 1.0, x)
    return jnp.where(x == 0, 1.0, jnp.expm1(safe) / safe)


def phi2(x: Array) -> Array:
    """(eˣ − 1 − x)/x²."""
    small = jnp.abs(x) < SERIES
    near, far = jnp.where(small, x, 0.0), jnp.where(small, 1.0, x)
    total = jnp.zeros_like(x)
    for k in reversed(range(TERMS)):
        total = total * near + 1 / math.factorial(k + 2)
    return jnp.where(small, total, (jnp.expm1(far) / far - 1) / far)


class DampingFlow(Module):
    """Γ = T diag(rates) T⁻¹; without T, the rates of the coordinates themselves."""

    rates: Array
    modes: Any = None  # T
    inverse: Any = None  # T⁻¹

    @classmethod
    def of(cls, mass: Any, damping: Any, shape: tuple[int, ...]) -> DampingFlow:
        """From M and D. Where one of them is a matrix, with M = L Lᵀ and L⁻¹D L⁻ᵀ = U diag(rates) Uᵀ, T = L U."""
        if not (mass_is_matrix(mass, shape) or mass_is_matrix(damping, shape)):
            return cls(damping / mass)
        if isinstance(damping, SparseMatrix):
            return cls(first_entry(damping) / first_entry(mass))  # D = γM: others are refused
        identity = jnp.eye(math.prod(shape), dtype=damping.dtype)
        flat = lambda momentum: jax.vmap(lambda e: momentum(e.reshape(shape)).ravel())(identity)
        full = lambda x: x if x.shape == identity.shape else jnp.diag(jnp.broadcast_to(x, shape).ravel())
        lower = jnp.linalg.cholesky(flat(inertia(mass, shape).momentum))
        root = jnp.linalg.solve(lower, identity)
        rates, vectors = jnp.linalg.eigh(root @ full(damping) @ root.T)
        return cls(rates, lower @ vectors, vectors.T @ root)

    def _mapped(self, function: Callable[..., Array], *momenta: Array) -> Array:
        """function of the momenta in the coordinates in which Γ is diagonal."""
        if self.modes is None:
            return function(*momenta)
        return (self.modes @ function(*(self.inverse @ p.ravel() for p in momenta))).reshape(momenta[0].shape)

    def impulse(self, p: Array, force: Array, h: Array) -> Array:
        """p(h) − p."""
        return self._mapped(lambda x, n: h * phi1(-self.rates * h) * (n - self.rates * x), p, force)

    def integral(self, p: Array, force: Array, h: Array) -> Array:
        """∫ p."""
        x = -self.rates * h
        return self._mapped(lambda y, n: h * phi1(x) * y + h**2 * phi2(x) * n, p, force)


def first_entry(x: Any) -> Array:
    """A nonzero entry of a matrix; the same one for matrices that are proportional to each other."""
    return jnp.ravel(x.values if isinstance(x, SparseMatrix) else x)[0]


def checked_damping(damping: Any) -> Any:
    """A number, an array or a matrix, as an array; its shape is compared with that of q when that is known."""
    if damping is None or isinstance(damping, SparseMatrix):
        return damping
    if is_scipy_sparse(damping):
        return checked_sparse(damping, "damping")
    return jnp.asarray(damping if isinstance(damping, Tracer) else as_array(damping, "damping"), float)


def is_uniform(damping: Any, mass: Any) -> bool:
    """Whether D = γM with a number γ, as far as the shapes or the numbers show it."""
    if damping is None:
        return False
    if isinstance(damping, SparseMatrix) or isinstance(mass, SparseMatrix):
        same = isinstance(damping, SparseMatrix) and isinstance(mass, SparseMatrix) and damping.pattern == mass.pattern
        numbers = [np.append(x.values, x.rest) for x in (damping, mass)] if same else [1.0, 0.0]
        d, m = (np.asarray(x) for x in numbers)
        rate = float(first_entry(damping) / first_entry(mass)) if same else 0.0
        return bool(np.max(np.abs(d - rate * m)) <= 1e-15 * np.max(np.abs(d)))
    if damping.size == 1 and mass.size == 1:
        return True
    if isinstance(damping, Tracer) or isinstance(mass, Tracer) or damping.shape != mass.shape:
        return False
    d, m = np.asarray(damping), np.asarray(mass)
    largest = np.argmax(np.abs(m))
    return bool(np.max(np.abs(d - d.ravel()[largest] / m.ravel()[largest] * m)) <= 1e-15 * np.max(np.abs(d)))


def check_damping(system: Any, q_shape: tuple[int, ...]) -> None:
    """Now that the shape of q is known: damping broadcasts to it, or is a symmetric matrix."""
    damping, mass = system.damping, system.mass
    if damping is None:
        return
    if isinstance(damping, SparseMatrix):
        if not system.uniform_damping:
            raise InputError(
                "a sparse damping must be a multiple of the mass, damping=gamma * mass with a sparse mass, of which "
                "the exact flow is known; give that of a small system as damping.toarray(), and any other as "
                "force=f(q, v)."
            )
        return
    if math.prod(q_shape) > DENSE_LIMIT and isinstance(mass, SparseMatrix):
        raise InputError(
            "with a sparse mass the exact flow of this damping needs the eigenvectors of M⁻¹D, a dense matrix of "
            f"{math.prod(q_shape)} unknowns, above {DENSE_LIMIT}; give damping=gamma * mass, or state it as "
            "force=f(q, v)."
        )
    n, shape = math.prod(q_shape), tuple(damping.shape)
    check_unambiguous(damping, tuple(q_shape), "damping")
    if not mass_is_matrix(damping, q_shape):
        return
    if shape != (n, n):
        raise InputError(
            f"damping has shape {shape}, but q0 has shape {tuple(q_shape)}: give a number, an array that broadcasts "
            f"to {tuple(q_shape)}, or a matrix ({n}, {n})."
        )
    if not isinstance(damping, Tracer):
        d = np.asarray(damping)
        if np.max(np.abs(d - d.T)) > 1e-12 * np.max(np.abs(d)):
            raise InputError(
                "damping must be symmetric (Rayleigh's dissipation ½vᵀD v); state a gyroscopic part, which is "
                "antisymmetric, as force=f(q, v)."
            )
