"""A million heavy tops on a GPU as one kernel, against XLA's vmap of the same step and of a step written by hand.

    python -m benchmarks.tops_gpu             2^20 tops
    python -m benchmarks.tops_gpu 4096 40     fewer tops and steps, as a trial on a CPU (in interpret mode, slow)

For each method: the largest difference of eight members from the CPU's native engine, member-steps a second of the
kernel and of XLA's vmap, their ratio (the target is 20), and the energy and orthogonality at the end.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import geomint as gm
from geomint.engines import Kernel, Xla
from geomint.numerics.rotations import cayley_minus_one, cross, solve3
from geomint.run.inputs import phase

from .gpu import Row, begun, start, timed

DT, TARGET = 0.01, 20
METHODS = (gm.LieVerlet(), gm.MoserVeselov())


def apart(row: Row) -> float:
    """The kernel against machine code of the CPU, eight members over 200 steps."""
    times = {"dt": row.dt, "t_end": 200 * row.dt, "save_every": 200}
    runs = [
        gm.ensemble(row.model.system, *start(row.model, 8), method=row.method, engine=engine, **times)
        for engine in ("kernel", "native")
    ]
    assert [run.engine for run in runs] == ["kernel", "native"], [run.engine for run in runs]
    return max(float(np.max(np.abs(getattr(runs[0], x) - getattr(runs[1], x)))) for x in ("q", "p"))


def by_hand(model: Any, members: int, steps: int) -> float:
    """Member-steps a second of Lie–Verlet as one writes it for vmap: three iterations of Newton's method with the exact
    Jacobian by jacfwd, no test of convergence."""
    inertia, h, up = jnp.asarray(model.system.mass), DT, jnp.array([0.0, 0.0, 1.0])
    torque = lambda r: -cross(r[2], up)

    def step(state: Any, _: Any) -> Any:
        r, m = state
        m = m + 0.5 * h * torque(r)

        def residual(w: Any) -> Any:
            mu = inertia * w / h
            return mu + 0.5 * cross(w, mu) + 0.25 * jnp.sum(w * mu) * w - m

        w = h * m / inertia
        for _ in range(3):
            w = w - solve3(jax.jacfwd(residual)(w), residual(w))
        turn = cayley_minus_one(w)
        r, m = r + r @ turn, m + turn.T @ m
        return (r, m + 0.5 * h * torque(r)), None

    go = jax.jit(jax.vmap(lambda r, m: jax.lax.scan(step, (r, m), None, length=steps)[0]))
    q, p = phase(model.system, *start(model, members), None, members=True)
    q, p = jnp.asarray(q), jnp.asarray(p)
    jax.block_until_ready(go(q, p))
    began = time.perf_counter()
    jax.block_until_ready(go(q, p))
    return members * steps / (time.perf_counter() - began)


def measure(method: Any, members: int, steps: int) -> float:
    row = Row(gm.models.heavy_top(representation="group"), method, DT, members, steps)
    print(f"{method.name}: |kernel − CPU| after 200 steps {apart(row):.1e}", flush=True)
    engine, carry, ready = begun(Kernel, row, members)
    assert engine.program is not None, engine.described
    seconds, after = timed(engine, carry, steps, 2)
    rate = members * steps / seconds
    r = np.asarray(after.q).reshape(members, 3, 3)
    off = np.abs(np.swapaxes(r, 1, 2) @ r - np.eye(3)).max()
    print(f"  kernel {rate:.3e} member-steps/s ({seconds:.3f} s, ready after {ready:.1f} s); |RᵀR − I| {off:.1e}; "
          f"failed {int(np.sum(np.asarray(after.status) != 0))}", flush=True)  # fmt: skip
    few = min(members, 2**18)
    slow, carry, _ = begun(Xla, row, few)
    seconds, _ = timed(slow, carry, max(1, steps // 100), 1)
    vmapped = few * max(1, steps // 100) / seconds
    print(f"  XLA's vmap of the same step ({few:,} tops) {vmapped:.3e}: ×{rate / vmapped:.1f}; target ×{TARGET}")
    return rate


def main(members: int, steps: int) -> None:
    print(jax.devices()[0], f"{members:,} tops, {steps} steps", flush=True)
    rates = [measure(method, members, steps) for method in METHODS]
    model = gm.models.heavy_top(representation="group")
    other = by_hand(model, members, max(1, steps // 20))
    print(f"LieVerlet by hand for XLA's vmap, three Newton iterations: {other:.3e}; kernel ×{rates[0] / other:.1f}")


if __name__ == "__main__":
    arguments = [int(x) for x in sys.argv[1:]]
    main(*(arguments or [2**20, 20_000]))
