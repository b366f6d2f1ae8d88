"""What every registered method owes the loop: structure kept, one trace, vmap = loop, chunked = unchunked, resumed =
uninterrupted, bit for bit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines import xla
from geomint.run import loop
from helpers.runs import run, same
from helpers.zoo import PROBLEMS, first_of_its_class, fitting

# Variants of a class differ by numbers; beyond the first of each they wait for the slow tests, but for those that
# differ by more.
QUICK = lambda m: first_of_its_class(m) or "Rattle" in m.name
METHODS = pytest.mark.parametrize(
    "method", [pytest.param(m, id=m.name, marks=[] if QUICK(m) else pytest.mark.slow) for m in gm.methods.all()]
)


@METHODS
def test_a_step_keeps_structure_and_dtype(method):
    for problem in fitting(method):
        mech = gm.Mechanics(problem.system, problem.at.q.shape)
        state = gm.methods.State(
            jnp.asarray(problem.at.q), jnp.asarray(problem.at.p), jnp.zeros(()), jnp.zeros(2, jnp.uint32)
        )
        dt = jnp.asarray(problem.dt)
        carry = jax.eval_shape(lambda s, m=mech, h=dt: method.init(m, s, h), state)
        moved = jax.eval_shape(lambda c, m=mech, h=dt: method.step(m, c, h), carry)
        assert jax.tree.structure(carry) == jax.tree.structure(moved)
        shapes = lambda tree: [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]
        assert shapes(carry) == shapes(moved)


@METHODS
def test_a_sweep_traces_once(method):
    problem = fitting(method)[0]
    traces = []

    def potential(q, *params):
        traces.append(1)
        return problem.system.call(problem.system.potential, q)

    system = gm.System(
        potential, mass=problem.system.mass, fast=problem.system.fast, constraint=problem.system.constraint
    )
    go = lambda dt, n: gm.simulate(
        system, problem.at.q, p0=problem.at.p, method=method, dt=dt, t_end=n * dt, save_every=2
    )
    go(problem.dt, 10)
    once = len(traces)
    for k in range(20):
        go(problem.dt / (1 + k), 10 + 2 * k)
    assert len(traces) == once


@METHODS
def test_members_of_an_ensemble_equal_single_runs(method):
    problem = fitting(method)[0]
    shifts = 1 + 0.01 * np.arange(3)
    q0s = np.stack([problem.at.q] * 3)
    p0s = np.stack([problem.at.p * s for s in shifts])
    together = gm.ensemble(problem.system, q0s, p0s=p0s, method=method, dt=problem.dt, t_end=20 * problem.dt)
    for i in range(3):
        alone = gm.simulate(problem.system, q0s[i], p0=p0s[i], method=method, dt=problem.dt, t_end=20 * problem.dt)
        # The compiler may contract products and sums differently in the two programs: a few units in the last place.
        np.testing.assert_allclose(together.q[i], alone.q, rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(together.p[i], alone.p, rtol=1e-13, atol=1e-14)


@METHODS
def test_chunked_equals_unchunked(method, monkeypatch):
    problem = fitting(method)[-1]
    whole = run(method, problem, steps=60)
    monkeypatch.setattr(
        loop, "_chunk", lambda grid, n, rows, budget: (min(2, grid.save_every - n % grid.save_every), 1)
    )
    assert same(run(method, problem, steps=60), whole)
    monkeypatch.undo()
    monkeypatch.setattr(xla, "BUFFER_ROWS", 4)
    assert same(run(method, problem, steps=60), whole)


@METHODS
def test_resumed_equals_uninterrupted(method, tmp_path):
    problem = fitting(method)[-1]
    whole = run(method, problem, steps=60)
    run(method, problem, steps=30, output=tmp_path / "half.h5")
    assert same(gm.resume(tmp_path / "half.h5", system=problem.system, t_end=60 * problem.dt), whole)


@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
def test_compensated_runs_resume_too(problem, tmp_path):
    method = gm.Composition(gm.Verlet() if problem.system.constraint is None else gm.Rattle(), order=6)
    whole = run(method, problem, steps=60, compensated=True)
    run(method, problem, steps=30, compensated=True).save(tmp_path / "half.h5")
    assert same(gm.resume(tmp_path / "half.h5", system=problem.system, t_end=60 * problem.dt), whole)
