"""Models by name: the checks of their settings, and the expression that makes one again in another process."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import inspect
import math
import typing
from collections.abc import Callable
from typing import Annotated, Any, ParamSpec

import jax
import numpy as np
from jax.core import Tracer

from ..errors import GeomintError, InputError, nearest
from ..methods.expressions import evaluate
from ..methods.model import Model
from ..numerics.cache import BoundedCache
from ..system.checks import Check, bounded, number, one_of, positive, shown, whole
from ..system.system import Stated

P = ParamSpec("P")
# Types of settings, with the check of each; a plain int or float is any whole or finite number.
Positive = Annotated[float, positive]
NotNegative = Annotated[float, bounded(number, least=0.0)]
Seed = Annotated[int, bounded(whole, least=0, most=2**64 - 1)]
Dimension = Annotated[int, one_of(2, 3)]
PAIRS = 10_000  # most bodies where all pairs are listed
ROWS = 10**6  # most bodies where each interacts with its neighbours only
_PLAIN: dict[Any, Check] = {int: whole, float: number}


_models: dict[str, Callable[..., Model]] = {}
_systems: BoundedCache[Stated] = BoundedCache(256)
# The largest count that `at_least` accepts.
_most: contextvars.ContextVar[float] = contextvars.ContextVar("most", default=math.inf)


def model(make: Callable[P, Model]) -> Callable[P, Model]:
    """Decorator: register a model, check its settings by their annotations, and record on its system the call that made
    it (`origin`), from which an archive can make it again. A call with functions as arguments is not recorded."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def recorded(*positional: P.args, **keywords: P.kwargs) -> Model:
        for name in keywords:
            if name not in signature.parameters:
                raise TypeError(f"{make.__name__}() has no argument {name!r}." + nearest(name, signature.parameters))
        call = signature.bind(*positional, **keywords)
        checks = _checks(make)
        for name, x in call.arguments.items():
            call.arguments[name] = checks[name](x, name, make.__name__) if name in checks else x
        made = _made(make, call)
        settings = {name: _literal(x) for name, x in call.arguments.items()}
        written = ", ".join(f"{name}={x}" for name, x in settings.items())
        origin = None if None in settings.values() else f"{make.__name__}({written})"
        system = made.system.with_origin(origin)
        if origin is not None:  # reuse the functions of an equal call: compiled programs are cached by function
            system = _systems.get_or_make(origin, lambda: system)
        return dataclasses.replace(made, system=system)

    _models[make.__name__] = recorded
    return recorded


@functools.cache
def _checks(make: Callable[..., Model]) -> dict[str, Check]:
    """The checks of a model's settings, from their annotations."""
    hints = typing.get_type_hints(make, include_extras=True)
    found = {
        name: hint.__metadata__[0] if hasattr(hint, "__metadata__") else _PLAIN.get(hint)
        for name, hint in hints.items()
    }
    return {name: check for name, check in found.items() if check is not None}


def _made(make: Callable[..., Model], call: inspect.BoundArguments) -> Model:
    """The model. Where some of its numbers are not finite, an error names the settings."""
    call_text = f"{make.__name__}({', '.join(f'{name}={shown(x)}' for name, x in call.arguments.items())})"
    try:
        with np.errstate(all="ignore"):
            made = make(*call.args, **call.kwargs)
    except ArithmeticError as error:
        raise InputError(f"{call_text}: {error}.") from None
    except GeomintError as error:
        raise error if make.__name__ in str(error) else InputError(f"{call_text}: {error}") from None
    numbers = [made.q0, made.v0, made.dt, made.t_end, *jax.tree.leaves(made.system)]
    if any(not np.all(np.isfinite(x)) for x in numbers if not isinstance(x, Tracer)):
        raise InputError(f"{call_text}: some of the model's numbers overflow with these settings.")
    return made


def _literal(x: Any) -> str | None:
    """A number, string, list or array as text that reads back to the same value; None for anything else."""
    if isinstance(x, np.ndarray):
        x = x.tolist()
    if isinstance(x, (bool, int, float, str, type(None))):
        return repr(x)
    if isinstance(x, (list, tuple)):
        parts = [_literal(y) for y in x]
        return None if None in parts else "[" + ", ".join(map(str, parts)) + "]"
    return None


def count(least: int, most: int = ROWS) -> Check:
    """The check of a number of bodies."""
    check = bounded(whole, least=least, most=most)

    def checked(x: Any, name: str, callee: str) -> int:
        n = check(x, name, callee)
        if n > _most.get():
            raise InputError(f"{callee}({name}={n}): more than there are coordinates ({_most.get()}).")
        return n

    return checked


def all() -> dict[str, Callable[..., Model]]:
    """The models by name."""
    return dict(sorted(_models.items()))


def named(text: str, coordinates: float = math.inf) -> Model:
    """A model from its name or expression: named("fpu"), named("fpu(springs=5)").

    coordinates: the number of coordinates, where it is known. An expression from a file can't make a larger model.
    """
    token = _most.set(coordinates)
    try:
        return evaluate(text, _models, "model")
    finally:
        _most.reset(token)
