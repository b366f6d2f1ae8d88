"""Sums over all pairs on one core of the CPU, against OpenMM and REBOUND in the same run.

Rigid TIP3P water in free space (time of a step of 0.5 fs) against the faster platform of OpenMM with one thread, and
gravity of many bodies against the leapfrog of REBOUND; medians of interleaved runs, in CPU time. The peers are in the
dependency group `bench`. Run with `python -m benchmarks.pairs`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import geomint as gm

# TIP3P in electronvolts, ångströms and atomic mass units. OpenMM takes nanometres, kJ/mol and its own constant of
# Coulomb's law, so that the charges are scaled to give the same energy.
KILOCALORIE = 0.0433641042418  # one kcal/mol
KILOJOULE = KILOCALORIE / 4.184
OPENMM_COULOMB = 138.93545764438198  # kJ/mol nm/e²
COULOMB, REPULSION, ATTRACTION = 332.064 * KILOCALORIE, 582e3 * KILOCALORIE, 595 * KILOCALORIE
CHARGES, MASSES = np.array([-0.834, 0.417, 0.417]), np.array([15.999, 1.008, 1.008])
OXYGEN_HYDROGEN, ANGLE = 0.9572, np.deg2rad(104.52)
ROUNDS = 5


def charges(r: Any, a: Any, b: Any) -> Any:
    return COULOMB * a["charge"] * b["charge"] / r


def lennard_jones(s: Any) -> Any:
    sixth = 1 / s**3
    return REPULSION * sixth**2 - ATTRACTION * sixth


def water(n: int) -> gm.md.PairSum:
    """TIP3P between n molecules: charges between all atoms, Lennard-Jones between oxygens."""
    coulomb = gm.md.PairPotential(charges, sites={"charge": np.tile(CHARGES, n)}, molecules=3)
    return coulomb + gm.md.PairPotential(lennard_jones, squared=True, on=range(0, 3 * n, 3))


def droplet(n: int) -> np.ndarray:
    """Positions (3n, 3) with some disorder."""
    q = np.asarray(gm.models.water(n).q0).reshape(-1, 3)
    return q + np.repeat(np.random.default_rng(n).uniform(-0.1, 0.1, (n, 3)), 3, axis=0)


def openmm_droplet(n: int, q: np.ndarray, platform: str, step: float = 5e-4, precision: str = "") -> Any:
    """The same droplet as an OpenMM context, with one thread; its energy is in kJ/mol, lengths in nanometres.
    precision: of the platform CUDA, "double" or "mixed"."""
    import openmm

    system, force = openmm.System(), openmm.NonbondedForce()
    force.setNonbondedMethod(openmm.NonbondedForce.NoCutoff)
    scale = np.sqrt(COULOMB / KILOJOULE / (10 * OPENMM_COULOMB))
    sigma = (REPULSION / ATTRACTION) ** (1 / 6) / 10
    epsilon = ATTRACTION**2 / (4 * REPULSION) / KILOJOULE
    lengths = 0.1 * OXYGEN_HYDROGEN * np.array([1, 1, 2 * np.sin(ANGLE / 2)])
    for i in range(n):
        for k, (mass, charge) in enumerate(zip(MASSES, CHARGES, strict=True)):
            system.addParticle(float(mass))
            force.addParticle(float(scale * charge), float(sigma), 0.0 if k else float(epsilon))
        for (a, b), length in zip(((0, 1), (0, 2), (1, 2)), lengths, strict=True):
            system.addConstraint(3 * i + a, 3 * i + b, float(length))
            force.addException(3 * i + a, 3 * i + b, 0.0, 1.0, 0.0)
    system.addForce(force)
    integrator = openmm.VerletIntegrator(step)
    integrator.setConstraintTolerance(1e-10)
    settings = {"Threads": "1"} if platform == "CPU" else {"Precision": precision} if precision else {}
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName(platform), settings)
    context.setPositions(0.1 * q)
    return context


def interleaved(runs: dict[str, Callable[[int], Any]], steps: int) -> dict[str, float]:
    """Microseconds of CPU time of a step of each: the median over `ROUNDS` rounds, in turn, of the difference of runs
    of 3·steps and of steps, which leaves out the checks at the start."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run(steps), run(3 * steps)  # compiles
    for _ in range(ROUNDS):
        for name, run in runs.items():
            began = time.process_time()
            run(steps)
            between = time.process_time()
            run(3 * steps)
            taken[name].append(1e6 * (time.process_time() - 2 * between + began) / (2 * steps))
    return {name: float(np.median(x)) for name, x in taken.items()}


