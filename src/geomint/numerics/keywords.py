"""Misspelt keyword arguments are answered by the name that was probably meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..errors import nearest

P = ParamSpec("P")
R = TypeVar("R")


def checked_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: a TypeError for an unknown keyword names the nearest argument, or lists all."""
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    callee = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> R:
        for name in keywords:
            if name not in names:
                raise TypeError(f"{callee}() has no argument {name!r}." + nearest(name, names))
        return function(*arguments, **keywords)

    return called
