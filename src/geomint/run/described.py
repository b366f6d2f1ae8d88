"""A run in one line, for its repr."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.core import Tracer

READABLE = 2**26  # energies that repr reads, half a gigabyte


def described(run: Any) -> str:
    """Method, step, times and the largest energy error."""
    count = run._count() if run.members else 1
    kind = f"{count} trajectories" + ", reduced" * (run.summary is not None) if run.members else "trajectory"
    span = f"t = {float(run.t[0]):g} … {float(run.t[-1]):g}" if len(run.t) else "no points"
    where = f", on disk in {run.path}" if run.path else ""
    about = f"{run.method.name}, dt = {run.grid.dt:g}, {span}, {len(run.t)} saved points"
    return f"<geomint {kind}: {about}{_largest_energy_error(run)}{where}>"


def _largest_energy_error(run: Any) -> str:
    """The largest energy error. A few rows are read at a time: the run may not fit into memory."""
    energy = run._column("energy") if "energy" in run.saved else None
    if energy is None or isinstance(energy, Tracer) or not 0 < np.size(energy) <= READABLE:
        return ""
    exchanged = [name for name in ("work", "heat") if name in run.saved]
    forced = run.system is not None and run.system.driven
    start, worst = None, 0.0
    for begin in range(0, len(run.t), 4096):
        piece = (slice(None), slice(begin, begin + 4096)) if run.members else slice(begin, begin + 4096)
        rows = np.asarray(energy[piece]) - sum(np.asarray(run._column(name)[piece]) for name in exchanged)
        start = rows[..., :1] if start is None else start
        with np.errstate(invalid="ignore"):
            worst = np.fmax(worst, np.fmax.reduce(np.abs(rows - start), axis=None))
    balance = " − ".join(("error of energy", *exchanged))
    name = balance if exchanged else "energy change" if forced else "energy error"
    return f", {name} {worst:.2g}"
