"""What all tests share: a cache of compiled programs, and a bound on how many of them one process keeps."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest

# XLA's programs are compiled once for all workers of a run and for the processes that tests start: these inherit the
# environment of the first process, which makes the folder and removes it. A run begins with an empty folder, so that
# nothing is left over from other versions of the code.
CACHE = "JAX_COMPILATION_CACHE_DIR"
if CACHE not in os.environ:
    folder = tempfile.mkdtemp(prefix="geomint-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ |= {
        CACHE: folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # XLA complains of "prefer-no-gather", no property of a processor, whenever it loads a program from the cache.
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"),
    }

import jax

from geomint.engines.llvm import engine as native
from geomint.engines.pallas import engine as kernel

MAPS = Path("/proc/self/maps")
MANY = 25_000  # Linux gives a process 65,530 memory maps; beyond, LLVM crashes without a message


@pytest.fixture(autouse=True)
def forget_old_programs():
    """A thousand tests compile more programs than one process has memory maps for: forget them from time to time."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        jax.clear_caches()
        for programs in (native._program, native._pays, kernel._program):
            programs.cache_clear()
