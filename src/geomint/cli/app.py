"""The command line: geomint list, run, resume, info, certify, reproduce, bench.

Modules that take long to import are imported by the command that needs them.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
import typer.core
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import GeomintError, InputError, Interrupted, ProcessLost, RunStopped

if TYPE_CHECKING:
    from ..papers import Reproduction
    from ..run import Trajectory


# --- what is printed --------------------------------------------------------------------------------------------------
def _console() -> Console:
    """Of the terminal's width; wide where output goes to a file or a pipe, so that no row of a table is broken there."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)


def _complain(message: str) -> None:
    """One red line on stderr, whatever brackets it has and however long it is."""
    Console(stderr=True, highlight=False).print(Text(" ".join(message.split()), style="red"), soft_wrap=True)


def _kept(run: Any) -> str:
    """What is left of a run that ended early, in the words of someone at a shell."""
    if run is None or not len(run):
        return ""
    upto = f" {len(run)} saved points up to t = {float(run.t[-1]):g}"
    return f"{upto} are in {run.path}." if run.path else f"{upto} were in memory only; give -o FILE to keep them."


class _Commands(typer.core.TyperGroup):
    """Turns the errors that geomint raises on purpose into a line and an exit code, for every command."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ProcessLost as lost:
            _complain(str(lost))
            raise typer.Exit(3) from None
        except RunStopped as stopped:
            _complain(stopped.reason + _kept(stopped.run))
            raise typer.Exit(1) from None
        except Interrupted as interrupted:
            path = getattr(interrupted.run, "path", None)
            _complain(
                interrupted.reason + _kept(interrupted.run) + (f" `geomint resume {path}` goes on." if path else "")
            )
            raise typer.Exit(2) from None
        except GeomintError as error:
            _complain(str(error))
            raise typer.Exit(2) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError) or error.strerror is None:
                raise
            _complain(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
            raise typer.Exit(2) from None


def _facts(title: str, facts: dict[str, Any]) -> None:
    """A two-column table."""
    table = Table(title=title, box=box.SIMPLE_HEAD, show_header=False, title_justify="left", title_style="bold")
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        table.add_row(Text(_visible(name)), Text(_visible(str(fact))))
    _console().print(table)


def _visible(text: str) -> str:
    """Text from a file without codes that would move the cursor of a terminal or change its colours."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


app = typer.Typer(
    name="geomint", cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False,
    help="Mechanical systems simulated so that their structure survives.",
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"geomint {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Mechanical systems simulated so that their structure survives."""


# --- list -------------------------------------------------------------------------------------------------------------
class Kind(StrEnum):
    """What `list` can show alone."""

    methods = "methods"
    models = "models"
    papers = "papers"


@app.command("list")
def list_(kind: Annotated[Kind | None, typer.Argument(help="Only these.", show_default="all three")] = None) -> None:
    """The methods with their traits, the models, and the papers' experiments."""
    shown = {Kind.methods: _methods_table, Kind.models: _models_table, Kind.papers: _papers_table}
    for each in Kind if kind is None else (kind,):
        _console().print(shown[each]())


def _methods_table() -> Table:
    from .. import methods

    headings = ("order", "symplectic", "symmetric", "reversible", "energy", "momentum maps", "moves", "needs", "forces")
    narrow = _console().width < 150  # there a column for each trait would fold the names into towers
    table = _table("Methods", "name", *(("traits",) if narrow else headings))
    yes = lambda x: "yes" if x else "–"
    for method in methods.all():
        t = method.traits
        moves = " and ".join(kind for kind, able in (("free", t.free), ("constrained", t.constrained)) if able)
        cells = (str(t.order), yes(t.symplectic), yes(t.symmetric), yes(t.reversible), t.energy or "–", t.momentum_maps or "–",
                 moves, ", ".join(t.needs) or "–", "–" if t.forces is None else str(t.forces))  # fmt: skip
        if narrow:
            claims = [
                name if cell == "yes" else f"{name} {cell}"
                for name, cell in zip(headings, cells, strict=True)
                if cell != "–"
            ]
            cells = (", ".join(claims),)
        table.add_row(*map(Text, (method.name, *cells)))
    table.caption = "momentum maps: all of linear actions, or only those of translations (linear); forces: evaluations a step, where fixed"
    table.caption_justify = "left"
    return table


def _models_table() -> Table:
    from .. import models

    table = _table("Models", "name", "description", "degrees of freedom", "dt", "t_end")
    for name, make in models.all().items():
        try:
            made = make()
            cells = (made.description, str(np.size(made.q0)), f"{made.dt:g}", f"{made.t_end:g}")
        except GeomintError as error:  # a model that needs an extra package
            cells = (str(error), "–", "–", "–")
        table.add_row(*map(Text, (name, *cells)))
    return table


def _papers_table() -> Table:
    from .. import papers

    table = _table("Papers' experiments", "name", "title", "figure")
    for each in papers.all():
        table.add_row(*map(Text, (each.id, each.title, each.figure)))
    return table


# --- run, resume, info ------------------------------------------------------------------------------------------------
Progress = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="A progress bar.", show_default="on a terminal")
]


