"""Ensembles on real executors: workers are killed, and the numbers stay those of one process.

The run takes some seconds on one core, so that there is time to kill workers while it goes on.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geomint as gm
from geomint.io import archive
from geomint.io.index import read_index
from geomint.io.reader import reached
from geomint.run.executors import LONG, Tasks
from helpers.processes import start

distributed = pytest.importorskip("distributed")
FPU = gm.models.fpu()
MEMBERS = 48
STARTS = np.stack([FPU.q0] * MEMBERS), FPU.v0 * np.linspace(0.5, 1.5, MEMBERS)[:, None, None]
GRID: dict[str, Any] = {"method": gm.Verlet(), "dt": 0.001, "save_every": 10_000}
END = 12_000.0
SHARD = 12


def go(t_end: float = END, **more: Any) -> gm.Trajectory:
    return gm.ensemble(FPU.system, *STARTS, t_end=t_end, **GRID, **more)


def bits(run: gm.Trajectory) -> list[bytes]:
    return [np.asarray(getattr(run, name)).tobytes() for name in ("q", "p", "energy")]


@pytest.fixture(scope="module")
def whole() -> list[bytes]:
    """Of one process, without an executor."""
    return bits(go())


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made:
        yield made


def in_background(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def wait_until(true: Callable[[], Any], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def has_begun(path: Path) -> bool:
    """Whether some shard has a checkpoint behind its start and none is complete."""
    folder = path.with_name(f"{path.stem}.shards")
    return folder.exists() and any(reached(shard) > 0 for shard in folder.glob("0*.h5"))


def test_workers_of_dask_that_are_killed_five_times(tmp_path, cluster, whole):
    path, killed = tmp_path / "run.h5", []

    def kill() -> None:
        wait_until(lambda: has_begun(path))
        while len(killed) < 5:
            worker = list(cluster.workers.values())[len(killed) % 2]
            if worker.pid and worker.pid not in killed:
                os.kill(worker.pid, signal.SIGKILL)
                killed.append(worker.pid)
            time.sleep(0.6)

    thread = in_background(kill)
    with distributed.Client(cluster) as client:
        run = go(executor=client, output=path, shard=SHARD, progress=True)
        assert len(killed) == 5  # all of them while the run went on
        thread.join(60)
        assert bits(run) == whole
        # Another run on the same workers, reduced and without output.
        reduce = {"energy": gm.Mean("energy"), "q": gm.Quantiles("q")}
        one, two = (go(10.0, reduce=reduce, **x) for x in ({}, {"executor": client, "shard": SHARD}))
        for name, result in one.reduced.items():
            for key, x in result.results.items():
                assert np.asarray(x).tobytes() == np.asarray(two.reduced[name].results[key]).tobytes()
        # Each worker has one thread, and so have XLA and the native engine in it.
        assert set(client.run(lambda: os.environ["NPROC"]).values()) <= {"1"}
        v0s = STARTS[1].copy()
        v0s[30] = 1e200
        with pytest.raises(gm.InputError, match=r"member 30 overflows.*members 24 … 35"):
            gm.ensemble(FPU.system, STARTS[0], v0s, t_end=10.0, executor=client, shard=SHARD, **GRID)
    assert not list((tmp_path / "run.shards").glob(".*"))


SCHEDULER = """
import sys, time
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    print(cluster.scheduler_address, flush=True)
    time.sleep(300)
"""


def test_the_scheduler_is_killed_and_a_new_cluster_goes_on(tmp_path, cluster, whole, monkeypatch):
    monkeypatch.setattr("geomint.run.executors.LOST_SECONDS", 2.0)
    script = tmp_path / "scheduler.py"
    script.write_text(SCHEDULER)
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        path, address = tmp_path / "run.h5", process.stdout.readline().strip()
        client = distributed.Client(address)

        def kill() -> None:
            wait_until(lambda: has_begun(path))
            process.kill()
            time.sleep(0.2)  # its workers notice later, and could finish all shards meanwhile
            os.killpg(process.pid, signal.SIGKILL)

        in_background(kill)
        with pytest.raises(gm.ProcessLost, match=r"of 4 shards are complete.*gm\.resume"):
            go(executor=client, output=path, shard=SHARD)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        client.close(timeout=1)
    held = [archive.read(place.path) for place in read_index(path).shards if place.path.exists()]
    assert 0 < sum(contents.step for contents in held) < 4 * END / 0.001
    gm.load(path)
    with distributed.Client(cluster) as client:
        assert bits(gm.resume(path, executor=client)) == whole


def pool(kind: str) -> concurrent.futures.ProcessPoolExecutor:
    return concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(kind))


def test_a_pool_of_processes_breaks_and_another_goes_on(tmp_path, whole):
    """A forked one, as is usual on Linux although it can't use JAX (relay.py); then one of fresh processes."""
    path = tmp_path / "run.h5"
    with pool("fork") as executor:

        def kill() -> None:
            wait_until(lambda: has_begun(path))
            os.kill(next(iter(executor._processes)), signal.SIGKILL)

        in_background(kill)
        with pytest.raises(gm.ProcessLost, match=r"of 4 shards are complete.*any executor") as lost:
            go(executor=executor, output=path, shard=SHARD)
    assert lost.value.path == path
    with pool("spawn") as executor:
        assert bits(gm.resume(path, executor=executor)) == whole


