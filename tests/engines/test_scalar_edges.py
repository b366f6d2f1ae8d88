"""Rules of scalar programs at their edges: what a rule may get wrong in silence."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines.pallas import engine as kernel


def _strange(q, k):
    """Something of everything that may stand in a potential."""
    x = jnp.concatenate([q, q[::-1] ** 3, jnp.stack([jnp.sum(q), jnp.prod(q)])])
    rotated = jnp.roll(x.reshape(2, -1), 1, axis=1) @ jnp.linspace(0.1, 1.0, x.size // 2)
    branch = jax.lax.cond(q[0] > 0.2, lambda y: jnp.sum(jnp.sin(y)), lambda y: jnp.sum(jnp.tanh(y) ** 2), x)
    summed, each = jax.lax.scan(lambda c, y: (0.9 * c + y, jnp.exp(-(c**2)) * y), 0.0, x)
    iterated = jax.lax.fori_loop(0, 5, lambda i, y: y - 0.1 * (y**3 + x[i]), 0.3)
    picked = jax.lax.dynamic_slice(x, (jnp.argmax(jnp.abs(q)),), (2,))
    put = jnp.zeros(4).at[jnp.array([0, 2, 2])].add(q).at[1].set(q[0])
    spread = (
        jnp.maximum(q[0], k["floor"])
        + jnp.minimum(q[1], 0.4)
        + jnp.where(q[2] < 0, jnp.abs(q[2]), jnp.arctan2(q[2], 1.3))
        + jnp.log1p(q[0] ** 2)
        + (1.2 + q[1]) ** 1.7
    )
    matrix = jnp.eye(3) + 0.1 * jnp.outer(q, q)
    solved = q @ jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), jnp.flip(q))
    parts = (
        jnp.sum(rotated),
        branch,
        summed,
        jnp.sum(each**2),
        iterated,
        jnp.sum(picked**2),
        jnp.sum(put**2),
        spread,
        solved,
        jnp.sum(jnp.cumsum(q) ** 2),
    )
    return 0.05 * sum(parts) + jnp.sum(q**2)


def _halvings(q, size, limit):
    """What a loop makes of q while a size, known or not, is above a limit."""
    shrunk = lambda s: (0.7 * s[0] + 0.1 * s[0] ** 2, 0.5 * s[1], jnp.where(s[2] == 0, 3, s[2] + 1))
    x, size, rounds = jax.lax.while_loop(lambda s: s[1] > limit, shrunk, (jax.lax.stop_gradient(q), size, 0))
    return jnp.sum(x * q) + 0.1 * rounds * q[0] + size * q[1]


I = lambda q: q.astype(int)


EDGES = {  # what a rule may get wrong in silence; each has done so once
    "division by zero": lambda q: 0.1 * jnp.sum(jnp.where(I(q) == 0, 0, 10 // I(q))),
    "first true": lambda q: jnp.array([1.0, 2.0, 3.0])[jnp.argmax(jnp.array([-1.0, 0.0, 1.0]) > q[0])] * q[1],
    "order of truth values": lambda q: jnp.sum(jnp.where((q > 0) < (q > 0.5), 1.0, 2.0) * q),
    "product of truth values": lambda q: ((q > 0) @ (q > -0.5)) * 0.5 * q[0],
    "32 bits": lambda q: (
        1e-3 * jnp.sum((jnp.where(q > 0, jnp.int32(77), jnp.int32(5)) * 1103515245 + 12345) % 1000) * q[0]
    ),
    "8 bits": lambda q: 0.01 * jnp.sum(jnp.where(q > 0, jnp.uint8(200), jnp.uint8(5)) + jnp.uint8(100)) * q[0],
    "no number made whole": lambda q: 1e-20 * jnp.sum(jnp.sqrt(q).astype(int)) * q[0],
    "too large a number made whole": lambda q: 1e-20 * jnp.sum((1e25 * q).astype(int)) * q[0],
    "first that is no number": lambda q: 0.1 * jnp.argmax(jnp.log(q)) * q[0],
    "signed zeros": lambda q: (
        jnp.arctan2(0.0, -1 - q[0] ** 2) * q[0]
        + 0.3 * jnp.arctan2(-0.0, -1 - q[0] ** 2) * q[1]
        + jnp.sum(jnp.arctan2(0.0 - jnp.maximum(q, 0.0), -1.0))
    ),
    "small arguments of erfinv": lambda q: 1e7 * jnp.sum(jax.scipy.special.erfinv(q * 1e-7)),
    "loops that are known to begin": lambda q: (
        _halvings(q, 1.0, 0.1) + _halvings(q, 1.0, jnp.abs(jax.lax.stop_gradient(q[2])))
    ),
    "a scan over single numbers": lambda q: jax.lax.scan(lambda c, y: (0.9 * c + y, c * y), 0.0, q)[0] * q[0],
    "one number after another": lambda q: (lambda x, y, z: jnp.sin(x * y) + z * x)(*q),
    "loops that are known not to": lambda q: _halvings(q, 0.05, 0.1),
    "one of three": lambda q: jnp.sum(
        jax.vmap(lambda x: jax.lax.switch(jnp.clip(I(jnp.floor(3 * x)), 0, 2), [jnp.sin, jnp.cos, jnp.tanh], x))(q)
    ),
}


NOT_COVERED = {"product of truth values": "dot_general of truth values", "8 bits": "numbers of type uint8"}


def _engine_for(name, engine):
    """What a run tells of its engine."""
    return f"xla (the {engine} engine does not cover {NOT_COVERED[name]})" if name in NOT_COVERED else engine


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EDGES)
def test_edges(name):
    system = gm.System(lambda q: 0.5 * jnp.sum(q**2) + EDGES[name](q))
    rng = np.random.default_rng(3)
    for _ in range(3):
        q, p = rng.uniform(-1, 1, (2, 3))
        expected, got = (
            gm.simulate(system, q, p0=p, method=gm.Verlet(), dt=0.02, t_end=0.4, save_every=4, engine=e)
            for e in ("xla", "native")
        )
        assert got.engine == _engine_for(name, "native")
        np.testing.assert_allclose(got.q, expected.q, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(got.energy, expected.energy, rtol=1e-11, atol=1e-12)


# Added up four at a time, which takes half as long as one by one; those that are not covered stay by themselves.
COVERED = [name for name in EDGES if name not in NOT_COVERED]
TOGETHER = [*(COVERED[k::4] for k in range(4)), *([name] for name in NOT_COVERED)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("names", TOGETHER, ids=", ".join)
def test_edges_in_lanes(names, monkeypatch):
    """Members that part ways, in vectors of machine code and in a kernel."""
    monkeypatch.setattr(kernel, "INTERPRET", True)
    monkeypatch.setattr(kernel, "LANES", 4)
    system = gm.System(lambda q: 0.5 * jnp.sum(q**2) + sum(EDGES[name](q) for name in names))
    q, p = np.random.default_rng(3).uniform(-1, 1, (2, 11, 3))
    go = lambda engine: gm.ensemble(
        system, q, p0s=p, method=gm.Verlet(), dt=0.02, t_end=0.4, save_every=4, engine=engine
    )
    expected = go("xla")
    for engine in ("native", "kernel"):
        got = go(engine)
        assert got.engine == _engine_for(names[0], engine)
        np.testing.assert_allclose(got.q, expected.q, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(got.energy, expected.energy, rtol=1e-11, atol=1e-12)


def test_operations():
    """Over and over from different places: each operation meets different numbers, and each branch is taken."""
    system = gm.System(_strange, params={"floor": 0.1})
    rng = np.random.default_rng(0)
    for _ in range(8):
        q, p = rng.uniform(-1, 1, (2, 3))
        expected, got = (
            gm.simulate(system, q, p0=p, method=gm.Verlet(), dt=0.01, t_end=1.0, save_every=10, engine=e)
            for e in ("xla", "native")
        )
        assert got.engine == "native"
        np.testing.assert_allclose(got.q, expected.q, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(got.energy, expected.energy, rtol=1e-11, atol=1e-12)
