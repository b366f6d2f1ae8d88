"""Parts of a run: run[-1] and run[10:20] by saved point, ensemble[3] and ensemble[2:5] by member."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import jax
import numpy as np

from ..errors import InputError
from ..system.checks import shown
from .trajectory import Trajectory


@dataclasses.dataclass(frozen=True)
class Point:
    """One saved point of a run. `v` and `kinetic` are None where the run was loaded without its system."""

    t: float
    q: Any
    p: Any
    v: Any
    energy: Any
    kinetic: Any


def part(run: Trajectory, key: Any) -> Trajectory | Point:
    """run[key]: of one trajectory a `Point` for a number, a Trajectory for a slice; of an ensemble the Trajectory of a
    member, or the ensemble of some members. Parts of a run can't be resumed."""
    if run.summary is not None:
        raise InputError("a reduced ensemble has no single members to take by number; run.kept lists those kept.")
    count = len(run.q) if run.members else len(run.t)
    if isinstance(key, slice):
        return _members(run, key) if run.members else _points(run, key)
    try:
        i = operator.index(key)
    except TypeError:
        what = "a member" if run.members else "a saved point"
        raise InputError(f"run[...] takes the number of {what} or a slice of them, not {shown(key)}.") from None
    if not -count <= i < count:
        what = "members" if run.members else "saved points"
        raise IndexError(f"run[{i}]: this run has {count} {what}.")
    i %= count
    if run.members:
        return _members(run, i)
    one = _points(run, slice(i, i + 1))
    v, kinetic = (None, None) if run.system is None else (one.v[0], one.kinetic[0])
    return Point(float(one.t[0]), one.q[0], one.p[0], v, one.energy[0], kinetic)


def _points(run: Trajectory, chosen: slice) -> Trajectory:
    return _copied(run, t=run.t[chosen], columns=jax.tree.map(lambda x: x[chosen], run.columns))


def _members(run: Trajectory, chosen: int | slice) -> Trajectory:
    system, spread, members = run.system, run.spread, isinstance(chosen, slice)
    if spread == "states and params" and system is not None:
        system = system.with_params(jax.tree.map(lambda x: x[chosen], system.params))
    seed = run.seed if np.ndim(run.seed) == 0 else run.seed[chosen]
    columns = jax.tree.map(lambda x: x[chosen], run.columns)
    return _copied(
        run, t=run.t, columns=columns, system=system, members=members, spread=spread if members else "one", seed=seed
    )


def _copied(run: Trajectory, **changed: Any) -> Trajectory:
    names = ("members", "spread", "seed", "compensated", "engine")
    kept = {name: getattr(run, name) for name in names} | {"system": run.system, **changed}
    system, t, columns = (kept.pop(name) for name in ("system", "t", "columns"))
    return Trajectory(system, run.method, run.grid, t, columns, **kept)
