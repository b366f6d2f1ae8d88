"""The fixed cost of a call of gm.ensemble on a GPU: the second call against the kernel alone, results compared with a
run of the first members on XLA.

python -m benchmarks.ensemble_calls [--profile]; the last lines are verdicts."""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from typing import Any

import jax
import numpy as np

import geomint as gm
from geomint.engines import Kernel

from .gpu import Row, begun, start, timed

ROWS = {
    "16 coordinates": lambda: Row(gm.models.fpu(springs=8), gm.Verlet(), 1e-3, 2**18, 4000, target=0.15),
    "FPU": lambda: Row(gm.models.fpu(), gm.Verlet(form="drift"), 1e-3, 2**20, 40_000, target=0.22),
}


def call(row: Row, q: Any, v: Any, engine: str = "kernel") -> Any:
    settings = {"method": row.method, "dt": row.dt, "t_end": row.steps * row.dt, "save_every": row.steps}
    return gm.ensemble(row.model.system, q, v, engine=engine, **settings)


SAME = 1e-9  # difference from XLA, relative to the largest coordinate


def measure(name: str, row: Row, profile: bool) -> str:
    """The verdict."""
    q, v = start(row.model, row.members)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        run = call(row, q, v)
        seconds.append(time.perf_counter() - began)
    began = time.perf_counter()
    end = np.asarray(run.q[:, -1])
    copied = time.perf_counter() - began
    again = call(row, q, v)
    began = time.perf_counter()
    np.asarray(again.q)
    copied_again = time.perf_counter() - began
    few = np.asarray(call(row, q[:8], v[:8], "xla").q[:, -1])
    apart = float(np.max(np.abs(end[:8] - few)) / np.max(np.abs(few)))
    engine, carry, _ = begun(Kernel, row, row.members)
    kernel, _ = timed(engine, carry, row.steps, 3)
    print(
        f"{name}: {row.members:,} members x {q.shape[1:]}, {row.steps:,} steps, engine {run.engine}: calls "
        f"{', '.join(f'{s:.3f}' for s in seconds)} s (target {row.target}), reading q {copied:.3f} s and "
        f"{copied_again:.3f} s, kernel alone {kernel:.3f} s, apart from XLA {apart:.1e}",
        flush=True,
    )
    if profile:
        watcher = cProfile.Profile()
        watcher.runcall(call, row, q, v)
        pstats.Stats(watcher).sort_stats("cumulative").print_stats(35)
        pstats.Stats(watcher).sort_stats("tottime").print_stats(12)
    holds = "holds" if seconds[1] <= row.target and apart <= SAME and run.engine == "kernel" else "DOES NOT HOLD"
    return (
        f"{name}, {row.members:,} members, {row.steps:,} steps: second call at most {row.target} s {holds}, "
        f"{seconds[1]:.3f} s (later ones {min(seconds[2:]):.3f} s), engine {run.engine}, apart from XLA {apart:.1e}"
    )


if __name__ == "__main__":
    print(jax.devices()[0])
    found = [measure(name, make(), "--profile" in sys.argv) for name, make in ROWS.items()]
    print(*found, sep="\n")
