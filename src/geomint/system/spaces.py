"""Configuration spaces: where q lives, how a displacement moves it, and what velocities and momenta are there.

On flat space q + dq moves, and p has the shape of q. On a Lie group velocities and momenta are trivialised from the
left: q̇ = q v̂ with v in the algebra, and p is the body momentum, so that

    q̇ = q v̂,      ṗ = ad*_v p + f(q),      v = M⁻¹p,      ⟨f(q), e⟩ = −dV(q)·(q ê).

For rotations this is Euler's equation ṗ = p × v + f with the angular velocity v and momentum p of the body. What works
on every space asks for `retract` and `difference` and never assumes q + dq.

Reference: Hairer, Lubich, Wanner, section VII.5; Marsden, Ratiu, Introduction to Mechanics and Symmetry, chapter 13.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics import rotations
from ..numerics.module import Module
from .checks import choice, instance

Shape = tuple[int, ...]
MAPS = ("cayley", "exponential")  # from the algebra to the group, of steps
ON_GROUP = 1e-8  # distance of q0 from the group up to which it counts as lying there


class Space(Module):
    """A configuration space. q, the displacement w, velocities and momenta are arrays; w, v and p have one shape."""

    @abc.abstractmethod
    def velocity_shape(self, shape: Shape) -> Shape:
        """The shape of velocities and momenta, for q of that shape; an InputError where q can't have it."""

    @abc.abstractmethod
    def increment(self, q: Array, w: Array, map: str = "exponential") -> Array:
        """retract(q, w) − q, without cancellation."""

    def retract(self, q: Array, w: Array, map: str = "exponential") -> Array:
        """The point that the displacement w leads to from q; on a group q·exp(ŵ), or q·cay(ŵ)."""
        return q + self.increment(q, w, map)

    @abc.abstractmethod
    def difference(self, q1: Array, q0: Array) -> Array:
        """The displacement w with retract(q0, w) = q1."""

    @abc.abstractmethod
    def lift(self, q: Array, v: Array) -> Array:
        """q̇ of the velocity v, in the shape of q."""

    @abc.abstractmethod
    def tangent(self, q: Array, rate: Array) -> Array:
        """The velocity v whose lift is nearest to a rate of change of the entries of q."""

    def pull(self, q: Array, force: Array) -> Array:
        """The trivialised covector of a covector on the entries of q: ⟨pull(q, f), v⟩ = Σ f·lift(q, v)."""
        shape = self.velocity_shape(q.shape)
        return jax.linear_transpose(lambda v: self.lift(q, v), jnp.zeros(shape, q.dtype))(force)[0]

    @abc.abstractmethod
    def coadjoint(self, v: Array, p: Array) -> Array:
        """ad*_v p, the inertial part of ṗ: ⟨ad*_v p, w⟩ = ⟨p, [v, w]⟩."""

    @abc.abstractmethod
    def cotangent(self, w: Array, mu: Array, map: str = "exponential") -> Array:
        """(dτ_w⁻¹)ᵀμ for the map τ, with dτ trivialised from the right: the momentum, at the start of a displacement
        w, of a discrete Lagrangian with ∂L/∂w = μ. That at its end is cotangent(−w, μ)."""

    def transport(self, w: Array, mu: Array, p: Array, map: str = "exponential") -> Array:
        """What a displacement w adds to the momentum p = cotangent(w, μ): Ad*_τ(w) p − p = cotangent(−w, μ) − p. Groups
        that compute it from w and p alone keep the momentum in space to rounding, however w was found."""
        return self.cotangent(-w, mu, map) - p

    def polish(self, q: Array) -> Array:
        """What brings q back to the space, where rounding has left it."""
        return jnp.zeros_like(q)

    def residual(self, q: Array) -> Array:
        """Numbers that vanish on the space."""
        return jnp.zeros((0,), q.dtype)

    def check(self, q: Any, name: str) -> None:
        """Raise an InputError for points that are not on the space. q may have leading axes that count members."""

    @property
    def flat(self) -> bool:
        """Whether retract(q, w) = q + w, with p of the shape of q."""
        return False

    @property
    def name(self) -> str:
        return type(self).__name__