def rigid_droplet(n: int) -> tuple[gm.System, np.ndarray, np.ndarray]:
    """The model of geomint where it has this potential, else its constraints with this potential."""
    model = gm.models.water(n)
    if len(model.q0.shape) == 3:
        return model.system, np.asarray(model.q0), np.asarray(model.v0)
    system = gm.System(water(n), mass=model.system.mass, constraint=model.system.constraint)
    return system, np.asarray(model.q0), np.asarray(model.v0)


def water_steps(n: int, steps: int) -> None:
    h = 0.5 / 10.1805  # 0.5 fs
    system, q, v = rigid_droplet(n)
    contexts = {name: openmm_droplet(n, q.reshape(-1, 3), name) for name in ("CPU", "Reference")}
    runs: dict[str, Callable[[int], Any]] = {
        "geomint": lambda k: gm.simulate(
            system, q, v, method=gm.Rattle(), dt=h, t_end=k * h, save_every=k, progress=False,
            engine="native" if n < 12 else "auto",
        )
    }  # fmt: skip
    for name, context in contexts.items():
        context.setVelocities(v.reshape(-1, 3) * 0.1 / 0.0101805)
        runs[f"OpenMM {name}"] = lambda k, c=context: (c.getIntegrator().step(k), c.getState(positions=True))
    taken = interleaved(runs, steps)
    force = jax.jit(
        lambda q, k: jax.lax.fori_loop(0, k, lambda i, x: x + 1e-12 * jax.grad(lambda y: water(n)(y))(x), q)
    )
    at = jnp.asarray(q.reshape(-1, 3))
    forces = interleaved({"force": lambda k: jax.block_until_ready(force(at, k))}, steps)["force"]
    peer = min(x for name, x in taken.items() if name != "geomint")
    listed = ", ".join(f"{name} {x:.4g}" for name, x in taken.items())
    ratio = taken["geomint"] / peer
    print(f"{n} molecules, µs a step: {listed}; ratio {ratio:.2f}; the force alone {forces:.4g}", flush=True)


def gravity_steps(n: int, steps: int) -> None:
    import rebound

    model = gm.models.n_body(n)
    mass, q, v = (np.asarray(x) for x in (model.system.mass, model.q0, model.v0))
    simulation: Any = rebound.Simulation()
    simulation.integrator, simulation.dt, simulation.softening, simulation.G = "leapfrog", model.dt, 0.1, 1.0
    for m, (x, y, z), (a, b, c) in zip(mass.ravel(), q, v, strict=True):
        simulation.add(m=m, x=x, y=y, z=z, vx=a, vy=b, vz=c)
    h = model.dt
    own = lambda k: gm.simulate(model.system, q, v, method=gm.Verlet(), dt=h, t_end=k * h, save_every=k, progress=False)
    taken = interleaved({"geomint": own, "REBOUND": simulation.steps}, steps)
    listed = ", ".join(f"{name} {x:.4g}" for name, x in taken.items())
    print(f"{n} bodies, µs a step: {listed}; ratio {taken['geomint'] / taken['REBOUND']:.2f}", flush=True)


if __name__ == "__main__":
    for molecules, count in ((7, 10_000), (100, 1500), (1000, 15)):
        water_steps(molecules, count)
    for bodies, count in ((3, 200_000), (20, 20_000), (100, 3000), (1000, 50)):
        gravity_steps(bodies, count)
