"""Single lines of archives, fingerprints, grids and reductions, each against something independent of it."""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import time
from types import SimpleNamespace

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines.grid import Grid, grid
from geomint.io import archive, locks, sinks
from geomint.io.archive_checks import parsed
from geomint.io.fingerprint import fingerprint
from geomint.io.hdf5_tables import Damaged, Reader, read_tables
from geomint.run.loop import _chunk
from geomint.run.reductions import Histogram, Mean, Quantiles
from geomint.run.trajectory import Checkpoint, Trajectory

ROWS, SAVES = 4, 9
CARRY = (np.arange(2.0), np.arange(3, dtype=np.int32))
META = {
    "grid": [0.0, 0.5, 8, 1],
    "method": "Verlet()",
    "engine": "xla",
    "origin": None,
    "fingerprint": "0",
    "q_shape": [2],
    "spread": "one",
    "members": False,
    "compensated": False,
    "seed": 0,
}


def rows(first: int, count: int) -> dict[str, np.ndarray]:
    at = np.arange(first, first + count, dtype=float)
    return {"q": np.stack([at, -at], axis=1), "p": np.stack([2 * at, 3 * at], axis=1), "energy": at**2}


def times(first: int, count: int) -> np.ndarray:
    return 0.5 * np.arange(first, first + count)


@pytest.fixture
def path(tmp_path):
    """An archive with room for 9 rows, of which 4 are checkpointed."""
    path = tmp_path / "run.h5"
    writer = archive.create(path, META, {n: x[0] for n, x in rows(0, 1).items()}, CARRY, SAVES)
    writer.append_columns(rows(0, ROWS), times(0, ROWS))
    writer.checkpoint(CARRY, ROWS - 1, force=True)
    writer.close()
    return path


# --- truncation -----------------------------------------------------------------------------------------
def test_every_truncation_is_noticed(path, tmp_path):
    """At every 64th of the last 4096 bytes, and at every 97th before."""
    data, cut = path.read_bytes(), tmp_path / "cut.h5"
    for size in (*range(1, len(data) - 4096, 97), *range(len(data) - 4096, len(data), 64), len(data) - 1):
        cut.write_bytes(data[:size])
        reason = f"truncated: it has {size} of {len(data)} bytes" if size >= 96 else "no HDF5 file|points to byte"
        with pytest.raises(gm.ArchiveError, match=rf"cut\.h5 can't be read.*({reason})"):
            archive.read(cut)
    cut.write_bytes(data + b"more")  # what follows is not looked at
    assert archive.read(cut).rows == ROWS


def test_a_dataset_beyond_the_end_is_noticed(path):
    """Also where the file is as long as it says: its last row must lie within."""
    data, q = path.read_bytes(), read_tables(path)[1]["q"]
    layout = data.index(b"\x03\x01" + q.offset.to_bytes(8, "little")) + 2
    path.write_bytes(data[:layout] + (len(data) - q.nbytes + 8).to_bytes(8, "little") + data[layout + 8 :])
    with pytest.raises(gm.ArchiveError, match=f"q ends at byte {len(data) + 8} of {len(data)}"):
        archive.read(path)


@pytest.mark.parametrize("name", ["p", "checkpoint", "rows_saved", None])
def test_datasets_that_overlap_are_refused(path, name):
    """Each other, or the tables of the file: what is written to one would change the other."""
    data, datasets = path.read_bytes(), read_tables(path)[1]
    layout = data.index(b"\x03\x01" + datasets["q"].offset.to_bytes(8, "little")) + 2
    offset = 96 if name is None else datasets[name].offset
    path.write_bytes(data[:layout] + offset.to_bytes(8, "little") + data[layout + 8 :])
    with pytest.raises(Damaged, match="overlap"):
        read_tables(path)


def test_addresses_are_checked_against_the_size_of_the_file(path):
    with path.open("rb") as file:
        reader = Reader(file.fileno())
        assert reader.bytes_at(reader.size - 4, 4) == path.read_bytes()[-4:]
        with pytest.raises(Damaged, match=f"byte {reader.size + 1} of"):
            reader.bytes_at(reader.size - 4, 5)


