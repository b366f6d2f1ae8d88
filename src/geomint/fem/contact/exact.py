"""Exact contact for energy-stepping: the set of positions in which no faces intersect, section 5.2 of Gonzalez,
Schmidt, Ortiz (2010), (70) and (73). The boundary of that set is a step of infinite height of the potential."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...methods.walls import Collisions, Impact
from ...numerics.keywords import checked_keywords
from ..mesh import Mesh
from .penalty import described
from .scene import Scene

IMPACTS = 20  # of each face at one time, where whole faces of bodies meet
GAP = 1e-10  # in edges: the distance at which surfaces count as touching


class ExactContact(Collisions):
    """Bodies that do not penetrate each other: `EnergyStepping(height, inside=gm.fem.ExactContact(mesh))`.

    A flight of energy-stepping is straight, so that the time at which a vertex meets a face or an edge an edge is the
    root of a cubic. There the bodies are reflected elastically, (21), along the gradient of the volume of the four
    nodes that meet, which is invariant under translations and rotations: momentum, angular momentum and energy are
    conserved to rounding. The bodies of the mesh may touch each other and themselves, and need not be convex.

    mesh:      the bodies, as given to gm.fem.solid.
    fixed:     the nodes that are fixed in gm.fem.solid(fixed=...).
    obstacle:  a mesh that does not move; it is no part of q.
    self_contact:  whether a body can touch itself. Without it the search is faster.
    """

    @checked_keywords
    def __init__(
        self,
        mesh: Mesh,
        fixed: Sequence[int] | None = None,
        obstacle: Mesh | None = None,
        self_contact: bool = True,
    ):
        self.scene = Scene("ExactContact", mesh, fixed, obstacle, self_contact)
        self.reach, self.distance = self.scene.edge, GAP * self.scene.edge
        self.at_once = IMPACTS * len(self.scene.surface.faces)

    def first_impact(self, q: Array, v: Array, start: Array, stop: Array) -> Impact:
        _register()
        scene, number = self.scene, lambda *shape: jax.ShapeDtypeStruct(shape, q.dtype)
        x, s = scene.points(q), scene.surface
        settings = jnp.stack([start, stop, jnp.asarray(self.distance), jnp.asarray(float(scene.own_body))])
        out = number(1), jax.ShapeDtypeStruct((4,), jnp.int32), number(*x.shape), number(len(x), 6), *scene.scratch
        call = jax.ffi.ffi_call("geomint_first_impact", out, vmap_method="sequential")
        time, nodes, *_ = call(x, scene.velocities(v), settings, s.faces, s.owned, s.across, s.body, s.children)
        return Impact(time[0], nodes)

    def gap(self, q: Array, what: Array) -> Array:
        """The volume (b − a)·((c − a) × (d − a)) of the four nodes."""
        a, b, c, d = self.scene.points(q)[what]
        return jnp.dot(b - a, jnp.cross(c - a, d - a))

    def problem(self, q: Any) -> str:
        found = described(self.scene, q)
        return f"{found} Move the bodies apart." if found else ""


@functools.cache
def _register() -> None:
    from ...numerics.linalg import xla_ffi  # deferred: importing numba is slow
    from . import impact_loops

    xla_ffi.register("geomint_first_impact", impact_loops.first_impact)
