"""Ensembles shared by devices and by processes: the same bits on any number of them, and nothing lost when one is
killed.

Processes are real ones, on this machine, over the loopback interface.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import signal
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import geomint as gm
from geomint.cli.app import app
from geomint.engines.tiles import shares, tile_size
from geomint.io import archive
from geomint.manifold.projection import perturbed
from geomint.run.processes import Alone, _join
from geomint.run.shared import _checksum
from helpers.processes import ends, same_archives, start, wait_for_rows


# --- tiles ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("members", [1, 2, 7, 33, 200, 1000, 12_345, 1_000_000])
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_tiles_are_whole_and_every_member_has_one(members, platform):
    tile = tile_size(members, platform)
    assert 1 <= tile <= members
    assert members / tile <= 256
    for devices in (1, 2, 3, 8, 300):
        dealt = shares(members, tile, devices)
        assert [a for a, _ in dealt] == [0, *(b for _, b in dealt[:-1])]
        assert dealt[-1][1] == members
        assert all(a % tile == 0 for a, b in dealt if b > a)
        assert max(b - a for a, b in dealt) <= tile * math.ceil(math.ceil(members / tile) / devices)


MODELS = {
    "fpu": (gm.models.fpu(), gm.Verlet(), 0.01),
    "argon": (gm.models.argon_cluster(), gm.Verlet(), 1e-4),
    "double pendulum": (gm.models.double_pendulum(), gm.Rattle(), 0.01),
    "Henon-Heiles": (gm.models.henon_heiles(), gm.Composition(gm.Verlet(), order=8), 0.1),
}


def ensemble(name: str, members: int, **more: object) -> gm.Trajectory:
    model, method, dt = MODELS[name]
    v0s = model.v0 * (1 + 0.01 * np.random.default_rng(1).normal(size=(members, *[1] * model.v0.ndim)))
    return gm.ensemble(
        model.system,
        np.stack([model.q0] * members),
        v0s,
        method=method,
        dt=dt,
        t_end=50 * dt,
        save_every=10,
        **{"engine": "xla"} | more,
    )


@pytest.mark.parametrize(
    ("name", "members", "engine"),
    [
        ("fpu", 7, "xla"),
        ("argon", 33, "xla"),
        ("argon", 7, "native"),
        ("Henon-Heiles", 7, "native"),
        ("double pendulum", 33, "xla"),
        ("double pendulum", 33, "native"),
        pytest.param("fpu", 1000, "xla", marks=pytest.mark.slow),
        pytest.param("fpu", 1000, "native", marks=pytest.mark.slow),
    ],
)
def test_a_member_does_not_feel_how_the_others_are_shared(name, members, engine, monkeypatch):
    """Three devices of one process (the same one thrice) against one."""
    whole = ensemble(name, members, engine=engine)
    # The module by its full name: the public function hides it as an attribute of the package.
    monkeypatch.setattr(
        importlib.import_module("geomint.run.ensemble"), "devices_and_team", lambda mesh: (jax.devices() * 3, Alone())
    )
    parts = ensemble(name, members, engine=engine)
    for column in ("q", "p", "energy"):
        assert np.asarray(getattr(whole, column)).tobytes() == np.asarray(getattr(parts, column)).tobytes()


def test_the_numbers_of_members_do_not_depend_on_how_many_there_are_while_tiles_are_alike():
    """Tiles of one size run one program, wherever they stand."""
    model = gm.models.fpu()
    go = lambda v0s: (
        gm.ensemble(
            model.system,
            np.stack([model.q0] * len(v0s)),
            v0s,
            method=gm.Verlet(),
            dt=0.01,
            t_end=0.5,
            save_every=10,
            engine="xla",
        ).q
    )
    v0s = model.v0 * np.linspace(0.5, 1.5, 2048)[:, None, None]
    assert tile_size(2048, "cpu") == tile_size(1024, "cpu") == 256
    assert np.array_equal(go(v0s)[1024:], go(v0s[1024:]))


def test_a_mesh_is_checked():
    with pytest.raises(gm.InputError, match='a jax.sharding.Mesh, "all" or None, not .2.'):
        ensemble("fpu", 3, mesh="2")
    with pytest.raises(gm.InputError, match="not list"):
        ensemble("fpu", 3, mesh=jax.devices())
    one = ensemble("fpu", 3, mesh=jax.sharding.Mesh(np.array(jax.devices()), ("members",)))
    assert one.member_range == (0, 3)
    assert np.array_equal(one.q, ensemble("fpu", 3).q)


def test_a_mesh_is_for_ensembles(tmp_path):
    model = gm.models.kepler()
    gm.simulate(model.system, model.q0, model.v0, method=gm.Verlet(), dt=0.1, t_end=1.0, output=tmp_path / "one.h5")
    with pytest.raises(gm.InputError, match="one trajectory"):
        gm.resume(tmp_path / "one.h5", t_end=2.0, mesh="all")


def test_the_checksum_of_a_slot_from_those_of_its_pieces():
    data = [os.urandom(n) for n in (3, 2_500_000, 0, 7, 11, 5)]
    leaves = [data[0:3], data[3:6]]
    pieces = [[[zlib.crc32(leaf[k]), len(leaf[k])] for leaf in leaves] for k in range(3)]
    assert _checksum(b"head", pieces) == zlib.crc32(b"head" + b"".join(data))


LOCAL_DEVICES = """
import numpy as np, geomint as gm
assert len(jax.devices()) == 2
model = gm.models.fpu()
q0s = model.q0 + 1e-3 * np.random.default_rng(0).normal(size=(33, *model.q0.shape))
grid = dict(method=gm.Verlet(), dt=1e-2, t_end=2.0, save_every=10, engine="xla")
go = lambda **more: gm.ensemble(model.system, q0s, np.stack([model.v0] * 33), **grid, **more)
one, two = go(), go(mesh="all", output=sys.argv[4])
bits = lambda run: [np.asarray(getattr(run, name)).tobytes() for name in ("q", "p", "energy")]
assert bits(one) == bits(two)
second = jax.sharding.Mesh(np.array(jax.devices()[1:]), ("members",))
assert np.array_equal(gm.resume(sys.argv[4], t_end=3.0, mesh=second).q[:, :21], one.q)
print("same")
"""


def test_two_local_devices(tmp_path):
    assert (
        "same"
        in ends(start(LOCAL_DEVICES, 1, tmp_path / "run.h5", XLA_FLAGS="--xla_force_host_platform_device_count=2"))[0]
    )


# --- processes --------------------------------------------------------------------------------------------------------
OWN_PARAMS = """
import json, numpy as np, geomint as gm
folder, mesh = sys.argv[4], "all"
pendulum = gm.models.pendulum()
angles, params = np.linspace(0.1, 3.0, 7)[:, None], {"length": np.ones(7), "gravity": np.linspace(0.5, 2.0, 7)}
grid = dict(method=gm.Verlet(), dt=0.05, t_end=10.0, save_every=10, mesh=mesh)
on_disk = gm.ensemble(pendulum.system, angles, params=params, output=folder + "/params.h5", **grid)
assert on_disk.q.shape == (7, 21, 1) and on_disk.member_range == (0, 7)
gm.resume(folder + "/params.h5", pendulum.system.with_params(params), t_end=15.0, mesh=mesh)
run = gm.ensemble(pendulum.system, angles, params=params, **grid)
a, b = run.member_range
assert np.array_equal(run.q, on_disk.q[a:b]) and run.v.shape == (b - a, 21, 1)
escape = gm.System(lambda q: -q[0] ** 4)
failing = dict(method=gm.Verlet(), dt=0.01, t_end=3.0, save_every=10, mesh=mesh)
kept = gm.ensemble(escape, [[1.0]] * 4 + [[0.1]] * 3, output=folder + "/failed.h5", **failing)
assert (kept.failed_at[:4] > 0).all() and (kept.failed_at[4:] == -1).all()
try:
    gm.ensemble(escape, [[1.0 + 0.1 * k] for k in range(7)], output=folder + "/stopped.h5", **failing)
