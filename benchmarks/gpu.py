"""Ensembles as one kernel on a GPU: results checked for every row, compared with XLA's vmap of the same step, and FPU
with diffrax.

python -m benchmarks gpu                  all rows that are in float64
python -m benchmarks.gpu fpu rattle       some of them
JAX_ENABLE_X64=0 python -m benchmarks.gpu fpu
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import geomint as gm
from geomint.engines import Clock, Kernel, Xla
from geomint.run.inputs import initial_state, phase
from geomint.run.simulate import prepared

from .counting import flops

# NVIDIA's data sheet of the H200 (SXM), without tensor cores: operations a second, and bytes.
PEAK = {"float64": 34e12, "float32": 67e12}
BANDWIDTH = 4.8e12


@dataclass
class Row:
    model: Any
    method: Any
    dt: float
    members: int
    steps: int
    target: float = 0.0
    in_single: float = 0.0  # the target in float32
    ratio: float = 0.0


ARGON = gm.models.argon_cluster()
ENERGY = 10.519254 * float(ARGON.system.params["epsilon"])
ROWS: dict[str, Callable[[], Row]] = {
    "fpu": lambda: Row(gm.models.fpu(), gm.Verlet(form="drift"), 1e-3, 2**20, 40_000, 1e11, 2e11),
    "rattle": lambda: Row(gm.models.triple_pendulum(), gm.Rattle(), 0.01, 2**18, 40_000, 1e10, ratio=80),
    "zhang-skeel": lambda: Row(gm.models.stiff_double_pendulum(), gm.ZhangSkeel(), 0.01, 2**18, 20_000),
    "multistep": lambda: Row(gm.models.sphere_bodies(), gm.SymmetricMultistep(8), 0.0125, 2**18, 2000),
    "imex": lambda: Row(gm.models.fpu(), gm.IMEX(), 0.01, 2**20, 20_000),
    "energy-stepping": lambda: Row(ARGON, gm.EnergyStepping(ENERGY / 60), 1e-3, 2**16, 10),
}


def start(model: Any, members: int) -> tuple[Any, Any]:
    """The model's own start for all, with speeds that differ by a percent."""
    sizes = 1 + 0.01 * np.random.default_rng(1).standard_normal(members)
    spread = lambda x: np.broadcast_to(x, (members, *np.shape(x)))
    return spread(model.q0).copy(), spread(model.v0) * sizes.reshape(-1, *[1] * np.ndim(model.v0))


def begun(cls: Any, row: Row, members: int) -> tuple[Any, Any, float]:
    """An engine ready to run, its carry, and the seconds that took."""
    q, p = phase(row.model.system, *start(row.model, members), None, members=True)
    engine = cls(prepared(row.method, row.model.system, q, "states"), row.model.system, Clock.of(0.0, row.dt), "states")
    began = time.perf_counter()
    carry, _ = engine.begin(initial_state(q, p, 0.0, 0, False, members))
    jax.block_until_ready(carry)
    return engine, carry, time.perf_counter() - began


def timed(engine: Any, carry: Any, steps: int, rounds: int) -> tuple[float, Any]:
    """The best time of a call, and the carry after it."""
    best, buffer = float("inf"), engine.advance(carry, 0, 1, 1, engine.buffer())[1]
    jax.block_until_ready(buffer)
    for _ in range(rounds):
        began = time.perf_counter()
        moved, buffer = engine.advance(carry, 0, steps, 1, buffer)
        jax.block_until_ready(moved)
        best = min(best, time.perf_counter() - began)
    return best, moved


def work(engine: Any, before: Any, after: Any, row: Row, members: int, steps: int) -> float:
    """Member-steps, or for event-driven methods events."""
    if not row.method.traits.event_driven:
        return float(members * steps)
    events = lambda carry: int(np.sum(np.asarray(jax.vmap(engine.method.events)(carry)), dtype=np.int64))
    return float(events(after) - events(before))


def few(row: Row, engine: str) -> dict[str, np.ndarray]:
    """Where eight members are after some steps."""
    steps = 2 if row.method.traits.event_driven else 100
    run = gm.ensemble(
        row.model.system,
        *start(row.model, 8),
        method=row.method,
        dt=row.dt,
        t_end=steps * row.dt,
        save_every=steps,
        engine=engine,
    )
    assert run.engine == engine, run.engine
    return {k: np.asarray(run.columns[k], float) for k in ("q", "p")}


def checked(name: str, row: Row) -> float:
    """The largest difference of the kernel from a float64 run of the reference engine, computed on the CPU by another
    process."""
    found = few(row, "kernel")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/reference.npz"
        subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu", "--reference", name, path],
            env={**os.environ, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
            check=True,
        )
        with np.load(path) as reference:
            return max(float(np.max(np.abs(found[k] - reference[k])) / np.max(np.abs(reference[k]))) for k in found)


