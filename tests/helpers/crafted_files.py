"""Archives with one wrong entry, text, method, origin, checkpoint or byte, written by hand."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from geomint.io import archive_checks
from geomint.io.hdf5_tables import Dataset, read_tables


# --- crafted files --------------------------------------------------------------------------------------
def contents_of(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON and all datasets of an archive."""
    attributes, datasets = read_tables(path)
    data = path.read_bytes()
    return json.loads(attributes["geomint"]), {
        n: np.frombuffer(data, d.dtype, int(np.prod(d.shape)), d.offset).reshape(d.shape) for n, d in datasets.items()
    }


def forge(
    path: Path,
    meta: dict[str, Any],
    arrays: dict[str, np.ndarray],
    text: str | None = None,
    odd: dict[str, Callable] | None = None,
) -> None:
    """An archive with a right checksum; `odd` writes some of its datasets in another way."""
    with h5py.File(path, "w", libver="earliest") as file:
        for name, x in arrays.items():
            if odd and name in odd:
                odd[name](file, name, x)
            else:
                file.create_dataset(name, data=x)
        made = {
            n: Dataset(n, file[n].dtype, file[n].shape, file[n].id.get_offset() or 0)
            for n in arrays
            if not odd or n not in odd
        }
        total = (
            archive_checks.checksum(meta, made, {n: arrays[n].tobytes() for n in meta["fixed"] if n in arrays})
            if isinstance(meta.get("fixed"), list)
            else 0
        )
        file.attrs["geomint"] = json.dumps({**meta, "checksum": total}) if text is None else text


class Record:
    """Datasets of types that geomint never writes."""

    @staticmethod
    def types() -> dict[str, Any]:
        double = np.dtype("<f8")
        return {
            "object reference": h5py.ref_dtype,
            "region reference": h5py.regionref_dtype,
            "text of variable length": h5py.string_dtype(),
            "numbers of variable length": h5py.vlen_dtype(double),
            "text": np.dtype("S8"),
            "compound": np.dtype([("a", double), ("b", double)]),
            "complex": np.dtype(complex),
            "opaque": np.dtype("V8"),
            "enumeration": h5py.enum_dtype({"a": 1, "b": 2}, basetype="i8"),
            "array": np.dtype(("<f8", (3,))),
            "big-endian": np.dtype(">f8"),
            "long double": np.dtype(np.longdouble),
            "half": np.dtype("<f2"),
            "truth values": np.dtype(bool),
        }

    @staticmethod
    def layouts(folder: Path) -> dict[str, Callable]:
        def external(file, name, x):
            (folder / "outside.raw").write_bytes(x.tobytes())
            file.create_dataset(name, x.shape, x.dtype, external=[(str(folder / "outside.raw"), 0, x.nbytes)])

        def virtual(file, name, x):
            layout = h5py.VirtualLayout(x.shape, x.dtype)
            layout[...] = h5py.VirtualSource(str(folder / "single.h5"), "q", x.shape)
            file.create_virtual_dataset(name, layout)

        def compact(file, name, x):
            creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            creation.set_layout(h5py.h5d.COMPACT)
            file.require_group(f"/{name}".rpartition("/")[0] or "/")
            h5py.h5d.create(
                file.id, name.encode(), h5py.h5t.py_create(x.dtype), h5py.h5s.create_simple(x.shape), creation
            )

        def twice(file, name, x):
            file.create_dataset("other", data=x)
            file[name] = file["other"]

        def circle(file, name, x):
            file.create_dataset(name, data=x)
            file["round"] = file["/"]

        def soft(file, name, x):
            file.create_dataset("other", data=x)
            file[name] = h5py.SoftLink("/other")

        def labelled(file, name, x):
            file.create_dataset(name, data=x).attrs["geomint"] = "also here"

        return {
            "chunked": lambda f, n, x: f.create_dataset(n, data=x, chunks=True),
            "compressed": lambda f, n, x: f.create_dataset(n, data=x, compression="gzip"),
            "shuffled": lambda f, n, x: f.create_dataset(n, data=x, shuffle=True, chunks=True),
            "with checksums": lambda f, n, x: f.create_dataset(n, data=x, fletcher32=True, chunks=True),
            "growing": lambda f, n, x: f.create_dataset(n, data=x, maxshape=(None, *x.shape[1:])),
            "not allocated": lambda f, n, x: f.create_dataset(n, x.shape, x.dtype),
            "external": external,
            "virtual": virtual,
            "compact": compact,
            "linked twice": twice,
            "circle of groups": circle,
            "soft link": soft,
            "missing": lambda f, n, x: None,
            "external link": lambda f, n, x: f.__setitem__(n, h5py.ExternalLink(str(folder / "single.h5"), n)),
            "an attribute of its own": labelled,
            "one number": lambda f, n, x: f.create_dataset(n, data=1.0),
            "empty": lambda f, n, x: f.create_dataset(n, data=h5py.Empty("f8")),
            "a group": lambda f, n, x: f.create_group(n),
            "one axis more": lambda f, n, x: f.create_dataset(n, data=x[..., None]),
            "one row less": lambda f, n, x: f.create_dataset(n, data=x[:-1]),
        }