except gm.RunStopped as stopped:
    told = [run.member_range, stopped.step, len(stopped.run)]
try:
    gm.ensemble(pendulum.system, angles, method=gm.Verlet(), dt=0.05 if index else -1, t_end=1.0, mesh=mesh)
except gm.GeomintError as error:
    told.append(f"{type(error).__name__}: {error}")
print(json.dumps(told))
"""


GROUPS = """
import numpy as np, geomint as gm
import geomint.run.processes
geomint.run.processes.JOIN_SECONDS = 20
model = gm.models.fpu()
for group in ([0, 1], [0, 2], [0, 1, 2], [1, 2]):
    if index in group:
        mesh = jax.sharding.Mesh(np.array([d for d in jax.devices() if d.process_index in group]), ("members",))
        run = gm.ensemble(model.system, np.stack([model.q0] * 12), method=gm.Verlet(), dt=1e-2, t_end=0.1, mesh=mesh)
        print(group, *run.member_range)
"""


def test_groups_params_failures_and_memory_of_several_processes(tmp_path, capsys):
    """Three processes. Groups of them meet, whatever else each has shared. Then all share runs, in which one has no
    members: 7 members are two tiles. And one process in which all is well hears of another's mistake."""
    for processes in (1, 3):
        (tmp_path / str(processes)).mkdir()
    exec(OWN_PARAMS, {"sys": SimpleNamespace(argv=[*"0123", str(tmp_path / "1")]), "index": 0})
    alone = json.loads(capsys.readouterr().out)
    said = [out.splitlines() for out in ends(start(GROUPS + OWN_PARAMS, 3, tmp_path / "3"))]
    assert said[0][:-1] == ["[0, 1] 0 4", "[0, 2] 0 4", "[0, 1, 2] 0 4"]
    assert [len(lines) for lines in said] == [4, 4, 4]
    told = [json.loads(lines[-1]) for lines in said]
    assert sorted(range_ for range_, *_ in told) == [[0, 0], [0, 4], [4, 7]]
    assert all(rest[:2] == alone[1:3] for _, *rest in told)
    mistake = "InputError: dt must be positive, not -1."
    assert told[0][-1] == mistake
    assert all(each[-1].startswith(f"ProcessLost: process 0 of 3 stopped: {mistake}") for each in told[1:])
    for name in ("params.h5", "failed.h5", "stopped.h5"):
        assert same_archives(tmp_path / "1" / name, tmp_path / "3" / name)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError("timed out"), "did not join this run within 300 s"),
        (OSError("no route"), r"could not be joined for this run \(no route\)"),
    ],
)
def test_only_a_wait_is_called_one(monkeypatch, error, words):
    def refuse(*_):
        raise error

    monkeypatch.setattr("geomint.run.processes._welcome", refuse)
    with pytest.raises(gm.ProcessLost, match=words):
        _join([0, 1])


