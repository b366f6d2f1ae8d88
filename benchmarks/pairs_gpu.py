"""Droplets of TIP3P water on the default device: time of the force and of a step, and pair interactions per second.

Run with `python -m benchmarks.pairs_gpu [molecules …] [--variants]`, by default 1000 and 10,000; it checks the forces
of a small droplet against numpy first. Steps are compared with OpenMM's platform CUDA where it is installed
(OpenMM-CUDA-13).
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
from geomint.md import pair_gpu

# Of an H200: multiprocessors × operations a cycle × 1.98 GHz, and operations of one Coulomb pair (a fused one is one).
PEAK = {"double": 132 * 64 * 1.98e9, "single": 132 * 128 * 1.98e9}
OPERATIONS = 24
PRECISION = "double" if jax.config.jax_enable_x64 else "single"  # pyright: ignore[reportAttributeAccessIssue]


def by_numpy(q: np.ndarray) -> np.ndarray:
    """The gradient of the energy of a droplet, particle by particle, in double precision."""
    n, out = len(q), np.zeros_like(q)
    charge, molecule = np.tile(CHARGES, n // 3), np.arange(n) // 3
    oxygen = np.arange(n) % 3 == 0
    for i in range(n):
        d, other = q[i] - q, molecule != molecule[i]
        s = np.where(other, np.sum(d**2, axis=1), 1.0)
        slope = -0.5 * COULOMB * charge[i] * charge * s**-1.5
        slope += (oxygen[i] & oxygen) * (-6 * REPULSION * s**-7 + 3 * ATTRACTION * s**-4)
        out[i] = np.sum((2 * slope * other)[:, None] * d, axis=0)
    return out


def each(function: Callable, x: jax.Array, seconds: float = 1.0) -> float:
    """Microseconds of one call of a function of an array like x, in a loop on the device; median of 5."""
    loop = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda i, x: x + 1e-12 * function(x), x))
    jax.block_until_ready(loop(x, 3))
    began = time.perf_counter()
    jax.block_until_ready(loop(x, 20))
    count = max(20, int(seconds / 5 * 20 / (time.perf_counter() - began)))
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        jax.block_until_ready(loop(x, count))
        taken.append((time.perf_counter() - began) / count)
    return 1e6 * float(np.median(taken))


def check() -> None:
    n = 60
    q = droplet(n)
    both = water(n)
    found = np.asarray(jax.jit(jax.grad(lambda x: both(x)))(jnp.asarray(q, float)), float)
    expected = by_numpy(q)
    error = np.abs(found - expected).max() / np.abs(expected).max()
    print(f"{PRECISION}: forces of {n} molecules apart from numpy by {error:.2g} of the largest")
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
        taken = each(jax.grad(lambda x, part=part: part(x)), q)
        text = f"{n} molecules, {PRECISION}, {name}: {taken:.1f} µs"
        if part is coulomb:
            rate = pairs / taken * 1e6
            share = 2 * rate * OPERATIONS / PEAK[PRECISION]
            text += f", {rate:.3g} pairs a second, {share:.2f} of the peak (each pair is evaluated twice)"
        print(text, flush=True)


def variants(n: int) -> None:
    """The Coulomb force with other shapes of the grid."""
    q, (coulomb, _) = jnp.asarray(droplet(n), float), water(n).parts
    usual = pair_gpu.LANES, pair_gpu.WARPS, pair_gpu.PROGRAMS, pair_gpu.UNROLLED
    for lanes, warps, programs, unrolled in (
        (128, 4, 2112, 4), (128, 4, 1056, 4), (128, 4, 4224, 4), (128, 4, 2112, 1), (128, 4, 2112, 8),
        (64, 2, 4224, 4), (256, 8, 1056, 4), (256, 4, 1056, 2), (128, 2, 2112, 2), (32, 1, 8448, 4),
    ):  # fmt: skip
        pair_gpu.LANES, pair_gpu.WARPS, pair_gpu.PROGRAMS, pair_gpu.UNROLLED = lanes, warps, programs, unrolled
        jax.clear_caches()
        shape = f"  {n} molecules: lanes {lanes}, warps {warps}, programs {programs}, unrolled {unrolled}"
        try:
            print(f"{shape}: {each(jax.grad(lambda x: coulomb(x)), q, 0.3):.1f} µs", flush=True)
        except Exception as error:  # a shape that the compiler refuses must not end the table
            print(f"{shape}: {type(error).__name__}", flush=True)
    pair_gpu.LANES, pair_gpu.WARPS, pair_gpu.PROGRAMS, pair_gpu.UNROLLED = usual
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


def of_a_step(run: Callable[[int], Any], steps: int) -> float:
    """µs a step, from the difference of a long and a short run, the least of three."""
    run(steps), run(3 * steps)
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        run(steps)
        between = time.perf_counter()
        run(3 * steps)
        taken.append(1e6 * (time.perf_counter() - 2 * between + began) / (2 * steps))
    return min(taken)


def main(sizes: list[int]) -> None:
    print(jax.devices()[0], jax.__version__, flush=True)
    check()
    for n in sizes:
        measure(n)
        if PRECISION == "double" and "--variants" in sys.argv:
            variants(n)
    if PRECISION == "double":
        for n in sizes:
            step(n, 1000 if n <= 1000 else 60)


if __name__ == "__main__":
    main([int(x) for x in sys.argv[1:] if x.isdigit()] or [1000, 10_000])
    if PRECISION == "double":
        subprocess.run(
            [sys.executable, "-m", "benchmarks.pairs_gpu", *sys.argv[1:]], env={**os.environ, "JAX_ENABLE_X64": "0"}
        )
