"""The constraint of an assembly: rigid bodies by their centres of mass and directors, and the joints between them.

A body is its centre of mass x and its principal axes d₁, d₂, d₃ in space (the columns of its rotation matrix, the
"natural coordinates" of García de Jalón and Bayo, Kinematic and Dynamic Simulation of Multibody Systems, 1994). The
kinetic energy is

    ½ m|ẋ|² + ½ Σ D_k |ḋ_k|²,   D_k = ½ tr(I) − I_k,

so that the mass is constant and diagonal. Directors without second moment D_k are left out: d₃ = d₁ × d₂ in a thin
plate, only d₁ in a thin rod, none in a point. All equations are polynomials in q, mostly quadratic:

    d_i·d_j = δ_ij
    (x + Σ r_k d_k)_second − (x + Σ r_k d_k)_first = 0                  or its components along directors of the first
    (Σ a_k d_k)_first · (Σ b_k d_k)_second = c                          rotations
    |(x + Σ r_k d_k)_second − (x + Σ r_k d_k)_first|² = L²              distances
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.compilation import jit
from ..numerics.module import Module
from ..system.constraints import UPPER, WEIGHTS
from .joints import PlacedJoint, locked

# Of the equations of each kind: the joint, its bodies, points or directions in them, and what belongs to the kind.
Collected = dict[str, list[tuple[int, int, int, Any, Any, Any]]]
WORLD = np.concatenate([np.zeros((1, 3)), np.eye(3)])  # x and d_k of the world


class Directors(Module):
    """Where the centres and directors of all bodies stand in q, of shape (rows, 3)."""

    counts: tuple[int, ...] = eqx.field(static=True)  # of the directors of each body

    @property
    def starts(self) -> np.ndarray:
        """The row of each centre."""
        return np.concatenate([[0], np.cumsum(np.array(self.counts) + 1)])

    def frames(self, q: Array) -> Array:
        """(n + 1, 4, 3): x and d_k of the world and of all bodies; zeros in place of directors that a body lacks."""
        n = len(self.counts)
        if set(self.counts) == {3}:
            bodies = q.reshape(n, 4, 3)
        else:
            starts, padded = self.starts, jnp.concatenate([q, jnp.zeros((1, 3), q.dtype)])
            rows = np.array(
                [[s + k if k <= c else len(q) for k in range(4)] for s, c in zip(starts, self.counts, strict=False)]
            )
            bodies = padded[rows]
            third = jnp.cross(bodies[:, 1], bodies[:, 2])
            plates = (np.array(self.counts) == 2)[:, None]
            bodies = bodies.at[:, 3].set(jnp.where(plates, third, bodies[:, 3]))
        return jnp.concatenate([jnp.asarray(WORLD, q.dtype)[None], bodies])

    def columns(self, q: Array) -> Array:
        """As `frames`, with the axis of the bodies last: (4, 3, n + 1)."""
        return jnp.moveaxis(self.frames(q), 0, -1)


def _take(x: Array, places: tuple[int, ...]) -> Array:
    """x[..., places], by a slice where the places follow each other: its derivative is no scatter."""
    first = places[0]
    if places == tuple(range(first, first + len(places))):
        return x[..., first : first + len(places)]
    return x[..., np.array(places)]


def _along(coordinates: Array, bodies: Array) -> Array:
    """Σ a_k d_k, (3, k)."""
    return sum((coordinates[k] * bodies[1 + k] for k in (1, 2)), start=coordinates[0] * bodies[1])


def _dot(a: Array, b: Array) -> Array:
    """The products of vectors (3, k)."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


class _Ends(Module):
    """Points of pairs of bodies, in their principal frames; in the same way, directions."""

    first: tuple[int, ...] = eqx.field(static=True)
    second: tuple[int, ...] = eqx.field(static=True)
    in_first: Array  # (3, k)
    in_second: Array

    def gap(self, bodies: Array) -> Array:
        """From the points of the first bodies to those of the second ones, (3, k)."""
        one, two = _take(bodies, self.first), _take(bodies, self.second)
        return two[0] + _along(self.in_second, two) - (one[0] + _along(self.in_first, one))

    def products(self, bodies: Array) -> Array:
        """Of directions of the first bodies and of the second ones, (k,)."""
        one, two = _take(bodies, self.first), _take(bodies, self.second)
        return _dot(_along(self.in_first, one), _along(self.in_second, two))


