"""Constraints ready to use: distances between particles, points on spheres, rotation matrices. Any other g(q) is a
function.

They can be added up: ``Distances(...) & OnSphere(...)`` holds both.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..errors import InputError
from ..numerics.keywords import checked_keywords
from ..numerics.module import Module
from .checks import as_array, plain_scalar, shown, whole
from .checks import function as checked_function


class Constraint(Module):
    """g(q) -> (m,), as a part of a system; a system's params, where it has them, are not needed."""

    @abc.abstractmethod
    def residual(self, q: Array) -> Array:
        """g(q)."""

    def __call__(self, q: Array, params: Any = None) -> Array:
        return self.residual(q)

    def __and__(self, other: Any) -> CombinedConstraint:
        return CombinedConstraint(self, other if isinstance(other, Constraint) else FunctionConstraint(other))


class FunctionConstraint(Constraint):
    """Any function g(q) as a constraint that can be added to others."""

    function: Any = eqx.field(static=True)

    def __init__(self, function: Any):
        self.function = checked_function(function, "constraint & other: other")

    def residual(self, q: Array) -> Array:
        return jnp.ravel(self.function(q))


class CombinedConstraint(Constraint):
    """Two constraints at once."""

    first: Constraint
    second: Constraint

    def residual(self, q: Array) -> Array:
        return jnp.concatenate([self.first.residual(q), self.second.residual(q)])


class Distances(Constraint):
    """Rigid rods: g_k = |x_i − x_j|² − L_k² for the k-th pair (i, j) of particles, q of shape (particles, dimension).

    pairs:    a particle's number, None for the origin, or the coordinates of a fixed point, on either side.
    lengths:  one number for all, or one for each pair. None: the distances at the start, q0 of gm.simulate, gm.certify
              and gm.project, or that of the first member of gm.ensemble; run.system.constraint.lengths has them then.
              Derivatives by q0 include that of the lengths.

        gm.Distances([(None, 0), (0, 1)], [1.0, 1.5])       # a double pendulum
        gm.Distances([(None, 0), (0, 1)])                   # rods that fit q0
    """

    first: tuple[int, ...] = eqx.field(static=True)
    second: tuple[int, ...] = eqx.field(static=True)
    fixed: tuple[tuple[float, ...] | None, ...] = eqx.field(static=True)
    lengths: Array | None

    @checked_keywords
    def __init__(self, pairs: Sequence[tuple[Any, Any]], lengths: Any = None):
        given = pairs
        try:
            pairs = [tuple(pair) for pair in given]
        except TypeError:
            pairs = []
        if not pairs or any(len(pair) != 2 for pair in pairs):
            message = "pairs must be a list of pairs of particles, such as [(0, 1), (1, 2)]"
            raise InputError(f"Distances(pairs={shown(given)}): {message}.")
        fixed: list[tuple[float, ...] | None] = []

        def place(end: Any) -> int:
            """A particle's number, or −1 − k for the k-th fixed point."""
            if isinstance(plain_scalar(end), int):
                if not 0 <= end < 2**31:
                    raise InputError(f"Distances(pairs=...): particle {end} in pairs; particles are numbered from 0.")
                return int(end)
            point = None if end is None else _point(end)
            if point not in fixed:
                fixed.append(point)
            return -1 - fixed.index(point)

        ends = [(place(i), place(j)) for i, j in pairs]
        for i, j in ends:
            if i == j or (i < 0 and j < 0):
                raise InputError(
                    "Distances: a pair joins two particles, or a particle and a fixed point; got "
                    f"{pairs[ends.index((i, j))]}."
                )
        self.first, self.second = (tuple(side) for side in zip(*ends, strict=True))
        self.fixed = tuple(fixed)
        self.lengths = None if lengths is None else _lengths(lengths, len(pairs))

    def residual(self, q: Array) -> Array:
        if self.lengths is None:
            raise InputError(
                "Distances(pairs) without lengths takes them from q0, which is not known here: give lengths=..., or "
                "state the constraint as Distances(pairs).measured(q0)."
            )
        return jnp.sum(self._differences(q) ** 2, axis=1) - self.lengths**2

    def measured(self, q0: Any) -> Distances:
        """The same pairs, with their distances at q0 as lengths. Computed by numpy, so that the bits are the same on
        every device; traced positions give traced lengths."""
        xp = jnp if isinstance(q0, Tracer) else np
        q = q0 if isinstance(q0, Tracer) else as_array(q0, "q0", "Distances.measured")
        lengths = xp.sqrt(xp.sum(self._differences(q, xp) ** 2, axis=1))
        if xp is np and not np.all(lengths > 0):
            k = int(np.argmin(lengths))
            ends = " and ".join(self._named(end) for end in (self.first[k], self.second[k]))
            raise InputError(f"Distances(pairs) without lengths: {ends} coincide at q0, which is no length.")
        return eqx.tree_at(lambda c: c.lengths, self, jnp.asarray(lengths), is_leaf=lambda x: x is None)

    def _named(self, end: int) -> str:
        return f"particle {end}" if end >= 0 else f"the fixed point {self.fixed[-1 - end] or 'at the origin'}"

    def _differences(self, q: Any, xp: Any = jnp) -> Any:
        """x_i − x_j of each pair; xp: jax.numpy or numpy."""
        if q.ndim != 2:
            raise InputError(f"Distances holds particles in q of shape (particles, dimension), not {q.shape}.")
        if max(*self.first, *self.second) >= len(q):
            raise InputError(
                f"Distances: particle {max(*self.first, *self.second)} in pairs, but q has {len(q)} particles."
            )
        i, j = np.array(self.first), np.array(self.second)
        particles = np.arange(len(i))
        if self.fixed in ((), (None,)) and np.array_equal(j, particles) and np.array_equal(i, particles - 1):
            # A chain from the origin: a difference of neighbours instead of two gathers, which the compiler fuses.
            return xp.diff(q[: len(i)], axis=0, prepend=xp.zeros((1, q.shape[1]), q.dtype))
        if np.array_equal(j, particles + 1) and np.array_equal(i, particles):
            return xp.diff(q[: len(i) + 1], axis=0)
        still = [np.zeros(q.shape[1]) if point is None else np.array(point) for point in self.fixed]
        if any(len(point) != q.shape[1] for point in still):
            raise InputError(f"Distances: a fixed point must have {q.shape[1]} coordinates, like the particles.")
        # Fixed points are appended to the particles in reverse order, so that the k-th has the index −1 − k.
        everything = xp.concatenate([q, xp.asarray(np.array(still[::-1]), q.dtype)]) if still else q
        rows = lambda side: np.where(side < 0, len(everything) + side, side)
        return everything[rows(i)] - everything[rows(j)]


