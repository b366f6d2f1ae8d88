"""Reads the tables of an archive: which datasets an HDF5 file has, their types and shapes, and where their bytes begin.

h5py writes archives, but this module reads them. The HDF5 library is a large C program that trusts what a file says of
itself: a damaged or crafted file can crash it, make it allocate any amount of memory, or make it hand out bytes of the
file as pointers (object references, variable-length strings). geomint writes a small part of the format
(`libver="earliest"`), and this reader knows that part only: groups with symbol tables, contiguous datasets of numbers,
one attribute of text, and, in the index of a sharded run only, virtual datasets, of which it reads the names and
nothing else. Everything else (other types, chunks, filters, external files, soft and external links, shared messages)
is refused. It checks every address against the size of the file, visits every table once, and reads no more than the
tables.

The format: https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t11.html
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from .files import open_file, read_at

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MOST_OBJECTS = 10_000  # groups and datasets
MOST_HEADER_BYTES = 2**16  # of the header of one object
DEEPEST_GROUP = 16  # groups within groups
LONGEST_NAME = 1024
LONGEST_TEXT = 2**22  # of an attribute

# Kinds of messages in the header of an object.
DATASPACE, DATATYPE, LAYOUT, ATTRIBUTE, CONTINUATION, SYMBOL_TABLE = 0x01, 0x03, 0x08, 0x0C, 0x10, 0x11
IGNORED = {0x00, 0x04, 0x05, 0x0E, 0x12}  # empty, old fill value, fill value, old time, time of change
REFUSED = {0x02: "links", 0x06: "a link", 0x07: "external storage", 0x0B: "filters", 0x15: "attributes in a heap"}
SHARED = 0x02  # flag of a message that stands elsewhere
VIRTUAL = (4, 3)  # version and class of the layout of a virtual dataset

VARIABLE_TEXT = (b"\x19\x01\x01\x00\x10\x00\x00\x00", b"\x19\x01\x00\x00\x10\x00\x00\x00")  # UTF-8, ASCII


class Damaged(ValueError):
    """The file is not one that geomint wrote, or was changed since."""


class Foreign(Damaged):
    """An HDF5 file of another program."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A contiguous array in a file."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


def _number_types() -> dict[bytes, np.dtype]:
    """The datatype messages of little-endian integers and of float32 and float64; geomint writes no others."""
    table = {}
    for size in (1, 2, 4, 8):
        for sign, letter in ((8, "i"), (0, "u")):
            table[struct.pack("<BBBBIHH", 0x10, sign, 0, 0, size, 0, 8 * size)] = np.dtype(f"<{letter}{size}")
    for size, exponent, mantissa in ((4, 8, 23), (8, 11, 52)):
        parts = (size, 0, 8 * size, mantissa, exponent, 0, mantissa, 2 ** (exponent - 1) - 1)
        table[struct.pack("<BBBBIHHBBBBI", 0x11, 0x20, 8 * size - 1, 0, *parts)] = np.dtype(f"<f{size}")
    return table


NUMBER_TYPES = _number_types()


