"""Poincaré sections of Hénon-Heiles from 10,000 starts as one GPU kernel, beside machine code in one process.

python -m benchmarks.sections_gpu                 10,000 starts, 200 crossings each
STARTS=100000 CROSSINGS=50 python -m benchmarks.sections_gpu

Prints for each engine: seconds with and without compiling, crossings a second, the largest |f| of a point (to be below
1e-12), the largest energy error, and how far the first three crossings of the engines differ (later ones
of chaotic orbits separate). Exit 1 where a point is off the section, or the engines differ.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import jax
import numpy as np

import geomint as gm

STARTS, CROSSINGS = int(os.environ.get("STARTS", 10_000)), int(os.environ.get("CROSSINGS", 200))
ENERGY = 0.125
METHOD = gm.Composition(gm.Verlet(form="drift"), order=6)
DT = 0.2
ON_SECTION, SAME = 1e-12, 1e-10


def starts(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of the section x = 0 with ẋ > 0 on the energy surface, uniform in (y, ẏ)."""
    random = np.random.default_rng(1)
    y, py = random.uniform(-0.5, 0.7, 20 * count), random.uniform(-0.5, 0.5, 20 * count)
    square = 2 * ENERGY - py**2 - y**2 + 2 * y**3 / 3
    inside = np.flatnonzero(square > 0)[:count]
    y, py, px = y[inside], py[inside], np.sqrt(square[inside])
    return np.stack([0 * y, y], axis=1), np.stack([px, py], axis=1)


def plane(q: Any) -> Any:
    return q[0]


def found(engine: str) -> gm.Section:
    """The sections, with their cost printed."""
    q, v = starts(STARTS)
    model = gm.models.henon_heiles()
    settings: dict[str, Any] = {"f": plane, "method": METHOD, "dt": DT, "members": True, "engine": engine}
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        section = gm.section(model, q, v, crossings=CROSSINGS, **settings)
        seconds.append(time.perf_counter() - began)
    on = float(np.nanmax(np.abs(section.residual)))
    off = float(np.nanmax(np.abs(section.energy - ENERGY)))
    print(
        f"{engine:7s} ran as {section.run.engine}: {seconds[0]:.2f} s with compiling, {seconds[1]:.2f} s without, "
        f"{len(section) / seconds[1]:.3g} crossings a second; {len(section)} points, |f| at most {on:.1e}, "
        f"energy error at most {off:.1e}, at least {int(np.min(section.counts))} crossings of a start",
        flush=True,
    )
    return section


def main() -> int:
    print(
        f"{STARTS} starts, {CROSSINGS} crossings, {METHOD.name}, dt = {DT}, {jax.devices()[0]}, jax {jax.__version__}"
    )
    engines = ["kernel", "native"] if jax.default_backend() == "gpu" else ["native"]
    sections = [found(engine) for engine in engines]
    good = all(float(np.nanmax(np.abs(s.residual))) < ON_SECTION for s in sections)
    if len(sections) == 2:
        one, other = sections
        good &= one.run.engine.startswith("kernel")
        apart = [float(np.nanmax(np.abs(one.q[:, k] - other.q[:, k]))) for k in range(min(3, CROSSINGS))]
        print(f"largest difference of the first crossings: {', '.join(f'{x:.1e}' for x in apart)}")
        good &= apart[0] < SAME
    print("ok" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
