"""The native engine compared with loops written by hand in numba."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numba
import numpy as np

import geomint as gm

from . import chains, gpu, overhead
from .timing import best_times, table

ARGON = gm.models.argon_cluster()
MEMBERS, LANES = 10_000, 8


@numba.njit(parallel=True, fastmath={"contract"})
def _member_by_member(q, p, h, steps, omega):
    """An ensemble of FPU chains, (members, 6): each member by the loop for one, on all cores."""
    for k in numba.prange(len(q)):
        overhead._by_hand(q[k], p[k], h, steps, 1, omega, np.empty((1, 12)))


@numba.njit(parallel=True, fastmath={"contract"})
def _side_by_side(q, p, h, steps, omega):
    """The same with (6, members), eight members at a time in the innermost loops, which become vector instructions."""
    m = 3
    for group in numba.prange(q.shape[1] // LANES):
        at = group * LANES
        x, y, d = np.empty((6, LANES)), np.empty((6, LANES)), np.empty(LANES)
        x[:] = q[:, at : at + LANES]
        y[:] = p[:, at : at + LANES]
        for _ in range(steps):
            for j in range(2 * m):
                for k in range(LANES):
                    x[j, k] += 0.5 * h * y[j, k]
            for i in range(m + 1):
                for k in range(LANES):
                    d[k] = (x[i, k] - x[m + i, k] if i < m else 0.0) - (x[i - 1, k] + x[m + i - 1, k] if i > 0 else 0.0)
                    d[k] = h * d[k] * d[k] * d[k]
                if i < m:
                    for k in range(LANES):
                        y[i, k] -= d[k]
                        y[m + i, k] += d[k]
                if i > 0:
                    for k in range(LANES):
                        y[i - 1, k] += d[k]
                        y[m + i - 1, k] += d[k]
            for i in range(m):
                for k in range(LANES):
                    y[m + i, k] -= h * omega * omega * x[m + i, k]
            for j in range(2 * m):
                for k in range(LANES):
                    x[j, k] += 0.5 * h * y[j, k]
        q[:, at : at + LANES] = x
        p[:, at : at + LANES] = y


def _ensembles(steps: int) -> None:
    """10,000 FPU chains through so many steps, the last state kept."""
    model = overhead.MODEL
    sizes = (1 + 0.01 * np.random.default_rng(1).standard_normal(MEMBERS))[:, None]
    q, v = np.repeat(model.q0.reshape(1, -1), MEMBERS, 0), model.v0.reshape(1, -1) * sizes
    shaped = lambda x: x.reshape(MEMBERS, *model.q0.shape)
    rows = {
        "member by member": lambda: _member_by_member(q.copy(), v.copy(), 0.001, steps, 50.0),
        "side by side": lambda: _side_by_side(q.T.copy(), v.T.copy(), 0.001, steps, 50.0),
    }
    for engine in ("native", "xla"):
        rows[engine] = lambda engine=engine: gm.ensemble(
            model.system,
            shaped(q),
            shaped(v),
            method=gm.Verlet(form="drift"),
            dt=0.001,
            t_end=steps * 0.001,
            save_every=steps,
            engine=engine,
        )
    x, y = q.T.copy(), v.T.copy()
    _side_by_side(x, y, 0.001, steps, 50.0)
    difference = np.max(np.abs(rows["native"]().q[:, -1].reshape(MEMBERS, -1) - x.T))
    diffrax = gpu.diffrax_ensemble(model, 0.001, steps)
    start = jnp.asarray(shaped(q)), jnp.asarray(shaped(v))
    rows["diffrax"] = lambda: jax.block_until_ready(diffrax(*start))
    times = best_times(rows, rounds=5)
    best = min(times["member by member"], times["side by side"])
    lines = [(which, f"{1e-6 * MEMBERS * steps / t:,.0f}", f"×{t / best:.2f}") for which, t in times.items()]
    table(
        f"{MEMBERS:,} FPU chains, Verlet, {steps} steps: million member-steps a second "
        f"(native differs by {difference:.0e} from the loop by hand)",
        lines,
    )


@numba.njit(fastmath={"contract"}, error_model="numpy")
def _argon_by_hand(q, p, h, every, blocks, epsilon, sigma, out):
    """Velocity Verlet of seven Lennard-Jones atoms in the plane; the force of the last step is kept."""
    force = np.zeros((7, 2))
    for b in range(blocks):
        for step in range(every + (b == 0)):
            if not (b == 0 and step == 0):
                for i in range(7):
                    for k in range(2):
                        p[i, k] += 0.5 * h * force[i, k]
                        q[i, k] += h * p[i, k]
            force[:] = 0.0
            for i in range(7):
                for j in range(i + 1, 7):
                    dx, dy = q[i, 0] - q[j, 0], q[i, 1] - q[j, 1]
                    inverse = 1.0 / (dx * dx + dy * dy)
                    x = sigma * sigma * inverse
                    x = x * x * x
                    f = 24.0 * epsilon * x * (2.0 * x - 1.0) * inverse
                    force[i, 0] += f * dx
                    force[i, 1] += f * dy
                    force[j, 0] -= f * dx
                    force[j, 1] -= f * dy
            if not (b == 0 and step == 0):
                for i in range(7):
                    for k in range(2):
                        p[i, k] += 0.5 * h * force[i, k]
        out[b] = q[0, 0]


def _argon(steps: int) -> float:
    q, out = ARGON.q0.copy(), np.empty(steps // 100)
    _argon_by_hand(
        q, ARGON.v0.copy(), 1e-5, 100, steps // 100, ARGON.system.params["epsilon"], ARGON.system.params["sigma"], out
    )
    return q[0, 0]


def _fpu(steps: int) -> np.ndarray:
    out = np.empty((steps // 100, 12))
    overhead._by_hand(
        overhead.MODEL.q0.ravel().copy(), overhead.MODEL.v0.ravel().copy(), 0.001, 100, steps // 100, 50.0, out
    )
    return out


def _geomint(model, method, dt, steps, engine):
    return gm.simulate(
        model.system, model.q0, model.v0, method=method, dt=dt, t_end=steps * dt, save_every=100, engine=engine
    )


class _Chain:
    """Three links from their start in benchmarks/chains.py."""

    system, q0, v0 = chains._system(3), chains.start(3), np.zeros((3, 2))


CASES = {
    "FPU, Verlet": (overhead.MODEL, gm.Verlet(form="drift"), 0.001, 400_000, _fpu),
    "three links, Rattle": (_Chain, gm.Rattle(), 0.01, 100_000, lambda n: chains.numba_rattle(3, 0.01, n)),
    "argon, Verlet": (ARGON, gm.Verlet(), 1e-5, 100_000, _argon),
}


def main() -> None:
    for name, (model, method, dt, steps, by_hand) in CASES.items():
        go = {engine: functools.partial(_geomint, model, method, dt, steps, engine) for engine in ("native", "xla")}
        times = best_times({"by hand": functools.partial(by_hand, steps), **go}, rounds=7)
        rows = [(which, f"{1e6 * t / steps:.4f} µs", f"×{t / times['by hand']:.2f}") for which, t in times.items()]
        table(f"{name}, a step; saved every 100", rows)
    _ensembles(2000)
    energy = 10.519254 * float(ARGON.system.params["epsilon"])
    rows = []
    for parts in (100, 60, 30):
        go = {
            engine: functools.partial(_geomint, ARGON, gm.EnergyStepping(energy / parts), 1e-3, 1000, engine)
            for engine in ("native", "xla")
        }
        events = {engine: len(run().events) for engine, run in go.items()}
        times = best_times(go, rounds=5)
        rows.append(
            (
                f"E₀/{parts}",
                f"{events['native'] / times['native']:,.0f}",
                f"native; {events['xla'] / times['xla']:,.0f} xla",
            )
        )
    table("argon, energy-stepping: events a second over 1 ns", rows)
