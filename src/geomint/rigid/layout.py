"""From the frames of bodies to the coordinates of an assembly, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.module import Module
from ..system.checks import as_array, shown
from .body import RigidBody
from .inertia import MassProperties, rotation_matrices
from .joints import PlacedJoint, Pose
from .linkage import Directors

# Second moments below the first fraction of the largest, or the second of m|c|² for a centre of mass at c, are zero.
THIN, ROUNDING = 1e-12, 1e-14


class Layout(Module):
    """From q to the frames of the bodies, and back."""

    directors: Directors
    centres: Array  # (n, 3): centres of mass in the frames of the bodies
    axes: Array  # (n, 3, 3): principal axes in these frames, as rows

    @property
    def n(self) -> int:
        """The number of bodies."""
        return len(self.directors.counts)

    def complete(self, q: Array) -> Array:
        """(n, 4, 3): x and all three d_k of each body; of a rod, d₂ and d₃ are those of the smallest rotation from its
        own frame, of a point the axes of space."""
        frames, counts = self.directors.frames(q)[1:], np.array(self.directors.counts)
        if np.all(counts >= 2):
            return frames
        start = self.axes[:, 0]
        w = jnp.cross(start, frames[:, 1])
        skew = -jnp.cross(w[:, None, :], jnp.eye(3))
        cosine = jnp.sum(start * frames[:, 1], axis=1)[:, None, None]
        turned = jnp.einsum("nij,nkj->nki", jnp.eye(3) + skew + skew @ skew / (1 + cosine), self.axes)
        which = counts[:, None, None]
        d = jnp.where(which >= 2, frames[:, 1:], jnp.where(which == 1, turned, self.axes))
        return jnp.concatenate([frames[:, :1], d], axis=1)

    def pose(self, q: Array) -> tuple[Array, Array]:
        """Positions (n, 3) and rotations (n, 3, 3) of the frames of the bodies."""
        frames = self.complete(q)
        rotations = jnp.einsum("nks,nkb->nsb", frames[:, 1:], self.axes)
        return frames[:, 0] - jnp.einsum("nsb,nb->ns", rotations, self.centres), rotations

    def pose_with_world(self, q: Array) -> tuple[Array, Array]:
        """As `pose`, with the world as number 0."""
        positions, rotations = self.pose(q)
        origin, axes = jnp.zeros((1, 3), q.dtype), jnp.eye(3, dtype=q.dtype)[None]
        return jnp.concatenate([origin, positions]), jnp.concatenate([axes, rotations])

    def pack(self, centres: np.ndarray, directors: np.ndarray) -> np.ndarray:
        """q, or v, from those of all bodies, (n, 3) and (n, 3, 3)."""
        rows = [x for i, count in enumerate(self.directors.counts) for x in (centres[i], *directors[i, :count])]
        return np.array(rows)

    def packed(self, pose: Pose) -> np.ndarray:
        """q of a pose."""
        rotations = pose.rotations[1:]
        centres = pose.positions[1:] + np.einsum("nsb,nb->ns", rotations, np.asarray(self.centres))
        return self.pack(centres, np.einsum("nkb,nsb->nks", np.asarray(self.axes), rotations))


class Described(NamedTuple):
    """Bodies as an assembly needs them."""

    bodies: list[MassProperties]
    own: tuple[Callable | None, ...]  # their potentials
    layout: Layout
    masses: np.ndarray  # (rows,)

    @property
    def centres(self) -> np.ndarray:
        """(n + 1, 3): centres of mass in the frames of the world and of the bodies."""
        return np.concatenate([np.zeros((1, 3)), np.asarray(self.layout.centres)])

    @property
    def axes(self) -> np.ndarray:
        """(n + 1, 3, 3): principal axes in these frames, as rows."""
        return np.concatenate([np.eye(3)[None], np.asarray(self.layout.axes)])

    def weights(self, gravity: np.ndarray) -> np.ndarray:
        """(rows, 3): m g at the centres of mass."""
        found = np.zeros((len(self.masses), 3))
        starts = self.layout.directors.starts[:-1]
        found[starts] = self.masses[starts, None] * gravity
        return found


def described(bodies: Any) -> Described:
    """Bodies given by users."""
    properties, own = zip(*_checked_bodies(bodies), strict=True)
    counts, axes, moments = zip(*map(_principal, properties), strict=True)
    centres = np.array([each.centre for each in properties])
    layout = Layout(Directors(counts), jnp.asarray(centres), jnp.asarray(np.array(axes)))
    masses = [(each.mass, *d[:count]) for each, d, count in zip(properties, moments, counts, strict=True)]
    return Described(list(properties), own, layout, np.concatenate(masses))


def _checked_bodies(bodies: Any) -> list[tuple[MassProperties, Callable | None]]:
    """Mass properties and potentials of bodies."""
    try:
        listed = list(bodies)
    except TypeError:
        listed = []
    if not listed:
        raise InputError(f"Assembly(bodies={shown(bodies)}): bodies must be a list of rigid bodies.")
    found = []
    for i, body in enumerate(listed):
        if isinstance(body, MassProperties):
            found.append((body, None))
            continue
        if not isinstance(body, RigidBody):
            raise InputError(
                f"Assembly(bodies=...): body {i} must be a gm.rigid.RigidBody or mass properties such as "
                f"gm.rigid.inertia.box((1, 1, 1), mass=1.0), not {shown(body)}."
            )
        if body.mass is None or body.params is not None:
            why = "has no mass: give RigidBody(mass=...)" if body.mass is None else "has params, which belong to none"
            raise InputError(f"Assembly(bodies=...): body {i} {why}.")
        found.append((MassProperties(body.mass, np.zeros(3), body.inertia), body.potential))
    return found


def reference_pose(n: int, positions: Any, rotations: Any) -> Pose:
    x = np.zeros((n, 3)) if positions is None else np.asarray(as_array(positions, "positions", "Assembly"), float)
    r = (
        np.broadcast_to(np.eye(3), (n, 3, 3))
        if rotations is None
        else rotation_matrices(rotations, "rotations", "Assembly")
    )
    if x.shape != (n, 3) or r.shape != (n, 3, 3):
        raise InputError(
            f"Assembly: of {n} bodies, positions have the shape ({n}, 3), and rotations ({n}, 3, 3), or "
            f"({n}, 4) as quaternions; not {x.shape} and {r.shape}."
        )
    with_world = lambda y, world: np.concatenate([np.asarray(world)[None], y])
    return Pose(with_world(x, np.zeros(3)), with_world(r, np.eye(3)))


def _principal(body: MassProperties) -> tuple[int, np.ndarray, np.ndarray]:
    """The number of directors, the principal axes as rows, and the second moments, in descending order. A frame of
    principal axes keeps its axes, apart from their order."""
    second = body.second_moments
    off_diagonal = np.max(np.abs(second - np.diag(np.diag(second))))
    if off_diagonal <= 1e-15 * np.trace(second):
        moments, columns = np.diag(second).copy(), np.eye(3)
    else:
        moments, columns = np.linalg.eigh(second)
    largest = float(np.max(moments))
    present = moments > max(THIN * largest, ROUNDING * body.mass * float(body.centre @ body.centre))
    order = np.arange(3) if np.all(present) else np.argsort(-moments, kind="stable")
    axes = columns.T[order]
    if np.linalg.det(axes) < 0:
        axes[2] *= -1
    return int(np.sum(present)), axes, moments[order]


def check_thin(joints: Sequence[PlacedJoint], known: Described) -> None:
    """That joints hold rods by points on their axes, and points by themselves, with no direction of theirs."""
    counts, axes, centres = (3, *known.layout.directors.counts), known.axes, known.centres
    for joint in joints:
        for body, point in ((joint.first, joint.points[0]), (joint.second, joint.points[1])):
            count = counts[body]
            if count >= 2:
                continue
            off = (axes[body] @ (point - centres[body]))[count:]
            directed = joint.dots is not None or joint.moving is not None
            directed |= body == joint.first and joint.directions is not None
            if directed or np.max(np.abs(off)) > 1e-9 * max(1.0, float(np.max(np.abs(point)))):
                kind = "a thin rod, which has no inertia about its axis" if count else "a point, which has no inertia"
                raise InputError(
                    f"Assembly: {joint.name} needs the orientation of body {body - 1}, {kind}. Give it a thickness "
                    "(gm.rigid.inertia.cylinder), or hold it by balls and distances "
                    + ("at points of its axis." if count else "at its centre.")
                )
