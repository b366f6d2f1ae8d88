"""Ensembles in shards: bit for bit the numbers of one process, whatever the shards are."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines.grid import grid
from geomint.engines.tiles import tile_size
from geomint.io import archive
from geomint.io.fingerprint import fingerprint
from geomint.io.index import read_index
from geomint.run.defaults import of_model
from geomint.run.ensemble import _checked_start as client_start
from geomint.run.executors import InThisProcess
from geomint.run.shards import MOST_SHARDS, shard_size
from geomint.system.checks import as_array
from helpers.noisy import Noisy

FPU = gm.models.fpu()
MEMBERS = 40
STARTS = np.stack([FPU.q0] * MEMBERS), FPU.v0 * np.linspace(0.5, 1.5, MEMBERS)[:, None, None]
GRID: dict[str, Any] = {"method": gm.Verlet(), "dt": 0.01, "t_end": 1.0, "save_every": 10}
REDUCE = {
    "energy": gm.Mean("energy"),
    "q": gm.Quantiles("q", (0.1, 0.5)),
    "p": gm.Histogram(lambda q, p: jnp.ravel(p)[0], 5, range=(-3, 3)),
}
ESCAPE = gm.System(lambda q: -(q[0] ** 4))
ESCAPING: dict[str, Any] = {"method": gm.Verlet(), "dt": 0.01, "t_end": 3.0, "save_every": 10}


def bits(run: gm.Trajectory) -> dict[str, bytes]:
    """Everything that a run holds."""
    held = {name: run.columns[name] for name in ("q", "p", "energy") if name in run.columns}
    if run.summary is not None:
        held |= {f"{n} {k}": x for n, r in run.reduced.items() for k, x in r.results.items()}
        held |= {"left": run.members_left, "kept": run.kept}
    held |= {"failed_at": run.failed_at.astype(int), "t": run.t}
    if run.checkpoint is not None:
        held |= {f"carry {k}": x for k, x in enumerate(jax.tree.leaves(run.checkpoint.carry))}
    return {name: np.asarray(x).tobytes() for name, x in held.items()}


def go(**more: Any) -> gm.Trajectory:
    return gm.ensemble(FPU.system, *STARTS, **GRID | more)


# --- the same bits ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ["xla", "native"])
@pytest.mark.parametrize("more", [{}, {"reduce": REDUCE, "keep": [30, 2, 31]}], ids=["all", "reduced"])
def test_no_number_depends_on_the_shards(tmp_path, engine, more):
    whole = bits(go(engine=engine, **more))
    for shard in (12, 24):
        path = tmp_path / f"{shard}.h5"
        assert bits(go(engine=engine, executor=InThisProcess(), shard=shard, output=path, **more)) == whole
        assert bits(gm.load(path)) == whole
    assert bits(go(engine=engine, executor=InThisProcess(), **more)) == whole


def test_random_numbers_and_params_are_those_of_the_whole_ensemble(tmp_path):
    """Random keys fold in the number of the member in the whole ensemble; params are cut with the members."""
    pendulum, angles = gm.models.pendulum().system, np.linspace(0.1, 3.0, 11)[:, None]
    params = {"length": np.ones(11), "gravity": np.linspace(0.5, 2.0, 11)}
    for seed in (3, np.arange(11)):
        grid = {"method": Noisy(), "dt": 0.05, "t_end": 2.0, "save_every": 5, "params": params, "seed": seed}
        whole = gm.ensemble(pendulum, angles, **grid)
        path = tmp_path / f"{np.ndim(seed)}.h5"
        parts = gm.ensemble(pendulum, angles, **grid, executor=InThisProcess(), shard=4, output=path)
        assert len(parts.shards.places) == 3
        assert bits(parts) == bits(whole)
        assert np.array_equal(parts.v, whole.v)
        longer = gm.resume(path, pendulum.with_params(params), t_end=3.0, method=Noisy())
        assert bits(longer) == bits(gm.ensemble(pendulum, angles, **grid | {"t_end": 3.0}))


@pytest.mark.parametrize("more", [{}, {"reduce": {"e": gm.Mean("energy")}, "keep": [5]}], ids=["all", "reduced"])
@pytest.mark.parametrize("starts", [[1.0] * 4 + [0.1] * 3, [1.0 + 0.1 * k for k in range(7)]], ids=["some", "all"])
def test_the_ensemble_stops_where_the_members_of_all_shards_have_failed(starts, more, tmp_path):
    """And not where those of one shard have."""
    outcomes = []
    for where in ({}, {"executor": InThisProcess(), "shard": 2, "output": tmp_path / "run.h5"}):
        try:
            run = gm.ensemble(ESCAPE, np.array(starts)[:, None], **ESCAPING, **more, **where)
            outcomes.append((bits(run), None))
        except gm.RunStopped as stopped:
            held = {name: x for name, x in bits(stopped.run).items() if "carry" not in name}
            outcomes.append((held, stopped.step))
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0][1] is None) == (0.1 in starts)


def test_it_goes_on_to_a_later_end_and_into_one_archive(tmp_path):
    path = tmp_path / "run.h5"
    go(executor=InThisProcess(), shard=24, output=path)
    with pytest.raises(gm.InputError, match="has already reached t = 1"):
        gm.resume(path, t_end=0.5)
    longer = gm.resume(path, t_end=2.0, executor=InThisProcess())
    whole = go(t_end=2.0)
    assert bits(longer) == bits(whole)
    longer.save(tmp_path / "one.h5")
    assert bits(gm.load(tmp_path / "one.h5")) == bits(whole)
    assert bits(gm.resume(tmp_path / "one.h5", t_end=2.5)) == bits(go(t_end=2.5))


def test_shards_that_were_interrupted_or_never_begun_go_on(tmp_path, monkeypatch):
    """The second shard stops after its first checkpoint, and the third never begins."""
    path, submitted = tmp_path / "run.h5", []

    class Breaks(InThisProcess):
        def submit(self, function, *arguments):
            submitted.append(arguments[1])
            if len(submitted) == 2:
                raise concurrent.futures.process.BrokenProcessPool("it is gone")
            return super().submit(function, *arguments)

    with pytest.raises(gm.ProcessLost, match=r"1 of 4 shards are complete.*gm\.resume\(.*executor=") as lost:
        go(executor=Breaks(), shard=12, output=path)
    assert lost.value.path == path
    assert len(gm.load(path).t) == 0
    place = read_index(path).shards[1]
    place.path.write_bytes(place.path.with_name("00000.h5").read_bytes())
    with pytest.raises(gm.ArchiveError, match=r"shard 1 \(members 12 … 23\).*belongs to another run"):
        gm.resume(path)
    place.path.unlink()
    assert bits(gm.resume(path)) == bits(go())


def test_a_stop_is_asked_for_with_a_file_and_the_run_goes_on(tmp_path, monkeypatch):
    """As Ctrl-C does, which reaches the client only."""
    path = tmp_path / "run.h5"
    monkeypatch.setattr("geomint.run.shards.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("geomint.run.loop.CHUNK_SECONDS", 0.0)

    class Interrupts(InThisProcess):
        def submit(self, function, *arguments):
            threading.Timer(0.05, (tmp_path / "run.shards" / "stop").touch).start()
            super().submit(function, *arguments)
            raise KeyboardInterrupt

    with pytest.raises(gm.Interrupted, match=r"0 of 2 shards are complete, 1 have begun.*gm\.resume") as stop:
        go(executor=Interrupts(), shard=24, output=path, engine="xla", t_end=50.0)
    assert len(stop.value.run.t) == 0
    assert 0 < archive.read(tmp_path / "run.shards" / "00000.h5").step < 5000
    assert bits(gm.resume(path)) == bits(go(engine="xla", t_end=50.0))


# --- files -----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("files") / "run.h5"
    go(executor=InThisProcess(), shard=12, output=path)
    return path


def test_other_programs_see_one_array(files):
    with h5py.File(files) as file:
        assert file["q"].is_virtual
        assert np.array_equal(np.moveaxis(file["q"][:], 0, 1), go().q)
        assert np.array_equal(file["t"], go().t)


def test_no_file_contains_a_pickle(files, tmp_path):
    """Systems travel as pickles between processes; in files there are numbers and JSON only."""
    pickled = tmp_path / "reduced.h5"
    go(executor=InThisProcess(), shard=12, output=pickled, reduce=REDUCE)
    for path in itertools.chain(files.parent.rglob("*"), tmp_path.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            assert b"cloudpickle" not in data
            assert b"\x80\x05\x95" not in data  # protocol 5 and a frame: how every pickle of today begins
            assert b"\x80\x04\x95" not in data


def test_arrays_are_read_when_they_are_used(files, monkeypatch):
    whole, opened = np.asarray(go().q), []
    from geomint.io import sharded_arrays

    before = sharded_arrays.open_shard
    monkeypatch.setattr(sharded_arrays, "open_shard", lambda index, place: opened.append(place) or before(index, place))
    run = gm.load(files)
    assert len(opened) == 1
    assert np.array_equal(run.q[25, 3], whole[25, 3])
    assert len(opened) == 2
    for key in (
        slice(10, 30, 3), (slice(None), 0), (Ellipsis, 0), [3, 30, 5], (np.array([39, 0]), slice(2, 4)), -1,
        whole[:, 0, 0, 0] > 2, (slice(None), None), (slice(5), [1, 2]), (slice(2), slice(None), 0, 1),
    ):  # fmt: skip
        assert np.array_equal(run.q[key], whole[key]), key
    assert np.array_equal(run.q - 1, whole - 1)
    assert np.array_equal(np.sin(run.q), np.sin(whole))
    assert run.q.mean() == whole.mean()
    assert (run.q.shape, run.q.ndim, run.q.size, len(run.q)) == (whole.shape, 4, whole.size, 40)
    assert "4 shards" in repr(run.q)
    with pytest.raises(IndexError):
        run.q[40]
    assert run.to_xarray().q.shape == whole.shape


def test_missing_and_damaged_shards_are_named(files, tmp_path):
    for name in ("run.h5", *(f"run.shards/0000{k}.h5" for k in range(4))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((files.parent / name).read_bytes())
    shard = tmp_path / "run.shards" / "00002.h5"
    data = bytearray(shard.read_bytes())
    shard.write_bytes(data[: len(data) // 2])
    run = gm.load(tmp_path / "run.h5")
    assert run.q[0].shape == (11, 2, 3)
    with pytest.raises(gm.ArchiveError, match=r"shard 2 \(members 24 … 35\).*truncated"):
        run.q[30]
    shard.unlink()
    with pytest.raises(gm.ArchiveError, match=r"shard 2 \(members 24 … 35\) is missing"):
        gm.load(tmp_path / "run.h5")


@pytest.mark.parametrize("folder", ["../elsewhere", "/etc", "..", "a\\b", "C:x", ""])
def test_the_folder_of_the_shards_is_beside_the_index(files, tmp_path, folder):
    with h5py.File(files) as file:
        meta = json.loads(file.attrs["geomint"])
    meta["index"]["folder"] = folder
    path = tmp_path / "run.h5"
    path.write_bytes(files.read_bytes())
    with h5py.File(path, "r+") as file:
        del file.attrs["geomint"]
        file.attrs["geomint"] = json.dumps(meta)
    with pytest.raises(gm.ArchiveError, match="the entry .index."):
        gm.load(path)


@pytest.mark.parametrize("other", [{"dt": 0.005}, {"faster": 1.1}], ids=["another step", "another start"])
def test_a_shard_of_another_run_is_refused(files, tmp_path, other):
    starts = STARTS[0], STARTS[1] * other.pop("faster", 1.0)
    settings = GRID | other | {"executor": InThisProcess(), "shard": 12}
    gm.ensemble(FPU.system, *starts, **settings, output=tmp_path / "other.h5")
    shutil.copy(files, tmp_path / "run.h5")
    shutil.copytree(files.parent / "run.shards", tmp_path / "run.shards")
    shutil.copy(tmp_path / "other.shards" / "00001.h5", tmp_path / "run.shards" / "00001.h5")
    with pytest.raises(gm.ArchiveError, match="shard 1 .*belongs to another run"):
        np.asarray(gm.load(tmp_path / "run.h5").q)
    with pytest.raises(gm.GeomintError, match=r"belongs to another run|already reached t = 2"):
        gm.resume(tmp_path / "run.h5")
    (tmp_path / "run.shards" / "00001.h5").unlink()
    assert bits(gm.resume(tmp_path / "run.h5")) == bits(gm.load(files))


def test_an_input_that_is_refused_by_a_task_leaves_no_output(tmp_path):
    with pytest.raises(gm.InputError, match="no quantity"):
        go(executor=InThisProcess(), shard=12, output=tmp_path / "run.h5", reduce={"e": gm.Mean("enrgy")})
    assert not list(tmp_path.iterdir())


def test_an_index_is_protected(files, tmp_path):
    with pytest.raises(gm.ArchiveError, match="exists"):
        go(executor=InThisProcess(), output=files)
    with pytest.raises(gm.InputError, match="one shard of a run"):
        gm.resume(files.parent / "run.shards" / "00000.h5", t_end=2.0)
    with pytest.raises(gm.InputError, match="executor= distributes them"):
        gm.resume(files, mesh="all")
    go(output=tmp_path / "plain.h5")
    with pytest.raises(gm.InputError, match="not in shards"):
        gm.resume(tmp_path / "plain.h5", executor=InThisProcess())
    copy = tmp_path / "run.h5"
    data = files.read_bytes()
    start = STARTS[0].astype("<f8").tobytes()[:64]
    copy.write_bytes(data.replace(start, start[:-1] + b"\1", 1))
    (tmp_path / "run.shards").mkdir()
    with pytest.raises(gm.ArchiveError, match="initial states of the members were changed"):
        gm.resume(copy, t_end=2.0)


# --- sizes and input -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("members", [1, 7, 1000, 12_345, 1_000_000])
@pytest.mark.parametrize("shard", [None, 1, 100, 10**9])
def test_shards_are_whole_tiles(members, shard):
    tile = tile_size(members, "cpu")
    for workers, work in itertools.product((1, 2, 100), (1.0, 1e7, 1e12)):
        size = shard_size(shard, members, tile, work, workers)
        assert size % tile == 0
        assert -(-members // size) <= MOST_SHARDS
    assert shard_size(1000, 1_000_000, tile_size(1_000_000, "cpu"), 1.0, 2) == 1000


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"executor": 2}, "must have the method submit.*not int"),
        ({"executor": concurrent.futures.ThreadPoolExecutor}, "must have the method submit"),
        ({"shard": 10}, "shard= is for ensemble.*executor="),
        ({"executor": InThisProcess(), "shard": 0}, "shard"),
        ({"executor": InThisProcess(), "mesh": "all"}, "mesh= or executor="),
        ({"executor": InThisProcess(), "reduce": {"e": gm.Mean("enrgy")}}, "Did you mean energy.*members 0 …"),
    ],
)
def test_mistakes_are_named(more, message):
    with pytest.raises(gm.InputError, match=message):
        go(**more)


def test_errors_of_a_shard_name_its_members():
    """The energy of member 30 is not finite."""
    v0s = STARTS[1].copy()
    v0s[30] = 1e200
    with pytest.raises(gm.InputError, match="member 30 overflows.*shard 2, members 24 … 35"):
        gm.ensemble(FPU.system, STARTS[0], v0s, executor=InThisProcess(), shard=12, **GRID)


def test_the_client_compiles_nothing_and_copies_no_initial_states():
    """XLA's compiler alone takes 45 MB in the client, and so do three copies of the states of a million members."""
    seen: list[str] = []
    system = gm.System(lambda q: jnp.sum(q**4), mass=2.0)  # a system that no other test has compiled
    q0s, v0s = np.broadcast_to(np.ones(3), (MEMBERS, 3)), np.full((MEMBERS, 3), 0.1)
    listen = lambda name, seconds, **about: seen.append(name) if "backend_compile" in name else None
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        times = grid(0.01, 1.0, 0.0, 10)
        call = of_model("ensemble", system, q0s, v0s, None, gm.Verlet(), 0.01, 1.0)
        start = client_start(call, None, times, functools.partial(as_array, copy=False))
        fingerprint(system, (3,), start.spread)
        assert seen == []
        jax.jit(lambda x: x * 1.234567)(1.0)
        assert seen  # so compilations are heard
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert np.shares_memory(start.q, q0s)
    assert np.array_equal(start.p, 2.0 * v0s)
