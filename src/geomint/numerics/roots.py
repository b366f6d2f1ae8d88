"""A root of a function between two points where its signs differ, as JAX operations that every engine covers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

MOST = 100  # evaluations; bisection alone needs 53


class _Bracket(NamedTuple):
    """The newest point 1, point 2 on the other side of the root, and the point 3 before it."""

    x1: Any
    f1: Any
    x2: Any
    f2: Any
    x3: Any
    f3: Any
    share: Any  # of the way from point 1 to point 2, where the next point is
    count: Any


def root(function: Callable[[Array], Array], low: Array, high: Array, f_low: Array, f_high: Array) -> Array:
    """x between low and high with function(x) = 0, to rounding of x: the better end of the last bracket.

    Inverse quadratic interpolation where the three last points admit it, and bisection otherwise (Chandrupatla, Adv.
    Eng. Softw. 28 (1997) 145). A function that is not finite somewhere is bisected.
    """
    eps = jnp.finfo(jnp.asarray(low).dtype).eps

    def limit(s: _Bracket) -> Array:
        best = jnp.where(jnp.abs(s.f1) < jnp.abs(s.f2), s.x1, s.x2)
        return 2 * eps * jnp.abs(best) / jnp.maximum(jnp.abs(s.x2 - s.x1), 1e-300)

    def searching(s: _Bracket) -> Array:
        return (limit(s) < 0.5) & (s.f1 != 0) & (s.f2 != 0) & (s.count < MOST)

    def closer(s: _Bracket) -> _Bracket:
        x = s.x1 + s.share * (s.x2 - s.x1)
        f = function(x)
        same = (f > 0) == (s.f1 > 0)  # as point 1: then point 2 stays on the other side
        x3, f3 = jnp.where(same, s.x1, s.x2), jnp.where(same, s.f1, s.f2)
        x2, f2 = jnp.where(same, s.x2, s.x1), jnp.where(same, s.f2, s.f1)
        new = _Bracket(x, f, x2, f2, x3, f3, s.share, s.count + 1)
        xi, phi = (x - x2) / (x3 - x2), (f - f2) / (f3 - f2)
        inverse = (f / (f2 - f)) * (f3 / (f2 - f3)) + ((x3 - x) / (x2 - x)) * (f / (f3 - f)) * (f2 / (f3 - f2))
        admitted = (phi * phi < xi) & ((1 - phi) * (1 - phi) < 1 - xi)
        least = limit(new)
        share = jnp.where(admitted, jnp.clip(inverse, least, 1 - least), 0.5)
        return new._replace(share=share)

    half = jnp.full_like(low, 0.5)
    start = _Bracket(low, f_low, high, f_high, high, f_high, half, jnp.zeros((), int))
    s = jax.lax.while_loop(searching, closer, start)
    return jnp.where(jnp.abs(s.f1) < jnp.abs(s.f2), s.x1, s.x2)
