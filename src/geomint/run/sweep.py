"""sweep: a run for every combination of some values, as a table. Failures are rows of the table, not exceptions."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..engines.grid import whole_saves
from ..errors import GeomintError, InputError, Interrupted, ProcessLost, RunStopped, nearest
from ..io import archive
from ..methods import Method, as_method
from ..models import Model
from ..system.checks import as_path, flag, shown
from ..system.system import Stated, checked_system
from .executors import InThisProcess, TaskFailed, Tasks, checked_executor, run_tasks
from .relay import relayed_after_fork
from .resume import resume
from .simulate import simulate
from .sweep_table import Point, Table, described
from .trajectory import Trajectory
from .workers import opened, pickled

SETTINGS = ("q0", "v0", "p0", "method", "dt", "t_end", "t0", "save_every", "engine", "compensated", "seed")
MOST_POINTS = 10**6


class Sweep(NamedTuple):
    """What all points of a sweep share."""

    system: Stated
    settings: dict[str, Any]  # of simulate
    default_end: float | None  # the t_end of a model, which is rounded to whole saves of each point
    names: tuple[str, ...]
    folder: Path | None

    def stated(self, values: Sequence[Any]) -> tuple[Stated, dict[str, Any]]:
        """The system and the settings of a point."""
        system, settings = self.system, dict(self.settings)
        for name, value in zip(self.names, values, strict=True):
            if name == "params" or name.startswith("params."):
                system = system.with_params(_replaced(system.params, name.split(".")[1:], value, name))
            else:
                settings[name] = value
        if "t_end" not in settings and self.default_end is not None:
            settings["t_end"] = whole_saves(self.default_end, settings["dt"], settings.get("save_every", 1))
        return system, settings


def sweep(
    system: Stated | Model,
    q0: Any = None,
    v0: Any = None,
    *,
    over: Mapping[str, Sequence[Any]],
    executor: Any = None,
    output: str | Path | None = None,
    progress: bool = False,
    **settings: Any,
) -> Any:
    """Run gm.simulate for every combination of values; an xarray.Dataset with one dimension for each swept name.

    system:   a system with q0 and v0, or a model of gm.models, whose dt and t_end are the defaults.
    over:     {name: values}. A name is an argument of gm.simulate ("dt", "method", "t_end", "q0", "seed", …), "params",
              or a part of the params by its name, "params.k". Points that differ in dt or params do not compile again.
    settings: all other arguments of gm.simulate.
    executor: as in gm.ensemble: every point is a task. None: one after another in this process.
    output:   a folder; every point has an archive there. The same call again repeats nothing that has ended, and
              continues what was interrupted from its checkpoint.

    The table has, for every point: status ("complete"; "stopped": gm.simulate raised RunStopped; "refused": it raised
    another error), message, warning, energy_error (the largest |H − H(0)|), end_time, seconds, q and p at the end, and
    file, the name of the archive in the folder.
    """
    made = _checked(system, q0, v0, over, output, settings)
    executor, progress = checked_executor(executor), flag(progress, "progress")
    values = list(itertools.product(*over.values()))
    table = Table(made.names, {name: list(x) for name, x in over.items()}, made.folder, described(made, over))
    todo = [k for k in range(len(values)) if k not in table.points]
    sent = made if executor is None else pickled(made, executor)
    tasks = Tasks(InThisProcess() if executor is None else executor, run_point, sent)
    from tqdm.auto import tqdm

    with tqdm(total=len(values), initial=len(table.points), unit="run", disable=not progress, desc="sweep") as bar:

        def ended(number: int, point: Point) -> None:
            table.add(point)
            bar.update(1)

        try:
            run_tasks(tasks, lambda k: (values[k],), todo, ended, lambda k: None, lambda: None)
        except (KeyboardInterrupt, TaskFailed, ProcessLost) as error:
            tasks.cancel()
            raise _ended_early(error, table, len(values)) from error
    return table.to_xarray()


def _ended_early(error: BaseException, table: Table, count: int) -> BaseException:
    kept = f"{len(table.points)} of {count} points have ended."
    advice = "The same call with the same output continues." if table.folder else "With output= it could be continued."
    cause = error.error if isinstance(error, TaskFailed) else error
    if isinstance(cause, KeyboardInterrupt):
        return Interrupted(f"interrupted; {kept}", advice)
    if isinstance(cause, ProcessLost):
        return ProcessLost(f"{cause.reason} {kept}", advice, path=table.folder)
    cause.add_note(f"{kept} {advice}")
    return cause


def _checked(system: Any, q0: Any, v0: Any, over: Any, output: Any, settings: dict[str, Any]) -> Sweep:
    """Check the names; what is wrong with single values is said in their rows."""
    default_end = None
    if isinstance(system, Model):
        q0 = system.q0 if q0 is None else q0
        v0 = system.v0 if v0 is None and "p0" not in settings else v0
        settings = {"dt": system.dt, **settings}
        system, default_end = system.system, system.t_end
    checked_system(system)
    if not isinstance(over, Mapping) or not over:
        raise InputError(f'over must be a mapping such as {{"dt": [0.1, 0.01]}}, not {shown(over)}.')
    for name, values in over.items():
        _check_name(system, name)
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or not len(values):
            raise InputError(f"over[{name!r}] must be a list of values, not {shown(values)}.")
    unknown = [name for name in settings if name not in SETTINGS]
    if unknown:
        raise InputError(f"sweep has no argument {unknown[0]!r}." + nearest(unknown[0], SETTINGS))
    stated = {"q0": q0, "v0": v0} | settings
    missing = [
        name
        for name in ("q0", "method", "dt", *(("t_end",) if default_end is None else ()))
        if stated.get(name) is None and name not in over
    ]
    if missing:
        raise InputError(f"sweep needs {' and '.join(missing)}, as an argument or in over.")
    if math.prod(len(x) for x in over.values()) > MOST_POINTS:
        raise InputError(f"over has more than {MOST_POINTS} combinations.")
    if "method" in settings:
        stated["method"] = as_method(settings["method"])
    folder = None if output is None else as_path(output, "output").absolute()
    return Sweep(system, stated, default_end, tuple(over), folder)


def _check_name(system: Stated, name: Any) -> None:
    if not isinstance(name, str) or (name != "params" and not name.startswith("params.") and name not in SETTINGS):
        raise InputError(
            f"over: {shown(name)} is neither an argument of gm.simulate nor params or a part of them, as 'params.k'."
            + (nearest(name, SETTINGS) if isinstance(name, str) else "")
        )
    if name.startswith("params"):
        _replaced(system.params, name.split(".")[1:], None, name)


def _replaced(params: Any, path: list[str], value: Any, name: str) -> Any:
    """The params with another value at a path of names; None only checks that the path is there."""
    if not path:
        if params is None:
            raise InputError(f"over[{name!r}]: the system has no params.")
        if value is None:
            return params
        leaves, treedef = jax.tree.flatten(params)
        given = [value] if len(leaves) == 1 and jax.tree.structure(value) != treedef else jax.tree.leaves(value)
        if len(given) != len(leaves) or any(np.shape(x) != np.shape(y) for x, y in zip(given, leaves, strict=True)):
            raise InputError(f"{name} must have the shape {[np.shape(x) for x in leaves]}, not {shown(value)}.")
        # The type of the old value, so that nothing is compiled again.
        return jax.tree.unflatten(
            treedef, [np.asarray(x, np.asarray(y).dtype) for x, y in zip(given, leaves, strict=True)]
        )
    key, rest = path[0], path[1:]
    if isinstance(params, Mapping):
        if key not in params:
            raise InputError(f"over[{name!r}]: params have no {key!r}." + nearest(key, map(str, params)))
        return {**params, key: _replaced(params[key], rest, value, name)}
    if isinstance(params, (list, tuple)) and not hasattr(params, "_fields"):
        if not key.isdigit() or int(key) >= len(params):
            raise InputError(f"over[{name!r}]: params have no entry {key!r}; they have 0 to {len(params) - 1}.")
        return type(params)(_replaced(x, rest, value, name) if k == int(key) else x for k, x in enumerate(params))
    if not hasattr(params, key):
        raise InputError(f"over[{name!r}]: params have no {key!r}.")
    holder: Any = params
    inner = _replaced(getattr(holder, key), rest, value, name)
    if hasattr(holder, "_replace"):
        return holder._replace(**{key: inner})
    return dataclasses.replace(holder, **{key: inner})


# --- one point ---
@relayed_after_fork
def run_point(payload: Any, number: int, values: Sequence[Any]) -> Point:
    """The task: run a point, or continue it from its archive."""
    with opened(payload) as sweep, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        file = None if sweep.folder is None else f"{number:05d}.h5"
        began, status, message, run = time.perf_counter(), "complete", "", None
        try:
            run = _run(sweep, values, sweep.folder / file if sweep.folder and file else None)
        except RunStopped as stopped:
            status, message, run = "stopped", str(stopped), stopped.run
        except (GeomintError, MemoryError) as error:
            status, message = "refused", str(error)
        told = "; ".join(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning)))
        seconds = time.perf_counter() - began
        return Point(number, status, message, told, seconds, file if run is not None else None, **_measured(run))


def _run(sweep: Sweep, values: Sequence[Any], path: Path | None) -> Trajectory:
    system, settings = sweep.stated(values)
    if path is not None and path.exists():
        if archive.read(path).sequence:
            return resume(path, system, method=_with_functions(settings["method"]))
        path.unlink()  # its process was killed while it made it
    return simulate(system, settings.pop("q0"), settings.pop("v0"), output=path, **settings)


def _with_functions(method: Any) -> Method | None:
    """The method, where an archive can't hold it."""
    method = as_method(method)
    return None if method.complete_name else method


def _measured(run: Trajectory | None) -> dict[str, Any]:
    if run is None or not len(run):
        return {"energy_error": math.nan, "end_time": math.nan, "q": None, "p": None}
    with np.errstate(invalid="ignore"):
        error = float(np.max(np.abs(np.asarray(run.energy_error))))
    return {"energy_error": error, "end_time": float(run.t[-1]), "q": np.array(run.q[-1]), "p": np.array(run.p[-1])}
