"""Loops that numba compiles for XLA, and their cache on disk."""

from __future__ import annotations

import os
import subprocess
import sys

CHECK = """
from geomint.numerics.linalg import cpu_kernels, numba_loops, xla_ffi
print(xla_ffi._compiled(numba_loops.inner)._cache_hits)
assert cpu_kernels.available()
"""


def cache_hits(folder) -> int:
    done = subprocess.run(
        [sys.executable, "-c", CHECK], env={**os.environ, "GEOMINT_CACHE": str(folder)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_damaged_cache_is_not_used(tmp_path):
    """The second process finds the compiled loop; damaged files of the cache are as good as none."""
    assert cache_hits(tmp_path) == 0
    assert cache_hits(tmp_path) == 1
    files = [x for x in tmp_path.rglob("numba-*/**/*") if x.suffix in (".nbi", ".nbc")]
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:40] + b"damaged")
    assert cache_hits(tmp_path) == 0
