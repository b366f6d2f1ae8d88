"""Full disks, folders that can't be written, and what `geomint info` promises of a resume."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import geomint as gm
from geomint.cli.app import app
from geomint.io import archive
from geomint.io import writer as writer_module
from geomint.run import loop


def kepler(**more):
    model = gm.models.kepler()
    return gm.simulate(model.system, model.q0, model.v0, method=gm.Verlet(), dt=0.01, t_end=2.0, **more)


def unwritable(tmp_path: Path) -> Path:
    """A folder in which nobody may write, not even root."""
    if os.getuid():
        tmp_path.chmod(0o500)
        return tmp_path
    if not Path("/sys/kernel").is_dir():
        pytest.skip("root may write everywhere here")
    return Path("/sys/kernel")


def disk_full_after(monkeypatch, size: int) -> None:
    """The disk takes so many bytes of rows and checkpoints."""
    left, write = [size], os.pwrite

    def limited(file, data, offset):
        if left[0] < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= len(data)
        return write(file, data, offset)

    monkeypatch.setattr(os, "pwrite", limited)


def line(*arguments) -> str:
    """The one line on stderr of a command that failed."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 2, result.output
    assert result.stderr.strip().count("\n") == 0
    assert result.stderr.strip()
    return result.stderr.strip()


def test_a_folder_that_cannot_be_written(tmp_path):
    path = unwritable(tmp_path) / "run.h5"
    for go in (lambda: kepler(output=path), lambda: kepler().save(path)):
        with pytest.raises(
            gm.ArchiveError, match=r"run\.h5 can't be written: (Permission denied|Operation not permitted)\.$"
        ) as caught:
            go()
        assert caught.value.path == path
    assert "run.h5 can't be written: " in line("run", "kepler", "--dt", 0.01, "--t-end", 1, "-o", path)
    assert "a.png: " in line("run", "kepler", "--dt", 0.01, "--t-end", 1, "--plot-file", path.with_name("a.png"))


def test_an_archive_that_may_only_be_read(tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    kepler(output=path)
    opened = os.open

    def read_only(name, flags, *more, **others):
        if flags & os.O_RDWR and Path(name) == path:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(name, flags, *more, **others)

    monkeypatch.setattr(os, "open", read_only)
    assert len(gm.load(path)) == 201
    with pytest.raises(gm.ArchiveError, match="Read-only file system"):
        gm.resume(path)
    assert line("resume", path).endswith("run.h5 can't be written: Read-only file system.")


def test_a_disk_that_fills_up_during_a_run_loses_nothing_that_was_saved(tmp_path, monkeypatch):
    path, whole = tmp_path / "run.h5", kepler()
    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "CHECKPOINT_SECONDS", 0.0)
        patch.setattr(loop, "_chunk", lambda grid, n, rows, budget: (grid.save_every, 10))
        disk_full_after(patch, 5000)
        with pytest.raises(
            gm.ArchiveError,
            match=r"run\.h5 can't be written: No space left on device\. "
            r"Everything up to the last checkpoint is kept: gm\.resume",
        ) as caught:
            kepler(output=path)
    assert caught.value.path == path
    kept = gm.load(path)
    assert 40 < len(kept) < 201
    assert np.array_equal(kept.q, whole.q[: len(kept)])
    assert np.array_equal(gm.resume(path).q, whole.q)


def test_rows_that_do_not_fit_on_the_disk(tmp_path):
    """The archive is a sparse file, whose size alone does not fail."""
    with pytest.raises(gm.InputError, match=r"1000000000001 saved points need .* GiB on the disk, .*save_every="):
        gm.simulate(gm.models.kepler(), dt=1e-9, t_end=1e3, output=tmp_path / "long.h5")
    assert not list(tmp_path.iterdir())
    with pytest.raises(gm.InputError, match=r"geomint does not write .dcd.*end in .xyz"):
        kepler(output=tmp_path / "frames.dcd")


