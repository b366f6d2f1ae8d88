"""The smooth barrier of Incremental Potential Contact (Li et al., ACM Trans. Graph. 39 (2020) 49) as a potential:

    V(q) = κ Σ m b(d²),   b(s) = −(s − s₀)² ln(s/s₀) for s < s₀ = d̂², and 0 beyond,

over all pairs of a vertex with a face and of two edges that have no node in common. d is their distance, that of their
closest parts: of two vertices, a vertex and an edge, a vertex and a face, or two edges. V has two continuous
derivatives in d and is infinite at d = 0. The factor m makes it smooth for edges that become parallel,

    m = c/ε (2 − c/ε) for c = |e₁ × e₂|² < ε = 10⁻³ |E₁|²|E₂|², and 1 beyond,

where E are the edges at rest; for a vertex with a face it is 1.

The compiled loops of near_loops.py find the pairs and their closest parts; the formulas are differentiated
automatically.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...numerics.keywords import checked_keywords
from ...system.checks import positive
from ..mesh import Mesh
from .scene import Scene

VERTEX_VERTEX, VERTEX_EDGE, VERTEX_FACE, EDGE_EDGE = range(4)  # as in near_loops.py, which is imported later
COLUMNS = 9
NEARLY_PARALLEL = 1e-3


class BarrierContact:
    """A smooth barrier around all surfaces, as a potential: `with_contact(system, BarrierContact(mesh, 0.01, 1e4))`.

    Symplectic methods with fixed steps keep their energy near a constant with it if steps are short enough for the
    barrier. Where a step passes through it all the same, faces intersect, the energy is NaN and the run stops.

    mesh:      the bodies, as given to gm.fem.solid.
    distance:  d̂, at which the barrier begins.
    stiffness: κ, energy by length⁴.
    fixed:     the nodes that are fixed in gm.fem.solid(fixed=...).
    obstacle:  a mesh that does not move; it is no part of q.
    self_contact:  whether a body can touch itself.
    room:      for so many pairs of vertices and faces, and of edges, that are near at a time; with more, the energy is
               NaN and the run stops. By default four for each face.
    """

    is_energy: ClassVar[str] = "gm.fem.with_contact(system, contact)"  # where it belongs

    @checked_keywords
    def __init__(
        self,
        mesh: Mesh,
        distance: float,
        stiffness: float,
        fixed: Sequence[int] | None = None,
        obstacle: Mesh | None = None,
        self_contact: bool = True,
        room: int | None = None,
    ):
        self.scene = Scene("BarrierContact", mesh, fixed, obstacle, self_contact)
        self.distance = positive(distance, "distance", "BarrierContact")
        self.reach = self.distance / 4
        self.stiffness = positive(stiffness, "stiffness", "BarrierContact")
        self.room = 4 * len(self.scene.surface.faces) if room is None else int(positive(room, "room", "BarrierContact"))

    def __call__(self, q: Array) -> Array:
        x, s0 = self.scene.points(q), self.distance**2
        counts, rows = self._near(jax.lax.stop_gradient(x))
        there = jnp.arange(self.room) < counts[0]
        square = jnp.where(there, _squares(x, rows[:, 0], rows[:, 1:5]), s0)
        values = -((square - s0) ** 2) * jnp.log(square / s0) * self._mollifier(x, rows[:, 5:])
        total = self.stiffness * jnp.sum(jnp.where(there & (square < s0), values, 0.0))
        return jnp.where((counts[0] <= self.room) & (counts[1] == 0), total, jnp.nan)

    def _near(self, x: Array) -> tuple[Array, Array]:
        """The numbers of near pairs and of intersecting faces, and the rows of the former."""
        _register()
        scene, whole = self.scene, lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int32)
        boxes, s = jax.ShapeDtypeStruct((len(x), 6), x.dtype), scene.surface
        out = whole(2), whole(self.room, COLUMNS), boxes, *scene.scratch, whole(30), whole(COLUMNS)
        call = jax.ffi.ffi_call("geomint_near", out, vmap_method="sequential")
        settings = np.array([self.distance, float(scene.own_body)])
        counts, rows, *_ = call(x, settings, s.faces, s.owned, s.body, s.children)
        return counts, rows

    def _mollifier(self, x: Array, edges: Array) -> Array:
        """m of the pairs, of which `edges` (room, 4) has the nodes; 1 where these are 0."""
        rest, of_edges = jnp.asarray(self.scene.rest), edges[:, 0] != edges[:, 1]
        p, q = (x[edges[:, k + 1]] - x[edges[:, k]] for k in (0, 2))
        at_rest = [jnp.sum((rest[edges[:, k + 1]] - rest[edges[:, k]]) ** 2, axis=1) for k in (0, 2)]
        part = jnp.sum(jnp.cross(p, q) ** 2, axis=1)
        part = part / jnp.where(of_edges, NEARLY_PARALLEL * at_rest[0] * at_rest[1], 1.0)
        return jnp.where(of_edges & (part < 1), part * (2 - part), 1.0)


def _squares(x: Array, kind: Array, nodes: Array) -> Array:
    """The squares of distances of closest parts."""
    a, b, c, d = (x[nodes[:, k]] for k in range(4))
    total = lambda y: jnp.sum(y * y, axis=1)
    safe = lambda which, y: jnp.where(kind == which, y, 1.0)  # what is divided by in formulas that are not selected
    edge = total(jnp.cross(b - a, c - a)) / safe(VERTEX_EDGE, total(c - b))
    n = jnp.cross(c - b, d - b)
    face = jnp.sum(n * (a - b), axis=1) ** 2 / safe(VERTEX_FACE, total(n))
    n = jnp.cross(b - a, d - c)
    lines = jnp.sum(n * (c - a), axis=1) ** 2 / safe(EDGE_EDGE, total(n))
    return jnp.select(
        [kind == VERTEX_VERTEX, kind == VERTEX_EDGE, kind == VERTEX_FACE], [total(b - a), edge, face], lines
    )


@functools.cache
def _register() -> None:
    from ...numerics.linalg import xla_ffi  # deferred: importing numba is slow
    from . import near_loops

    xla_ffi.register("geomint_near", near_loops.near)
