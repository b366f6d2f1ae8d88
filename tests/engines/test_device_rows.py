"""Ensembles that stay on their device until they are read: the same numbers and messages as on the host. Kernels are
interpreted here; benchmarks/ensemble_calls.py looks at a GPU."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines import Kernel, device_rows
from geomint.engines.device_rows import DeviceColumns, DeviceRows
from helpers.runs import save_by_save

SYSTEM = gm.System(lambda q, k: k * q[0] ** 4 / 4 + q[1] ** 2 / 2, params=1.0, watch={"x": lambda q, p: q[0]})
GRID = {"method": gm.Verlet(), "dt": 0.05, "t_end": 1.0, "save_every": 5, "engine": "kernel"}
Q = np.random.default_rng(0).normal(size=(10, 2))  # three tiles of four members, the last one padded
PARAMS = np.linspace(0.5, 2.0, 10)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr("geomint.engines.pallas.engine.INTERPRET", True)
    monkeypatch.setattr("geomint.engines.pallas.engine.LANES", 4)


def go(**more):
    return gm.ensemble(**{"system": SYSTEM, "q0s": Q, "v0s": np.ones(2), "params": PARAMS, **GRID, **more})


def same(run, expected):
    for name in ("q", "p", "energy"):
        assert np.array_equal(getattr(run, name), getattr(expected, name), equal_nan=True)
    for a, b in zip(*(jax.tree.leaves(x.checkpoint.carry) for x in (run, expected)), strict=True):
        assert np.array_equal(a, b, equal_nan=True)


def test_numbers_are_those_of_the_host(monkeypatch, tmp_path):
    run = go(compensated=True)
    assert run.engine == "kernel"
    assert isinstance(run.saved, DeviceColumns)
    assert "10 trajectories" in repr(run)
    assert isinstance(run.saved, DeviceColumns), "repr reads one column"
    on_device = jnp.asarray(Q)
    same(go(compensated=True, q0s=on_device), run)
    streamed = go(compensated=True, output=tmp_path / "run.h5")
    same(streamed, run)
    run.save(tmp_path / "saved.h5")
    assert np.array_equal(gm.load(tmp_path / "saved.h5").q, run.q)
    again = gm.resume(tmp_path / "saved.h5", system=SYSTEM.with_params(PARAMS), t_end=2.0)
    with monkeypatch.context() as patch:
        save_by_save(patch)
        chunked = go(compensated=True)
        assert len(chunked.saved.pieces) == 5
        same(chunked, run)
    monkeypatch.setattr(Kernel, "on_device", False)
    expected = go(compensated=True)
    assert isinstance(expected.saved, dict)
    same(run, expected)
    same(again, go(compensated=True, t_end=2.0))
    assert np.array_equal(run.watched["x"], expected.watched["x"])
    assert np.array_equal(run.columns["watched"]["x"], run.q[..., 0])
    assert np.array_equal(run.v, expected.v)


def test_members_that_fail_and_warnings_are_those_of_the_host(monkeypatch):
    """A member that blows up, one whose energy error is too large, and starts that are not finite."""
    steep = gm.System(lambda q: q[0] ** 4 / 4 - 4000 * jnp.cos(q[1]))  # h = 0.05 is too long for q[1], h ω = 3.2
    starts = np.array([[1.0, 0.0], [0.3, 0.0], [0.5, 1.0], [2e3, 0.0], [0.2, 0.0]])
    found = []
    for on_device in (True, False):
        monkeypatch.setattr(Kernel, "on_device", on_device)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            run = gm.ensemble(steep, starts, **GRID)
            calm = gm.ensemble(steep, starts[:2], **GRID)
        assert isinstance(calm.saved, DeviceColumns) is on_device
        with pytest.raises(gm.RunStopped, match="step") as stopped:
            gm.ensemble(steep, starts[3:4], **GRID)
        found.append((run, [str(w.message) for w in told], str(stopped.value)))
    (run, told, stopped), (expected, told_on_host, stopped_on_host) = found
    same(run, expected)
    assert run.failed_at.tolist() == expected.failed_at.tolist()
    assert run.failed_at[3] > 0
    assert told == told_on_host
    assert len(told) == 1
    assert "energy error" in told[0]
    assert stopped == stopped_on_host
    monkeypatch.setattr(Kernel, "on_device", True)
    with pytest.raises(gm.InputError, match=r"q0s has entries that are not finite: \[nan"):
        gm.ensemble(steep, jnp.full((3, 2), jnp.nan).at[0].set(1.0), **GRID)
    with pytest.raises(gm.InputError, match="the energy at q0 of member 1 is nan"):
        gm.ensemble(gm.System(lambda q: jnp.log(q[0])), np.array([[1.0], [-1.0]]), **GRID)


def test_old_runs_are_moved_to_the_host(monkeypatch):
    rows = np.random.default_rng(1).normal(size=(3, 4, 2))
    layout = device_rows.Layout.of({"q": np.zeros(1), "p": np.zeros(1)})
    columns = lambda: DeviceColumns(layout, [DeviceRows(jnp.asarray(rows), 3), DeviceRows(jnp.asarray(rows), 2)], 4)
    monkeypatch.setattr(device_rows, "HELD_BYTES", 3 * rows.nbytes)
    monkeypatch.setattr(device_rows, "_holders", [])
    old, new = columns(), columns()
    assert old.device_bytes == 0
    assert new.device_bytes == 2 * rows.nbytes
    expected = np.concatenate([rows[:, :3], rows[:, :1]], axis=1)
    for each in (old, new):
        assert np.array_equal(each.read("p"), expected[..., :1])
        assert np.array_equal(each.read("q"), expected[..., 1:])