def _progress(wanted: bool | None) -> bool:
    return sys.stderr.isatty() if wanted is None else wanted


@app.command()
def run(
    model: Annotated[str, typer.Argument(help="A model or an expression, as in 'fpu(springs=5)'.")],
    method: Annotated[
        str | None,
        typer.Option(
            help="A method or an expression, as in 'Composition(Verlet(), order=8)'.",
            show_default="Verlet; Variational for a Lagrangian",
        ),
    ] = None,
    dt: Annotated[float | None, typer.Option(help="The step.", show_default="the model's")] = None,
    t_end: Annotated[
        float | None, typer.Option(help="The last time.", show_default="the model's, rounded to whole saves")
    ] = None,
    save_every: Annotated[int, typer.Option(help="Keep every so many steps.")] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Stream the run to this file (HDF5), with checkpoints.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the run, beside the output or into MODEL.png.")] = False,
    plot_file: Annotated[Path | None, typer.Option(help="Draw the run into this file.")] = None,
    compensated: Annotated[
        bool, typer.Option("--compensated", help="Sum the updates with compensation for rounding.")
    ] = False,
    members: Annotated[
        int | None,
        typer.Option(
            help="An ensemble of so many, with velocities spread around the model's; the first has the model's own."
        ),
    ] = None,
    spread: Annotated[
        float,
        typer.Option(
            help="Of an ensemble: normal perturbations of the velocities, as a share of the largest of them (of 1 at rest)."
        ),
    ] = 1e-3,
    seed: Annotated[int, typer.Option(help="Of the perturbations, and of stochastic methods.")] = 0,
    progress: Progress = None,
) -> None:
    """Simulate MODEL, or an ensemble of it, and say what became of its invariants."""
    from .. import methods, models
    from ..manifold.projection import perturbed
    from ..plots import figures as plots
    from ..run import ensemble, simulate
    from ..system.lagrangian import LagrangianSystem

    stated = models.named(model)
    moved_by = methods.named(method or ("Variational" if isinstance(stated.system, LagrangianSystem) else "Verlet"))
    picture = (
        plots.checked_path(plot_file or (output.with_suffix(".png") if output else f"{stated.name}.png"))
        if plot or plot_file
        else None
    )
    dt = stated.dt if dt is None else dt
    t_end = _whole_saves(stated.t_end, dt, save_every) if t_end is None else t_end
    began = time.perf_counter()
    settings: dict[str, Any] = dict(
        method=moved_by,
        dt=dt,
        t_end=t_end,
        save_every=save_every,
        output=output,
        progress=_progress(progress),
        compensated=compensated,
        seed=seed,
    )
    try:
        if members is None:
            done = simulate(stated.system, stated.q0, stated.v0, **settings)
        else:
            done = ensemble(
                stated.system,
                *perturbed(stated.system, stated.q0, stated.v0, members, spread, seed),
                mesh="all",
                **settings,
            )
    except (RunStopped, Interrupted) as early:
        if early.run is not None:
            _report(early.run, time.perf_counter() - began, picture)
        raise
    _report(done, time.perf_counter() - began, picture)


def _whole_saves(t_end: float, dt: float, save_every: int) -> float:
    """The model's t_end moved to a whole number of saves, since the user did not ask for it; bad input is judged later."""
    if not (dt > 0 and save_every >= 1 and t_end / dt < 2**53):
        return t_end
    saves = round(t_end / (dt * save_every))
    return (
        saves * save_every * dt if saves else max(1, round(t_end / dt)) * dt
    )  # one save may be far beyond the model's end


