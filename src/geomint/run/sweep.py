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

from ..engines.grid import grid
from ..errors import (
    ArchiveBusy,
    ArchiveError,
    GeomintError,
    InputError,
    Interrupted,
    ProcessLost,
    RunStopped,
    nearest,
)
from ..io import archive
from ..methods import Method, as_method
from ..models import Model
from ..numerics.keywords import checked_keywords
from ..system.checks import as_path, flag, shown
from ..system.system import Stated, checked_system
from .defaults import end_of_model, of_model
from .executors import InThisProcess, TaskFailed, Tasks, checked_executor, run_tasks
from .inputs import check_seed
from .relay import relayed_after_fork
from .resume import resume
from .shards import BUSY_SECONDS
from .simulate import simulate
from .sweep_table import FAILED, Point, Table, described
from .trajectory import Trajectory
from .workers import opened, pickled

SETTINGS = ("q0", "v0", "p0", "method", "dt", "t_end", "t0", "save_every", "engine", "compensated", "seed")
MOST_POINTS = 10**6
_CHECK = object()  # in place of a value: only check that its name is there


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
        if settings.get("t_end") is None and self.default_end is not None:
            when = settings["dt"], settings.get("t0", 0.0), settings.get("save_every", 1)
            settings["t_end"] = end_of_model(self.default_end, *when)
        return system, settings


@checked_keywords(others=SETTINGS)
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

    system:   a system with q0 and v0, or a model of gm.models, whose method, dt and t_end are the defaults.
    over:     {name: values}. A name is an argument of gm.simulate ("dt", "method", "t_end", "q0", "seed", …), "params",
              or a part of the params by its name, "params.k". Points that differ in dt or params do not compile again.
    settings: all other arguments of gm.simulate.
    executor: as in gm.ensemble: every point is a task. None: one after another in this process.
    output:   a folder; every point has an archive there. The same call again repeats nothing that has ended, and
              continues what was interrupted from its checkpoint.

    The table has, for every point: status, message, warning, energy_error (the largest |H − H(0)|; where forces act,
    the largest change of H − work), end_time, seconds, q and p at the end, and file, the name of the archive in the
    folder. The status is "complete"; "stopped": gm.simulate raised RunStopped; "refused": geomint does not run these
    values; "failed": a file, the memory or a function of yours raised an error, and the same call again runs the point
    again.
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
    kept = f"{sum(point.status != FAILED for point in table.points.values())} of {count} points have ended."
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
    if not isinstance(over, Mapping) or not over:
        raise InputError(f'over must be a mapping such as {{"dt": [0.1, 0.01]}}, not {shown(over)}.')
    model, system = system, system.system if isinstance(system, Model) else system
    checked_system(system)
    for name, values in over.items():
        _check_name(system, name)
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or not len(values):
            raise InputError(f"over[{name!r}] must be a list of values, not {shown(values)}.")
    _check_overlap(list(over))
    p0, method, dt, t_end = (settings.get(name) for name in ("p0", "method", "dt", "t_end"))
    default_end = model.t_end if isinstance(model, Model) and t_end is None else None
    not_needed = (*over, "t_end") if default_end is not None else over
    call = of_model("sweep", model, q0, v0, over.get("p0", p0), method, dt, t_end, not_needed=not_needed)
    stated = settings | {"q0": call.q0, "v0": call.v0, "dt": call.dt}
    if math.prod(len(x) for x in over.values()) > MOST_POINTS:
        raise InputError(f"over has more than {MOST_POINTS} combinations.")
    if call.method is not None:
        stated["method"] = as_method(call.method)
    folder = None if output is None else as_path(output, "output").absolute()
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"output must be a folder, and {folder} is a file.")
    return Sweep(system, stated, default_end, tuple(over), folder)


def _check_name(system: Stated, name: Any) -> None:
    if not isinstance(name, str) or (name != "params" and not name.startswith("params.") and name not in SETTINGS):
        raise InputError(
            f"over: {shown(name)} is neither an argument of gm.simulate nor params or a part of them, as 'params.k'."
            + (nearest(name, SETTINGS) if isinstance(name, str) else "")
        )
    if name.startswith("params"):
        _replaced(system.params, name.split(".")[1:], _CHECK, name)


def _check_overlap(names: list[str]) -> None:
    """Refuse params and a part of them together: the result would depend on their order."""
    for one, other in itertools.permutations(names, 2):
        if other.startswith(one + "."):
            raise InputError(f"over: {other!r} is a part of {one!r}; give one of them.")


