"""A model in place of (system, q0, v0): what it gives where simulate, ensemble, sweep and certify are not told."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from ..engines.grid import whole_saves
from ..errors import InputError
from ..models import Model
from ..system.checks import number, whole


class Stated(NamedTuple):
    """The arguments of a run, those of the model where the user gave none."""

    system: Any
    q0: Any
    v0: Any
    method: Any
    dt: Any
    t_end: Any


def with_defaults(
    callee: str,
    system: Any,
    q0: Any,
    v0: Any,
    p0: Any,
    method: Any,
    dt: Any,
    t_end: Any = None,
    t0: Any = 0.0,
    save_every: Any = 1,
    optional: tuple[str, ...] = (),
) -> Stated:
    """The arguments, with the defaults of a model; an error where one is missing that has no default.

    optional: arguments that this function does not need.
    """
    if not isinstance(system, Model):
        given = {"q0s" if callee == "ensemble" else "q0": q0, "method": method, "dt": dt, "t_end": t_end}
        missing = [name for name, x in given.items() if x is None and name not in optional]
        if missing:
            raise InputError(f"{callee} needs {_listed(missing)}; only a model of gm.models has defaults for them.")
        return Stated(system, q0, v0, method, dt, t_end)
    dt = system.dt if dt is None else dt
    if t_end is None and "t_end" not in optional:
        every, begin = whole(save_every, "save_every", least=1), number(t0, "t0")
        t_end = begin + whole_saves(system.t_end, number(dt, "dt"), every)
    return Stated(
        system.system,
        system.q0 if q0 is None else q0,
        system.v0 if v0 is None and p0 is None else v0,
        system.method if method is None else method,
        dt,
        t_end,
    )


def spread_over_members(system: Any, q0s: Any, v0s: Any, p0s: Any, params: Any) -> tuple[Any, Any]:
    """q0s and v0s of an ensemble: those of a model for all members, where only others or params have a member axis."""
    if not isinstance(system, Model) or (q0s is not None and (v0s is not None or p0s is not None)):
        return q0s, v0s
    counted = next((x for x in (q0s, v0s, p0s) if x is not None), params)
    leading = {np.shape(x)[:1] for x in jax.tree.leaves(counted)}
    if len(leading) != 1 or leading == {()}:
        raise InputError("ensemble(model, ...) needs q0s, v0s, p0s or params with a leading axis that counts members.")
    members = leading.pop()
    q0s = np.broadcast_to(system.q0, members + system.q0.shape) if q0s is None else q0s
    if v0s is None and p0s is None:
        v0s = np.broadcast_to(system.v0, members + system.v0.shape)
    return q0s, v0s


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
