"""Optional abilities of methods, a small class for each. Engines and loops test for them with isinstance. The functions
at the end take any method, and return a default where it does not have the ability.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..system.mechanics import Mechanics
from .base import Carry, Method, State

Middle = Callable[[Any, Any], tuple[Any, Any]]  # (q, p) → the new p, and anything else


class EventDriven(Method):
    """A method that chooses its own times; dt is the interval between saved points."""

    @abc.abstractmethod
    def time(self, carry: Carry) -> Array:
        """The time that the carry has reached."""

    @abc.abstractmethod
    def between(self, mech: Mechanics, carry: Carry, t: Array) -> State:
        """The state at a time t up to `time(carry)`."""

    @abc.abstractmethod
    def events(self, carry: Carry) -> Array:
        """How many events there were."""

    @abc.abstractmethod
    def event(self, carry: Carry) -> Array:
        """Time, level and kind of the last event."""

    def tally(self, carry: Carry) -> dict[str, Array]:
        """How many events of which kind there were, and what else was counted."""
        return {"events": self.events(carry)}

    def with_same_choices(self, carry: Carry) -> Method:
        """The method with what it chose at the start of this run, so that another start makes the same choice."""
        return self

    def warn_after_run(self, carry: Carry) -> None:
        """Warn of what happened during a run."""


class CanFail(Method):
    """A method with a status: 0 until a step fails, then a key of `failures`; it does not return to 0."""

    failures: ClassVar[Mapping[int, str]] = {}

    @abc.abstractmethod
    def status(self, carry: Carry) -> Array | None:
        """The status; None where this instance can't fail."""

    def explain(self, status: int, mech: Any, q: Any, dt: float) -> str:
        """More on a failure, from the last good state."""
        return ""


class FindsStructure(Method):
    """A method that finds out something about a system before a run, such as the structure of a Hessian."""

    @abc.abstractmethod
    def prepare(self, starts: Sequence[tuple[Any, Any]]) -> Method:
        """The method with what it found from pairs (system, q0): one, or a sample of an ensemble."""

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        """Which members of an ensemble do not fit what `prepare` found from a sample of them. q and, if own_params, the
        params of the system lead with the member axis."""
        return np.zeros(len(q), bool)

    @property
    def linear_solver(self) -> str | None:
        """The linear solver in use, where there is one."""
        return None


class DependsOnStepLength(Method):
    """A method whose carry holds something made for one length of step; compositions change the length."""

    @abc.abstractmethod
    def rescale(self, mech: Any, carry: Carry, dt: Array) -> Carry:
        """The carry made ready for steps of length dt."""


class HasHistory(Method):
    """A method whose carry holds several past steps. For steps of the opposite sign their order is reversed."""

    @abc.abstractmethod
    def reverse(self, carry: Carry) -> Carry:
        """The carry made ready for steps of the opposite sign."""


class HasScalarForm(Method):
    """A method with another form for engines that write a step as a program on single numbers."""

    @abc.abstractmethod
    def for_scalar_code(self, many: bool) -> Method:
        """That form, for many members at once or for one trajectory."""


class Rescuable(Method):
    """A method with a slower form for steps that it fails to take."""

    @abc.abstractmethod
    def rescued(self, status: int) -> Method | None:
        """The form that may take a step which failed with this status (0 where the result was not finite), from the
        same carry; None where there is none."""

    @abc.abstractmethod
    def rescue_warning(self, system: Any, q: Any) -> str:
        """The text of the warning for a step near q that only the rescued form could take."""


class WarnsOfStep(Method):
    """A method that knows steps too long for a system."""

    @abc.abstractmethod
    def warn(self, system: Any, q: Any, dt: float) -> None:
        """Warn of a step known to be too long."""


class ChecksStart(Method):
    """A method that can't start everywhere."""

    @abc.abstractmethod
    def check_start(self, system: Any, q: Any, p: Any, members: bool = False) -> None:
        """Raise an InputError where no motion can start at (q, p), or at one of them."""