class RigidMolecules(Constraint):
    """Molecules of one fixed shape: g = |x_i − x_j|² − L² for the pairs (i, j) of atoms of every molecule, q of shape
    (molecules, atoms, dimension).

    pairs:    of atoms within a molecule.
    lengths:  one number for all pairs, or one for each.

        gm.RigidMolecules([(0, 1), (0, 2), (1, 2)], [0.9572, 0.9572, 1.5139])    # water, in ångströms

    For molecules of three atoms with all three distances, methods need no iteration (SETTLE).
    """

    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)
    lengths: Array

    @checked_keywords
    def __init__(self, pairs: Sequence[tuple[int, int]], lengths: Any):
        of_one = Distances(pairs, lengths)  # which checks them
        if of_one.fixed or of_one.lengths is None:
            raise InputError("RigidMolecules: pairs are two atoms of a molecule, and lengths their distances.")
        self.pairs = tuple(zip(of_one.first, of_one.second, strict=True))
        self.lengths = of_one.lengths

    def residual(self, q: Array) -> Array:
        if q.ndim != 3 or max(map(max, self.pairs)) >= q.shape[1]:
            atoms = max(map(max, self.pairs)) + 1
            raise InputError(
                f"RigidMolecules holds molecules of at least {atoms} atoms in q of shape (molecules, atoms, "
                f"dimension), not {q.shape}."
            )
        squares = [jnp.sum((q[:, i] - q[:, j]) ** 2, axis=-1) for i, j in self.pairs]
        return (jnp.stack(squares, axis=-1) - self.lengths**2).reshape(-1)


def _unmeasured(x: Any) -> bool:
    return isinstance(x, Distances) and x.lengths is None


def needs_start(tree: Any) -> bool:
    """Whether some lengths of a system are those of its initial positions."""
    return any(_unmeasured(x) for x in jax.tree.leaves(tree, is_leaf=_unmeasured))


