"""Every engine gives what the reference engine gives, to rounding, and keeps the same promises."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines import native
from geomint.run import loop

sys.path.insert(0, str(Path(__file__).parent / "properties"))
from zoo import first_of_its_class, fitting

WITH_LU = (gm.Gauss, gm.ImplicitMidpoint, gm.LobattoIIIAB, gm.Variational)  # which use a library's factors with pivots
FAMILIES = (gm.Verlet, gm.Rattle, gm.Shake, gm.SymmetricMultistep, gm.ZhangSkeel, gm.IMEX, gm.EnergyStepping, gm.Gauss)  # others wait for the slow tests
QUICK = lambda m: first_of_its_class(m) and isinstance(m, FAMILIES)
METHODS = pytest.mark.parametrize("method", [pytest.param(m, id=m.name, marks=[] if QUICK(m) else pytest.mark.slow) for m in gm.methods.all()])


def run(method, problem, steps=30, **more):
    return gm.simulate(problem.system, problem.at.q, p0=problem.at.p, method=method, dt=problem.dt, t_end=steps * problem.dt, save_every=3, **more)


def same(a, b) -> bool:
    """Equal in every saved quantity, bit for bit."""
    flat = lambda r: jax.tree.leaves({**r.columns, "t": r.t})
    return all(np.array_equal(x, y) for x, y in zip(flat(a), flat(b), strict=True))


@METHODS
def test_native_equals_the_reference(method):
    for problem in {p.name: p for p in (fitting(method)[0], fitting(method)[-1])}.values():
        expected, got = run(method, problem), run(method, problem, engine="native")
        if not isinstance(method, WITH_LU):
            assert got.engine == "native"
        elif got.engine != "native":
            assert got.engine == "xla (the native engine does not cover the operation lu)"
        for a, b in zip(jax.tree.leaves(expected.columns), jax.tree.leaves(got.columns), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * max(1.0, float(np.max(np.abs(a), initial=0.0))))


@pytest.mark.parametrize("method", [gm.Rattle(), gm.EnergyStepping(0.05), gm.SymmetricMultistep(6), gm.ZhangSkeel()], ids=lambda m: m.name)
def test_chunked_and_resumed_runs_are_the_same(method, tmp_path, monkeypatch):
    problem = fitting(method)[-1]
    whole = run(method, problem, steps=60, engine="native")
    run(method, problem, engine="native", output=tmp_path / "half.h5")
    resumed = gm.resume(tmp_path / "half.h5", system=problem.system, t_end=60 * problem.dt)
    assert resumed.engine == "native"
    assert same(resumed, whole)
    monkeypatch.setattr(loop, "_chunk", lambda grid, n, rows, budget: (min(2, grid.save_every - n % grid.save_every), 1))
    assert same(run(method, problem, steps=60, engine="native"), whole)


def test_one_program_serves_a_sweep():
    system = gm.System(lambda q, k: jnp.sum(k["a"] * jnp.cos(q)), params={"a": 1.0})
    go = lambda dt, a: gm.simulate(system.with_params({"a": a}), [0.3, 0.4], [1.0, 0.2], method=gm.Verlet(), dt=dt, t_end=10 * dt, engine="native")
    go(0.1, 1.0)
    programs = len(native._programs)
    for k in range(1, 6):
        native_run = go(0.1 / k, 1.0 + k)
        other = gm.simulate(system.with_params({"a": 1.0 + k}), [0.3, 0.4], [1.0, 0.2], method=gm.Verlet(), dt=0.1 / k, t_end=1.0 / k)
        np.testing.assert_allclose(native_run.q, other.q, rtol=1e-14, atol=1e-15)
    assert len(native._programs) == programs


def test_failures_are_the_same():
    model = gm.models.triple_pendulum()
    errors = []
    for engine in ("xla", "native"):
        with pytest.raises(gm.RunStopped) as stopped:
            gm.simulate(model.system, model.q0, model.v0, method=gm.Rattle(), dt=1.5, t_end=150.0, engine=engine)
        errors.append(stopped.value)
    assert errors[0].step == errors[1].step
    assert str(errors[0]) == str(errors[1])


def test_it_steps_aside():
    method = gm.Verlet()
    sorting = gm.System(lambda q: jnp.sum(jnp.sort(q)[0] ** 2) + jnp.sum(q**2))
    run = gm.simulate(sorting, [0.3, 0.4], [1.0, 0.2], method=method, dt=0.1, t_end=1.0, engine="native")
    assert "xla (the native engine does not cover the operation sort)" in run.engine
    big = gm.models.chain(1000)
    assert gm.simulate(big.system, big.q0, big.v0, method=gm.Rattle(), dt=0.01, t_end=0.02, engine="native").engine.startswith("xla (")


def _strange(q, k):
    """Something of everything that may stand in a potential."""
    x = jnp.concatenate([q, q[::-1] ** 3, jnp.stack([jnp.sum(q), jnp.prod(q)])])
    rotated = jnp.roll(x.reshape(2, -1), 1, axis=1) @ jnp.linspace(0.1, 1.0, x.size // 2)
    branch = jax.lax.cond(q[0] > 0.2, lambda y: jnp.sum(jnp.sin(y)), lambda y: jnp.sum(jnp.tanh(y) ** 2), x)
    summed, each = jax.lax.scan(lambda c, y: (0.9 * c + y, jnp.exp(-(c**2)) * y), 0.0, x)
    iterated = jax.lax.fori_loop(0, 5, lambda i, y: y - 0.1 * (y**3 + x[i]), 0.3)
    picked = jax.lax.dynamic_slice(x, (jnp.argmax(jnp.abs(q)),), (2,))
    put = jnp.zeros(4).at[jnp.array([0, 2, 2])].add(q).at[1].set(q[0])
    spread = jnp.maximum(q[0], k["floor"]) + jnp.minimum(q[1], 0.4) + jnp.where(q[2] < 0, jnp.abs(q[2]), jnp.arctan2(q[2], 1.3)) + jnp.log1p(q[0] ** 2) + (1.2 + q[1]) ** 1.7
    matrix = jnp.eye(3) + 0.1 * jnp.outer(q, q)
    solved = q @ jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), jnp.flip(q))
    parts = (jnp.sum(rotated), branch, summed, jnp.sum(each**2), iterated, jnp.sum(picked**2), jnp.sum(put**2), spread, solved, jnp.sum(jnp.cumsum(q) ** 2))
    return 0.05 * sum(parts) + jnp.sum(q**2)


def test_operations():
    """Over and over from different places: each operation meets different numbers, and each branch is taken."""
    system = gm.System(_strange, params={"floor": 0.1})
    rng = np.random.default_rng(0)
    for _ in range(8):
        q, p = rng.uniform(-1, 1, (2, 3))
        expected, got = (gm.simulate(system, q, p0=p, method=gm.Verlet(), dt=0.01, t_end=1.0, save_every=10, engine=e) for e in ("xla", "native"))
        assert got.engine == "native"
        np.testing.assert_allclose(got.q, expected.q, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(got.energy, expected.energy, rtol=1e-11, atol=1e-12)
