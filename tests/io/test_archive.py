"""Runs that outlive their process: kills, truncation, foreign files, other systems, extension."""

from __future__ import annotations

import inspect
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.io import archive, sinks
from helpers.processes import same_archives, wait_for_rows
from helpers.runs import kepler

LONG_RUN = """
import sys, resource, psutil, geomint as gm
steps, path = int(sys.argv[1]), sys.argv[2]
model = gm.models.fpu()
gm.simulate(model.system, model.q0, model.v0, method=gm.Verlet(), dt=0.001, t_end=10.0)
before = psutil.Process().memory_info().rss
grid = dict(dt=0.001, t_end=steps * 0.001, save_every=1000)
gm.simulate(model.system, model.q0, model.v0, method=gm.Verlet(), output=path, **grid)
print(psutil.Process().memory_info().rss - before)
"""


def start(steps: int, path: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", LONG_RUN, str(steps), str(path)], stdout=subprocess.PIPE)


def resume_by_command(path: Path) -> None:
    subprocess.run([sys.executable, "-m", "geomint", "resume", str(path)], check=True, stdout=subprocess.DEVNULL)


def check_kill_and_resume(folder: Path, steps: int, kills: int) -> None:
    whole, killed = folder / "whole.h5", folder / "killed.h5"
    finished = start(steps, whole)
    growth = int(finished.communicate()[0])
    assert growth < 50e6
    for _ in range(kills):
        process = (
            start(steps, killed)
            if not killed.exists()
            else subprocess.Popen([sys.executable, "-m", "geomint", "resume", str(killed)], stdout=subprocess.DEVNULL)
        )
        wait_for_rows(killed, 1, process)
        time.sleep(random.random() * 2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        opened = gm.load(killed)
        assert len(opened) >= 1
        assert np.isfinite(opened.energy).all()
    resume_by_command(killed)
    assert same_archives(whole, killed)


def test_a_killed_run_resumes_bit_for_bit_and_memory_stays_flat(tmp_path):
    check_kill_and_resume(tmp_path, steps=60_000_000, kills=1)


@pytest.mark.slow
def test_a_killed_run_of_1e8_steps(tmp_path):
    check_kill_and_resume(tmp_path, steps=100_000_000, kills=1)


@pytest.mark.slow
def test_fifty_kills_at_random_moments(tmp_path):
    """Each kill falls on a file that is being created, written or checkpointed; every file opens, every run ends
    right."""
    random.seed(1)
    for k in range(5):
        folder = tmp_path / str(k)
        folder.mkdir()
        check_kill_and_resume(folder, steps=600_000_000, kills=10)


def test_rows_past_the_last_checkpoint_do_not_count(tmp_path):
    """What a kill between writing rows and writing the checkpoint leaves: the rows are there, the checkpoint is not."""
    path = tmp_path / "run.h5"
    run = kepler(output=path)
    half = archive.read(path)
    writer = half.writer()
    writer.rows = 100  # as if only a hundred rows were vouched for
    writer.checkpoint(run.checkpoint.carry, 99, force=True)
    writer.close()
    assert len(gm.load(path)) == 100


def test_a_torn_checkpoint_falls_back_to_the_one_before(tmp_path):
    path = tmp_path / "run.h5"
    kepler(output=path)
    contents = archive.read(path)
    offset = contents.slots[0] + (contents.sequence % 2) * contents.slots[1]
    with path.open("r+b") as file:
        file.seek(offset + 30)
        file.write(b"\xff\xff\xff")
    again = archive.read(path)
    assert again.sequence == contents.sequence - 1
    assert gm.resume(path).t[-1] == 6.0
    assert np.array_equal(gm.load(path).q, kepler().q)


def test_streaming_touches_no_table_of_hdf5(tmp_path):
    """Outside its rows, slots and counter the file stays as it was created: there is nothing a kill could break."""
    path = tmp_path / "run.h5"
    model = gm.models.kepler()
    run = kepler(steps=10)
    writer = archive.create(
        path,
        {"grid": [0.0, 0.01, 600, 1]},
        {k: run.columns[k][0] for k in ("q", "p", "energy")},
        run.checkpoint.carry,
        601,
    )
    before = path.read_bytes()
    for k in range(1, 6):
        writer.append_columns(
            {n: np.full((100, *run.columns[n].shape[1:]), float(k)) for n in ("q", "p", "energy")}, np.arange(100.0)
        )
        writer.checkpoint(run.checkpoint.carry, 100 * k, force=True)
    writer.close()
    after = path.read_bytes()
    assert len(before) == len(after)
    spans = [(c.offset, c.offset + 601 * c.row_bytes) for c in writer.columns.values()]
    spans += [
        (writer.slot_offset, writer.slot_offset + 2 * writer.slot_bytes),
        (writer.count_offset, writer.count_offset + 8),
    ]
    changed = np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8))
    assert changed.size > 1000
    assert all(any(a <= i < b for a, b in spans) for i in changed)
    assert model.system is not None


def test_output_exists(tmp_path):
    kepler(output=tmp_path / "run.h5")
    with pytest.raises(gm.ArchiveError, match="exists.*resume"):
        kepler(output=tmp_path / "run.h5")
    with pytest.raises(gm.ArchiveError, match="folder"):
        kepler(output=tmp_path / "nowhere" / "run.h5")


@pytest.mark.parametrize("keep", [0, 100, 2000, 20_000])
def test_truncated_files_are_named(tmp_path, keep):
    path = tmp_path / "run.h5"
    kepler(output=path)
    os.truncate(path, keep)
    for open_it in (gm.load, gm.resume):
        with pytest.raises(gm.ArchiveError, match=r"run\.h5"):
            open_it(path)


