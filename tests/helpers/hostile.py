"""Archives that were damaged or crafted, and a process that opens them one after the other: it may refuse them, but
must not crash."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import geomint as gm
from geomint.io import archive

MEMBERS = 3


# --- real archives of every kind ------------------------------------------------------------------------
def make_archives(folder: Path, all_kinds: bool) -> dict[str, Path]:
    """Small runs of several kinds; with all_kinds also those whose programs take seconds to compile."""
    model, paths = gm.models.kepler(), {}

    def output(name: str) -> Path:
        paths[name] = folder / f"{name}.h5"
        return paths[name]

    settings = dict(method=gm.Verlet(), dt=0.01, t_end=0.2)
    gm.simulate(model.system, model.q0, model.v0, **settings, output=output("single"))
    gm.simulate(model.system, model.q0, model.v0, **settings, compensated=True, output=output("compensated"))
    states = np.stack([model.q0] * MEMBERS), np.stack([model.v0 * s for s in np.linspace(1, 0.8, MEMBERS)])
    gm.ensemble(model.system, *states, **settings, seed=[5, 6, 7], output=output("ensemble"))
    reduce = {"e": gm.Mean("energy"), "x": gm.Quantiles("q"), "h": gm.Histogram("p", 4, (-2, 2))}
    gm.ensemble(model.system, *states, **settings, reduce=reduce, keep=[1], output=output("reduced"))
    if all_kinds:
        swing, angles = gm.models.pendulum(), gm.models.double_pendulum_angles()
        gm.simulate(
            swing.system, [0.3], [1.0], method=gm.EnergyStepping(0.02), dt=0.1, t_end=2.0, output=output("events")
        )
        gm.simulate(
            angles.system,
            angles.q0,
            angles.v0,
            method=gm.Variational(),
            dt=0.01,
            t_end=0.2,
            output=output("lagrangian"),
        )
        command = [
            "run",
            "kepler",
            "--members",
            "4",
            "--dt",
            "0.01",
            "--t-end",
            "0.2",
            "-o",
            str(output("members")),
        ]
        subprocess.run([sys.executable, "-m", "geomint", *command], check=True, stdout=subprocess.DEVNULL)
    return paths


# --- damage ---------------------------------------------------------------------------------------------
def mutated(data: bytes, kind: str, chance: random.Random) -> bytes:
    """One piece of damage of the given kind. Half of it falls on the first 6 kB, where most tables are."""
    at = lambda: chance.randrange(min(6144, len(data)) if chance.random() < 0.5 else len(data))
    out = bytearray(data)
    if kind == "flips":
        for _ in range(chance.choice((1, 1, 1, 4, 64))):
            out[at()] ^= 1 << chance.randrange(8)
    elif kind == "truncation":
        return data[: at()]
    elif kind == "splice":
        here, there, size = at(), at(), chance.choice((8, 64, 512, 4096))
        out[here : here + size] = out[there : there + size][: len(out) - here]
    elif kind == "zeros":
        here, size = at(), chance.choice((8, 512, 4096))
        out[here : here + size] = bytes(len(out[here : here + size]))
    else:
        here = at() // 8 * 8
        out[here : here + 8] = struct.pack(
            "<Q", chance.choice((0, 1, 2**64 - 1, 2**63, len(data), len(data) - 8, 2**32))
        )
    return bytes(out)


DAMAGE = ("flips", "truncation", "splice", "zeros", "number")


def mutate_files(archives: dict[str, Path], folder: Path, count: int, seed: int) -> list[dict[str, str]]:
    """Damaged copies: what the worker is to open, and the file each was made from."""
    chance, jobs = random.Random(seed), []
    for k in range(count):
        name = sorted(archives)[k % len(archives)]
        path = folder / f"{k:03}-{name}-{DAMAGE[k // len(archives) % len(DAMAGE)]}.h5"
        path.write_bytes(mutated(archives[name].read_bytes(), DAMAGE[k // len(archives) % len(DAMAGE)], chance))
        beside = archive.events_path(archives[name])
        if beside.exists():
            events = beside.read_bytes()
            archive.events_path(path).write_bytes(
                mutated(events, DAMAGE[k % 5], chance) if chance.random() < 0.3 else events
            )
        jobs.append({"path": str(path), "original": str(archives[name])})
    return jobs


# --- the process that opens them ------------------------------------------------------------------------
def loaded(job: dict[str, str]) -> None:
    """Loads a file, and compares what it gives with the bytes at the places that the original has its columns at."""
    run = gm.load(job["path"])
    repr(run)
    contents = run._contents
    for name in contents.columns:
        np.asarray(contents.array(name)).sum()
    if job.get("what") is None:
        original = archive.read(job["original"])
        assert {**contents.meta, "checksum": 0} == {**original.meta, "checksum": 0}, "another description"
        assert contents.columns == original.columns, "other columns"
        assert contents.rows in (0, 1, original.rows), "rows that no checkpoint counts"
    elif len(run):
        assert np.array_equal(run.q, gm.load(job["original"]).q[: len(run)]), "other numbers"


def informed(job: dict[str, str]) -> None:
    from typer.testing import CliRunner

    from geomint.cli.app import app

    result = CliRunner().invoke(app, ["info", job["path"]])
    if result.exit_code == 2 and result.stderr.strip().count("\n") == 0:
        raise gm.ArchiveError(result.stderr.strip())
    assert result.exit_code == 0, f"exit {result.exit_code}: {result.exception!r} {result.output[-300:]}"
    assert "\x1b" not in result.stdout, "codes of a terminal"


def resumed(job: dict[str, str]) -> None:
    path = Path(job["path"])
    copy = path.with_name(f"resumed-{path.name}")
    shutil.copy(path, copy)
    if archive.events_path(path).exists():
        shutil.copy(archive.events_path(path), archive.events_path(copy))
    end = archive.read(copy).meta["grid"]
    run = gm.resume(copy, t_end=end[0] + end[1] * (end[2] + end[3]))
    assert len(gm.load(copy).t) == len(run.t)


ACTIONS = {"load": loaded, "info": informed, "resume": resumed}


def work(action: str, listed: str) -> None:
    """Prints a line for each file: what came of it, and the largest amount of memory in use meanwhile."""
    warnings.simplefilter("ignore")
    jobs = json.loads(Path(listed).read_text())
    tracemalloc.start()
    for job in jobs:
        print(json.dumps({"path": job["path"]}), flush=True)
        tracemalloc.reset_peak()
        before, outcome, message = tracemalloc.get_traced_memory()[0], "fine", ""
        try:
            ACTIONS[action](job)
        except Exception as error:
            outcome, message = type(error).__name__, str(error)
        peak = tracemalloc.get_traced_memory()[1] - before
        print(json.dumps({"outcome": outcome, "message": message[:400], "peak": peak}), flush=True)


def open_all(action: str, jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """What came of each file, opened by one process."""
    listed = folder / f"{action}.json"
    listed.write_text(json.dumps(jobs))
    done = subprocess.run([sys.executable, __file__, action, str(listed)], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, f"the process ended with {done.returncode} at {lines[-1:]}: {done.stderr[-2000:]}"
    return [{**job, **line} for job, line in zip(jobs, lines[1::2], strict=True)]


if __name__ == "__main__":
    work(*sys.argv[1:])
