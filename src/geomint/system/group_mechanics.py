"""Mechanics of a system on a Lie group: forces, velocities and momenta are trivialised (see `spaces`)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.compensated import value
from .mechanics import Mechanics, Position
from .spaces import Space
from .system import System


class GroupMechanics(Mechanics):
    """The derived quantities of a system on a group, with the mass on its algebra."""

    def __init__(self, system: System, shape: tuple[int, ...] | None = None, time: Any = 0.0):
        super().__init__(system, None if shape is None else system.space.velocity_shape(shape), time)

    @property
    def space(self) -> Space:
        return self.system.space

    def slow_gradient(self, q: Position) -> Array:
        return self.space.pull(value(q), super().slow_gradient(q))

    def gradient(self, q: Position) -> Array:
        """The trivialised dV(q)."""
        return self.slow_gradient(q)

    def momentum_maps(self, q: Position, p: Position) -> dict[str, Array]:
        """J_i = ⟨p, ξ_i⟩ with the trivialised generators ξ_i."""
        q, p, found = value(q), value(p), {}
        for name, symmetry in self.system.named_symmetries.items():
            rates = symmetry.generators(q)
            found[name] = jnp.stack([jnp.sum(p * self.space.tangent(q, rate)) for rate in rates])
        return found

    def acceleration(self, q: Position, v: Array, t: Any = None) -> Array:
        """v̇ = M⁻¹(ad*_v M v + f); q̇ = q v̂ is `space.lift(q, v)`."""
        return self.velocity(self.space.coadjoint(v, self.momentum(v)) + self.force(q))
