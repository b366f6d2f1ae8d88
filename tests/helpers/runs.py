"""Runs that several files of tests make, and runs compared with each other."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import geomint as gm
from helpers.zoo import first_of_its_class


def same(a, b) -> bool:
    """Equal in every saved quantity, bit for bit."""
    flat = lambda r: jax.tree.leaves({**r.columns, "t": r.t})
    return all(np.array_equal(x, y) for x, y in zip(flat(a), flat(b), strict=True))


def close(expected, got, what=1e-12) -> None:
    """Equal in every saved quantity, to rounding."""
    for a, b in zip(jax.tree.leaves(expected.columns), jax.tree.leaves(got.columns), strict=True):
        np.testing.assert_allclose(a, b, rtol=what, atol=what * max(1.0, float(np.max(np.abs(a), initial=0.0))))


def kepler(steps=600, **more):
    model = gm.models.kepler()
    return gm.simulate(model.system, model.q0, model.v0, method=gm.Verlet(), dt=0.01, t_end=steps * 0.01, **more)


def save_by_save(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of one save each."""
    monkeypatch.setattr("geomint.run.loop._chunk", lambda grid, n, rows, budget: (grid.save_every, 1))


ARGON_ENERGY = 10.519254 * 24932.594
ARGON = gm.models.argon_cluster()


def argon(parts=60, t_end=0.05, dt=1e-4, q0=None, v0=None, **more):
    q0, v0 = (ARGON.q0 if q0 is None else q0), (ARGON.v0 if v0 is None else v0)
    return gm.simulate(
        ARGON.system,
        q0,
        v0,
        method=gm.EnergyStepping(ARGON_ENERGY / parts, more.pop("offset", None)),
        dt=dt,
        t_end=t_end,
        **more,
    )


def methods_of(*families):
    """Every registered method; beyond the first of these families they wait for the slow tests."""
    quick = lambda m: first_of_its_class(m) and isinstance(m, families)
    marks = lambda m: [] if quick(m) else pytest.mark.slow
    return pytest.mark.parametrize("method", [pytest.param(m, id=m.name, marks=marks(m)) for m in gm.methods.all()])


ENGINE_METHODS = methods_of(
    gm.Verlet,
    gm.Rattle,
    gm.Shake,
    gm.SymmetricMultistep,
    gm.ZhangSkeel,
    gm.IMEX,
    gm.EnergyStepping,
    gm.Gauss,
    gm.GeometricLangevin,
)


def run(method, problem, steps=30, save_every=3, **more):
    return gm.simulate(
        problem.system,
        problem.at.q,
        p0=problem.at.p,
        method=method,
        dt=problem.dt,
        t_end=steps * problem.dt,
        save_every=save_every,
        **more,
    )


def members(problem, count=5):
    """Slightly different momenta, tangent where there is a constraint."""
    sizes = 1 + 0.01 * np.arange(count)
    return np.repeat(problem.at.q[None], count, axis=0), sizes.reshape(-1, *[1] * np.ndim(problem.at.p)) * problem.at.p[
        None
    ]


def many(method, problem, count=5, steps=12, **more):
    q, p = members(problem, count)
    return gm.ensemble(
        problem.system, q, p0s=p, method=method, dt=problem.dt, t_end=steps * problem.dt, save_every=3, **more
    )