ODD = {
    "is not stored in one piece": lambda f: f.create_dataset("x", (4,), "f8", chunks=(4,)),
    "is neither a group nor a dataset|is not an array of numbers": lambda f: f.create_dataset("x", (4,), "c16"),
    "filters": lambda f: f.create_dataset("x", (4,), "f8", compression="gzip"),
    "external storage": lambda f: f.create_dataset("x", (4,), "f8", external=[("outside.raw", 0, 32)]),
    "a soft link": lambda f: f.__setitem__("x", h5py.SoftLink("/y")),
    "two tables share": lambda f: f.__setitem__("x", f["/"]),
    "ends at byte|do not hold": lambda f: f.create_dataset("x", (4,), "f8"),  # never written: it has no place
    "has a message of kind 12": lambda f: f.create_dataset("x", data=np.ones(4)).attrs.__setitem__("a", "b"),
}


@pytest.mark.parametrize("message", ODD)
def test_what_geomint_does_not_write_is_refused_for_what_it_is(tmp_path, message):
    with h5py.File(tmp_path / "odd.h5", "w", libver="earliest") as file:
        file.create_dataset("y", data=np.ones(3))
        ODD[message](file)
    with pytest.raises(Damaged, match=message):
        read_tables(tmp_path / "odd.h5")


def test_json_of_a_file_is_limited_in_depth_and_size():
    deep = lambda n: '{"a": ' + "[" * n + "]" * n + ', "[[[[[[[[[[": "\\"[[[[[[[[[["}'
    assert list(parsed(deep(7))) == ["a", "[[[[[[[[[["]
    many = "[" + ",".join(["1"] * 19_000) + "]"
    assert len(parsed(f'{{"a": {many}}}')["a"]) == 19_000
    for text in (deep(8), f'{{"a": [{many}, {many}]}}'):
        with pytest.raises(Damaged, match="nested more than 8 deep"):
            parsed(text)


# --- the lock -------------------------------------------------------------------------------------------
def test_an_archive_has_one_writer_at_a_time(path):
    """Also within one process, and as soon as it is made; closing lets go."""
    held = archive.read(path)
    writer = held.writer()
    for again in (
        held.writer,
        lambda: archive.Writer(path, writer.meta, writer.columns, held.slots, held.count_offset, 0, 0),
    ):
        with pytest.raises(gm.ArchiveError, match="is being written by another process") as caught:
            again()
        assert caught.value.path == path
    with pytest.raises(gm.ArchiveError, match="being written"):
        archive.check_writable(path)
    archive.read(path)
    with pytest.raises(gm.ArchiveError, match="being written"):  # a look at the file does not let others in
        held.writer()
    writer.close()
    archive.check_writable(path)
    held.writer().close()
    made = archive.create(path.with_name("new.h5"), META, {n: x[0] for n, x in rows(0, 1).items()}, CARRY, SAVES)
    made.append_columns(rows(0, 1), times(0, 1))
    made.checkpoint(CARRY, 0, force=True)
    with pytest.raises(gm.ArchiveError, match="being written"):
        archive.read(made.path).writer()
    made.close()


def test_the_lock_is_exclusive(path):
    """A lock for reading would let a second one in."""
    writer = archive.read(path).writer()
    file = os.open(path, os.O_RDWR)
    found = locks.FLOCK.unpack(
        fcntl.fcntl(file, fcntl.F_OFD_GETLK, locks.FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
    )
    assert (found[0], found[2], found[3]) == (fcntl.F_WRLCK, 0, 0)  # the whole file
    os.close(file)
    writer.close()


def test_a_file_that_was_replaced_by_its_copy_is_not_continued(path, tmp_path, monkeypatch):
    """The writer would write to a file that no longer has the name."""
    held, opened = archive.read(path), archive.Writer.lock

    def replaced(self):
        opened(self)
        shutil.copy(path, tmp_path / "copy.h5")
        (tmp_path / "copy.h5").replace(path)

    monkeypatch.setattr(archive.Writer, "lock", replaced)
    with pytest.raises(gm.ArchiveError, match="while this one opened it"):
        held.writer()


# --- checkpoints ----------------------------------------------------------------------------------------
def test_a_checkpoint_waits_for_the_disk_before_and_after_and_goes_to_the_other_slot(path, monkeypatch):
    """Rows first, then the slot that vouches for them, then the count for other readers."""
    calls, held = [], archive.read(path)
    writer = held.writer()
    monkeypatch.setattr(os, "fdatasync", lambda file: calls.append("sync"))
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: (calls.append(offset), real(file, data, offset))[1])
    for k in range(2):
        calls.clear()
        writer.append_columns(rows(ROWS + k, 1), times(ROWS + k, 1))
        appended = len(calls)
        writer.checkpoint(CARRY, ROWS + k, force=True)
        slot = held.slots[0] + (held.sequence + 1 + k) % 2 * held.slots[1]
        assert calls[appended:] == ["sync", slot, held.count_offset, "sync"]
    writer.close()
    again = archive.read(path)
    assert (again.sequence, again.step, again.rows) == (held.sequence + 2, ROWS + 1, ROWS + 2)
    assert np.array_equal(again.array("q"), rows(0, ROWS + 2)["q"])
    assert np.array_equal(again.array("t"), times(0, ROWS + 2))


