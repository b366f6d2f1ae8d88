"""Experiments in processes of their own: what comes back, and what is left of them where they end early."""

import os
import time
from types import SimpleNamespace

import pytest

from geomint import errors, papers
from helpers.jobs import answer


def run(folder, *names):
    return papers.run_all([SimpleNamespace(id=f"p/{name}") for name in names], True, folder, 2, answer)


def test_ctrl_c_does_not_reach_the_processes(tmp_path):
    """The one that was called ends them: else each of them prints a traceback, and may hang."""
    assert list(run(tmp_path, "one", "two", "three")) == [False] * 3


def test_a_process_that_dies_is_named(tmp_path):
    with pytest.raises(errors.ProcessLost, match=r"p/killed ended without a result \(killed by signal 9"):
        list(run(tmp_path, "killed"))


def test_an_error_keeps_its_traceback(tmp_path):
    with pytest.raises(ValueError, match="a wrong number") as caught:
        list(run(tmp_path, "wrong"))
    assert "helpers/jobs.py" in caught.value.__notes__[0]


def test_processes_end_with_the_run(tmp_path):
    running = run(tmp_path, "one", "slow")
    next(running)
    while not (tmp_path / "started").exists():
        time.sleep(0.05)
    pid = int((tmp_path / "started").read_text())
    began = time.perf_counter()
    running.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert time.perf_counter() - began < 20
