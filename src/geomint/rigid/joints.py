"""Joints between rigid bodies, and to the world.

A joint lets the second body move relative to the first one (None: the world) by up to three translations and up to
three rotations. Points and axes are stated in space, for the reference pose of the assembly, or in the frames of the
two bodies (`points`, `axes`). `placed` turns either into the frames of the bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..system.checks import function, positive, shown, vector, whole


class Pose(NamedTuple):
    """Positions (n + 1, 3) and rotations (n + 1, 3, 3) of the frames of all bodies; number 0 is the world."""

    positions: np.ndarray
    rotations: np.ndarray

    def to_body(self, body: int, point: Any) -> np.ndarray:
        """A point of space in the frame of a body."""
        return self.rotations[body].T @ (np.asarray(point) - self.positions[body])

    def turned(self, body: int, direction: Any) -> np.ndarray:
        """A direction of space in the frame of a body."""
        return self.rotations[body].T @ np.asarray(direction)


class Dots(NamedTuple):
    """a·b = value for directions a of the first body and b of the second, in the frames of the bodies."""

    first: np.ndarray  # (k, 3)
    second: np.ndarray
    values: np.ndarray  # (k,)


class PlacedJoint(NamedTuple):
    """A joint in the frames of its bodies. Bodies are counted from 1; 0 is the world."""

    name: str
    first: int
    second: int
    points: tuple[np.ndarray, np.ndarray]
    directions: np.ndarray | None = None  # of the first body along which the points coincide; None: all three of space
    dots: Dots | None = None
    length: float | None = None  # of a Distance
    slides: np.ndarray = np.zeros((0, 3))  # axes of the first body along which the second may slide
    axis: np.ndarray | None = None  # of a joint with one rotation, in the first body
    relative: np.ndarray | None = None  # the rotation of the second body in the frame of the first, in the reference
    moving: Callable[[Any], Any] | None = None  # t → the rotation of the second body in the frame of the first


class Connection:
    """What joins two bodies."""

    first: int | None
    second: int

    def __repr__(self) -> str:
        first = "the world" if self.first is None else self.first
        return f"{type(self).__name__}({first}, {self.second})"

    def _connect(self, first: Any, second: Any) -> None:
        name = type(self).__name__
        self.first = None if first is None else whole(first, "first", name, least=0)
        if second is None:
            raise InputError(f"{name}(second=None): the world can only be the first of the two.")
        self.second = whole(second, "second", name, least=0)
        if self.first == self.second:
            raise InputError(f"{name}({self.first}, {self.second}): a joint needs two different bodies.")

    def _ends(self) -> tuple[int, int]:
        return (0 if self.first is None else self.first + 1), self.second + 1

    def _points(self, given: Any, name: str = "points") -> tuple[np.ndarray, np.ndarray]:
        """A pair of points."""
        try:
            first, second = given
        except (TypeError, ValueError):
            raise InputError(f"{type(self).__name__}({name}={shown(given)}): {name} must be two points.") from None
        return tuple(np.array(vector(x, name, type(self).__name__, size=3)) for x in (first, second))  # type: ignore

    def placed(self, pose: Pose) -> PlacedJoint:
        """The joint in the frames of its bodies, from the reference pose."""
        raise NotImplementedError


class Joint(Connection):
    """A joint of any kind: the point of the second body that lies at `point` may move along the slides, and the body
    may turn about it.

    first:   a body's number, None for the world.
    second:  a body's number.
    point:   of space, in the reference pose of the assembly; the origin of the second body's frame without it.
    points:  in place of it, the point in the frame of the first body (of space, for the world) and in that of the
             second.
    slides:  axes fixed in the first body, up to three.
    turns:   axes of rotation: none, one (a hinge), two (the first is fixed in the first body, the second in the second
             body) or three, for all rotations.

    Axes are directions of space in the reference pose. Gimbal lock does not occur: no angles are used.
    """

    def __init__(
        self, first: Any, second: Any, point: Any = None, *, points: Any = None, slides: Any = (), turns: Any = ()
    ):
        name = type(self).__name__
        self._connect(first, second)
        if point is not None and points is not None:
            raise InputError(f"{name}: give point or points, not both.")
        self.point = None if point is None else np.array(vector(point, "point", name, size=3))
        self.points = None if points is None else self._points(points)
        self.slides, self.turns = _axes(slides, "slides", name), _axes(turns, "turns", name)
        if len(self.slides) and np.linalg.matrix_rank(self.slides, tol=1e-6) < len(self.slides):
            raise InputError(f"{name}(slides=...): the axes of slides must be independent.")
        if len(self.turns) > 1 and np.linalg.matrix_rank(self.turns, tol=1e-6) < len(self.turns):
            raise InputError(f"{name}(turns=...): the axes of rotation must be independent.")

    def _axes_in_bodies(self, pose: Pose) -> tuple[np.ndarray, np.ndarray]:
        """The axes of rotation in the frames of the first and of the second body."""
        first, second = self._ends()
        return self.turns @ pose.rotations[first], self.turns @ pose.rotations[second]

    def _rotation(self, axes: np.ndarray, relative: np.ndarray) -> Callable[[Any], Any] | None:
        """t → the rotation of the second body in the frame of the first, where it is prescribed, for the axes of
        rotation in the first body and the relative rotation in the reference pose."""
        return None

    def placed(self, pose: Pose) -> PlacedJoint:
        first, second = self._ends()
        if self.points is None:
            point = pose.positions[second] if self.point is None else self.point
            points = (pose.to_body(first, point), pose.to_body(second, point))
        else:
            points = self.points
        slides = self.slides @ pose.rotations[first]
        directions = None if not len(slides) else _complement(slides)
        relative = pose.rotations[first].T @ pose.rotations[second]
        in_first, in_second = self._axes_in_bodies(pose)
        rotation = self._rotation(in_first, relative)
        dots = None if rotation is not None else _dots(in_first, in_second, relative)
        axis = in_first[0] if len(in_first) == 1 else None
        return PlacedJoint(repr(self), first, second, points, directions, dots, None, slides, axis, relative, rotation)


def _axes(given: Any, name: str, callee: str) -> np.ndarray:
    """Up to three directions of length 1."""
    try:
        listed = list(given)
    except TypeError:
        listed = []
    found = [_axis(x, name, callee) for x in listed]
    if len(found) > 3:
        raise InputError(f"{callee}({name}=...): there are at most three of {name}, not {len(found)}.")
    return np.array(found).reshape(-1, 3)


def _axis(given: Any, name: str, callee: str) -> np.ndarray:
    axis = np.array(vector(given, name, callee, size=3))
    if not np.any(axis):
        raise InputError(f"{callee}({name}={shown(given)}): an axis must not be zero.")
    axis = axis / np.max(np.abs(axis))  # so that the squares of very large or small components are finite
    return axis / np.linalg.norm(axis)


def _complement(axes: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the directions perpendicular to axes (k, 3)."""
    return np.linalg.svd(axes)[2][len(axes) :]


