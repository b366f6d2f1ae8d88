"""Chains of n rigid links: geomint's RATTLE compared with RATTLE by hand in numba and with MuJoCo's joint coordinates.

Unit point masses on links of length 1 in the plane, hung from the origin in unit gravity, let go at rest, stretched out
at 30° below the horizontal: g_i = |x_i − x_{i−1}|² − 1, V = Σ y_i, H = −n(n + 1)/4. The motion is chaotic, so what is
compared is the time of a step and the energy error, the largest of SAMPLES samples, never the trajectories.

Every variant is a function (n, h, steps, samples) -> Outcome that goes from the start, for `best_times` to call.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
import mujoco
import numba
import numpy as np

import geomint as gm

from .timing import best_times, table

SAMPLES = 20
H = 0.01  # at 10,000 links enough for a while only: Newton fails between t = 40 and 80, with h = 0.007 not before 140
# Number of links: steps over which the energy is monitored; steps timed for MuJoCo, whose time does not depend on the
# state; steps timed for the others.
SPANS = {
    3: (1000, 20_000, 100_000),
    10: (1000, 10_000, 50_000),
    100: (1000, 300, 5000),
    1000: (200, 4, 3000),
    10_000: (200, 0, 300),
}
ANGLE = -np.pi / 6

# Without inlining, arrays are passed as objects with shapes and strides, and the loop by hand takes 1.6 times as long.
INLINED = numba.njit(fastmath=False, error_model="numpy", inline="always")


class Outcome(NamedTuple):
    energy: float  # the largest |H − H(0)| at the samples
    violation: float = 0.0  # the largest |g| at the samples
    note: str = ""


def start(n: int) -> np.ndarray:
    return np.arange(1, n + 1)[:, None] * np.array([np.cos(ANGLE), np.sin(ANGLE)])


def energy_at_start(n: int) -> float:
    return 0.5 * n * (n + 1) * np.sin(ANGLE)


# --- by hand ----------------------------------------------------------------------------------------------------------
@numba.njit(fastmath=False, error_model="numpy")
def _thomas(a, b, c, r, w):
    """a_i x_{i−1} + b_i x_i + c_i x_{i+1} = r_i, n ≥ 2, x in place of r; w is room to work.

    Elimination runs from both ends to the middle, row m: the two recurrences do not wait for each other, so that it
    takes half the time of the usual sweep, which is limited by the latency of one division after another.
    """
    n, m = len(b), len(b) // 2
    s, t = 1.0 / b[0], 1.0 / b[n - 1]
    upper, above = c[0] * s, r[0] * s  # x_i = above − upper x_{i+1} in the first half
    lower, below = a[n - 1] * t, r[n - 1] * t  # x_k = below − lower x_{k−1} in the second
    w[0], r[0], w[n - 1], r[n - 1] = upper, above, lower, below
    for i in range(1, m):
        k = n - 1 - i
        s, t = 1.0 / (b[i] - a[i] * upper), 1.0 / (b[k] - c[k] * lower)
        above, below = (r[i] - a[i] * above) * s, (r[k] - c[k] * below) * t
        upper, lower = c[i] * s, a[k] * t
        w[i], r[i], w[k], r[k] = upper, above, lower, below
    first = m - 1
    if n % 2 == 1:
        r[m] = (r[m] - a[m] * above - c[m] * below) / (b[m] - a[m] * upper - c[m] * lower)
        above = below = r[m]
    else:  # the halves meet between two rows
        above = (above - upper * below) / (1.0 - upper * lower)
        below = below - lower * above
        r[m - 1], r[m], first = above, below, m - 2
    for i in range(first + 1):
        up, down = first - i, m + 1 + i
        above = r[up] - w[up] * above
        below = r[down] - w[down] * below
        r[up], r[down] = above, below


@numba.njit(fastmath=False, error_model="numpy")
def _one_sided(a, b, c, r, w):
    """The same by Thomas's algorithm: one sweep down, one up."""
    n = len(b)
    w[0], r[0] = c[0] / b[0], r[0] / b[0]
    for i in range(1, n):
        s = 1.0 / (b[i] - a[i] * w[i - 1])
        w[i], r[i] = c[i] * s, (r[i] - a[i] * r[i - 1]) * s
    for i in range(n - 2, -1, -1):
        r[i] -= w[i] * r[i + 1]