# --- interrupted and continued --------------------------------------------------------------------------------------
# With a pause, in seconds, chunks are short and each is followed by it, so that a signal finds the run under way.
TOGETHER = """
import signal, time, geomint as gm
from geomint.manifold.projection import perturbed
from geomint.run import loop
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background of a shell
path, t_end, pause = sys.argv[4:]
if float(pause):
    keep, chunk = loop.HostLoop._keep, loop._chunk
    loop.HostLoop._keep = lambda *chunk: keep(*chunk) or time.sleep(float(pause))
    loop._chunk = lambda grid, n, rows, budget: chunk(grid, n, rows, 2500)
model = gm.models.fpu()
starts = perturbed(model.system, model.q0, model.v0, 12, 0.01, seed=3)
times = dict(dt=0.002, t_end=float(t_end), save_every=1000)
try:
    gm.ensemble(model.system, *starts, method=gm.Verlet(), output=path, mesh="all", **times)
except gm.Interrupted as stop:
    print(stop.reason, flush=True)
    sys.exit(2)
except gm.ProcessLost as lost:
    print(lost, flush=True)
    sys.exit(1)
"""
RESUMED = "import geomint as gm\nfor path in sys.argv[5:]: gm.resume(path, t_end=float(sys.argv[4]), mesh='all')"
END = 2000  # of the model's time: a million steps