class Linkage(Module):
    """g(q) of an assembly without prescribed motions.

    Arrays have the bodies as their last axis: XLA vectorises the arithmetic over it, which makes g and its derivatives
    four times faster than with vectors of three numbers along the last axis.
    """

    directors: Directors
    points: _Ends | None  # shared points
    projections: tuple[_Ends, Array] | None  # and directions (3, k) of the first bodies along which they are shared
    dots: tuple[_Ends, Array] | None  # directions in place of points, and the values of their products
    distances: tuple[_Ends, Array] | None  # and their squares
    order: _Order

    def pieces(self, bodies: Array, moving: tuple[Array, ...] = ()) -> list[Array]:
        """The equations by their kinds, one row for each of a kind."""
        found = []
        if self.points is not None:
            found.append(self.points.gap(bodies))
        if self.projections is not None:
            ends, directions = self.projections
            along = _along(directions, _take(bodies, ends.first))
            found.append(_dot(ends.gap(bodies), along)[None])
        if self.dots is not None:
            ends, values = self.dots
            found.append((ends.products(bodies) - values)[None])
        found += [each[None] for each in moving]
        if self.distances is not None:
            ends, squares = self.distances
            gap = ends.gap(bodies)
            found.append((_dot(gap, gap) - squares)[None])
        return [*found, self._rigid(bodies[..., 1:])]

    @jit  # a step uses g and its derivatives in sixty places, and tracing it takes a tenth of a second
    def __call__(self, q: Array) -> Array:
        return self.order.ordered(self.pieces(self.directors.columns(q)))

    def _rigid(self, bodies: Array) -> Array:
        """d_i·d_j − δ_ij, those off the diagonal times √2, (6, n); where some bodies lack directors, (1, k) of those
        that there are."""
        rows = [
            (_dot(bodies[1 + i], bodies[1 + j]) - (i == j)) * weight
            for i, j, weight in zip(*UPPER, WEIGHTS.tolist(), strict=True)
        ]
        counts = np.array(self.directors.counts)
        if np.all(counts == 3):
            return jnp.stack(rows)
        there = [np.flatnonzero(counts > j) for j in UPPER[1]]
        return jnp.concatenate([row[which] for row, which in zip(rows, there, strict=True)])[None]


class _Order(Module):
    """The order of equations that makes G M⁻¹Gᵀ of a chain a band."""

    places: tuple[int, ...] | None = eqx.field(static=True)  # of the pieces one after another; None: as they are
    by_body: bool = eqx.field(static=True)  # every row of a piece has one equation of each body

    @classmethod
    def of(cls, places: list[int], bodies: int) -> _Order:
        found = np.array(places)
        if np.array_equal(found, np.arange(found.size)):
            return cls(None, False)
        if found.size % bodies == 0 and np.array_equal(found, np.arange(found.size).reshape(-1, bodies).T.ravel()):
            return cls(None, True)
        return cls(tuple(places), False)

    def ordered(self, pieces: Sequence[Array]) -> Array:
        if self.by_body:  # a transposition, whose derivative is no scatter
            return jnp.concatenate(pieces).T.ravel()
        g = jnp.concatenate([piece.ravel() for piece in pieces])
        return g if self.places is None else g[np.array(self.places)]


class Prescribed(Module):
    """A relative rotation that is a function of the time."""

    first: int = eqx.field(static=True)
    second: int = eqx.field(static=True)
    axes_first: Array  # (3, 3): from the frame of a body to its principal frame
    axes_second: Array
    rotation: Callable = eqx.field(static=True)

    def residual(self, bodies: Array, t: Any) -> Array:
        dots = locked(jnp.asarray(self.rotation(t), bodies.dtype))
        one, two = dots.first @ self.axes_first.T, jnp.asarray(dots.second) @ self.axes_second.T
        first, second = bodies[1:, :, self.first], bodies[1:, :, self.second]
        return jnp.sum((one @ first) * (two @ second), axis=1)


