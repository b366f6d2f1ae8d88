"""Misspelt keyword arguments are answered by the name that was probably meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar, overload

from ..errors import nearest

P = ParamSpec("P")
R = TypeVar("R")


@overload
def checked_keywords(function: Callable[P, R]) -> Callable[P, R]: ...
@overload
def checked_keywords(*, others: Sequence[str] = (), callee: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def checked_keywords(function=None, *, others=(), callee=""):
    """Decorator: a TypeError for an unknown keyword names the nearest argument, or lists all.

    others: the keywords that a function with **keywords takes besides the arguments of its signature.
    callee: what the user has called, where it is not this function.
    """
    if function is None:
        return functools.partial(_checked, others=others, callee=callee)
    return _checked(function, others, callee)


def _checked(function: Callable[P, R], others: Sequence[str], callee: str) -> Callable[P, R]:
    parameters = inspect.signature(function).parameters.values()
    stated = [x.name for x in parameters if x.kind is not inspect.Parameter.VAR_KEYWORD and x.name != "self"]
    names = [*dict.fromkeys([*stated, *others])]
    callee = callee or function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> R:
        for name in keywords:
            if name not in names:
                known = nearest(name, names) if names else " It has none."
                raise TypeError(f"{callee}() has no argument {name!r}.{known}")
        return function(*arguments, **keywords)

    return called