class Flat(Space):
    """Arrays of any shape: retract(q, w) = q + w."""

    def velocity_shape(self, shape: Shape) -> Shape:
        return shape

    def increment(self, q: Array, w: Array, map: str = "exponential") -> Array:
        return w

    def difference(self, q1: Array, q0: Array) -> Array:
        return q1 - q0

    def lift(self, q: Array, v: Array) -> Array:
        return v

    def tangent(self, q: Array, rate: Array) -> Array:
        return rate

    def pull(self, q: Array, force: Array) -> Array:
        return force

    def coadjoint(self, v: Array, p: Array) -> Array:
        return jnp.zeros_like(p)

    def cotangent(self, w: Array, mu: Array, map: str = "exponential") -> Array:
        return mu

    @property
    def flat(self) -> bool:
        return True


class SO3(Space):
    """Rotation matrices from body to space, q of shape (3, 3), or (n, 3, 3) for several bodies; v and p are the
    angular velocity and momentum in the body, (3,) or (n, 3)."""

    def velocity_shape(self, shape: Shape) -> Shape:
        if len(shape) < 2 or shape[-2:] != (3, 3):
            raise InputError(f"rotations need q0 of shape (3, 3), or (bodies, 3, 3), not {shape}.")
        return shape[:-1]

    def increment(self, q: Array, w: Array, map: str = "exponential") -> Array:
        turned = rotations.cayley_minus_one if map == "cayley" else rotations.exponential_minus_one
        return q @ turned(w)

    def difference(self, q1: Array, q0: Array) -> Array:
        return rotations.logarithm(jnp.swapaxes(q0, -1, -2) @ q1)

    def lift(self, q: Array, v: Array) -> Array:
        return q @ rotations.hat(v)

    def tangent(self, q: Array, rate: Array) -> Array:
        return 0.5 * rotations.twice_vee(jnp.swapaxes(q, -1, -2) @ rate)

    def pull(self, q: Array, force: Array) -> Array:
        return rotations.twice_vee(jnp.swapaxes(q, -1, -2) @ force)

    def coadjoint(self, v: Array, p: Array) -> Array:
        return rotations.cross(p, v)

    def cotangent(self, w: Array, mu: Array, map: str = "exponential") -> Array:
        if map == "cayley":
            return rotations.cayley_cotangent(w, mu)
        return rotations.exponential_cotangent(w, mu)

    def transport(self, w: Array, mu: Array, p: Array, map: str = "exponential") -> Array:
        t, turned = rotations.dot(w, w), rotations.cross(w, p)
        twice = rotations.cross(w, turned)
        if map == "cayley":
            return (0.5 * twice - turned) / (1 + 0.25 * t)
        return rotations.versine(t) * twice - rotations.sine(t) * turned

    def polish(self, q: Array) -> Array:
        return rotations.polish(q)

    def residual(self, q: Array) -> Array:
        return jnp.ravel(jnp.swapaxes(q, -1, -2) @ q - jnp.eye(3, dtype=q.dtype))

    def check(self, q: Any, name: str) -> None:
        q = np.asarray(q)
        off = np.abs(np.swapaxes(q, -1, -2) @ q - np.eye(3)).max(axis=(-1, -2))
        if np.any(off > ON_GROUP):
            which = _which(off > ON_GROUP, off.ndim)
            raise InputError(
                f"{name}{which} is not a rotation: |RᵀR − I| = {np.max(off):.3g}. gm.rigid.nearest_rotation(R) returns "
                "one near it, and gm.rigid.from_quaternion(e) that of a quaternion."
            )
        mirrored = np.linalg.det(q) < 0
        if np.any(mirrored):
            raise InputError(
                f"{name}{_which(mirrored, mirrored.ndim)} is a reflection, not a rotation: its determinant is −1. "
                "Change the sign of one of its columns."
            )


