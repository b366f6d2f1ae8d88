"""Programs in processes of their own, and archives compared bit for bit."""

from __future__ import annotations

import os
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


def start(code: str, *arguments: object, **environment: str) -> subprocess.Popen:
    """A Python program in a process of its own; sys.argv[1:] are the arguments."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ends(process: subprocess.Popen, timeout: float = 100) -> str:
    """What it printed, after it ended well."""
    try:
        out, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return out


def wait_for_rows(path: Path, rows: int, process: subprocess.Popen) -> None:
    until = time.monotonic() + 60
    while not (path.exists() and archive.read(path).rows >= rows):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
