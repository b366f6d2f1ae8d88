"""Lennard-Jones fluids on the default device: time per step, forces against the sum over all pairs, energy drift.

Run with `python -m benchmarks.fluid_gpu [atoms …]`."""

from __future__ import annotations

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import geomint as gm

H, STEPS = 0.004, 2000


def measure(atoms: int) -> dict[str, float]:
    model = gm.models.lennard_jones_fluid(atoms=atoms)
    run = lambda q, v, steps: gm.simulate(
        model.system, q, v, method=gm.Verlet(), dt=H, t_end=steps * H, save_every=max(1, steps // 10)
    )
    melted = run(model.q0, model.v0, STEPS)
    q, v = np.asarray(melted.q[-1]), np.asarray(melted.v[-1])
    run(q, v, STEPS)
    began = time.perf_counter()
    timed = run(q, v, STEPS)
    seconds = time.perf_counter() - began
    mech = gm.Mechanics(model.system, q.shape)
    lists = model.system.auxiliary.build(jnp.asarray(q))
    listed = jax.jit(lambda q, lists: mech.with_auxiliary(lists).force(q))(jnp.asarray(q), lists)
    every = jax.jit(lambda q: mech.force(q))(jnp.asarray(q))
    apart = float(jnp.max(jnp.abs(listed - every)) / jnp.max(jnp.abs(every)))
    kinetic = float(np.mean(np.sum(np.asarray(v) ** 2, axis=-1)) / 3)
    error = np.asarray(timed.energy_error)
    return {
        "µs a step": 1e6 * seconds / STEPS,
        "forces apart": apart,
        "temperature": kinetic,
        "energy error per atom": float(np.abs(error).max() / atoms),
        "neighbours": float(jnp.mean(lists.count)),
        "room": lists.room,
    }


if __name__ == "__main__":
    print(jax.devices()[0])
    for n in [int(x) for x in sys.argv[1:]] or [4096, 65_536]:
        print(n, {name: float(f"{x:.4g}") for name, x in measure(n).items()})
