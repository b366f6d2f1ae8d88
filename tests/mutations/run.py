"""Mutation tests by hand: `make mutations`, or `python tests/mutations/run.py [word ...]`.

Each row of table.toml changes one line of a copy of src/geomint. The quick tests nearest to that line are then run on
the copy, in one process, and at least one of them has to fail. Outcomes:

    caught      a test failed
    imported    geomint could not be imported, since an assertion on its coefficients failed
    SURVIVED    all tests passed: a test is missing
    STALE       the old text does not occur exactly once in its file: the row has to be brought up to date
    TIMEOUT     the tests did not end in time
    NO TESTS    pytest found no quick test of these names

The exit status is 0 if every row is caught. Words select the rows that contain one of them anywhere.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 900  # for one row; most take some seconds on a free core
BEFORE = (
    "jax.numpy",
    "jax.scipy.linalg",
    "equinox",
    "scipy.optimize",
    "scipy.sparse.linalg",
    "h5py",
    "numba",
    "hypothesis",
    "matplotlib.figure",
    "typer.testing",
)


class Row(NamedTuple):
    """One mutation."""

    file: str  # under src/geomint
    why: str
    old: str
    new: str
    tests: Sequence[str]  # files or node ids under tests/

    @property
    def title(self) -> str:
        return f"{self.file}: {self.why}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only rows that contain one of these words")
    parser.add_argument("--list", action="store_true", help="only look for stale rows")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests on the unchanged code first")
    chosen = parser.parse_args()
    if hasattr(os, "nice") and os.nice(0) < 10:
        os.nice(10)
    table = tomllib.loads(Path(__file__).with_name("table.toml").read_text())
    every = [Row(**row) for row in table["mutation"]]
    rows = [row for row in every if not chosen.words or any(word in " ".join(map(str, row)) for word in chosen.words)]
    if chosen.list:
        for row in rows:
            print(f"{'STALE' if stale(row) else 'there':8} {row.title}")
        return int(any(map(stale, rows)))
    with tempfile.TemporaryDirectory() as programs:
        os.environ.setdefault("GEOMINT_CACHE", programs)  # shared by all rows: tests/helpers/program_cache.py
        for name in BEFORE:  # not geomint: each row imports its own copy
            importlib.import_module(name)
        if not chosen.no_baseline and not passes_unchanged(rows):
            return 1
        outcomes = [told(row, *outcome_of(row)) for row in rows]
    good = sum(outcome in ("caught", "imported") for outcome in outcomes)
    print(f"{good} of {len(rows)} mutations are caught.")
    return int(good < len(rows))


def stale(row: Row) -> bool:
    """Whether the old text does not occur exactly once."""
    path = ROOT / "src" / "geomint" / row.file
    return not path.exists() or path.read_text().count(row.old) != 1


def passes_unchanged(rows: list[Row]) -> bool:
    """The tests of all rows on an unchanged copy, without which a failure would mean nothing."""
    with tempfile.TemporaryDirectory() as folder:
        copy(folder)
        status, output = tests_on(folder, sorted({test for row in rows for test in row.tests}), SECONDS * 4)
    if status:
        print(output[-4000:], "The tests fail without any mutation.", sep="\n")
    return status == 0


def outcome_of(row: Row) -> tuple[str, str, float]:
    """The outcome, the test that failed, and the seconds it took."""
    if stale(row):
        return "STALE", "", 0.0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        changed = copy(folder) / row.file
        changed.write_text(changed.read_text().replace(row.old, row.new))
        status, output = tests_on(folder, row.tests, SECONDS)
    seconds = time.monotonic() - began
    if status < 0:  # killed: by the alarm, or by a crash of machine code
        return "TIMEOUT" if status == -signal.SIGALRM else "caught", "", seconds
    named = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    # pytest: 0 all passed, 1 some failed, 2 to 4 nothing could be collected, 5 no tests
    outcome = {0: "SURVIVED", 1: "caught", 5: "NO TESTS"}.get(status, "imported")
    if outcome == "imported" and "AssertionError" not in output:
        outcome = "NO TESTS"
    return outcome, named[0].split(" ")[1] if named else "", seconds


def copy(folder: str) -> Path:
    """A copy of the package under `folder`."""
    target = Path(folder) / "geomint"
    shutil.copytree(ROOT / "src" / "geomint", target)  # with compiled files, which stay valid but for the changed one
    return target


def tests_on(folder: str, tests: Sequence[str], seconds: float) -> tuple[int, str]:
    """The quick tests of these names with the package of `folder`, up to the first failure: pytest's exit status and
    output.

    They run in a fork of this process, which has imported JAX and all else but geomint: that takes longer than most
    tests."""
    output = Path(folder) / "output"
    output.touch()
    child = os.fork()
    if child == 0:
        status = 3  # pytest's number for an internal error: nothing of this process may go on in the child
        try:
            status = int(_tests_here(folder, tests, seconds, output))
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), output.read_text()


def _tests_here(folder: str, tests: Sequence[str], seconds: float, output: Path) -> int:
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ["PYTHONPATH"] = folder
    sys.path.insert(0, folder)
    os.chdir(ROOT)
    signal.alarm(round(seconds))
    options = ["-x", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", "-rfE"]
    return pytest.main([*options, *(f"tests/{test}" for test in tests)])


def told(row: Row, outcome: str, test: str, seconds: float) -> str:
    print(f"{outcome:9} {seconds:5.0f} s  {row.title}  {test}", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
