"""Clusters of water at constant temperature as one GPU kernel: member-steps a second, beside XLA's vmap in one process.

python -m benchmarks.langevin_gpu                      all rows, each in a process of its own, at most SECONDS each
python -m benchmarks.langevin_gpu rigid-2 stiff-2      some of them
SECONDS=300 python -m benchmarks.langevin_gpu rigid-7

A row is gm.ensemble with GeometricLangevin and reduce=RadialDistribution, which counts distances of oxygens during the
run, all included. Steps of seven molecules have more operations than the engine takes by itself (LONGEST in
engines/pallas/code.py, because compiling them takes minutes): here the limit is raised. XLA's numbers come first, so
that they are known even where compiling the kernel takes longer than SECONDS.

rigid-N   N rigid TIP3P molecules, Rattle, BAOAB
stiff-N   the same with springs in place of the constraints (gm.penalize), StiffZhangSkeel, BAOAB
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any, NamedTuple

import jax
import numpy as np

import geomint as gm
from geomint.engines.pallas.engine import PallasCode

MEMBERS, TEMPERATURE, FRICTION = 10_000, 250.0, 0.05  # kelvin; 1/(10.18 fs): 4.9 a picosecond
DT, OMEGA = 0.1, 10.0  # 1.018 fs; of springs ½ω²|g|²
STEPS, SAVE_EVERY = {"kernel": 4000, "xla": 100}, 50
NAMES = ("rigid-2", "stiff-2", "stiff-7", "rigid-7")
SECONDS = float(os.environ.get("SECONDS", 140))


class Row(NamedTuple):
    system: Any
    method: Any
    q0: Any
    v0: Any
    molecules: int


def row_of(name: str) -> Row:
    kind, molecules = name.split("-")
    model = gm.models.water(int(molecules))
    stiff = kind == "stiff"
    system = gm.penalize(model.system, OMEGA) if stiff else model.system
    base = gm.StiffZhangSkeel() if stiff else gm.Rattle()
    method = gm.GeometricLangevin(base, friction=FRICTION, temperature=gm.units.EV.kT(TEMPERATURE))
    return Row(system, method, model.q0, model.v0, int(molecules))


def ran(row: Row, engine: str) -> Any:
    spread = lambda x: np.broadcast_to(x, (MEMBERS, *np.shape(x))).copy()
    oxygens = gm.RadialDistribution(bins=60, range=(2.0, 8.0), atoms=row.system.atoms, between=("O", "O"))
    return gm.ensemble(
        row.system,
        spread(row.q0),
        spread(row.v0),
        method=row.method,
        dt=DT,
        t_end=STEPS[engine] * DT,
        save_every=SAVE_EVERY,
        engine=engine,
        seed=1,
        reduce={"distances": oxygens, "kinetic": gm.Mean(kinetic_of(row.system))},
    )


def kinetic_of(system: Any) -> Any:
    mass = np.asarray(system.mass)
    return lambda q, p: 0.5 * (p * p / mass).sum()


def timed(row: Row, engine: str) -> tuple[float, float, Any]:
    """Member-steps a second of the second call, the seconds of the first one less those of the second, and the run."""
    began = time.perf_counter()
    ran(row, engine)
    middle = time.perf_counter()
    run = ran(row, engine)
    seconds = time.perf_counter() - middle
    return MEMBERS * STEPS[engine] / seconds, middle - began - seconds, run


def measure(name: str) -> None:
    PallasCode.longest = 10**6
    row = row_of(name)
    print(f"\n{name}: {row.method.name}, {MEMBERS:,} members, {row.q0.size} coordinates", flush=True)
    vmapped, ready, reference = timed(row, "xla")
    print(f"  XLA's vmap: {vmapped:.3e} member-steps/s, ready after {ready:.1f} s ({reference.engine})", flush=True)
    rate, ready, run = timed(row, "kernel")
    print(f"  kernel:     {rate:.3e} member-steps/s, ready after {ready:.1f} s ({run.engine[:200]})", flush=True)
    print(f"  ratio ×{rate / vmapped:.1f}", flush=True)
    means = [np.ravel(x.reduced["kinetic"].mean)[: STEPS["xla"] // SAVE_EVERY + 1] for x in (run, reference)]
    counts = [np.asarray(x.reduced["distances"].counts)[: len(means[0])] for x in (run, reference)]
    apart = np.abs(means[0] / means[1] - 1).max()
    print(
        f"  up to step {STEPS['xla']}, kernel less XLA: mean kinetic energies {apart:.1e}, "
        f"{np.abs(counts[0] - counts[1]).sum()} of {counts[1].sum()} distances in another bin",
        flush=True,
    )
    count = 9 * row.molecules - (3 * row.molecules if name.startswith("rigid") else 0)
    kelvin = 2 * np.ravel(run.reduced["kinetic"].mean)[-1] / (count * gm.units.EV.boltzmann)
    distances = run.reduced["distances"]
    peak = np.argmax(distances.counts[-1])
    print(
        f"  at the end {kelvin:.0f} K (thermostat {TEMPERATURE:g} K), most O–O distances at "
        f"{0.5 * (distances.edges[peak] + distances.edges[peak + 1]):.2f} Å",
        flush=True,
    )


def main(names: list[str] | None = None) -> None:
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}", flush=True)
    if jax.default_backend() != "gpu":
        print("there is no GPU here; nothing to measure.")
        return
    for name in names or NAMES:
        command = [sys.executable, "-m", "benchmarks.langevin_gpu", "--row", name]
        settings = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        try:
            subprocess.run(command, env=settings, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            print(f"  {name}: not within {SECONDS:g} s", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--row"]:
        measure(sys.argv[2])
    else:
        main(sys.argv[1:])
