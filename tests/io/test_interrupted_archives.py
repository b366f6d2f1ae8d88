"""Archives of runs that were interrupted, and resumed by others: rows, events and checkpoints agree."""

from __future__ import annotations

import os

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines.llvm import engine as native
from geomint.engines.scalar.values import NotCovered
from geomint.io import archive, sinks
from geomint.io import writer as writer_module
from geomint.run import loop
from helpers.runs import kepler


def interrupted_after(monkeypatch, sink: type, name: str, call: int, run):
    """Ctrl-C right after the given call of a sink's method, in a run in chunks of ten saves."""
    real, calls = getattr(sink, name), []

    def then_interrupt(self, *arguments):
        real(self, *arguments)
        calls.append(name)
        if len(calls) == call:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_chunk", lambda grid, n, rows, budget: (grid.save_every, 10))
        patch.setattr(sink, name, then_interrupt)
        with pytest.raises(gm.Interrupted) as caught:
            run()
    return caught.value.run


@pytest.mark.parametrize("later", [None, 10.0])
def test_an_interrupt_between_rows_and_checkpoint_leaves_no_row_too_many(tmp_path, monkeypatch, later):
    path, whole = tmp_path / "run.h5", kepler(steps=1000, save_every=5)
    run = interrupted_after(
        monkeypatch,
        sinks.Disk,
        "append",
        4,
        lambda: kepler(steps=1000 if later is None else 500, save_every=5, output=path),
    )
    assert (len(run), run.checkpoint.step) == (31, 150)
    assert np.array_equal(run.q, whole.q[:31])
    resumed = gm.resume(path, t_end=later)
    assert np.array_equal(resumed.t, whole.t)
    assert np.array_equal(resumed.q, whole.q)


def test_an_interrupt_between_rows_and_checkpoint_in_memory(tmp_path, monkeypatch):
    run = interrupted_after(monkeypatch, sinks.Memory, "append", 5, lambda: kepler(steps=1000, save_every=5))
    assert (len(run), run.checkpoint.step) == (31, 150)
    assert np.array_equal(gm.resume(run.save(tmp_path / "run.h5"), t_end=10.0).q, kepler(steps=1000, save_every=5).q)


def falling(t_end: float, **more):
    """With some events in every chunk of ten saves."""
    model = gm.models.pendulum()
    return gm.simulate(model.system, [0.3], [1.0], method=gm.EnergyStepping(0.02), dt=0.1, t_end=t_end, **more)


def test_an_interrupt_between_events_and_checkpoint_leaves_no_event_too_many(tmp_path, monkeypatch):
    path, whole = tmp_path / "run.h5", falling(10.0)
    run = interrupted_after(monkeypatch, sinks.Disk, "append_events", 4, lambda: falling(10.0, output=path))
    assert archive.events_path(path).stat().st_size == 24 * len(run.events)
    resumed = gm.resume(path)
    assert np.array_equal(resumed.events.records, whole.events.records)
    in_memory = interrupted_after(monkeypatch, sinks.Memory, "append_events", 4, lambda: falling(10.0))
    assert len(in_memory.events.times) == len(in_memory.events) == len(run.events) < len(whole.events)


def test_rows_beyond_the_step_of_the_checkpoint_do_not_count(tmp_path):
    """What such an interrupt once left in a file."""
    path = tmp_path / "run.h5"
    run = kepler(output=path)
    writer = archive.read(path).writer()
    writer.checkpoint(run.checkpoint.carry, 99, force=True)
    writer.close()
    assert len(gm.load(path)) == 100


def test_rows_without_room_are_refused(tmp_path):
    path = tmp_path / "run.h5"
    run = kepler(output=path)
    before, writer = path.read_bytes(), archive.read(path).writer()
    with pytest.raises(gm.ArchiveError, match=r"room for 601 rows, of which 601 are in use: 2 more"):
        writer.append_columns({n: run.columns[n][:2] for n in ("q", "p", "energy")}, run.t[:2])
    with pytest.raises(gm.ArchiveError, match=r"room for 601 rows, of which 601 are in use: 1 more"):
        writer.append_columns({n: run.columns[n][:1] for n in ("q", "p", "energy")}, run.t[:1])
    writer.close()
    assert path.read_bytes() == before


