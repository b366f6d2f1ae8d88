"""A method that draws random numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from geomint.methods.base import Carry, Method, State, Traits


class Noisy(Method):
    """Kicks and drifts with noise: a key of two whole numbers, into which the number of the step is folded."""

    size: float = 0.1

    @property
    def traits(self) -> Traits:
        return Traits(1, symplectic=False, symmetric=False, reversible=False, energy=None, momentum_maps=None)

    def init(self, mech: Any, state: State, dt: Any) -> Carry:
        return state.q, state.p, state.key, jnp.zeros((), jnp.uint32)

    def step(self, mech: Any, carry: Carry, dt: Any) -> Carry:
        q, p, key, n = carry
        noise = jax.random.normal(jax.random.fold_in(jax.random.wrap_key_data(key), n), q.shape)
        p = p + dt * mech.force(q) + self.size * jnp.sqrt(dt) * noise
        return q + dt * p, p, key, n + 1
