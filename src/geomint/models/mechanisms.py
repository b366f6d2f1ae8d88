"""Mechanisms: rods and joints."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ..system.system import System
from .base import Model, Positive, model
from .pendula import hanging, links


@model
def slider_crank(crank: Positive = 1.0, rod: Positive = 2.0, speed: float = 2.0) -> Model:
    """A crank that turns about the origin, a rod from its pin to a slider on the x axis; unit masses at the pin and
    the slider:

    U = y₀ + y₁,   |x₀|² = crank²,   |x₁ − x₀|² = rod²,   y₁ = 0.

    It starts stretched out, the pin moving upwards; H = ½ speed². With a rod longer than the crank it goes over the
    top where speed² > 2 crank, and swings back below that. With a shorter rod the crank can't pass the vertical.
    Equal lengths have singular positions, pin straight above or below and slider at the origin: the constraints are
    dependent there, and the slider may move on or stay while the crank turns.
    """
    rods = links(np.array([crank, rod]))

    def constraint(q):
        return jnp.concatenate([rods(q), q[1, 1:]])

    q0 = np.array([[crank, 0.0], [crank + rod, 0.0]])
    v0 = np.array([[0.0, speed], [0.0, 0.0]])
    return Model(
        System(hanging, constraint=constraint),
        q0,
        v0,
        "slider_crank",
        "a crank, a rod and a slider, turning under gravity",
        dt=0.01,
        t_end=50.0,
    )
