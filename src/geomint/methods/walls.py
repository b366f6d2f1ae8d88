"""Where the motion of energy-stepping may go: conditions c(q) ≥ 0 and sets without collisions, EnergyStepping(inside=).

A condition is a smooth function, positive inside, and the search of the method finds where it vanishes along a flight.
A set without collisions has a search of its own for the time of the first impact along a straight line.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.intervals import derivatives, supported
from ..system.calls import call_function
from ..system.checks import function
from ..system.mechanics import Mechanics, real_array


class Impact(NamedTuple):
    """The first impact along a straight line."""

    time: Array  # infinite where there is none
    what: Any  # arrays of integers that say what meets; their shapes are fixed


class Collisions(abc.ABC):
    """A set of positions without collisions, for EnergyStepping(inside=...): what is hit is reflected elastically.

    A subclass is compared and hashed by identity, and its arrays are constants of the compiled program.
    """

    reach: float  # the longest displacement along which an impact is searched at a time
    at_once: int = 0  # how many impacts may happen at one time, beyond those that any motion may have

    @abc.abstractmethod
    def first_impact(self, q: Array, v: Array, start: Array, stop: Array) -> Impact:
        """The first impact along q + t v for t in [start, stop]; of what separates there is none."""

    @abc.abstractmethod
    def gap(self, q: Array, what: Any) -> Array:
        """A smooth function that vanishes where `what` meets. Its gradient is the direction of the impulse, so that a
        function that is invariant under translations and rotations conserves both momenta."""

    @abc.abstractmethod
    def problem(self, q: Any) -> str:
        """Why the set does not contain the position q, which has numbers; "" where it does."""

    def __call__(self, q: Array) -> Array:
        raise TypeError(f"{type(self).__name__} is not a function c(q); it belongs into EnergyStepping(inside=[...]).")


class Inside(NamedTuple):
    """The entries of EnergyStepping(inside=...)."""

    conditions: tuple[Callable[[Array], Array], ...]
    collisions: Collisions | None

    @property
    def at_once(self) -> int:
        """How many impacts may happen at one time."""
        return 0 if self.collisions is None else self.collisions.at_once

    @classmethod
    def of(cls, inside: tuple[Any, ...]) -> Inside:
        sets = [c for c in inside if isinstance(c, Collisions)]
        return cls(tuple(c for c in inside if not isinstance(c, Collisions)), sets[0] if sets else None)

    def values(self, q: Array) -> Array:
        """All c(q), in one array."""
        return jnp.concatenate(
            [jnp.zeros(0, q.dtype), *(jnp.ravel(_wall(i, c, q)) for i, c in enumerate(self.conditions))]
        )

    def without_ranges(self, mech: Mechanics, q: Any, p: Any, with_potential: bool) -> str:
        """Why ranges of the second derivatives along a line can't be derived, of the conditions and perhaps of the
        potential; "" where they can."""
        both = lambda x: jnp.append(self.values(x), mech.potential(x))
        along = both if with_potential else self.values
        return supported(derivatives(along, jnp.asarray(q), jnp.asarray(p)), 0.0) or ""

    def check_start(self, q: np.ndarray, whose: Callable[[Any], str]) -> None:
        """That all starts (members, …) are inside. whose: text for the first of some bad members."""
        for i, c in enumerate(self.conditions):
            least = np.asarray(jax.vmap(lambda x, i=i, c=c: jnp.min(_wall(i, c, x), initial=jnp.inf))(jnp.asarray(q)))
            if not np.all(least >= 0):
                raise InputError(
                    f"EnergyStepping(inside=...): the start{whose(~(least >= 0))} lies outside: function {i} is "
                    f"{np.min(least):.3g} at q0, and must not be negative there."
                )
        if self.collisions is not None:
            for i, x in enumerate(q):
                if problem := self.collisions.problem(x):
                    raise InputError(f"EnergyStepping(inside=...): the start{whose(np.arange(len(q)) == i)}: {problem}")


def checked_inside(inside: Any) -> tuple[Any, ...]:
    """The setting `inside`: functions and at most one set without collisions."""
    listed = tuple(inside) if isinstance(inside, Sequence) else (inside,)
    if sum(isinstance(c, Collisions) for c in listed) > 1:
        raise InputError(
            "EnergyStepping(inside=...) takes one set without collisions: state all bodies and obstacles in one."
        )
    for c in listed:
        if place := getattr(c, "is_energy", None):
            raise InputError(
                f"EnergyStepping(inside=...): {type(c).__name__} is an energy, not a condition c(q): write {place}."
            )
    return tuple(function(c, "inside", "EnergyStepping") for c in listed)


def _wall(i: int, c: Callable[[Array], Array], q: Array) -> Array:
    """c(q) of the i-th function of `inside`."""
    name = f"EnergyStepping(inside=...): function {i} of inside"
    return real_array(name, call_function(name, c, {"q": q})).astype(q.dtype)
