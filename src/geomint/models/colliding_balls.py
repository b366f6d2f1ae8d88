"""Two elastic balls that collide, with exact contact."""

from __future__ import annotations

import functools
from typing import Annotated

import numpy as np

from ..fem import ExactContact, Mesh, NeoHookean, ball, solid, watch_bodies
from ..methods import EnergyStepping
from .base import Model, Positive, count, model

LAME, SHEAR, DENSITY = 1.154e8, 7.96e7, 7800.0  # of Gonzalez, Schmidt, Ortiz (2010), section 5.2.2
APART = 2.5  # centres at the start, so that the balls meet at t ≈ 0.1


@functools.cache
def two_meshes(layers: int) -> Mesh:
    """The balls of radius 1, the target first."""
    one = ball(1.0, layers=layers)
    return Mesh.union([one, one.moved((APART, 0.0, 0.0))])


@functools.cache  # a set without collisions is compared by identity, and compiled programs are cached by it
def contact_of(layers: int) -> ExactContact:
    return ExactContact(two_meshes(layers))


@model
def colliding_balls(
    layers: Annotated[int, count(1, 12)] = 3, speed: Positive = 5.0, spin: float = 2.5, height: Positive = 150.0
) -> Model:
    """Two neo-Hookean balls of radius 1, section 5.2.2 of Gonzalez, Schmidt and Ortiz (2010): one is at rest, the other
    comes from the right with `speed` and the angular velocity `spin` about the z axis, and hits it at t ≈ 0.1 (at the
    default speed). Each has 20 · layers³ tetrahedra. Contact is exact, in `inside` of the model and of its method,
    EnergyStepping with terraces of `height`; a method that is not given it lets the balls pass through each other.
    run.watched has the motion of each ball (gm.fem.watch_bodies), and gm.fem.collision(run) says what happened."""
    mesh, contact = two_meshes(layers), contact_of(layers)
    right = mesh.bodies == 1
    v0 = np.zeros_like(mesh.nodes)
    v0[right] = np.cross([0.0, 0.0, spin], mesh.nodes[right] - [APART, 0.0, 0.0]) - [speed, 0.0, 0.0]
    # At the start V and its first three derivatives vanish: it must not lie on an edge between terraces.
    method = EnergyStepping(height, offset=-height / 2, inside=contact)
    return Model(
        solid(mesh, NeoHookean(LAME, SHEAR), DENSITY, watch=watch_bodies(mesh, DENSITY)),
        mesh.nodes,
        v0,
        "colliding_balls",
        f"two elastic balls of {len(mesh.cells) // 2} tetrahedra each that collide",
        method,
        dt=1e-3,
        t_end=0.3,
        inside=(contact,),
    )
