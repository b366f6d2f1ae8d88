"""The position equation of a drift on the manifold, and its root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array


class Placed(NamedTuple):
    """A root of the position equation."""

    impulse: Array  # μ
    pull: Any  # w = G(q)ᵀμ, of the shape of q; at a singular position it is known although μ is not
    converged: Any
    rounds: Any  # iterations or sweeps it took


class Root(NamedTuple):
    """What an iteration finds: x with g(Q) = 0, and the pull where it has a part that no x stands for."""

    x: Array
    pull: Any
    converged: Any
    rounds: Any


class Drift:
    """g(Q) = 0 with Q = q + h M⁻¹(p − w), w = G(q)ᵀμ: a drift of length h from (q, p) that ends on the manifold.

    Iterations solve for x = h μ (x = h μ/M where the mass is one number), so that Q = Q_free − M⁻¹G(q)ᵀx with
    Q_free = q + h M⁻¹p: a position then costs the products with G(q)ᵀ and nothing else.
    """

    def __init__(self, mech: Any, q: Array, p: Array, h: Array):
        self.mech, self.q, self.p, self.h = mech, q, p, h
        self.one_mass: bool = mech.one_mass
        self.transposed: Callable[[Array], Array] = mech.constraint_pull(q)
        self.push = self.transposed if self.one_mass else lambda x: mech.velocity(self.transposed(x))
        self.stride = jnp.reshape(h * mech.mass_inverse, ()) if self.one_mass else h
        self.free = q + mech.displacement(p, h)

    def at(self, x: Array) -> Array:
        """Q."""
        return self.free - self.push(x)

    def pull(self, x: Array) -> Array:
        """w = G(q)ᵀx, scaled only then: near a singular position x is large and its parts cancel, in Q as in w."""
        return self.transposed(x) * (1 / self.stride)

    def pulled(self, pull: Array) -> Array:
        """Q for the pull w."""
        return self.q + self.mech.displacement(self.p - pull, self.h)
