"""Assemblies: rigid bodies with joints, as one system with a constant mass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError, nearest
from ..system.checks import as_array, function, shown, vector
from ..system.system import System
from .body import RigidBody
from .inertia import MassProperties, rotation_matrices
from .joints import Connection, PlacedJoint, Pose
from .linkage import Directors, assembled
from .motions import found_symmetries

THIN = 1e-12  # second moments below this fraction of the largest count as zero: a plate, a rod or a point
FITS = 1e-8  # residual of a joint, relative to the lengths of the assembly, above which it does not fit


class _Potential(eqx.Module):
    """−Σ m g·x, and a potential of the user's of positions and rotations."""

    weights: Array  # (rows, 3): m g at the centres of mass
    more: Any  # V(positions, rotations)
    own: tuple[Callable | None, ...] = eqx.field(static=True)  # of the bodies, of their x and R as an array (4, 3)
    layout: Any

    def __call__(self, q: Array) -> Array:
        energy = -jnp.sum(self.weights * q)
        if self.more is None and not any(self.own):
            return energy
        positions, rotations = self.layout.pose(q)
        for i, its_potential in enumerate(self.own):
            if its_potential is not None:
                energy = energy + its_potential(jnp.concatenate([positions[i, None], rotations[i]]))
        return energy if self.more is None else energy + self.more(positions, rotations)


class Layout(eqx.Module):
    """From q to the frames of the bodies, and back."""

    directors: Directors
    centres: Array  # (n, 3): centres of mass in the frames of the bodies
    axes: Array  # (n, 3, 3): principal axes in these frames, as rows

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

    def pack(self, centres: np.ndarray, directors: np.ndarray) -> np.ndarray:
        """q, or v, from those of all bodies, (n, 3) and (n, 3, 3)."""
        rows = [x for i, count in enumerate(self.directors.counts) for x in (centres[i], *directors[i, :count])]
        return np.array(rows)


