"""Lennard-Jones fluids on the default device: time per step and what it is made of, forces against the sum over all
pairs, the error of the energy; the time per step of OpenMM from the same state beside it, in double and in mixed
precision, where it is installed (its wheels openmm and openmm-cuda-13 are enough, unpacked on PYTHONPATH).

Run with `python -m benchmarks.fluid_gpu [atoms …]`; the last lines are verdicts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import geomint as gm
from geomint.engines import Clock, Xla
from geomint.md import neighbours_gpu
from geomint.methods.base import State
from geomint.run import loop

H, STEPS = 0.004, 2000
SAME_FORCES = 1e-12  # of the largest force


def measure(atoms: int) -> dict[str, float]:
    model = gm.models.lennard_jones_fluid(atoms=atoms)
    run = lambda q, v, steps: gm.simulate(
        model.system, q, v, method=gm.Verlet(), dt=H, t_end=steps * H, save_every=max(1, steps // 10)
    )
    melted = run(model.q0, model.v0, STEPS)
    q, v = np.asarray(melted.q[-1]), np.asarray(melted.v[-1])
    timed, seconds = timed_runs(lambda: run(q, v, STEPS))
    mech = gm.Mechanics(model.system, q.shape)
    lists = model.system.auxiliary.build(jnp.asarray(q))
    listed = jax.jit(lambda q, lists: mech.with_auxiliary(lists).force(q))(jnp.asarray(q), lists)
    every = jax.jit(lambda q: mech.force(q))(jnp.asarray(q))
    apart = float(jnp.max(jnp.abs(listed - every)) / jnp.max(jnp.abs(every)))
    kinetic = float(np.mean(np.sum(np.asarray(v) ** 2, axis=-1)) / 3)
    error = np.asarray(timed.energy_error)
    return {
        "µs a step": 1e6 * seconds / STEPS,
        "of it on the device": of_steps(model, q, v),
        "forces apart": apart,
        "temperature": kinetic,
        "energy error per atom": float(np.abs(error).max() / atoms),
        "neighbours": float(jnp.mean(lists.count)),
        "room": lists.room,
        **parts(model, mech, lists, jnp.asarray(q)),
        **of_openmm(model, q, v),
    }


def timed_runs(run: Callable[[], Any], times: int = 4) -> tuple[Any, float]:
    """The last of several equal runs, and the seconds of the fastest. Prints for each of them what the host loop did
    and what was compiled: a run that was slower than others says why."""
    compiled, chunks = [], []
    taken_by_loop = loop.HostLoop._take

    def listener(event: str, seconds: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(seconds)

    def take(self: Any, chunk: Any) -> Any:
        began = time.perf_counter()
        result = taken_by_loop(self, chunk)
        chunks.append(f"{chunk.blocks} x {chunk.steps} steps {time.perf_counter() - began:.3f} s")
        return result

    jax.monitoring.register_event_duration_secs_listener(listener)
    loop.HostLoop._take = take  # pyright: ignore[reportAttributeAccessIssue]
    taken = []
    try:
        for _ in range(times):
            compiled.clear(), chunks.clear()
            began = time.perf_counter()
            result = run()
            taken.append(time.perf_counter() - began)
            print(
                f"  run: {taken[-1]:.3f} s, {len(compiled)} programs compiled in {sum(compiled):.2f} s;", *chunks[:12]
            )
    finally:
        loop.HostLoop._take = taken_by_loop
    return result, min(taken)


def of_steps(model: Any, q: np.ndarray, v: np.ndarray) -> float:
    """µs a step inside one call of the compiled program, without the host loop."""
    engine = Xla(gm.Verlet(), model.system, Clock.of(0.0, H))
    carry, _ = engine.begin(State(jnp.asarray(q), jnp.asarray(v)))
    advance = lambda: jax.block_until_ready(engine.advance(carry, 0, STEPS, 1, engine.buffer())[0])
    advance()
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        advance()
        taken.append(1e6 * (time.perf_counter() - began) / STEPS)
    return min(taken)


def parts(model: Any, mech: Any, lists: Any, q: jax.Array) -> dict[str, float]:
    """µs of a force by a list, and of a new list."""
    force = lambda i, x: x + 1e-12 * mech.with_auxiliary(lists).force(x)
    made = lambda i, x: x + 1e-12 * model.system.auxiliary._list(x, x, lists.room, lists.cell_room.shape[0]).count[0]
    return {"µs a force": of_one(force, q, 500), "µs a new list": of_one(made, q, 30)}


def of_one(function: Any, q: jax.Array, count: int) -> float:
    """µs of one call in a loop on the device, the least of three."""
    loop = jax.jit(lambda x: jax.lax.fori_loop(0, count, function, x))
    jax.block_until_ready(loop(q))
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        jax.block_until_ready(loop(q))
        taken.append(1e6 * (time.perf_counter() - began) / count)
    return min(taken)


def verdicts(atoms: int, found: dict[str, float]) -> None:
    equal = "holds" if found["forces apart"] <= SAME_FORCES else "DOES NOT HOLD"
    apart = f"{equal}, {found['forces apart']:.1e}"
    print(f"{atoms} atoms, forces equal to the sum over all pairs to {SAME_FORCES:g}: {apart}")
    for name in (name for name in found if name.startswith("OpenMM")):
        ratio = found["µs a step"] / found[name]
        print(f"{atoms} atoms: {found['µs a step']:.0f} µs a step, {name} {found[name]:.0f} µs, ratio {ratio:.2f}")
    if not any(name.startswith("OpenMM") for name in found):
        print(f"{atoms} atoms: {found['µs a step']:.0f} µs a step; OpenMM is not installed, NOT COMPARED")


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
    print(
        "lists by", f"array operations: {why}" if (why := neighbours_gpu.reason_against()) else "the kernel", flush=True
    )
    measured = {}
    for n in [int(x) for x in sys.argv[1:]] or [4096, 65_536]:
        measured[n] = measure(n)
        print(n, {name: float(f"{x:.4g}") for name, x in measured[n].items()}, flush=True)
    for n, found in measured.items():
        verdicts(n, found)
