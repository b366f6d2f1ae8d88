"""Fingerprints of trajectories, to show that a change of the code changed no number.

python -m benchmarks.same_numbers before.json              SHA-256 of q and p: all methods x two models x engines
python -m benchmarks.same_numbers after.json before.json   the same, compared with an earlier file
GEOMINT_PART=3/16 python -m ...                            only every sixteenth method, for many processes side by side

Bits are equal on one machine with one version of jax, jaxlib and llvmlite only.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from typing import Any

import numpy as np

import geomint as gm

STEPS = 1000
FREE = ("fpu", "henon_heiles", "kepler", "stiff_double_pendulum", "slow_exchange")
CONSTRAINED = ("triple_pendulum", "sphere_bodies", "chain", "heavy_top")
LAGRANGIAN = ("double_pendulum", "pendulum")


def candidates(method: Any) -> list[str]:
    """Names of models that a method may take, in the order in which they are tried."""
    traits = method.traits
    names = [
        *(CONSTRAINED if traits.constrained else ()),
        *(FREE if traits.free else ()),
        *(LAGRANGIAN if traits.lagrangian else ()),
    ]
    return [name for name in names if hasattr(gm.models, name)]


def digest(model: Any, method: Any, engine: str, dt: float) -> str:
    run = gm.simulate(
        model.system, model.q0, model.v0, method=method, dt=dt, t_end=STEPS * dt, save_every=STEPS // 10, engine=engine
    )
    found = hashlib.sha256()
    for array in (run.q, run.p):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def fingerprints(methods: list[Any], engines: tuple[str, ...] = ("xla", "native")) -> dict[str, str]:
    found: dict[str, str] = {}
    for method in methods:
        taken = 0
        for name in candidates(method):
            model, dt = getattr(gm.models, name)(), 0.005
            try:
                digests = {engine: digest(model, method, engine, dt) for engine in engines}
            except gm.GeomintError as error:
                if "engine" not in str(error) and "native" not in str(error):
                    continue
                digests = {engines[0]: digest(model, method, engines[0], dt)}
            for engine, value in digests.items():
                found[f"{method.name} | {name} | {engine}"] = value
                print(f"{value[:12]}  {method.name} | {name} | {engine}", flush=True)
            taken += 1
            if taken == 2:
                break
    return found


def main() -> int:
    warnings.simplefilter("ignore")
    part, parts = (int(x) for x in os.environ.get("GEOMINT_PART", "0/1").split("/"))
    found = fingerprints(list(gm.methods.all())[part::parts])
    with open(sys.argv[1], "w") as file:
        json.dump(found, file, indent=1, sort_keys=True)
    if len(sys.argv) == 2:
        return 0
    with open(sys.argv[2]) as file:
        before = json.load(file)
    different = [name for name in found if before.get(name) != found[name]]
    print(f"{len(found) - len(different)} of {len(found)} equal", *different, sep="\n  ")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
