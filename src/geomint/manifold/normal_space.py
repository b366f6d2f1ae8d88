"""The normal space of the manifold at q, the range of G(q)ᵀ, where the constraints may depend on each other.

Two kinds of dependence are told apart. *Redundant* constraints (a rod stated twice, a frame with one bar too many, Bricard's
mechanism) depend on each other all along the motion; their normal space is the range of G(q)ᵀ, of smaller dimension than m.
At a *singular position* (a four-bar linkage in line) the rank is lower than just before and after it; there the constraint
still acts in the direction that G loses, which is the limit of the normal space along the motion. With z such that zᵀG(q) = 0,
that direction is zᵀG'(q)v, less its part in the range of G(q)ᵀ; for redundant constraints nothing is left of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..linalg.rank import Span, smallest_solution, span

CUTOFF = 1e-8  # of gradients of length 1: what is shorter counts as dependent on the others
LOST = 1e-6  # relative size above which the direction that G loses at a singular position is one


class NormalSpace(NamedTuple):
    """An orthonormal basis in the metric M⁻¹, as rows of n numbers, and how it is made of the gradients of the constraints."""

    basis: Array  # U (m, n): U M⁻¹Uᵀ = identity, but for rows of zeros
    combination: Array  # T (m, m): U = T G, but for the directions that G loses at q itself
    rank: Array  # of G(q)
    smallest: Array  # about the smallest singular value of G(q) that is not zero, for gradients of length 1

    def coordinates(self, mech: Any, p: Array) -> Array:
        """U M⁻¹p."""
        return jnp.sum(self.basis * mech.velocity(p).ravel(), axis=1)

    def pull(self, coordinates: Array, shape: tuple[int, ...]) -> Array:
        """Uᵀy, as a momentum."""
        return jnp.sum(self.basis * coordinates[:, None], axis=0).reshape(shape)

    def part(self, mech: Any, p: Array) -> Array:
        """The normal part of p."""
        return self.pull(self.coordinates(mech, p), p.shape)


def gradients(mech: Any, q: Array) -> Array:
    """G(q), one row for each constraint."""
    g, pull = jax.vjp(mech.constraint, q)
    return jax.vmap(lambda seed: pull(seed)[0].ravel())(jnp.eye(g.size, dtype=q.dtype))


def smallest_multipliers(mech: Any, q: Array, right: Array) -> Array:
    """The smallest x with (G M⁻¹Gᵀ) x = right, where right is in the range of G.

    With an orthonormal basis U = T G of the normal space the equation is (U M⁻¹Gᵀ) x = T right, whose rows are independent.
    """
    dual = lambda x: mech.velocity(x.reshape(q.shape)).ravel()
    rows = gradients(mech, q)
    found = span(rows, CUTOFF, dual)
    return smallest_solution(jax.vmap(dual)(found.basis) @ rows.T, jnp.sum(found.combination * right, axis=1))


def normal_space(mech: Any, q: Array, p: Array) -> NormalSpace:
    """The normal space at q for a motion with momentum p."""
    dual = lambda x: mech.velocity(x.reshape(q.shape)).ravel()
    rows = gradients(mech, q)
    found = span(rows, CUTOFF, dual)
    space = NormalSpace(found.basis, found.combination, found.rank, found.smallest)
    lost = lambda: _with_lost_directions(mech, q, p - space.part(mech, p), rows, found)
    basis = jax.lax.cond(found.rank < len(rows), lost, lambda: found.basis)
    return space._replace(basis=basis)


def _with_lost_directions(mech: Any, q: Array, p: Array, rows: Array, found: Span) -> Array:
    """The basis together with the directions that the gradients lose at q for a motion with the tangent momentum p."""
    dual = lambda x: mech.velocity(x.reshape(q.shape)).ravel()
    m = len(rows)
    # A gradient less what the basis has of it is zero: row i of z holds the combination of gradients that vanishes. It
    # vanishes as a sum, and not term by term, for the gradients that the basis was not made from.
    unit = jnp.sqrt(jnp.sum(rows * jax.vmap(dual)(rows), axis=1))
    inverse = jnp.where(unit > 0, 1 / jnp.where(unit > 0, unit, 1.0), 0.0)
    parts = jax.vmap(lambda row: jnp.sum(found.basis * dual(row), axis=1))(inverse[:, None] * rows)
    z = jnp.eye(m, dtype=q.dtype) * inverse[:, None] - parts @ found.combination
    left = jax.vmap(lambda row: jnp.sqrt(jnp.sum(row * dual(row))))(z @ rows)
    combined = jnp.diagonal(z) * unit > 0.5
    z = jnp.where((combined & (left < CUTOFF))[:, None], z, 0.0)
    turning = jax.jvp(lambda x: gradients(mech, x), (q,), (mech.velocity(p),))[1]  # G'(q)v
    limits = z @ turning
    size = lambda x: jnp.sqrt(jnp.sum(x * jax.vmap(dual)(x), axis=1))
    real = size(limits) > LOST * (jnp.abs(z) @ size(turning))
    limits = jnp.where(real[:, None], limits, 0.0)
    return span(jnp.concatenate([found.basis, limits]), LOST, dual).basis[:m]
