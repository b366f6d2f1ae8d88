"""What every registered method owes the loop: one trace, vmap = loop, chunked = unchunked, resumed = uninterrupted, bit
for bit. (That a step keeps the structure and the dtypes of its carry is what JAX's loops insist on in every run.)"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

import geomint as gm
from geomint.engines import xla
from geomint.run import loop
from helpers.runs import run, same
from helpers.zoo import PROBLEMS, cheapest, first_of_its_class

# Variants of a class differ by numbers; beyond the first of each they wait for the slow tests, but for two that differ
# by more.
MORE = (gm.Rattle(gm.IMEX()).name, gm.Composition(gm.Rattle(), order=6).name)
QUICK = lambda m: first_of_its_class(m) or m.name in MORE
METHODS = pytest.mark.parametrize(
    "method", [pytest.param(m, id=m.name, marks=[] if QUICK(m) else pytest.mark.slow) for m in gm.methods.all()]
)
TRACES = []


@functools.cache
def counting(method):
    """The cheapest problem that fits, the same system in all tests of a method; it notes each trace of its
    potential."""
    problem = cheapest(method)

    def potential(q, *params):
        TRACES.append(1)
        return problem.system.potential(q, *params)

    return dataclasses.replace(problem, system=dataclasses.replace(problem.system, potential=potential))


@functools.cache
def whole(method):
    return run(method, counting(method), steps=60)


@METHODS
def test_a_sweep_traces_once(method):
    problem = counting(method)
    whole(method)
    once = len(TRACES)
    for k in range(1, 20):
        run(method, dataclasses.replace(problem, dt=problem.dt / (1 + k)), steps=10 + 2 * k, save_every=2)
    assert len(TRACES) == once


@METHODS
def test_members_of_an_ensemble_equal_single_runs(method):
    problem = counting(method)
    p0s = np.stack([problem.at.p * s for s in 1 + 0.01 * np.arange(3)])
    grid = {"method": method, "dt": problem.dt, "t_end": 20 * problem.dt}
    seeds = [0] * 3  # that of the single runs
    together = gm.ensemble(problem.system, np.stack([problem.at.q] * 3), p0s=p0s, seed=seeds, **grid)
    for i in range(3):
        alone = gm.simulate(problem.system, problem.at.q, p0=p0s[i], **grid)
        # The compiler may contract products and sums differently in the two programs: a few units in the last place.
        np.testing.assert_allclose(together.q[i], alone.q, rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(together.p[i], alone.p, rtol=1e-13, atol=1e-14)


@METHODS
def test_chunked_equals_unchunked(method, monkeypatch):
    problem = counting(method)
    monkeypatch.setattr(
        loop, "_chunk", lambda grid, n, rows, budget: (min(2, grid.save_every - n % grid.save_every), 1)
    )
    assert same(run(method, problem, steps=60), whole(method))
    monkeypatch.undo()
    monkeypatch.setattr(xla, "BUFFER_ROWS", 4)
    assert same(run(method, problem, steps=60), whole(method))


@METHODS
def test_resumed_equals_uninterrupted(method, tmp_path):
    problem = counting(method)
    run(method, problem, steps=30, output=tmp_path / "half.h5")
    assert same(gm.resume(tmp_path / "half.h5", system=problem.system, t_end=60 * problem.dt), whole(method))


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.name in ("pendula", "bonded-on-circle")], ids=repr)
def test_compensated_runs_resume_too(problem, tmp_path):
    method = gm.Composition(gm.Verlet() if problem.system.constraint is None else gm.Rattle(), order=6)
    uninterrupted = run(method, problem, steps=60, compensated=True)
    run(method, problem, steps=30, compensated=True).save(tmp_path / "half.h5")
    assert same(gm.resume(tmp_path / "half.h5", system=problem.system, t_end=60 * problem.dt), uninterrupted)
