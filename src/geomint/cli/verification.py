"""``geomint certify`` and ``bench``: measure a method, time geomint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError
from .output import spinner, to_json

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


def bench(ctx: typer.Context) -> None:
    """Run the benchmarks of a checkout: `python -m benchmarks` in this folder, with whatever arguments follow."""
    if not (Path.cwd() / "benchmarks" / "__main__.py").is_file():
        raise InputError(
            "the benchmarks are not part of the installed package; run this in a checkout of geomint "
            f"({Path.cwd()} has no benchmarks/__main__.py)."
        )
    raise typer.Exit(subprocess.run([sys.executable, "-m", "benchmarks", *ctx.args], check=False).returncode)