def _over_time(method: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one position as a function of positions with any leading axes."""

    @functools.wraps(method)
    def mapped(self: Assembly, *arrays: Any) -> Any:
        given = [jnp.asarray(as_array(x, "qv"[k], method.__name__)) for k, x in enumerate(arrays)]
        rows = int(self.layout.directors.starts[-1])
        if any(x.shape[-2:] != (rows, 3) or x.shape != given[0].shape for x in given):
            raise InputError(f"{method.__name__}(q): q has the shape (…, {rows}, 3) here, not {given[0].shape}.")
        leading = given[0].shape[:-2]
        found = jax.vmap(lambda *x: method(self, *x))(*(x.reshape(-1, rows, 3) for x in given))
        return jax.tree.map(lambda x: np.asarray(x).reshape(*leading, *x.shape[1:]), found)

    return mapped


class Assembly(System):
    """Rigid bodies with joints, a system of constant mass for all methods with constraints.

    bodies:     gm.rigid.RigidBody or mass properties of gm.rigid.inertia, with frames of their own.
    joints:     Ball, Hinge, Slider, Universal, Cylindrical, Weld, Distance or Joint.
    gravity:    an acceleration, such as (0, 0, -9.81).
    positions:  of the frames of the bodies in the reference pose, for which joints are stated; the origin without.
    rotations:  of the frames, as matrices (n, 3, 3) or unit quaternions (n, 4) = (w, x, y, z).
    potential:  a further potential V(positions, rotations) of all bodies.
    symmetries: whose momentum maps are watched; those that gravity and the joints leave, without it.
    watch:      as for gm.System.
    names:      of the bodies; `number` finds a body by its name.

        links = [gm.rigid.inertia.rod(1.0, mass=1.0).at((0, 0, -0.5))] * 2
        joints = [gm.rigid.Ball(None, 0, (0, 0, 0)), gm.rigid.Ball(0, 1, (0, 0, -1))]
        pendulum = gm.rigid.Assembly(links, joints, gravity=(0, 0, -9.81), positions=[(0, 0, 0), (0, 0, -1)])
        run = gm.simulate(pendulum, pendulum.q(...), method=gm.Rattle(), dt=0.01, t_end=10.0)

    q has the shape (rows, 3): of each body the centre of mass and its three principal axes in space (two for a thin
    plate, one for a thin rod, none for a point). `q` and `v` make it from positions and rotations, `positions`,
    `rotations`, `angular_velocities`, `angles` and `displacements` read it.
    """

    layout: Layout
    hinges: tuple[Any, ...]  # (first, second, axis, relative rotation in the reference pose)
    sliding: tuple[Any, ...]  # (first, second, points, axes)
    reference: Array
    names: tuple[str, ...] = eqx.field(static=True)  # of the bodies
    joints: tuple[str, ...] = eqx.field(static=True)  # as text, for errors
    rows: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # of the constraint, for each joint

    def __init__(
        self,
        bodies: Sequence[Any],
        joints: Sequence[Connection] = (),
        *,
        gravity: Any = None,
        positions: Any = None,
        rotations: Any = None,
        potential: Callable | None = None,
        symmetries: Any = None,
        watch: Any = None,
        names: Sequence[str] | None = None,
        origin: str | None = None,
    ):
        properties, own = zip(*_checked_bodies(bodies), strict=True)
        pose = _reference(len(properties), positions, rotations)
        connections = _checked_joints(joints, len(properties))
        placed = [joint.placed(pose) for joint in connections]
        counts, axes, moments = zip(*map(_principal, properties), strict=True)
        centres = np.array([each.centre for each in properties])
        layout = Layout(Directors(counts), jnp.asarray(centres), jnp.asarray(np.array(axes)))
        _check_thin(placed, counts, np.array(axes), centres)
        with_world = np.concatenate([np.zeros((1, 3)), centres]), np.concatenate([np.eye(3)[None], np.array(axes)])
        constraint, rows = assembled(counts, *with_world, placed)
        g = np.zeros(3) if gravity is None else np.array(vector(gravity, "gravity", "Assembly", size=3))
        masses = [(each.mass, *d[:count]) for each, d, count in zip(properties, moments, counts, strict=True)]
        weights = [[each.mass * g] + [np.zeros(3)] * count for each, count in zip(properties, counts, strict=True)]
        more = None if potential is None else function(potential, "potential", "Assembly", of="(positions, rotations)")
        pushed = more is not None or any(own)
        moves = pushed or np.any(g)
        energy = _Potential(jnp.asarray(np.concatenate(weights)), more, own, layout) if moves else None
        if symmetries is None:
            anchors = [joint for joint in placed if joint.first == 0]
            symmetries = () if pushed else found_symmetries(layout.directors, anchors, g)
        super().__init__(
            energy, np.concatenate(masses)[:, None], constraint, symmetries=symmetries, watch=watch, origin=origin
        )
        self.layout, self.rows, self.joints = layout, rows, tuple(joint.name for joint in placed)
        self.names = _checked_names(names, len(properties))
        one = [joint for joint in placed if joint.axis is not None]
        self.hinges = tuple((j.first, j.second, jnp.asarray(j.axis), jnp.asarray(j.relative)) for j in one)
        some = [joint for joint in placed if len(joint.slides)]
        self.sliding = tuple((j.first, j.second, *map(jnp.asarray, (*j.points, j.slides))) for j in some)
        self.reference = jnp.asarray(self._packed(pose.positions[1:], pose.rotations[1:]))
        if positions is not None or rotations is not None:
            self._check_joints(np.asarray(self.reference), "the reference pose")

    # --- from positions and rotations to q and back -----------------------------------------------------------------
    @property
    def n(self) -> int:
        """The number of bodies."""
        return len(self.layout.directors.counts)

    def number(self, name: str) -> int:
        """The number of the body of that name."""
        if name not in self.names:
            raise InputError(f"Assembly: there is no body {name!r}." + nearest(str(name), self.names))
        return self.names.index(name)

    def q(self, positions: Any = None, rotations: Any = None) -> np.ndarray:
        """q of shape (rows, 3) from the positions (n, 3) and the rotations of the frames of all bodies, as matrices
        (n, 3, 3) or unit quaternions (n, 4) = (w, x, y, z); those of the reference pose without."""
        at, turned = (np.asarray(x) for x in self.layout.pose(self.reference))
        pose = _reference(self.n, at if positions is None else positions, turned if rotations is None else rotations)
        q = self._packed(pose.positions[1:], pose.rotations[1:])
        self._check_joints(q, "these positions and rotations")
        return q

    def v(self, q: Any, velocities: Any = None, angular_velocities: Any = None) -> np.ndarray:
        """v of shape (rows, 3) at q, from the velocities (n, 3) of the origins of the frames and the angular velocities
        (n, 3) in the frames of the bodies; 0 without. gm.project makes them fit the joints."""
        frames, rotations = self._frames(q)
        given = [
            np.zeros((self.n, 3)) if x is None else np.asarray(as_array(x, name, "v"), float)
            for name, x in (("velocities", velocities), ("angular_velocities", angular_velocities))
        ]
        if any(x.shape != (self.n, 3) for x in given):
            raise InputError(f"Assembly.v: velocities and angular_velocities have the shape ({self.n}, 3).")
        omega = np.einsum("nsb,nb->ns", rotations, given[1])
        arms = np.einsum("nsb,nb->ns", rotations, np.asarray(self.layout.centres))
        return self.layout.pack(given[0] + np.cross(omega, arms), np.cross(omega[:, None], frames[:, 1:]))

    @_over_time
    def positions(self, q: Any) -> Any:
        """(…, n, 3): where the origins of the frames of the bodies are."""
        return self.layout.pose(q)[0]

    @_over_time
    def rotations(self, q: Any) -> Any:
        """(…, n, 3, 3): the rotations of the frames of the bodies."""
        return self.layout.pose(q)[1]

    @_over_time
    def angular_velocities(self, q: Any, v: Any) -> Any:
        """(…, n, 3): in the frames of the bodies. Of a rod without the part along it."""
        frames, rates = jax.jvp(lambda x: self.layout.directors.frames(x)[1:, 1:], (q,), (v,))
        turning = jnp.cross(frames, rates)
        counts = np.array(self.layout.directors.counts)[:, None]
        omega = jnp.where(counts >= 2, 0.5 * jnp.sum(turning, axis=1), turning[:, 0])
        return jnp.einsum("nsb,ns->nb", self.layout.pose(q)[1], omega)

    @_over_time
    def angles(self, q: Any) -> Any:
        """(…, k): the angles, between −π and π, of the k joints with one axis of rotation; 0 in the reference pose."""
        rotations = self._with_world(self.layout.pose(q)[1], np.eye(3))

        def angle(first: int, second: int, axis: Array, relative: Array) -> Array:
            turned = rotations[first].T @ rotations[second] @ relative.T
            skew = jnp.stack([turned[2, 1] - turned[1, 2], turned[0, 2] - turned[2, 0], turned[1, 0] - turned[0, 1]])
            return jnp.arctan2(axis @ skew, jnp.trace(turned) - 1)

        return jnp.stack([angle(*hinge) for hinge in self.hinges]) if self.hinges else jnp.zeros(0)

    @_over_time
    def displacements(self, q: Any) -> Any:
        """(…, k): how far the joints that slide have moved along their axes."""
        positions, rotations = self.layout.pose(q)
        positions, rotations = self._with_world(positions, np.zeros(3)), self._with_world(rotations, np.eye(3))

        def moved(first: int, second: int, in_first: Array, in_second: Array, axes: Array) -> Array:
            ends = [positions[i] + rotations[i] @ x for i, x in ((first, in_first), (second, in_second))]
            return jnp.linalg.solve(axes @ axes.T, axes @ rotations[first].T @ (ends[1] - ends[0]))

        return jnp.concatenate([moved(*each) for each in self.sliding]) if self.sliding else jnp.zeros(0)

    # --- details ----------------------------------------------------------------------------------------------------
    @staticmethod
    def _with_world(x: Array, world: np.ndarray) -> Array:
        return jnp.concatenate([jnp.asarray(world)[None], x])

    def _frames(self, q: Any) -> tuple[np.ndarray, np.ndarray]:
        rows = int(self.layout.directors.starts[-1])
        q = np.asarray(as_array(q, "q", "Assembly"), float)
        if q.shape != (rows, 3):
            raise InputError(f"Assembly: q has the shape ({rows}, 3) here, not {q.shape}.")
        return np.asarray(self.layout.complete(jnp.asarray(q))), np.asarray(self.layout.pose(jnp.asarray(q))[1])

    def _packed(self, positions: np.ndarray, rotations: np.ndarray) -> np.ndarray:
        centres = positions + np.einsum("nsb,nb->ns", rotations, np.asarray(self.layout.centres))
        return self.layout.pack(centres, np.einsum("nkb,nsb->nks", np.asarray(self.layout.axes), rotations))

    def _check_joints(self, q: np.ndarray, where: str) -> None:
        """That all joints hold at q."""
        if self.constraint is None:
            return
        g = np.abs(np.asarray(self.call(self.constraint, jnp.asarray(q), t=0.0)))
        size = max(1.0, float(np.max(np.abs(q))))
        off = [float(np.max(g[list(rows)], initial=0.0)) for rows in self.rows]
        if off and not max(off) <= FITS * size:
            k = int(np.nanargmax(off))
            raise InputError(
                f"Assembly: {where} do not fit joint {k}, {self.joints[k]}: its residual is {off[k]:.3g}. Points and "
                "axes of a joint must meet; state it by point= and axis= in the reference pose, positions= and "
                "rotations= of the assembly."
            )


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


def _checked_names(names: Any, n: int) -> tuple[str, ...]:
    listed = tuple(f"body {i}" for i in range(n)) if names is None else tuple(names)
    if len(listed) != n or len(set(listed)) != n or not all(isinstance(name, str) for name in listed):
        raise InputError(f"Assembly(names=...): names must be {n} different texts, one for each body.")
    return listed


def _checked_joints(joints: Any, n: int) -> list[Connection]:
    listed = list(joints) if isinstance(joints, (list, tuple)) else [joints]
    for k, joint in enumerate(listed):
        if not isinstance(joint, Connection):
            raise InputError(
                f"Assembly(joints=...): joint {k} must be a joint such as gm.rigid.Ball(0, 1), not {shown(joint)}."
            )
        if max(joint.second, -1 if joint.first is None else joint.first) >= n:
            raise InputError(f"Assembly(joints=...): joint {k}, {joint!r}: there are {n} bodies, counted from 0.")
    return listed


def _reference(n: int, positions: Any, rotations: Any) -> Pose:
    x = np.zeros((n, 3)) if positions is None else np.asarray(as_array(positions, "positions", "Assembly"), float)
    r = (
        np.broadcast_to(np.eye(3), (n, 3, 3))
        if rotations is None
        else rotation_matrices(rotations, "rotations", "Assembly")
    )
    if x.shape != (n, 3) or r.shape != (n, 3, 3):
        raise InputError(
            f"Assembly: of {n} bodies, positions have the shape ({n}, 3), and rotations ({n}, 3, 3), or "
            f"({n}, 4) as quaternions; not {x.shape} and {np.shape(rotations)}."
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
    present = moments > THIN * largest if largest > THIN * body.mass * 1e-6 else np.zeros(3, bool)
    order = np.arange(3) if np.all(present) else np.argsort(-moments, kind="stable")
    axes = columns.T[order]
    if np.linalg.det(axes) < 0:
        axes[2] *= -1
    return int(np.sum(present)), axes, moments[order]


def _check_thin(joints: Sequence[PlacedJoint], counts: Sequence[int], axes: np.ndarray, centres: np.ndarray) -> None:
    """That joints hold rods by points on their axes, and points by themselves, with no direction of theirs."""
    for joint in joints:
        for body, point in ((joint.first, joint.points[0]), (joint.second, joint.points[1])):
            count = 3 if body == 0 else counts[body - 1]
            if count >= 2:
                continue
            off = (axes[body - 1] @ (point - centres[body - 1]))[count:]
            directed = joint.dots is not None or joint.moving is not None
            directed |= body == joint.first and joint.directions is not None
            if directed or np.max(np.abs(off)) > 1e-9 * max(1.0, float(np.max(np.abs(point)))):
                kind = "a thin rod, which has no inertia about its axis" if count else "a point, which has no inertia"
                raise InputError(
                    f"Assembly: {joint.name} needs the orientation of body {body - 1}, {kind}. Give it a thickness "
                    "(gm.rigid.inertia.cylinder), or hold it by balls and distances "
                    + ("at points of its axis." if count else "at its centre.")
                )
