"""Single lines of archives, fingerprints, grids and reductions, each against something independent of it."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

import geomint as gm
from geomint.engines.grid import Grid
from geomint.io import archive, locks, sinks
from geomint.io.archive_checks import parsed
from geomint.io.hdf5_tables import Damaged, TableReader, read_tables

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
        reason = f"truncated: it has {size} of {len(data)} bytes" if size >= 96 else "not an HDF5 file|points to byte"
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
        reader = TableReader(file.fileno())
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
    assert np.array_equal(held.fixed["start/q"], start["start/q"])
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
    disk.truncate(ROWS + 1, None)
    disk.append(np.zeros((1, 5)))
    writer.checkpoint(CARRY, ROWS + 1, force=True)
    disk.close()
    assert np.array_equal(archive.read(path).array("t"), [*times(0, ROWS), 10 + 0.5 * ROWS, 10 + 0.5 * (ROWS + 1)])
