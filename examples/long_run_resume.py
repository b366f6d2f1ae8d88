"""A run that streams to disk is killed in the middle, resumed, and ends bit for bit as if nothing had happened."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import geomint as gm

STEPS, EVERY = 30_000_000, 30_000


def run_to(path):
    """FPU, 30 million Verlet steps, a thousand of them kept."""
    model = gm.models.fpu()
    return gm.simulate(
        model.system,
        model.q0,
        model.v0,
        method=gm.Verlet(),
        dt=0.005,
        t_end=STEPS * 0.005,
        save_every=EVERY,
        output=path,
    )


def main():
    """Rows in the file when the run was killed, and whether the resumed run equals the uninterrupted one in every
    bit."""
    with tempfile.TemporaryDirectory() as folder:
        killed, whole = Path(folder, "killed.h5"), Path(folder, "whole.h5")
        child = subprocess.Popen([sys.executable, __file__, str(killed)])
        while child.poll() is None and not (killed.exists() and len(gm.load(killed)) > 50):
            time.sleep(0.02)
        child.kill()  # SIGKILL: the process can't clean up
        child.wait()
        rows = len(gm.load(killed))
        resumed, uninterrupted = gm.resume(killed), run_to(whole)
        same = all(
            np.array_equal(getattr(resumed, name), getattr(uninterrupted, name)) for name in ("t", "q", "p", "energy")
        )
        return rows, same


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_to(sys.argv[1])
    else:
        rows, same = main()
        verdict = "equal in every bit" if same else "DIFFERENT"
        print(f"killed after {rows} of {STEPS // EVERY + 1} rows; resumed: {verdict}")
