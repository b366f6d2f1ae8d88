"""Rigid bodies with joints: a chain, a gyroscope in gimbals, Bricard's linkage, a cat that turns."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
import numpy as np

from ..methods import Rattle
from ..numerics.rotations import exponential_minus_one
from ..rigid import Assembly, Ball, Hinge, MassProperties, Weld, inertia
from .base import Model, Positive, count, model

GRAVITY = (0.0, 0.0, -9.81)


@model
def rigid_chain(n: Annotated[int, count(1)] = 10, rate: float = 1.0, anchored: bool = True) -> Model:
    """A chain of n boxes 0.2 × 0.2 × 1 of mass 1, end to end on ball joints. It starts stretched out along x and turns
    about the vertical axis z.

    rate:      at which it turns at the start.
    anchored:  hung up at the origin, with gravity: then the angular momentum about z is conserved, rate·Σ(1/12 +
               1/300 + (k − ½)²). Otherwise it floats, and momentum and angular momentum are conserved.
    """
    box = inertia.box((1.0, 0.2, 0.2), mass=1.0)
    joints = [Ball(None if k == 0 else k - 1, k, (k, 0.0, 0.0)) for k in range(0 if anchored else 1, n)]
    positions = np.stack([np.arange(n) + 0.5, np.zeros(n), np.zeros(n)], axis=1)
    chain = Assembly([box] * n, joints, gravity=GRAVITY if anchored else None, positions=positions)
    turning = np.array([0.0, 0.0, rate])
    q0 = chain.q()
    v0 = chain.v(q0, np.cross(turning, positions), np.broadcast_to(turning, (n, 3)))
    description = f"{n} rigid bodies on ball joints"
    return Model(chain, q0, v0, "rigid_chain", description, dt=0.002, t_end=5.0)


@model
def gyroscope(spin: Positive = 60.0, weight: Positive = 0.5) -> Model:
    """A gyroscope in gimbals: a rotor of mass 1 and radius 0.8 in a ring, which turns about the y axis in an outer
    ring, which turns about the vertical axis z. A weight at x = 1 on the inner ring pulls the axis of the rotor down.

    It starts with the rotor's axis along x and in steady precession, at the rate 9.81 weight/(I spin) about z with the
    moment I of the rotor about its axis: an exact motion, whatever the inertia of the rings.

    spin:    of the rotor in its ring.
    weight:  its mass.
    """
    upright = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # turns z to x
    ring = lambda radius, mass: MassProperties(mass, np.zeros(3), 0.5 * mass * radius**2 * np.array([1.0, 1.0, 2.0]))
    outer = ring(1.2, 0.4).at(rotation=upright)
    inner = ring(1.0, 0.3) + inertia.points([(1.0, 0.0, 0.0)], weight)
    rotor = inertia.cylinder(0.8, 0.1, mass=1.0).at(rotation=upright)
    origin = (0.0, 0.0, 0.0)
    joints = [Hinge(None, 0, origin, (0, 0, 1)), Hinge(0, 1, origin, (0, 1, 0)), Hinge(1, 2, origin, (1, 0, 0))]
    gimbals = Assembly([outer, inner, rotor], joints, gravity=GRAVITY, names=("outer", "inner", "rotor"))
    precession = -GRAVITY[2] * weight / (rotor.inertia[0, 0] * spin)
    q0 = gimbals.q()
    turning = np.array([[0.0, 0.0, precession], [0.0, 0.0, precession], [spin, 0.0, precession]])
    v0 = gimbals.v(q0, np.zeros((3, 3)), turning)
    return Model(gimbals, q0, v0, "gyroscope", "a gyroscope in gimbals, in steady precession", dt=0.001, t_end=5.0)


@model
def bricard(radius: Positive = 0.05) -> Model:
    """Bricard's trihedral linkage: six bars of length 1 and mass 1 in a ring, the axes of neighbouring hinges
    perpendicular to each other; the first bar is fixed. It has one degree of freedom, although 60 equations hold five
    bodies: one is redundant. It falls from rest, gravity along −y.

    The angles α and β of neighbouring hinges satisfy sin α + sin β + sin α sin β = 0, counted from the start.

    radius:  of the bars, which are round.
    """
    x, y, z = np.eye(3)
    axes = np.array([z, x, y, z, x, y])
    bars = np.array([(-1) ** i * np.cross(axes[i], axes[(i + 1) % 6]) for i in range(6)])
    ends = np.cumsum(bars, axis=0) - bars
    # The frame of a bar has its z axis along the bar.
    frames = np.array([np.stack([axes[i], np.cross(bars[i], axes[i]), bars[i]], axis=1) for i in range(1, 6)])
    cylinder = inertia.cylinder(radius, 1.0, mass=1.0)
    joints = [Hinge(None if i == 1 else i - 2, i - 1, ends[i], axes[i]) for i in range(1, 6)]
    joints.append(Hinge(None, 4, ends[0], axes[0]))
    middles = ends[1:] + 0.5 * bars[1:]
    linkage = Assembly([cylinder] * 5, joints, gravity=(0.0, -9.81, 0.0), positions=middles, rotations=frames)
    q0 = linkage.q()
    description = "six bars in a ring, with a redundant equation"
    method = Rattle(solver="least-squares")  # accepts the redundant equation without a warning
    return Model(linkage, q0, np.zeros_like(q0), "bricard", description, method, dt=0.01, t_end=5.0)


@model
def turning_cat(bend: Positive = 1.7163, duration: Positive = 1.0) -> Model:
    """A falling cat, seen from its centre of mass: two halves that bend against each other, swing the bend once round
    the spine without a twist, and stretch out again. The angular momentum is zero all along, and yet the cat has
    turned about its spine (Kane and Scher 1969). With these settings by half a turn.

    bend:      of the spine, in radians.
    duration:  of the whole motion; the run ends with it.
    """
    half = inertia.cylinder(0.1, 0.25, mass=2.0)
    smooth = lambda s: jnp.clip(s, 0.0, 1.0) ** 3 * (10 - 15 * jnp.clip(s, 0.0, 1.0) + 6 * jnp.clip(s, 0.0, 1.0) ** 2)

    def spine(t):
        """The rotation of the rear half in the frame of the front one."""
        s = t / duration
        angle = bend * (smooth(5 * s) - smooth(5 * s - 4.0))
        around = 2 * jnp.pi * smooth((5 * s - 0.5) / 4)
        axis = jnp.stack([jnp.cos(around), jnp.sin(around), jnp.zeros_like(around)])
        return jnp.eye(3) + exponential_minus_one(angle * axis)

    waist = Weld(0, 1, (0.0, 0.0, 0.0), rotation=spine)
    cat = Assembly([half] * 2, [waist], positions=[(0.0, 0.0, 0.125), (0.0, 0.0, -0.125)], names=("front", "rear"))
    q0 = cat.q()
    description = "a cat that turns over without angular momentum"
    return Model(cat, q0, np.zeros_like(q0), "turning_cat", description, dt=0.005 * duration, t_end=duration)