def _dots(in_first: np.ndarray, in_second: np.ndarray, relative: np.ndarray) -> Dots | None:
    """The equations of rotations about no axis, one, two or all, each a product of two directions."""
    if len(in_first) == 3:
        return None
    if len(in_first) == 2:
        cosine = float(in_first[0] @ relative @ in_second[1])
        return Dots(in_first[:1], in_second[1:], np.array([cosine]))
    if len(in_first) == 1:
        across = _complement(in_first)
        return Dots(across, np.repeat(in_second, 2, axis=0), np.zeros(2))
    return locked(relative)


def locked(relative: Any) -> Dots:
    """u₁·v₂ = v₁·w₂ = w₁·u₂ = 0 for the frames (u, v, w) of both bodies, that of the first turned by `relative`."""
    turn = np.eye(3)[[1, 2, 0]]
    return Dots(relative.T, turn, np.zeros(3))


class Ball(Joint):
    """A point that two bodies share, about which they turn freely. `first`, `second`, `point`, `points`: see Joint."""

    def __init__(self, first: Any, second: Any, point: Any = None, *, points: Any = None):
        super().__init__(first, second, point, points=points, turns=np.eye(3))


class Weld(Joint):
    """Two bodies that don't move relative to each other, or move as prescribed. `first`, `second`, `point`, `points`:
    see Joint.

    rotation:  a function of t: the rotation matrix of the second body in the frame of the first.
    """

    def __init__(
        self, first: Any, second: Any, point: Any = None, *, points: Any = None, rotation: Callable | None = None
    ):
        super().__init__(first, second, point, points=points)
        self.rotation = None if rotation is None else function(rotation, "Weld: rotation", of="t")

    def _rotation(self, axes: np.ndarray, relative: np.ndarray) -> Callable[[Any], Any] | None:
        return self.rotation


