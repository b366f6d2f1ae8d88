"""How bodies look, each in a colour of its own: elastic ones by their faces, with the nodes that are held, and rigid
ones as the box that has their mass and inertia, which for a box is itself."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..rigid.assembly import Assembly
from ..rigid.body import second_moment
from ..system.spaces import Poses, space_of

EDGES = 2000  # of a mesh in the plane, up to which they are drawn
THIN = 0.02  # half a width is at least this share of the longest one of all bodies
SMALL = 0.1  # half a width of a body is at most this share of the way that it goes, where the way is longer
CORNERS = np.array(list(itertools.product((-1, 1), repeat=3)))  # of a box
SIDES = ((0, 1, 3, 2), (4, 5, 7, 6), (0, 1, 5, 4), (2, 3, 7, 6), (0, 2, 6, 4), (1, 3, 7, 5))


def faces_of_body(elastic: Any) -> dict[str, Any]:
    """Fields of `Points`: the faces of tetrahedra that lie on the surface, or all triangles in the plane."""
    mesh = elastic.mesh
    every = jax.jit(jax.vmap(elastic.positions))
    found: dict[str, Any] = {
        "triangles": mesh.boundary_faces if mesh.dim == 3 else mesh.cells,
        "colors": mesh.bodies.tolist(),
        "completed": lambda x, t: np.asarray(every(jnp.asarray(x), jnp.asarray(t))),
    }
    if mesh.dim == 2:
        sides = np.sort(np.concatenate([mesh.cells[:, [0, 1]], mesh.cells[:, [1, 2]], mesh.cells[:, [0, 2]]]), axis=1)
        edges = np.unique(sides, axis=0)
        found["bonds"] = tuple(map(tuple, edges.tolist())) if len(edges) <= EDGES else ()
    return found


def boxes_of_assembly(system: Any) -> dict[str, Any] | None:
    """Fields of `Points` for bodies with joints: q are their centres of mass and principal axes."""
    if not isinstance(system, Assembly):
        return None
    directors, mass = system.layout.directors, np.asarray(system.mass).ravel()
    moments = np.zeros((system.n, 3))
    for i, (start, count) in enumerate(zip(directors.starts[:-1], directors.counts, strict=True)):
        moments[i, :count] = mass[start + 1 : start + 1 + count] / mass[start]
    frames = jax.jit(jax.vmap(system.layout.complete))
    return _boxes(moments, lambda q: np.asarray(frames(jnp.asarray(q))))


def boxes_of_poses(run: Any, shape: tuple[int, ...]) -> dict[str, Any] | None:
    """Fields of `Points` for free bodies on the group: q are their positions and rotations."""
    if run.members or run.system is None or not isinstance(space_of(run.system), Poses):
        return None
    mass, bodies = np.asarray(run.system.mass), int(np.prod(shape[:-2]))
    core = (2, 3, 3) if mass.shape[-3:] == (2, 3, 3) else (2, 3)
    moments, axes = np.zeros((bodies, 3)), np.zeros((bodies, 3, 3))
    for i, (inert, inertia) in enumerate(np.broadcast_to(mass, (bodies, *core))):
        d = second_moment(inertia)
        moments[i], axes[i] = np.linalg.eigh(np.diag(d) if d.ndim == 1 else d)
        moments[i] /= inert.ravel()[0]
    way = float(np.max(np.ptp(np.reshape(run.q, (-1, *shape))[..., 0, :].reshape(-1, 3), axis=0)))
    longest = np.sqrt(3 * moments.max())
    if way > longest:  # a body that is far smaller than its orbit, stated with moments of order 1
        moments = moments * min(1.0, SMALL * way / longest) ** 2

    def frames(q: np.ndarray) -> np.ndarray:
        q = q.reshape(len(q), bodies, 4, 3)
        return np.concatenate([q[:, :, :1], np.einsum("fnsb,nbk->fnks", q[:, :, 1:], axes)], axis=2)

    return _boxes(moments, frames)


def _boxes(moments: np.ndarray, frames: Any) -> dict[str, Any]:
    """moments: second moments over mass (n, 3), a²/3 of a box of half-widths a; frames(q): (frames, n, 4, 3), centres
    of mass and axes."""
    halves = np.sqrt(3 * np.maximum(moments, 0.0))
    halves = np.maximum(halves, THIN * max(float(halves.max()), 1e-300))
    n = len(halves)

    def of(q: np.ndarray) -> np.ndarray:
        x = frames(q)
        corners = x[:, :, None, 0] + np.einsum("ck,nk,fnkj->fncj", CORNERS, halves, x[:, :, 1:])
        return corners.reshape(len(x), 8 * n, 3)

    each = [(a, b, c) for w, x, y, z in SIDES for a, b, c in ((w, x, y), (w, y, z))]
    triangles = np.concatenate([np.array(each) + 8 * i for i in range(n)])
    return {"of": of, "triangles": triangles, "colors": np.repeat(np.arange(n), 8).tolist()}
