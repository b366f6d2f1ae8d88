"""A Lennard-Jones fluid against a hand-written loop: 4096 atoms, Verlet, neighbour lists of half the pairs by cells,
compiled by numba, on one core; the same potential, skin and rule for new lists.

Run with `python -m benchmarks.fluid`; times are interleaved, and the ratio of the best of each is printed.
"""

from __future__ import annotations

import time

import numba
import numpy as np

import geomint as gm

CUTOFF, SKIN = 2.5, 0.3
loop = numba.njit(fastmath=True, error_model="numpy")


@loop
def half_lists(q, edge, reach, start, index):
    """The neighbours j > i of each i, by cells; index has room for all."""
    n, cells = len(q), int(edge // reach)
    heads, chain = np.full(cells**3, -1), np.full(n, -1)
    at = np.empty((n, 3), np.int64)
    for i in range(n - 1, -1, -1):
        for k in range(3):
            x = q[i, k] / edge
            at[i, k] = min(int((x - np.floor(x)) * cells), cells - 1)
        c = (at[i, 0] * cells + at[i, 1]) * cells + at[i, 2]
        chain[i], heads[c] = heads[c], i
    total = 0
    for i in range(n):
        start[i] = total
        for a in range(-1, 2):
            for b in range(-1, 2):
                for c in range(-1, 2):
                    x, y, z = (at[i, 0] + a) % cells, (at[i, 1] + b) % cells, (at[i, 2] + c) % cells
                    j = heads[(x * cells + y) * cells + z]
                    while j >= 0:
                        if j > i:
                            s = 0.0
                            for k in range(3):
                                d = q[i, k] - q[j, k]
                                d -= edge * np.rint(d / edge)
                                s += d * d
                            if s < reach * reach:
                                index[total] = j
                                total += 1
                        j = chain[j]
    start[n] = total


@loop
def forces(q, edge, start, index, out):
    on, end, inverse = (0.9 * CUTOFF) ** 2, CUTOFF**2, 1 / edge
    out[:] = 0.0
    for i in range(len(q)):
        x, y, z = q[i, 0], q[i, 1], q[i, 2]
        fx, fy, fz = 0.0, 0.0, 0.0
        for k in range(start[i], start[i + 1]):
            j = index[k]
            dx, dy, dz = x - q[j, 0], y - q[j, 1], z - q[j, 2]
            dx -= edge * np.rint(dx * inverse)
            dy -= edge * np.rint(dy * inverse)
            dz -= edge * np.rint(dz * inverse)
            s = dx * dx + dy * dy + dz * dz
            if s < end:
                u = 1.0 / s
                u3 = u * u * u
                w = 24.0 * u * (2.0 * u3 * u3 - u3)
                if s > on:
                    t = (s - on) / (end - on)
                    smooth = 1 - t * t * t * (10 - t * (15 - 6 * t))
                    slope = -30 * t * t * (1 - t) * (1 - t) / (end - on)
                    w = w * smooth - 8.0 * (u3 * u3 - u3) * slope
                fx += w * dx
                fy += w * dy
                fz += w * dz
                out[j, 0] -= w * dx
                out[j, 1] -= w * dy
                out[j, 2] -= w * dz
        out[i, 0] += fx
        out[i, 1] += fy
        out[i, 2] += fz


@loop
def hand_written(q, v, edge, h, steps):
    n = len(q)
    start, index, f = np.zeros(n + 1, np.int64), np.zeros(80 * n, np.int32), np.zeros_like(q)
    reference = q.copy()
    half_lists(q, edge, CUTOFF + SKIN, start, index)
    forces(q, edge, start, index, f)
    lists = 1
    for _ in range(steps):
        far, fast = 0.0, 0.0
        for i in range(n):
            moved, step = 0.0, 0.0
            for k in range(3):
                v[i, k] += 0.5 * h * f[i, k]
                q[i, k] += h * v[i, k]
                moved += (q[i, k] - reference[i, k]) ** 2
                step += (h * v[i, k]) ** 2
            far, fast = max(far, moved), max(fast, step)
        if np.sqrt(far) + 2 * np.sqrt(fast) > SKIN / 2:
            reference[:] = q
            half_lists(q, edge, CUTOFF + SKIN, start, index)
            lists += 1
        forces(q, edge, start, index, f)
        for i in range(n):
            for k in range(3):
                v[i, k] += 0.5 * h * f[i, k]
    return lists


def measure(atoms: int = 4096, steps: int = 500, rounds: int = 5) -> dict[str, float]:
    """Seconds a step of both, and their ratio."""
    model = gm.models.lennard_jones_fluid(atoms=atoms, cutoff=CUTOFF, skin=SKIN)
    edge, h = model.system.auxiliary.box.lengths[0], 0.004
    melted = gm.simulate(model.system, model.q0, model.v0, method=gm.Verlet(), dt=h, t_end=500 * h, save_every=500)
    q0, v0 = np.asarray(melted.q[-1]), np.asarray(melted.v[-1])

    def ours() -> gm.Trajectory:
        end = steps * h
        return gm.simulate(model.system, q0, v0, method=gm.Verlet(), dt=h, t_end=end, save_every=steps)

    best = {"geomint": np.inf, "hand-written": np.inf}
    run, lists = ours(), hand_written(q0.copy(), v0.copy(), edge, h, 2)
    q, v = q0.copy(), v0.copy()
    for _ in range(rounds):
        began = time.perf_counter()
        run = ours()
        best["geomint"] = min(best["geomint"], (time.perf_counter() - began) / steps)
        q, v = q0.copy(), v0.copy()
        began = time.perf_counter()
        lists = hand_written(q, v, edge, h, steps)
        best["hand-written"] = min(best["hand-written"], (time.perf_counter() - began) / steps)
    apart = np.abs(np.asarray(run.q[-1]) - q).max()
    return {**best, "ratio": best["geomint"] / best["hand-written"], "new lists": lists, "apart": apart}


if __name__ == "__main__":
    for name, x in measure().items():
        print(f"{name:>14} {x:.4g}")
