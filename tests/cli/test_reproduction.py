"""`geomint reproduce`."""

import json
import re

import pytest
from matplotlib.figure import Figure

from geomint import papers
from geomint.cli.reproduction import Clock, earlier_times
from geomint.papers import Check, Outcome, Reproduction, base


@pytest.fixture
def one_experiment(monkeypatch):
    """A registry of a single experiment whose measured number the test chooses."""
    monkeypatch.setattr(base, "_experiments", {})

    def register(measured, name="one"):
        checks = [
            Check("a [number]", measured, (1.0, 2.0), paper=1.5, where="eq. (3)", note="with a slip"),
            Check("another", 7.25, verdict="information", note="wall time"),
        ]
        outcome = Outcome(checks, Figure(), parameters={"h": 0.1, "seed": 3}, left_out=["a long run"])
        papers.experiment("a-paper", name, "A title", "Fig. 1")(lambda quick: outcome)

    return register


def row(result, claim):
    line = next(line for line in result.stdout.splitlines() if claim in line)
    return re.split(r"  +", line.strip())


def test_reproduce_in_range(shell, one_experiment, tmp_path):
    one_experiment(1.4375)
    result = shell("reproduce", "a-paper", "--quick")
    assert result.exit_code == 0, result.output
    assert row(result, "a [number]") == [
        "a [number]", "1.5 (eq. (3))", "1.4375", "1 … 2", "reproduced", "with a slip",
    ]  # fmt: skip
    assert row(result, "another") == ["another", "–", "7.25", "–", "information", "wall time"]
    assert "left out by --quick: a long run" in result.stdout
    assert "1 of 1 experiments hold, in 0 s: 1 reproduced, 1 information" in result.stdout
    assert (tmp_path / "out" / "a-paper-one.png").read_bytes().startswith(b"\x89PNG")
    assert "left out" not in shell("reproduce", "a-paper").stdout


@pytest.mark.parametrize("measured", [2.5, float("nan")])
def test_reproduce_out_of_range(shell, one_experiment, measured):
    one_experiment(measured)
    one_experiment(1.5, "two")
    result = shell("reproduce", "--out", "figures/here")
    assert result.exit_code == 1
    assert row(result, "a-paper/one: a [number]")[4] == "FAILED"  # again at the end
    assert "failed: a-paper/one\n" in result.stdout
    assert "1 of 2 experiments hold" in result.stdout
    answer = shell("reproduce", "--json")
    assert answer.exit_code == 1
    found = json.loads(answer.stdout)  # nothing but JSON
    assert found["ok"] is False
    assert found["experiments"][0]["checks"][0]["measured"] == (None if measured != measured else 2.5)


def test_reproduce_as_json(shell, one_experiment, tmp_path):
    one_experiment(1.5)
    found = json.loads(shell("reproduce", "a-paper/one", "--json", "--quick").stdout)
    assert found == json.loads((tmp_path / "out/results.json").read_text())
    [experiment] = found["experiments"]
    assert found["ok"] is True
    about = {"paper": "a-paper", "experiment": "one", "figure": "Fig. 1", "quick": True}
    assert about.items() <= experiment.items()
    assert experiment["picture"] == "out/a-paper-one.png"
    assert experiment["parameters"] == {"h": 0.1, "seed": 3}
    assert experiment["checks"][1]["verdict"] == "information"
    assert {"jax", "numpy"} <= found["machine"]["versions"].keys()
    assert found["machine"]["cores"] >= 1


def test_time_left(tmp_path):
    """From an earlier run of the same size in the folder; else from the mean of what is done."""
    chosen = [papers.Experiment("p", name, "", "", None) for name in "abc"]
    done = [Reproduction(chosen[0], True, 10.0)]
    assert Clock(chosen, {}, 1).text([]) == "experiment 1 of 3: p/a …"
    assert Clock(chosen, {}, 1).text(done) == "experiment 2 of 3: p/b … about 20 s left"
    assert Clock(chosen, {"p/b": 200.0, "p/c": 100.0}, 2).text(done) == "experiment 2 of 3: p/b, p/c … about 2 min left"
    path = tmp_path / "results.json"
    assert earlier_times(path, True) == {}
    path.write_text(json.dumps({"experiments": [done[0].to_dict()]}))
    assert earlier_times(path, True) == {"p/a": 10.0}
    assert earlier_times(path, False) == {}
    path.write_text("[1, 2")
    assert earlier_times(path, True) == {}


def test_several_processes(shell):
    """Experiments travel to other processes by name; results come back."""
    result = shell("reproduce", "stern-grinspun-2009/modified-mass", "--quick", "--jobs", "2", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["experiments"][0]["experiment"] == "modified-mass"


def test_jobs_are_at_least_one(shell):
    assert "--jobs 0: at least 1" in shell("reproduce", "--jobs", "0").stderr


@pytest.mark.parametrize("command", ["reproduce", "report"])
def test_ctrl_c_says_what_there_is(shell, one_experiment, command):
    one_experiment(1.4375)

    def interrupted(quick):
        raise KeyboardInterrupt

    papers.experiment("a-paper", "two", "A title", "Fig. 2")(interrupted)
    result = shell(command, "a-paper", "--out", "here")
    assert result.exit_code == 2
    assert result.stderr.strip().startswith("interrupted after 1 of 2 experiments. Their figures are in here;")