def in_this_process(path: Path, t_end: float) -> Path:
    exec(TOGETHER, {"sys": SimpleNamespace(argv=[*"0123", str(path), str(t_end), "0"])})
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run of one process that nobody interrupted."""
    before = signal.getsignal(signal.SIGINT)
    yield in_this_process(tmp_path_factory.mktemp("whole") / "run.h5", END)
    signal.signal(signal.SIGINT, before)


def stopped(path: Path, count: int, stop: Callable[[list[subprocess.Popen]], None]) -> list[tuple[int, str]]:
    """Start the run on several processes and stop it; the exit codes and what they printed, soon after."""
    copies = start(TOGETHER, count, path, END, 0.3)
    try:
        wait_for_rows(path, 2, copies[0])
        stop(copies)
        began = time.monotonic()
        said = [copy.communicate(timeout=20)[0] for copy in copies]
        assert time.monotonic() - began < 15
    finally:
        for copy in copies:
            copy.kill()
    assert 0 < archive.read(path).step < END / 0.002
    return [(copy.returncode, out) for copy, out in zip(copies, said, strict=True)]


def test_a_killed_process_loses_nothing_and_the_run_goes_on_with_any_number(tmp_path, whole):
    """The others say who was killed and where the run stands, and end without JAX's wait for the dead. One process
    continues the run, and so do two, which also lengthen a run of one."""
    path, again, short = tmp_path / "run.h5", tmp_path / "again.h5", tmp_path / "short.h5"
    said = stopped(path, 3, lambda copies: copies[1].kill())
    assert [code for code, _ in said] == [1, -signal.SIGKILL, 1]
    for _, out in (said[0], said[2]):
        assert re.search(
            r"process 1 of 3 ended without a word.*run\.h5 is whole up to step \d+, t = .*"
            r"gm\.resume\('.*run\.h5', \.\.\.\) continues it, on any number of processes",
            out,
        ), out
    again.write_bytes(path.read_bytes())
    in_this_process(short, END / 2)
    gm.resume(path, t_end=END)
    ends(start(RESUMED, 2, END, again, short))
    assert all(same_archives(whole, each) for each in (path, again, short))


def test_ctrl_c_stops_all_processes_after_the_same_step(tmp_path, whole):
    path = tmp_path / "run.h5"
    said = stopped(path, 2, lambda copies: copies[0].send_signal(signal.SIGINT))
    assert [code for code, _ in said] == [2, 2]
    steps = {re.search(r"interrupted at step (\d+)", out)[1] for _, out in said}
    assert steps == {str(archive.read(path).step)}
    gm.resume(path, t_end=END)
    assert same_archives(whole, path)


def test_members_of_the_command_line_are_at_least_one():
    result = CliRunner().invoke(app, ["run", "fpu", "--members", "0"])
    assert result.exit_code == 2
    assert "at least 1, not 0" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_members_of_the_command_line_are_reproducible():
    model = gm.models.double_pendulum()
    q0s, v0s = perturbed(model.system, model.q0, model.v0, 5, 0.1, seed=1)
    assert np.array_equal(v0s[0], model.v0)
    assert np.array_equal(v0s[:3], perturbed(model.system, model.q0, model.v0, 3, 0.1, seed=1)[1])
    assert not np.array_equal(v0s[1], perturbed(model.system, model.q0, model.v0, 5, 0.1, seed=2)[1][1])
    assert 0 < np.abs(v0s[1:] - model.v0).max() < 1.0
    for q, v in zip(q0s, v0s, strict=True):
        np.testing.assert_allclose(v, gm.project(model.system, q, v)[1], atol=1e-14)
