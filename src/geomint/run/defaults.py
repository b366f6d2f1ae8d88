"""A model in place of a system: what it gives where simulate, ensemble, sweep, certify and the command line are told
nothing else."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Any, NamedTuple

from ..engines.grid import whole_saves
from ..errors import InputError
from ..methods import Method
from ..models import Model, named
from ..system.checks import number, whole
from ..system.system import Stated

MODELS = "geomint.models"  # the functions that make models


class Call(NamedTuple):
    """The arguments of a run, those of the model where the user gave none."""

    system: Stated  # checked later, as all others
    q0: Any
    v0: Any
    p0: Any
    method: Method
    dt: float
    t_end: Any
    one_start: bool  # q0 is that of the model: one state, also for an ensemble


def of_model(
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
    not_needed: Container[str] = (),
) -> Call:
    """The arguments, with those of the model where the call has none; an error where an argument is missing and
    there is no model.

    callee:     the function that was called, for the error.
    not_needed: arguments that this function does not take, or has from elsewhere.
    """
    if isinstance(q0, Method):
        raise InputError(f"{callee}: q0 is the method {q0.name}; methods are given by name, method={q0.name}.")
    if not isinstance(system, Model):
        if getattr(system, "__module__", "").startswith(MODELS) and callable(system):
            raise InputError(f"{callee}: system is the function {system.__name__}; call it, as in {system.__name__}().")
        given = {"q0s" if callee == "ensemble" else "q0": q0, "method": method, "dt": dt, "t_end": t_end}
        missing = [name for name, x in given.items() if x is None and name not in not_needed]
        if missing:
            raise InputError(
                f"{callee} needs {_listed(missing)}; only a model (gm.models.kepler(), …) in place of the system has "
                "defaults for them."
            )
        return Call(system.as_now() if isinstance(system, Stated) else system, q0, v0, p0, method, dt, t_end, False)
    model, one_start = system, q0 is None
    v0 = model.v0 if v0 is None and p0 is None else v0
    method, dt = (model.method if method is None else method), (model.dt if dt is None else dt)
    if t_end is None and "t_end" not in not_needed:
        t_end = end_of_model(model.t_end, dt, t0, save_every)
    return Call(model.system.as_now(), model.q0 if one_start else q0, v0, p0, method, dt, t_end, one_start)


def end_of_model(duration: float, dt: Any, t0: Any, save_every: Any) -> float:
    """The end of a run from t0 over the duration of a model, rounded to whole saves."""
    dt, t0, save_every = number(dt, "dt"), number(t0, "t0"), whole(save_every, "save_every", least=1)
    return t0 + whole_saves(duration, dt, save_every)


def method_of_model(origin: str | None, q_shape: tuple[int, ...]) -> Method | None:
    """The method of the model with this expression, with its functions; None where there is no such model."""
    if origin is None:
        return None
    try:
        return named(origin, coordinates=math.prod(q_shape)).method
    except Exception:  # an expression from a file may raise anything
        return None


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
