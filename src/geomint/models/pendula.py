"""Pendula: two links in two descriptions, three, and chains of many."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
import numpy as np

from ..system.constraints import Distances
from ..system.lagrangian import LagrangianSystem
from ..system.symmetries import Rotation
from ..system.system import System
from .base import Dimension, Model, count, model


def links(lengths: np.ndarray) -> Distances:
    """g_i = |x_i − x_{i−1}|² − L_i², the first link from the origin."""
    return Distances([(None if i == 0 else i - 1, i) for i in range(len(lengths))], lengths)


def hanging(q):
    """V = Σ y_i: unit masses in unit gravity. (Tao and Owhadi print the other sign, with which their data start
    upside down.)"""
    return jnp.sum(q[:, 1])


@model
def double_pendulum() -> Model:
    """Tao and Owhadi's double pendulum in Cartesian coordinates: unit masses, lengths 1 and √2, from rest; H = −3."""
    system = System(hanging, constraint=links(np.array([1.0, np.sqrt(2.0)])))
    return Model(
        system,
        np.array([[0.0, -1.0], [1.0, -2.0]]),
        np.zeros((2, 2)),
        "double_pendulum",
        "two links in the plane, Cartesian and constrained",
        dt=0.01,
        t_end=50.0,
    )


@model
def double_pendulum_angles() -> Model:
    """The same double pendulum in its two angles: a mass that depends on the position,

    L = L₁²θ̇² + ½L₂²φ̇² + L₁L₂ cos(θ − φ) θ̇φ̇ + 2L₁ cos θ + L₂ cos φ.
    """
    first, second = 1.0, np.sqrt(2.0)

    def lagrangian(q, v):
        theta, phi = q
        kinetic = (
            first**2 * v[0] ** 2 + 0.5 * second**2 * v[1] ** 2 + first * second * jnp.cos(theta - phi) * v[0] * v[1]
        )
        return kinetic + 2 * first * jnp.cos(theta) + second * jnp.cos(phi)

    return Model(
        LagrangianSystem(lagrangian),
        np.array([0.0, np.pi / 4]),
        np.zeros(2),
        "double_pendulum_angles",
        "two links in the plane, by their angles",
        dt=0.01,
        t_end=50.0,
    )


def from_angles(q: np.ndarray) -> np.ndarray:
    """Cartesian positions (..., 2, 2) of `double_pendulum` from the angles (..., 2)."""
    theta, phi = np.moveaxis(np.asarray(q), -1, 0)
    one = np.stack([np.sin(theta), -np.cos(theta)], axis=-1)
    return np.stack([one, one + np.sqrt(2.0) * np.stack([np.sin(phi), -np.cos(phi)], axis=-1)], axis=-2)


@model
def triple_pendulum() -> Model:
    """Console, Hairer and Lubich (2013), example 1: unit masses and lengths, angles of 30°, 45° and 90°, from rest.
    H = −(3√3/2 + √2). Chaotic."""
    angles = np.deg2rad([30.0, 45.0, 90.0])
    q0 = np.cumsum(np.stack([np.sin(angles), -np.cos(angles)], axis=1), axis=0)
    system = System(hanging, constraint=links(np.ones(3)))
    return Model(
        system,
        q0,
        np.zeros((3, 2)),
        "triple_pendulum",
        "three links in the plane, constrained and chaotic",
        dt=0.01,
        t_end=30.0,
    )


@model
def chain(n: Annotated[int, count(1)] = 10, dimension: Dimension = 2) -> Model:
    """Tao and Owhadi's chain of n pendula: unit masses, links of length √5, stretched out at rest along (1, −2).

    In three dimensions it is stretched along (1, −2, 0) and turns about the vertical axis y at the rate 0.1; the
    angular momentum about it, J = 0.1 Σ k², is conserved.
    """
    k = np.arange(1, n + 1)[:, None]
    q0 = k * np.array([1.0, -2.0, 0.0])[:dimension]
    v0 = k * np.array([0.0, 0.0, -0.1])[:dimension]  # (0, .1, 0) × q
    system = System(
        hanging,
        constraint=links(np.full(n, np.sqrt(5.0))),
        symmetries=() if dimension == 2 else (Rotation(axis=(0, 1, 0)),),
    )
    return Model(system, q0, v0, "chain", f"a rope of {n} links" + " in space" * (dimension == 3), dt=0.01, t_end=50.0)
