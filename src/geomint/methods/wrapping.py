"""Methods over another method, and what they pass on to it."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from jaxtyping import Array

from ..system.mechanics import Mechanics
from . import protocols
from .base import Carry, Method, State
from .protocols import CanFail, FindsStructure, HasScalarForm, Rescuable, WarnsOfStep


class Wrapping(FindsStructure, CanFail, HasScalarForm, Rescuable, WarnsOfStep):
    """A method over a base. What only some bases have is asked of the base, by the base's own carry."""

    base: Method

    @abc.abstractmethod
    def with_base(self, base: Method) -> Self:
        """The same over another base."""

    def base_carry(self, carry: Carry) -> Carry:
        """The carry of the base."""
        return carry

    @property
    def longest_substep(self) -> float:
        """The longest step that the base takes, in steps."""
        return 1.0

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return self.base.functions

    @property
    def failures(self) -> Mapping[int, str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return protocols.failures(self.base)

    def status(self, carry: Carry) -> Array | None:
        return protocols.status(self.base, self.base_carry(carry))

    def explain(self, status: int, mech: Any, q: Any, dt: float) -> str:
        return protocols.explain(self.base, status, mech, q, self.longest_substep * dt)

    def prepare(self, starts: Sequence[tuple[Any, Any]]) -> Self:
        return self.with_base(protocols.prepare(self.base, starts))

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        return protocols.misfits(self.base, system, q, own_params)

    @property
    def linear_solver(self) -> str | None:
        return protocols.linear_solver(self.base)

    def for_scalar_code(self, many: bool) -> Self:
        return self.with_base(protocols.for_scalar_code(self.base, many))

    def rescued(self, status: int) -> Self | None:
        stronger = protocols.rescued(self.base, status)
        return None if stronger is None else self.with_base(stronger)

    def rescue_warning(self, system: Any, q: Any) -> str:
        return protocols.rescue_warning(self.base, system, q)

    def warn(self, system: Any, q: Any, dt: float) -> None:
        protocols.warn(self.base, system, q, self.longest_substep * dt)

    def output(self, mech: Mechanics, carry: Carry) -> State:
        return self.base.output(mech, self.base_carry(carry))
