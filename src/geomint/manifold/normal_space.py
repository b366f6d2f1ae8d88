"""The normal space of the manifold at q, the range of G(q)ᵀ, where the constraints may depend on each other.

Two kinds of dependence are told apart. *Redundant* constraints (a rod stated twice, a frame with one bar too many,
Bricard's mechanism) depend on each other all along the motion; their normal space is the range of G(q)ᵀ, of smaller
dimension than m. At a *singular position* (a four-bar linkage in line) the rank is lower than just before and after
it; there the constraint still acts in the direction that G loses, which is the limit of the normal space along the
motion. With z such that zᵀG(q) = 0, that direction is zᵀG'(q)v, less its part in the range of G(q)ᵀ; for redundant
constraints nothing is left of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.linalg.rank import Span, cutoff, length, smallest_solution, span

# As powers of eps, 1.5e-8 and 1.1e-6 in double precision:
DEPENDENT_SHARE = 0.5  # gradients of length 1 of which less than this is left count as dependent on the others
LIMIT_SHARE = 0.38  # relative size above which the direction that G loses at a singular position is one


class NormalSpace(NamedTuple):
    """An orthonormal basis in the metric M⁻¹, as rows of n numbers, and how it is made of the gradients of the
    constraints."""

    basis: Array  # U (m, n): U M⁻¹Uᵀ = identity, but for rows of zeros
    combination: Array  # T (m, m): U = T G; rows of zeros for the directions that G loses at q itself
    rows: Array  # G

    def coordinates(self, mech: Any, p: Array) -> Array:
        """U M⁻¹p."""
        return jnp.sum(self.basis * mech.velocity(p).ravel(), axis=1)

    def momentum(self, coordinates: Array, shape: tuple[int, ...]) -> Array:
        """Uᵀy, as a momentum."""
        return jnp.sum(self.basis * coordinates[:, None], axis=0).reshape(shape)

    def part(self, mech: Any, p: Array) -> Array:
        """The normal part of p."""
        return self.momentum(self.coordinates(mech, p), p.shape)

    def multipliers(self, mech: Any, coordinates: Array, shape: tuple[int, ...]) -> Array:
        """The smallest μ with Gᵀμ = Uᵀy, but for the part of it along directions that G loses."""
        made_of_rows = jnp.any(self.combination != 0, axis=1)[:, None]
        basis = jnp.where(made_of_rows, self.basis, 0.0)
        dual = jax.vmap(lambda x: mech.velocity(x.reshape(shape)).ravel())(basis)
        return smallest_solution(dual @ self.rows.T, jnp.where(made_of_rows[:, 0], coordinates, 0.0))


def gradients(mech: Any, q: Array) -> Array:
    """G(q), one row for each constraint."""
    g, pull = jax.vjp(mech.constraint, q)
    return jax.vmap(lambda seed: pull(seed)[0].ravel())(jnp.eye(g.size, dtype=q.dtype))


def smallest_multipliers(mech: Any, q: Array, right: Array) -> Array:
    """The smallest x with (G M⁻¹Gᵀ) x = right, where right is in the range of G.

    With an orthonormal basis U = T G of the normal space the equation is (U M⁻¹Gᵀ) x = T right, whose rows are
    independent.
    """
    dual = lambda x: mech.velocity(x.reshape(q.shape)).ravel()
    rows = gradients(mech, q)
    found = span(rows, cutoff(q.dtype, DEPENDENT_SHARE), dual)
    return smallest_solution(jax.vmap(dual)(found.basis) @ rows.T, jnp.sum(found.combination * right, axis=1))


def normal_space(mech: Any, q: Array, p: Array) -> NormalSpace:
    """The normal space at q for a motion with momentum p."""
    dual = lambda x: mech.velocity(x.reshape(q.shape)).ravel()
    rows = gradients(mech, q)
    found = span(rows, cutoff(q.dtype, DEPENDENT_SHARE), dual)
    space = NormalSpace(found.basis, found.combination, rows)
    lost = lambda: _lost_directions(mech, q, p - space.part(mech, p), rows, found)
    limits = jax.lax.cond(found.rank < len(rows), lost, lambda: jnp.zeros_like(rows))
    # The limits fill rows after those of G, which keep their places: row i of `combination` belongs to row i of the
    # basis.
    place = jnp.arange(len(rows))
    moved = (place[:, None] == found.rank + place[None, :]).astype(rows.dtype)
    return space._replace(basis=found.basis + moved @ limits)


def _lost_directions(mech: Any, q: Array, p: Array, rows: Array, found: Span) -> Array:
    """Orthonormal directions, normal to the basis, that the gradients lose at q for a motion with the tangent
    momentum p."""
    dual = lambda x: mech.velocity(x.reshape(q.shape)).ravel()
    m = len(rows)
    # Row i of z is the combination of gradients that equals gradient i less its part in the basis, so that z G = 0.
    # For a gradient that the basis was made from, all entries of the row vanish; for a dependent one z_ii |G_i| = 1.
    # Only the latter are used.
    unit = length(jnp.sum(rows * jax.vmap(dual)(rows), axis=1))
    inverse = jnp.where(unit > 0, 1 / jnp.where(unit > 0, unit, 1.0), 0.0)
    parts = jax.vmap(lambda row: jnp.sum(found.basis * dual(row), axis=1))(inverse[:, None] * rows)
    z = jnp.eye(m, dtype=q.dtype) * inverse[:, None] - parts @ found.combination
    left = length(jax.vmap(lambda row: jnp.sum(row * dual(row)))(z @ rows))
    combined = jnp.diagonal(z) * unit > 0.5
    z = jnp.where((combined & (left < cutoff(q.dtype, DEPENDENT_SHARE)))[:, None], z, 0.0)
    size = lambda x: length(jnp.sum(x * jax.vmap(dual)(x), axis=1))
    threshold = cutoff(q.dtype, LIMIT_SHARE)

    def limits_for(v: Array) -> tuple[Array, Array]:
        """Rows zᵀG'(q)v, and those of them that are more than rounding."""
        turning = jax.jvp(lambda x: gradients(mech, x), (q,), (v,))[1]
        limits = z @ turning
        return limits, size(limits) > threshold * (jnp.abs(z) @ size(turning))

    # Kicks turn v away from the motions that the constraints allow, those with zᵀg''(v, v) = 0 for every z: two steps
    # of Newton's method lead back to the nearest of them. Without these steps a method of order 4 or more drops to a
    # lower order at such a position. The factor ½ is there because zᵀg''(v, v) is quadratic in v.
    v = mech.velocity(p)
    for _ in range(2):
        limits, real = limits_for(v)
        rows_ = jnp.where(real[:, None], limits, 0.0)
        along = span(rows_, threshold, dual)
        excess = along.combination @ jnp.sum(rows_ * v.ravel(), axis=1)  # zᵀg''(v, v)
        v = v - 0.5 * mech.velocity(jnp.sum(along.basis * excess[:, None], axis=0).reshape(q.shape))
    limits, real = limits_for(v)
    limits = jnp.where(real[:, None], limits, 0.0)
    # Scaled to length 1 before the part in the basis is removed, so that the length of the rest decides whether a
    # limit is new.
    lengths = size(limits)[:, None]
    limits = jnp.where(lengths > 0, limits / jnp.where(lengths > 0, lengths, 1.0), 0.0)
    outside = lambda x: x - jax.vmap(lambda row: jnp.sum(found.basis * dual(row), axis=1))(x) @ found.basis
    limits = outside(outside(limits))
    return span(jnp.where(size(limits)[:, None] > threshold, limits, 0.0), threshold, dual).basis
