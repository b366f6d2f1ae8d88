"""The free asymmetric top over very many steps: do the energy and the momentum in the body stay?

python -m benchmarks.free_top            # 1e8 steps of each method, half a minute each
python -m benchmarks.free_top 1000000
"""

from __future__ import annotations

import sys
import time

import numpy as np

import geomint as gm

METHODS = (gm.MoserVeselov(), gm.LieVerlet(), gm.LieVerlet(map="exponential"))


def main(steps: int = 10**8) -> None:
    inertia, m = np.array([1.0, 2.0, 2.8]), np.array([0.69, 0.61, 1.94])
    system = gm.rigid.RigidBody(inertia, symmetries=gm.rigid.SpatialRotation()).system()
    every, dt = steps // 1000, 0.05
    for method in METHODS:
        begin = time.process_time()
        settings = {"dt": dt, "t_end": steps * dt, "save_every": every, "engine": "native"}
        run = gm.simulate(system, np.eye(3), p0=m, method=method, **settings)
        taken = time.process_time() - begin
        size = np.sqrt(run.watched["casimir"])
        energy = run.energy_error / run.energy[0]
        tenth = len(energy) // 10
        print(
            f"{method.name}: {steps:.0e} steps in {taken:.0f} s of CPU time ({1e6 * taken / steps:.2f} µs a step, "
            f"{run.engine})\n  |m|: {np.abs(size / size[0] - 1).max():.1e} relative;  momentum in space: "
            f"{np.ptp(run.momentum_maps['spatial rotation'], axis=0).max():.1e};  energy, relative: "
            f"{np.abs(energy[:tenth]).max():.2e} in the first tenth, {np.abs(energy[-tenth:]).max():.2e} in the last "
            f"one;  |RᵀR − I| up to {run.watched['orthogonality'].max():.1e}"
        )


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**8)
