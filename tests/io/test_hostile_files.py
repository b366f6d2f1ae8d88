"""Damaged and crafted archives are refused in one sentence, or give the rows that an intact checkpoint counts: no
crash, no code that is run, no memory beyond the size of the file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from helpers.crafted_files import craft_files
from helpers.hostile import make_archives, mutate_files, open_all

ROOM = 2**22  # for the objects of Python that every run has, however small its file


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    return make_archives(tmp_path_factory.mktemp("archives"), all_kinds=False)


def check(results: list[dict], errors: set[str], room: int | None = ROOM) -> Counter:
    """Each file was opened or refused with one of the errors, and took no more memory than its size."""
    for each in results:
        name = f"{Path(each['path']).name} ({each.get('what', 'damaged')}): {each['outcome']} {each['message']}"
        assert each["outcome"] in {"fine", *errors}, name
        assert not (each.get("refused") and each["outcome"] == "fine"), name
        assert room is None or each["peak"] < Path(each["path"]).stat().st_size + room, f"{name}: {each['peak']} bytes"
        assert "\n" not in each["message"]
    return Counter(each["outcome"] for each in results)


def test_damaged_and_crafted_files_are_refused_or_give_the_good_prefix(archives, tmp_path):
    jobs = [*mutate_files(archives, tmp_path, 60, seed=1), *craft_files(archives, tmp_path, every=3)]
    outcomes = check(open_all("load", jobs, tmp_path), {"ArchiveError"})
    assert outcomes["ArchiveError"] > 150
    assert outcomes["fine"] > 10
    assert not Path("/tmp/geomint-was-here").exists()


@pytest.mark.slow
def test_five_hundred_damaged_files_and_all_crafted_ones(tmp_path):
    """Of every kind of archive; gm.load, gm.resume and `geomint info` on each."""
    archives = make_archives(tmp_path, all_kinds=True)
    damaged = mutate_files(archives, tmp_path, 500, seed=2)
    crafted = craft_files(archives, tmp_path)
    assert len(crafted) >= 200
    for action in ("load", "info", "resume"):
        errors = {"ArchiveError"} if action != "resume" else {"ArchiveError", "InputError"}
        for kind, jobs in (("damaged", damaged), ("crafted", crafted)):
            expected = jobs if action == "load" else [{**job, "refused": False} for job in jobs]
            outcomes = check(open_all(action, expected, tmp_path), errors, ROOM if action == "load" else None)
            print(f"{action}, {len(jobs)} {kind} files: {dict(outcomes)}")
