"""The command line in an empty folder."""

import pytest
from typer.testing import CliRunner

from geomint.cli.app import app


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])
