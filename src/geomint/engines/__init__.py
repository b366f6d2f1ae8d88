"""How a block of steps is executed."""

from __future__ import annotations

import jax

from ..errors import InputError, nearest
from .block import Clock, Layout, begin, march, sound
from .llvm.engine import Native, NativeWhereItPays
from .pallas.engine import Kernel
from .xla import Xla

ENGINES: dict[str, type[Xla]] = {"xla": Xla, "native": Native, "kernel": Kernel}


def choose(engine: str, members: bool = False) -> type[Xla]:
    """The engine of that name. "auto": for an ensemble where there is a GPU, one kernel; else machine code. Both step aside for the
    reference engine where a system is too large for straight-line code, or an operation is not covered."""
    if not isinstance(engine, str):
        raise InputError(f"engine must be one of {', '.join(map(repr, ('auto', *ENGINES)))}, not {engine!r:.100}.")
    if engine == "auto":
        return Kernel if members and jax.default_backend() == "gpu" else NativeWhereItPays
    if engine not in ENGINES:
        raise InputError(f"there is no engine {engine!r}." + nearest(engine, ("auto", *ENGINES)))
    return ENGINES[engine]


__all__ = ["ENGINES", "Clock", "Kernel", "Layout", "Native", "Xla", "begin", "choose", "march", "sound"]
