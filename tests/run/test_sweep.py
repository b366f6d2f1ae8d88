"""gm.sweep: every combination of values, failures as rows, and nothing repeated."""

from __future__ import annotations

import concurrent.futures
import importlib
import json
import multiprocessing
import shutil
from typing import Any

import numpy as np
import pytest

import geomint as gm
from geomint.errors import ArchiveBusy
from geomint.io import archive
from geomint.run.executors import InThisProcess

sweep_module = importlib.import_module("geomint.run.sweep")  # geomint.run has the function of that name
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


SHORT: dict[str, Any] = {"method": gm.Verlet(), "t_end": 2.0}


def test_the_energy_error_of_a_driven_system_is_that_of_energy_minus_work():
    """Of order 2, where the change of the energy is that of the motion."""
    errors = gm.sweep(gm.models.driven_pendulum(), over={"dt": [0.02, 0.01]}, t_end=20.0).energy_error.values
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.02)


def statuses(table) -> list[str]:
    return table.status.values.ravel().tolist()


def test_values_that_are_not_numbers_are_rows():
    """None must not run the default."""
    for value in (None, "a", "2.0", 1j, [[1.0], [1.0, 2.0]], {"gravity": 2.0}):
        table = gm.sweep(PENDULUM, over={"params.gravity": [value, 2.0]}, **SHORT)
        assert statuses(table) == ["refused", "complete"]
        assert "params.gravity must" in str(table.message[0].values)
    wrong = [None, {"gravity": 2.0, "lenght": 1.0}, {"gravity": 2.0, "length": 1.0}]
    assert statuses(gm.sweep(PENDULUM, over={"params": wrong}, **SHORT)) == ["refused", "refused", "complete"]
    table = gm.sweep(PENDULUM, over={"dt": ["a", None, 0.1]}, method=gm.Verlet(), save_every=5)
    assert statuses(table) == ["refused", "refused", "complete"]
    assert "dt must be a number" in str(table.message[0].values)
    table = gm.sweep(PENDULUM, over={"q0": [[[1.0], [1.0, 2.0]], "a", [0.5]]}, **SHORT)
    assert statuses(table) == ["refused", "refused", "complete"]


def test_an_integer_among_the_params_takes_a_fraction():
    spring = gm.System(lambda q, k: k * q[0] ** 2 / 2, params=1)
    table = gm.sweep(spring, [1.0], over={"params": [1, 0.5]}, dt=0.1, **SHORT)
    one = gm.simulate(spring.with_params(0.5), [1.0], dt=0.1, **SHORT)
    assert np.array_equal(table.q[1], one.q[-1])


def test_an_archive_of_another_point_is_not_continued(tmp_path):
    over = {"dt": [0.1, 0.05], "q0": [[0.5], [0.6]], "p0": [[0.0], [0.1]], "seed": [0, 1]}
    settings = {"over": over, "output": tmp_path, **SHORT}
    table = gm.sweep(PENDULUM, **settings)
    assert statuses(table) == ["complete"] * 16  # p0 replaces the velocity of the model
    assert len(np.unique(table.p)) == 8
    results = tmp_path / "sweep.jsonl"
    whole = results.read_text()
    own = (tmp_path / "00000.h5").read_bytes()
    for other, why in ((8, "its dt is 0.05, not 0.1"), (4, "another q"), (2, "another p"), (1, "its seed is 1, not 0")):
        results.write_text("".join(x for x in whole.splitlines(True) if not x.startswith('{"number": 0,')))
        shutil.copy(tmp_path / f"{other:05d}.h5", tmp_path / "00000.h5")
        again = gm.sweep(PENDULUM, **settings)
        assert statuses(again) == ["failed"] + ["complete"] * 15
        assert why in str(again.message.values.flat[0])
        assert '{"number": 0,' not in results.read_text()
    (tmp_path / "00000.h5").write_bytes(own)
    once = Counts()
    again = gm.sweep(PENDULUM, executor=once, **settings)
    assert once.count == 1
    assert again.q.identical(table.q)


def test_errors_of_files_and_of_the_memory_are_not_kept(tmp_path, monkeypatch):
    settings = {"over": {"dt": [0.1, 0.05]}, "output": tmp_path, **SHORT}
    gm.sweep(PENDULUM, **settings)
    results = tmp_path / "sweep.jsonl"
    results.write_text(results.read_text().splitlines(True)[0])
    monkeypatch.setattr(sweep_module, "BUSY_SECONDS", 0.1)
    contents = archive.read(tmp_path / "00000.h5")
    writer = contents.writer()  # a task of an interrupted call still runs
    try:
        table = gm.sweep(PENDULUM, **settings)
    finally:
        writer.close()
    assert statuses(table) == ["failed", "complete"]
    assert "is being written" in str(table.message[0].values)
    for error in (MemoryError("all used"), OSError("no space"), TypeError("in a function")):

        def fails(*_, error=error, **__):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(sweep_module, "resume", fails)
            table = gm.sweep(PENDULUM, **settings)
        assert statuses(table) == ["failed", "complete"]
        assert str(error) in str(table.message[0].values)
    attempts = []

    def busy_once(*arguments, **keywords):
        attempts.append(1)
        if len(attempts) == 1:
            raise ArchiveBusy("busy")
        return resume(*arguments, **keywords)

    resume = sweep_module.resume
    monkeypatch.setattr(sweep_module, "resume", busy_once)
    assert statuses(gm.sweep(PENDULUM, **settings)) == ["complete"] * 2
    assert len(attempts) == 2


def test_damaged_lines_run_again(tmp_path):
    settings = {"over": {"dt": [0.1, 0.05]}, "output": tmp_path, **SHORT}
    table = gm.sweep(PENDULUM, **settings)
    results = tmp_path / "sweep.jsonl"
    first, one, two = results.read_bytes().splitlines(True)
    held = json.loads(two)
    changes = [{"number": "x"}, {"number": 1.5}, {"number": 7}, {"q": ["a"]}, {"q": [[1], [2, 3]]}, {"status": 3}]
    changes += [{"seconds": "long"}, {"message": None}, {"end_time": []}]
    bad = [json.dumps(held | change).encode() for change in changes]
    results.write_bytes(b"\n".join([first + one.rstrip(), b"[1]", b"3", b"\xff{", b"[" * 10**5, *bad]))
    again = Counts()
    same = ["status", "q", "p", "end_time", "energy_error", "file"]
    assert gm.sweep(PENDULUM, executor=again, **settings)[same].identical(table[same])
    assert again.count == 1


def test_output_is_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(gm.InputError, match="output must be a folder, and .*file is a file"):
        gm.sweep(PENDULUM, over={"dt": [0.1]}, output=tmp_path / "file", **SHORT)


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
        ({"over": {"params.length": [1.0], "params": [1.0]}}, "'params.length' is a part of 'params'"),
        ({"over": {}}, "over must be a mapping"),
        ({"over": {"dt": 0.1}}, "over.'dt'. must be a list of values"),
        ({"over": {"dt": []}}, "must be a list of values"),
        ({"system": PENDULUM.system, "over": {"dt": [0.1]}, "method": None}, "sweep needs q0, method and t_end"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(gm.InputError, match=message):
        gm.sweep(**{"system": PENDULUM, "method": gm.Verlet()} | arguments)