def _which(bad: np.ndarray, axes: int) -> str:
    return str(np.argwhere(bad)[0].tolist()) if axes else ""


class Poses(Space):
    """Positions and rotations of rigid bodies, q of shape (4, 3) or (n, 4, 3): the first row x is the centre of mass,
    the other three are the rotation matrix R. v and p, of shape (2, 3) or (n, 2, 3), have the linear velocity and
    momentum in space first, then the angular ones in the body: the product R³ × SO(3), in which the kinetic energy of
    a body has no mixed terms."""

    def velocity_shape(self, shape: Shape) -> Shape:
        if len(shape) < 2 or shape[-2:] != (4, 3):
            raise InputError(f"positions and rotations need q0 of shape (4, 3), or (bodies, 4, 3), not {shape}.")
        return (*shape[:-2], 2, 3)

    @staticmethod
    def _both(q: Array) -> tuple[Array, Array]:
        return q[..., :1, :], q[..., 1:, :]

    @staticmethod
    def _halves(p: Array) -> tuple[Array, Array]:
        return p[..., :1, :], p[..., 1, :]

    def increment(self, q: Array, w: Array, map: str = "exponential") -> Array:
        moved, turned = self._halves(w)
        return jnp.concatenate([moved, SO3().increment(q[..., 1:, :], turned, map)], axis=-2)

    def difference(self, q1: Array, q0: Array) -> Array:
        (x1, r1), (x0, r0) = self._both(q1), self._both(q0)
        return jnp.concatenate([x1 - x0, SO3().difference(r1, r0)[..., None, :]], axis=-2)

    def lift(self, q: Array, v: Array) -> Array:
        moved, turned = self._halves(v)
        return jnp.concatenate([moved, SO3().lift(q[..., 1:, :], turned)], axis=-2)

    def tangent(self, q: Array, rate: Array) -> Array:
        x, r = self._both(rate)
        return jnp.concatenate([x, SO3().tangent(q[..., 1:, :], r)[..., None, :]], axis=-2)

    def pull(self, q: Array, force: Array) -> Array:
        x, r = self._both(force)
        return jnp.concatenate([x, SO3().pull(q[..., 1:, :], r)[..., None, :]], axis=-2)

    def coadjoint(self, v: Array, p: Array) -> Array:
        turned = rotations.cross(p[..., 1:, :], v[..., 1:, :])
        return jnp.concatenate([jnp.zeros_like(p[..., :1, :]), turned], axis=-2)

    def cotangent(self, w: Array, mu: Array, map: str = "exponential") -> Array:
        turned = SO3().cotangent(w[..., 1:, :], mu[..., 1:, :], map)
        return jnp.concatenate([mu[..., :1, :], turned], axis=-2)

    def transport(self, w: Array, mu: Array, p: Array, map: str = "exponential") -> Array:
        turned = SO3().transport(w[..., 1:, :], mu[..., 1:, :], p[..., 1:, :], map)
        return jnp.concatenate([jnp.zeros_like(p[..., :1, :]), turned], axis=-2)

    def polish(self, q: Array) -> Array:
        x, r = self._both(q)
        return jnp.concatenate([jnp.zeros_like(x), rotations.polish(r)], axis=-2)

    def residual(self, q: Array) -> Array:
        return SO3().residual(q[..., 1:, :])

    def check(self, q: Any, name: str) -> None:
        SO3().check(np.asarray(q)[..., 1:, :], f"the rotation of {name}")


