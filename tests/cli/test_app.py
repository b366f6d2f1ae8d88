"""The command line: what it prints, what it writes, how it fails."""

import importlib
import json
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import geomint as gm
from geomint import papers
from geomint.io import archive
from helpers.processes import COMMAND


def complaint(result, code=2):
    """The one line on stderr of a command that was refused."""
    assert result.exit_code == code, result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.output
    return lines[0]


def fact(result, name):
    """A row of a two-column table."""
    return re.search(rf"^ *{re.escape(name)}  +(.+?) *$", result.stdout, re.MULTILINE)[1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run kepler --dt nan", "dt must be finite"),
        ("run kepler --dt 1e-310", "more than 2\\*\\*53 steps"),
        ("run kepler --save-every 1000000000000", "save_every = 1000000000000 does not divide the 3000 steps"),
        ("run kepler --t-end 1e12", "saved points need .* GiB of memory"),
        ("run kepler --members 1000000000000", "members = 1000000000000 .* do not fit into memory"),
        ("run kepler --members 2 --seed -1", "seed must be a whole number of at least 0"),
        ("run kepler --members 2 --spread nan", "spread must be finite"),
        ("run kepler --method Composition(Verlet(),order='a')", r"Composition\(order='a'\): order must be 4, 6 or 8"),
        ("run fpu(springs='a')", r"fpu\(springs='a'\): springs must be a whole number"),
        ("certify kepler Verlet --dt nan", "dt must be finite"),
    ],
)
def test_bad_arguments_are_answered_in_one_line(shell, line, words):
    assert re.search(words, complaint(shell(*line.split(" "))))


# --- list -----------------------------------------------------------------------------------------------------------
def test_list_shows_every_method_model_and_experiment(shell):
    result = shell("list")
    assert result.exit_code == 0
    for name in (*(m.name for m in gm.methods.all()), *gm.models.all(), *(e.id for e in papers.all())):
        assert name in result.stdout


def test_list_of_one_kind(shell):
    result = shell("list", "models")
    assert "a planet on an ellipse of eccentricity 0.6" in result.stdout
    assert "SymplecticEuler" not in result.stdout


def test_traits_are_listed(shell):
    row = next(
        line for line in shell("list", "methods").stdout.splitlines() if line.strip().startswith("RungeKutta4()")
    )
    assert row.split()[1:8] == ["4", "–", "–", "–", "–", "linear", "free"]


# --- run, info, resume ----------------------------------------------------------------------------------------------
def test_run_prints_what_became_of_the_invariants(shell):
    result = shell("run", "kepler", "--dt", 0.02, "--t-end", 10)
    m = gm.models.kepler()
    run = gm.simulate(m.system, m.q0, m.v0, method=gm.Verlet(), dt=0.02, t_end=10.0)
    assert result.exit_code == 0
    assert fact(result, "final time") == "10"
    assert fact(result, "saved points") == "501"
    assert float(fact(result, "max |energy error|").split()[0]) == pytest.approx(
        np.abs(run.energy_error).max(), rel=1e-3
    )
    assert float(fact(result, "momentum map rotation[0, 1]").split()[-1]) < 1e-13
    assert fact(result, "engine") == run.engine
    assert re.fullmatch(r"\d+\.\d\d s", fact(result, "wall time"))


def test_of_a_driven_system_energy_minus_work_is_printed(shell):
    result = shell("run", "driven_pendulum", "--t-end", "20")
    assert float(fact(result, "max |error of energy − work|").split()[0]) < 1e-3


