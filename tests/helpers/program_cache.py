"""A folder of compiled programs for one run of the tests: geomint finds it by the environment. Import this first."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

# Programs are compiled once for all workers of a run and for the processes that tests start: these inherit the
# environment of the first process, which makes the folder and removes it. A run begins with an empty folder, so that
# it depends on no other.
if "GEOMINT_CACHE" not in os.environ:
    folder = tempfile.mkdtemp(prefix="geomint-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ |= {"GEOMINT_CACHE": folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
