"""How a block of steps is executed."""

from __future__ import annotations

from ..errors import InputError, nearest
from .block import Clock, Kept, Layout, advance, begin, march
from .kernel import Kernel
from .native import Native
from .xla import Xla

ENGINES: dict[str, type[Xla]] = {"xla": Xla, "native": Native, "kernel": Kernel}


def choose(engine: str) -> type[Xla]:
    """The engine of that name; "auto" picks."""
    if engine == "auto":
        return Xla
    if engine not in ENGINES:
        raise InputError(f"there is no engine {engine!r}." + nearest(engine, ("auto", *ENGINES)))
    return ENGINES[engine]


__all__ = ["ENGINES", "Clock", "Kept", "Kernel", "Layout", "Native", "Xla", "advance", "begin", "choose", "march"]