def test_a_checkpoint_is_due_every_half_second(path, monkeypatch):
    writer, now = archive.read(path).writer(), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for seconds, due in ((0.0, True), (0.1, False), (0.39, False), (0.02, True), (0.49, False)):
        now[0] += seconds
        assert writer.due() is due
        before = writer.sequence
        writer.checkpoint(CARRY, ROWS - 1)
        assert writer.sequence == before + due
    writer.close()


@pytest.mark.parametrize("at", [0, 8, 16, 24, 40, -4, -1])
def test_a_slot_with_one_wrong_bit_does_not_count(path, at):
    held = archive.read(path)
    data = bytearray(path.read_bytes())
    slot = held.slots[0] + held.sequence % 2 * held.slots[1]
    data[slot + at if at >= 0 else slot + held.slots[1] + at] ^= 0x10
    path.write_bytes(data)
    assert archive.read(path).sequence == 0


@pytest.mark.parametrize(("rows", "step"), [(2, 3), (SAVES + 1, 3), (SAVES, SAVES)])
def test_a_slot_that_says_what_cannot_be_does_not_count(path, rows, step):
    """Fewer rows than saves up to its step, more rows than there is room for, a step beyond the end."""
    held = archive.read(path)
    writer = held.writer()
    writer.rows = rows
    writer.checkpoint(CARRY, step, force=True)
    writer.close()
    assert archive.read(path).sequence == held.sequence  # the one before


def test_the_newest_intact_slot_counts(path):
    writer = archive.read(path).writer()
    for k in (5, 6, 7):
        writer.rows = k
        writer.checkpoint(CARRY, k - 1, force=True)
        assert archive.read(path).rows == k
    writer.close()


def test_a_carry_of_another_shape_or_type_is_refused(path):
    held = archive.read(path)
    assert np.array_equal(held.carry_like(CARRY)[0], CARRY[0])
    for other in ((np.arange(3.0), CARRY[1]), (CARRY[0], CARRY[1].astype(np.int64)), CARRY[:1]):
        with pytest.raises(gm.ArchiveError, match="the checkpoint does not fit"):
            held.carry_like(other)


def test_a_longer_copy_goes_on_counting(path):
    """Sequence, rows, fixed contents and checkpoint are those of the old file; the old one is gone."""
    held = archive.read(path)
    writer = archive.enlarged(held, {**META, "grid": [0.0, 0.5, 16, 1]}, 17, held.leaves)
    writer.append_columns(rows(ROWS, 1), times(ROWS, 1))
    writer.checkpoint(CARRY, ROWS, force=True)
    writer.close()
    again = archive.read(path)
    assert (again.sequence, again.rows, again.room) == (held.sequence + 2, ROWS + 1, 17)
    assert np.array_equal(again.array("p"), rows(0, ROWS + 1)["p"])
    assert list(path.parent.iterdir()) == [path]


def test_what_was_written_once_is_checked(tmp_path):
    """One bit of the description, of a table or of a fixed array: the checksum differs."""
    path = tmp_path / "run.h5"
    start = {"kept": np.array([1]), "start/q": np.ones((3, 2)), "start/p": np.zeros((3, 2))}
    carry = (np.zeros((3, 2)), np.full(3, -1, np.int32))
    meta = {**META, "members": True, "spread": "states", "reduce": {}}
    one = {"q": np.zeros((1, 2)), "p": np.zeros((1, 2)), "energy": np.zeros(1), "members_left": np.int64(3)}
    archive.create(path, meta, one, carry, SAVES, fixed=start).close()
    held, data = archive.read(path), path.read_bytes()
    assert np.array_equal(held.fixed()["start/q"], start["start/q"])
    places = {
        "description": data.index(b'"dt"' if b'"dt"' in data else b"0.5, 8"),
        "start": read_tables(path)[1]["start/q"].offset + 3,
        "kept": read_tables(path)[1]["kept"].offset,
    }
    for place in places.values():
        path.write_bytes(data[:place] + bytes([data[place] ^ 2]) + data[place + 1 :])
        with pytest.raises(gm.ArchiveError, match="changed after it was made|keeps members|can't be read"):
            archive.read(path)
    old = data.replace(b'"format": 2', b'"format": 1').replace(b'"checksum"', b'"checksux"')
    path.write_bytes(old)  # as before there was a checksum
    assert archive.read(path).room == SAVES
    path.write_bytes(data.replace(b'"checksum"', b'"checksux"'))
    with pytest.raises(gm.ArchiveError, match="changed after it was made"):
        archive.read(path)