def test_an_interrupted_checkpoint_is_written_again_to_the_same_slot(tmp_path, monkeypatch):
    """The other slot holds the only one that is whole."""
    path = tmp_path / "run.h5"
    run = kepler(output=path)
    contents = archive.read(path)
    writer = contents.writer()

    def half(file, data, offset):
        os.pwrite(file, data[: len(data) // 2], offset)
        raise KeyboardInterrupt

    monkeypatch.setattr(writer_module, "write_at", half)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            writer.checkpoint(run.checkpoint.carry, 600, force=True)
        assert archive.read(path).sequence == contents.sequence
    writer.close()


@pytest.mark.parametrize("keep", [0, 10, None])
def test_a_run_does_not_go_on_without_its_events(tmp_path, keep):
    path = tmp_path / "run.h5"
    run = falling(5.0, output=path)
    beside, count = archive.events_path(path), len(run.events)
    whole, archived = beside.read_bytes(), path.read_bytes()
    beside.unlink() if keep is None else os.truncate(beside, 24 * keep + 5)
    with pytest.raises(gm.ArchiveError, match=rf"run\.h5\.events beside it has {keep or 0} of the {count} events"):
        gm.resume(path, t_end=10.0)
    assert path.read_bytes() == archived
    assert not beside.exists() if keep is None else beside.stat().st_size == 24 * keep + 5
    beside.write_bytes(whole)
    assert np.array_equal(gm.resume(path, t_end=10.0).events.records, falling(10.0).events.records)


def test_events_of_a_run_that_is_being_written_are_left_alone(tmp_path):
    path = tmp_path / "run.h5"
    falling(5.0, output=path)
    beside, writer = archive.events_path(path), archive.read(path).writer()
    writer.append_events(np.ones((3, 3)))  # those of a chunk whose checkpoint is still to come
    before = beside.read_bytes()
    with pytest.raises(gm.ArchiveError, match="being written"):
        gm.resume(path)
    assert beside.read_bytes() == before
    writer.close()


def test_events_of_a_moved_archive_are_not_deleted(tmp_path):
    path, moved = tmp_path / "run.h5", tmp_path / "moved.h5"
    count = len(falling(5.0, output=path).events)
    path.rename(moved)
    for go in (lambda: falling(5.0, output=path), lambda: kepler(output=path), lambda: kepler().save(path)):
        with pytest.raises(gm.ArchiveError, match=r"run\.h5\.events exists.*Move it.*remove it.*another output"):
            go()
    archive.events_path(path).rename(archive.events_path(moved))
    assert len(gm.load(moved).events.times) == count
    kepler(output=path)


def test_a_run_interrupted_between_saves_is_saved_and_goes_on_to_its_own_end(tmp_path, monkeypatch):
    real = sinks.Memory.checkpoint

    def checkpoint(self, carry, step):
        real(self, carry, step)
        if step == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_chunk", lambda grid, n, rows, budget: (1, 1))
        patch.setattr(sinks.Memory, "checkpoint", checkpoint)
        with pytest.raises(gm.Interrupted) as caught:
            kepler(save_every=5)
    run = caught.value.run
    assert (len(run), run.checkpoint.step) == (2, 7)
    for name, t_end in (("own.h5", None), ("later.h5", 8.0)):
        path = run.save(tmp_path / name)
        assert np.array_equal(gm.load(path).q, run.q)
        assert np.array_equal(gm.resume(path, t_end=t_end).q, kepler(600 if t_end is None else 800, save_every=5).q)
    with pytest.raises(gm.InputError, match=r"already reached t = 0\.07, beyond t_end = 0\.05"):
        gm.resume(run.save(tmp_path / "third.h5"), t_end=0.05)


@pytest.mark.parametrize("members", [False, True])
def test_an_archive_of_an_engine_that_steps_aside_here(tmp_path, monkeypatch, members):
    """The carry of straight-line code has no force in it, that of XLA has: the archive's form is kept. Then it may
    change back."""
    model, path = gm.models.fpu(10), tmp_path / "run.h5"
    q, v = (np.stack([x] * 3) if members else x for x in (model.q0, model.v0))
    go = lambda t_end, **more: (gm.ensemble if members else gm.simulate)(
        model.system, q, v, method=gm.Verlet(), dt=0.001, t_end=t_end, engine="native", **more
    )
    assert go(0.01, output=path).engine == "native"
    with monkeypatch.context() as patch:
        patch.setattr(native.Native, "compile_program", lambda *_: (_ for _ in ()).throw(NotCovered("this machine")))
        assert gm.load(path).checkpoint.step == 10
        for t_end in (0.02, 0.03):
            with pytest.warns(
                UserWarning,
                match=r"run by the native engine, which is not available here: xla \(.*this machine\) goes on",
            ):
                run = gm.resume(path, t_end=t_end)
        assert run.engine.startswith("xla (")
        run.save(tmp_path / "copy.h5")
    for name in ("run.h5", "copy.h5"):
        again = gm.resume(tmp_path / name, t_end=0.04)
        assert again.engine == "native"
        np.testing.assert_allclose(again.q, go(0.04).q, rtol=1e-12, atol=1e-12)


def test_resume_offers_only_what_it_takes(tmp_path):
    """It has neither dt nor save_every."""
    system, path = gm.System(lambda q: jnp.sum(q**2)), tmp_path / "a.h5"
    gm.simulate(system, [1.0], method=gm.Verlet(), dt=0.01, t_end=0.2, save_every=2, output=path)
    for t_end, nearest in ((4.005, "4 or 4.01"), (4.01, "4 or 4.02")):
        with pytest.raises(gm.InputError, match=f"Nearest that fit: t_end = {nearest}.$"):
            gm.resume(path, system=system, t_end=t_end)


def test_what_needs_the_system_says_so(tmp_path):
    system, path = gm.System(lambda q: jnp.sum(q**2)), tmp_path / "a.h5"
    gm.simulate(system, [1.0], method=gm.Verlet(), dt=0.01, t_end=0.2, output=path)
    run = gm.load(path)
    for name in ("v", "constraint_forces", "status"):
        with pytest.raises(AttributeError, match=r"gm.load\(path, system=system\)"):
            getattr(run, name)
    assert not hasattr(run, "v")
    with pytest.raises(AttributeError, match="this run has no 'nothing'; saved are"):
        _ = run.nothing
    assert gm.load(path, system=system).v.shape == (21, 1)


def test_the_solver_is_kept(tmp_path):
    system = gm.System(lambda q: jnp.sum(q[:, 1]), constraint=gm.Distances([(None, 0), (0, 1)]))
    start = {"q0": [[1.0, 0], [2.0, 0]], "method": gm.Rattle(), "dt": 0.01, "t_end": 0.1}
    run = gm.simulate(system, **start, output=tmp_path / "a.h5")
    assert run.solver
    assert gm.load(tmp_path / "a.h5").solver == run.solver
    gm.load(tmp_path / "a.h5", system=system).save(tmp_path / "b.h5")
    assert gm.load(tmp_path / "b.h5").solver == run.solver
    assert gm.resume(tmp_path / "a.h5", system=system, t_end=0.2).solver == run.solver
    assert gm.load(tmp_path / "a.h5").solver == run.solver
    free = gm.System(lambda q: jnp.sum(q**2))
    gm.simulate(free, [1.0], method=gm.Verlet(), dt=0.1, t_end=0.2, output=tmp_path / "c.h5")
    assert gm.load(tmp_path / "c.h5").solver is None
