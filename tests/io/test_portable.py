"""geomint works on platforms without fcntl, os.fdatasync, os.pread and os.pwrite (Windows, and macOS in part). Their
absence is simulated in another process, before geomint is imported."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import geomint as gm

WITHOUT = """
import os, sys
sys.modules["fcntl"] = None  # `import fcntl` raises ImportError
for name in ("fdatasync", "pread", "pwrite", "posix_fallocate", "sysconf"):
    if hasattr(os, name):
        delattr(os, name)
"""

RUN = """
import threading
import numpy as np
import geomint as gm

kepler = gm.models.kepler()
def go(t_end, **more):
    return gm.simulate(kepler.system, kepler.q0, kepler.v0, method=gm.Verlet(), dt=0.01, t_end=t_end, **more)

folder = sys.argv[1]
whole = go(2.0)
go(1.0, output=folder + "/streamed.h5")
go(1.0).save(folder + "/saved.h5")
for name in ("streamed.h5", "saved.h5"):
    path = folder + "/" + name
    assert np.array_equal(gm.load(path).q, whole.q[:101])
    assert np.array_equal(gm.resume(path, t_end=2.0).q, whole.q)  # a larger file
    assert np.array_equal(gm.load(path).p, whole.p)
members = dict(method=gm.Verlet(), dt=0.01, save_every=10, t_end=1.0)
q0s, v0s = np.stack([kepler.q0] * 3), np.outer([1.0, 0.9, 0.8], kepler.v0)
gm.ensemble(kepler.system, q0s, v0s, output=folder + "/members.h5", mesh="all", **members)
other = []
thread = threading.Thread(target=lambda: other.append(go(1.0, output=folder + "/thread.h5")))  # no signal handlers here
thread.start()
thread.join()
assert np.array_equal(other[0].q, whole.q[:101])
np.save(folder + "/whole.npy", whole.q)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("portable")
    done = subprocess.run([sys.executable, "-c", WITHOUT + RUN, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_simulate_save_load_and_resume(folder):
    """Here, with all of these functions, the same numbers come from the same files."""
    whole = np.load(folder / "whole.npy")
    for name in ("streamed.h5", "saved.h5"):
        assert np.array_equal(gm.load(folder / name).q, whole)


def test_ensembles(folder):
    assert gm.load(folder / "members.h5").q.shape == (3, 11, 2)
