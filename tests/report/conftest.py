"""A site of three small experiments: one with all that a page can show, one whose row fails, one that stops."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

from geomint.cli.app import app
from geomint.cli.reproduction import write_results
from geomint.errors import RunStopped
from geomint.papers import Check, Experiment, Outcome
from geomint.plots.figures import new_figure
from geomint.report import Entry, write_index, write_pages
from geomint.view import Scene


class Site(NamedTuple):
    folder: Path
    chosen: list[Experiment]
    entries: list[Entry]


def full(quick):
    """A pendulum, with `code` and a formula:

        q'' = −sin q

    - first point
    - second point

    The end."""
    t = np.linspace(0, 10, 200)
    figure = new_figure(10, 6)
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(t, np.sin(t), label="sin <q>")
    upper.plot(t, np.cos(t), "k--", label="cos q")
    upper.set(title="The angle", xlabel="time", ylabel="q")
    upper.legend()
    lower.semilogy(t, np.exp(-t), "C2", label="decay")
    lower.axhline(1e-2, color="0.5", label="bound")
    lower.set(title="The error", ylabel="error")
    lower.legend()
    positions = np.stack([np.sin(t), -np.cos(t)], axis=-1)[:, None]
    scene = lambda: Scene(t, positions, bonds=[(0, 1)], fixed=[(0.0, 0.0)], trail=20, title="pendulum")
    checks = [
        Check("period of the pendulum", 6.2831, (6.28, 6.29), paper=6.283, where="eq. (3)", spread=0.01),
        Check("a sign", 1.0, (0.9, 1.1), paper="−1", verdict="corrected", note="the sign is wrong"),
        Check("no drift", 0.3, (0.2, 0.4), paper=0.0, verdict="contradicted", note="it drifts"),
        Check("an exponent", 0.5, (0.4, 0.6), verdict="chaotic", spread=0.02),
        Check("wall time", 2.0, verdict="information"),
    ]
    parameters = {"step": 0.1, "seeds": (1, 2)}
    return Outcome(checks, figure, scene, parameters, left_out=["a run of <1000> periods"])


def failing(quick):
    """A row is out of its range."""
    figure = new_figure(5, 4)
    axes = figure.subplots()
    axes.plot([-1.0, 0.0, 1.0], [1.0, 2.0, 3.0])
    axes.set_xscale("symlog")
    return Outcome([Check("a number", 3.0, (1.0, 2.0), paper=1.5), Check("another", 1.0, (0.0, 2.0))], figure)


def stopping(quick):
    """It stops."""
    raise RunStopped("it blew up at t = 7.2 & more")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    chosen = [
        Experiment("tao-2015", "full", "A pendulum & its <error>", "Fig. 1", full),
        Experiment("tao-2015", "failing", "A number that fails", "Fig. 2", failing),
        Experiment("stern-2009", "stopping", "A run that stops", "section 3", stopping),
    ]
    entries = list(write_pages(chosen, True, folder))
    write_index(chosen, entries[::-1], folder, 0.0)
    write_results([entry.done for entry in entries], folder)
    return Site(folder, chosen, entries)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])
