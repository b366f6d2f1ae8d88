"""Compensated summation: 1e7 steps of an order-8 composition on Kepler, e = .2, where rounding errors
dominate."""

from __future__ import annotations

import time

import numpy as np

import geomint as gm

from .timing import table


def main() -> None:
    model = gm.models.kepler(eccentricity=0.2)
    method = gm.Composition(gm.Verlet(form="drift"), order=8)
    growth, seconds = {}, {}
    for compensated in (False, True):
        began = time.perf_counter()
        run = gm.simulate(
            model.system,
            model.q0,
            model.v0,
            method=method,
            dt=0.05,
            t_end=500_000.0,
            save_every=1000,
            compensated=compensated,
        )
        seconds[compensated] = time.perf_counter() - began
        growth[compensated] = np.max(np.abs(run.energy_error[1:].reshape(10, -1).mean(axis=1)))
    table("compensated summation: Kepler, order 8, 1e7 steps", [
        ("growth of |H − H₀|, plain", f"{growth[False]:.2e}", ""),
        ("growth of |H − H₀|, compensated", f"{growth[True]:.2e}", ""),
        ("ratio", f"{growth[False] / growth[True]:.1f}", "target ≥ 5"),
        ("time, compensated / plain", f"{seconds[True] / seconds[False]:.2f}", ""),
    ])  # fmt: skip
