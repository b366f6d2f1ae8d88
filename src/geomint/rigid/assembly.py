"""Assemblies: rigid bodies with joints, as one system with a constant mass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError, nearest
from ..numerics.module import Module
from ..numerics.rotations import twice_vee
from ..system.calls import Function
from ..system.checks import as_array, function, shown, vector
from ..system.system import System
from .joints import Connection, PlacedJoint
from .layout import Described, Layout, check_thin, described, reference_pose
from .linkage import assembled
from .motions import found_symmetries

FITS = 1e-8  # residual of a joint, relative to the lengths of the assembly, above which it does not fit


class _Potential(Module):
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


def _potential(known: Described, gravity: np.ndarray, potential: Any) -> _Potential | None:
    """The potential of an assembly; None where there is none."""
    more = None if potential is None else function(potential, "potential", "Assembly", of="(positions, rotations)")
    if more is None and not any(known.own) and not np.any(gravity):
        return None
    # A plain function is compile-time; a Module keeps its arrays as arguments of the compiled program.
    stated = more if more is None or isinstance(more, eqx.Module) else Function.of(more)
    return _Potential(jnp.asarray(known.weights(gravity)), stated, known.own, known.layout)


class _Turning(Module):
    """A joint with one axis of rotation."""

    first: int = eqx.field(static=True)
    second: int = eqx.field(static=True)
    axis: Array  # in the first body
    relative: Array  # the rotation of the second body in the first, in the reference pose

    @classmethod
    def of(cls, joint: PlacedJoint) -> _Turning:
        return cls(joint.first, joint.second, jnp.asarray(joint.axis), jnp.asarray(joint.relative))

    def angle(self, positions: Array, rotations: Array) -> Array:
        turned = rotations[self.first].T @ rotations[self.second] @ self.relative.T
        return jnp.arctan2(self.axis @ twice_vee(turned), jnp.trace(turned) - 1)


class _Sliding(Module):
    """A joint that slides."""

    first: int = eqx.field(static=True)
    second: int = eqx.field(static=True)
    points: tuple[Array, Array]
    axes: Array  # in the first body

    @classmethod
    def of(cls, joint: PlacedJoint) -> _Sliding:
        one, two = map(jnp.asarray, joint.points)
        return cls(joint.first, joint.second, (one, two), jnp.asarray(joint.slides))

    def moved(self, positions: Array, rotations: Array) -> Array:
        ends = zip((self.first, self.second), self.points, strict=True)
        one, two = (positions[i] + rotations[i] @ x for i, x in ends)
        along = self.axes @ rotations[self.first].T
        return jnp.linalg.solve(along @ along.T, along @ (two - one))


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
    hinges: tuple[_Turning, ...]
    sliding: tuple[_Sliding, ...]
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
        known = described(bodies)
        pose = reference_pose(known.layout.n, positions, rotations)
        placed = [joint.placed(pose) for joint in _checked_joints(joints, known.layout.n)]
        check_thin(placed, known)
        constraint, rows = assembled(known.layout.directors.counts, known.centres, known.axes, placed)
        g = np.zeros(3) if gravity is None else np.array(vector(gravity, "gravity", "Assembly", size=3))
        energy = _potential(known, g, potential)
        if symmetries is None:
            symmetries = () if potential or any(known.own) else found_symmetries(known.layout.directors, placed, g)
        mass = known.masses[:, None]
        super().__init__(energy, mass, constraint, symmetries=symmetries, watch=watch, origin=origin)
        self.layout, self.rows, self.joints = known.layout, rows, tuple(joint.name for joint in placed)
        self.names = _checked_names(names, known.layout.n)
        self.hinges = tuple(_Turning.of(joint) for joint in placed if joint.axis is not None)
        self.sliding = tuple(_Sliding.of(joint) for joint in placed if len(joint.slides))
        self.reference = jnp.asarray(self.layout.packed(pose))
        if positions is not None or rotations is not None:
            self._check_joints(np.asarray(self.reference), "the reference pose")

    # --- from positions and rotations to q and back -----------------------------------------------------------------
    @property
    def n(self) -> int:
        """The number of bodies."""
        return self.layout.n

    def number(self, name: str) -> int:
        """The number of the body of that name."""
        if name not in self.names:
            raise InputError(f"Assembly: there is no body {name!r}." + nearest(str(name), self.names))
        return self.names.index(name)

    def q(self, positions: Any = None, rotations: Any = None) -> np.ndarray:
        """q of shape (rows, 3) from the positions (n, 3) and the rotations of the frames of all bodies, as matrices
        (n, 3, 3) or unit quaternions (n, 4) = (w, x, y, z); those of the reference pose without."""
        at, turned = (np.asarray(x) for x in self.layout.pose(self.reference))
        pose = reference_pose(
            self.n, at if positions is None else positions, turned if rotations is None else rotations
        )
        q = self.layout.packed(pose)
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
        pose = self.layout.pose_with_world(q)
        return jnp.stack([hinge.angle(*pose) for hinge in self.hinges]) if self.hinges else jnp.zeros(0)

    @_over_time
    def displacements(self, q: Any) -> Any:
        """(…, k): how far the joints that slide have moved along their axes."""
        pose = self.layout.pose_with_world(q)
        return jnp.concatenate([each.moved(*pose) for each in self.sliding]) if self.sliding else jnp.zeros(0)

    # --- details ----------------------------------------------------------------------------------------------------
    def _frames(self, q: Any) -> tuple[np.ndarray, np.ndarray]:
        rows = int(self.layout.directors.starts[-1])
        q = np.asarray(as_array(q, "q", "Assembly"), float)
        if q.shape != (rows, 3):
            raise InputError(f"Assembly: q has the shape ({rows}, 3) here, not {q.shape}.")
        return np.asarray(self.layout.complete(jnp.asarray(q))), np.asarray(self.layout.pose(jnp.asarray(q))[1])

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


def _checked_names(names: Any, n: int) -> tuple[str, ...]:
    listed = tuple(f"body {i}" for i in range(n)) if names is None else tuple(names)
    if len(listed) != n or len(set(listed)) != n or not all(isinstance(name, str) for name in listed):
        raise InputError(f"Assembly(names=...): names must be {n} different texts, one for each body.")
    return listed


def _checked_joints(joints: Any, n: int) -> list[Connection]:
    listed = [joints] if isinstance(joints, Connection) or not isinstance(joints, Iterable) else list(joints)
    for k, joint in enumerate(listed):
        if not isinstance(joint, Connection):
            raise InputError(
                f"Assembly(joints=...): joint {k} must be a joint such as gm.rigid.Ball(0, 1), not {shown(joint)}."
            )
        if max(joint.second, -1 if joint.first is None else joint.first) >= n:
            raise InputError(f"Assembly(joints=...): joint {k}, {joint!r}: there are {n} bodies, counted from 0.")
    return listed