WRONG = (None, True, "text", -1, 1.5, [], {}, [[]], 10**30)


RIGHT = {
    "origin": (None, "text", [], 1),
    "fingerprint": ("text",),
    "method": (),
    "seed": (-1, None),
    "engine": (),
    "complete_name": (True,),
    "compensated": (True,),
    "members": (),
    "versions": ({},),
}


def crafted_entries(meta: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Descriptions of which one entry is wrong or missing."""
    for name in archive_checks.REQUIRED:
        if name != "checksum":
            yield f"without {name}", {k: x for k, x in meta.items() if k != name}
            for wrong in WRONG:
                if (
                    wrong not in RIGHT.get(name, ())
                    and not (name == "carry" and wrong == [])
                    and not (name == "compensated" and wrong is True)
                ):
                    yield f"{name} {wrong!r:.10}", {**meta, name: wrong}
    for k, wrong in enumerate((float("nan"), float("inf"), 1e308, -0.5, 0, "0.01", None, 10**30, True)):
        for place in range(4):
            if (
                not (place == 0 and wrong in (-0.5, 0, 10**30))
                and not (place == 1 and wrong == 10**30)
                and not (place == 2 and wrong == 0)
            ):
                yield (
                    f"grid[{place}] {k}",
                    {**meta, "grid": [wrong if i == place else x for i, x in enumerate(meta["grid"])]},
                )
    for shape in ([2, 2], [3], [], [2**61], [0], [-2], [2.0], ["2"], [10**30], [2] * 40):
        yield f"q_shape {str(shape)[:20]}", {**meta, "q_shape": shape}
    for carry in (
        [["object", [2]]],
        [["float64", [10**9]]],
        [["float64", [-2]]],
        [["O", [2]]],
        [["<M8[s]", [2]]],
        [["V16", [1]]],
        [["float64", 2]],
        [["float64"]],
        [[1, [2]]],
        [["S48", [1]]],
        [["float64,float64", [3]]],
    ):
        yield f"carry {str(carry)[:30]}", {**meta, "carry": carry}
    for fixed in (["q"], ["t"], ["checkpoint"], ["nothing"], ["../q"], [1], "q", ["q"] * 3):
        yield f"fixed {fixed}", {**meta, "fixed": fixed}
    yield "an ensemble that is none", {**meta, "members": True, "spread": "states"}
    yield "reduced without members", {**meta, "reduce": {}}
    yield "reduced of a strange kind", {**meta, "reduce": {"e": {"kind": "__import__", "of": None}}}


def crafted_texts(meta: dict[str, Any]) -> dict[str, str]:
    text = json.dumps(meta)
    return {
        "empty text": "",
        "no JSON": "geomint",
        "a list": "[]",
        "a number": "1",
        "nested lists": "[" * 100_000 + "]" * 100_000,
        "nested objects": '{"a":' * 50_000,
        "many lists": "[" + "[]," * 300_000 + "[]]",
        "a long number": text[:-1] + ', "x": ' + "9" * 100_000 + "}",
        "NaN": text[:-1] + ', "x": NaN}',
        "-Infinity": text[:-1] + ', "x": -Infinity}',
        "cut off": text[:-20],
        "duplicate keys": text[:-1] + ', "grid": [0, 0, 0, 0]}',
        "strings that never end": '{"a": "' + "\\\\" * 100_000,
        "5 MB of blanks": " " * 5_000_000 + text,
        "a newer format": json.dumps({**meta, "format": 99}),
    }


def crafted_methods(meta: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for method in (
        "Verlet",
        "__import__('os').system('touch /tmp/geomint-was-here')",
        "Gauss(stages=1000000)",
        "Composition(" * 300 + "Verlet()" + ")" * 300,
        "Verlet(" + "-" * 4000 + "1)",
        "Verlet(1" + "+1" * 2000 + ")",
        "Verlet(" + "[" * 4000 + ")",
        "V" * 100_000,
        "\0",
        "",
        "(",
        "Method()",
        "Verlet(lambda: 0)",
        "Verlet(\u202e)",
    ):
        if method != "Verlet":
            yield f"method {method[:20]!r}", {**meta, "method": method}


def crafted_origins(meta: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """These load, since the arrays are right; their system is unknown."""
    for origin in (
        "fpu(springs=100000000000)",
        "n_body(n=10000000)",
        "kepler(" + "-" * 200_000 + "1)",
        "kepler(1" + "+1" * 200_000 + ")",
        "kepler(" + "[" * 100_000,
        "__import__('os').getcwd()",
        "kepler(eccentricity='a')",
        "kepler(eccentricity=0.3)",
        "fpu()",
        "\x1b[2Jkepler()",
        "",
    ):
        yield f"origin {origin[:20]!r}", {**meta, "origin": origin}


def slot(sequence: int, step: int, rows: int, carry: bytes) -> bytes:
    body = struct.pack("<QQQ", sequence, step, rows) + carry
    return body + struct.pack("<I", zlib.crc32(body))


def crafted_slots(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Checkpoints with a right checksum that say what can't be. The other slot is empty, so that no row counts."""
    carry = arrays["checkpoint"][0].tobytes()[24:-4]
    for sequence, step, rows in (
        (2**64 - 1, 20, 21),
        (1, 20, 22),
        (1, 20, 2**63),
        (1, 2**63, 21),
        (1, 21, 21),
        (1, 20, 5),
        (1, 20, 0),
        (0, 20, 21),
        (2**63, 20, 21),
    ):
        held = np.frombuffer(slot(sequence, step, rows, carry) + bytes(len(carry) + 28), np.uint8).reshape(2, -1)
        yield f"checkpoint {sequence:.3g} {step:.3g} {rows:.3g}", {**arrays, "checkpoint": held}


def patched(data: bytes, dataset: Dataset) -> Iterator[tuple[str, bytes]]:
    """The same file with other addresses and sizes in the tables of one dataset."""
    layout = data.index(b"\x03\x01" + struct.pack("<QQ", dataset.offset, dataset.nbytes))
    for k, offset in enumerate(
        (0, 8, len(data) - 8, len(data), 2**63, 2**64 - 1, 2**64 - 8, dataset.offset + 8, dataset.offset - 8)
    ):
        yield f"{dataset.name} at {k}", data[: layout + 2] + struct.pack("<Q", offset) + data[layout + 10 :]
    for k, size in enumerate((0, dataset.nbytes + 8, 2**63, 2**64 - 1)):
        yield f"{dataset.name} of size {k}", data[: layout + 10] + struct.pack("<Q", size) + data[layout + 18 :]
    dims = struct.pack("<" + "Q" * len(dataset.shape), *dataset.shape)
    space = data.rindex(b"\x01" + bytes([len(dataset.shape)]) + b"\x01" + bytes(5) + dims * 2, 0, layout)
    for k, dim in enumerate((2**60, 2**63, 2**64 - 1, 0, dataset.shape[0] + 1, 10**9)):
        huge = struct.pack("<" + "Q" * len(dataset.shape), dim, *dataset.shape[1:])
        for stored in (dataset.nbytes, dim * dataset.nbytes // dataset.shape[0] % 2**64):
            out = data[: space + 8] + huge * 2 + data[space + 8 + 2 * len(dims) :]
            yield (
                f"{dataset.name} of length {k} {stored:.3g}",
                out[: layout + 10] + struct.pack("<Q", stored) + out[layout + 18 :],
            )


def crafted_bytes(data: bytes, datasets: dict[str, Dataset]) -> Iterator[tuple[str, bytes]]:
    for name in ("q", "checkpoint"):
        yield from patched(data, datasets[name])
    for mark in (b"TREE", b"SNOD", b"HEAP", b"GCOL"):
        at = data.index(mark)
        yield f"{mark.decode()} is gone", data[:at] + b"XXXX" + data[at + 4 :]
        yield f"{mark.decode()} with a count of 65535", data[: at + 6] + b"\xff\xff" + data[at + 8 :]
        for k, value in enumerate((0, 2**64 - 1, at, 96)):
            for place in (8, 16, 24, 32):
                yield (
                    f"{mark.decode()} {place} {k}",
                    data[: at + place] + struct.pack("<Q", value) + data[at + place + 8 :],
                )
    for k, root in enumerate((0, 2**64 - 1, len(data), 136)):
        yield f"root {k}", data[:64] + struct.pack("<Q", root) + data[72:]
    for version in (1, 2, 3, 255):
        yield f"superblock {version}", data[:8] + bytes([version]) + data[9:]
    yield "a block before it", bytes(512) + data
    yield "nothing", b""
    yield "the signature alone", data[:8]


def craft_files(archives: dict[str, Path], folder: Path, every: int = 1) -> list[dict[str, Any]]:
    """Crafted files, several hundred, or each `every`-th of them; "refused" says whether loading one must fail."""
    jobs = []
    for what, refused, make in list(_crafted(archives, folder))[::every]:
        path = folder / f"crafted-{len(jobs):03}.h5"
        make(path)
        jobs.append({"path": str(path), "what": what, "refused": refused, "original": str(archives["single"])})
    return jobs


def _crafted(archives: dict[str, Path], folder: Path) -> Iterator[tuple[str, bool, Callable[[Path], Any]]]:
    """What each crafted file has, whether it must be refused, and a function that writes it.

    They are of format 1, which has no checksum: every single check must find what it is there for.
    """
    meta, arrays = contents_of(archives["single"])
    told, held = contents_of(archives["reduced"])
    meta, told = ({**x, "format": 1} for x in (meta, told))
    data = archives["single"].read_bytes().replace(b'"format": 2', b'"format": 1')
    datasets = read_tables(archives["single"])[1]
    forged = lambda *of, **more: lambda path: forge(path, *of, **more)
    for kind, dtype in Record.types().items():
        odd = lambda f, n, x, dtype=dtype: f.create_dataset(n, x.shape, dtype)
        for name in ("t", "q", "energy", "checkpoint", "rows_saved"):
            yield f"{name} of type {kind}", True, forged(meta, arrays, odd={name: odd})
        for name in ("kept", "start/q", "reduced/x/levels", "reduced/e/mean"):
            yield f"{name} of type {kind}", True, forged(told, held, odd={name: odd})
    for kind, write in Record.layouts(folder).items():
        for name in ("q", "checkpoint"):
            yield f"{name} {kind}", True, forged(meta, arrays, odd={name: write})
        yield f"start/p {kind}", True, forged(told, held, odd={"start/p": write})
    for what, entries in (*crafted_entries(meta), *crafted_methods(meta)):
        yield what, True, forged(entries, arrays)
    for what, entries in crafted_origins(meta):
        yield what, False, forged(entries, arrays)
    for what, text in crafted_texts(meta).items():
        yield what, True, forged(meta, arrays, text=text)
    for what, changed in crafted_slots(meta, arrays):
        yield what, False, forged(meta, changed)
    for what, crafted in crafted_bytes(data, datasets):
        yield what, False, lambda path, crafted=crafted: path.write_bytes(crafted)
    for what, value in (
        ("a number", 1.5),
        ("numbers", np.arange(5)),
        ("two texts", ["a", "b"]),
        ("bytes", np.bytes_(b"{}")),
        ("nothing", h5py.Empty("S1")),
        ("a reference", None),
    ):
        yield f"the attribute is {what}", True, lambda path, value=value: _with_attribute(path, meta, arrays, value)


def _with_attribute(path: Path, meta: dict[str, Any], arrays: dict[str, np.ndarray], value: Any) -> None:
    forge(path, meta, arrays)
    with h5py.File(path, "r+") as file:
        del file.attrs["geomint"]
        file.attrs["geomint"] = file["q"].ref if value is None else value
