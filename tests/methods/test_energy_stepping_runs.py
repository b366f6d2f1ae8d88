"""Runs of energy-stepping: saved, stopped, resumed, and as ensembles."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import geomint as gm
from geomint.engines import xla
from geomint.engines.block import Log
from geomint.io import archive
from helpers.runs import ARGON, ARGON_ENERGY, argon

pytestmark = pytest.mark.filterwarnings("ignore:EnergyStepping was trapped")


# --- saving, stopping, resuming -------------------------------------------------------------------------------------
def same(a, b):
    return (
        np.array_equal(a.q[-1], b.q[-1])
        and np.array_equal(a.events.records, b.events.records)
        and a.events.counts == b.events.counts
    )


def test_looking_more_often_changes_nothing():
    fine, coarse = argon(t_end=2.0**-6, dt=2.0**-14), argon(t_end=2.0**-6, dt=2.0**-14, save_every=16)
    other = argon(t_end=2.0**-6, dt=2.0**-8)
    assert len(fine.events) > 150
    assert np.array_equal(fine.q[::16], coarse.q)
    assert np.array_equal(fine.q[::64], other.q)
    assert same(fine, coarse)
    assert same(fine, other)


def test_a_log_with_few_rows_loses_no_event(monkeypatch):
    """More events in one dt than the log has rows: the chunk is repeated in shorter ones, then with a larger log."""
    whole = argon(t_end=0.01, dt=1e-3)
    empty, rooms = Log.empty, []

    def small(rows):
        rooms.append(5 * rows // xla.LOG_ROWS)
        return empty(rooms[-1])

    monkeypatch.setattr(Log, "empty", staticmethod(small))
    assert same(whole, argon(t_end=0.01, dt=1e-3))
    assert rooms[0] == 5 < rooms[-1]


def test_saved_loaded_and_resumed_runs_keep_their_events(tmp_path):
    whole = argon(t_end=0.04, dt=1e-3)
    argon(t_end=0.02, dt=1e-3).save(tmp_path / "saved.h5")
    argon(t_end=0.02, dt=1e-3, output=tmp_path / "streamed.h5")
    for name in ("saved.h5", "streamed.h5"):
        half = gm.load(tmp_path / name)
        assert 0 < len(half.events) == len(half.events.times) < len(whole.events)
        resumed = gm.resume(tmp_path / name, t_end=0.04)
        assert np.array_equal(resumed.q, whole.q)
        assert same(resumed, whole)
        assert same(gm.load(tmp_path / name), whole)


LONG = """
import sys, warnings, geomint as gm
warnings.simplefilter("ignore")
m = gm.models.argon_cluster()
grid = dict(dt=1e-4, t_end=float(sys.argv[1]), save_every=100)
method = gm.EnergyStepping(10.519254 * 24932.594 / 60)
gm.simulate(m.system, m.q0, m.v0, method=method, output=sys.argv[2], **grid)
"""


def test_a_killed_run_resumes_with_its_events(tmp_path):
    path = tmp_path / "killed.h5"
    process = subprocess.Popen([sys.executable, "-c", LONG, "200.0", str(path)])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (path.exists() and archive.read(path).step > 2000):
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    contents = archive.read(path)
    events, step = archive.events_path(path), contents.step
    with events.open("ab") as file:  # what a kill between log and checkpoint leaves
        file.write(os.urandom(24 * 5 + 11))
    assert 0 < step < 2_000_000
    end = (step // 100 + 50) * 100 * 1e-4
    head = gm.load(path).events
    assert len(head.times) == len(head)
    # Up to a time shortly after, by changing nothing but the end of the run.
    whole = argon(t_end=end, dt=1e-4, save_every=100)
    resumed = gm.resume(path, t_end=end)
    assert events.stat().st_size == 24 * len(resumed.events)
    assert np.array_equal(resumed.q, whole.q)
    assert same(resumed, whole)


def test_an_ensemble_counts_for_each_member():
    rng = np.random.default_rng(0)
    q0s, v0s = ARGON.q0 + 1e-3 * rng.normal(size=(24, 7, 2)), np.stack([ARGON.v0] * 24)
    epsilon = ARGON.system.params["epsilon"] * np.linspace(0.9, 1.1, 24)
    params, method = {"epsilon": epsilon, "sigma": np.full(24, 0.341)}, gm.EnergyStepping(ARGON_ENERGY / 60)
    run = gm.ensemble(ARGON.system, q0s, v0s, params=params, method=method, dt=1e-3, t_end=5e-3)
    assert len(np.unique(run.events.counts["events"])) > 5
    with pytest.raises(AttributeError, match="ensemble only counts"):
        run.events.times  # noqa: B018
    for i in (0, 11, 23):
        system = ARGON.system.with_params({"epsilon": epsilon[i], "sigma": 0.341})
        alone = gm.simulate(system, q0s[i], v0s[i], method=method, dt=1e-3, t_end=5e-3)
        assert alone.events.counts["events"] == run.events.counts["events"][i]
        np.testing.assert_allclose(run.q[i], alone.q, rtol=0, atol=1e-9)
    assert np.max(np.abs(run.energy_error)) < 1e-13 * ARGON_ENERGY


@pytest.mark.slow
def test_an_ensemble_of_a_thousand_clusters():
    rng = np.random.default_rng(1)
    run = gm.ensemble(
        ARGON.system,
        ARGON.q0 + 2e-3 * rng.normal(size=(1000, 7, 2)),
        np.stack([ARGON.v0] * 1000),
        method=gm.EnergyStepping(ARGON_ENERGY / 60),
        dt=1e-2,
        t_end=0.1,
    )
    assert np.max(np.abs(run.energy_error)) <= 1e-13 * ARGON_ENERGY
    assert (run.failed_at == -1).all()
    mean = 0.1 / run.events.counts["events"] * 1e6
    assert 60 < np.mean(mean) < 110  # fs a step