def test_run_takes_expressions_and_writes_an_archive_and_a_picture(shell, tmp_path):
    result = shell(
        "run",
        "fpu(springs=2)",
        "--method",
        "Composition(Verlet(), order=8)",
        "--dt",
        0.02,
        "--t-end",
        2,
        "--save-every",
        10,
        "-o",
        "run.h5",
        "--plot",
        "--compensated",
    )
    assert result.exit_code == 0, result.output
    run = gm.load(tmp_path / "run.h5")
    assert run.q.shape == (11, 2, 2)
    assert run.compensated
    assert run.method.order == 8
    assert np.abs(run.energy_error).max() < 1e-5
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_of_a_run_without_output_has_the_models_name(shell, tmp_path):
    assert shell("run", "pendulum(angle=1.0)", "--t-end", 1, "--plot").exit_code == 0
    assert shell("run", "pendulum", "--t-end", 1, "--plot-file", "other.pdf").exit_code == 0
    assert {p.name for p in tmp_path.iterdir()} == {"pendulum.png", "other.pdf"}


def test_the_models_t_end_moves_to_a_whole_number_of_saves(shell):
    result = shell("run", "kepler", "--dt", 0.07, "--save-every", 10)  # 60 is 857.14 steps
    assert fact(result, "final time") == "60.2"
    assert fact(result, "saved points") == "87"


def test_info_says_what_an_archive_holds(shell):
    shell("run", "kepler", "--dt", 0.02, "--t-end", 4, "--save-every", 2, "-o", "run.h5")
    result = shell("info", "run.h5")
    assert fact(result, "origin") == "kepler()"
    assert fact(result, "method") == "Verlet()"
    assert fact(result, "grid") == "dt = 0.02, t = 0 … 4, saved every 2 steps"
    assert fact(result, "rows saved") == "101 of 101"
    assert fact(result, "step reached") == "200 of 200, t = 4"
    assert fact(result, "state") == "complete"
    assert fact(result, "fingerprint") == archive.read("run.h5").meta["fingerprint"]
    assert f"numpy {np.__version__}" in fact(result, "versions")


def test_resume_goes_on_bit_for_bit(shell):
    shell("run", "kepler", "--dt", 0.02, "--t-end", 4, "-o", "part.h5")
    result = shell("resume", "part.h5", "--t-end", 8)
    assert fact(result, "final time") == "8"
    assert fact(result, "saved points") == "401"
    shell("run", "kepler", "--dt", 0.02, "--t-end", 8, "-o", "whole.h5")
    np.testing.assert_array_equal(gm.load("part.h5").q, gm.load("whole.h5").q)


def test_a_run_that_stops_says_what_was_kept(shell):
    line = complaint(shell("run", "fpu", "--dt", 0.5, "--t-end", 200, "-o", "run.h5"), code=1)
    kept = gm.load("run.h5")
    assert "turned non-finite at step" in line
    assert line.endswith(f"{len(kept)} saved points up to t = {float(kept.t[-1]):g} are in run.h5.")
    assert ".run" not in line
    assert "give -o FILE" in complaint(shell("run", "fpu", "--dt", 0.5, "--t-end", 200), code=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "keppler"], "there is no model named 'keppler'. Did you mean kepler?"),
        (["run", "kepler", "--method", "verlett"], "there is no method named 'verlett'. Did you mean Verlet"),
        (["run", "kepler(eccentric=0.1)"], "has no argument 'eccentric'. Did you mean eccentricity?"),
        (["run", "kepler", "--dt", 0.3, "--t-end", 1], "Nearest that fit: t_end = 0.9 or 1.2"),
        (["run", "kepler", "--dt", 0], "dt must be positive"),
        (["run", "kepler", "--save-every", 0], "save_every must be a whole number of at least 1"),
        (["run", "kepler", "--plot-file", "nowhere/k.png"], "the folder nowhere does not exist"),
        (["run", "kepler", "-o", "nowhere/k.h5"], "the folder nowhere does not exist"),
        (["info", "missing.h5"], "there is no file missing.h5"),
        (["resume", "missing.h5"], "there is no file missing.h5"),
        (
            ["reproduce", "stern-grinspun-2010"],
            "there is no paper 'stern-grinspun-2010'. Did you mean stern-grinspun-2009",
        ),
        (["certify", "kepler", "Composition(Verlet(), order=5)"], "order must be 4, 6 or 8"),
        (["bench"], "run this in a checkout of geomint"),
    ],
)
def test_mistakes_are_answered_in_one_line(shell, arguments, message):
    assert message in complaint(shell(*arguments))


