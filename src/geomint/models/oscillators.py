"""One particle in a potential, and chains of springs."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..system.system import System
from .base import Model, Positive, count, model


@model
def pendulum(length: Positive = 1.0, gravity: float = 1.0, angle: float = 2.0) -> Model:
    """A mathematical pendulum in its angle θ: H = p²/(2l²) − g l cos θ."""
    system = System(
        lambda q, k: -k["gravity"] * k["length"] * jnp.sum(jnp.cos(q)),
        mass=length**2,
        params={"length": length, "gravity": gravity},
    )
    return Model(
        system,
        np.array([angle]),
        np.array([0.0]),
        "pendulum",
        "a pendulum in its angle, at rest at first",
        dt=0.05,
        t_end=50.0,
    )


@model
def henon_heiles(energy: float = 0.12) -> Model:
    """Hénon and Heiles (1964): V = ½(x² + y²) + x²y − y³/3; regular and chaotic motion in one potential, bounded for
    H < 1/6."""

    def potential(q):
        x, y = q
        return 0.5 * (x**2 + y**2) + x**2 * y - y**3 / 3

    q0 = np.array([0.0, 0.12])
    if not 0.01 < energy < 1 / 6:
        raise InputError(f"henon_heiles(energy={energy:g}): the motion is bounded for energies between .01 and 1/6.")
    at_rest = 0.5 * q0[1] ** 2 - q0[1] ** 3 / 3
    v0 = np.array([np.sqrt(2 * (energy - at_rest)) * 0.96, np.sqrt(2 * (energy - at_rest)) * 0.28])
    return Model(
        System(potential), q0, v0, "henon_heiles", f"a star in a galactic disk, H = {energy:g}", dt=0.1, t_end=200.0
    )


@model
def fpu(springs: Annotated[int, count(1)] = 3, omega: Positive = 50.0) -> Model:
    """Fermi–Pasta–Ulam chain of alternating stiff linear and soft quartic springs (Galgani, Giorgilli, Martinoli,
    Vanzini 1992), in the scaled expansions of Hairer, Lubich, Wanner, section I.5.1.

    q[0] are the positions of the centres of the stiff springs, q[1] their expansions:

        V = ¼ Σ_{i=0}^{m} (x₀,ᵢ₊₁ − x₁,ᵢ₊₁ − x₀,ᵢ − x₁,ᵢ)⁴ with fixed ends,     W = ½ω² Σ x₁,ᵢ².
    """

    def potential(q):
        wall = jnp.zeros(1, q.dtype)
        left_ends, right_ends = q[0] - q[1], q[0] + q[1]
        soft = jnp.concatenate([left_ends, wall]) - jnp.concatenate([wall, right_ends])
        return 0.25 * jnp.sum(soft**4)

    def fast(q):
        return 0.5 * omega**2 * jnp.sum(q[1] ** 2)

    q0, v0 = np.zeros((2, springs)), np.zeros((2, springs))
    q0[0, 0], q0[1, 0], v0[0, 0], v0[1, 0] = 1.0, 1.0 / omega, 1.0, 1.0
    return Model(
        System(potential, fast=fast),
        q0,
        v0,
        "fpu",
        f"{springs} stiff springs of frequency {omega:g} coupled by quartic ones",
        dt=0.005,
        t_end=200.0,
    )


@model
def coupled_oscillators(n: Annotated[int, count(1)] = 8, stiffness: float = 1.0, quartic: float = 0.1) -> Model:
    """A chain of n unit masses between walls: V = Σ ½k d² + ¼a d⁴ over the n + 1 springs, d their extensions; masses
    grow along the chain so that no reflection symmetry hides an error."""

    def potential(q, k):
        d = jnp.diff(q, prepend=0.0, append=0.0)
        return jnp.sum(0.5 * k["stiffness"] * d**2 + 0.25 * k["quartic"] * d**4)

    system = System(potential, mass=1.0 + 0.1 * np.arange(n), params={"stiffness": stiffness, "quartic": quartic})
    q0 = np.zeros(n)
    q0[0] = 1.0
    return Model(
        system,
        q0,
        np.zeros(n),
        "coupled_oscillators",
        f"{n} masses on a line, linear and quartic springs",
        dt=0.05,
        t_end=100.0,
    )
