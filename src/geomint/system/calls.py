"""Calls of the user's functions by the names of their arguments.

A function takes q first (a Lagrangian takes q and v) and, by name, any of the other arguments that it needs: V(q),
V(q, t), V(q, params), f(q, v, t, params). An argument of another name is params where the system has them. Only forces
and watched functions may use other names for all arguments, in the order (q, v, t) and (q, p).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.errors import ConcretizationTypeError, TracerArrayConversionError, TracerBoolConversionError

from ..errors import GeomintError, InputError
from ..numerics.module import Module
from . import captured

# Exceptions of Python, numpy and JAX that a mistake in a user's function causes.
FAILURES = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, NotImplementedError, AssertionError)


class Given(NamedTuple):
    """The arguments that a function of one kind may take, besides params."""

    leading: tuple[str, ...]  # always given, whatever the function calls them
    named: tuple[str, ...]  # given by name
    in_order: tuple[str, ...] = ()  # of these, what arguments of other names receive
    hidden: tuple[str, ...] = ()  # given by name too, but not mentioned in errors, since few functions need it


_OF_POSITION = Given(("q",), ("t",), hidden=("auxiliary",))
KINDS = {
    "potential": _OF_POSITION,
    "fast": _OF_POSITION,
    "constraint": _OF_POSITION,
    "overrides": _OF_POSITION,
    "magnetic_field": _OF_POSITION,
    "lagrangian": Given(("q", "v"), ("t",)),
    "force": Given(("q",), ("v", "t"), ("v", "t")),
    "watch": Given(("q",), ("p", "v", "t"), ("p",)),
    "until": Given(("q",), ("p", "v", "t"), ("p",)),
    "f": Given(("q",), ("p", "v", "t"), ("p",)),
    "reduce": Given(("q",), ("p",), ("p",)),
}
_ANY = Given(("q",), ())
_WITHOUT_AUXILIARY = (
    ". Its argument `auxiliary` is None here: so it is outside a run, as for the energy at q0, and where "
    "System(auxiliary=...) is not given. Return the same energy without neighbour lists then, as a gm.md.PairPotential "
    "does."
)


class Plan(NamedTuple):
    """How a function is called: which argument goes to which of its places."""

    positional: tuple[str, ...]
    keywords: tuple[tuple[str, str], ...] = ()  # (name in the function, argument)

    @property
    def arguments(self) -> set[str]:
        return {*self.positional, *(argument for _, argument in self.keywords)}


class Function(Module):
    """A plain Python function as a part of a pytree: compile-time, compared by identity and by what it reads from
    outside."""

    function: Callable = eqx.field(static=True)
    outside: int = eqx.field(static=True)

    @classmethod
    def of(cls, function: Callable) -> Function:
        return cls(function, captured.digest(function))

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.function(*arguments, **keywords)

    @property
    def curvature(self) -> Callable | None:
        """Bounds of its second derivative along a line, where the function offers them (see EnergyStepping)."""
        return getattr(self.function, "curvature", None)

    @property
    def explain(self) -> Callable | None:
        """What is wrong with a position, where the function can tell (see PairPotential)."""
        return getattr(self.function, "explain", None)


def as_now(stated: Any) -> Any:
    """A function, or an object that contains some: another one where what they read from outside has changed."""
    is_function = lambda x: isinstance(x, Function)
    held = [x for x in jax.tree.leaves(stated, is_leaf=is_function) if is_function(x)]
    if all(x.outside == captured.digest(x.function) for x in held):
        return stated
    return jax.tree.map(lambda x: Function.of(x.function) if is_function(x) else x, stated, is_leaf=is_function)


class AtTime(Module):
    """A function whose time is held."""

    function: Any
    t: Any

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.function(*arguments, **keywords)


class _Misfit(Exception):
    """Why a signature does not fit."""


def kind_of(name: str) -> Given:
    """What a function of this name may take; watch['x'] is of the kind watch."""
    return KINDS.get(name.partition("[")[0].partition(":")[0], _ANY)


def takes(name: str, function: Any, argument: str, has_params: bool = True) -> bool:
    """Whether the function is called with this argument. A signature that does not fit takes nothing: its error comes
    when it is called."""
    if function is None or (isinstance(function, AtTime) and argument == "t"):
        return False
    try:
        return argument in _plan(kind_of(name), _parameters(function), has_params).arguments
    except _Misfit:
        return False


def call_function(name: str, function: Any, given: Mapping[str, Any], params: Any = None) -> Any:
    """The function with the arguments that it takes; a mistake in it is reported by its name."""
    kind, has_params = kind_of(name), params is not None
    try:
        plan = _plan(kind, _parameters(function), has_params)
    except _Misfit as misfit:
        raise InputError(_wrong_signature(name, kind, function, has_params, misfit)) from None
    values = {
        "auxiliary": None,
        **given,
        "params": params,
        **({"t": function.t} if isinstance(function, AtTime) else {}),
    }
    if "t" in plan.arguments and "t" not in values:
        raise InputError(
            f"{name} has the argument t, but no function of the system that gives the energy, a force or the "
            "constraint has it: leave it out, or write the function it belongs to with t."
        )
    try:
        return function(*(values[x] for x in plan.positional), **{place: values[x] for place, x in plan.keywords})
    except FAILURES as error:
        if isinstance(error, GeomintError) and not isinstance(function, Function):
            raise  # a constraint of geomint names itself
        used = {key: x for key, x in given.items() if key in plan.arguments - {"t", "auxiliary"}}
        missing = "auxiliary" in plan.arguments and values["auxiliary"] is None and "None" in str(error)
        raise InputError(_explained(name, used, error) + (_WITHOUT_AUXILIARY if missing else "")) from error


def _bare(function: Any) -> Any:
    """What the user stated."""
    return _bare(function.function) if isinstance(function, (Function, AtTime)) else function


def _parameters(function: Any) -> tuple[inspect.Parameter, ...] | None:
    """The parameters of a function; None where Python does not know them, as for some builtins."""
    function = _bare(function)
    try:
        return _inspected(function)
    except TypeError:  # not hashable: a module that holds arrays
        return _inspected.__wrapped__(function)


@functools.lru_cache(maxsize=512)
def _inspected(function: Any) -> tuple[inspect.Parameter, ...] | None:
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _plan(kind: Given, parameters: tuple[inspect.Parameter, ...] | None, has_params: bool) -> Plan:
    """The places of the arguments; raises _Misfit where a place has none, or q has no place."""
    everything = (*kind.leading, *kind.in_order, *("params",) * has_params)
    if parameters is None:
        return Plan(everything)
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind == p.VAR_POSITIONAL for p in parameters) and len(places) <= len(everything):
        return Plan(everything)
    count = len(kind.leading)
    if len(places) < count:
        raise _Misfit(f"write a function of ({', '.join(kind.leading)}), or of more of these arguments")
    known = {*kind.leading, *kind.named, "params"}
    for place, received in zip(places, kind.leading, strict=False):
        if place.name != received and place.name in known:
            raise _Misfit(
                f"its argument {place.name} would receive {received}, which comes first; write {received} there"
            )
    rest = [*places[count:], *(p for p in parameters if p.kind == p.KEYWORD_ONLY)]
    found = {
        p.name: p.name for p in rest if p.name in (*kind.named, *kind.hidden) or (p.name == "params" and has_params)
    }
    found |= _other_names(kind, [p for p in rest if p.name not in found], set(found), has_params)
    positional, keywords = list(kind.leading), []
    for i, p in enumerate(places[count:], count):
        if p.name in found and len(positional) == i:
            positional.append(found.pop(p.name))
    keywords = [(p.name, found[p.name]) for p in rest if p.name in found]
    return Plan(tuple(positional), tuple(keywords))


def _other_names(kind: Given, others: list[inspect.Parameter], named: set[str], has_params: bool) -> dict[str, str]:
    """What arguments of other names receive: params, or the arguments in order."""
    required = [p.name for p in others if p.default is p.empty]
    in_order = [x for x in kind.in_order if x not in named]
    left = has_params and "params" not in named
    if required and len(required) == len(in_order) + left:
        return dict(zip(required, [*in_order, *["params"] * left], strict=True))
    if left and len(required) == 1:
        return {required[0]: "params"}
    if required:
        raise _Misfit(_too_many(required, has_params))
    if left and others:  # an argument with a default
        return {others[0].name: "params"}
    return {}


def _too_many(required: list[str], has_params: bool) -> str:
    listed = " and ".join(required)
    if not has_params and len(required) == 1:
        return (
            f"{listed} is none of these, and the system has no params. Leave it out, or give params=... to the system"
        )
    are = "are none" if len(required) > 1 else "is none"
    return f"{listed} {are} of these. Write a function of the arguments listed, by these names"


def _wrong_signature(name: str, kind: Given, function: Any, has_params: bool, misfit: _Misfit) -> str:
    """What the function is called with, what it takes, and what to do."""
    more = [*kind.named, *["params"] * has_params]
    by_name = f", and by name with ({', '.join(more)})" if more else ""
    signature = inspect.signature(_bare(function))
    return f"{name} is called with ({', '.join(kind.leading)}){by_name}; its signature is {signature}: {misfit}."


def _explained(name: str, given: Mapping[str, Any], error: Exception) -> str:
    """Why a call of a user's function failed inside."""
    first = (str(error).splitlines() or [""])[0]
    if isinstance(error, (TracerArrayConversionError, TracerBoolConversionError, ConcretizationTypeError)):
        return (
            f"{name} uses numpy, math, float() or `if` on its arguments; write it with jax.numpy "
            f"(jnp.sin for np.sin, jnp.where for if). JAX says: {first}"
        )
    shapes = ", ".join(f"{role} of shape {np.shape(x)}" for role, x in given.items())
    return f"{name} raised {type(error).__name__} for {shapes}: {first}"
