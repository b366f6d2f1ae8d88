"""Systems with motors, friction and moving supports: their energy changes by the work done on them (`run.work`)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ..system.lagrangian import LagrangianSystem
from ..system.system import System
from .base import Model, NotNegative, Positive, model
from .pendula import hanging, links


@model
def driven_pendulum(amplitude: float = 1.5, frequency: Positive = 2 / 3, friction: NotNegative = 0.5) -> Model:
    """The damped pendulum with a periodic torque, by its angle:

    θ̈ = −sin θ − friction·θ̇ + amplitude·cos(frequency·t).

    With these settings chaotic (Baker and Gollub, Chaotic Dynamics, 1996, chapter 3). The friction is the `damping` of
    the system, so that splittings are conformally symplectic without the torque, amplitude = 0.
    """

    def torque(q, t):
        return amplitude * jnp.cos(frequency * t) + 0 * q

    system = System(lambda q: -jnp.sum(jnp.cos(q)), force=torque, damping=friction)
    description = "a pendulum with friction and a periodic torque"
    return Model(system, np.array([0.2]), np.zeros(1), "driven_pendulum", description, dt=0.02, t_end=100.0)


@model
def kapitza_pendulum(amplitude: NotNegative = 0.1, frequency: float = 30.0, angle: float = 0.3) -> Model:
    """A pendulum of unit mass, length and gravity whose support vibrates along the y axis, s(t) = amplitude·cos
    (frequency·t), as a point on a moving circle:

    U = y,   x² + (y − s(t))² = 1.

    It starts at rest at `angle` from the upright position, which is stable where
    amplitude·frequency > √2 (Kapitza 1951): with these settings it swings about it with the frequency
    √(½ amplitude²·frequency² − 1) = 1.87 for small angles.
    """

    def support(t):
        return amplitude * jnp.cos(frequency * t)

    def circle(q, t):
        return q[0, 0] ** 2 + (q[0, 1] - support(t)) ** 2 - 1

    return Model(
        System(hanging, constraint=circle),
        np.array([[np.sin(angle), amplitude + np.cos(angle)]]),
        np.zeros((1, 2)),
        "kapitza_pendulum",
        "a pendulum that stands upright on a vibrating support",
        dt=0.002,
        t_end=20.0,
    )


@model
def driven_slider_crank(
    crank: Positive = 1.0, rod: Positive = 3.0, torque: float = 2.0, slip: NotNegative = 0.5, friction: float = 0.2
) -> Model:
    """A slider-crank with a motor and friction, in points: unit masses at the pin x₀ and the slider x₁,

    U = y₀ + y₁,   |x₀|² = crank²,   |x₁ − x₀|² = rod²,   y₁ = 0.

    The motor turns the crank with the torque `torque` − slip·θ̇, and friction slows the slider by −friction·ẋ₁.
    `driven_slider_crank_angles` is the same mechanism in its two angles.
    """
    rods = links(np.array([crank, rod]))

    def constraint(q):
        return jnp.concatenate([rods(q), q[1, 1:]])

    def force(q, v):
        x, y = q[0]
        rate = (x * v[0, 1] - y * v[0, 0]) / crank**2
        pin = (torque - slip * rate) / crank**2 * jnp.stack([-y, x])
        return jnp.stack([pin, jnp.stack([-friction * v[1, 0], 0.0 * v[1, 1]])])

    q0 = np.array([[crank, 0.0], [crank + rod, 0.0]])
    description = "a crank with a motor, a rod and a slider with friction, in points"
    system = System(hanging, constraint=constraint, force=force)
    return Model(system, q0, np.zeros((2, 2)), "driven_slider_crank", description, dt=0.01, t_end=30.0)


@model
def driven_slider_crank_angles(
    crank: Positive = 1.0, rod: Positive = 3.0, torque: float = 2.0, slip: NotNegative = 0.5, friction: float = 0.2
) -> Model:
    """`driven_slider_crank` in the angles θ of the crank and φ of the rod: a constrained Lagrangian,

    L = ½|ẋ₀|² + ½|ẋ₁|² − y₀ − y₁,   x₀ = crank (cos θ, sin θ),   x₁ = x₀ + rod (cos φ, sin φ),   y₁ = 0,

    with the generalised forces of the motor and of the friction.
    """
    lengths = np.array([crank, rod])

    def lagrangian(q, v):
        # velocities of the links; their sums are those of the points
        along = jnp.stack([-lengths * jnp.sin(q) * v, lengths * jnp.cos(q) * v], axis=1)
        points = jnp.cumsum(along, axis=0)
        return 0.5 * jnp.sum(points**2) - jnp.sum(jnp.cumsum(lengths * jnp.sin(q)))

    def force(q, v):
        slider = -jnp.sum(lengths * jnp.sin(q) * v)
        motor = jnp.stack([torque - slip * v[0], 0.0 * v[1]])
        return motor + friction * slider * lengths * jnp.sin(q)

    system = LagrangianSystem(
        lagrangian, constraint=lambda q: jnp.sum(lengths * jnp.sin(q), keepdims=True), force=force
    )
    description = "a crank with a motor, a rod and a slider with friction, in angles"
    return Model(system, np.zeros(2), np.zeros(2), "driven_slider_crank_angles", description, dt=0.01, t_end=30.0)


@model
def relativistic_oscillator(speed: Positive = 0.9) -> Model:
    """A particle of unit mass on a spring of unit stiffness at speeds near that of light, c = 1:

    L = −√(1 − v²) − ½q²,      E = 1/√(1 − v²) + ½q².

    It starts at q = 0 with v = speed. A Lagrangian that is not quadratic in v, and has no value for |v| ≥ 1.
    """
    system = LagrangianSystem(lambda q, v: jnp.sum(-jnp.sqrt(1 - v**2) - 0.5 * q**2))
    description = "a spring with a particle near the speed of light"
    return Model(system, np.zeros(1), np.array([speed]), "relativistic_oscillator", description, dt=0.05, t_end=100.0)
