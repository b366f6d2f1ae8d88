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

from ..system.constraints import UPPER, WEIGHTS
from .joints import PlacedJoint, locked

WORLD = np.concatenate([np.zeros((1, 3)), np.eye(3)])  # x and d_k of the world
PAIRS = {0: (), 1: ((0, 0),), 2: ((0, 0), (0, 1), (1, 1)), 3: tuple(zip(*UPPER, strict=True))}


class Directors(eqx.Module):
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


def _take(x: Array, places: tuple[int, ...]) -> Array:
    """x[places], by a slice where the places follow each other: its derivative is no scatter."""
    first = places[0]
    if places == tuple(range(first, first + len(places))):
        return x[first : first + len(places)]
    return x[np.array(places)]


def _along(coordinates: Array, frames: Array) -> Array:
    """Σ a_k d_k."""
    return jnp.sum(coordinates[:, :, None] * frames[:, 1:], axis=1)


class _Ends(eqx.Module):
    """Points of pairs of bodies, in their principal frames."""

    first: tuple[int, ...] = eqx.field(static=True)
    second: tuple[int, ...] = eqx.field(static=True)
    in_first: Array  # (k, 3)
    in_second: Array

    def gap(self, frames: Array) -> Array:
        """From the points of the first bodies to those of the second ones."""
        one, two = _take(frames, self.first), _take(frames, self.second)
        return two[:, 0] - one[:, 0] + _along(self.in_second, two) - _along(self.in_first, one)


class Linkage(eqx.Module):
    """g(q) of an assembly without prescribed motions."""

    directors: Directors
    points: _Ends | None  # shared points
    projections: tuple[_Ends, Array] | None  # and directions of the first bodies along which they are shared
    dots: tuple[_Ends, Array] | None  # directions in place of points, and the values of their products
    distances: tuple[_Ends, Array] | None  # and their squares
    order: tuple[int, ...] | None = eqx.field(static=True)

    def pieces(self, q: Array, moving: tuple[Array, ...] = ()) -> list[Array]:
        """The equations by their kinds."""
        frames = self.directors.frames(q)
        found = [self._rigid(frames)]
        if self.points is not None:
            found.append(self.points.gap(frames).ravel())
        if self.projections is not None:
            ends, directions = self.projections
            along = _along(directions, _take(frames, ends.first))
            found.append(jnp.sum(ends.gap(frames) * along, axis=1))
        if self.dots is not None:
            ends, values = self.dots
            found.append(_products(ends, frames) - values)
        found += moving
        if self.distances is not None:
            ends, squares = self.distances
            found.append(jnp.sum(ends.gap(frames) ** 2, axis=1) - squares)
        return found

    def in_order(self, pieces: Sequence[Array]) -> Array:
        g = jnp.concatenate(pieces)
        return g if self.order is None else g[np.array(self.order)]

    def __call__(self, q: Array) -> Array:
        return self.in_order(self.pieces(q))

    def _rigid(self, frames: Array) -> Array:
        """d_i·d_j − δ_ij for the directors that there are, those off the diagonal times √2."""
        d = frames[1:, 1:]
        products = jnp.sum(d[:, UPPER[0]] * d[:, UPPER[1]], axis=-1)
        g = (products - (UPPER[0] == UPPER[1])) * WEIGHTS
        counts = self.directors.counts
        if set(counts) == {3}:
            return g.ravel()
        names = list(zip(*UPPER, strict=True))
        return g.ravel()[np.array([6 * i + names.index(pair) for i, c in enumerate(counts) for pair in PAIRS[c]], int)]


def _products(ends: _Ends, frames: Array) -> Array:
    one = _along(ends.in_first, _take(frames, ends.first))
    return jnp.sum(one * _along(ends.in_second, _take(frames, ends.second)), axis=1)


class Prescribed(eqx.Module):
    """A relative rotation that is a function of the time."""

    first: int = eqx.field(static=True)
    second: int = eqx.field(static=True)
    axes_first: Array  # (3, 3): from the frame of a body to its principal frame
    axes_second: Array
    rotation: Callable = eqx.field(static=True)

    def residual(self, frames: Array, t: Any) -> Array:
        dots = locked(jnp.asarray(self.rotation(t), frames.dtype))
        one, two = dots.first @ self.axes_first.T, jnp.asarray(dots.second) @ self.axes_second.T
        first, second = frames[self.first, 1:], frames[self.second, 1:]
        return jnp.sum((one @ first) * (two @ second), axis=1)


class MovingLinkage(eqx.Module):
    """g(q, t) of an assembly some of whose joints move as prescribed."""

    still: Linkage
    prescribed: tuple[Prescribed, ...]

    def __call__(self, q: Array, t: Any) -> Array:
        frames = self.still.directors.frames(q)
        return self.still.in_order(self.still.pieces(q, tuple(each.residual(frames, t) for each in self.prescribed)))


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
    collected: dict[str, list[tuple[int, int, int, Any, Any, Any]]] = {
        name: [] for name in ("points", "projections", "dots", "distances")
    }
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
    batches = {name: _batch(listed) for name, listed in collected.items()}
    rigid = [(i + 1, -1) for i, c in enumerate(counts) for _ in PAIRS[c]]
    keys = [*rigid, *_keys(collected["points"], 3), *_keys(collected["projections"]), *_keys(collected["dots"])]
    keys += [(joints[k].second, k) for k in owners for _ in range(3)]
    keys += _keys(collected["distances"])
    # By the second body, its joints before its own equations: of a chain a band.
    order = sorted(range(len(keys)), key=lambda row: (keys[row][0], keys[row][1] < 0, keys[row][1]))
    in_place = order == list(range(len(keys)))
    first = lambda pair: None if pair is None else pair[0]
    linkage = Linkage(
        directors,
        first(batches["points"]),
        batches["projections"],
        batches["dots"],
        batches["distances"],
        None if in_place else tuple(order),
    )
    rows: list[list[int]] = [[] for _ in joints]
    for place, row in enumerate(order):
        if keys[row][1] >= 0:
            rows[keys[row][1]].append(place)
    constraint = MovingLinkage(linkage, tuple(prescribed)) if prescribed else linkage
    return Assembled(constraint, tuple(map(tuple, rows)))


def _keys(listed: Sequence[Any], each: int = 1) -> list[tuple[int, int]]:
    return [(entry[2], entry[0]) for entry in listed for _ in range(each)]


def _batch(listed: Sequence[Any]) -> tuple[_Ends, Array] | None:
    if not listed:
        return None
    _, first, second, in_first, in_second, more = zip(*listed, strict=True)
    ends = _Ends(first, second, jnp.asarray(np.array(in_first)), jnp.asarray(np.array(in_second)))
    return ends, jnp.asarray(np.array(more, float))
