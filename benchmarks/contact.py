"""The search for the first impact against ipctk's, and its share of an event of energy-stepping.

    python -m benchmarks.contact [layers ...]

Two balls, 20 layers³ tetrahedra each, just before they touch, over a flight of a thousandth of an edge; all times are
CPU times of one process. ipctk: candidates by its default broad phase, then the earliest time by its additive
continuous collision detection.
"""

from __future__ import annotations

import sys
import time

import ipctk
import jax
import jax.numpy as jnp
import numpy as np

from geomint import fem


def seconds(call, least=0.3):
    call()
    count, began = 0, time.process_time()
    while time.process_time() - began < least:
        call()
        count += 1
    return (time.process_time() - began) / count


def measured(layers):
    ball = fem.ball(1.0, layers=layers)
    apart = 3e-4 * fem.ExactContact(ball).reach
    mesh = fem.Mesh.union([ball, ball.moved((2.0 + apart, 0.0, 0.0))])
    contact = fem.ExactContact(mesh)
    x = jnp.asarray(mesh.nodes)
    v = jnp.where(jnp.asarray(mesh.bodies)[:, None] == 1, jnp.array([-1.0, 0.0, 0.0]), 0.0)
    v = v + 0.01 * np.random.default_rng(0).normal(size=x.shape)
    stop = jnp.asarray(1e-3 * contact.reach)
    search = jax.jit(contact.first_impact)
    own = seconds(lambda: jax.block_until_ready(search(x, v, 0.0, stop)))
    surface = contact.scene.surface
    other = ipctk.CollisionMesh(mesh.nodes, surface.edges, surface.faces)
    start, end = np.asarray(x), np.asarray(x + stop * v)

    def by_ipctk():
        candidates = ipctk.Candidates()
        candidates.build(other, start, end, 0.0)
        return candidates.compute_collision_free_stepsize(other, start, end)

    theirs = seconds(by_ipctk)
    system = fem.solid(mesh, fem.NeoHookean(1.0, 1.0))
    gradient = jax.jit(jax.grad(system.potential))
    force = seconds(lambda: jax.block_until_ready(gradient(x)))
    hit = float(search(x, v, 0.0, stop).time / stop)
    print(
        f"{len(mesh.cells):7d} tetrahedra, {len(surface.faces):6d} faces: search {1e6 * own:8.0f} µs, "
        f"ipctk {1e6 * theirs:8.0f} µs ({theirs / own:.1f} times), gradient of V {1e6 * force:8.0f} µs; "
        f"first impact at {min(hit, 1):.6f} of the flight, ipctk {by_ipctk():.6f}",
        flush=True,
    )


def main(sizes: tuple[int, ...] = (3, 6, 10)) -> None:
    for layers in sizes:
        measured(layers)


if __name__ == "__main__":
    main(tuple(int(x) for x in sys.argv[1:]) or (3, 6, 10))
