"""Lennard-Jones fluids on the default device: time per step, forces against the sum over all pairs, energy drift; the
time per step of OpenMM in double precision beside it, where it is installed.

Run with `python -m benchmarks.fluid_gpu [atoms …]`."""

from __future__ import annotations

import sys
import time
from typing import Any

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
        **of_openmm(model, q, v),
    }


def of_openmm(model: Any, q: np.ndarray, v: np.ndarray) -> dict[str, float]:
    """µs a step of OpenMM from the same state, on a GPU where it has one; a nanometre is σ, kJ/mol is ε."""
    try:
        import openmm as mm
    except ImportError:
        return {}
    pair, edge = model.system.potential, model.system.potential.box.lengths[0]
    system, force = mm.System(), mm.NonbondedForce()
    system.setDefaultPeriodicBoxVectors(*(edge * np.eye(3)))
    force.setNonbondedMethod(mm.NonbondedForce.CutoffPeriodic)
    force.setCutoffDistance(pair.cutoff)
    force.setUseSwitchingFunction(True)
    force.setSwitchingDistance(pair.onset)
    force.setUseDispersionCorrection(False)
    for _ in q:
        system.addParticle(1.0)
        force.addParticle(0.0, 1.0, 1.0)
    system.addForce(force)
    times = {}
    names = [mm.Platform.getPlatform(i).getName() for i in range(mm.Platform.getNumPlatforms())]
    name = "CUDA" if "CUDA" in names else "CPU"
    for precision in ("double", "mixed") if name == "CUDA" else ("",):
        settings = {"Precision": precision} if precision else {}
        context = mm.Context(system, mm.VerletIntegrator(H), mm.Platform.getPlatformByName(name), settings)
        context.setPositions(q)
        context.setVelocities(v)
        finished = lambda context=context: context.getState(energy=True).getPotentialEnergy()
        context.getIntegrator().step(STEPS)
        finished()
        began = time.perf_counter()
        context.getIntegrator().step(STEPS)
        finished()
        times[f"OpenMM {name} {precision}".strip()] = 1e6 * (time.perf_counter() - began) / STEPS
    return times


if __name__ == "__main__":
    print(jax.devices()[0])
    for n in [int(x) for x in sys.argv[1:]] or [4096, 65_536]:
        print(n, {name: float(f"{x:.4g}") for name, x in measure(n).items()})
