"""Changes of sign: which count, and none twice."""

import jax.numpy as jnp
import pytest

from geomint.methods.crossings import crossed


@pytest.mark.parametrize(
    ("values", "up", "down"),
    [
        ((-1.0, 1.0, -1.0, 1.0), 2, 1),
        ((-1.0, 0.0, 1.0), 1, 0),  # ends at zero once, and does not begin there again
        ((0.0, 1.0, -1.0), 0, 1),  # a start on the section is no crossing
        ((1.0, 0.0, -1.0), 0, 1),
        ((-1.0, float("nan"), 1.0), 0, 0),
    ],
)
def test_changes_of_sign(values, up, down):
    x = jnp.asarray(values)
    count = lambda direction: int(crossed(x[:-1], x[1:], direction).sum())
    assert (count(1), count(-1), count(0)) == (up, down, up + down)