class Product(Space):
    """Several spaces at once: q, v and p are flat arrays, the parts one after another.

    parts:  pairs (space, shape of its q): Product([(SO3(), (3, 3)), (Flat(), (2,))]).
    """

    parts: tuple[tuple[Space, Shape], ...] = eqx.field(static=True)

    def __init__(self, parts: Sequence[tuple[Space, Sequence[int]]]):
        self.parts = tuple((instance(s, "parts", "Product", kinds=Space, must="a space"), tuple(n)) for s, n in parts)

    def _sizes(self, velocities: bool) -> list[Shape]:
        return [space.velocity_shape(shape) if velocities else shape for space, shape in self.parts]

    def _cut(self, x: Array, velocities: bool) -> list[Array]:
        shapes = self._sizes(velocities)
        ends = np.cumsum([math.prod(s) for s in shapes])[:-1]
        return [part.reshape(s) for part, s in zip(jnp.split(x, ends), shapes, strict=True)]

    def _each(self, name: str, *arrays: tuple[Array, bool], more: tuple[Any, ...] = ()) -> Array:
        """The method of that name of all parts; `arrays` are pairs of an array and whether it is a velocity."""
        cut = zip(*(self._cut(*pair) for pair in arrays), strict=True)
        done = [getattr(space, name)(*xs, *more).ravel() for (space, _), xs in zip(self.parts, cut, strict=True)]
        return jnp.concatenate(done)

    def velocity_shape(self, shape: Shape) -> Shape:
        size = sum(math.prod(s) for _, s in self.parts)
        if shape != (size,):
            raise InputError(f"this product of spaces needs q0 of shape ({size},), not {shape}.")
        return (sum(math.prod(s) for s in self._sizes(True)),)

    def increment(self, q: Array, w: Array, map: str = "exponential") -> Array:
        return self._each("increment", (q, False), (w, True), more=(map,))

    def difference(self, q1: Array, q0: Array) -> Array:
        return self._each("difference", (q1, False), (q0, False))

    def lift(self, q: Array, v: Array) -> Array:
        return self._each("lift", (q, False), (v, True))

    def tangent(self, q: Array, rate: Array) -> Array:
        return self._each("tangent", (q, False), (rate, False))

    def pull(self, q: Array, force: Array) -> Array:
        return self._each("pull", (q, False), (force, False))

    def coadjoint(self, v: Array, p: Array) -> Array:
        return self._each("coadjoint", (v, True), (p, True))

    def cotangent(self, w: Array, mu: Array, map: str = "exponential") -> Array:
        return self._each("cotangent", (w, True), (mu, True), more=(map,))

    def transport(self, w: Array, mu: Array, p: Array, map: str = "exponential") -> Array:
        return self._each("transport", (w, True), (mu, True), (p, True), more=(map,))

    def polish(self, q: Array) -> Array:
        return self._each("polish", (q, False))

    def residual(self, q: Array) -> Array:
        return self._each("residual", (q, False))

    def check(self, q: Any, name: str) -> None:
        q = np.asarray(q)
        ends = np.cumsum([math.prod(s) for _, s in self.parts])[:-1]
        for (space, shape), part in zip(self.parts, np.split(q, ends, axis=-1), strict=True):
            space.check(part.reshape(*q.shape[:-1], *shape), f"a part of {name}")


def checked_space(space: Any) -> Space:
    if space is None:
        return Flat()
    return instance(space, "space", kinds=Space, must="a configuration space, such as gm.rigid.SO3(), or None")


def checked_map(map: Any, callee: str) -> str:
    return choice(map, "map", callee, MAPS)


_FLAT = Flat()


def space_of(system: Any) -> Space:
    """Where q of a system lives; flat for systems stated by a Lagrangian."""
    return getattr(system, "space", _FLAT)


def velocity_shape(system: Any, shape: Shape) -> Shape:
    """The shape of velocities and momenta of a system, for q of that shape."""
    return space_of(system).velocity_shape(shape)


def differences(system: Any, q1: Any, q0: Any) -> Any:
    """The displacements between many pairs of points, which a leading axis counts."""
    space = space_of(system)
    return q1 - q0 if space.flat else np.asarray(jax.vmap(space.difference)(q1, q0))
