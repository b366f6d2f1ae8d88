"""Roots between two points, against known ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from geomint.numerics.roots import root


@pytest.mark.parametrize(
    ("function", "low", "high", "expected"),
    [
        (lambda x: jnp.cos(x) - x, 0.0, 1.0, 0.7390851332151607),
        (lambda x: x**9 - 1e-9, 0.0, 1.0, 0.1),  # flat: the secant alone would crawl
        (lambda x: jnp.exp(20 * x) - 5.0, 0.0, 1.0, np.log(5.0) / 20),
        (lambda x: jnp.where(x < 0.3, -1.0, 2.0), 0.0, 1.0, 0.3),  # a jump: bisection
        (lambda x: 3.0 - 4.0 * x, 0.0, 1.0, 0.75),
    ],
)
def test_known_roots(function, low, high, expected):
    count = []

    def counted(x):
        jax.debug.callback(lambda: count.append(1))
        return function(x)

    ends = jnp.asarray(low), jnp.asarray(high)
    with jax.disable_jit(False):
        found = jax.jit(lambda a, b: root(counted, a, b, function(a), function(b)))(*ends)
    assert float(found) == pytest.approx(expected, abs=4e-16 * max(1.0, abs(high)))
    jax.effects_barrier()
    assert len(count) <= 60


def test_an_end_that_is_a_root_is_returned_at_once():
    assert float(root(lambda x: x - 1.0, jnp.zeros(()), jnp.ones(()), -jnp.ones(()), jnp.zeros(()))) == 1.0
