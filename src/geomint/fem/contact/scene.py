"""What can touch: the surfaces of bodies and obstacles, and how q becomes the positions of all nodes."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...errors import InputError
from ...numerics.linalg import cpu_kernels
from ...system.checks import shown
from ..mesh import Mesh, checked_mesh
from ..mesh_checks import checked_numbers
from .surface import PAIRS, STACK, Surface, surface


class Scene:
    """Nodes in the order: those of q, held ones, obstacles."""

    def __init__(self, callee: str, mesh: Mesh, fixed: Sequence[int] | None, obstacle: Mesh | None, own_body: bool):
        self.mesh = checked_mesh(mesh, callee)
        if mesh.dim != 3:
            raise InputError(f"{callee} is for tetrahedra in space; this mesh is in the plane.")
        if not cpu_kernels.available():
            raise InputError(f"{callee} runs on a CPU in double precision, with numba.")
        held = np.zeros(0, int)
        if fixed is not None:
            held = np.sort(checked_numbers(fixed, len(mesh.nodes), "fixed", "nodes", callee))
        free = np.setdiff1d(np.arange(len(mesh.nodes)), held)
        if not len(free):
            raise InputError(f"{callee}(fixed=...): all nodes are fixed; nothing moves.")
        place = np.empty(len(mesh.nodes), int)
        place[np.concatenate([free, held])] = np.arange(len(mesh.nodes))
        faces, bodies, still = place[mesh.boundary_faces], mesh.bodies[mesh.boundary_faces[:, 0]], mesh.nodes[held]
        points = np.concatenate([mesh.nodes[free], still])
        if obstacle is not None:
            if not isinstance(obstacle, Mesh) or obstacle.dim != 3:
                raise InputError(
                    f"{callee}(obstacle=...) must be a gm.fem.Mesh of tetrahedra in space, not {shown(obstacle)}."
                )
            faces = np.concatenate([faces, obstacle.boundary_faces + len(points)])
            bodies = np.concatenate([bodies, bodies.max() + 1 + obstacle.bodies[obstacle.boundary_faces[:, 0]]])
            still, points = np.concatenate([still, obstacle.nodes]), np.concatenate([points, obstacle.nodes])
        self.surface: Surface = surface(points, faces, bodies)
        self.free, self.still, self.own_body, self.rest = len(free), still, own_body, points
        ends = points[self.surface.edges]
        self.edge = float(np.median(np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)))

    def points(self, q: Array) -> Array:
        """The positions of all nodes."""
        if q.shape != (self.free, 3):
            raise InputError(f"contact: q must have the shape {(self.free, 3)} of the free nodes, not {q.shape}.")
        return jnp.concatenate([q, jnp.asarray(self.still, q.dtype)])

    def velocities(self, v: Array) -> Array:
        return jnp.concatenate([v, jnp.zeros_like(jnp.asarray(self.still, v.dtype))])

    @functools.cached_property
    def scratch(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """What the loops need for the tree: boxes, bodies of boxes, a stack, pairs of faces."""
        boxes, whole = len(self.surface.children), lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int32)
        return jax.ShapeDtypeStruct((boxes, 6), float), whole(boxes), whole(STACK, 2), whole(PAIRS, 2)