class MovingLinkage(Module):
    """g(q, t) of an assembly some of whose joints move as prescribed."""

    still: Linkage
    prescribed: tuple[Prescribed, ...]

    @jit
    def __call__(self, q: Array, t: Any) -> Array:
        bodies = self.still.directors.columns(q)
        moving = tuple(each.residual(bodies, t) for each in self.prescribed)
        return self.still.order.ordered(self.still.pieces(bodies, moving))


class Assembled(NamedTuple):
    """A constraint, and the rows of it that belong to each joint."""

    constraint: Any
    rows: tuple[tuple[int, ...], ...]


def assembled(
    counts: tuple[int, ...], centres: np.ndarray, axes: np.ndarray, joints: Sequence[PlacedJoint]
) -> Assembled:
    """The constraint of bodies with directors so many, of joints in the frames of the bodies.

    centres:  (n + 1, 3), the centres of mass in the frames of the bodies.
    axes:     (n + 1, 3, 3), the principal axes in these frames, as rows.
    """
    directors = Directors(counts)
    point = lambda body, r: axes[body] @ (r - centres[body])
    collected: Collected = {name: [] for name in ("points", "projections", "dots", "distances")}
    prescribed, owners = [], []
    for k, joint in enumerate(joints):
        i, j = joint.first, joint.second
        ends = (k, i, j, point(i, joint.points[0]), point(j, joint.points[1]))
        if joint.length is not None:
            collected["distances"].append((*ends, joint.length**2))
            continue
        if joint.directions is None:
            collected["points"].append((*ends, 0.0))
        for direction in () if joint.directions is None else joint.directions:
            collected["projections"].append((*ends, axes[i] @ direction))
        if joint.moving is not None:
            prescribed.append(Prescribed(i, j, jnp.asarray(axes[i]), jnp.asarray(axes[j]), joint.moving))
            owners.append(k)
        elif joint.dots is not None:
            for a, b, c in zip(*joint.dots, strict=True):
                collected["dots"].append((k, i, j, axes[i] @ a, axes[j] @ b, c))
    order = _in_order(len(joints), counts, collected, [joints[k].second for k in owners], owners)
    batches = {name: _batch(listed) for name, listed in collected.items()}
    points = None if batches["points"] is None else batches["points"][0]
    others = {name: batches[name] for name in ("projections", "dots", "distances")}
    linkage = Linkage(directors, points, **others, order=_Order.of(order.places, len(counts)))
    constraint = MovingLinkage(linkage, tuple(prescribed)) if prescribed else linkage
    return Assembled(constraint, tuple(map(tuple, order.rows[:-1])))


class _Places(NamedTuple):
    places: list[int]
    rows: list[list[int]]  # those of each joint, and last those of no joint


def _in_order(
    joints: int, counts: Sequence[int], collected: Collected, moved: Sequence[int], owners: Sequence[int]
) -> _Places:
    """The order of the equations by the second body of their joints, the joints of a body before its own equations:
    of a chain a band. `moved` and `owners`: the second bodies and the numbers of the joints that move as prescribed."""
    each = lambda name: [(entry[2], entry[0]) for entry in collected[name]]
    keys = [*each("points") * 3, *each("projections"), *each("dots")]
    keys += [key for key in zip(moved, owners, strict=True) for _ in range(3)]
    keys += each("distances")
    keys += [(i + 1, -1) for j in UPPER[1] for i, c in enumerate(counts) if c > j]
    places = sorted(range(len(keys)), key=lambda row: (keys[row][0], keys[row][1] < 0, keys[row][1]))
    rows: list[list[int]] = [[] for _ in range(joints + 1)]
    for place, row in enumerate(places):
        rows[keys[row][1]].append(place)
    return _Places(places, rows)


def _batch(listed: Sequence[Any]) -> tuple[_Ends, Array] | None:
    if not listed:
        return None
    _, first, second, in_first, in_second, more = zip(*listed, strict=True)
    ends = _Ends(first, second, jnp.asarray(np.array(in_first).T), jnp.asarray(np.array(in_second).T))
    return ends, jnp.asarray(np.array(more, float).T)
