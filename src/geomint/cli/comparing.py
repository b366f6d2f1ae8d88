"""``geomint compare``: methods on a model, errors beside costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import spinner, to_json


def compare(
    model: Annotated[str, typer.Argument(help="A model or an expression.")],
    methods: Annotated[
        str,
        typer.Option(
            "--methods", "-m", help="Methods or expressions, with commas between them: 'verlet,gauss,RungeKutta4()'."
        ),
    ],
    dt: Annotated[
        float | None, typer.Option(help="A step that works for one force a step.", show_default="the model's")
    ] = None,
    t_end: Annotated[
        float | None, typer.Option(help="Errors are measured up to here.", show_default="as far as they can be")
    ] = None,
    points: Annotated[int, typer.Option(help="Steps of each method, each half of the one before.")] = 6,
    plot_file: Annotated[Path | None, typer.Option(help="Draw the work-precision diagram into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Only JSON on stdout.")] = False,
) -> None:
    """Compare METHODS on MODEL: error against an independent reference, energy, momentum, CPU time."""
    from .. import models
    from ..analysis.compare import compare as compared
    from ..plots.figures import checked_path, save_figure

    stated, chosen = models.named(model), split(methods)
    picture = None if plot_file is None else checked_path(plot_file)
    with spinner(f"measuring {len(chosen)} methods on {stated.name}"):
        found = compared(stated, chosen, dt=dt, t_end=t_end, points=points)
    typer.echo(to_json(found.to_dict()) if as_json else str(found))
    if picture is not None:
        save_figure(found.plot(), picture)


def split(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
