"""What is watched of bodies: centre of mass, velocity, angular velocity and spin of each; and what a collision was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.keywords import checked_keywords
from .mesh import Mesh, checked_mesh
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
    free = np.setdiff1d(np.arange(len(mesh.nodes)), np.zeros(0, int) if fixed is None else np.asarray(fixed, int))
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

    return {
        "centre_of_mass": centre,
        "velocity": lambda q, p: of_bodies(p) / total,
        "angular_velocity": angular_velocity,
        "spin": spin,
    }


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
    """The collision in a run of two bodies with `watch_bodies`: from the first to the last contact.

    run:  with exact contact, whose events give the times; or with a contact energy that is watched under the name
          "contact_energy", which is sampled at the saved points.
    """
    start, end, impacts = _times(run)
    t, centres, velocities = (np.asarray(x) for x in (run.t, run.watched["centre_of_mass"], run.watched["velocity"]))
    if centres.shape[1] != 2:
        raise InputError(f"collision(run) is for two bodies, and this run has {centres.shape[1]}.")
    before, after = np.searchsorted(t, start, side="right") - 1, np.searchsorted(t, end)
    if after >= len(t):
        raise InputError("collision(run): the run ends before the bodies have separated.")
    line = centres[before, 1] - centres[before, 0]
    relative = velocities[:, 1] - velocities[:, 0]
    along = lambda k: float(relative[k] @ line)
    square = lambda k: float(relative[k] @ relative[k])
    return Collision(start, end, impacts, -along(after) / along(before), square(after) / square(before))


def _times(run: Any) -> tuple[float, float, int]:
    """First and last contact, and the number of impacts."""
    if "contact_energy" in run.watched:
        times, impacts = np.asarray(run.t)[np.asarray(run.watched["contact_energy"]) > 0], 0
    else:
        times = run.events.times[run.events.kinds == "contact"]
        impacts = len(times)
    if not len(times):
        raise InputError("collision(run): there was no contact in this run.")
    return float(times[0]), float(times[-1]), impacts
