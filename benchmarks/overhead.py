"""The overhead of simulate over the bare compiled loop and a loop by hand: FPU, 1e6 Verlet steps, saved every 100."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numba
import numpy as np

import geomint as gm

from .timing import best_times, table

STEPS, EVERY, DT = 1_000_000, 100, 0.001
MODEL = gm.models.fpu()


def _force(q):
    system = MODEL.system
    return -jax.grad(lambda x: system.potential(x) + system.fast(x))(q)


def _kick_form(q, p, h):
    p = p + 0.5 * h * _force(q)
    q = q + h * p
    return q, p + 0.5 * h * _force(q)


def _drift_form(q, p, h):
    q = q + 0.5 * h * p
    p = p + h * _force(q)
    return q + 0.5 * h * p, p


@functools.partial(jax.jit, static_argnums=(0, 3, 4, 5))
def _bare(step, state, h, every, blocks, with_energy):
    """The usual loop in JAX: a scan over blocks of a fori_loop over steps, stacking (q, p) and H if `with_energy`."""

    def block(state, _):
        q, p = jax.lax.fori_loop(0, every, lambda _, s: step(*s, h), state)
        seen = (
            (q, p, 0.5 * jnp.sum(p * p) + MODEL.system.potential(q) + MODEL.system.fast(q)) if with_energy else (q, p)
        )
        return (q, p), seen

    return jax.lax.scan(block, state, None, length=blocks)


@numba.njit
def _by_hand(q, p, h, every, blocks, omega, out):
    """Drift–kick–drift written out; the number of springs is a constant, so that the compiler unrolls the
    loops."""
    m = 3
    for b in range(blocks):
        for _ in range(every):
            for j in range(2 * m):
                q[j] += 0.5 * h * p[j]
            for i in range(m + 1):
                d = (q[i] - q[m + i] if i < m else 0.0) - (q[i - 1] + q[m + i - 1] if i > 0 else 0.0)
                g = h * d * d * d
                if i < m:
                    p[i] -= g
                    p[m + i] += g
                if i > 0:
                    p[i - 1] += g
                    p[m + i - 1] += g
            for i in range(m):
                p[m + i] -= h * omega * omega * q[m + i]
            for j in range(2 * m):
                q[j] += 0.5 * h * p[j]
        for j in range(2 * m):
            out[b, j] = q[j]
            out[b, 2 * m + j] = p[j]


def _simulate(method):
    return gm.simulate(MODEL.system, MODEL.q0, MODEL.v0, method=method, dt=DT, t_end=STEPS * DT, save_every=EVERY)


def main() -> None:
    blocks = STEPS // EVERY
    start = (jnp.asarray(MODEL.q0), jnp.asarray(MODEL.v0))
    out = np.empty((blocks, 12))

    def hand():
        _by_hand(MODEL.q0.ravel().copy(), MODEL.v0.ravel().copy(), DT, EVERY, blocks, 50.0, out)

    bare = lambda step, energy: lambda: jax.block_until_ready(_bare(step, start, DT, EVERY, blocks, energy))
    times = best_times({
        "numba": hand,
        "bare kick": bare(_kick_form, False),
        "bare kick H": bare(_kick_form, True),
        "simulate kick": lambda: _simulate(gm.Verlet()),
        "bare drift": bare(_drift_form, False),
        "bare drift H": bare(_drift_form, True),
        "simulate drift": lambda: _simulate(gm.Verlet(form="drift")),
    })  # fmt: skip
    run = _simulate(gm.Verlet(form="drift"))
    hand()
    apart = np.max(np.abs(run.q[1:11].reshape(10, -1) - out[:10, :6]))
    assert apart < 1e-11, f"the loop by hand and simulate differ by {apart:.1e} after 1000 steps"
    rows = [(name, f"{1e9 * t / STEPS:.1f} ns/step", "") for name, t in times.items()]
    for form in ("kick", "drift"):
        rows.append(
            (
                f"simulate / bare loop ({form}), saving q, p",
                f"{times[f'simulate {form}'] / times[f'bare {form}']:.3f}",
                "target ≤ 1.1",
            )
        )
        rows.append(
            (
                f"simulate / bare loop ({form}), saving q, p, H",
                f"{times[f'simulate {form}'] / times[f'bare {form} H']:.3f}",
                "",
            )
        )
        rows.append((f"simulate ({form}) / numba", f"{times[f'simulate {form}'] / times['numba']:.3f}", "target ≤ 1.5"))
    table("overhead: FPU Verlet, 1e6 steps, saved every 100", rows)
