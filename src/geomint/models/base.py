"""What a model is: a system with initial data, and the expression that makes it again in another process."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from ..errors import InputError
from ..expressions import evaluate
from ..system import Stated

P = ParamSpec("P")


@dataclasses.dataclass(frozen=True)
class Model:
    """A system with initial data; `dt` and `t_end` are what a first look takes.

    inside:  functions c(q) of the set in which the motion stays, c > 0 in its interior, each a number or an array; the hard
             walls and bodies of a model without a potential for them.
    """

    system: Stated
    q0: np.ndarray
    v0: np.ndarray
    name: str
    description: str
    dt: float = 0.01
    t_end: float = 10.0
    inside: tuple[Callable[..., Any], ...] = ()

    def __repr__(self) -> str:
        return f"<geomint model {self.name}: {self.description}>"


_models: dict[str, Callable[..., Model]] = {}
_systems: dict[str, Stated] = {}
# The largest count that `at_least` accepts.
_most: contextvars.ContextVar[float] = contextvars.ContextVar("most", default=math.inf)


def model(make: Callable[P, Model]) -> Callable[P, Model]:
    """Decorator: registers a model, and records on its system the call that made it, where that can be written down."""

    @functools.wraps(make)
    def recorded(*positional: P.args, **keywords: P.kwargs) -> Model:
        made = make(*positional, **keywords)
        call = inspect.signature(make).bind(*positional, **keywords)
        settings = {name: _literal(x) for name, x in call.arguments.items()}
        written = ", ".join(f"{name}={x}" for name, x in settings.items())
        origin = None if None in settings.values() else f"{make.__name__}({written})"
        system = made.system.with_origin(origin)
        if origin is not None:  # the same functions as last time, so that nothing is compiled again
            while len(_systems) >= 256:
                _systems.pop(next(iter(_systems)))
            system = _systems.setdefault(origin, system)
        return dataclasses.replace(made, system=system)

    _models[make.__name__] = recorded
    return recorded


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


def at_least(name: str, x: int, least: int) -> None:
    """A count that makes sense."""
    if not isinstance(x, int) or x < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {x!r}.")
    if x > _most.get():
        raise InputError(f"{name} is {x!r:.50}, more than there are coordinates ({_most.get()}).")


def all() -> dict[str, Callable[..., Model]]:
    """The models by name."""
    return dict(sorted(_models.items()))


def named(text: str, coordinates: float = math.inf) -> Model:
    """A model from its name or expression: named("fpu"), named("fpu(springs=5)").

    coordinates: how many it has, where that is known: an expression from a file is not to make a larger one.
    """
    token = _most.set(coordinates)
    try:
        return evaluate(text, _models, "model")
    finally:
        _most.reset(token)
