"""IMEX against Verlet, step for step: the price of an implicit fast part."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import geomint as gm

from .timing import best_times, table

LENGTHS = {100: 20_000, 1000: 4000, 10_000: 600}  # of the chain: steps timed


def stiff_chain(n: int) -> tuple[gm.System, np.ndarray]:
    """n unit masses between walls, every spring stiff and linear, with a soft quartic one beside it."""
    stretch = lambda q: jnp.diff(q, prepend=0.0, append=0.0)
    system = gm.System(lambda q: 0.25 * jnp.sum(stretch(q) ** 4), fast=lambda q: 0.5 * 1e4 * jnp.sum(stretch(q) ** 2))
    return system, np.sin(np.arange(1, n + 1))


def _row(name: str, system: gm.System, q0: np.ndarray, v0: np.ndarray, dt: float, steps: int) -> tuple[str, str, str]:
    go = lambda method: lambda: gm.simulate(system, q0, v0, method=method, dt=dt, t_end=steps * dt, save_every=steps)
    times = best_times({"Verlet": go(gm.Verlet()), "IMEX": go(gm.IMEX())}, rounds=9)
    solver = go(gm.IMEX())().solver
    per_step = {name: 1e6 * t / steps for name, t in times.items()}
    return (
        name,
        f"Verlet {per_step['Verlet']:.4g}, IMEX {per_step['IMEX']:.4g} µs/step",
        f"×{times['IMEX'] / times['Verlet']:.3g}; {solver}",
    )


def main() -> None:
    fpu = gm.models.fpu()
    rows = [_row("FPU, 3 stiff springs", fpu.system, fpu.q0, fpu.v0, 0.005, 400_000)]
    for n, steps in LENGTHS.items():
        system, q0 = stiff_chain(n)
        rows.append(_row(f"chain of {n} stiff springs", system, q0, 0 * q0, 0.002, steps))
    table("IMEX against Verlet, the same number of steps", rows)


if __name__ == "__main__":
    main()
