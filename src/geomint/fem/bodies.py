"""What is watched of bodies: centre of mass, velocity, angular velocity and spin of each; and what a collision was."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.keywords import checked_keywords
from .mesh import Mesh, checked_mesh
from .mesh_checks import checked_numbers
from .solid import mesh_masses


@checked_keywords
def watch_bodies(mesh: Mesh, density: Any = 1.0, fixed: Sequence[int] | None = None) -> dict[str, Callable]:
    """The motion of each body of a mesh, as quantities to watch: `solid(mesh, …, watch=gm.fem.watch_bodies(mesh, ρ))`.

    run.watched then has, each of shape (saved points, bodies, 3):

        "centre_of_mass"
        "velocity"          of the centre of mass
        "angular_velocity"  ω of the rigid motion with the same angular momentum about the centre, I⁻¹L
        "spin"              L/m, the angular momentum about the centre over the mass (Gonzalez, Schmidt and Ortiz call
                            it the angular velocity)

    mesh:     of tetrahedra; its connected parts are the bodies.
    density:  as for solid.
    fixed:    as for solid; these nodes are left out.
    """
    if checked_mesh(mesh, "watch_bodies").dim != 3:
        raise InputError("watch_bodies is for tetrahedra in space; this mesh is in the plane.")
    held = [] if fixed is None else checked_numbers(fixed, len(mesh.nodes), "fixed", "nodes", "watch_bodies")
    free = np.setdiff1d(np.arange(len(mesh.nodes)), held)
    if not len(free):
        raise InputError("watch_bodies(fixed=...): all nodes are fixed; nothing moves.")
    masses, body = mesh_masses(mesh, density)[free], np.unique(mesh.bodies[free], return_inverse=True)[1]
    count = int(body.max()) + 1
    total = np.bincount(body, masses)[:, None]
    of_bodies = lambda x: jax.ops.segment_sum(x, jnp.asarray(body), count)
    centre = lambda q: of_bodies(masses[:, None] * q) / total
    spin = lambda q, p: of_bodies(jnp.cross(q - centre(q)[body], p)) / total

    def angular_velocity(q: Array, p: Array) -> Array:
        r = q - centre(q)[body]
        square = jnp.sum(r * r, axis=1)[:, None, None] * jnp.eye(3)
        inertia = of_bodies(masses[:, None, None] * (square - r[:, :, None] * r[:, None, :])) / total[:, :, None]
        return jnp.linalg.solve(inertia, spin(q, p)[..., None])[..., 0]

    velocity = _Velocity(masses, of_bodies, total)
    return {"centre_of_mass": centre, "velocity": velocity, "angular_velocity": angular_velocity, "spin": spin}


@dataclasses.dataclass(frozen=True, eq=False)
class _Velocity:
    """The velocity of the centre of mass of each body."""

    masses: np.ndarray  # of the nodes; gm.fem.solid compares them with its own
    of_bodies: Callable[[Any], Array]
    total: np.ndarray

    def __call__(self, q: Array, p: Array) -> Array:
        return self.of_bodies(p) / self.total


CHANGE = 1e-9  # of a relative velocity: a larger one is not rounding


class Collision(NamedTuple):
    """The collision of two bodies."""

    start: float
    end: float
    impacts: int  # of nodes and edges; 0 where contact is a potential
    restitution: float  # velocity of separation over velocity of approach, along the line of centres at the start
    energy_kept: float  # kinetic energy of the two centres of mass after over before, without their common motion

    @property
    def duration(self) -> float:
        return self.end - self.start


def collision(run: Any) -> Collision:
    """The collision in a run of two bodies with `watch_bodies`, which move freely before and after it.

    run:  where contact is exact, its events give the times. Otherwise they are those of the saved points between which
          the velocities of the bodies change.
    """
    if not {"centre_of_mass", "velocity"} <= set(run.watched):
        raise InputError(
            "collision(run): the run has no motion of bodies; state the solid with "
            "watch=gm.fem.watch_bodies(mesh, density)."
        )
    t, centres, velocities = (np.asarray(x) for x in (run.t, run.watched["centre_of_mass"], run.watched["velocity"]))
    if centres.shape[1] != 2:
        raise InputError(f"collision(run) is for two bodies, and this run has {centres.shape[1]}.")
    relative = velocities[:, 1] - velocities[:, 0]
    changes = np.linalg.norm(np.diff(relative, axis=0), axis=1) > CHANGE * np.max(np.linalg.norm(relative, axis=1))
    if not np.any(changes):
        raise InputError("collision(run): there was no contact in this run.")
    before, after = int(np.argmax(changes)), len(t) - 1 - int(np.argmax(changes[::-1]))
    if after == len(t) - 1:
        raise InputError("collision(run): the run ends before the bodies have separated, or right then; run it longer.")
    hits = run.events.times[run.events.kinds == "contact"] if run.method.traits.event_driven else np.zeros(0)
    start, end = (hits[0], hits[-1]) if len(hits) else (t[before], t[after])
    line = centres[before, 1] - centres[before, 0]
    along, square = relative @ line, np.sum(relative**2, axis=1)
    restitution = -along[after] / along[before]
    return Collision(float(start), float(end), len(hits), float(restitution), float(square[after] / square[before]))
