"""Large sparse systems: an elastic sheet of triangles with a consistent, sparse mass matrix, by implicit methods.

`gm.models.elastic_sheet`: St. Venant–Kirchhoff material, clamped at the rim, stretched by a tenth. Steps are twice the
time in which a wave crosses an edge, on every mesh, which is twenty times the model's own step for Verlet's method:
what is compared is the time of a step for each node. Memory is the largest that a process which does nothing else ever
had (ru_maxrss), including Python, JAX and the compiler.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from scipy import sparse

import geomint as gm
from geomint.numerics.linalg.colouring import column_colours

from .timing import best_times, table

SIZES = (5000, 10_000, 20_000, 40_000)
MEASURED = 20_000  # nodes of the run whose memory is measured
METHODS = {"ImplicitMidpoint": gm.ImplicitMidpoint(), "ZhangSkeel": gm.ZhangSkeel()}
LONGER = 20  # times the step of the model
STEPS = 10
ALONE = """
import resource
from benchmarks import sheet
run = sheet.run({nodes}, sheet.METHODS[{name!r}], 20, save_every=20)
assert abs(run.energy_error[-1]) < 1e-3 * run.energy[0]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def run(nodes: int, method: gm.methods.Method, steps: int, longer: float = LONGER, **settings: object):
    model = gm.models.elastic_sheet(nodes)
    dt = longer * model.dt
    return gm.simulate(model.system, model.q0, model.v0, method=method, dt=dt, t_end=steps * dt, **settings)


def memory() -> None:
    rows = []
    for name in METHODS:
        command = [sys.executable, "-c", ALONE.format(nodes=MEASURED, name=name)]
        peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append((name, f"{peak:.0f} MB", "below 1000 MB"))
    table(f"An elastic sheet of {MEASURED} nodes, memory of a process that runs 20 steps", rows)


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
        best = best_times(variants, rounds=5)
        each = []
        for nodes in SIZES:
            count = len(gm.models.elastic_sheet(nodes).q0)
            seconds = (best[f"{nodes} long"] - best[f"{nodes} short"]) / STEPS
            each.append(seconds / count)
            rows.append(
                (f"{name}, {count} nodes", f"{1e3 * seconds:.1f} ms", f"a step; {1e6 * each[-1]:.2f} µs a node")
            )
        rows.append((f"{name}, ratio for a node", f"{each[-1] / each[0]:.2f}", "largest to smallest mesh; at most 1.5"))
        rows.append((f"{name}, solver", "", run(SIZES[-1], method, 1).solver or ""))
    table("An elastic sheet, time of a step", rows)


def coloured() -> None:
    """Columns of a symmetric pattern such that no two of one colour share a row, for 1e5 unknowns."""
    side = 183  # nodes with three components, coupled to the six neighbours of a node in a mesh of triangles
    grid = np.arange(side * side).reshape(side, side)
    edges = np.concatenate(
        [
            np.stack([a.ravel(), b.ravel()], axis=1)
            for a, b in ((grid[1:], grid[:-1]), (grid[:, 1:], grid[:, :-1]), (grid[1:, :-1], grid[:-1, 1:]))
        ]
    )
    nodes = sparse.coo_matrix((np.ones(len(edges), bool), edges.T), shape=(side**2, side**2)).tocsr()
    pattern = sparse.kron(nodes + nodes.T + sparse.eye(side**2, dtype=bool), np.ones((3, 3), bool), format="csr")
    best = best_times({"colours": lambda: column_colours(pattern)}, rounds=3)["colours"]
    colours = column_colours(pattern)
    rows = [(f"{pattern.shape[0]} unknowns, {pattern.nnz} entries", f"{best:.2f} s", f"{colours.max() + 1} colours")]
    table("Colouring the columns of a sparse matrix; below 2 s", rows)


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
    memory()
    coloured()
    timed()
    checked()
