"""Checks of an archive before it is used: the JSON of its attribute, and the datasets that belong to it.

A file may come from anywhere. After these checks every value has the type and the range that `archive.create` writes,
and the arrays have the shapes that the run needs; a file that fails a check is refused as damaged.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from .hdf5_tables import Damaged, Dataset

FORMAT = 2  # 1 had no checksum
MOST_PARTS = 20_000  # of the JSON; each becomes a Python object
DEEPEST_JSON = 8
LARGEST_INTEGER = 2**62
MOST_SHARDS = 100_000
LONGEST_METHOD = 4096  # characters of the expression that makes the method
CARRY_TYPES = {
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
}
RESULTS = {
    "Mean": ("mean", "standard_deviation"),
    "Quantiles": ("quantiles",),
    "Histogram": ("counts",),
    "RadialDistribution": ("counts", "distribution"),
}
PARTS = {  # of a tile
    "Mean": ("mean", "squares", "number"),
    "Quantiles": ("values",),
    "Histogram": ("counts",),
    "RadialDistribution": ("counts", "pairs"),
}
SETTINGS = {
    "Mean": (),
    "Quantiles": ("levels",),
    "Histogram": ("edges",),
    "RadialDistribution": ("edges", "box", "first", "second", "molecules"),
}
FIXED_DATASETS = ("seeds", "kept", "start/q", "start/p")  # written once, as are the settings of reductions
FRAMES = (".xyz", ".extxyz", ".pdb", ".h5md", ".vtkhdf")  # endings of files of frames
SPREADS = ("one", "states", "states and params")

# A string, which is skipped, or a character of the structure. Possessive quantifiers: others need 60 bytes of
# memory for each character.
_STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+"|[][{},]')


# --- the text -------------------------------------------------------------------------------------------
def parsed(text: str) -> dict[str, Any]:
    """The JSON as a dictionary, if it is an object of moderate size."""
    parts = depth = 0
    for found in _STRUCTURE.finditer(text):
        mark = found[0] if found.end() - found.start() == 1 else ""
        parts, depth = parts + bool(mark), depth + (mark in ("[", "{")) - (mark in ("]", "}"))
        if parts > MOST_PARTS or depth > DEEPEST_JSON:
            raise Damaged(f"its JSON has more than {MOST_PARTS} parts, or is nested more than {DEEPEST_JSON} deep")
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"its JSON can't be read: {error}") from None
    if not isinstance(found, dict):
        raise Damaged("its JSON is not an object")
    return found


def _no_constant(name: str) -> Any:
    raise Damaged(f"its JSON contains {name}, which is not a JSON number")


def checksum(meta: Mapping[str, Any], datasets: Mapping[str, Dataset], fixed: Mapping[str, bytes]) -> int:
    """CRC of all that never changes after an archive is made: the JSON, the tables, and the fixed datasets."""
    tables = [[d.name, d.dtype.str, list(d.shape), d.offset] for _, d in sorted(datasets.items())]
    covered = {name: x for name, x in meta.items() if name != "checksum"}
    total = zlib.crc32(json.dumps([covered, tables], sort_keys=True).encode())
    for _, data in sorted(fixed.items()):
        total = zlib.crc32(data, total)
    return total


# --- its entries ----------------------------------------------------------------------------------------
def _whole(x: Any, least: int = 0) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and least <= x < LARGEST_INTEGER


def _real(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and abs(x) < 1e300


def _text(x: Any) -> bool:
    return isinstance(x, str)


def _shape(x: Any) -> bool:
    return isinstance(x, list) and len(x) <= 32 and all(map(_whole, x))


def _grid(x: Any) -> bool:
    """[t0, dt, steps, save_every], with an end that is a number."""
    good = (
        isinstance(x, list)
        and len(x) == 4
        and _real(x[0])
        and _real(x[1])
        and x[1] > 0
        and _whole(x[2])
        and _whole(x[3], 1)
    )
    return good and math.isfinite(x[0] + x[1] * x[2])


def _leaf(x: Any) -> bool:
    return isinstance(x, list) and len(x) == 2 and _text(x[0]) and x[0] in CARRY_TYPES and _shape(x[1])


def _reduction(x: Any) -> bool:
    return (
        isinstance(x, dict)
        and _text(x.get("kind"))
        and x["kind"] in RESULTS
        and "of" in x
        and (x["of"] is None or _text(x["of"]))
    )


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, list) and all(map(check, x))


def _table_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, dict) and all(map(check, x.values()))


def _flag(x: Any) -> bool:
    return isinstance(x, bool)


REQUIRED: dict[str, Callable[[Any], bool]] = {
    "format": lambda x: _whole(x, 1),
    "grid": _grid,
    "method": lambda x: _text(x) and len(x) <= LONGEST_METHOD,
    "engine": lambda x: _text(x) and x in ("xla", "native", "kernel"),
    "origin": lambda x: x is None or _text(x),
    "fingerprint": _text,
    "q_shape": _shape,
    "spread": lambda x: _text(x) and x in SPREADS,
    "members": _flag,
    "compensated": _flag,
    "carry": _list_of(_leaf),
    "versions": _table_of(_text),
    "seed": lambda x: x is None or (isinstance(x, int) and not isinstance(x, bool) and abs(x) < 2**64),
}


def _shard(x: Any) -> bool:
    """[first member, one past the last, members of the whole ensemble, checksum of their initial states]."""
    return isinstance(x, list) and len(x) == 4 and all(map(_whole, x)) and x[0] < x[1] <= x[2]


def _index(x: Any) -> bool:
    """The entry of an index: where the shards are. The folder is a plain name that ends in .shards, so that no path
    leads elsewhere, and no other folder beside the index is written to."""
    return (
        isinstance(x, dict)
        and x.keys() == {"folder", "members", "shard", "rows", "start_checksum"}
        and _text(x["folder"])
        and re.fullmatch(r"[^/\\:\0]{1,248}\.shards", x["folder"]) is not None
        and _whole(x["members"], 1)
        and _whole(x["shard"], 1)
        and math.ceil(x["members"] / x["shard"]) <= MOST_SHARDS
        and (x["rows"] is None or _whole(x["rows"]))
        and _whole(x["start_checksum"])
    )


OPTIONAL: dict[str, Callable[[Any], bool]] = {
    "p_shape": _shape,
    "shard": _shard,
    "index": _index,
    "complete_name": _flag,
    "functions_of_model": _flag,
    "tile": lambda x: _whole(x, 1),
    "fixed": _list_of(_text),
    "reduce": _table_of(_reduction),
    "checksum": _whole,
    "solver": _text,
    "frames": lambda x: _text(x) and x in FRAMES,
}


def check_entries(meta: dict[str, Any]) -> None:
    """Every entry is there and of its type."""
    for name, good in {**REQUIRED, **OPTIONAL}.items():
        if name in meta and not good(meta[name]):
            raise Damaged(f"the entry {name!r} of its JSON is {json.dumps(meta[name])[:60]}")
    missing = [name for name in REQUIRED if name not in meta]
    if missing:
        raise Damaged(f"its JSON lacks {', '.join(missing)}")
    if (
        meta["members"] != (meta["spread"] != "one")
        or (meta["seed"] is None and not meta["members"])
        or ("reduce" in meta and not meta["members"])
    ):
        raise Damaged("the entries members, spread, seed and reduce of its JSON contradict each other")


# --- the datasets that go with it -----------------------------------------------------------------------
# Name, kinds of numbers and shape of a dataset; an ellipsis stands for any further axes.
Expected = Iterator[tuple[str, str, tuple[Any, ...]]]


def check_datasets(meta: dict[str, Any], datasets: Mapping[str, Dataset], slot_bytes: int) -> None:
    """All datasets that the run needs are there, with the shapes that follow from the JSON.

    slot_bytes: size of the head and the checksum of a checkpoint slot.
    """
    if "t" not in datasets or len(datasets["t"].shape) != 1:
        raise Damaged("it has no times t")
    room = datasets["t"].shape[0]
    if room < meta["grid"][2] // meta["grid"][3] + 1:
        raise Damaged(f"it has room for {room} rows, fewer than its run saves")
    members = _members(meta) if meta["members"] else ()
    expected = itertools.chain(
        _of_run(meta, room, members, slot_bytes),
        _of_rows(meta, datasets, room, members),
        _of_reductions(meta, datasets, room, members),
    )
    for name, kinds, shape in expected:
        held = datasets.get(name)
        if held is None:
            raise Damaged(f"it has no {name}")
        fits = held.shape[: len(shape) - 1] == shape[:-1] if ... in shape else held.shape == shape
        if held.dtype.kind not in kinds or not fits:
            wanted = ", ".join("…" if n is ... else str(n) for n in shape)
            raise Damaged(f"{name} is {held.dtype} {held.shape}, where ({wanted}) is expected")


def _members(meta: dict[str, Any]) -> tuple[int, ...]:
    """(number of members,), the leading axis of every leaf of the carry."""
    counts = {tuple(shape[:1]) for _, shape in meta["carry"]}
    if len(counts) != 1 or () in counts:
        raise Damaged("the leaves of its carry have different numbers of members")
    return counts.pop()


def _of_run(meta: dict[str, Any], room: int, members: tuple[int, ...], slot_bytes: int) -> Expected:
    carry = sum(np.dtype(dtype).itemsize * math.prod(shape) for dtype, shape in meta["carry"])
    yield "checkpoint", "u", (2, slot_bytes + carry)
    yield "rows_saved", "i", (1,)
    yield "t", "f", (room,)
    fixed = meta.get("fixed", [])
    strange = [name for name in fixed if name not in FIXED_DATASETS and not name.startswith("reduced/")]
    if strange or len(set(fixed)) < len(fixed):
        raise Damaged(f"the entry 'fixed' of its JSON names {', '.join(strange)[:60] or 'something twice'}")
    yield from ((name, "iuf", (...,)) for name in fixed)
    if meta["seed"] is None:
        yield _written_once("seeds", fixed), "iu", members


def state_shapes(meta: dict[str, Any]) -> tuple[tuple[str, list[int]], ...]:
    """The names of positions and momenta with their shapes, which differ on a group only."""
    return ("q", meta["q_shape"]), ("p", meta.get("p_shape", meta["q_shape"]))


def _of_rows(meta: dict[str, Any], datasets: Mapping[str, Dataset], room: int, members: tuple[int, ...]) -> Expected:
    """The columns: rows of all members; of a reduced ensemble, of those that are kept."""
    reduced = "reduce" in meta
    rows = datasets["kept"].shape if reduced and "kept" in datasets else members
    if not reduced or rows != (0,):
        yield from ((name, "f", (room, *rows, *shape)) for name, shape in state_shapes(meta))
        yield "energy", "f", (room, *rows)
    others = datasets.keys() - {"t", "checkpoint", "rows_saved", "members_left", *meta.get("fixed", [])}
    yield from (
        (name, "iuf", (room, ...) if reduced and name.startswith(("reduced/", "tiles/")) else (room, *rows, ...))
        for name in sorted(others)
    )


def _of_reductions(
    meta: dict[str, Any], datasets: Mapping[str, Dataset], room: int, members: tuple[int, ...]
) -> Expected:
    if "reduce" not in meta:
        return
    if meta["carry"][-1] != ["int32", list(members)]:
        raise Damaged("the last leaf of its carry is not the int32 array that records which members failed")
    fixed = meta.get("fixed", [])
    yield _written_once("kept", fixed), "i", (...,)
    yield from ((_written_once(f"start/{name}", fixed), "f", (*members, *n)) for name, n in state_shapes(meta))
    if "shard" in meta:  # results of single tiles, which the reader of all shards joins
        tiles = datasets["members_left"].shape[1:2] if "members_left" in datasets else ()
        yield "members_left", "i", (room, *tiles)
        for name, about in meta["reduce"].items():
            yield from (
                (f"tiles/{name}/{part}", "if", (room, *tiles, ...)) for part in (*PARTS[about["kind"]], "members")
            )
            yield from (
                (_written_once(f"reduced/{name}/{setting}", fixed), "f", (...,)) for setting in SETTINGS[about["kind"]]
            )
        return
    yield "members_left", "i", (room,)
    for name, about in meta["reduce"].items():
        results = [f"reduced/{name}/{result}" for result in (*RESULTS[about["kind"]], "members")]
        if set(results) & set(fixed):
            raise Damaged(f"the entry 'fixed' of its JSON names rows of reduced/{name}, which are not fixed")
        yield from ((result, "if", (room, ...)) for result in results)
        yield from (
            (_written_once(f"reduced/{name}/{setting}", fixed), "f", (...,)) for setting in SETTINGS[about["kind"]]
        )


def _written_once(name: str, fixed: list[str]) -> str:
    if name not in fixed:
        raise Damaged(f"the entry 'fixed' of its JSON does not name {name}")
    return name
