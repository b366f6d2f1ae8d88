"""XML files of others, read without trust: no entities, no document types, bounded in size and depth."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np

from ..errors import InputError, nearest

MOST_BYTES = 32 * 2**20
MOST_ELEMENTS = 500_000
DEEPEST = 500  # nested elements


class File:
    """What an importer says of a file: what it does not cover is collected, and refused together at the end."""

    def __init__(self, path: Any, callee: str, ignore: Any):
        if not isinstance(path, (str, os.PathLike)):
            raise InputError(f"{callee}(path={path!r}): path must be the name of a file.")
        self.path, self.callee = Path(path), callee
        named = isinstance(ignore, (list, tuple, set, frozenset)) and all(isinstance(x, str) for x in ignore)
        if not named:
            raise InputError(f"{callee}(ignore={ignore!r}): ignore must be a list of names, such as ('contact',).")
        self.ignored: set[str] = set(ignore)
        self.refused: dict[str, list[str]] = {}

    def error(self, message: str) -> InputError:
        return InputError(f"{self.callee}({str(self.path)!r}): {message}")

    def refuse(self, feature: str, where: str) -> None:
        """Note a feature that would change the motion, and where it is."""
        if feature not in self.ignored:
            self.refused.setdefault(feature, []).append(where)

    def finish(self) -> None:
        """Raise what was refused."""
        if not self.refused:
            return
        listed = "; ".join(
            f"{feature} ({', '.join(dict.fromkeys(places[:4]))}{', …' if len(places) > 4 else ''})"
            for feature, places in self.refused.items()
        )
        names = ", ".join(repr(feature) for feature in self.refused)
        raise self.error(
            f"not covered, although it would change the motion: {listed}. To leave it out all the same, "
            f"ignore=({names},)."
        )

    def root(self, tag: str) -> Element:
        """The root element of the file."""
        root = parsed(self)
        if root.tag != tag:
            raise self.error(f"the root element is <{root.tag}>, not <{tag}>.")
        return root

    def numbers(self, element: Element, name: str, default: Any = None, size: int | None = None) -> Any:
        """An attribute of numbers as an array."""
        text = element.get(name)
        if text is None:
            return None if default is None else np.array(default, float)
        try:
            found = np.array([float(x) for x in text.split()])
        except ValueError:
            found = np.array([np.nan])
        if not np.all(np.isfinite(found)) or not len(found) or (size is not None and len(found) != size):
            wanted = "numbers" if size is None else f"{size} numbers" if size > 1 else "a number"
            raise self.error(f"{described(element)}: {name}={text!r} must be {wanted}.")
        return found

    def number(self, element: Element, name: str, default: float | None = None) -> Any:
        found = self.numbers(element, name, None if default is None else [default], 1)
        return None if found is None else float(found[0])

    def whole(self, element: Element, name: str, default: int) -> int:
        """An attribute that is a whole number."""
        found = self.number(element, name, default)
        if found != int(found):
            raise self.error(f"{described(element)}: {name}={element.get(name)!r} must be a whole number.")
        return int(found)

    def check_children(self, element: Element, known: Any, harmless: Any = ()) -> None:
        """Refuse children of unknown tags."""
        for child in element:
            if child.tag not in known and child.tag not in harmless:
                self.refuse(child.tag, f"{described(child)} in {described(element)}")

    def check_attributes(self, element: Element, known: Any, harmless: Any = ()) -> None:
        """Refuse attributes of unknown names."""
        for name in element.attrib:
            if name not in known and name not in harmless:
                hint = nearest(name, [*known, *harmless])
                self.refuse(name, f"attribute {name} of {described(element)}" + (hint if "Did" in hint else ""))


def described(element: Element) -> str:
    name = element.get("name")
    return f"<{element.tag}>" if name is None else f"<{element.tag} name={name!r}>"


def parsed(file: File) -> Element:
    """The tree of a file."""
    try:
        with file.path.open("rb") as opened:
            text = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise file.error(f"can't be read: {error.strerror or error}.") from None
    if len(text) > MOST_BYTES:
        raise file.error(f"has more than {MOST_BYTES // 2**20} MiB.")
    builder, open_elements, count = TreeBuilder(), 0, 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal open_elements, count
        open_elements, count = open_elements + 1, count + 1
        if open_elements > DEEPEST or count > MOST_ELEMENTS:
            limit = f"{DEEPEST} levels" if open_elements > DEEPEST else f"{MOST_ELEMENTS} elements"
            raise file.error(f"has more than {limit}.")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal open_elements
        open_elements -= 1
        builder.end(tag)

    def document_type(*_: Any) -> None:
        raise file.error("has a document type (<!DOCTYPE>), which may define entities; remove it.")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = document_type
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise file.error(f"is not XML: {error}.") from None
    return builder.close()
