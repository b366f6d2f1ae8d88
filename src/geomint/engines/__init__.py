"""How a block of steps is executed: by XLA, as machine code of the CPU, or as one GPU kernel.

Start with block.py, the loop over blocks and steps that defines what every engine computes. xla.py compiles it with
XLA: the reference, which covers every system, and the interface that the host loop in run/ drives. llvm/ and pallas/
translate a step into operations on single numbers (scalar/) and agree with the reference to rounding; where they do not
cover a program, the reference runs. tiles.py divides an ensemble among devices. grid.py has the times of
a run.

May import: methods, manifold, system, numerics, errors. Not run, io, analysis, models.
"""

from __future__ import annotations

import jax

from ..errors import InputError, nearest
from .block import Clock, Layout, begin, is_good, march
from .llvm.engine import Native, NativeIfFaster
from .pallas.engine import Kernel
from .xla import Xla

ENGINES: dict[str, type[Xla]] = {"xla": Xla, "native": Native, "kernel": Kernel}


def choose(engine: str, members: bool = False) -> type[Xla]:
    """The engine of that name. "auto": one kernel for an ensemble on a GPU, otherwise machine code; both fall back to
    the reference engine for systems that are too large for scalar code, and for operations that are not covered.
    For one trajectory, machine code also has to be worth its time to compile (llvm/engine.py: `Size`)."""
    if not isinstance(engine, str):
        raise InputError(f"engine must be one of {', '.join(map(repr, ('auto', *ENGINES)))}, not {engine!r:.100}.")
    if engine == "auto":
        return Kernel if members and jax.default_backend() == "gpu" else NativeIfFaster
    if engine not in ENGINES:
        raise InputError(f"there is no engine {engine!r}." + nearest(engine, ("auto", *ENGINES)))
    return ENGINES[engine]


__all__ = ["ENGINES", "Clock", "Kernel", "Layout", "Native", "Xla", "begin", "choose", "is_good", "march"]
