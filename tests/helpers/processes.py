"""Programs in processes of their own, and archives compared bit for bit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np

from geomint.io import archive

# `python -m geomint` with Ctrl-C enabled: a shell starts background jobs with SIGINT ignored.
COMMAND = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('geomint', run_name='__main__')"
)


def datasets(path: Path) -> dict[str, np.ndarray]:
    """Every dataset of an archive; of the checkpoint the carry only, since its number counts the checkpoints made."""
    with h5py.File(path, "r") as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        held = {name: file[name][()] for name in names if name != "checkpoint"}
    return held | {f"carry {k}": leaf for k, leaf in enumerate(archive.read(path).leaves)}


def same_archives(a: Path, b: Path) -> bool:
    """Bit for bit: minus zero is not zero here."""
    x, y = datasets(a), datasets(b)
    return x.keys() == y.keys() and all(x[name].tobytes() == y[name].tobytes() for name in x)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def start(code: str, processes: int, *arguments: object, **environment: str) -> list[subprocess.Popen]:
    """Copies of a program that joins by jax.distributed, as a user would write it."""
    head = (
        "import sys, jax\nindex, processes, port = map(int, sys.argv[1:4])\n"
        "jax.distributed.initialize(f'127.0.0.1:{port}', processes, index)\n"
        if processes > 1
        else "import sys, jax\n"
    )
    port, said = free_port(), dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return [
        subprocess.Popen(
            [sys.executable, "-c", head + code, str(k), str(processes), str(port), *map(str, arguments)],
            env=os.environ | environment,
            **said,
        )
        for k in range(processes)
    ]


def ends(copies: list[subprocess.Popen], timeout: float = 100) -> list[str]:
    """What each printed."""
    try:
        said = [copy.communicate(timeout=timeout) for copy in copies]
    finally:
        for copy in copies:
            copy.kill()
    assert all(copy.returncode == 0 for copy in copies), said
    return [out for out, _ in said]


def wait_for_rows(path: Path, rows: int, process: subprocess.Popen) -> None:
    until = time.monotonic() + 60
    while not (path.exists() and archive.read(path).rows >= rows):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
