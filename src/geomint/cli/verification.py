"""``geomint certify``, ``reproduce`` and ``bench``: measure a method, repeat the papers' experiments, time geomint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ..errors import InputError
from .output import console, spinner, table, to_json

if TYPE_CHECKING:
    from ..papers import Reproduction

AsJson = Annotated[bool, typer.Option("--json", help="Only JSON on stdout.")]


def certify(
    model: Annotated[str, typer.Argument(help="A model or an expression.")],
    method: Annotated[str | None, typer.Argument(help="A method or an expression.", show_default="the model's")] = None,
    dt: Annotated[float | None, typer.Option(help="The step.", show_default="the model's")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the structure of a method on a model: order, symplecticity, symmetry, momentum maps, energy, constraints.

    Exit 1 where a claim of the method is contradicted.
    """
    from .. import methods, models
    from ..analysis.certify import certify as measured

    stated = models.named(model)
    chosen = stated.method if method is None else methods.named(method)
    with spinner(f"measuring {chosen.name} on {stated.name}"):
        certificate = measured(stated, chosen, dt=dt)
    typer.echo(to_json(certificate.to_dict()) if as_json else str(certificate))
    if not certificate.ok:
        raise typer.Exit(1)


def reproduce(
    selector: Annotated[
        str | None, typer.Argument(metavar="[PAPER[/EXPERIMENT]]", help="One paper, one experiment, or all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Reduced size, the same checks.")] = False,
    as_json: AsJson = False,
    out: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("out"),
) -> None:
    """Run the papers' experiments: print measured beside expected numbers, and draw the figures again.

    Exit 1 where a number is out of range. `geomint list papers` lists the experiments.
    """
    from .. import papers

    chosen = papers.find(selector)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: the folder can't be made ({error.strerror}).") from None
    done = []
    for each in chosen:
        with spinner(each.id):
            done.append(papers.reproduce(each, quick, out))
        if not as_json:
            console().print(_reproduction_table(done[-1]))
    good = all(each.ok for each in done)
    if as_json:
        typer.echo(to_json({"ok": good, "experiments": [each.to_dict() for each in done]}))
    else:
        console().print(_verdict(done))
    if not good:
        raise typer.Exit(1)


def _verdict(done: list[Reproduction]) -> Text:
    failed = [each.experiment.id for each in done if not each.ok]
    if failed:
        return Text(f"out of range: {', '.join(failed)}", style="bold red")
    checks = sum(len(each.checks) for each in done)
    return Text(f"in range: {len(done)} of {len(done)} ({checks} checks)", style="green")


def _reproduction_table(done: Reproduction) -> Table:
    size = "reduced size" if done.quick else "full size"
    title = f"{done.experiment.id}  {done.experiment.title} ({size}, {done.seconds:.1f} s)"
    made = table(title, "check", "measured", "expected", "range", "")
    for check in done.checks:
        verdict = Text("ok", style="green") if check.ok else Text("FAILED", style="bold red")
        made.add_row(Text(check.name), f"{check.measured:.6g}", Text(check.expected), Text(check.range), verdict)
    for row in done.information:  # numbers without a range have no verdict
        cells = Text(row.name), f"{row.measured:.6g}", Text(row.remark), Text("–"), Text("not checked")
        made.add_row(*cells, style="dim")
    if done.error:
        made.add_row(Text("the experiment itself"), "–", "an outcome", "–", Text("FAILED", style="bold red"))
    made.caption, made.caption_justify = Text(done.error or f"figure: {done.picture}"), "left"
    return made


def bench(ctx: typer.Context) -> None:
    """Run the benchmarks of a checkout: `python -m benchmarks` in this folder, with whatever arguments follow."""
    if not (Path.cwd() / "benchmarks" / "__main__.py").is_file():
        raise InputError(
            "the benchmarks are not part of the installed package; run this in a checkout of geomint "
            f"({Path.cwd()} has no benchmarks/__main__.py)."
        )
    raise typer.Exit(subprocess.run([sys.executable, "-m", "benchmarks", *ctx.args], check=False).returncode)
