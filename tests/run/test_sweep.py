"""gm.sweep: every combination of values, failures as rows, and nothing repeated."""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
from typing import Any

import numpy as np
import pytest

import geomint as gm
from geomint.run.executors import InThisProcess

PENDULUM = gm.models.pendulum()
OVER: dict[str, Any] = {
    "params.gravity": [1.0, 2.0],
    "dt": [0.1, 0.05, 0.07],
    "method": [gm.Verlet(), gm.ImplicitMidpoint()],
}


def test_the_table_has_the_numbers_of_single_runs(tmp_path):
    table = gm.sweep(PENDULUM, over=OVER, t_end=2.0, output=tmp_path / "sweep")
    assert dict(table.sizes) == {"params.gravity": 2, "dt": 3, "method": 2, "axis_0": 1}
    assert (table.status.sel(dt=0.07) == "refused").all()
    assert "28.5714 steps of dt = 0.07" in str(table.message.sel(dt=0.07).values[0, 0])
    assert np.isnan(table.q.sel(dt=0.07)).all()
    assert (table.status.sel(dt=[0.1, 0.05]) == "complete").all()
    one = gm.simulate(
        PENDULUM.system.with_params({"gravity": 2.0, "length": 1.0}), PENDULUM.q0, PENDULUM.v0, method=gm.Verlet(),
        dt=0.05, t_end=2.0,
    )  # fmt: skip
    row = table.sel({"params.gravity": 2.0, "dt": 0.05, "method": "Verlet()"})
    assert np.array_equal(row.q, one.q[-1])
    assert float(row.energy_error) == np.max(np.abs(one.energy_error))
    assert float(row.end_time) == 2.0
    kept = gm.load(tmp_path / "sweep" / str(row.file.values))
    assert np.array_equal(kept.q, one.q)


def test_failures_are_rows(tmp_path):
    """The step is beyond the limit of stability, or the motion escapes to infinity."""
    escape = gm.System(lambda q, k: -k * q[0] ** 4, params=1.0)
    over = {"params": [1.0, 1e-9], "q0": [[1.0], [1.2]]}
    table = gm.sweep(escape, over=over, method=gm.Verlet(), dt=0.01, t_end=3.0, output=tmp_path / "sweep")
    assert table.status.values.tolist() == [["stopped"] * 2, ["complete"] * 2]
    assert "turned non-finite at step" in str(table.message[0, 0].values)
    assert 0 < float(table.end_time[0, 0]) < 3.0
    assert table.q0.values.tolist() == [0, 1]
    again = gm.sweep(escape, over=over, method=gm.Verlet(), dt=0.01, t_end=3.0, output=tmp_path / "sweep")
    assert table.identical(again)


class Counts(InThisProcess):
    """Runs some tasks, then is interrupted."""

    def __init__(self, most: int = 10**9):
        self.count, self.most = 0, most

    def submit(self, function, *arguments):
        if self.count >= self.most:
            raise KeyboardInterrupt
        self.count += 1
        return super().submit(function, *arguments)


def test_nothing_that_has_ended_is_repeated(tmp_path):
    settings = {"over": OVER, "t_end": 2.0, "output": tmp_path / "sweep"}
    with pytest.raises(gm.Interrupted, match=r"5 of 12 points have ended.*The same call"):
        gm.sweep(PENDULUM, executor=Counts(5), **settings)
    # The client was killed while it wrote a line: the point of that line runs again.
    results = tmp_path / "sweep" / "sweep.jsonl"
    results.write_text(results.read_text()[:-20])
    rest = Counts()
    table = gm.sweep(PENDULUM, executor=rest, **settings)
    assert rest.count == 8
    nothing = Counts()
    assert table.identical(gm.sweep(PENDULUM, executor=nothing, **settings))
    assert nothing.count == 0
    whole = gm.sweep(PENDULUM, over=OVER, t_end=2.0)
    same = ["status", "message", "energy_error", "end_time", "q", "p"]
    assert whole[same].identical(table[same].assign_attrs({}).drop_attrs())
    with pytest.raises(gm.ArchiveError, match="has another sweep"):
        gm.sweep(PENDULUM, **settings | {"t_end": 3.0})
    assert "pickle" not in results.read_text()
    assert all(json.loads(line) for line in results.read_text().splitlines() if line.endswith("}"))


def test_points_that_differ_in_numbers_compile_once():
    traced = []

    class Counted(gm.Verlet):
        def step(self, mech, carry, dt):
            traced.append(1)
            return super().step(mech, carry, dt)

    settings = {"method": Counted(), "t_end": 1.0, "engine": "xla"}
    gm.sweep(PENDULUM, over={"params.gravity": [1.0], "dt": [0.1]}, **settings)
    once = len(traced)
    assert once
    gm.sweep(PENDULUM, over={"params.gravity": np.linspace(1, 2, 4), "dt": [0.1, 0.05]}, **settings)
    assert len(traced) == once


def test_a_pool_of_processes():
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        table = gm.sweep(PENDULUM, over=OVER, t_end=2.0, executor=pool)
    whole = gm.sweep(PENDULUM, over=OVER, t_end=2.0)
    assert table.drop_vars(["seconds"]).identical(whole.drop_vars(["seconds"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"over": {"params.gravty": [1.0]}}, "params have no 'gravty'. Did you mean gravity"),
        ({"over": {"dtt": [1.0]}}, "neither an argument of gm.simulate.*Did you mean dt"),
        ({"over": {}}, "over must be a mapping"),
        ({"over": {"dt": 0.1}}, "over.'dt'. must be a list of values"),
        ({"over": {"dt": []}}, "must be a list of values"),
        ({"over": {"dt": [0.1]}, "method": None}, "sweep needs method"),
        ({"over": {"dt": [0.1]}, "members": 3}, "no argument 'members'"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(gm.InputError, match=message):
        gm.sweep(PENDULUM, **{"method": gm.Verlet()} | arguments)
