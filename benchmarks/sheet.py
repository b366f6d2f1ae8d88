"""Large sparse systems: an elastic sheet of triangles with a consistent, sparse mass matrix, by implicit methods.

`gm.models.elastic_sheet`: St. Venant–Kirchhoff material, clamped at the rim, stretched by a tenth. Steps are twice the
time in which a wave crosses an edge, on every mesh, which is about twenty times the model's own step for Verlet's
method: what is compared is the time of a step for each node. One process; memory is the largest it ever had (VmHWM).
"""

from __future__ import annotations

import resource

import numpy as np

import geomint as gm

from .timing import best_times, table

SIZES = (1250, 5000, 20_000)
METHODS = {"ImplicitMidpoint": gm.ImplicitMidpoint(), "ZhangSkeel": gm.ZhangSkeel()}
LONGER = 20  # times the step of the model
STEPS = 40


def run(nodes: int, method: gm.methods.Method, steps: int, longer: float = LONGER, **settings: object):
    model = gm.models.elastic_sheet(nodes)
    dt = longer * model.dt
    return gm.simulate(model.system, model.q0, model.v0, method=method, dt=dt, t_end=steps * dt, **settings)


def timed() -> None:
    """Differences of two lengths, so that the start of a run does not count."""
    lengths = {"short": 2, "long": 2 + STEPS}
    rows = []
    for name, method in METHODS.items():
        variants = {
            f"{nodes} {length}": lambda nodes=nodes, steps=steps, method=method: run(
                nodes, method, steps, save_every=steps
            )
            for nodes in SIZES
            for length, steps in lengths.items()
        }
        best = best_times(variants, rounds=3)
        each = []
        for nodes in SIZES:
            count = len(gm.models.elastic_sheet(nodes).q0)
            seconds = (best[f"{nodes} long"] - best[f"{nodes} short"]) / STEPS
            each.append(seconds / count)
            rows.append(
                (f"{name}, {count} nodes", f"{1e3 * seconds:.1f} ms", f"a step; {1e6 * each[-1]:.2f} µs a node")
            )
        rows.append(
            (f"{name}, largest ratio for a node", f"{max(each) / each[0]:.2f}", "at most 1.5 of the smallest mesh")
        )
        rows.append((f"{name}, solver", "", run(SIZES[-1], method, 1).solver or ""))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows.append(("memory of the process", f"{peak:.0f} MB", "below 1000 MB"))
    table("An elastic sheet, time of a step", rows)


def checked() -> None:
    """Against dense matrices on a small sheet, and the energy over 2000 steps."""
    rows = []
    for name, method in METHODS.items():
        dense = type(method)(solver="dense")
        exact, found = run(225, dense, 100), run(225, type(method)(solver="matrix-free"), 100)
        off = np.max(np.abs(found.q - exact.q))
        rows.append((f"{name}, difference from dense matrices", f"{off:.1e}", "225 nodes, 100 steps; below 1e-12"))
        long = run(1250, method, 2000, save_every=4)
        error = long.energy_error / long.energy[0]
        slope = np.polyfit(long.t / long.t[-1], error, 1)[0]
        rows.append((f"{name}, energy error", f"{np.max(np.abs(error)):.1e}", "relative, largest of 2000 steps"))
        rows.append((f"{name}, drift", f"{slope:.1e}", "of the energy error over these, by a straight line"))
    table("The same sheet, checked", rows)


def main() -> None:
    timed()
    checked()
