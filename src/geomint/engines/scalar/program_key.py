"""A SHA-256 of jaxprs, complete enough to find compiled code on disk by it.

Two programs with the same hash must translate to the same code. The hash therefore covers all that the translation
reads: equations in order, how variables connect them, types and shapes, literals and constants by their bytes, and the
parameters of each primitive. A parameter of a type that is not known here raises `Unhashable`, and the program is then
not cached. Left out are parameters that only describe the source, the placement of arrays, or derivatives.
"""

from __future__ import annotations

import enum
import hashlib
from typing import Any

import jax
import numpy as np
from jax.core import AbstractValue  # pyright: ignore[reportPrivateImportUsage]

from ...numerics.interpreter import called_program

IGNORED = {"debug_info", "name", "name_stack", "sharding", "out_sharding"}


class Unhashable(Exception):
    """A parameter of a primitive whose type is not known here."""


def jaxpr_digest(programs: list[Any]) -> bytes:
    """SHA-256 of closed jaxprs, one after another."""
    hasher = _Hasher()
    return hashlib.sha256(b"".join(hasher.program(program) for program in programs)).digest()


class _Hasher:
    def __init__(self) -> None:
        self.done: dict[int, tuple[bytes, Any]] = {}  # by id of a jaxpr, which is kept alive: many occur repeatedly

    def program(self, program: Any) -> bytes:
        if id(program) not in self.done:
            self.done[id(program)] = self._program(program), program
        return self.done[id(program)][0]

    def _program(self, program: Any) -> bytes:
        jaxpr, constants = getattr(program, "jaxpr", program), getattr(program, "consts", ())
        digest, numbers = hashlib.sha256(), {}

        def add(*parts: str | bytes) -> None:
            for part in parts:
                data = part.encode() if isinstance(part, str) else part
                digest.update(len(data).to_bytes(8, "little") + data)

        def atom(x: Any) -> str | bytes:
            if hasattr(x, "val"):
                return self.value(x.val) + _type(x.aval).encode()
            return str(numbers.setdefault(x, len(numbers)))

        for v in (*jaxpr.constvars, *jaxpr.invars):
            add(atom(v), _type(v.aval))
        for constant in constants:
            add(self.value(constant))
        for equation in jaxpr.eqns:
            add(equation.primitive.name, *map(atom, equation.invars))
            if (inner := called_program(equation)) is not None:
                add(self.program(inner))  # all that the translation reads of a call
            else:
                for name in sorted(equation.params.keys() - IGNORED):
                    add(name, self.value(equation.params[name]))
            for v in equation.outvars:
                add(atom(v), _type(v.aval))
        add("results", *map(atom, jaxpr.outvars))
        return digest.digest()

    def value(self, x: Any) -> bytes:
        """The bytes of a constant or parameter, its type included."""
        if x is None or isinstance(x, (bool, int, float, complex, str, bytes, np.dtype, enum.Enum)):
            return f"{type(x).__name__} {x!r}".encode()
        if isinstance(x, (np.ndarray, np.generic, jax.Array)):
            array = np.asarray(x)
            if array.dtype.hasobject:
                raise Unhashable(str(array.dtype))
            return f"array {array.dtype} {array.shape} ".encode() + hashlib.sha256(array.tobytes()).digest()
        if hasattr(x, "eqns") or (hasattr(x, "jaxpr") and hasattr(x, "consts")):
            return b"program " + self.program(x)
        if isinstance(x, AbstractValue):
            return _type(x).encode()
        if isinstance(x, type) and issubclass(x, np.generic):
            return x.__name__.encode()
        if type(x).__name__ == "PRNGImpl" and x.name == "threefry2x32":
            return b"threefry2x32"
        if isinstance(x, dict):
            return self.joined("dict", [part for name in sorted(x) for part in (name, x[name])])
        if isinstance(x, (tuple, list)):
            return self.joined(type(x).__name__, x)
        if type(x).__module__.startswith("jax.") and hasattr(x, "__dataclass_fields__"):
            return self.joined(type(x).__name__, [getattr(x, name) for name in x.__dataclass_fields__])
        raise Unhashable(f"{type(x).__module__}.{type(x).__name__}")

    def joined(self, name: str, parts: Any) -> bytes:
        digest = hashlib.sha256(name.encode())
        for part in parts:
            digest.update(hashlib.sha256(self.value(part)).digest())
        return digest.digest()


def _type(aval: Any) -> str:
    return f"{aval.str_short()} {getattr(aval, 'weak_type', '')}"