class ReplacesMomentum(Method):
    """A method whose carry holds more that depends on p than p itself."""

    @abc.abstractmethod
    def with_momentum(self, carry: Carry, p: Any) -> Carry:
        """The carry with another momentum."""


class InterruptsDrift(Method):
    """A method kick, drift, kick, whose drift can be interrupted halfway, where a thermostat acts."""

    @property
    @abc.abstractmethod
    def has_one_drift(self) -> bool:
        """Whether this instance is kick, drift, kick."""

    def init_interrupted(self, mech: Any, state: State, dt: Array) -> Carry:
        """The carry for such steps."""
        return self.init(mech, state, dt)

    @abc.abstractmethod
    def step_interrupted(self, mech: Any, carry: Carry, dt: Array, middle: Middle) -> tuple[Carry, Any]:
        """Half a kick, half a drift, p ← middle(q, p), half a drift, half a kick; the carry, and what else `middle`
        returned."""


# --- the same questions to any method -------------------------------------------------------------------------------
def status(method: Method, carry: Carry) -> Array | None:
    return method.status(carry) if isinstance(method, CanFail) else None


def failures(method: Method) -> Mapping[int, str]:
    return method.failures if isinstance(method, CanFail) else {}


def explain(method: Method, code: int, mech: Any, q: Any, dt: float) -> str:
    return method.explain(code, mech, q, dt) if isinstance(method, CanFail) else ""


def prepare(method: Method, starts: Sequence[tuple[Any, Any]]) -> Method:
    return method.prepare(starts) if isinstance(method, FindsStructure) else method


def misfits(method: Method, system: Any, q: Any, own_params: bool) -> np.ndarray:
    return method.misfits(system, q, own_params) if isinstance(method, FindsStructure) else np.zeros(len(q), bool)


def linear_solver(method: Method) -> str | None:
    return method.linear_solver if isinstance(method, FindsStructure) else None


def rescale(method: Method, mech: Any, carry: Carry, dt: Array) -> Carry:
    return method.rescale(mech, carry, dt) if isinstance(method, DependsOnStepLength) else carry


def reverse(method: Method, carry: Carry) -> Carry:
    return method.reverse(carry) if isinstance(method, HasHistory) else carry


def for_scalar_code(method: Method, many: bool) -> Method:
    return method.for_scalar_code(many) if isinstance(method, HasScalarForm) else method


def rescued(method: Method, code: int) -> Method | None:
    return method.rescued(code) if isinstance(method, Rescuable) else None


def rescue_warning(method: Method, system: Any, q: Any) -> str:
    return method.rescue_warning(system, q) if isinstance(method, Rescuable) else ""


def warn(method: Method, system: Any, q: Any, dt: float) -> None:
    if isinstance(method, WarnsOfStep):
        method.warn(system, q, dt)


def check_start(method: Method, system: Any, q: Any, p: Any, members: bool = False) -> None:
    if isinstance(method, ChecksStart):
        method.check_start(system, q, p, members)


def with_momentum(method: Method, carry: Carry, p: Any) -> Carry:
    """The carry with another momentum, which is the second entry of a tuple, or the field p."""
    if isinstance(method, ReplacesMomentum):
        return method.with_momentum(carry, p)
    if hasattr(carry, "_replace"):
        return carry._replace(p=p)
    return (carry[0], p, *carry[2:]) if isinstance(carry, tuple) else dataclasses.replace(carry, p=p)


def with_same_choices(method: Method, carry: Carry) -> Method:
    return method.with_same_choices(carry) if isinstance(method, EventDriven) else method


def warn_after_run(method: Method, carry: Carry) -> None:
    if isinstance(method, EventDriven):
        method.warn_after_run(carry)


def events(method: Method, carry: Carry) -> Array:
    return method.events(carry) if isinstance(method, EventDriven) else jnp.zeros((), int)
