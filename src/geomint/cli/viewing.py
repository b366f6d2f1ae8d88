"""``geomint view``: an archived run as an animation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def view(
    file: Annotated[Path, typer.Argument(help="An archive that `run -o` or gm.simulate(output=...) wrote.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page; .gif or .mp4 for a film.", show_default="FILE.html")
    ] = None,
    frames: Annotated[int | None, typer.Option(help="At most so many.", show_default="600")] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Write an animation of an archived run: one HTML file that plays in any browser."""
    from ..io.frame_files import archive_of
    from ..run import load

    run = load(archive_of(file))
    target = output or file.with_suffix(".html")
    if target.suffix.lower() in (".gif", ".mp4", ".webm", ".mov"):
        typer.echo(str(run.movie(target, frames=frames)))
        return
    page = run.view(target, frames=frames)
    typer.echo(str(page.path))
    if open_it:
        page.open()