# --- sinks ----------------------------------------------------------------------------------------------
def test_a_run_on_disk_starts_its_times_where_its_rows_end(path):
    writer = archive.read(path).writer()
    layout = SimpleNamespace(unpack=lambda x: {"q": x[:, :2], "p": x[:, 2:4], "energy": x[:, 4]})
    disk = sinks.Disk(writer, layout, Grid(10.0, 0.25, 16, 2), members=False)
    disk.append(np.arange(15.0).reshape(3, 5))
    assert writer.rows == ROWS + 3
    disk.back_to(ROWS + 1, None)
    disk.append(np.zeros((1, 5)))
    writer.checkpoint(CARRY, ROWS + 1, force=True)
    disk.close()
    assert np.array_equal(archive.read(path).array("t"), [*times(0, ROWS), 10 + 0.5 * ROWS, 10 + 0.5 * (ROWS + 1)])


# --- fingerprints ---------------------------------------------------------------------------------------
def test_every_number_and_operation_of_a_system_enters_its_fingerprint():
    """Arrays that a function closes over, which are constants of the program, also inside of loops; axes, order of
    operands, outputs."""
    weights = np.linspace(1.0, 2.0, 6).reshape(2, 3)
    other = weights.copy()
    other[1, 2] = np.nextafter(other[1, 2], 3.0)

    def scanned(w):
        import jax

        return gm.System(
            lambda q: jax.lax.fori_loop(0, 3, lambda i, s: s + jnp.sum(jnp.asarray(w)[:, i] * q[:, i] ** 2), 0.0)
        )

    closed = lambda w: gm.System(lambda q: jnp.sum(jnp.asarray(w) * q**2))
    systems = [
        closed(weights),
        closed(other),
        closed(weights.astype(np.float32)),
        scanned(weights),
        scanned(other),
        gm.System(lambda q: jnp.sum(jnp.sum(q, axis=0) ** 2)),
        gm.System(lambda q: jnp.sum(jnp.sum(q, axis=1) ** 2)),
        gm.System(lambda q: jnp.sum(q[0] - q[1] / 2)),
        gm.System(lambda q: jnp.sum(q[1] - q[0] / 2)),
        gm.System(lambda q: q[0, 0]),
        gm.System(lambda q: q[0, 1]),
        gm.System(lambda q: jnp.sum(q**2), mass=2.0),
        gm.System(lambda q: jnp.sum(q**2), mass=np.full((2, 1), 2.0)),
        gm.System(lambda q: jnp.sum(q**2)),
        gm.System(lambda q, k: k * jnp.sum(q**2), params=1.0),
        gm.System(lambda q, k: k * jnp.sum(q**2), params=1.5),
        gm.System(lambda q: jnp.sum(q**2), watch={"a": lambda q, p: q[0, 0]}),
        gm.System(lambda q: jnp.sum(q**2), watch={"a": lambda q, p: q[1, 0]}),
        gm.System(lambda q: jnp.sum(q**2), fast=lambda q: q[0, 0] ** 2),
        gm.System(lambda q: jnp.sum(q**2), constraint=lambda q: q[0]),
        gm.System(lambda q: jnp.sum(q**2), symmetries=(gm.Rotation((0, 1)),)),
        gm.System(lambda q: jnp.sum(q**2), overrides={"gradient": lambda q: 2 * q}),
        gm.System(lambda q: jnp.sum(q**2), overrides={"gradient": lambda q: 3 * q}),
    ]
    prints = [fingerprint(system, (2, 3)) for system in systems]
    assert len(set(prints)) == len(prints)
    each = lambda k: gm.System(
        lambda q, k: k * jnp.sum(q**2), params=np.array(k)
    )  # of three members, of which one is traced
    own = [
        fingerprint(each(k), (2, 3), "states and params") for k in ([1.0, 2.0, 3.0], [1.0, 2.0, 3.5], [1.0, 2.0, 3.0])
    ]
    assert own[0] == own[2] != own[1]
    assert fingerprint(closed(weights.copy()), (2, 3)) == prints[0]
    assert fingerprint(scanned(weights.copy()), (2, 3)) == prints[3]


