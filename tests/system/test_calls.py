"""Functions are called with the arguments that they name."""

from __future__ import annotations

import functools

import equinox as eqx
import jax.numpy as jnp
import pytest

import geomint as gm
from geomint.system.calls import AtTime, Function, call_function, takes

GIVEN = {"q": "q", "v": "v", "p": "p", "t": "t"}


class Held(eqx.Module):
    """A callable with an array, which is not hashable."""

    array: object

    def __call__(self, q, t):
        return q, t


@pytest.mark.parametrize(
    ("name", "function", "params", "seen"),
    [
        ("potential", lambda q: (q,), None, ("q",)),
        ("potential", lambda x: (x,), "k", ("q",)),
        ("potential", lambda q, t: (q, t), None, ("q", "t")),
        ("potential", lambda q, k: (q, k), "k", ("q", "k")),
        ("potential", lambda q, params, t: (q, params, t), "k", ("q", "k", "t")),
        ("potential", lambda q, *, t: (q, t), None, ("q", "t")),
        ("potential", lambda q, k=3.0: (q, k), None, ("q", 3.0)),
        ("potential", lambda q, k=3.0, t=0: (q, k, t), None, ("q", 3.0, "t")),
        ("potential", lambda q, k=3.0: (q, k), "k", ("q", "k")),
        ("potential", lambda *a: a, "k", ("q", "k")),
        ("potential", functools.partial(lambda a, q, t: (a, q, t), 1.0), None, (1.0, "q", "t")),
        ("constraint", Held(jnp.ones(2)), None, ("q", "t")),
        ("lagrangian", lambda x, w: (x, w), None, ("q", "v")),
        ("lagrangian", lambda q, v, t, k: (q, v, t, k), "k", ("q", "v", "t", "k")),
        ("force", lambda q: (q,), None, ("q",)),
        ("force", lambda q, t: (q, t), None, ("q", "t")),
        ("force", lambda q, k: (q, k), "k", ("q", "k")),
        ("force", lambda q, t, v: (q, t, v), "k", ("q", "t", "v")),
        ("force", lambda x, w, s: (x, w, s), None, ("q", "v", "t")),
        ("force", lambda x, w, s, k: (x, w, s, k), "k", ("q", "v", "t", "k")),
        ("watch['x']", lambda q, y: (q, y), None, ("q", "p")),
        ("watch['x']", lambda q, v, t: (q, v, t), None, ("q", "v", "t")),
        ("reduce: the function", lambda q, y, k: (q, y, k), "k", ("q", "p", "k")),
    ],
)
def test_arguments_by_name(name, function, params, seen):
    assert call_function(name, function, GIVEN, params) == seen
    wrapped = function if isinstance(function, Held) else Function.of(function)
    assert call_function(name, wrapped, GIVEN, params) == seen
    assert takes(name, wrapped, "t", params is not None) == ("t" in seen)


def test_a_held_time_is_given_in_place_of_that_of_the_run():
    held = AtTime(Function.of(lambda q, t: (q, t)), 7.0)
    assert call_function("potential", held, {"q": "q"}) == ("q", 7.0)
    assert not takes("potential", held, "t")


def test_what_a_system_says_of_its_time():
    still = gm.System(lambda q: jnp.sum(q), force=lambda q, v: -v)
    assert still.driven
    assert not still.depends_on_time
    moved = gm.System(lambda q: jnp.sum(q), constraint=lambda q, t: q - t)
    assert moved.depends_on_time
    assert not moved.at_time(2.0).depends_on_time
    assert not gm.System(lambda q: jnp.sum(q), watch={"x": lambda q, t: t}).driven
