"""geomint compare and geomint view."""

import json

import pytest
from typer.testing import CliRunner

import geomint as gm
from geomint.cli.app import app
from geomint.cli.comparing import split


def test_methods_are_divided_at_commas_outside_brackets():
    text = "verlet, Composition(Verlet(), order=8),MultiStage(half=[.1, .2])"
    assert split(text) == ["verlet", "Composition(Verlet(), order=8)", "MultiStage(half=[.1, .2])"]


def test_compare_prints_the_table_and_draws_the_diagram(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["compare", "harmonic_oscillator", "-m", "verlet", "--points", "2", "--t-end", "5"]
    result = CliRunner().invoke(app, [*arguments, "--json", "--plot-file", "diagram.png"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [row["method"] for row in rows] == ["Verlet()"] * 2
    assert rows[0]["error"] > rows[1]["error"]
    assert (tmp_path / "diagram.png").stat().st_size > 5000
    refused = CliRunner().invoke(app, ["compare", "kepler", "-m", "verle"])
    assert refused.exit_code == 2
    assert "verlet" in refused.stderr.lower()


def test_view_writes_a_page_of_an_archive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gm.simulate(gm.models.harmonic_oscillator(), t_end=2.0, output="run.h5")
    result = CliRunner().invoke(app, ["view", "run.h5"])
    assert result.stdout.strip() == "run.html"
    assert "harmonic_oscillator()" in (tmp_path / "run.html").read_text()
    assert CliRunner().invoke(app, ["view", "missing.h5"]).exit_code == 2
    with pytest.raises(gm.InputError, match=r"\.gif"):
        gm.load("run.h5").movie("film.mov2")
