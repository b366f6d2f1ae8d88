"""The application ``geomint``: its commands, and the exit codes of its errors.

Modules that are slow to import are imported inside the command that needs them, so that `geomint --help` stays fast.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
import typer.core

from ..errors import GeomintError, Interrupted, ProcessLost, RunStopped
from . import comparing, listing, reporting, reproduction, simulations, verification, viewing
from .output import print_error


def _what_is_saved(run: Any) -> str:
    """Where the saved points of a run that ended early are."""
    if run is None or not len(run.t):
        return ""
    upto = f" {len(run.t)} saved points up to t = {float(run.t[-1]):g}"
    return f"{upto} are in {run.path}." if run.path else f"{upto} were in memory only; give -o FILE to keep them."


class Commands(typer.core.TyperGroup):
    """Turns geomint's errors into one line on stderr and an exit code, for every command.

    Exit 1: the run stopped by itself. 2: bad input, an unreadable file, or interrupted. 3: another process died.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ProcessLost as lost:
            print_error(str(lost))
            raise typer.Exit(3) from None
        except RunStopped as stopped:
            print_error(stopped.reason + _what_is_saved(stopped.run))
            raise typer.Exit(1) from None
        except Interrupted as interrupted:
            path = getattr(interrupted.run, "path", None)
            advice = f" `geomint resume {path}` goes on." if path else ""
            print_error(interrupted.reason + _what_is_saved(interrupted.run) + advice)
            raise typer.Exit(2) from None
        except GeomintError as error:
            print_error(str(error))
            raise typer.Exit(2) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError) or error.strerror is None:
                raise
            print_error(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
            raise typer.Exit(2) from None


app = typer.Typer(
    name="geomint",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    help="Mechanical systems simulated so that their structure survives.",
)


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


app.command("list")(listing.list_)
app.command("run")(simulations.run)
app.command("resume")(simulations.resume)
app.command("view")(viewing.view)
app.command("info")(simulations.info)
app.command("certify")(verification.certify)
app.command("compare")(comparing.compare)
app.command("reproduce")(reproduction.reproduce)
app.command("report")(reporting.report)
app.command("bench", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(verification.bench)