MPI = """
import sys, numpy as np, geomint as gm
from mpi4py.futures import MPIPoolExecutor
if __name__ == "__main__":
    model = gm.models.fpu()
    v0s = model.v0 * np.linspace(0.5, 1.5, 48)[:, None, None]
    grid = dict(method=gm.Verlet(), dt=0.001, t_end=float(sys.argv[2]), save_every=10000, shard=12)
    with MPIPoolExecutor() as executor:
        gm.ensemble(model.system, np.stack([model.q0] * 48), v0s, output=sys.argv[1], executor=executor, **grid)
"""


def mpi(script: Path, *arguments: Any) -> list[str]:
    options = ["--allow-run-as-root", "--oversubscribe", "-n", "3"]
    return ["mpirun", *options, sys.executable, "-m", "mpi4py.futures", str(script), *map(str, arguments)]


def test_mpi(tmp_path, whole):
    """A process of MPI that is killed ends the job; what it has written is continued here."""
    pytest.importorskip("mpi4py")
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    script, path, killed = tmp_path / "job.py", tmp_path / "run.h5", tmp_path / "killed.h5"
    script.write_text(MPI)
    done = subprocess.run(mpi(script, path, END), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert bits(gm.load(path)) == whole
    job = subprocess.Popen(mpi(script, killed, END), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: has_begun(killed))
    import psutil

    workers = [p for p in psutil.Process(job.pid).children(recursive=True) if "mpi4py.futures" in p.cmdline()]
    workers[-1].kill()
    assert job.wait(60) != 0
    assert bits(gm.resume(killed)) == whole


CTRL_C = """
import sys, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background of a shell
if __name__ == "__main__":
    from geomint.cli.app import app
    app(["run", "fpu", "--members", "24", "--dt", "0.001", "--t-end", "800000", "--save-every", "1000000", "-o",
         sys.argv[1], "--workers", "1", "--no-progress"])
"""


def test_ctrl_c_on_the_command_line_leaves_checkpoints(tmp_path):
    """The client alone gets the signal; its worker stops at a checkpoint. Then this process goes on."""
    from typer.testing import CliRunner

    from geomint.cli.app import app

    script, path = tmp_path / "run.py", tmp_path / "run.h5"
    script.write_text(CTRL_C)
    process = subprocess.Popen([sys.executable, script, path], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: has_begun(path) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2, errors
    assert "interrupted" in errors
    assert "geomint resume" in errors
    runner = CliRunner()
    assert "unfinished: `geomint resume` continues it" in runner.invoke(app, ["info", str(path)]).stdout
    steps = [reached(place.path) for place in read_index(path).shards]
    assert 0 < max(steps) < 800_000_000
    assert not (tmp_path / "run.shards" / "stop").exists()
    result = runner.invoke(app, ["resume", str(path), "--workers", "1", "--scheduler", "tcp://x:1"])
    assert (result.exit_code, "not both" in result.stderr) == (2, True)
    result = runner.invoke(app, ["run", "fpu", "--workers", "1"])
    assert (result.exit_code, "--members" in result.stderr) == (2, True)


def test_importing_geomint_is_light():
    slow = {"dask", "distributed", "matplotlib", "mpi4py", "numba", "scipy.sparse", "xarray"}
    code = f"import sys, geomint; assert not {slow} & set(sys.modules)"
    process = start(code)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors


def test_a_long_content_is_sent_once_and_made_again(cluster):
    """Also where Dask has given up the task that holds it."""
    with distributed.Client(cluster) as client:
        tasks = Tasks(client, _length, bytes(2 * LONG))
        assert tasks._sent() is tasks._sent()
        tasks.submit(3)
        before = tasks._sent()
        before.cancel()
        tasks.submit(4)
        assert tasks._sent() is not before
        found: dict[int, Any] = {}
        wait_until(lambda: found.update(tasks.finished()) or 4 in found)
        assert found[4] == 2 * LONG + 4


def _length(content: bytes, number: int) -> int:
    return len(content) + number
