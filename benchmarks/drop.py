"""A body that is not convex falls on a plate: exact contact, with itself too, checked by ipctk at every saved point.

    OMP_NUM_THREADS=1 python -m benchmarks.drop [cells]

The body is a staple of 19,968 tetrahedra (with cells = 1.0; fewer of them with less), let fall with its arms down and
tilted, so that one arm hits first, both bend, and the body turns over. The plate does not move. All times are CPU times
of this process.
"""

from __future__ import annotations

import sys
import time
import warnings

import ipctk
import numpy as np

import geomint as gm
from benchmarks.timing import table
from geomint import fem

GRAVITY, SPEED, T_END, SAVED = 1.0, 1.0, 1.5, 150
YOUNG, POISSON, HEIGHT = 30.0, 0.3, 5e-4  # the height of terraces; the motion has an energy of about 0.4


def staple(size: float = 1.0) -> fem.Mesh:
    """Of sides 1.2, 0.8 and 1.0, cells of 0.1/size, tilted, its lowest point 0.05 above z = 0."""
    counts = [round(size * n) for n in (12, 8, 10)]
    whole = fem.box((1.2, 0.8, 1.0), counts)
    x = whole.nodes[whole.cells].mean(axis=1)
    used, cells = np.unique(whole.cells[~((np.abs(x[:, 0] - 0.6) < 0.2) & (x[:, 2] < 0.4))], return_inverse=True)
    turn = gm.rigid.rotation((0.3, 1.0, 0.1), 0.35)
    nodes = whole.nodes[used] @ turn.T
    return fem.Mesh(nodes + np.array([0.0, 0.0, 0.05 - nodes[:, 2].min()]), cells.reshape(-1, 4))


def plate() -> fem.Mesh:
    return fem.box((6.0, 6.0, 0.4), (6, 6, 1)).moved((-3.0, -3.0, -0.4))


def intersecting(contact: fem.ExactContact, q: np.ndarray) -> bool:
    """By ipctk, of the body and the plate together."""
    surface = contact.scene.surface
    x = np.asarray(contact.scene.points(q))
    return bool(ipctk.has_intersections(ipctk.CollisionMesh(contact.scene.rest, surface.edges, surface.faces), x))


def main(size: float = 1.0) -> None:
    mesh, base = staple(size), plate()
    contact = fem.ExactContact(mesh, obstacle=base)
    material = fem.NeoHookean(*fem.lame_constants(YOUNG, POISSON))
    system = fem.solid(mesh, material, gravity=(0.0, 0.0, -GRAVITY), watch=fem.watch_bodies(mesh))
    v = np.broadcast_to([0.0, 0.0, -SPEED], mesh.nodes.shape)
    method = gm.EnergyStepping(HEIGHT, inside=contact)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="EnergyStepping was trapped")
        run = gm.simulate(system, mesh.nodes, v, method=method, dt=T_END / SAVED, t_end=T_END)
    taken = time.process_time() - began
    kinetic = 0.5 * np.sum(run.p * run.v, axis=(1, 2))
    bad = sum(intersecting(contact, q) for q in run.q)
    pressed = run.q[-1] - np.array([0.0, 0.0, 0.3])
    lowest, turned = run.q[:, :, 2].min(), run.watched["angular_velocity"][-1, 0]
    table(
        f"{len(mesh.cells)} tetrahedra, {len(mesh.boundary_faces)} faces, on a plate",
        [
            ("events", f"{len(run.events)}", f"{run.events['contact']} of them contacts"),
            ("CPU time", f"{taken:.0f} s", f"{1e3 * taken / len(run.events):.2f} ms an event, compiling included"),
            ("saved points with intersecting faces", f"{bad} of {len(run.q)}", "by ipctk; 0"),
            ("the body pushed into the plate", f"{intersecting(contact, pressed)}", "True: what the test can see"),
            ("T + V_h, largest change", f"{np.abs(run.energy / run.energy[0] - 1).max():.1e}", "relative; 1e-13"),
            ("T + V, width of its range", f"{np.ptp(run.smooth_energy) / HEIGHT:.3f} h", "at most 1 h: one terrace"),
            ("kinetic energy", f"{kinetic[0]:.3f}, at the end {kinetic[-1]:.3f}", f"least {kinetic.min():.3f}"),
            ("lowest node", f"{lowest:.1e}", "above 0, the plate"),
            ("angular velocity at the end", f"{np.round(turned, 2)}", ""),
        ],
    )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
