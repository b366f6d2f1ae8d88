"""``geomint run``, ``resume`` and ``info``: simulate a model, continue an archived run, describe an archive."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from ..errors import InputError, Interrupted, RunStopped
from .cluster import Scheduler, Workers, executor_of, is_in_shards
from .output import print_facts

if TYPE_CHECKING:
    from ..models import Model
    from ..run import Trajectory

ModelName = Annotated[str, typer.Argument(help="A model or an expression, as in 'fpu(springs=5)'.")]
MethodName = Annotated[
    str | None,
    typer.Option(
        help="A method or an expression, as in 'Composition(Verlet(), order=8)'.",
        show_default="the model's",
    ),
]
Step = Annotated[float | None, typer.Option(help="The step.", show_default="the model's")]
LastTime = Annotated[
    float | None, typer.Option(help="The last time.", show_default="the model's, rounded to whole saves")
]
SaveEvery = Annotated[int, typer.Option(help="Keep every so many steps.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Stream the run to this file, with checkpoints: HDF5, or .xyz, .pdb, .h5md, .vtkhdf."
    ),
]
Plot = Annotated[bool, typer.Option("--plot", help="Draw the run, beside the output or into MODEL.png.")]
PlotFile = Annotated[Path | None, typer.Option(help="Draw the run into this file.")]
Compensated = Annotated[bool, typer.Option("--compensated", help="Sum the updates with compensation for rounding.")]
Members = Annotated[
    int | None,
    typer.Option(
        help="An ensemble of so many, with velocities spread around the model's; the first has the model's own."
    ),
]
Spread = Annotated[
    float,
    typer.Option(
        help="Of an ensemble: normal perturbations of the velocities, as a share of the largest of them (of 1 at rest)."
    ),
]
Seed = Annotated[int, typer.Option(help="Of the perturbations, and of stochastic methods.")]
Progress = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="A progress bar.", show_default="on a terminal")
]


def run(
    model: ModelName,
    method: MethodName = None,
    dt: Step = None,
    t_end: LastTime = None,
    save_every: SaveEvery = 1,
    output: Output = None,
    plot: Plot = False,
    plot_file: PlotFile = None,
    compensated: Compensated = False,
    members: Members = None,
    spread: Spread = 1e-3,
    seed: Seed = 0,
    progress: Progress = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> None:
    """Simulate MODEL, or an ensemble of it, and print how well its invariants are conserved."""
    from .. import methods, models
    from ..plots.figures import checked_path, unused

    stated = models.named(model)
    chosen = stated.method if method is None else methods.named(method)
    picture = None
    if plot or plot_file:
        default = output.with_suffix(".png") if output else Path(f"{stated.name}.png")
        picture = checked_path(plot_file or unused(default))
    settings: dict[str, Any] = {"method": chosen, "dt": dt, "t_end": t_end, "save_every": save_every, "output": output}
    settings |= {"progress": _progress(progress), "compensated": compensated, "seed": seed}
    began = time.perf_counter()
    try:
        if members is None and (workers or scheduler):
            raise InputError("--workers and --scheduler distribute an ensemble: give --members as well.")
        with executor_of(workers, scheduler) as executor:
            done = _simulated(stated, members, spread, settings, executor)
    except (RunStopped, Interrupted) as early:
        if early.run is not None and len(early.run.t):
            _print_summary(early.run, time.perf_counter() - began, picture)
        raise
    _print_summary(done, time.perf_counter() - began, picture)


def _simulated(model: Model, members: int | None, spread: float, settings: dict[str, Any], executor: Any) -> Trajectory:
    """One run, or an ensemble whose velocities are perturbed by the share `spread`."""
    from ..manifold.projection import perturbed
    from ..run import ensemble, simulate

    if members is None:
        return simulate(model, **settings)
    starts = perturbed(model.system, model.q0, model.v0, members, spread, settings["seed"])
    mesh = "all" if executor is None else None
    return ensemble(model, *starts, mesh=mesh, executor=executor, **settings)


def _progress(wanted: bool | None) -> bool:
    return sys.stderr.isatty() if wanted is None else wanted


def _print_summary(done: Trajectory, seconds: float, picture: Path | None) -> None:
    """Print the summary of a run, and draw its picture where one is wanted."""
    facts: dict[str, Any] = {"final time": f"{float(done.t[-1]):.12g}", "saved points": len(done.t)}
    if done.members:
        facts["members"] = f"{len(done.failed_at)}, of which {np.count_nonzero(done.failed_at >= 0)} failed"
    cost = {"engine": done.engine, "wall time": f"{seconds:.2f} s"}
    if "energy" not in done.columns:  # an ensemble of which only reductions were kept
        facts["reduced"] = ", ".join(done.reduced)
        return print_facts(str(done.path), facts | cost)
    facts |= _invariants(done) | cost
    if done.path:
        facts["output"] = done.path
    if picture:
        from ..plots.figures import save_figure

        facts["picture"] = save_figure(done.plot(), picture)
    print_facts(f"{getattr(done.system, 'origin', None) or 'run'}: {done.method.name}, dt = {done.dt:g}", facts)


def _invariants(done: Trajectory) -> dict[str, str]:
    """The largest errors of the energy, the momentum maps and the constraints."""
    error, start = float(np.max(np.abs(done.balance_error))), float(np.max(np.abs(np.asarray(done.energy)[..., 0])))
    relative = f"  ({error / start:.1e} of the energy)" if start > 0 else ""
    exchanged = [name for name in ("work", "heat") if name in done.columns]
    what = " − ".join(("error of energy", *exchanged)) if exchanged else "energy error"
    facts = {f"max |{what}|": f"{error:.3e}{relative}"}
    for name, values in done.momentum_maps.items():
        values = np.asarray(values)
        first = values[:, :1] if done.members else values[:1]
        facts[f"momentum map {name}"] = f"deviates by at most {np.max(np.abs(values - first)):.3e}"
    if done.constraint_residual.shape[-1]:
        facts["max |constraint|"] = f"{np.max(np.abs(done.constraint_residual)):.3e}"
    return facts


def resume(
    file: Annotated[Path, typer.Argument(help="An archive that `run -o` or gm.simulate(output=...) wrote.")],
    t_end: Annotated[float | None, typer.Option(help="The last time.", show_default="that of the run")] = None,
    progress: Progress = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> None:
    """Continue an archived run of a model from its last checkpoint, bit for bit as if it had never stopped. An ensemble
    in shards goes on with any number of workers."""
    from ..io import archive
    from ..io.frame_files import archive_of
    from ..run import resume as continued

    began, file = time.perf_counter(), archive_of(file)
    mesh = "all" if not is_in_shards(file) and archive.read(file).meta["members"] else None
    with executor_of(workers, scheduler) as executor:
        done = continued(
            file, t_end=t_end, progress=_progress(progress), mesh=mesh if executor is None else None, executor=executor
        )
    _print_summary(done, time.perf_counter() - began, None)


def info(file: Annotated[Path, typer.Argument(help="An archive.")]) -> None:
    """What an archive holds, and how far its run got."""
    from ..engines.grid import Grid
    from ..io import archive
    from ..io.frame_files import archive_of
    from ..io.index import read_index

    file = archive_of(file)
    index = read_index(file)
    if index is not None:
        return print_facts(str(file), _facts_of_index(index))
    held = archive.read(file)
    meta, grid = held.meta, Grid(*held.meta["grid"])
    reached = grid.t0 + held.step * grid.dt
    members = f"{meta['carry'][0][1][0]} members, differing in their {meta['spread']}" if meta["members"] else "no"
    facts = {
        "origin": meta["origin"] or "a system stated in Python (resume it with gm.resume(file, system=...))",
        "method": meta["method"],
        "grid": f"dt = {grid.dt:g}, t = {grid.t0:g} … {grid.t_end:g}, saved every {grid.save_every} steps",
        "rows saved": f"{held.rows} of {grid.saves}",
        "step reached": f"{held.step} of {grid.steps}, t = {reached:g}",
        "state": "complete" if held.step >= grid.steps else _how_to_continue(held),
        "columns": ", ".join(
            f"{name} {'×'.join(map(str, c.shape)) or 'scalar'}" for name, c in sorted(held.columns.items())
        ),
        "ensemble": members,
        "engine": meta["engine"],
        "compensated": "yes" if meta["compensated"] else "no",
        "seed": "one for each member" if meta["seed"] is None else meta["seed"],
        "versions": ", ".join(f"{name} {v}" for name, v in meta["versions"].items()),
        "fingerprint": meta["fingerprint"],
        "size": f"{file.stat().st_size / 2**20:.2f} MiB",
    }
    print_facts(str(file), facts)


def _facts_of_index(index: Any) -> dict[str, Any]:
    """What the index of a run in shards says, and how far the shards are."""
    from ..engines.grid import Grid
    from ..io.reader import reached

    meta, grid, places = index.meta, Grid(*index.meta["grid"]), index.shards
    steps = [reached(place.path) for place in places]
    complete, begun = sum(n >= grid.steps for n in steps), sum(place.path.exists() for place in places)
    share = sum((place.stop - place.start) * n for place, n in zip(places, steps, strict=True)) / index.members
    return {
        "origin": meta["origin"] or "a system stated in Python (resume it with gm.resume(file, system=...))",
        "method": meta["method"],
        "grid": f"dt = {grid.dt:g}, t = {grid.t0:g} … {grid.t_end:g}, saved every {grid.save_every} steps",
        "ensemble": f"{index.members} members, differing in their {meta['spread']}",
        "shards": f"{len(places)} in {index.folder}, {places[0].stop} members each",
        "progress": f"{complete} complete, {begun - complete} begun, {len(places) - begun} not begun; "
        f"{100 * share / max(1, grid.steps):.1f} % of all steps",
        "state": "complete" if index.rows is not None else _how_to_continue(index),
        "reduced": ", ".join(meta.get("reduce", {})) or "no",
        "engine": meta["engine"],
        "versions": ", ".join(f"{name} {v}" for name, v in meta["versions"].items()),
        "fingerprint": meta["fingerprint"],
        "size": f"{sum(p.path.stat().st_size for p in places if p.path.exists()) / 2**20:.2f} MiB",
    }


def _how_to_continue(held: Any) -> str:
    """What `geomint resume` would do with an unfinished run; found by setting the run up as `resume` does."""
    from ..run.resume import obstacle

    if getattr(held, "sequence", 1) == 0:
        return "no checkpoint: it can't be continued"
    refused = obstacle(held)
    if refused is None:
        return "unfinished: `geomint resume` continues it"
    return f"unfinished: `geomint resume` would refuse it: {refused}"