# --- grids ----------------------------------------------------------------------------------------------
def test_a_grid_takes_whole_steps_only():
    assert grid(0.1, 0.3).steps == 3  # 0.3/0.1 is not 3 in floating point
    assert grid(1e-3, 1e6 + 1.0, 1e6).steps == 1000
    assert grid(1e-3, 1e9 + 0.7, 1e9).steps == 700  # a unit in the last place of t_end is 1e-4 steps
    assert Grid(2.0, 0.5, 6, 3).saves == 3
    assert np.array_equal(Grid(2.0, 0.5, 12, 3).times(1, 2), [3.5, 5.0])
    assert np.array_equal(Grid(2.0, 0.5, 12, 3).times(3), [6.5, 8.0])
    assert Grid(2.0, 0.5, 12, 3).t_end == 8.0
    for off in (1e-4, -1e-4, 1e-5):
        with pytest.raises(gm.InputError, match="not a whole number"):
            grid(1.0, 7 + off)
    with pytest.raises(
        gm.InputError,
        match=r"save_every = 4 does not divide the 10 steps of the run\. Nearest that do: 2 or 5; or t_end = 8 or 12\.",
    ):
        grid(1.0, 10, save_every=4)
    with pytest.raises(gm.InputError, match=r"Nearest that do: 5 or 10;"):
        grid(1.0, 10, save_every=6)
    with pytest.raises(gm.InputError, match=r"Nearest that fit: t_end = 0\.9 or 1\.2; or dt = 0\.25 or 0\.33"):
        grid(0.3, 1.0)
    assert grid(1.0, 5.0, 5.0).steps == 0
    with pytest.raises(gm.InputError, match="before t0"):
        grid(1.0, 4.0, 5.0)


@pytest.mark.parametrize("budget", [1, 3, 10, 25, 1000])
def test_chunks_end_at_saves_and_cover_the_grid_once(budget):
    """Whatever the budget: no part of a block across a save, no more rows than there is room for, each step once."""
    times, n, saved = Grid(0.0, 1.0, 70, 10), 0, []
    while n < times.steps:
        steps, blocks = _chunk(times, n, 3, budget)
        assert 0 < steps * blocks <= max(budget, 1)
        assert blocks <= 3
        assert blocks == 1 or (steps == 10 and n % 10 == 0)
        assert n // 10 == (n + steps - 1) // 10
        saved += [n + steps * (k + 1) for k in range(blocks) if (n + steps * (k + 1)) % 10 == 0]
        n += steps * blocks
    assert saved == list(range(10, 71, 10))


# --- reductions -----------------------------------------------------------------------------------------
def tiled(x: np.ndarray, well: np.ndarray, reduction) -> dict[str, np.ndarray]:
    """A reduction of (members, …) in tiles of 4, joined as in a run of one row."""
    tiles = [reduction.of_tile(jnp.asarray(x[a : a + 4]), jnp.asarray(well[a : a + 4])) for a in range(0, len(x), 4)]
    return reduction.joined(
        [{k: np.asarray(v)[None] for k, v in tile.items()} for tile in tiles], np.array([well.sum()])
    )


