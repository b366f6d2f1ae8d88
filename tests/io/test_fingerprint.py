"""The fingerprint of a system: every number and every operation enters it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import geomint as gm
from geomint.io.fingerprint import fingerprint


# --- fingerprints ---------------------------------------------------------------------------------------
def test_every_number_and_operation_of_a_system_enters_its_fingerprint():
    """Arrays that a function closes over, which are constants of the program, also inside of loops; axes, order of
    operands, outputs."""
    weights = np.linspace(1.0, 2.0, 6).reshape(2, 3)
    other = weights.copy()
    other[1, 2] = np.nextafter(other[1, 2], 3.0)

    def scanned(w):
        import jax

        return gm.System(
            lambda q: jax.lax.fori_loop(0, 3, lambda i, s: s + jnp.sum(jnp.asarray(w)[:, i] * q[:, i] ** 2), 0.0)
        )

    closed = lambda w: gm.System(lambda q: jnp.sum(jnp.asarray(w) * q**2))
    systems = [
        closed(weights),
        closed(other),
        closed(weights.astype(np.float32)),
        scanned(weights),
        scanned(other),
        gm.System(lambda q: jnp.sum(jnp.sum(q, axis=0) ** 2)),
        gm.System(lambda q: jnp.sum(jnp.sum(q, axis=1) ** 2)),
        gm.System(lambda q: jnp.sum(q[0] - q[1] / 2)),
        gm.System(lambda q: jnp.sum(q[1] - q[0] / 2)),
        gm.System(lambda q: q[0, 0]),
        gm.System(lambda q: q[0, 1]),
        gm.System(lambda q: jnp.sum(q**2), mass=2.0),
        gm.System(lambda q: jnp.sum(q**2), mass=np.full((2, 1), 2.0)),
        gm.System(lambda q: jnp.sum(q**2)),
        gm.System(lambda q, k: k * jnp.sum(q**2), params=1.0),
        gm.System(lambda q, k: k * jnp.sum(q**2), params=1.5),
        gm.System(lambda q: jnp.sum(q**2), watch={"a": lambda q, p: q[0, 0]}),
        gm.System(lambda q: jnp.sum(q**2), watch={"a": lambda q, p: q[1, 0]}),
        gm.System(lambda q: jnp.sum(q**2), fast=lambda q: q[0, 0] ** 2),
        gm.System(lambda q: jnp.sum(q**2), constraint=lambda q: q[0]),
        gm.System(lambda q: jnp.sum(q**2), symmetries=(gm.Rotation((0, 1)),)),
        gm.System(lambda q: jnp.sum(q**2), overrides={"gradient": lambda q: 2 * q}),
        gm.System(lambda q: jnp.sum(q**2), overrides={"gradient": lambda q: 3 * q}),
    ]
    prints = [fingerprint(system, (2, 3)) for system in systems]
    assert len(set(prints)) == len(prints)
    each = lambda k: gm.System(
        lambda q, k: k * jnp.sum(q**2), params=np.array(k)
    )  # of three members, of which one is traced
    own = [
        fingerprint(each(k), (2, 3), "states and params") for k in ([1.0, 2.0, 3.0], [1.0, 2.0, 3.5], [1.0, 2.0, 3.0])
    ]
    assert own[0] == own[2] != own[1]
    assert fingerprint(closed(weights.copy()), (2, 3)) == prints[0]
    assert fingerprint(scanned(weights.copy()), (2, 3)) == prints[3]


def test_pair_potentials_by_what_they_compute():
    """Not by the addresses of their functions, which differ between processes."""
    stated = {"cutoff": 1.6, "box": gm.md.Box([4.0, 5.0])}
    pair = lambda power=6, **more: gm.System(gm.md.PairPotential(lambda r: 1 / r**power, **{**stated, **more}))
    charged = lambda q: gm.md.PairPotential(lambda r, a, b: a["e"] * b["e"] / r, sites={"e": np.array(q)})
    for n in (6, 60):  # written out, and by rows of pairs
        print_of = lambda system, n=n: fingerprint(system, (n, 2))
        others = [
            pair(7), pair(cutoff=1.7), pair(box=gm.md.Box([4.0, 5.5])), pair(molecules=2), pair(exclude=[(0, 1)]),
            pair(on=[0, 2, 3]), *(gm.System(charged(np.arange(n) + k)) for k in (0.0, 1.0)),
        ]  # fmt: skip
        assert print_of(pair()) == print_of(pair())
        assert len({print_of(system) for system in (pair(), *others)}) == len(others) + 1