def _report(done: Trajectory, seconds: float, picture: Path | None) -> None:
    """The summary of a run, and its picture where one is wanted."""
    facts: dict[str, Any] = {"final time": f"{float(done.t[-1]):.12g}", "saved points": len(done)}
    if done.members:
        facts["members"] = f"{len(done.failed_at)}, of which {np.count_nonzero(done.failed_at >= 0)} failed"
    if "energy" not in done.columns:  # an ensemble of which no member was kept
        facts["reduced"] = ", ".join(done.reduced)
        return _facts(str(done.path), facts | {"engine": done.engine, "wall time": f"{seconds:.2f} s"})
    error, start = float(np.max(np.abs(done.energy_error))), float(np.max(np.abs(np.asarray(done.energy)[..., 0])))
    facts["max |energy error|"] = f"{error:.3e}" + (f"  ({error / start:.1e} of the energy)" if start > 0 else "")
    for name, values in done.momentum_maps.items():
        values = np.asarray(values)
        first = values[:, :1] if done.members else values[:1]
        facts[f"momentum map {name}"] = f"deviates by at most {np.max(np.abs(values - first)):.3e}"
    if done.constraint_residual.shape[-1]:
        facts["max |constraint|"] = f"{np.max(np.abs(done.constraint_residual)):.3e}"
    facts |= {"engine": done.engine, "wall time": f"{seconds:.2f} s"}
    if done.path:
        facts["output"] = done.path
    if picture:
        from ..plots import figures as plots

        facts["picture"] = plots.save_figure(done.plot(), picture)
    _facts(f"{getattr(done.system, 'origin', None) or 'run'}: {done.method.name}, dt = {done.dt:g}", facts)


@app.command()
def resume(
    file: Annotated[Path, typer.Argument(help="An archive that `run -o` or gm.simulate(output=...) wrote.")],
    t_end: Annotated[float | None, typer.Option(help="The last time.", show_default="that of the run")] = None,
    progress: Progress = None,
) -> None:
    """Continue an archived run of a model from its last checkpoint, bit for bit as if it had never stopped."""
    from ..io import archive
    from ..run import resume as continued

    began = time.perf_counter()
    mesh = "all" if archive.read(file).meta["members"] else None
    _report(continued(file, t_end=t_end, progress=_progress(progress), mesh=mesh), time.perf_counter() - began, None)


@app.command()
def info(file: Annotated[Path, typer.Argument(help="An archive.")]) -> None:
    """What an archive holds, and how far its run got."""
    from ..engines.grid import Grid
    from ..io import archive

    held = archive.read(file)
    meta, grid = held.meta, Grid(*held.meta["grid"])
    reached = grid.t0 + held.step * grid.dt
    if held.step >= grid.steps:
        state = "complete"
    else:
        state = f"unfinished: {_how_to_go_on(held)}" if held.sequence else "no checkpoint: it can't be continued"
    facts = {
        "origin": meta["origin"] or "a system stated in Python (resume it with gm.resume(file, system=...))",
        "method": meta["method"],
        "grid": f"dt = {grid.dt:g}, t = {grid.t0:g} … {grid.t_end:g}, saved every {grid.save_every} steps",
        "rows saved": f"{held.rows} of {grid.saves}",
        "step reached": f"{held.step} of {grid.steps}, t = {reached:g}",
        "state": state,
        "columns": ", ".join(
            f"{name} {'×'.join(map(str, c.shape)) or 'scalar'}" for name, c in sorted(held.columns.items())
        ),
        "ensemble": f"{meta['carry'][0][1][0]} members, differing in their {meta['spread']}"
        if meta["members"]
        else "no",
        "engine": meta["engine"],
        "compensated": "yes" if meta["compensated"] else "no",
        "seed": "one for each member" if meta["seed"] is None else meta["seed"],
        "versions": ", ".join(f"{name} {v}" for name, v in meta["versions"].items()),
        "fingerprint": meta["fingerprint"],
        "size": f"{file.stat().st_size / 2**20:.2f} MiB",
    }
    _facts(str(file), facts)


def _how_to_go_on(held: Any) -> str:
    """What `geomint resume` would do with an unfinished run; found by setting the run up as it would."""
    from ..run.resume import obstacle

    refused = obstacle(held)
    return "`geomint resume` continues it" if refused is None else f"`geomint resume` would refuse it: {refused}"