@INLINED
def _links(x, y, dx, dy):
    """The links between neighbouring masses, into entries 1 … n of dx and dy."""
    dx[1], dy[1] = x[0], y[0]
    for i in range(1, len(x)):
        dx[i + 1], dy[i + 1] = x[i] - x[i - 1], y[i] - y[i - 1]


@INLINED
def _newton_rows(dx, dy, fx, fy, mu, a, b, c, r):
    """The tridiagonal system of a Newton iteration for the multipliers μ."""
    for i in range(len(b)):
        ex = fx[i + 1] + (mu[i] * dx[i] + mu[i + 2] * dx[i + 2] - 2.0 * mu[i + 1] * dx[i + 1])
        ey = fy[i + 1] + (mu[i] * dy[i] + mu[i + 2] * dy[i + 2] - 2.0 * mu[i + 1] * dy[i + 1])
        a[i] = ex * dx[i] + ey * dy[i]
        b[i] = -2.0 * (ex * dx[i + 1] + ey * dy[i + 1])
        c[i] = ex * dx[i + 2] + ey * dy[i + 2]
        r[i] = 0.5 * (1.0 - (ex * ex + ey * ey))
    ex, ey = fx[1] + (mu[2] * dx[2] - mu[1] * dx[1]), fy[1] + (mu[2] * dy[2] - mu[1] * dy[1])
    b[0], c[0] = -(ex * dx[1] + ey * dy[1]), ex * dx[2] + ey * dy[2]
    r[0] = 0.5 * (1.0 - (ex * ex + ey * ey))


@INLINED
def _velocity_rows(dx, dy, u, v, a, b, c, r):
    """The tridiagonal system G Gᵀ ν = G v of the projection of velocities."""
    b[0], r[0] = dx[1] * dx[1] + dy[1] * dy[1], dx[1] * u[0] + dy[1] * v[0]
    for i in range(1, len(b)):
        a[i] = -(dx[i + 1] * dx[i] + dy[i + 1] * dy[i])
        b[i] = 2.0 * (dx[i + 1] * dx[i + 1] + dy[i + 1] * dy[i + 1])
        r[i] = dx[i + 1] * (u[i] - u[i - 1]) + dy[i + 1] * (v[i] - v[i - 1])
        c[i - 1] = a[i]


@INLINED
def _largest(dx, dy, change):
    """The largest displacement of a mass by a change of the multipliers."""
    square = 0.0
    for i in range(len(change) - 2):
        ex = change[i + 2] * dx[i + 2] - change[i + 1] * dx[i + 1]
        ey = change[i + 2] * dy[i + 2] - change[i + 1] * dy[i + 1]
        square = max(square, ex * ex + ey * ey)
    return np.sqrt(square)


