"""Harmonic potentials in one and two dimensions with motions known exactly, for which energy-stepping does not
converge.

Gonzalez, Schmidt and Ortiz (2010), examples 4.1 to 4.3. In each the motion has little or no speed across the levels
of V, so that the motion on terraces does not converge to that in the smooth potential. All masses are 1.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ..system.symmetries import Rotation, Translation
from ..system.system import System
from .base import Model, Positive, model


@model
def harmonic_oscillator() -> Model:
    """V = ½x² from x = 0 with speed 1: x = sin t, H = ½. On terraces of height h the particle reaches
    the terrace k = ⌊1/2h⌋ with the speed √(1 − 2kh), which is arbitrarily small for some h (example 4.1)."""
    return Model(
        System(lambda q: 0.5 * jnp.sum(q**2)),
        np.array([0.0]),
        np.array([1.0]),
        "harmonic_oscillator",
        "a mass on a spring, x = sin t",
        dt=0.05,
        t_end=50.0,
    )


@model
def harmonic_trough() -> Model:
    """V = ½x² in the plane from (1, 0) with the velocity (0, 1), along the trough: (cos t, t), H = 1. It starts along
    a level of V; on terraces of any height it continues along that level, (1, t) (example 4.2)."""
    system = System(lambda q: 0.5 * q[0] ** 2, symmetries=(Translation((0.0, 1.0)),))
    return Model(
        system,
        np.array([1.0, 0.0]),
        np.array([0.0, 1.0]),
        "harmonic_trough",
        "a mass that swings across a trough as it slides along",
        dt=0.05,
        t_end=50.0,
    )


@model
def harmonic_bowl(speed: Positive = 0.5) -> Model:
    """V = ½(x² + y²) from (1, 0) with the velocity (0, γ), γ = speed: the ellipse (cos t, γ sin t), H = ½(1 + γ²),
    angular momentum γ. On terraces of height h it is reflected along the circle instead if γ²(1 − θ) < 1 as h → 0, θ
    the fractional part of 1/2h (example 4.3)."""
    system = System(lambda q: 0.5 * jnp.sum(q**2), symmetries=(Rotation((0, 1)),))
    return Model(
        system,
        np.array([1.0, 0.0]),
        np.array([0.0, speed]),
        "harmonic_bowl",
        f"a mass in a round bowl, on an ellipse of half axes 1 and {speed:g}",
        dt=0.05,
        t_end=50.0,
    )
