"""The table of a sweep: its rows as they come, in a folder where there is one, and as an xarray.Dataset."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import ArchiveError, GeomintError
from ..io.files import writing
from ..io.fingerprint import fingerprint
from ..methods import as_method
from ..system.constraints import measured_at

RESULTS = "sweep.jsonl"  # the first line describes the sweep, each further one is a point that has ended
FAILED = "failed"  # the status of points that are not written: the same call again runs them again
STATUSES = ("complete", "stopped", "refused")


class Point(NamedTuple):
    """One row."""

    number: int
    status: str
    message: str
    warning: str
    seconds: float
    file: str | None
    energy_error: float
    end_time: float
    q: np.ndarray | None
    p: np.ndarray | None


def _text(x: Any) -> str:
    """A value as text that differs where the value differs."""
    if hasattr(x, "traits"):
        return as_method(x).name
    if isinstance(x, (str, bool, type(None))):
        return repr(x)
    leaves, treedef = jax.tree.flatten(x)
    arrays = [np.asarray(leaf) for leaf in leaves]
    if len(arrays) == 1 and arrays[0].ndim == 0:
        return repr(arrays[0].item())
    digest = hashlib.sha256(str(treedef).encode())
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def described(sweep: Any, over: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """What a sweep is, as JSON: another one does not go on in the same folder."""
    settings = {name: _text(x) for name, x in sorted(sweep.settings.items()) if name not in over}
    starts = over["q0"] if "q0" in over else [sweep.settings["q0"]]
    return {
        "over": {name: [_text(x) for x in values] for name, values in over.items()},
        "settings": {**settings, "default_end": sweep.default_end},
        "system": _fingerprint(sweep.system, starts),
    }


def _fingerprint(system: Any, starts: Sequence[Any]) -> str | None:
    """None where no start fits the system: then the rows of all points say so."""
    for start in starts:
        with contextlib.suppress(Exception):  # of the user's functions
            return fingerprint(measured_at(system, start), np.shape(start))
    return None


class Table:
    """The rows of a sweep."""

    def __init__(self, names: Sequence[str], values: dict[str, list[Any]], folder: Path | None, about: dict[str, Any]):
        self.names, self.values, self.folder = tuple(names), values, folder
        self.points: dict[int, Point] = {}
        if folder is not None:
            self._open(folder / RESULTS, about)

    def _open(self, path: Path, about: dict[str, Any]) -> None:
        if not path.exists():
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                if any(path.parent.iterdir()):
                    raise ArchiveError(f"{path.parent} is not empty, and has no {RESULTS} of a sweep.", path.parent)
                path.write_text(json.dumps(about) + "\n")
            return
        text = path.read_text("utf-8", "replace")
        first, *lines = text.splitlines() or [""]
        if _parsed(first) != about:
            raise ArchiveError(
                f"{path.parent} has another sweep: its values, its settings or its system differ. Choose another "
                "output, or make the same call as before.",
                path.parent,
            )
        if not text.endswith("\n"):  # the client was killed while it wrote a line
            with writing(path), path.open("a") as file:
                file.write("\n")
        count = math.prod(len(x) for x in self.values.values())
        for line in lines:
            point = _point(_parsed(line))
            if point is not None and 0 <= point.number < count:  # otherwise it runs again
                self.points[point.number] = point

    def add(self, point: Point) -> None:
        self.points[point.number] = point
        if self.folder is None or point.status == FAILED:
            return
        finite = lambda x: x if x is None or np.isfinite(x) else None
        lists = {name: None if getattr(point, name) is None else getattr(point, name).tolist() for name in ("q", "p")}
        numbers = {name: finite(getattr(point, name)) for name in ("energy_error", "end_time")}
        line = json.dumps({**point._asdict(), **lists, **numbers})
        with writing(self.folder / RESULTS), (self.folder / RESULTS).open("a") as file:
            file.write(line + "\n")

    def to_xarray(self) -> Any:
        try:
            import xarray
        except ImportError:
            raise GeomintError("sweep needs the package xarray: pip install geomint[analysis]") from None
        shape = tuple(len(self.values[name]) for name in self.names)
        points = [self.points[k] for k in range(int(np.prod(shape)))]
        variables: dict[str, Any] = {
            name: (self.names, np.array([getattr(p, name) or "" for p in points], object).reshape(shape).astype(str))
            for name in ("status", "message", "warning", "file")
        }
        for name in ("energy_error", "end_time", "seconds"):
            variables[name] = self.names, np.array([getattr(p, name) for p in points], float).reshape(shape)
        for name in ("q", "p"):
            shapes = {x.shape for p in points if (x := getattr(p, name)) is not None}
            if len(shapes) == 1:
                inner = shapes.pop()
                rows = [np.full(inner, np.nan) if getattr(p, name) is None else getattr(p, name) for p in points]
                axes = (*self.names, *(f"axis_{k}" for k in range(len(inner))))
                variables[name] = axes, np.stack(rows).reshape(*shape, *inner)
        coordinates = {name: _coordinate(self.values[name]) for name in self.names}
        about = {} if self.folder is None else {"folder": str(self.folder)}
        return xarray.Dataset(variables, coordinates, about)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _point(held: Any) -> Point | None:
    """A row from its line; None where the line is damaged."""
    if not isinstance(held, dict) or held.keys() != set(Point._fields):
        return None
    texts = held["message"], held["warning"], held["file"] or ""
    if type(held["number"]) is not int or held["status"] not in STATUSES or not all(isinstance(x, str) for x in texts):
        return None
    try:
        arrays = {name: None if held[name] is None else np.asarray(held[name], float) for name in ("q", "p")}
        numbers = {
            name: math.nan if held[name] is None else float(held[name])
            for name in ("energy_error", "end_time", "seconds")
        }
    except (TypeError, ValueError):
        return None
    return Point(**{**held, **arrays, **numbers})


def _coordinate(values: list[Any]) -> Any:
    """The values of a dimension: numbers, names of methods, or the position where a value is an array."""
    if any(all(isinstance(x, kind) for x in values) for kind in ((int, float, np.number), str)):
        return np.asarray(values)
    if all(hasattr(x, "traits") for x in values):
        return np.array([as_method(x).name for x in values])
    return np.arange(len(values))
