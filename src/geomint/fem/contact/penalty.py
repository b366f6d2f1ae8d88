"""Penalty contact of Gonzalez, Schmidt, Ortiz (2010), (71) and (72), after Kane et al. and Pandolfi et al.:

    V(q) = 1/(2ε) Σ |A − B|²

over all pairs of faces that intersect, where A and B are the ends of their common segment. An end is where an edge from
p to q pierces the plane of a face (a, b, c) with normal n = (b − a) × (c − a):

    A = p + (q − p) α/(α − β),   α = n·(p − a),   β = n·(q − a).

The compiled loops of crossing_loops.py find which edges pierce which faces; the formula above is differentiated
automatically, to any order. Faces that have a node in common are left out.

V has a continuous gradient where faces begin to intersect, but its stiffness is unbounded for nearly parallel faces,
and its gradient jumps where another edge becomes the one that pierces. A method with fixed steps may gain energy there.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...numerics.keywords import checked_keywords
from ...system.checks import positive
from ..mesh import Mesh
from .scene import Scene


class PenaltyContact:
    """A penalty for intersecting faces, as a potential: `with_contact(system, PenaltyContact(mesh, 1e-7))`.

    mesh:      the bodies, as given to gm.fem.solid.
    epsilon:   ε, area by energy: the smaller, the stiffer.
    fixed:     the nodes that are fixed in gm.fem.solid(fixed=...).
    obstacle:  a mesh that does not move; it is no part of q.
    self_contact:  whether a body can touch itself.
    room:      for so many pairs of faces that intersect at a time; with more, the energy is NaN and the run stops. By
               default as many as there are faces.
    """

    is_energy: ClassVar[str] = "gm.fem.with_contact(system, contact)"  # where it belongs

    @checked_keywords
    def __init__(
        self,
        mesh: Mesh,
        epsilon: float,
        fixed: Sequence[int] | None = None,
        obstacle: Mesh | None = None,
        self_contact: bool = True,
        room: int | None = None,
    ):
        self.scene = Scene("PenaltyContact", mesh, fixed, obstacle, self_contact)
        self.reach = self.scene.edge / 4
        self.epsilon = positive(epsilon, "epsilon", "PenaltyContact")
        self.room = len(self.scene.surface.faces) if room is None else int(positive(room, "room", "PenaltyContact"))

    def __call__(self, q: Array) -> Array:
        x = self.scene.points(q)
        count, ends, _ = crossings(self.scene, jax.lax.stop_gradient(x), self.room)
        there = jnp.arange(self.room) < count
        apart = _pierced(x, ends[:, 0], there) - _pierced(x, ends[:, 1], there)
        total = jnp.sum(jnp.where(there[:, None], apart * apart, 0.0)) / (2 * self.epsilon)
        return jnp.where(count <= self.room, total, jnp.nan)


def _pierced(x: Array, end: Array, there: Array) -> Array:
    """The points (room, 3) in which edges pierce faces; rows that are not there mean nothing."""
    p, q, a, b, c = (x[end[:, k]] for k in range(5))
    n = jnp.cross(b - a, c - a)
    above, below = jnp.sum(n * (p - a), axis=1), jnp.sum(n * (q - a), axis=1)
    return p + (q - p) * (above / jnp.where(there, above - below, 1.0))[:, None]


def crossings(scene: Scene, x: Array, room: int) -> tuple[Array, Array, Array]:
    """How many pairs of faces intersect, and of at most `room` of them the ends (room, 2, 5) of their common segments,
    nodes of an edge and a face each, and the faces (room, 2)."""
    _register()
    whole, number = (lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int32)), jax.ShapeDtypeStruct((len(x), 6), x.dtype)
    s, out = scene.surface, (whole(1), whole(room, 2, 5), whole(room, 2), number, *scene.scratch, whole(6, 5))
    call = jax.ffi.ffi_call("geomint_crossings", out, vmap_method="sequential")
    count, ends, faces, *_ = call(x, np.array([float(scene.own_body)]), s.faces, s.body, s.children)
    return count[0], ends, faces


def intersections(contact: Any, q: Any) -> int:
    """How many pairs of faces intersect.

    contact:  gm.fem.ExactContact, PenaltyContact or BarrierContact, which knows the faces.
    q:        the positions of the free nodes.
    """
    return int(crossings(contact.scene, contact.scene.points(jnp.asarray(q, float)), 1)[0])


def described(scene: Scene, q: Any) -> str:
    """Which faces intersect at q, for errors; "" where none do."""
    count, _, faces = crossings(scene, scene.points(jnp.asarray(q, float)), 1)
    if not int(count):
        return ""
    f, g = (scene.surface.faces[i].tolist() for i in np.asarray(faces)[0])
    more = f", and {int(count) - 1} other pairs do" if int(count) > 1 else ""
    return f"the faces of nodes {f} and {g} intersect{more}."


@functools.cache
def _register() -> None:
    from ...numerics.linalg import xla_ffi  # deferred: importing numba is slow
    from . import crossing_loops

    xla_ffi.register("geomint_crossings", crossing_loops.crossings)