@pytest.mark.parametrize("members", [1, 2, 5, 10, 13])
def test_reductions_of_several_tiles_are_those_of_numpy(members):
    """Quantiles between two members, at levels on both sides of the middle between them, without those that failed."""
    chance = np.random.default_rng(members)
    x, well = 5 + chance.normal(size=(members + 3, 2)) ** 3, np.ones(members + 3, bool)
    well[chance.choice(members + 3, 3, replace=False)] = False
    counted, levels = x[well], (0.0, 0.1, 0.21, 0.5, 0.77, 0.987, 1.0)
    quantiles = tiled(x, well, Quantiles("q", levels))["quantiles"][0]
    np.testing.assert_array_equal(quantiles, np.quantile(counted, levels, axis=0))
    mean = tiled(x, well, Mean("q"))
    np.testing.assert_allclose(mean["mean"][0], counted.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(mean["standard_deviation"][0], counted.std(axis=0), rtol=1e-12, atol=1e-14)
    edges = np.unique([*np.sort(x[:, 0])[[0, -1]], 4.0, 5.0, 6.0])  # two values lie on the outermost edges
    counts = tiled(x, well, Histogram("q", edges))["counts"][0]
    np.testing.assert_array_equal(counts.T, [np.histogram(counted[:, k], edges)[0] for k in (0, 1)])


def test_quantiles_are_exact_at_both_ends_of_an_interval():
    """Between numbers of very different size, where lower + share (upper − lower) loses the digits of the upper one."""
    x, levels = np.array([[-1e17], [3.3]]), (0.25, 0.75, 0.987, 1.0)
    found = tiled(x, np.ones(2, bool), Quantiles("q", levels))["quantiles"][0]
    np.testing.assert_array_equal(found, np.quantile(x, levels, axis=0))
    chance = np.random.default_rng(0)
    x, levels = chance.normal(size=(50, 7)) * 10.0 ** chance.integers(-8, 8, (50, 7)), tuple(chance.random(200))
    found = tiled(x, np.ones(50, bool), Quantiles("q", levels))["quantiles"][0]
    np.testing.assert_array_equal(found, np.quantile(x, levels, axis=0))


def test_reductions_of_no_member_are_not_numbers():
    for reduction, name in ((Mean("q"), "mean"), (Quantiles("q"), "quantiles")):
        with np.errstate(all="ignore"):
            assert np.isnan(tiled(np.ones((5, 2)), np.zeros(5, bool), reduction)[name]).all()


# --- trajectories ---------------------------------------------------------------------------------------
def test_what_a_trajectory_says_of_its_members():
    energy = np.array([[1.0, 1.5, 0.5], [2.0, 2.0, np.nan], [3.0, np.inf, 3.0]])
    run = Trajectory(
        None,
        gm.Verlet(),
        Grid(0.0, 1.0, 2, 1),
        np.arange(3.0),
        {"q": energy[..., None], "p": energy[..., None], "energy": energy},
        members=True,
    )
    assert np.array_equal(run.energy_error[:2], [[0.0, 0.5, -0.5], [0.0, 0.0, np.nan]], equal_nan=True)
    assert run.failed_at.tolist() == [-1, 2, 1]
    assert run.member_range == (0, 3)
    assert run.kept.tolist() == [0, 1, 2]
    assert run.constraint_residual.shape == run.multipliers.shape == (3, 3, 0)
    one = Trajectory(
        None, gm.Verlet(), Grid(0.0, 1.0, 2, 1), np.arange(3.0), {"q": energy[0][:, None], "energy": energy[0]}
    )
    assert one.energy_error.tolist() == [0.0, 0.5, -0.5]
    assert math.isclose(one.dt, 1.0)


def test_the_constraint_pulls_inwards_and_velocities_are_momenta_over_mass(tmp_path):
    """A mass that circles at speed v on a string of length l: the force on it is m v²/l, towards the centre."""
    length, mass, speed = 2.0, 3.0, 1.5
    system = gm.System(mass=mass, constraint=lambda q: jnp.array([jnp.sum(q**2) - length**2]))
    run = gm.simulate(
        system, [length, 0.0], [0.0, speed], method=gm.Rattle(), dt=0.001, t_end=0.01, output=tmp_path / "run.h5"
    )
    again = gm.load(tmp_path / "run.h5", system)
    for each in (run, again):
        np.testing.assert_allclose(
            np.asarray(each.constraint_forces)[5], -mass * speed**2 / length**2 * np.asarray(each.q)[5], rtol=1e-5
        )
        np.testing.assert_allclose(np.asarray(each.v) * mass, each.p, rtol=1e-15)
    assert isinstance(again.checkpoint, Checkpoint)
    assert again.checkpoint.step == 10
    with pytest.raises(gm.InputError, match="was run with Rattle.*not with Verlet"):
        gm.resume(tmp_path / "run.h5", system, method=gm.Verlet())
    with pytest.raises(gm.InputError, match="run without reduce="):
        gm.resume(tmp_path / "run.h5", system, reduce={})
    with pytest.raises(gm.InputError, match="holds one trajectory"):
        gm.resume(tmp_path / "run.h5", system, mesh="all")
    with pytest.raises(gm.ArchiveError, match="not the one that was run"):
        gm.load(tmp_path / "run.h5", gm.models.fpu().system)
    assert len(gm.resume(tmp_path / "run.h5", system)) == len(gm.resume(tmp_path / "run.h5", system, t_end=0.01)) == 11
