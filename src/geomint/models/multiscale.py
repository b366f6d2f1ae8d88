"""Fast and slow forces in one system: V is slow, W fast (`System(potential=V, fast=W)`)."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
import numpy as np

from ..methods import IMEX
from ..system.system import System
from .base import Model, count, model


@model
def fast_slow_oscillator(omega: float = 50.0) -> Model:
    """One oscillator with two springs, V = ½q² and W = ½ω²q² (Stern and Grinspun 2009): a multiple-time-step method
    with step h is unstable near hω = π, 2π, …; a method without resonances is stable for every ω as long as h ≤ 2."""
    system = System(
        lambda q, k: 0.5 * jnp.sum(q**2),
        fast=lambda q, k: 0.5 * k["omega"] ** 2 * jnp.sum(q**2),
        params={"omega": omega},
    )
    return Model(
        system,
        np.array([1.0]),
        np.array([0.0]),
        "fast_slow_oscillator",
        f"an oscillator on two springs, of frequencies 1 and {omega:g}",
        IMEX(),
        dt=0.01,
        t_end=5.0,
    )


@model
def stiff_double_pendulum(omega: float = 50.0, gravity: float = 1.0) -> Model:
    """Two unit masses in the plane, the first hung from the origin and the second from the first by stiff springs of
    length 1:

        V = g (y₁ + y₂),     W = ½ω² Σ (|d| − 1)²,

    d the extensions of the two springs as vectors. W is not quadratic: its directions turn.
    """

    def fast(q, k):
        lengths = jnp.sqrt(jnp.sum(jnp.diff(q, axis=0, prepend=0.0) ** 2, axis=1))
        return 0.5 * k["omega"] ** 2 * jnp.sum((lengths - 1) ** 2)

    system = System(
        lambda q, k: k["gravity"] * jnp.sum(q[:, 1]), fast=fast, params={"omega": omega, "gravity": gravity}
    )
    angles = np.array([1.0, 0.5])  # from the vertical
    q0 = np.cumsum(np.stack([np.sin(angles), -np.cos(angles)], axis=1), axis=0)
    return Model(
        system,
        q0,
        np.zeros((2, 2)),
        "stiff_double_pendulum",
        f"two masses on springs of frequency {omega:g}, released at rest",
        dt=0.02,
        t_end=50.0,
    )


@model
def elastic_chain(n: Annotated[int, count(2)] = 100, stiff: float = 50.0, quartic: float = 1.0) -> Model:
    """n unit masses between walls, with alternating stiff (even) and soft springs, of frequencies `stiff` and 1; the
    soft ones harden:

        V = ¼a Σ_{soft} d⁴,     W = ½ Σ kᵢ dᵢ²,   kᵢ = stiff² or 1,

    d the extensions of the n + 1 springs. Hess W is tridiagonal.
    """

    soft = np.arange(n + 1) % 2 == 1

    def potential(q, k):
        return 0.25 * k["quartic"] * jnp.sum(jnp.diff(q, prepend=0.0, append=0.0)[1::2] ** 4)

    def fast(q, k):
        return 0.5 * jnp.sum(jnp.where(soft, 1.0, k["stiff"] ** 2) * jnp.diff(q, prepend=0.0, append=0.0) ** 2)

    at = np.arange(1, n + 1)
    v0 = np.sin(np.pi * at / (n + 1))
    v0 += 0.5 * np.sin(2 * np.pi * at / (n + 1))  # no reflection symmetry
    system = System(potential, fast=fast, params={"stiff": stiff, "quartic": quartic})
    return Model(
        system,
        np.zeros(n),
        v0,
        "elastic_chain",
        f"{n} masses on a line, alternating springs of frequencies {stiff:g} and 1",
        IMEX(),
        dt=0.1,
        t_end=100.0,
    )