def test_an_output_that_exists_is_not_overwritten(shell, tmp_path):
    (tmp_path / "run.h5").write_text("precious")
    assert "run.h5 exists" in complaint(shell("run", "kepler", "--t-end", 1, "-o", "run.h5"))
    assert (tmp_path / "run.h5").read_text() == "precious"
    assert "can't be read as an archive" in complaint(shell("info", "run.h5"))


def test_a_system_of_ones_own_is_resumed_in_python(shell):
    gm.simulate(gm.System(lambda q: 0.5 * (q @ q)), [1.0, 0.0], method=gm.Verlet(), dt=0.1, t_end=1.0, output="own.h5")
    assert "state its system again" in complaint(shell("resume", "own.h5"))
    assert "stated in Python" in fact(shell("info", "own.h5"), "origin")


# --- certify --------------------------------------------------------------------------------------------------------
def test_certify_prints_the_certificate(shell, monkeypatch):
    """The command alone: which system, method and step it asks about, and how the answer is printed."""

    def measured(model, method, *, dt):
        content = {
            "method": method.name,
            "dt": model.dt if dt is None else dt,
            "order": np.float64(2.0),
            "drift": float("nan"),
            "q0": np.asarray(model.q0),
        }
        return SimpleNamespace(to_dict=lambda: content, ok=True)

    # The module by its full name: the public function gm.certify hides it as an attribute of the package.
    monkeypatch.setattr(importlib.import_module("geomint.analysis.certify"), "certify", measured)
    result = shell("certify", "kepler", "verlet", "--json")
    assert json.loads(result.stdout) == {
        "method": "Verlet()",
        "dt": 0.02,
        "order": 2.0,
        "drift": None,
        "q0": [0.4, 0.0],
    }
    assert json.loads(shell("certify", "kepler", "verlet", "--dt", 0.1, "--json").stdout)["dt"] == 0.1


def test_certify_measures(shell):
    result = shell("certify", "henon_heiles", "verlet")
    assert result.exit_code == 0, result.output
    for word in ("order", "symplecticity", "reversibility", "energy"):
        assert word in result.stdout


# --- bench, version and a real process ------------------------------------------------------------------------------
def test_bench_runs_the_benchmarks_of_a_checkout(shell, tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__main__.py").write_text(
        "import sys; open('ran', 'w').write(' '.join(sys.argv[1:])); sys.exit(3)"
    )
    assert shell("bench", "--fast", "fpu").exit_code == 3
    assert (tmp_path / "ran").read_text() == "--fast fpu"


def test_version(shell):
    assert shell("--version").stdout == f"geomint {gm.__version__}\n"


def test_ctrl_c_leaves_an_archive_that_resume_continues(shell, tmp_path):
    command = [
        sys.executable,
        "-c",
        COMMAND,
        "run",
        "kepler",
        "--dt",
        "0.01",
        "--t-end",
        "1e7",
        "--save-every",
        "100000",
        "-o",
        "long.h5",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        until = time.monotonic() + 30
        while not ((tmp_path / "long.h5").exists() and archive.read(tmp_path / "long.h5").rows > 1):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 2
    assert "Traceback" not in err
    assert re.fullmatch(
        r"interrupted at step \d+, t = \S+\. \d+ saved points up to t = \S+ are in long.h5. "
        r"`geomint resume long.h5` goes on.\n",
        err,
    )
    assert "saved points" in out
    held = archive.read("long.h5")
    assert fact(shell("info", "long.h5"), "state").startswith("unfinished")
    assert 1 < held.rows < 10001
    assert fact(shell("info", "long.h5"), "rows saved") == f"{held.rows} of 10001"
