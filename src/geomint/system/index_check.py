"""Indices out of range in the user's functions, found before a run.

JAX clamps an index that is out of range, or drops what is written there, without a message. This module traces
potential, fast, constraint, lagrangian, force, watch and overrides at the initial state and checks their indices
(`numerics.indices`), computing only what indices depend on. An index that follows from q is therefore checked at q0
only.

Some indices out of range are intended: those of gathers with mode="clip" or mode="fill" and those inside functions of
JAX itself are not checked. A scatter with mode="drop" can't be told from any other in a jaxpr, and is refused. jnp.take
fills with NaN by default, which can't be told from mode="fill": such gathers are checked by check_filled only, where
the energy at the start is not finite.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from ..errors import InputError
from ..numerics.cache import BoundedCache
from ..numerics.indices import UNKNOWN, IndexDependence, IndexInterpreter, OutOfRange, as_known
from .system import FUNCTIONS, Stated


class Pending(NamedTuple):
    """A function with indices that depend on numbers of the call."""

    name: str
    program: Any
    dependence: IndexDependence


class Checked(NamedTuple):
    """A system that was checked before."""

    pending: list[Pending]  # the functions to check at each call
    leaves: list[Any]  # the numbers of the system for which they were checked last
    by_state: list[bool]  # for these numbers, which functions also have indices that depend on q or p


_checked_systems: BoundedCache[Checked] = BoundedCache(256)


def check_indices(system: Stated, q: Any, p: Any) -> None:
    """An error where a function of the system reads or writes out of range at (q, p). Indices that follow from traced
    values, from the velocity or from the time are left out."""
    leaves, structure = jax.tree.flatten(system)
    key = structure, np.shape(q), *((np.shape(x), getattr(x, "dtype", type(x))) for x in leaves)
    known = _checked_systems.get(key)
    if known is not None and all(x is y for x, y in zip(leaves, known.leaves, strict=True)):
        pending, by_state = known.pending, known.by_state
    else:
        pending = _pending(system, structure, leaves, q, p) if known is None else known.pending
        # All are checked before anything is stored: an error leaves what is known of earlier numbers as it was.
        by_state = [not _check(each, [*map(as_known, leaves), UNKNOWN, UNKNOWN]) for each in pending]
        if not any(isinstance(x, Tracer) for x in (*leaves, *(c for each in pending for c in each.program.consts))):
            _checked_systems.set(key, Checked(pending, leaves, by_state))
    for each, again in zip(pending, by_state, strict=True):
        if again:
            known_p = as_known(p) if each.name.startswith("watch") else UNKNOWN
            _check(each, [*map(as_known, leaves), as_known(q), known_p])


def check_function(system: Stated, name: str, function: Callable[..., Any], q: Any, p: Any) -> None:
    """Raise InputError where a function of (q, p) that the system does not hold reads an index out of range."""
    call = lambda q, p, t: jax.tree.leaves(system.call(function, q, p, v=p, t=t, name=name))
    program = jax.make_jaxpr(lambda q, p, t: [x for x in call(q, p, t) if hasattr(x, "dtype")])(q, p, 0.0)
    _check(Pending(name, program, IndexDependence()), [as_known(q), as_known(p)])


def check_filled(system: Stated, q: Any, p: Any) -> None:
    """The same for gathers that fill with NaN, as jnp.take does. To be called only where a result is not finite: the
    function may mask what they fill."""
    leaves, structure = jax.tree.flatten(system)
    for name, f in _functions(system, structure).items():
        pending = Pending(name, jax.make_jaxpr(f)(*leaves, q, p, 0.0), IndexDependence(filled=True))
        known_p = as_known(p) if name.startswith("watch") else UNKNOWN
        _check(pending, [*map(as_known, leaves), as_known(q), known_p], "JAX reads NaN there; correct the index.")


def _pending(system: Stated, structure: Any, leaves: list[Any], q: Any, p: Any) -> list[Pending]:
    """The functions of a system, without those whose indices are constants and in range."""
    traced = [
        Pending(name, jax.make_jaxpr(f)(*leaves, q, p, 0.0), IndexDependence())
        for name, f in _functions(system, structure).items()
    ]
    return [each for each in traced if not _check(each, [UNKNOWN] * (len(leaves) + 2))]


CLAMPED = "JAX would clamp it, or drop what is written there; correct the index."


def _check(pending: Pending, inputs: list[Any], consequence: str = CLAMPED) -> bool:
    """Whether the check is complete for all other values of the inputs; an error where an index is out of range."""
    interpreter = IndexInterpreter(pending.dependence)
    try:
        interpreter.check_program(pending.program, [*inputs, UNKNOWN])
    except OutOfRange as found:
        raise InputError(f"{pending.name} uses {found}. {consequence}") from None
    return interpreter.complete


def _functions(system: Stated, structure: Any) -> dict[str, Callable]:
    """The user's functions by name, each as a function of the leaves of the system, q, p and t. Velocities have the
    shape of p."""
    stated = {name: getattr(system, name, None) for name in FUNCTIONS}
    pick: dict[str, Callable] = {
        name: operator.attrgetter(name) for name, function in stated.items() if function is not None
    }
    for group in ("overrides", "watch"):
        for name in getattr(system, group, {}):
            pick[f"{group}[{name!r}]"] = lambda s, group=group, name=name: getattr(s, group)[name]

    def called(name: str, find: Callable) -> Callable:
        def function(*inputs: Any) -> Any:
            whole, (q, p, t) = jax.tree.unflatten(structure, inputs[:-3]), inputs[-3:]
            found = jax.tree.leaves(whole.call(find(whole), q, p, v=p, t=t, name=name))
            return [x for x in found if hasattr(x, "dtype")]  # anything else is refused when the run begins

        return function

    return {name: called(name, find) for name, find in pick.items()}
