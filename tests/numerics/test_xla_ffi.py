"""Loops that numba compiles for XLA, and their cache on disk."""

from __future__ import annotations

import os
import subprocess
import sys

FIRST = """
from geomint.numerics.linalg import numba_loops, xla_ffi
print(xla_ffi._compiled(numba_loops.inner)._cache_hits)
"""
SECOND = """
import os, pathlib
from geomint.numerics.linalg import numba_loops, xla_ffi
hits = lambda: xla_ffi._compiled(numba_loops.inner)._cache_hits
print(hits())
files = [x for x in pathlib.Path(os.environ["GEOMINT_CACHE"]).rglob("numba-*/**/*") if x.suffix in (".nbi", ".nbc")]
assert files
for file in files:
    file.write_bytes(file.read_bytes()[:40] + b"damaged")
print(hits())
xla_ffi.register("inner_of_this_test", numba_loops.inner)
"""


def printed(script, folder) -> list[str]:
    environment = {**os.environ, "GEOMINT_CACHE": str(folder)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_damaged_cache_is_not_used(tmp_path):
    """The second process finds the compiled loop; damaged files of the cache are as good as none."""
    assert printed(FIRST, tmp_path) == ["0"]
    assert printed(SECOND, tmp_path) == ["1", "0"]
