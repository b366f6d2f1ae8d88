"""Chains of n rigid bodies on ball joints: geomint's RATTLE and MuJoCo's joint coordinates on the same MJCF file.

Boxes of 1 × 0.2 × 0.2 and mass 1, stretched out along x and turning about the vertical axis at rate 1, let go under
gravity, as gm.models.rigid_chain. geomint has 12 coordinates and 9 equations for each body, MuJoCo three velocities.
The motion is chaotic, so what is compared is the time of a step and the energy error over SPAN, relative to the
potential energy that the chain can lose. Times are CPU times of this process, the best of ROUNDS.

    OMP_NUM_THREADS=1 python -m benchmarks rigid_chain
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np

import geomint as gm

from .timing import table

SPAN, H = 1.0, 0.002
LENGTHS = (10, 30, 100, 300)
ROUNDS, SAMPLES = 4, 10
INTEGRATORS = {"Euler": mujoco.mjtIntegrator.mjINT_EULER, "RK4": mujoco.mjtIntegrator.mjINT_RK4}
TOP = """<mujoco><option timestep="0.002"><flag contact="disable"/></option><worldbody><body>
<joint type="ball" damping="0"/><inertial pos="0 0 1" mass="1" diaginertia="0.6 0.8 1"/></body></worldbody></mujoco>"""


def chain(n: int) -> str:
    """The MJCF file."""
    body = (
        '<body name="link {k}" pos="{x} 0 0"><joint type="ball"/>'
        '<geom type="box" size="0.5 0.1 0.1" pos="0.5 0 0" mass="1"/>'
    )
    links = "".join(body.format(k=k, x=min(k, 1)) for k in range(n))
    option = f'<option timestep="{H}"><flag contact="disable"/></option>'
    return f'<mujoco model="chain">{option}<worldbody>{links}{"</body>" * n}</worldbody></mujoco>'


def seconds(go: Callable[[], object]) -> float:
    """CPU time, the best of ROUNDS."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        go()
        best = min(best, time.process_time() - began)
    return best


def scale(n: int) -> float:
    """The potential energy of the chain stretched out less that of the hanging chain."""
    return 9.81 * n**2 / 2


def mujoco_chain(path: Path, n: int, integrator: str) -> tuple[float, float]:
    """Seconds a step, relative energy error."""
    model = mujoco.MjModel.from_xml_path(str(path))
    model.opt.integrator = INTEGRATORS[integrator]
    model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    data, steps = mujoco.MjData(model), round(SPAN / H)
    data.qvel[2] = 1.0
    mujoco.mj_forward(model, data)
    start, error = np.sum(data.energy), 0.0
    for _ in range(SAMPLES):
        mujoco.mj_step(model, data, steps // SAMPLES)
        mujoco.mj_forward(model, data)
        error = max(error, abs(float(np.sum(data.energy) - start)))
    model.opt.enableflags &= ~int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    timed = max(10, 20_000 // n)
    return seconds(lambda: mujoco.mj_step(model, data, timed)) / timed, error / scale(n)


def geomint_chain(path: Path, n: int) -> tuple[float, gm.Trajectory]:
    """Seconds a step, and the run over SPAN."""
    model = gm.rigid.from_mjcf(path)
    assembly, turning = model.system, np.array([0.0, 0.0, 1.0])
    positions = assembly.positions(model.q0)
    v0 = assembly.v(model.q0, np.cross(turning, positions), np.broadcast_to(turning, (n, 3)))
    steps = round(SPAN / H)
    go = lambda t_end: gm.simulate(model, v0=v0, dt=H, t_end=t_end, save_every=steps // SAMPLES, engine="xla")
    run = go(SPAN)
    short, long = seconds(lambda: go(SPAN)), seconds(lambda: go(3 * SPAN))
    return (long - short) / (2 * steps), run


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for n in LENGTHS:
            path = Path(folder) / f"chain_{n}.xml"
            path.write_text(chain(n))
            step, run = geomint_chain(path, n)
            error = np.max(np.abs(run.energy - run.energy[0])) / scale(n)
            momenta = run.momentum_maps["rotation"]
            drift = np.max(np.abs(momenta - momenta[0]) / np.abs(momenta[0]))
            residual = np.max(np.abs(run.constraint_residual)) / np.max(np.abs(run.q))
            found = f"{1e6 * step:.0f} µs, {1e6 * step / n:.2f} a body"
            rows.append((f"{n} bodies: geomint", found, f"ΔE {error:.1e}, |g|/|q| {residual:.1e}, ΔJ/J {drift:.1e}"))
            for name in INTEGRATORS:
                its_step, its_error = mujoco_chain(path, n, name)
                found = f"{1e6 * its_step:.0f} µs, {1e6 * its_step / n:.2f} a body"
                rows.append((f"{n} bodies: MuJoCo {name}", found, f"ΔE {its_error:.1e}"))
            table(f"Chains of rigid bodies, a step of {H}", rows[-3:])
    table(f"Chains of rigid bodies, a step of {H}", rows)
    model = mujoco.MjModel.from_xml_string(TOP)
    data = mujoco.MjData(model)
    data.qvel[:] = 1.0, 0.5, 3.0
    step = seconds(lambda: mujoco.mj_step(model, data, 100_000)) / 100_000
    table("Heavy tops, one core", [("MuJoCo Euler", f"{1e-6 / step:.2f} million/s", f"{1e6 * step:.2f} µs a step")])
