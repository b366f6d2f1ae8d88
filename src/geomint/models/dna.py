"""A model of the opening of DNA."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
import numpy as np

from ..system.system import System
from .base import Model, Seed, count, model


@model
def dna(n: Annotated[int, count(3)] = 200, seed: Seed = 0) -> Model:
    """Mezić's ring of n base pairs by their angles (Tao and Owhadi, section 4.4):

    V = ½ Σ (θ_{k+1} − θ_k)² + ε Σ (exp(−a(1 − cos θ_k − x₀)) − 1)²,   a = 7, x₀ = .3, ε = 1/1400.

    The mean angle is slow; it rests near arccos .7 = .795 or its mirror 5.49 and now and then crosses over. The
    Hessian is cyclic tridiagonal.
    """
    a, x0, epsilon = 7.0, 0.3, 1 / 1400

    def potential(q):
        morse = (jnp.exp(-a * (1 - jnp.cos(q) - x0)) - 1) ** 2
        return 0.5 * jnp.sum((jnp.roll(q, -1) - q) ** 2) + epsilon * jnp.sum(morse)

    q0 = 0.8 + 0.1 * np.random.default_rng(seed).standard_normal(n)
    v0 = np.cos(4 * np.pi * np.arange(1, n + 1) / n) / np.sqrt(n)
    return Model(System(potential), q0, v0, "dna", f"{n} base pairs that open and close", dt=0.2, t_end=4000.0)