def measure(name: str, row: Row) -> None:
    real = np.dtype(jax.dtypes.canonicalize_dtype(float)).name
    engine, carry, ready = begun(Kernel, row, row.members)
    print(
        f"\n{name}: {row.method.name} on {row.model.name}, {row.members:,} members, {real}; "
        f"{engine.described[:300]}; ready after {ready:.1f} s",
        flush=True,
    )
    if engine.program is None:
        return
    seconds, after = timed(engine, carry, row.steps, 3)
    rate = work(engine, carry, after, row, row.members, row.steps) / seconds
    unit = "events" if row.method.traits.event_driven else "member-steps"
    target = row.target if real == "float64" else row.in_single
    print(f"  kernel {rate:.3e} {unit}/s ({seconds:.3f} s)" + (f"; target {target:.0e}" if target else ""), flush=True)
    print(f"  largest difference from the reference in float64 on the processor: {checked(name, row):.1e}", flush=True)
    one = jax.tree.map(lambda x: np.asarray(x)[0], carry)
    per_step, _ = flops(engine.method, row.model.system, one, row.dt, 1 if row.method.traits.event_driven else 20)
    moved = (
        sum(np.asarray(x).nbytes for x in jax.tree.leaves(carry)) * 2
        + row.members * engine.layout.width * np.dtype(real).itemsize
    )
    print(
        f"  {per_step:.0f} operations a {'save' if row.method.traits.event_driven else 'step'}: "
        f"{per_step * row.members * row.steps / seconds / PEAK[real]:.1%} of the peak of {PEAK[real]:.2g}; "
        f"{moved / seconds / BANDWIDTH:.2%} of the bandwidth",
        flush=True,
    )
    members, steps = min(row.members, 2**18), max(1, row.steps // 40)
    slow, carry, _ = begun(Xla, row, members)
    seconds, after = timed(slow, carry, steps, 2)
    vmapped = work(slow, carry, after, row, members, steps) / seconds
    print(
        f"  XLA's vmap ({members:,} members) {vmapped:.3e}: ×{rate / vmapped:.0f}"
        + (f"; target ×{row.ratio:g}" if row.ratio else ""),
        flush=True,
    )
    if name == "fpu":
        print(f"  gm.ensemble, all included: {by_ensemble(row):.3e}", flush=True)
        other = by_diffrax(row, 2**20, 500)
        print(f"  diffrax (SemiImplicitEuler) {other:.3e}: ×{rate / other:.0f}; target ×20", flush=True)
    if name == "rattle":
        other = by_textbook(row, members, 50)
        print(f"  RATTLE written by hand for vmap {other:.3e}: ×{rate / other:.0f}", flush=True)


def by_ensemble(row: Row) -> float:
    """As a user calls it: five times the steps, checks, the copies to the host and the first and last state of every
    member included."""
    steps = 5 * row.steps
    go = lambda: gm.ensemble(
        row.model.system,
        *start(row.model, row.members),
        method=row.method,
        dt=row.dt,
        t_end=steps * row.dt,
        save_every=steps,
    )
    assert go().engine == "kernel"
    began = time.perf_counter()
    go()
    return row.members * steps / (time.perf_counter() - began)


def diffrax_ensemble(model: Any, dt: float, steps: int) -> Callable[[Any, Any], Any]:
    """Symplectic Euler, one force a step as in Verlet: the cheapest of diffrax's symplectic solvers, by vmap."""
    import diffrax

    system = model.system
    force = lambda t, q, args: -jax.grad(lambda x: system.potential(x) + system.fast(x))(q)
    terms = diffrax.ODETerm(lambda t, p, args: p), diffrax.ODETerm(force)
    solve = lambda q, p: (
        diffrax.diffeqsolve(
            terms,
            diffrax.SemiImplicitEuler(),
            0.0,
            steps * dt,
            dt,
            (q, p),
            max_steps=steps + 10,
            saveat=diffrax.SaveAt(t1=True),
        ).ys
    )
    return jax.jit(jax.vmap(solve))


def by_diffrax(row: Row, members: int, steps: int) -> float:
    go = diffrax_ensemble(row.model, row.dt, steps)
    q, v = (jnp.asarray(x, float) for x in start(row.model, members))
    jax.block_until_ready(go(q, v))
    began = time.perf_counter()
    jax.block_until_ready(go(q, v))
    return members * steps / (time.perf_counter() - began)


def by_textbook(row: Row, members: int, steps: int) -> float:
    """RATTLE as one writes it in JAX: Newton's method with a dense solve until the residual is small, then the momenta;
    vmap over all."""
    system, h = row.model.system, row.dt
    constraint, force = system.constraint, lambda q: -jax.grad(system.potential)(q)
    flat = lambda q: jax.jacfwd(constraint)(q).reshape(3, -1)

    def step(state: Any, _: Any) -> Any:
        q, p = state
        at, half = flat(q), p + 0.5 * h * force(q)
        moved = lambda multipliers: q + h * (half - (at.T @ multipliers).reshape(q.shape))

        def newton(s: Any) -> Any:
            multipliers, _, n = s
            residual = constraint(moved(multipliers))
            return (
                multipliers + jnp.linalg.solve(h * flat(moved(multipliers)) @ at.T, residual),
                jnp.max(jnp.abs(residual)),
                n + 1,
            )

        multipliers, _, _ = jax.lax.while_loop(
            lambda s: (s[1] > 1e-14) & (s[2] < 20), newton, (jnp.zeros(3), jnp.asarray(1.0), 0)
        )
        q1 = moved(multipliers)
        p1 = half - (at.T @ multipliers).reshape(q.shape) + 0.5 * h * force(q1)
        g1 = flat(q1)
        p1 = p1 - (g1.T @ jnp.linalg.solve(g1 @ g1.T, g1 @ p1.ravel())).reshape(p1.shape)
        return (q1, p1), None

    go = jax.jit(jax.vmap(lambda q, p: jax.lax.scan(step, (q, p), None, length=steps)[0]))
    q, v = (jnp.asarray(x) for x in start(row.model, members))
    jax.block_until_ready(go(q, v))
    began = time.perf_counter()
    jax.block_until_ready(go(q, v))
    return members * steps / (time.perf_counter() - began)


def main(names: list[str] | None = None) -> None:
    if names and names[0] == "--reference":
        _, name, path = names
        return np.savez(path, **few(ROWS[name](), "xla"))
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}")
    if jax.default_backend() != "gpu":
        print("there is no GPU here; nothing to measure.")
        return
    for name in names or list(ROWS):
        measure(name, ROWS[name]())


if __name__ == "__main__":
    main(sys.argv[1:])