def test_a_disk_that_is_full_from_the_start_leaves_no_file(tmp_path, monkeypatch):
    run, path = kepler(), tmp_path / "run.h5"
    for go in (lambda: kepler(output=path), lambda: run.save(path)):
        with monkeypatch.context() as patch:
            disk_full_after(patch, 100)
            with pytest.raises(gm.ArchiveError, match="No space left on device"):
                go()
        assert list(tmp_path.iterdir()) == []
    assert np.array_equal(gm.load(run.save(path)).q, run.q)


def test_a_limit_on_the_size_of_files(tmp_path):
    """The file is made at its final size, so that too small a quota is met before the first step."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises(gm.ArchiveError, match=r"run\.h5 can't be written: File too large"):
            kepler(output=tmp_path / "run.h5")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_output_to_a_full_device_is_one_line(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "geomint", "info", str(kepler().save(tmp_path / "run.h5"))],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.strip() == "No space left on device"


@pytest.mark.slow
def test_a_small_file_system(tmp_path):
    """A real disk that fills up: a file system in memory of 200 kB."""
    run = f"{sys.executable} -m geomint run kepler --dt 0.01 --t-end 1000 -o {tmp_path}/run.h5"
    info = f"{sys.executable} -m geomint info {tmp_path}/run.h5"
    script = f"mount -t tmpfs -o size=200k none {tmp_path} && {run}; echo $?; {info}"
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    done = subprocess.run(["unshare", "-rm", "bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("2\n"), done
    assert done.stderr.strip().count("\n") == 0
    assert "run.h5 can't be written: No space left on device." in done.stderr
    assert "unfinished: `geomint resume` continues it" in done.stdout


# --- what info promises ---------------------------------------------------------------------------------
def unfinished(path: Path, step: int = 5) -> Path:
    """The archive of a run as if it had been stopped at a step."""
    contents = archive.read(path)
    writer = contents.writer()
    writer.rows = step + 1
    writer.checkpoint(contents.leaves, step, force=True)
    writer.close()
    return path


def state(path: Path) -> str:
    result = CliRunner().invoke(app, ["info", str(path)])
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout[result.stdout.index(" state ") : result.stdout.index(" columns ")].split())


def promised_and_kept(path: Path, word: str) -> None:
    """`info` says that resume refuses, and why; and it does, for the same reason."""
    assert f"state unfinished: `geomint resume` would refuse it: {path}" in state(path)
    assert word in state(path)
    assert word in " ".join(line("resume", path).split())


def test_info_promises_a_resume_only_where_resume_goes_on(tmp_path):
    path = tmp_path / "run.h5"
    kepler(output=path)
    assert state(path) == "state complete"
    unfinished(path)
    assert state(path) == "state unfinished: `geomint resume` continues it"
    writer = archive.read(path).writer()
    promised_and_kept(path, "is being written by another process")
    writer.close()
    assert CliRunner().invoke(app, ["resume", str(path)]).exit_code == 0
    assert state(path) == "state complete"


def test_info_on_a_run_of_the_users_own_system(tmp_path):
    path = tmp_path / "run.h5"
    gm.simulate(gm.System(lambda q: jnp.sum(q**4)), [1.0], method=gm.Verlet(), dt=0.01, t_end=0.1, output=path)
    promised_and_kept(unfinished(path), "this run is not of a model of geomint; state its system again")


def test_info_on_a_run_that_needs_its_reductions_again(tmp_path):
    path, model = tmp_path / "run.h5", gm.models.kepler()
    states = np.stack([model.q0] * 2), np.stack([model.v0] * 2)
    reduce = {"r": gm.Mean(lambda q, p: jnp.sum(q**2))}
    gm.ensemble(model.system, *states, method=gm.Verlet(), dt=0.01, t_end=0.1, reduce=reduce, output=path)
    promised_and_kept(unfinished(path), "the reductions r are of functions")


@pytest.mark.slow
def test_info_on_a_run_whose_events_are_gone(tmp_path):
    path, model = tmp_path / "run.h5", gm.models.pendulum()
    run = gm.simulate(model.system, [0.3], [1.0], method=gm.EnergyStepping(0.02), dt=0.1, t_end=2.0, output=path)
    archive.events_path(path).unlink()
    promised_and_kept(unfinished(path), f"beside it has 0 of the {len(run.events)} events")