def _fitted(old: Any, value: Any, name: str) -> Any:
    """A value in the structure of the old one."""
    leaves, treedef = jax.tree.flatten(old)
    same = jax.tree.structure(value) == treedef
    given = [value] if len(leaves) == 1 and not same else jax.tree.leaves(value)
    try:
        arrays = [np.asarray(x) for x in given]
    except ValueError:  # rows of several lengths
        arrays = []
    if [x.shape for x in arrays] != [np.shape(x) for x in leaves] or (isinstance(value, Mapping) and not same):
        raise InputError(f"{name} must have the shape {[np.shape(x) for x in leaves]}, not {shown(value)}.")
    made = []
    for x, y in zip(arrays, map(np.asarray, leaves), strict=True):
        if np.can_cast(x.dtype, y.dtype, "same_kind"):
            made.append(np.asarray(x, y.dtype))  # the type of the old value, so that nothing is compiled again
        elif x.dtype.kind in "iuf" and y.dtype.kind in "iuf":
            made.append(x)  # 0.5 in place of the integer 1
        else:
            raise InputError(f"{name} must be {'a number' if x.ndim == 0 else 'of numbers'}, not {shown(value)}.")
    return jax.tree.unflatten(treedef, made)


def _replaced(params: Any, path: list[str], value: Any, name: str) -> Any:
    """The params with another value at a path of names; _CHECK only checks that the path is there."""
    if not path:
        if params is None:
            raise InputError(f"over[{name!r}]: the system has no params.")
        return params if value is _CHECK else _fitted(params, value, name)
    key, rest = path[0], path[1:]
    if isinstance(params, Mapping):
        if key not in params:
            raise InputError(f"over[{name!r}]: params have no {key!r}." + nearest(key, map(str, params)))
        return {**params, key: _replaced(params[key], rest, value, name)}
    if isinstance(params, (list, tuple)) and not hasattr(params, "_fields"):
        if key not in map(str, range(len(params))):
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
        except GeomintError as error:
            status, message = FAILED if isinstance(error, ArchiveError) else "refused", str(error)
        except Exception as error:  # of the memory, of the disk, of the user's functions
            status, message = FAILED, f"{type(error).__name__}: {error}"
        told = "; ".join(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning)))
        seconds = time.perf_counter() - began
        return Point(number, status, message, told, seconds, file if run is not None else None, **_measured(run))


def _run(sweep: Sweep, values: Sequence[Any], path: Path | None) -> Trajectory:
    """Run or continue a point. A task of an interrupted call may still write its archive: wait for it a while."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return _attempt(*sweep.stated(values), path)
        except ArchiveBusy:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def _attempt(system: Stated, settings: dict[str, Any], path: Path | None) -> Trajectory:
    if path is not None and path.exists():
        held = archive.read(path)
        if held.sequence:
            _check_point(held, system, settings)
            return resume(path, system, method=_with_functions(settings["method"]))
        archive.check_writable(path)
        path.unlink()  # its process was killed while it made it
    return simulate(system, settings.pop("q0"), settings.pop("v0"), output=path, **settings)


def _check_point(held: archive.Contents, system: Stated, settings: dict[str, Any]) -> None:
    """Check that an archive is that of a point; resume compares the system."""
    times = grid(settings["dt"], settings["t_end"], settings.get("t0", 0.0), settings.get("save_every", 1))
    here = {
        "method": as_method(settings["method"]).name,
        **{name: getattr(times, name) for name in ("t0", "dt", "steps", "save_every")},
        "seed": check_seed(settings.get("seed", 0)),
        "compensated": flag(settings.get("compensated", False), "compensated"),
        "members": False,
        **({"engine": "xla"} if settings.get("engine") == "xla" else {}),  # other engines may leave a run to XLA
    }
    there = held.meta | dict(zip(("t0", "dt", "steps", "save_every"), held.meta["grid"], strict=True))
    differing = [f"its {name} is {there[name]}, not {x}" for name, x in here.items() if there[name] != x]
    if not differing:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # resume and the first call warn
            # A run without steps, since some methods (Shake) save another p than that of v0.
            start = simulate(system, settings["q0"], settings["v0"], **_without_steps(settings, times.t0))
        differing = [
            f"it starts from another {name}"
            for name, x in (("q", start.q[0]), ("p", start.p[0]))
            if not _near(np.asarray(held.array(name)[0]), np.asarray(x))
        ]
    if differing:
        raise ArchiveError(
            f"{held.path} is not the archive of this point: {differing[0]}. Remove it, and the same call again runs "
            "the point.",
            held.path,
        )


def _without_steps(settings: dict[str, Any], t0: float) -> dict[str, Any]:
    return {name: x for name, x in settings.items() if name not in ("q0", "v0")} | {"t_end": t0}


def _near(x: np.ndarray, y: np.ndarray) -> bool:
    """Equal up to rounding, which differs between machines."""
    return x.shape == y.shape and bool(np.all(np.abs(x - y) <= 100 * np.finfo(x.dtype).eps * np.max(np.abs(y))))


def _with_functions(method: Any) -> Method | None:
    """The method, where an archive can't hold it."""
    method = as_method(method)
    return None if method.complete_name else method


def _measured(run: Trajectory | None) -> dict[str, Any]:
    if run is None or not len(run.t):
        return {"energy_error": math.nan, "end_time": math.nan, "q": None, "p": None}
    with np.errstate(invalid="ignore"):
        error = float(np.max(np.abs(run.balance_error)))
    return {"energy_error": error, "end_time": float(run.t[-1]), "q": np.array(run.q[-1]), "p": np.array(run.p[-1])}
