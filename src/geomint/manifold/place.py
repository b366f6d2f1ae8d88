"""The position equation of a drift on the manifold, and its root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array


class Placed(NamedTuple):
    """A root of the position equation."""

    impulse: Array  # μ
    pull: Any  # w = G(q)ᵀμ, of the shape of q; at a singular position it is known although μ is not
    converged: Any
    rounds: Any  # iterations or sweeps it took


class Drift:
    """g(Q) = 0 with Q = q + h M⁻¹(p − w), w = G(q)ᵀμ: a drift of length h from (q, p) that ends on the manifold."""

    def __init__(self, mech: Any, q: Array, p: Array, h: Array):
        self.mech, self.q, self.p, self.h = mech, q, p, h
        self.pull: Callable[[Array], Array] = mech.constraint_pull(q)

    def pulled(self, pull: Array) -> Array:
        """Q for the pull w."""
        return self.q + self.mech.displacement(self.p - pull, self.h)

    def at(self, impulse: Array) -> Array:
        """Q for the impulse μ."""
        return self.pulled(self.pull(impulse))
