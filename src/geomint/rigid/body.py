"""Rigid bodies as systems: on the group of rotations or poses, or by matrices with the constraint RᵀR = I.

A body has the inertia tensor I about its centre of mass (or about the point that is held fixed) in its own axes. Its
rotation matrix R turns vectors of the body into vectors of space. With a mass it moves freely: q of shape (4, 3) has
the centre of mass x in its first row and R in the others. Without one it turns about a fixed point, and q is R.

On the group ("group") v and p are the angular velocity Ω and the momentum m = IΩ in the body, after the linear ones:

    T = ½ M|ẋ|² + ½ Ω·IΩ,      Ṙ = R Ω̂.

By matrices ("matrix") v is Ṙ and p is Ṙ D with D = ½ tr(I) − I, in which the same energy is ½ tr(Ṙ D Ṙᵀ): a constant
mass and the constraint RᵀR = I, which Rattle and SymmetricMultistep integrate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..errors import InputError
from ..numerics import rotations
from ..numerics.keywords import checked_keywords
from ..system.checks import as_array, choice, instance, positive
from ..system.constraints import Orthogonal
from ..system.spaces import SO3, Poses
from ..system.symmetries import Symmetry
from ..system.system import System, checked_symmetries
from .constraint import RigidPoses

REPRESENTATIONS = ("group", "matrix")
ROUNDING = 1e-12  # relative


def checked_inertia(inertia: Any, callee: str = "RigidBody") -> np.ndarray:
    """The principal moments (3,) or the tensor (3, 3) of a body, after a check that a body can have them."""
    given = as_array(inertia, "inertia", callee)
    if given.shape == ():
        given = np.full(3, float(given))
    if given.shape not in ((3,), (3, 3)):
        raise InputError(
            f"{callee}(inertia=...): inertia must be three principal moments or a matrix (3, 3), not of shape "
            f"{given.shape}."
        )
    size = float(np.abs(given).max())
    if given.ndim == 2 and np.abs(given - given.T).max() > ROUNDING * size:
        off = np.abs(given - given.T).max()
        raise InputError(f"{callee}(inertia=...): inertia must be symmetric; it and its transpose differ by {off:.3g}.")
    moments = np.sort(given if given.ndim == 1 else np.linalg.eigvalsh(given))
    if not moments[0] > 0:
        raise InputError(f"{callee}(inertia=...): the principal moments must be positive; they are {moments.tolist()}.")
    if moments[2] > (moments[0] + moments[1]) * (1 + ROUNDING):
        raise InputError(
            f"{callee}(inertia=...): each moment of inertia of a body is at most the sum of the other two, and the "
            f"principal moments are {moments.tolist()}: no distribution of mass has them."
        )
    return given


def second_moment(inertia: np.ndarray) -> np.ndarray:
    """D = ∫ x xᵀ dm = ½ tr(I) − I, as principal values (3,) or as a matrix."""
    inertia = np.asarray(inertia)
    if inertia.ndim == 1:
        return 0.5 * inertia.sum() - inertia
    return 0.5 * np.trace(inertia) * np.eye(3) - inertia


class RigidBody:
    """A rigid body: one that turns about a fixed point, or, with a mass, one that moves freely.

    inertia:     three principal moments, the axes of the body being the principal ones, or the tensor (3, 3): about the
                 centre of mass, or about the fixed point.
    mass:        of a free body; None for a body with a fixed point.
    potential:   V(q), or V(q, params): q is the rotation matrix R (3, 3), or of a free body (4, 3), the position x and
                 then R. None for no forces.
    symmetries:  their momentum maps are watched: SpatialRotation, BodyRotation, SpatialTranslation.
    params:      handed to the potential; traced.
    watch:       {name: f(q, p)}, further quantities saved at every saved point. The angular momentum in space, the
                 square of that in the body and the distance from RᵀR = I are saved without being asked, as
                 run.watched["angular_momentum"], ["casimir"] and ["orthogonality"].

        body = gm.rigid.RigidBody((0.6, 0.8, 1.0), potential=lambda R: R[2, 2])
        run = gm.simulate(body.system(), np.eye(3), omega, method=gm.LieVerlet(), dt=0.01, t_end=10.0)
    """

    @checked_keywords
    def __init__(
        self,
        inertia: Any,
        mass: float | None = None,
        potential: Callable | None = None,
        symmetries: Sequence[Symmetry] | Symmetry = (),
        params: PyTree = None,
        watch: Mapping[str, Callable] | None = None,
    ):
        self.inertia = checked_inertia(inertia)
        self.mass = positive(mass, "mass", "RigidBody", none=True)
        self.potential, self.params, self.watch = potential, params, watch
        self.symmetries = checked_symmetries(symmetries)

    @property
    def free(self) -> bool:
        """Whether the body has a position too."""
        return self.mass is not None

    @property
    def second_moment(self) -> np.ndarray:
        """D = ½ tr(I) − I, (3,) or (3, 3)."""
        return second_moment(self.inertia)

    @property
    def group_mass(self) -> np.ndarray:
        """The mass in the representation "group", of the shape of p or with a block for each of its rows; a number for
        a ball with a fixed point."""
        if not self.free:
            return np.asarray(self.inertia[0] if np.ptp(self.inertia) == 0 else self.inertia)
        if self.inertia.ndim == 1:
            return np.stack([np.full(3, self.mass), self.inertia])
        return np.stack([self.mass * np.eye(3), self.inertia])

    @property
    def matrix_mass(self) -> np.ndarray:
        """The mass in the representation "matrix": an array that broadcasts to q, or where the inertia is a tensor the
        matrix on the flattened q."""
        d = self.second_moment
        if not np.all((d if d.ndim == 1 else np.linalg.eigvalsh(d)) > ROUNDING * np.abs(d).max()):
            raise InputError(
                "the matrix representation needs a body with extent in three directions; the mass of this one lies in "
                "a plane (one principal moment is the sum of the others). Use representation='group'."
            )
        if d.ndim == 2:
            return _block_diagonal([self.mass * np.eye(3), d, d, d] if self.free else [d, d, d])
        return np.stack([np.full(3, self.mass), d, d, d]) if self.free else d[None, :]

    def system(self, representation: str = "group", *, origin: str | None = None) -> System:
        """The body as a system.

        representation:  "group", for LieVerlet, CayleyVariationalEuler and MoserVeselov; or "matrix", for Rattle and
                         SymmetricMultistep.
        origin:          the text of the model that made it.
        """
        return Bodies([self], self.potential, self.symmetries, self.params, self.watch).system(
            representation, origin=origin
        )

    def state(
        self,
        rotation: Any = None,
        angular_velocity: Any = None,
        position: Any = None,
        velocity: Any = None,
        representation: str = "group",
    ) -> tuple[np.ndarray, np.ndarray]:
        """(q0, v0) of a representation.

        rotation:          R, a rotation matrix (3, 3) or a quaternion (4,); the identity without it.
        angular_velocity:  Ω in the body, at rest without it.
        position:          x of a free body, the origin without it.
        velocity:          ẋ of a free body.
        representation:    "group" or "matrix".
        """
        return state_of(self.free, rotation, angular_velocity, position, velocity, representation)


def state_of(
    free: bool, rotation: Any, angular_velocity: Any, position: Any, velocity: Any, representation: str = "group"
) -> tuple[np.ndarray, np.ndarray]:
    """(q0, v0) of one body, as `RigidBody.state`."""
    from .orientation import from_quaternion

    choice(representation, "representation", "state", REPRESENTATIONS)
    three = lambda x, name: np.zeros(3) if x is None else _three(x, name)
    r = np.eye(3) if rotation is None else as_array(rotation, "rotation", "state")
    r = from_quaternion(r) if r.shape == (4,) else r
    if r.shape != (3, 3):
        raise InputError(f"state(rotation=...): rotation must be (3, 3), or a quaternion (4,), not {r.shape}.")
    SO3().check(r, "rotation")
    omega = three(angular_velocity, "angular_velocity")
    if not free and not (position is None and velocity is None):
        raise InputError("state(position=..., velocity=...): this body turns about a fixed point; give it a mass.")
    turning = omega if representation == "group" else r @ np.asarray(rotations.hat(jnp.asarray(omega)))
    if not free:
        return r, turning
    x, v = three(position, "position"), three(velocity, "velocity")
    return np.vstack([x, r]), np.vstack([v, turning])


def _three(x: Any, name: str) -> np.ndarray:
    x = as_array(x, name, "state")
    if x.shape != (3,):
        raise InputError(f"state({name}=...): {name} must be three numbers, not of shape {x.shape}.")
    return x


def body_momentum(q: Array, p: Array) -> Array:
    """The angular momentum m in the body, of p on the group (…, 3) or (…, 2, 3), or of p = ṘD by matrices."""
    if p.shape[-2:] == q.shape[-2:] and p.ndim == q.ndim:
        return rotations.twice_vee(jnp.swapaxes(q[..., -3:, :], -1, -2) @ p[..., -3:, :])
    return p[..., 1, :] if q.shape[-2] == 4 else p


def angular_momentum(q: Array, p: Array) -> Array:
    """The total angular momentum in space, R m + x × p, of all bodies."""
    found = jnp.einsum("...ij,...j->...i", q[..., -3:, :], body_momentum(q, p))
    if q.shape[-2] == 4:
        found = found + rotations.cross(q[..., 0, :], p[..., 0, :])
    return jnp.sum(found.reshape(-1, 3), axis=0)


def casimir(q: Array, p: Array) -> Array:
    """|m|² of each body."""
    return jnp.sum(body_momentum(q, p) ** 2, axis=-1)


def orthogonality(q: Array, p: Array) -> Array:
    """max |RᵀR − I|."""
    return jnp.max(jnp.abs(SO3().residual(q[..., -3:, :])))


WATCHED = {"angular_momentum": angular_momentum, "casimir": casimir, "orthogonality": orthogonality}


class Bodies:
    """Several rigid bodies without joints, moved by one potential: q of shape (n, 3, 3), or (n, 4, 3) of free bodies.
    The potentials of the single bodies do not count.

    bodies:      a list of RigidBody, all with a mass or all without.
    potential:   V(q), or V(q, params), of all of them.
    symmetries:  of the potential.
    params:      handed to the potential.
    watch:       {name: f(q, p)}, as for RigidBody.
    """

    @checked_keywords
    def __init__(
        self,
        bodies: Sequence[RigidBody],
        potential: Callable | None = None,
        symmetries: Sequence[Symmetry] | Symmetry = (),
        params: PyTree = None,
        watch: Mapping[str, Callable] | None = None,
    ):
        listed = bodies if isinstance(bodies, (list, tuple)) else [bodies]
        self.bodies = [
            instance(b, "bodies", "Bodies", kinds=RigidBody, must="a list of gm.rigid.RigidBody") for b in listed
        ]
        if not self.bodies or len({b.free for b in self.bodies}) > 1:
            raise InputError("Bodies(bodies=...): bodies are a list of RigidBody, all with a mass or all without.")
        self.potential, self.symmetries, self.params = potential, checked_symmetries(symmetries), params
        self.watch = {**WATCHED, **(watch or {})}

    @property
    def free(self) -> bool:
        return self.bodies[0].free

    def mass(self, representation: str) -> np.ndarray:
        """The mass of all of them in a representation."""
        alone = len(self.bodies) == 1
        if alone:
            return self.bodies[0].group_mass if representation == "group" else self.bodies[0].matrix_mass
        tensors = any(b.inertia.ndim == 2 for b in self.bodies)
        whole = [_with_tensor(b) for b in self.bodies] if tensors else self.bodies
        if representation == "group":
            return np.stack([np.broadcast_to(b.group_mass, _p_shape(b, tensors)) for b in whole])
        if not tensors:
            return np.stack([b.matrix_mass for b in whole])
        return _block_diagonal([b.matrix_mass for b in whole])

    def system(self, representation: str = "group", *, origin: str | None = None) -> System:
        """The bodies as a system.

        representation:  "group" or "matrix", as for RigidBody.system.
        origin:          the text of the model that made it.
        """
        choice(representation, "representation", "system", REPRESENTATIONS)
        on_group = representation == "group"
        return System(
            self.potential,
            mass=self.mass(representation),
            space=(Poses() if self.free else SO3()) if on_group else None,
            constraint=None if on_group else (RigidPoses() if self.free else Orthogonal()),
            symmetries=self.symmetries,
            params=self.params,
            watch=self.watch,
            origin=origin,
        )


def _block_diagonal(blocks: list[Any]) -> np.ndarray:
    from scipy.linalg import block_diag

    return np.asarray(block_diag(*blocks))


def _with_tensor(body: RigidBody) -> RigidBody:
    return body if body.inertia.ndim == 2 else RigidBody(np.diag(body.inertia), body.mass)


def _p_shape(body: RigidBody, tensors: bool) -> tuple[int, ...]:
    return ((2, 3) if body.free else (3,)) + ((3,) if tensors else ())
