"""Ensembles on executors: throughput of two workers against one, overhead of a shard, a million members in shards.

python -m benchmarks.executors throughput | overhead | million

Of a million members the memory of the client is measured as Linux reports it (/proc/self/status): VmRSS now, and VmHWM
at its highest. It is run with a scheduler in a process of its own, as on a cluster; million_local has the scheduler of
a LocalCluster in the client.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import geomint as gm

MEMBERS = 10_000


def starts(model: Any, members: int) -> tuple[np.ndarray, np.ndarray]:
    factors = np.linspace(0.5, 1.5, members).reshape(-1, *[1] * model.v0.ndim)
    return np.broadcast_to(model.q0, (members, *model.q0.shape)), model.v0 * factors


def cluster(workers: int) -> Any:
    from dask.distributed import LocalCluster

    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)


@contextlib.contextmanager
def scheduler_elsewhere(workers: int, folder: Path) -> Iterator[str]:
    """A scheduler and workers in processes of their own; the file with the address of the scheduler."""
    file, quiet = str(folder / "scheduler.json"), {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
    start = lambda what, *options: subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.dask_{what}", "--scheduler-file", file, "--no-dashboard", *options],
        **quiet,
    )  # fmt: skip
    begun = [start("scheduler", "--port", "0")]
    begun += [start("worker", "--nthreads", "1", "--no-nanny") for _ in range(workers)]
    try:
        while not Path(file).exists():
            time.sleep(0.1)
        yield file
    finally:
        for process in begun:
            process.kill()


def memory() -> tuple[float, ...]:
    """MB (10⁶ bytes): now, at the highest, and how much of what is there now are pages of files, which are those of
    libraries: how many of them Linux maps depends on what else was read on the machine."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(lines[name].split()[0]) * 1024e-6 for name in ("VmRSS", "VmHWM", "RssFile"))


def throughput(folder: Path, steps: int = 1_000_000) -> None:
    """10,000 FPU members on one worker and on two, of one thread each, in turn, after a first run that compiles. Where
    other programs use the cores too, the ratio of wall times says little; the processor time of the busier worker is
    the wall time on free cores."""
    from dask.distributed import Client

    model = gm.models.fpu()
    grid = {"method": gm.Verlet(), "dt": 0.005, "save_every": steps // 10}
    wall, busiest = {}, {}
    for workers in (1, 2):
        with cluster(workers) as local, Client(local) as client:
            go = lambda n, name, executor=client: gm.ensemble(
                model.system, *starts(model, MEMBERS), t_end=0.005 * n, executor=executor, output=folder / name, **grid
            )
            go(steps // 10, f"first{workers}.h5")
            before, began = client.run(time.process_time), time.perf_counter()
            go(steps, f"run{workers}.h5")
            wall[workers], after = time.perf_counter() - began, client.run(time.process_time)
            busiest[workers] = max(after[name] - before[name] for name in after)
    for name, seconds in (("wall time", wall), ("processor time of the busiest worker", busiest)):
        print(f"{name}: {seconds[1]:.2f} s with one, {seconds[2]:.2f} s with two, ratio {seconds[1] / seconds[2]:.2f}")


def overhead(folder: Path) -> None:
    """Shards of one tile with ten steps each, on one worker; all but the first."""
    from dask.distributed import Client

    model = gm.models.fpu()
    with cluster(1) as local, Client(local) as client:
        for engine in ("xla", "native"):
            _time_shards(client, model, folder, engine)


def _time_shards(client: Any, model: Any, folder: Path, engine: str) -> None:
    grid = {"method": gm.Verlet(), "dt": 0.005, "t_end": 0.05, "save_every": 10, "engine": engine}
    go = lambda name: gm.ensemble(
        model.system, *starts(model, MEMBERS), executor=client, output=folder / f"{engine}{name}.h5", shard=256, **grid
    )
    go("first")
    used = lambda: next(iter(client.run(time.process_time).values()))
    began, cpu = time.perf_counter(), used()
    count = len(go("second").shards.places)
    total, cpu = time.perf_counter() - began, used() - cpu
    print(
        f"{engine}: {count} shards in {total:.2f} s, {1000 * total / count:.1f} ms a shard, of which the worker used "
        f"{1000 * cpu / count:.1f} ms of processor time"
    )


def million(folder: Path) -> None:
    """A million members of the Hénon-Heiles system in a thousand shards: memory of the client, and time to load."""
    from dask.distributed import Client

    with scheduler_elsewhere(2, folder) as file, Client(scheduler_file=file) as client:
        client.wait_for_workers(2)
        _run_million(client, folder)


def million_local(folder: Path) -> None:
    """The same with a LocalCluster, whose scheduler is in the process of the client."""
    from dask.distributed import Client

    with cluster(2) as local, Client(local) as client:
        _run_million(client, folder)


def _run_million(client: Any, folder: Path, members: int = 1_000_000) -> None:
    model = gm.models.henon_heiles()
    seen = {"Python, JAX, geomint and Dask": memory()}
    q0s, v0s = starts(model, members)
    seen["with the initial states"] = memory()
    began = time.perf_counter()
    run = gm.ensemble(
        model.system, q0s, v0s, method=gm.Verlet(), dt=0.01, t_end=1.0, save_every=20, executor=client,
        output=folder / "million.h5", shard=1000,
    )  # fmt: skip
    print(f"{len(run.shards.places)} shards in {time.perf_counter() - began:.0f} s")
    seen["after the run"] = memory()
    for name, (now, highest, of_files) in seen.items():
        print(f"{name}: {now:.0f} MB, at the highest {highest:.0f} MB, of files {of_files:.0f} MB")
    began = time.perf_counter()
    loaded = gm.load(folder / "million.h5")
    shape = loaded.q.shape
    print(f"gm.load {1000 * (time.perf_counter() - began):.0f} ms, q {shape}")
    assert np.array_equal(loaded.q[123_456], run.q[123_456])


PARTS = {"throughput": throughput, "overhead": overhead, "million": million, "million_local": million_local}

if __name__ == "__main__":
    for what in sys.argv[1:] or ("throughput", "overhead", "million"):
        with tempfile.TemporaryDirectory() as name:
            PARTS[what](Path(name))
