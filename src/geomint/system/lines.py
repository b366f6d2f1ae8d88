"""Potentials restricted to a straight line, φ(t) = V(q + t v), for methods whose motion is straight between events.

A potential may have a method `on_line(q, v)` that returns a `Line`: numbers from which φ and its derivatives are
computed for less than V itself. Other potentials are evaluated at q + t v.
"""

from __future__ import annotations

import abc
import functools
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.module import Module


class Line(Module):
    """A potential along a straight line."""

    @abc.abstractmethod
    def derivatives(self, t: Array, order: int) -> list[Array]:
        """φ(t), φ'(t), … up to the given order."""


class SumOfLines(Line):
    """The potential along a line of several parts."""

    parts: tuple[Line, ...]

    def derivatives(self, t: Array, order: int) -> list[Array]:
        each = [part.derivatives(t, order) for part in self.parts]
        return [functools.reduce(jnp.add, x) for x in zip(*each, strict=True)]


def on_line(system: Any, q: Array, v: Array) -> Line | None:
    """The whole potential of a system along q + t v; None where a part of it has no such form."""
    parts = [x for x in (system.potential, system.fast) if x is not None]
    if not parts or not all(hasattr(x, "on_line") for x in parts):
        return None
    lines = tuple(x.on_line(q, v) for x in parts)
    return lines[0] if len(lines) == 1 else SumOfLines(lines)