def test_foreign_files_are_named(tmp_path):
    text, foreign = tmp_path / "notes.h5", tmp_path / "foreign.h5"
    text.write_text("not an archive")
    with h5py.File(foreign, "w") as file:
        file["x"] = np.arange(3)
    for path, word in (
        (text, "not an HDF5 file"),
        (foreign, "not one that geomint wrote"),
        (tmp_path / "gone.h5", "no file"),
    ):
        with pytest.raises(gm.ArchiveError, match=word):
            gm.load(path)


def anharmonic(strength: float, exponent: int = 4) -> gm.System:
    return gm.System(lambda q: strength * jnp.sum(q**exponent) + 0.5 * jnp.sum(q**2))


def test_a_system_is_recognised_by_its_program(tmp_path):
    path = tmp_path / "run.h5"
    gm.simulate(anharmonic(0.3), [1.0, 0.2], method=gm.Verlet(), dt=0.01, t_end=1.0, output=path)
    assert gm.resume(path, system=anharmonic(0.3), t_end=2.0).t[-1] == pytest.approx(2.0)
    for other in (anharmonic(0.30000000000000004), anharmonic(0.3, 6), gm.System(anharmonic(0.3).potential, mass=2.0)):
        with pytest.raises(gm.ArchiveError, match="not the one that was run"):
            gm.resume(path, system=other, t_end=3.0)
    with pytest.raises(gm.InputError, match="state its system again"):
        gm.resume(path, t_end=3.0)


def test_another_process_states_the_same_system(tmp_path):
    path = tmp_path / "run.h5"
    code = inspect.getsource(anharmonic) + (
        "gm.simulate(anharmonic(0.3), [1.0, 0.2], method=gm.Gauss(2), dt=0.01, t_end=1.0, output=sys.argv[1])"
    )
    head = "from __future__ import annotations\nimport sys, jax.numpy as jnp, geomint as gm\n"
    subprocess.run([sys.executable, "-c", head + code, str(path)], check=True)
    resumed = gm.resume(path, system=anharmonic(0.3), t_end=2.0)
    whole = gm.simulate(anharmonic(0.3), [1.0, 0.2], method=gm.Gauss(2), dt=0.01, t_end=2.0)
    assert np.array_equal(resumed.q, whole.q)


def test_ensembles_are_kept_too(tmp_path):
    model = gm.models.kepler()
    q0s, v0s = np.stack([model.q0] * 3), np.stack([model.v0 * s for s in (1.0, 0.9, 0.8)])
    go = lambda t, **more: gm.ensemble(
        model.system, q0s, v0s, method=gm.Verlet(), dt=0.01, t_end=t, save_every=10, **more
    )
    whole = go(4.0)
    go(2.0, output=tmp_path / "streamed.h5")
    go(2.0).save(tmp_path / "saved.h5")
    for name in ("streamed.h5", "saved.h5"):
        resumed = gm.resume(tmp_path / name, t_end=4.0)
        assert resumed.q.shape == whole.q.shape == (3, 41, 2)
        assert np.array_equal(resumed.q, whole.q)
        assert np.array_equal(resumed.momentum_maps["rotation[0, 1]"], whole.momentum_maps["rotation[0, 1]"])


HOLDER = """
import sys, time
from geomint.io import archive
writer = archive.read(sys.argv[1]).writer()
archive.read(sys.argv[1])  # a look at the file must not let others in
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("t_end", [None, 8.0])
def test_two_writers_are_kept_apart(tmp_path, t_end):
    path = tmp_path / "run.h5"
    kepler(output=path)
    before = path.stat().st_ino
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    assert holder.stdout.readline().strip() == b"held"
    try:
        with pytest.raises(gm.ArchiveError, match="another process"):
            gm.resume(path, t_end=t_end)
    finally:
        holder.kill()
        holder.wait()
    assert path.stat().st_ino == before
    assert list(tmp_path.iterdir()) == [path]
    assert gm.resume(path, t_end=8.0).t[-1] == 8.0


@pytest.mark.parametrize("saves", [601, 801])
def test_an_archive_that_another_has_continued_meanwhile(tmp_path, saves):
    path = tmp_path / "run.h5"
    kepler(output=path)
    contents = archive.read(path)
    gm.resume(path, t_end=7.0)
    before = path.read_bytes()
    with pytest.raises(gm.ArchiveError, match=r"run\.h5 was written by another process while"):
        contents.writer() if saves == 601 else archive.enlarged(contents, contents.meta, saves, contents.leaves)
    assert path.read_bytes() == before
    assert len(gm.resume(path, t_end=8.0)) == 801  # nobody holds it


def test_a_copy_that_fails_leaves_the_archive_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    kepler(output=path)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(archive.Writer, "checkpoint", lambda *_, **__: (_ for _ in ()).throw(OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            gm.resume(path, t_end=8.0)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert len(gm.resume(path, t_end=8.0)) == 801


def test_a_run_that_breaks_off_lets_go_of_its_archive(tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    with monkeypatch.context() as patch:
        patch.setattr(sinks.Disk, "append", lambda *_: (_ for _ in ()).throw(OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            kepler(output=path)
    assert np.array_equal(gm.resume(path).q, kepler().q)


def test_already_beyond(tmp_path):
    kepler(output=tmp_path / "run.h5")
    with pytest.raises(gm.InputError, match="already reached t = 6"):
        gm.resume(tmp_path / "run.h5", t_end=3.0)
