"""What a model is: a system with initial data, and a method and a step that work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..system.lagrangian import LagrangianSystem
from ..system.system import Stated, System
from .base import Method
from .lie_verlet import LieVerlet
from .rattle import Rattle
from .splitting import Verlet
from .variational import Variational


@dataclasses.dataclass(frozen=True)
class Model:
    """A system with initial data, and a method, a step `dt` and an end `t_end` that work: gm.simulate(model) runs it.

    method:  by default Variational() for a Lagrangian, LieVerlet() on a group, Rattle() where there is a constraint,
             and Verlet() otherwise.
    inside:  functions c(q) that are positive where the motion may go, each a number or an array: the hard walls and
             hard bodies of a model, which have no potential.
    """

    system: Stated
    q0: np.ndarray
    v0: np.ndarray
    name: str
    description: str
    method: Method = None  # pyright: ignore[reportAssignmentType]  # chosen below
    dt: float = 0.01
    t_end: float = 10.0
    inside: tuple[Callable[..., Any], ...] = ()

    def __post_init__(self) -> None:
        if self.method is None:
            object.__setattr__(self, "method", _usual_method(self.system))

    def __repr__(self) -> str:
        return f"<geomint model {self.name}: {self.description}>"


def _usual_method(system: Stated) -> Method:
    if isinstance(system, LagrangianSystem):
        return Variational()
    if isinstance(system, System) and not system.space.flat:
        return LieVerlet()
    return Verlet() if system.constraint is None else Rattle()
