"""Degrees of polynomials, read from programs: a finite one is a proof."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from geomint.numerics.polynomials import degree

I, J = np.array([0, 1]), np.array([1, 2])
KNOWN = {
    "constant": (0, lambda q: 3.0 + 0.0 * jnp.sum(jnp.ones(2))),
    "linear": (1, lambda q: q[0] - 2.0 * q[1] + q.sum() / 3.0),
    "squares": (2, lambda q: 50.0 * jnp.sum((q - 3.0) ** 2) + 2.0 * q[0]),
    "float power": (2, lambda q: jnp.sum(q**2.0)),
    "bonds": (2, lambda q: jnp.sum((q[I] - q[J]) ** 2)),
    "ring": (2, lambda q: jnp.sum((q - jnp.roll(q, 1)) ** 2)),
    "differences": (2, lambda q: jnp.sum(jnp.diff(q) ** 2)),
    "matrix": (2, lambda q: q @ (jnp.ones((3, 3)) @ q)),
    "einsum": (2, lambda q: jnp.einsum("i,ij,j->", q, jnp.ones((3, 3)), q)),
    "variance": (2, lambda q: jnp.var(q)),
    "norm squared": (2, lambda q: 3.0 * jnp.linalg.norm(q) ** 2),
    "size squared": (2, lambda q: jnp.sum(jnp.abs(q) ** 2)),
    "mask": (2, lambda q: jnp.sum(jnp.where(np.array([True, False, True]), q, q**2))),
    "scatter": (2, lambda q: jnp.sum(jnp.zeros(3).at[1].add(q[0]) ** 2)),
    "scan": (2, lambda q: jax.lax.scan(lambda c, y: (c + y**2, None), 0.0, q)[0]),
    "loop": (2, lambda q: jax.lax.fori_loop(0, 3, lambda i, s: s + q[i] ** 2, 0.0)),
    "jit and vmap": (2, lambda q: jnp.sum(jax.jit(jax.vmap(lambda a: a * a))(q))),
    "to the power 0": (2, lambda q: jnp.sum(q**2 + jnp.cos(q) ** 0 + jnp.cos(q) ** 0.0 + jnp.linalg.norm(q) ** 0)),
    "cubic": (3, lambda q: q[0] * q[1] * q[2]),
    "quartic": (4, lambda q: jnp.sum(q**2) + 1e-3 * jnp.sum(q**4)),
}
UNKNOWN = {
    "spring with a length": lambda q: (jnp.linalg.norm(q) - 1.0) ** 2,
    "where": lambda q: jnp.sum(jnp.where(q > 3.0, q, q**2)),
    "cube of a size": lambda q: jnp.sum(jnp.abs(q) ** 3),
    "maximum": lambda q: jnp.max(q),
    "clipped": lambda q: jnp.sum(jnp.clip(q, -5.0, 5.0) ** 2),
    "cosine": lambda q: jnp.sum(jnp.cos(q)),
    "reciprocal": lambda q: 1.0 / q[0],
    "growing": lambda q: jax.lax.scan(lambda c, y: (c * y, None), 1.0, q)[0],
    "rounded": lambda q: q.astype(int)[0] * q[1],
    "index from q": lambda q: q[jnp.argmax(q)],
    "while": lambda q: jax.lax.while_loop(lambda x: x < 10.0, lambda x: 2.0 * x, q[0]),
    "branch by q": lambda q: jax.lax.cond(q[0] > 1.0, lambda x: x[0], lambda x: x[1], q),
    "power 0 of something unknown": lambda q: jnp.sum(50.0 * q**2 + jnp.cos(q) ** 0 * jnp.sin(q) ** 2),
    "power 0.0 of something unknown": lambda q: jnp.sum(jnp.cos(q) ** 0.0 * jnp.sin(q) + q),
    "infinite power": lambda q: jnp.sum(jax.lax.pow(q, np.inf)),
    "power nan": lambda q: jnp.sum(jax.lax.pow(q, np.nan)),
    "product of norms": lambda q: jnp.linalg.norm(q) * jnp.linalg.norm(q - 1.0),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known(name):
    wanted, function = KNOWN[name]
    assert degree(function, jnp.ones(3)) == wanted


@pytest.mark.parametrize("name", UNKNOWN)
def test_nothing_is_claimed(name):
    assert degree(UNKNOWN[name], jnp.ones(3)) == np.inf


def test_only_the_first_argument_counts():
    assert degree(lambda q, k: k["a"] ** 4 * q @ q + jnp.exp(k["b"]), jnp.ones(3), {"a": 2.0, "b": jnp.ones(())}) == 2