# RATTLE with Newton on the links e_i = Q_i − Q_{i−1} = f_i + d_{i−1}μ_{i−1} − 2 d_i μ_i + d_{i+1}μ_{i+1}, |e_i| = 1.
# d are the links before the step, f those after a step without tension. Arrays over links have an empty link at either
# end; the first link has d_1 μ_1 once, since the origin does not move. Newton starts at 2μ − (μ of the step before) and
# ends when the correction of Q is below ε max|q|, or the next one will be, by quadratic convergence.
def _rattle_with(solve):
    @numba.njit(fastmath=False, error_model="numpy")
    def rattle(x, y, u, v, h, steps, every, energies):
        n = len(x)
        dx, dy, fx, fy = np.zeros(n + 2), np.zeros(n + 2), np.zeros(n + 2), np.zeros(n + 2)
        mu, old, change = np.zeros(n + 2), np.zeros(n + 2), np.zeros(n + 2)
        a, b, c, r, w = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
        tolerance = 2.0**-52 * n  # the chain reaches n away from the origin
        per_h, iterations, violation = 1.0 / h, 0, 0.0
        _links(x, y, dx, dy)
        for step in range(1, steps + 1):
            for i in range(n):
                v[i] -= 0.5 * h
            fx[1], fy[1] = dx[1] + h * u[0], dy[1] + h * v[0]
            for i in range(1, n):
                fx[i + 1], fy[i + 1] = dx[i + 1] + h * (u[i] - u[i - 1]), dy[i + 1] + h * (v[i] - v[i - 1])
            for i in range(1, n + 1):
                mu[i], old[i] = 2.0 * mu[i] - old[i], mu[i]
            before = 0.0
            for sweep in range(21):
                if sweep == 20:
                    raise ArithmeticError("Newton did not converge")
                _newton_rows(dx, dy, fx, fy, mu, a, b, c, r)
                solve(a, b, c, r, w)
                for i in range(n):
                    change[i + 1] = r[i]
                    mu[i + 1] += r[i]
                size, iterations = _largest(dx, dy, change), iterations + 1
                if size <= tolerance or size * (size / before) ** 2 <= tolerance:
                    break
                before = size
            for i in range(n):
                ex = mu[i + 2] * dx[i + 2] - mu[i + 1] * dx[i + 1]
                ey = mu[i + 2] * dy[i + 2] - mu[i + 1] * dy[i + 1]
                x[i] += h * u[i] + ex
                y[i] += h * v[i] + ey
                u[i] += per_h * ex
                v[i] += per_h * ey - 0.5 * h
            _links(x, y, dx, dy)
            _velocity_rows(dx, dy, u, v, a, b, c, r)
            solve(a, b, c, r, w)
            for i in range(n):
                change[i + 1] = r[i]
            for i in range(n):
                u[i] += change[i + 2] * dx[i + 2] - change[i + 1] * dx[i + 1]
                v[i] += change[i + 2] * dy[i + 2] - change[i + 1] * dy[i + 1]
            if step % every == 0:
                total = 0.0
                for i in range(n):
                    total += 0.5 * (u[i] * u[i] + v[i] * v[i]) + y[i]
                    violation = max(violation, abs(dx[i + 1] * dx[i + 1] + dy[i + 1] * dy[i + 1] - 1.0))
                energies[step // every - 1] = total
        return iterations / steps, violation

    return rattle


_rattle, _plain_rattle = _rattle_with(_thomas), _rattle_with(_one_sided)


def numba_rattle(n: int, h: float, steps: int, samples: int = 1, rattle=_rattle) -> Outcome:
    x, y = start(n).T.copy()
    energies = np.empty(samples)
    iterations, violation = rattle(x, y, np.zeros(n), np.zeros(n), h, steps, steps // samples, energies)
    return Outcome(np.max(np.abs(energies - energy_at_start(n))), violation, f"{iterations:.2f} Newton iterations")


# --- MuJoCo -----------------------------------------------------------------------------------------------------------

INERTIA = 1e-9  # of a body about its centre, in place of the 0 of a point mass, which MuJoCo refuses
INTEGRATORS = {name.removeprefix("mjINT_"): value for name, value in mujoco.mjtIntegrator.__members__.items()}
DEPTH = 1023  # 4.0.0 says of a deeper tree "depth limit exceeded in signature computation", after set-up of order n³


@functools.cache
def _mujoco_model(n: int):
    """n bodies, each with a hinge at the mass before it; everything that is not inertia or gravity is switched off.

    The mass matrix of a serial chain is full: n²/2 numbers, and of order n³ operations to factor it in every step.
    """
    off = mujoco.mjtDisableBit
    spec = mujoco.MjSpec()
    spec.memory = 1_000_000_000  # the default is too little for IMPLICIT at 1000 links
    spec.option.gravity = [0, 0, -1]
    kept = (off.mjDSBL_GRAVITY, off.mjNDISABLE)
    spec.option.disableflags = sum(int(bit) for bit in off.__members__.values() if bit not in kept)
    body = spec.worldbody
    for i in range(n):
        body = body.add_body(
            pos=[float(i > 0), 0, 0], mass=1, ipos=[1, 0, 0], inertia=[INERTIA] * 3, explicitinertial=True
        )
        body.add_joint(type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, -1, 0])
    model = spec.compile()
    return model, mujoco.MjData(model)


def mujoco_chain(n: int, h: float, steps: int, samples: int = 1, integrator: str = "EULER") -> Outcome:
    model, data = _mujoco_model(n)
    model.opt.timestep, model.opt.integrator = h, INTEGRATORS[integrator]
    mujoco.mj_resetData(model, data)
    data.qpos[0] = ANGLE
    worst = 0.0
    for _ in range(samples):
        mujoco.mj_step(model, data, steps // samples)
        angle, spin = np.cumsum(data.qpos), np.cumsum(data.qvel)
        velocity = np.cumsum(np.stack([-np.sin(angle), np.cos(angle)]) * spin, axis=1)
        energy = 0.5 * np.sum(velocity**2) + 0.5 * INERTIA * np.sum(spin**2) + np.sum(np.cumsum(np.sin(angle)))
        worst = max(worst, abs(energy - energy_at_start(n)))
    return Outcome(worst)


# --- geomint ----------------------------------------------------------------------------------------------------------


@functools.cache
def _system(n: int) -> gm.System:
    """The chain as a user states it, without any hint about its structure."""
    links = lambda q: jnp.diff(q, axis=0, prepend=jnp.zeros((1, 2)))
    return gm.System(potential=lambda q: jnp.sum(q[:, 1]), constraint=lambda q: jnp.sum(links(q) ** 2, axis=1) - 1)


def geomint_rattle(n: int, h: float, steps: int, samples: int = 1) -> Outcome:
    run = gm.simulate(_system(n), start(n), method=gm.Rattle(), dt=h, t_end=steps * h, save_every=steps // samples)
    return Outcome(np.max(np.abs(run.energy_error)), np.max(np.abs(run.constraint_residual)), run.solver or "")


def chains() -> None:
    for n, (watched, few, many) in SPANS.items():
        go = {
            "numba RATTLE": numba_rattle,
            "geomint Rattle": geomint_rattle,
            "numba, one-sided": functools.partial(numba_rattle, rattle=_plain_rattle),
        }
        steps = dict.fromkeys(go, many)
        if n <= DEPTH:
            go |= {f"MuJoCo {name}": functools.partial(mujoco_chain, integrator=name) for name in INTEGRATORS}
        times = best_times(
            {name: functools.partial(f, n, H, steps.get(name, few)) for name, f in go.items()},
            rounds=9 if n < 1000 else 4,
        )
        times = {name: t / steps.get(name, few) for name, t in times.items()}
        cheapest = min((name for name in go if "MuJoCo" in name), key=times.__getitem__, default="")
        rows = []
        for name, t in times.items():
            said = f"×{t / times['numba RATTLE']:.3g}"
            if name in (*steps, cheapest, "MuJoCo RK4"):  # the others are too slow, or give the same as EULER
                out = go[name](n, H, watched, SAMPLES)
                said += f"; energy error {out.energy:.1e}, relative {out.energy / abs(energy_at_start(n)):.1e}"
                said += (
                    f"; max|g| {out.violation:.0e}; {out.note}"
                    if name in steps
                    else "; its cheapest"
                    if name == cheapest
                    else ""
                )
            rows.append((name, f"{1e6 * t:.4g} µs/step", said))
        # In the time of MuJoCo's cheapest integrator, geomint can take shorter steps.
        shorter = geomint_rattle(n, 0.7 * H, 1440 if watched == 1000 else 280, SAMPLES)
        rows.insert(
            2,
            (
                "  steps of .7 h",
                f"{1e6 * times['geomint Rattle'] / 0.7:.4g} µs per h",
                f"energy error {shorter.energy:.1e}",
            ),
        )
        if n > DEPTH:
            rows.append(("MuJoCo", "refuses", f"trees deeper than {DEPTH} bodies"))
        table(f"chain of {n} links, h = {H:g}; energy over {watched} steps, {SAMPLES} samples", rows)


def main() -> None:
    chains()