class TableReader:
    """One pass over the tables of an open file."""

    def __init__(self, file: int):
        self.file, self.size = file, os.fstat(file).st_size
        self.seen: set[int] = set()  # addresses of tables
        self.spans: list[tuple[int, int]] = []  # the bytes of all tables
        self.datasets: dict[str, Dataset] = {}
        self.virtual: set[str] = set()  # names of virtual datasets
        self.objects = 0

    def bytes_at(self, address: int, size: int) -> bytes:
        if address + size > self.size:
            raise Damaged(f"a table points to byte {address + size} of {self.size}")
        self.spans.append((address, address + size))
        return read_at(self.file, size, address)

    def unpack(self, form: str, address: int) -> Any:
        form = "<" + form
        return struct.unpack(form, self.bytes_at(address, struct.calcsize(form)))

    def mark_read(self, address: int) -> None:
        """Record that the table at this address is read. A second visit means that tables form a cycle or overlap."""
        if address in self.seen:
            raise Damaged(f"two tables share the byte {address}")
        self.seen.add(address)

    def read(self) -> dict[str, str]:
        """Fills `datasets`; returns the text attributes of the root."""
        if self.bytes_at(0, min(8, self.size)) != SIGNATURE:
            raise Damaged("not an HDF5 file")
        if self.bytes_at(8, 8) != b"\0\0\0\0\0\x08\x08\0":
            raise Foreign("its superblock has a version or sizes that geomint does not write")
        base, _, end, _, _, root = self.unpack("QQQQQQ", 24)
        if end > self.size:
            raise Damaged(f"truncated: it has {self.size} of {end} bytes")
        if base != 0:
            raise Foreign("its base address is not 0")
        return self.object("", root, 0)

    def messages(self, address: int) -> list[tuple[int, bytes]]:
        """Kind and content of the messages in the header of an object."""
        self.mark_read(address)
        self.objects += 1
        version, _, _, _, size = self.unpack("BBHII", address)
        if version != 1 or self.objects > MOST_OBJECTS:
            raise Foreign(f"an object header is not of version 1, or there are more than {MOST_OBJECTS} objects")
        found, blocks, room = [], [(address + 16, size)], MOST_HEADER_BYTES
        while blocks:
            at, size = blocks.pop(0)
            room -= size
            if room < 0:
                raise Damaged(f"the header of an object at byte {address} is too long")
            block = self.bytes_at(at, size)
            for kind, flags, data in _split(block):
                if flags & SHARED or kind in REFUSED:
                    raise Foreign(
                        f"an object has {REFUSED.get(kind, 'a shared message')}, which geomint does not write"
                    )
                if kind == CONTINUATION:
                    blocks.append(_unpacked("QQ", data))
                    self.mark_read(blocks[-1][0])
                elif kind not in IGNORED:
                    found.append((kind, data))
        return found

    def object(self, name: str, address: int, depth: int) -> dict[str, str]:
        """Read a group with all its members, or a dataset. Returns the text attributes of the root, else {}."""
        by_kind: dict[int, bytes] = {}
        attributes = {}
        for kind, data in self.messages(address):
            if kind == ATTRIBUTE and depth == 0:
                attributes |= self.attribute(data)
            elif kind in by_kind or kind not in (DATASPACE, DATATYPE, LAYOUT, SYMBOL_TABLE):
                raise Foreign(f"{name or 'the root'} has a message of kind {kind}, which geomint does not write there")
            else:
                by_kind[kind] = data
        if by_kind.keys() == {SYMBOL_TABLE}:
            if depth > DEEPEST_GROUP:
                raise Damaged("groups are nested too deeply")
            tree, heap = _unpacked("QQ", by_kind[SYMBOL_TABLE])
            for child, where in self.members(tree, heap):
                self.object(f"{name}/{child}" if name else child, where, depth + 1)
        elif by_kind.keys() == {DATASPACE, DATATYPE, LAYOUT} and name:
            if _unpacked("BB", by_kind[LAYOUT]) == VIRTUAL:
                self.virtual.add(name)
            else:
                self.datasets[name] = self.dataset(name, by_kind)
        else:
            raise Foreign(f"{name or 'the root'} is neither a group nor a dataset as geomint writes them")
        return attributes

    def members(self, tree: int, heap: int) -> list[tuple[str, int]]:
        """Names and addresses of what is in a group."""
        self.mark_read(heap)
        mark, _, size, _, names = self.unpack("4sIQQQ", heap)
        if mark != b"HEAP" or names + size > self.size:
            raise Damaged("the heap with the names of a group is missing, or reaches beyond the file")
        found: list[tuple[str, int]] = []
        nodes = [(tree, None)]
        while nodes:
            address, above = nodes.pop(0)
            self.mark_read(address)
            mark = self.bytes_at(address, 4)
            if mark == b"TREE":
                kind, level, count = self.unpack("BBH", address + 4)
                if kind != 0 or (above is not None and level >= above):
                    raise Damaged("the B-tree of a group has a node of a wrong type or level")
                pairs = np.frombuffer(self.bytes_at(address + 32, 16 * count), "<u8")  # each child is followed by a key
                nodes += [(child, level) for child in pairs[0::2].tolist()]
            elif mark == b"SNOD" and above == 0:
                _, _, count = self.unpack("BBH", address + 4)
                for k in range(count):
                    name, where, cached, _ = self.unpack("QQII", address + 8 + 40 * k)
                    if cached not in (0, 1):
                        raise Foreign("a soft link, which geomint does not write")
                    found.append((self.name(names, name, size), where))
            else:
                raise Damaged(f"no table of a group at byte {address}")
            if len(found) + len(nodes) > MOST_OBJECTS:
                raise Foreign("too many objects")
        if len(dict(found)) < len(found):
            raise Damaged("two objects have the same name")
        return found

    def name(self, names: int, at: int, size: int) -> str:
        if at >= size:
            raise Damaged("a name lies outside the names of its group")
        text, end, _ = self.bytes_at(names + at, min(size - at, LONGEST_NAME)).partition(b"\0")
        try:
            name = text.decode()
        except UnicodeDecodeError:
            raise Damaged("the name of an object is not UTF-8 text") from None
        if not end or not name or "/" in name or name in (".", ".."):
            raise Damaged(f"{name!r:.50} is not a valid name of an object")
        return name

    def dataset(self, name: str, messages: dict[int, bytes]) -> Dataset:
        layout, kind, offset, stored = _unpacked("BBQQ", messages[LAYOUT])
        if (layout, kind) != (3, 1):
            raise Foreign(f"{name} is not stored in one piece")
        known = [(form, dtype) for form, dtype in NUMBER_TYPES.items() if messages[DATATYPE].startswith(form)]
        # Messages are padded to a multiple of 8 bytes.
        if not known or len(messages[DATATYPE]) - len(known[0][0]) > 7:
            raise Foreign(f"{name} is not an array of numbers of a type that geomint writes")
        found = Dataset(name, known[0][1], _shape(name, messages[DATASPACE]), offset)
        if stored != found.nbytes or found.dtype.itemsize * math.prod(max(n, 1) for n in found.shape) > self.size:
            raise Damaged(
                f"{name} has the shape {found.shape}, which its {stored} bytes in a file of {self.size} do not hold"
            )
        if found.nbytes and offset + found.nbytes > self.size:
            raise Damaged(f"{name} ends at byte {offset + found.nbytes} of {self.size}")
        return found if found.nbytes else dataclasses.replace(found, offset=0)

    def attribute(self, data: bytes) -> dict[str, str]:
        """A string of variable length. It is stored in a global heap, to which the attribute points."""
        version, _, name_size, type_size, space_size = _unpacked("BBHHH", data)
        pad = (lambda n: -(-n // 8) * 8) if version == 1 else (lambda n: n)  # version 1 pads to multiples of 8 bytes
        at = 9 if version == 3 else 8
        name, at = data[at : at + name_size].rstrip(b"\0").decode("utf8", "replace"), at + pad(name_size)
        datatype, at = data[at : at + type_size], at + pad(type_size)
        space, at = data[at : at + space_size], at + pad(space_size)
        if version not in (1, 2, 3) or not datatype.startswith(VARIABLE_TEXT) or _shape(name, space) != ():
            raise Foreign(f"the attribute {name!r:.50} is not a single string of variable length")
        length, heap, index = _unpacked("IQI", data[at:])
        return {name: self.heap_text(heap, index, length)}

    def heap_text(self, heap: int, index: int, length: int) -> str:
        self.mark_read(heap)
        mark, _, size = self.unpack("4sIQ", heap)
        if mark != b"GCOL" or heap + size > self.size:
            raise Damaged("the heap with the text of an attribute is missing, or reaches beyond the file")
        at, end = heap + 16, heap + size
        for _ in range(MOST_OBJECTS):
            if at + 16 > end:
                break
            number, _, _, here = self.unpack("HHIQ", at)
            if number == index and number:
                if here != length or at + 16 + here > end or here > LONGEST_TEXT:
                    raise Damaged("the text of an attribute has a wrong length, or is too long")
                try:
                    return self.bytes_at(at + 16, here).decode()
                except UnicodeDecodeError:
                    raise Damaged("an attribute is not UTF-8 text") from None
            if number == 0:
                break
            at += 16 + -(-here // 8) * 8
        raise Damaged("the text of an attribute is missing")

    def check_no_overlap(self) -> None:
        """Check that no dataset overlaps another one or the tables: writing one would change the other."""
        spans = [(begin, end, "the tables of the file") for begin, end in _merged(self.spans)]
        held = sorted(spans + [(d.offset, d.offset + d.nbytes, d.name) for d in self.datasets.values() if d.nbytes])
        for (_, end, first), (begin, _, second) in itertools.pairwise(held):
            if begin < end:
                raise Damaged(f"{first} and {second} overlap")


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes as intervals that do not overlap, in order."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _split(block: bytes) -> list[tuple[int, int, bytes]]:
    """Kind, flags and content of the messages in a block of a header."""
    found, at = [], 0
    while at + 8 <= len(block):
        kind, size, flags = struct.unpack_from("<HHB", block, at)
        if at + 8 + size > len(block):
            raise Damaged("a message in the header of an object is longer than the header")
        found.append((kind, flags, block[at + 8 : at + 8 + size]))
        at += 8 + size
    return found


def _shape(name: str, space: bytes) -> tuple[int, ...]:
    version, rank, flags, _, _ = _unpacked("BBBBI", space)
    if version != 1 or flags not in (0, 1) or rank > 32:
        raise Foreign(f"{name} has a shape of a kind that geomint does not write")
    dims = _unpacked("Q" * rank, space[8:])
    if flags and _unpacked("Q" * rank, space[8 + 8 * rank :]) != dims:
        raise Foreign(f"{name} is resizable, which geomint's datasets are not")
    return dims


def _unpacked(form: str, data: bytes) -> Any:
    try:
        return struct.unpack_from("<" + form, data)
    except struct.error:
        raise Damaged("a message in the header of an object is too short") from None


def read_tables(path: Path, virtual: bool = False) -> tuple[dict[str, str], dict[str, Dataset]]:
    """The text attributes of an HDF5 file and its datasets, by name. virtual: the file may have virtual datasets, which
    are left out."""
    file = open_file(path)
    try:
        reader = TableReader(file)
        attributes = reader.read()
        reader.check_no_overlap()
    finally:
        os.close(file)
    if reader.virtual and not virtual:
        raise Foreign(f"{min(reader.virtual)} is not stored in one piece")
    return attributes, reader.datasets
