"""The spinning cube of 12,288 tetrahedra on one core: the gradient beside a loop by numba, and an event of
energy-stepping beside a Verlet step.

Run with `OMP_NUM_THREADS=1 taskset -c 0 python -m benchmarks.solids`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numba
import numpy as np

import geomint as gm
from benchmarks.timing import best_times, table


@numba.njit(fastmath=True, error_model="numpy")
def gradient_loop(x, cells, gradients, volumes, lame, shear, out):
    """∂V/∂x of a neo-Hookean body, element by element, as one would write it by hand."""
    out[:] = 0.0
    for e in range(len(cells)):
        a, b, c, d = cells[e, 0], cells[e, 1], cells[e, 2], cells[e, 3]
        F, G = np.empty((3, 3)), gradients[e]
        for i in range(3):
            u, v, w = x[b, i] - x[a, i], x[c, i] - x[a, i], x[d, i] - x[a, i]
            for j in range(3):
                F[i, j] = u * G[1, j] + v * G[2, j] + w * G[3, j]
        k00 = F[1, 1] * F[2, 2] - F[1, 2] * F[2, 1]
        k01 = F[1, 2] * F[2, 0] - F[1, 0] * F[2, 2]
        k02 = F[1, 0] * F[2, 1] - F[1, 1] * F[2, 0]
        k10 = F[0, 2] * F[2, 1] - F[0, 1] * F[2, 2]
        k11 = F[0, 0] * F[2, 2] - F[0, 2] * F[2, 0]
        k12 = F[0, 1] * F[2, 0] - F[0, 0] * F[2, 1]
        k20 = F[0, 1] * F[1, 2] - F[0, 2] * F[1, 1]
        k21 = F[0, 2] * F[1, 0] - F[0, 0] * F[1, 2]
        k22 = F[0, 0] * F[1, 1] - F[0, 1] * F[1, 0]
        J = F[0, 0] * k00 + F[0, 1] * k01 + F[0, 2] * k02
        s, m = volumes[e] * (lame * np.log(J) - shear) / J, volumes[e] * shear
        P = (
            (s * k00 + m * F[0, 0], s * k01 + m * F[0, 1], s * k02 + m * F[0, 2]),
            (s * k10 + m * F[1, 0], s * k11 + m * F[1, 1], s * k12 + m * F[1, 2]),
            (s * k20 + m * F[2, 0], s * k21 + m * F[2, 1], s * k22 + m * F[2, 2]),
        )
        for i in range(3):
            row = P[i]
            f1 = row[0] * G[1, 0] + row[1] * G[1, 1] + row[2] * G[1, 2]
            f2 = row[0] * G[2, 0] + row[1] * G[2, 1] + row[2] * G[2, 2]
            f3 = row[0] * G[3, 0] + row[1] * G[3, 1] + row[2] * G[3, 2]
            out[a, i] -= f1 + f2 + f3
            out[b, i] += f1
            out[c, i] += f2
            out[d, i] += f3


def main() -> None:
    model = gm.models.elastic_cube()
    mesh, height = model.system.potential.mesh, 1e-5
    q = mesh.nodes + 0.003 * np.random.default_rng(0).normal(size=mesh.nodes.shape)
    arrays = mesh.cells.astype(np.int32), mesh.shape_gradients, mesh.volumes
    out, x = np.empty_like(q), jnp.asarray(q)
    gradient = jax.jit(jax.grad(model.system.potential))
    by_loop = lambda: gradient_loop(q, *arrays, 0.01, 0.0066, out)
    by_loop()
    apart = np.abs(gradient(x) - out).max() / np.abs(out).max()
    events, step, t_end = gm.EnergyStepping(height, offset=-1e-6 * height), 0.005, 4.0
    stepped = lambda: gm.simulate(model.system, model.q0, model.v0, method=events, dt=t_end, t_end=t_end)
    verlet = lambda: gm.simulate(
        model.system, model.q0, model.v0, method=gm.Verlet(), dt=step, t_end=t_end, save_every=round(t_end / step)
    )
    count = len(stepped().events)
    times = best_times({"gradient": lambda: jax.block_until_ready(gradient(x)), "numba": by_loop}, rounds=200)
    times |= best_times({"events": stepped, "steps": verlet}, rounds=5)
    each = {"event": times["events"] / count, "step": times["steps"] / round(t_end / step)}
    table(
        "12,288 tetrahedra, one core",
        [
            ("gradient", f"{1e3 * times['gradient']:.3f} ms", f"apart from the loop by {apart:.1g}"),
            ("loop by numba", f"{1e3 * times['numba']:.3f} ms", ""),
            ("ratio", f"{times['gradient'] / times['numba']:.2f}", "at most 1.5"),
            (f"an event of energy-stepping, of {count}", f"{1e3 * each['event']:.3f} ms", "start included"),
            ("a Verlet step", f"{1e3 * each['step']:.3f} ms", "start included"),
            ("ratio", f"{each['event'] / each['step']:.2f}", "at most 4"),
        ],
    )


if __name__ == "__main__":
    main()
