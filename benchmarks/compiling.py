"""The time of the first call of `simulate` for every model, compilation included: one trajectory, engine="auto"."""

from __future__ import annotations

import time
from typing import Any

import jax

import geomint as gm

from .timing import table

MOST = 10.0  # seconds


def methods(model: Any) -> list[Any]:
    """The method that one takes for a system like this, and with a potential an implicit one too."""
    if model.system.constraint is not None:
        return [gm.Rattle()]
    if model.inside:
        return [gm.EnergyStepping(1.0, inside=model.inside)]
    if not isinstance(model.system, gm.System):
        return [gm.Variational()]
    events = [gm.EnergyStepping(float(model.system.params["epsilon"]) / 6)] if model.name == "argon_cluster" else []
    return [gm.Verlet(), gm.ImplicitMidpoint(), *events]


def first_call(model: Any, method: Any) -> tuple[float, str]:
    """Seconds, and the engine that was used."""
    jax.clear_caches()
    began = time.perf_counter()
    dt = model.dt / 100  # short enough for any method
    run = gm.simulate(model.system, model.q0, model.v0, method=method, dt=dt, t_end=10 * dt)
    return time.perf_counter() - began, run.engine


def main() -> None:
    first_call(gm.models.harmonic_oscillator(), gm.Verlet())  # what JAX does once
    rows, longest = [], 0.0
    for name, make in gm.models.all().items():
        model = make()
        for method in methods(model):
            seconds, engine = first_call(model, method)
            rows.append((f"{name}, {method.name}", f"{seconds:.1f} s", engine))
            longest = max(longest, seconds)
    table(f"The first call of simulate: {longest:.1f} s at most (target {MOST:g})", rows)


if __name__ == "__main__":
    main()
