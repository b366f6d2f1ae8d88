"""A folder of compiled programs for one run of the tests. Importing this module names it to JAX; it must come first."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

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