def measured_at(tree: Any, q0: Any) -> Any:
    """A system with all lengths that it takes from its initial positions q0."""
    if not needs_start(tree):
        return tree
    return jax.tree.map(lambda x: x.measured(q0) if _unmeasured(x) else x, tree, is_leaf=_unmeasured)


class OnSphere(Constraint):
    """Points on a sphere (a circle in the plane): g_i = |x_i − c|² − R², q of shape (particles, dimension), or one
    point.

    particles: which ones; all by default. Rattle then needs no iteration: each multiplier solves a quadratic equation.
    """

    radius: Array
    centre: Array
    particles: tuple[int, ...] | None = eqx.field(static=True)

    def __init__(self, radius: Any = 1.0, centre: Any = 0.0, particles: Sequence[int] | None = None):
        radius, centre = as_array(radius, "radius", "OnSphere"), as_array(centre, "centre", "OnSphere")
        if not isinstance(radius, Tracer) and (not radius.size or not np.all(radius > 0)):
            raise InputError(f"OnSphere(radius={shown(radius.tolist())}): radius must be positive.")
        if np.ndim(radius) > 1 or np.ndim(centre) > 2 or not np.size(centre):
            raise InputError(
                "OnSphere(radius=..., centre=...): radius must be one number or one for each particle, centre one "
                f"point or one for each particle; their shapes are {np.shape(radius)} and {np.shape(centre)}."
            )
        self.radius, self.centre = jnp.asarray(radius), jnp.asarray(centre)
        self.particles = None if particles is None else _particles(particles)

    def residual(self, q: Array) -> Array:
        points = jnp.atleast_2d(q)
        if self.particles is not None and max(self.particles) >= len(points):
            message = f"particle {max(self.particles)} in particles, but q has {len(points)} of them"
            raise InputError(f"OnSphere(particles=...): {message}.")
        points = points if self.particles is None else points[np.array(self.particles)]
        return jnp.sum((points - self.centre) ** 2, axis=-1) - self.radius**2


UPPER = np.triu_indices(3)
WEIGHTS = np.where(UPPER[0] == UPPER[1], 1.0, np.sqrt(2.0))


class Orthogonal(Constraint):
    """Rotation matrices: QᵀQ = I for q of shape (3, 3) or (bodies, 3, 3); six equations each, the upper triangle by
    rows.

    Entries off the diagonal are weighted by √2: then Σg² = |QᵀQ − I|², which no rotation changes (for gm.penalize).
    """

    def residual(self, q: Array) -> Array:
        if q.shape[-2:] != (3, 3):
            raise InputError(f"Orthogonal holds matrices in q of shape (3, 3) or (bodies, 3, 3), not {q.shape}.")
        gram = jnp.einsum("...ki,...kj->...ij", q, q) - jnp.eye(3, dtype=q.dtype)
        return (gram[..., *UPPER] * WEIGHTS).reshape(-1)


def _point(end: Any) -> tuple[float, ...]:
    """The coordinates of a fixed point."""
    point = as_array(end, "pairs", "Distances")
    if point.ndim != 1 or not point.size or isinstance(point, Tracer):
        raise InputError(
            "Distances(pairs=...): an end in pairs is a particle's number, None for the origin, or the "
            "coordinates of a "
            f"point, not {shown(end)}."
        )
    return tuple(map(float, point))


def _particles(particles: Any) -> tuple[int, ...]:
    is_list = isinstance(particles, (list, tuple, range, np.ndarray)) and getattr(particles, "ndim", 1) == 1
    if not is_list or not len(particles):
        message = "particles must be a list of their numbers, counted from 0"
        raise InputError(f"OnSphere(particles={shown(particles)}): {message}.")
    return tuple(whole(i, "particles", "OnSphere", least=0, most=2**31) for i in particles)


def _lengths(lengths: Any, count: int) -> Array:
    lengths = as_array(lengths, "lengths", "Distances")
    if np.shape(lengths) not in ((), (1,), (count,)):
        shape = np.shape(lengths)
        message = f"lengths must be one number or one for each of the {count} pairs, not an array of shape {shape}"
        raise InputError(f"Distances: {message}.")
    lengths = jnp.broadcast_to(lengths, (count,))
    if not isinstance(lengths, Tracer) and not np.all(np.asarray(lengths) > 0):
        raise InputError("Distances: lengths must be positive.")
    return lengths