# --- certify ----------------------------------------------------------------------------------------------------------
@app.command()
def certify(
    model: Annotated[str, typer.Argument(help="A model or an expression.")],
    method: Annotated[str, typer.Argument(help="A method or an expression.")],
    dt: Annotated[float | None, typer.Option(help="The step.", show_default="the model's")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Only JSON on stdout.")] = False,
) -> None:
    """Measure the structure of a method on a model: order, symplecticity, symmetry, momentum maps, energy, constraints. Exit 1 where a
    claim of the method is contradicted."""
    from .. import methods, models
    from ..analysis.certify import certify as measured

    stated, moved_by = models.named(model), methods.named(method)
    with _busy(f"measuring {moved_by.name} on {stated.name}"):
        certificate = measured(stated.system, moved_by, stated.q0, stated.v0, dt=stated.dt if dt is None else dt)
    typer.echo(_json(certificate.to_dict()) if as_json else str(certificate))
    if not certificate.ok:
        raise typer.Exit(1)


@contextlib.contextmanager
def _busy(what: str) -> Iterator[None]:
    """A sign of life on stderr while there is no bar to show; nothing where stderr is no terminal."""
    with Console(stderr=True).status(Text(what + " …")):
        yield


def _json(content: Any) -> str:
    """JSON that every reader takes: no NaN or infinity, numpy numbers as plain ones."""

    def plain(x: Any) -> Any:
        if isinstance(x, dict):
            return {str(k): plain(y) for k, y in x.items()}
        if isinstance(x, (list, tuple)):
            return [plain(y) for y in x]
        if isinstance(x, (np.ndarray, np.generic)):
            return plain(x.tolist())
        return None if isinstance(x, float) and not np.isfinite(x) else x

    return json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False, default=str)


# --- reproduce --------------------------------------------------------------------------------------------------------
@app.command()
def reproduce(
    selector: Annotated[
        str | None, typer.Argument(metavar="[PAPER[/EXPERIMENT]]", help="One paper, one experiment, or all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Reduced size, the same checks.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Only JSON on stdout.")] = False,
    out: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("out"),
) -> None:
    """Run the papers' experiments: measured beside expected, and the figure drawn again. Exit 1 where one is out of range."""
    from .. import papers

    chosen = papers.find(selector)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: the folder can't be made ({error.strerror}).") from None
    done = []
    for each in chosen:
        with _busy(each.id):
            done.append(papers.reproduce(each, quick, out))
        if not as_json:
            _console().print(_reproduction_table(done[-1]))
    good = all(each.ok for each in done)
    if as_json:
        typer.echo(_json({"ok": good, "experiments": [each.to_dict() for each in done]}))
    else:
        failed = [each.experiment.id for each in done if not each.ok]
        passed = f"in range: {len(done)} of {len(done)} ({sum(len(each.checks) for each in done)} checks)"
        _console().print(
            Text(f"out of range: {', '.join(failed)}" if failed else passed, style="bold red" if failed else "green")
        )
    if not good:
        raise typer.Exit(1)


def _reproduction_table(done: Reproduction) -> Table:
    size = "reduced size" if done.quick else "full size"
    table = _table(
        f"{done.experiment.id}  {done.experiment.title} ({size}, {done.seconds:.1f} s)",
        "check",
        "measured",
        "expected",
        "range",
        "",
    )
    for check in done.checks:
        verdict = Text("ok", style="green") if check.ok else Text("FAILED", style="bold red")
        table.add_row(Text(check.name), f"{check.measured:.6g}", Text(check.expected), Text(check.range), verdict)
    for row in done.information:  # no range, no verdict: these numbers are not checked
        table.add_row(
            Text(row.name), f"{row.measured:.6g}", Text(row.remark), Text("–"), Text("not checked"), style="dim"
        )
    if done.error:
        table.add_row(Text("the experiment itself"), "–", "an outcome", "–", Text("FAILED", style="bold red"))
    table.caption, table.caption_justify = Text(done.error or f"figure: {done.picture}"), "left"
    return table


# --- bench ------------------------------------------------------------------------------------------------------------
@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(ctx: typer.Context) -> None:
    """Run the benchmarks of a checkout: `python -m benchmarks` in this folder, with whatever arguments follow."""
    if not (Path.cwd() / "benchmarks" / "__main__.py").is_file():
        raise InputError(
            f"the benchmarks are not part of the installed package; run this in a checkout of geomint ({Path.cwd()} has no benchmarks/__main__.py)."
        )
    raise typer.Exit(subprocess.run([sys.executable, "-m", "benchmarks", *ctx.args], check=False).returncode)
