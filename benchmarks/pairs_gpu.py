"""Droplets of TIP3P water on the default device: time of the force and of a step, and pair interactions per second.

Run with `python -m benchmarks.pairs_gpu [molecules …] [--variants] [--single]`, by default 1000 and 10,000. The forces
of droplets are compared with numpy. With --variants the force is timed with several settings of the
kernel, and the best of them serve for what follows; with --single forces are timed in single precision too. Steps are
compared with OpenMM's platform CUDA where it is installed (OpenMM-CUDA-13).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import geomint as gm
from benchmarks.pairs import ATTRACTION, CHARGES, COULOMB, REPULSION, droplet, openmm_droplet, rigid_droplet, water
from benchmarks.timing import of_a_step
from geomint.md import pair_gpu
from geomint.numerics.compilation import jit

# Of an H200: multiprocessors × operations a cycle × 1.98 GHz, and operations of one Coulomb pair (a fused one is one).
PEAK = {"double": 132 * 64 * 1.98e9, "single": 132 * 128 * 1.98e9}
OPERATIONS = 21
PRECISION = "double" if jax.config.jax_enable_x64 else "single"  # pyright: ignore[reportAttributeAccessIssue]


def by_numpy(q: np.ndarray, every: int = 1) -> np.ndarray:
    """The gradient of the energy of a droplet by the particles 0, every, …, one by one, in double precision."""
    n, out = len(q), np.zeros_like(q)
    charge, molecule = np.tile(CHARGES, n // 3), np.arange(n) // 3
    oxygen = np.arange(n) % 3 == 0
    for i in range(0, n, every):
        d, other = q[i] - q, molecule != molecule[i]
        s = np.where(other, np.sum(d**2, axis=1), 1.0)
        slope = -0.5 * COULOMB * charge[i] * charge * s**-1.5
        slope += (oxygen[i] & oxygen) * (-6 * REPULSION * s**-7 + 3 * ATTRACTION * s**-4)
        out[i] = np.sum((2 * slope * other)[:, None] * d, axis=0)
    return out[::every]


def each(function: Callable, x: jax.Array, seconds: float = 0.5) -> tuple[float, np.ndarray]:
    """Microseconds of one call of a function of an array like x, in a loop on the device, the median of 5; and its
    value but for rounding."""
    compiled = jit(lambda x, n, small: jax.lax.fori_loop(0, n, lambda i, x: x + small * function(x), x))
    loop = lambda x, n: compiled(x, n, 1e-12)
    found = np.asarray(compiled(x, 1, 1.0)) - np.asarray(x)
    began = time.perf_counter()
    jax.block_until_ready(loop(x, 20))
    count = max(20, int(seconds / 5 * 20 / (time.perf_counter() - began)))
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        jax.block_until_ready(loop(x, count))
        taken.append((time.perf_counter() - began) / count)
    return 1e6 * float(np.median(taken)), found


def check(largest: int) -> None:
    for n, every in [(n, every) for n, every in ((60, 1), (1000, 1), (10_000, 101)) if n <= max(largest, 60)]:
        q, both = droplet(n), water(n)
        expected = by_numpy(q, every)
        found = np.asarray(jax.jit(jax.grad(lambda x, both=both: both(x)))(jnp.asarray(q, float)), float)[::every]
        error = np.abs(found - expected).max() / np.abs(expected).max()
        print(f"{PRECISION}: forces of {n} molecules apart from numpy by {error:.2g} of the largest", flush=True)
    n = 60
    q, both = droplet(n), water(n)
    u = np.random.default_rng(0).normal(size=q.shape)
    product = jax.jit(lambda x: jax.jvp(jax.grad(lambda y: both(y)), (x,), (jnp.asarray(u, float),))[1])
    h = 1e-4
    finite = (by_numpy(q + h * u) - by_numpy(q - h * u)) / (2 * h)
    apart = np.abs(np.asarray(product(jnp.asarray(q, float))) - finite).max() / np.abs(finite).max()
    print(f"{PRECISION}: Hessian products apart from differences by {apart:.2g} of the largest", flush=True)


def measure(n: int) -> None:
    q, both = jnp.asarray(droplet(n), float), water(n)
    coulomb, lennard_jones = both.parts
    pairs = 9 * n * (n - 1) / 2
    for name, part in (("Coulomb", coulomb), ("Lennard-Jones", lennard_jones), ("force", both)):
        taken, _ = each(jax.grad(lambda x, part=part: part(x)), q)
        text = f"{n} molecules, {PRECISION}, {name}: {taken:.1f} µs"
        if part is coulomb:
            rate = pairs / taken * 1e6
            share = rate * OPERATIONS / PEAK[PRECISION]
            text += f", {rate:.3g} pairs a second, {share:.2f} of the peak"
        print(text, flush=True)


# Settings of pair_gpu: particles of a lane, pairs of an iteration.
SETTINGS = {1000: [(2, 4), (2, 2), (1, 4), (4, 4)], 10_000: [(2, 2), (2, 4), (4, 4)]}


def variants(n: int) -> None:
    """The force with other settings of the kernel; the best of them are kept for the rest of the run."""
    q, both = jnp.asarray(droplet(n), float), water(n)
    taken, first = {}, None
    for rows, unrolled in SETTINGS.get(n, []):
        pair_gpu.ROWS, pair_gpu.UNROLLED = {0: 1, 1500: rows}, unrolled
        jax.clear_caches()
        shape = f"  {n} molecules: {rows} particles of a lane, {unrolled} pairs"
        try:
            taken[rows, unrolled], force = each(jax.grad(lambda x: both(x)), q, 0.3)
            first = force if first is None else first
            apart = f"apart from the first by {np.abs(force - first).max() / np.abs(first).max():.1e}"
            print(f"{shape} of an iteration: {taken[rows, unrolled]:.1f} µs, {apart}", flush=True)
        except Exception as error:  # a shape that the compiler refuses must not end the table
            print(f"{shape}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    if taken:
        rows, pair_gpu.UNROLLED = best = min(taken, key=taken.__getitem__)
        pair_gpu.ROWS = {0: 1, 1500: rows}
        print(f"  {n} molecules: goes on with {best}", flush=True)
    jax.clear_caches()


def step(n: int, steps: int) -> None:
    """Whole steps of the constrained droplet, beside those of OpenMM."""
    system, q, v = rigid_droplet(n)
    run = lambda k: gm.simulate(system, q, v, method=gm.Rattle(), dt=0.05, t_end=0.05 * k, save_every=k, progress=False)
    print(f"{n} molecules: {of_a_step(run, steps):.1f} µs a step", flush=True)
    for precision in ("double", "mixed"):
        try:
            context = openmm_droplet(n, np.reshape(q, (-1, 3)), "CUDA", precision=precision)
        except Exception as error:  # not installed, or without this platform
            print(f"  OpenMM: {type(error).__name__}: {error}")
            return

        def peer(k: int, context: Any = context) -> None:
            context.getIntegrator().step(k)
            context.getState(energy=True).getPotentialEnergy()

        print(f"  OpenMM CUDA {precision}: {of_a_step(peer, steps):.1f} µs a step", flush=True)


def main(sizes: list[int]) -> None:
    print(jax.devices()[0], jax.__version__, flush=True)
    chosen = PRECISION == "double" and "--variants" in sys.argv
    if not chosen:
        check(max(sizes))
    for n in sizes:
        if chosen:
            variants(n)
            check(n)
        measure(n)
        if PRECISION == "double":
            step(n, 1000 if n <= 1000 else 60)


if __name__ == "__main__":
    main([int(x) for x in sys.argv[1:] if x.isdigit()] or [1000, 10_000])
    if PRECISION == "double" and "--single" in sys.argv:
        subprocess.run(
            [sys.executable, "-m", "benchmarks.pairs_gpu", *sys.argv[1:]], env={**os.environ, "JAX_ENABLE_X64": "0"}
        )
