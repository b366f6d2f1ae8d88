"""What a notebook shows of a run: its repr, as a small table."""

from __future__ import annotations

import html
from typing import Any

import numpy as np
from jax.core import Tracer


def summary_table(run: Any) -> str:
    """Method, times, errors of energy, momentum maps and constraints as an HTML table."""
    first, last = (f"{float(run.t[k]):g}" for k in (0, -1)) if len(run.t) else ("–", "–")
    rows = {
        "system": getattr(run.system, "origin", None) or "a system",
        "method": f"{run.method.name}, dt = {run.grid.dt:g}, {run.engine.split()[0]} engine",
        "time": f"{first} … {last}, {len(run.t)} saved points",
    }
    if run.members:
        rows["members"] = str(run._count())
    elif len(run.t) and "energy" in run.columns and not isinstance(run.energy, Tracer):
        rows["energy error"] = f"at most {np.max(np.abs(run.balance_error)):.2e}"
        for name, values in run.momentum_maps.items():
            rows[f"momentum map {name}"] = f"deviates by at most {np.max(np.abs(values - values[0])):.2e}"
        if run.constraint_residual.shape[-1]:
            rows["constraint"] = f"|g(q)| at most {np.max(np.abs(run.constraint_residual)):.2e}"
    if run.stopped_at is not None:
        rows["stopped"] = f"by until= at t = {run.stopped_at:.12g}"
    cell = lambda x: html.escape(str(x))
    lines = "".join(f"<tr><th style='text-align:left'>{cell(k)}</th><td>{cell(x)}</td></tr>" for k, x in rows.items())
    return f"<table>{lines}</table>"
