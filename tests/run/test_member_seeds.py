"""Random numbers of the members of an ensemble: a seed for each, wherever it runs."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import numpy as np
import pytest

import geomint as gm
from helpers.noisy import Noisy
from helpers.runs import save_by_save

# --- random numbers -------------------------------------------------------------------------------------------------
PENDULUM = gm.models.pendulum()


NOISY: dict[str, Any] = dict(method=Noisy(), dt=0.05, t_end=5.0, save_every=10)


def noisy(members: int, engine: str = "native", **more: Any) -> Any:
    run = gm.ensemble(PENDULUM.system, np.full((members, 1), 0.3), engine=engine, **NOISY | more)
    assert run.engine == engine
    return run.q


@pytest.mark.parametrize("engine", ["xla", "native"])
def test_the_random_numbers_of_a_member(engine, monkeypatch):
    """They depend on its number and its seed, not on the others, nor on chunks."""
    eight = noisy(8, engine=engine, seed=5)
    assert np.ptp(eight[:, -1]) > 0.1
    assert np.allclose(noisy(33, engine=engine, seed=5)[:8], eight, rtol=1e-12)
    assert np.allclose(noisy(8, engine="xla", seed=5), eight, rtol=1e-11)
    assert np.abs(noisy(8, engine=engine, seed=6) - eight)[:, -1].min() > 1e-4
    save_by_save(monkeypatch)
    assert np.array_equal(noisy(8, engine=engine, seed=5), eight)


def test_a_seed_for_each_member(tmp_path):
    """A member is then what gm.simulate with its seed gives; seeds beyond 32 bits count in full."""
    seeds = np.array([3, 2**33 + 1, 1, 3])
    run = noisy(4, seed=seeds)
    alone = [gm.simulate(PENDULUM.system, np.array([0.3]), **NOISY, seed=int(s)).q for s in seeds]
    assert np.allclose(run, alone, rtol=1e-12)
    assert np.array_equal(run[0], run[3])
    assert not np.allclose(run[1, -1], run[2, -1], rtol=1e-3)
    state = importlib.import_module("geomint.run.inputs").initial_state(
        np.zeros((2, 1)), np.zeros((2, 1)), 0.0, 7, False, 2
    )
    assert np.array_equal(state.key[1], jax.random.key_data(jax.random.fold_in(jax.random.key(7), 1)))
    kept = gm.ensemble(
        PENDULUM.system,
        [[0.1], [0.2], [0.3], [0.4]],
        method=gm.Verlet(),
        dt=0.05,
        t_end=10.0,
        save_every=10,
        seed=seeds,
    )
    kept.save(tmp_path / "kept.h5")
    assert np.array_equal(gm.load(tmp_path / "kept.h5").seed, seeds)