class Hinge(Joint):
    """Two bodies that turn about a common axis. `first`, `second`, `point`, `points`: see Joint.

    axis:   a direction of space, in the reference pose.
    axes:   in place of it, the axis in the frame of the first body and in that of the second.
    angle:  a function of t, which prescribes the angle; it is 0 in the reference pose.
    """

    def __init__(
        self,
        first: Any,
        second: Any,
        point: Any = None,
        axis: Any = None,
        *,
        points: Any = None,
        axes: Any = None,
        angle: Callable | None = None,
    ):
        if (axis is None) == (axes is None):
            raise InputError("Hinge: give axis or axes, one of them.")
        super().__init__(first, second, point, points=points, turns=() if axis is None else [axis])
        self.axes = None if axes is None else tuple(_axis(x, "axes", "Hinge") for x in self._points(axes, "axes"))
        self.angle = None if angle is None else function(angle, "Hinge: angle", of="t")

    def _rotation(self, axes: np.ndarray, relative: np.ndarray) -> Callable[[Any], Any] | None:
        if self.angle is None:
            return None
        skew, angle = np.cross(axes[0], np.eye(3)).T, self.angle
        squared = skew @ skew

        def turned(t):
            """Rodrigues' formula."""
            theta = angle(t)
            return (np.eye(3) + jnp.sin(theta) * skew + (1 - jnp.cos(theta)) * squared) @ relative

        return turned

    def _axes_in_bodies(self, pose: Pose) -> tuple[np.ndarray, np.ndarray]:
        if self.axes is None:
            return super()._axes_in_bodies(pose)
        return self.axes[0][None], self.axes[1][None]


class Slider(Joint):
    """A body that slides along an axis of another one and does not turn. `first`, `second`, `point`, `points`: see
    Joint.

    axis:  a direction of space, in the reference pose.
    """

    def __init__(self, first: Any, second: Any, axis: Any, point: Any = None, *, points: Any = None):
        super().__init__(first, second, point, points=points, slides=[axis])


class Universal(Joint):
    """A cross between two bodies: it turns about one axis in the first, and the second turns about another one in it.
    `first`, `second`, `point`, `points`: see Joint.

    axes:  two directions of space, in the reference pose.
    """

    def __init__(self, first: Any, second: Any, axes: Sequence[Any], point: Any = None, *, points: Any = None):
        super().__init__(first, second, point, points=points, turns=axes)
        if len(self.turns) != 2:
            raise InputError(f"Universal(axes={shown(axes)}): axes must be two directions.")


class Cylindrical(Joint):
    """A body that slides along an axis of another one and turns about it. `first`, `second`, `point`, `points`: see
    Joint.

    axis:  a direction of space, in the reference pose.
    """

    def __init__(self, first: Any, second: Any, axis: Any, point: Any = None, *, points: Any = None):
        super().__init__(first, second, point, points=points, slides=[axis], turns=[axis])


class Distance(Connection):
    """A massless rod between points of two bodies.

    first:   a body's number, None for the world.
    second:  a body's number.
    ends:    its ends in space, in the reference pose of the assembly.
    points:  in place of it, its ends in the frames of the two bodies; the origins of the frames without either.
    length:  of the rod; that in the reference pose without it.
    """

    def __init__(self, first: Any, second: Any, ends: Any = None, *, points: Any = None, length: float | None = None):
        self._connect(first, second)
        if ends is not None and points is not None:
            raise InputError("Distance: give ends or points, not both.")
        self.ends = None if ends is None else self._points(ends, "ends")
        self.points = (np.zeros(3), np.zeros(3)) if points is None else self._points(points)
        self.length = positive(length, "length", "Distance", none=True)

    def placed(self, pose: Pose) -> PlacedJoint:
        first, second = self._ends()
        points = self.points
        if self.ends is not None:
            points = pose.to_body(first, self.ends[0]), pose.to_body(second, self.ends[1])
        in_space = [pose.positions[i] + pose.rotations[i] @ x for i, x in zip((first, second), points, strict=True)]
        length = float(np.linalg.norm(in_space[1] - in_space[0])) if self.length is None else self.length
        if not length > 0:
            raise InputError(f"{self!r}: its ends coincide in the reference pose, which is no length.")
        return PlacedJoint(repr(self), first, second, points, length=length)
