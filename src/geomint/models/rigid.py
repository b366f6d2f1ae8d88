"""Rigid bodies without angles: tops, magnets, a satellite. Rigid molecules are in water.py, mechanisms in
mechanisms.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..rigid import Bodies, BodyRotation, RigidBody, SpatialRotation, rotation
from ..rigid.body import REPRESENTATIONS
from ..system.checks import bounded, number, one_of, vector
from ..system.constraints import OnSphere, Orthogonal
from ..system.symmetries import Generator, Rotation, Symmetry
from ..system.system import System
from .base import Model, Positive, model

Three = Annotated[Sequence[float], bounded(vector, size=3)]
Representation = Annotated[str, one_of(*REPRESENTATIONS)]
Angle = Annotated[float, bounded(number, above=0.0, below=np.pi / 2)]
UP = (0.0, 0.0, 1.0)


def hat(omega: np.ndarray) -> np.ndarray:
    """The skew matrix Ω̂ with Ω̂ x = Ω × x."""
    return np.cross(omega, np.eye(3)).T


def height(R):
    """R₃₃, the height of the tip of the third axis of the body."""
    return R[2, 2]


@model
def heavy_top(
    inertia: Three = (0.6, 0.8, 1.0), momentum: Three = (1.8, 0.4, -0.9), representation: Representation = "matrix"
) -> Model:
    """A rigid body with one point fixed, by its rotation matrix Q from body to space (Console, Hairer and Lubich
    2013, example 3; Hairer, Lubich, Wanner, section VII.5):

    H = ½ tr(P D⁻¹Pᵀ) + q₃₃,   QᵀQ = I,   P = Q̇D,   d_i = ½(I_j + I_k − I_i).

    inertia:         the principal moments I; each must be smaller than the sum of the others.
    momentum:        angular momentum m in the body at the start, where Q = I: Q̇ = QΩ̂ with Ω_i = m_i/I_i, so
                     H = ½ m·Ω + 1.
    representation:  "matrix", as above; "group": v is Ω and p is m, for the methods on groups.

    The system is symmetric under rotations of space about the vertical: (Qm)₃ is conserved. Where I₁ = I₂ (Lagrange's
    top) it is symmetric under rotations of the body about its axis too: m₃ is conserved, in the representation by
    matrices up to its sign the momentum map of the second symmetry.
    """
    moments, m = np.array(inertia), np.array(momentum)
    d = 0.5 * moments.sum() - moments
    if not np.all(d > 0):
        raise InputError(
            f"heavy_top(inertia={moments.tolist()}): each moment of inertia of a body is smaller than the sum of the "
            "other two."
        )
    text = "a spinning top as a rotation matrix"
    round_ = bool(moments[0] == moments[1])
    if representation == "group":
        body = RigidBody(moments, potential=height, symmetries=[SpatialRotation(UP)] + [BodyRotation(UP)] * round_)
        return Model(body.system(), np.eye(3), m / moments, "heavy_top", text, dt=0.01, t_end=20.0)
    # δQ = ê₃Q mixes the rows of Q, and symmetries act on the last axis; on the flattened Q, row by row, it is ê₃ ⊗ I.
    symmetries: tuple[Symmetry, ...] = (Generator(jnp.kron(hat(np.eye(3)[2]), np.eye(3))),)
    if round_:
        symmetries += (Rotation((0, 1)),)  # δQ = −Qê₃
    system = System(height, mass=d[None, :], constraint=Orthogonal(), symmetries=symmetries)
    return Model(system, np.eye(3), hat(m / moments), "heavy_top", text, dt=0.01, t_end=20.0)


@model
def free_top(inertia: Three = (1.0, 2.0, 2.8), momentum: Three = (0.02, 2.0, 0.02)) -> Model:
    """A rigid body without forces, by its rotation R and the momentum m in the body: ṁ = m × I⁻¹m, Ṙ = R Ω̂.

    inertia:   the principal moments I.
    momentum:  m at the start, where R = I. By default almost along the middle axis, whose rotation is unstable: the
               body turns over at regular intervals (Dzhanibekov's effect).

    The energy ½ m·I⁻¹m, the angular momentum R m in space and |m|² are conserved; the motion is known in elliptic
    functions.
    """
    moments, m = np.array(inertia), np.array(momentum)
    body = RigidBody(moments, symmetries=SpatialRotation())
    return Model(
        body.system(), np.eye(3), m / moments, "free_top", "a body in free flight, that turns over", dt=0.02, t_end=60.0
    )


@model
def magnetised_body(
    strength: float = 1.0, velocity: Three = (1.0, 0.2, 0.1), representation: Representation = "group"
) -> Model:
    """A ball of inertia 1 with a dipole along its third axis, in a constant field along the vertical (Tao and Owhadi
    2015, section 4.5): H = ½|Ω|² + Bμ R₃₃, R(0) = I.

    strength:        Bμ.
    velocity:        the angular velocity Ω in the body at the start.
    representation:  "group"; or "matrix", with the kinetic energy ¼ tr ṘᵀṘ, for gm.penalize and Rattle.

    Conserved are the vertical part of the angular momentum in space, (RΩ)₃, and that along the dipole, Ω₃.
    """
    body = RigidBody(1.0, potential=lambda R: strength * R[2, 2], symmetries=(SpatialRotation(UP), BodyRotation(UP)))
    q0, v0 = body.state(angular_velocity=velocity, representation=representation)
    return Model(
        body.system(representation), q0, v0, "magnetised_body", "a ball with a dipole in a field", dt=0.02, t_end=40.0
    )


@model
def two_magnets(distance: Positive = 1.0, tilt: Angle = 0.3, spin: float = 0.5) -> Model:
    """Two balls of inertia 1 at fixed places on the first axis, with unit dipoles along their third axes:

    V = (μ₁·μ₂ − 3(μ₁·n)(μ₂·n))/d³,   μ_i = R_i e₃,   n = e₁.

    distance:  d.
    tilt:      the angle of the first dipole with n at the start, in the plane of the first and third axes; the second
               one is along n.
    spin:      the angular velocity of the first ball about its dipole.

    Conserved is the angular momentum about n. Near the rest position, both dipoles along n, the dipoles swing in phase
    with the frequency √(3/d³), and against each other with √(1/d³).
    """
    strength = 1 / distance**3

    def potential(R):
        first, second = R[0, :, 2], R[1, :, 2]
        return strength * (jnp.sum(first * second) - 3 * first[0] * second[0])

    bodies = Bodies([RigidBody(1.0)] * 2, potential, symmetries=SpatialRotation((1.0, 0.0, 0.0)))
    q0 = np.stack([rotation((0, 1, 0), np.pi / 2 - tilt), rotation((0, 1, 0), np.pi / 2)])
    v0 = np.array([[0.0, 0.0, spin], [0.0, 0.0, 0.0]])
    return Model(bodies.system(), q0, v0, "two_magnets", "two balls with dipoles", dt=0.05, t_end=60.0)


@model
def spherical_pendulum(length: Positive = 1.0, angle: Angle = 1.0, rate: float = 0.4) -> Model:
    """A unit mass on a rod that swings in space, H = ½|ẋ|² + x₃, |x| = length.

    length: of the rod.
    angle:  from the downward vertical at the start.
    rate:   of the rotation about the vertical at the start, as a multiple of that of the conical pendulum,
            1/√(length·cos angle), with which the angle stays constant.

    The angular momentum about the vertical is conserved.
    """
    turning = rate / np.sqrt(length * np.cos(angle))
    q0 = length * np.array([np.sin(angle), 0.0, -np.cos(angle)])
    v0 = np.array([0.0, turning * q0[0], 0.0])
    system = System(lambda q: q[2], constraint=OnSphere(length), symmetries=(Rotation(axis=UP),))
    return Model(system, q0, v0, "spherical_pendulum", "a pendulum in space", dt=0.02, t_end=40.0)


@model
def satellite(
    inertia: Three = (0.4e-4, 1.2e-4, 1.0e-4), tilt: Annotated[float, bounded(number, least=-1.5, most=1.5)] = 0.2
) -> Model:
    """A satellite of mass 1 on an orbit of radius 1 about a centre with GM = 1; an orbit takes 2π. The attraction is
    expanded in the size of the body (the gravity gradient):

    V = −1/r + (3 x̂·R I Rᵀx̂ − tr I)/(2r³).

    inertia:  the principal moments; small, as the size of the satellite is against the orbit.
    tilt:     the angle in the plane of the orbit between the first axis of the body and the direction to the centre.

    The second axis is normal to the orbit, in which the body turns once an orbit. With the smallest moment first and
    the largest second this is stable, and a small tilt swings with the frequency √(3(I₃ − I₁)/I₂). The energy and the
    whole angular momentum are conserved.
    """
    moments = np.array(inertia)

    def potential(q):
        x, R = q[0], q[1:]
        square = jnp.sum(x * x)
        inverse = 1 / jnp.sqrt(square)
        seen = jnp.sum(R * x[:, None], axis=0)  # Rᵀx
        gradient = 3 * jnp.sum(moments * seen * seen) / square - float(moments.sum())
        return -inverse + 0.5 * inverse**3 * gradient

    body = RigidBody(moments, mass=1.0, potential=potential, symmetries=SpatialRotation())
    # The orbit is in the plane of the first and the third axis, counterclockwise about the second.
    rate = np.sqrt(1 - 1.5 * (3 * moments[0] - moments.sum()))  # of a circular orbit without a tilt
    turn = rotation((0, 1, 0), tilt)
    q0, v0 = body.state(turn, (0.0, rate, 0.0), position=(1.0, 0.0, 0.0), velocity=(0.0, 0.0, -rate))
    return Model(body.system(), q0, v0, "satellite", "a satellite held by the gravity gradient", dt=0.02, t_end=60.0)
