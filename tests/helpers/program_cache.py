"""How programs are compiled in one run of the tests: geomint and JAX find it by the environment. Import this first.

The number of threads of linear algebra is set here as well: OpenBLAS reads it when numpy is imported."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from importlib.metadata import version

# Programs are compiled once for all workers of a run and for the processes that tests start: these inherit the
# environment of the first process, which makes the folder and removes it. A run begins with an empty folder, so that
# it depends on no other.
if "GEOMINT_CACHE" not in os.environ:
    folder = tempfile.mkdtemp(prefix="geomint-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ |= {"GEOMINT_CACHE": folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}

# OpenBLAS waits for its threads by spinning. The matrices of the tests have too few entries for two threads, and where
# two workers share two cores a solve of 135 equations took up to ten times its time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# XLA cuts a program into 32 modules and compiles them on all cores, which the workers of the tests share: as one module
# the same code takes a third less time to compile. XLA stops at flags that it does not know: only where it was tried.
ONE_MODULE = "--xla_cpu_parallel_codegen_split_count=1"
if (0, 8) <= tuple(map(int, version("jaxlib").split(".")[:2])) <= (0, 10):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_MODULE}".strip()
