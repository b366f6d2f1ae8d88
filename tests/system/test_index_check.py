"""Indices out of range in the user's functions, and masses that can be read in two ways, are refused before a run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.system.mass import check_mass

Q = np.array([[1.0, 0.5], [2.0, 0.25], [3.0, 0.125]])
PAIR = np.array([0, 5])


def check_indices(*arguments):
    """Imported here, so that the tests of whole runs can be tried on versions without it."""
    from geomint.system.index_check import check_indices as check

    check(*arguments)


def goes(system, q=Q, **more):
    return gm.simulate(system, q, method=gm.Verlet(), dt=0.01, t_end=0.02, **more)


OUT_OF_RANGE = {
    "integer": (lambda q: jnp.sum(q[3]), "index 3 .* length 3"),
    "negative": (lambda q: jnp.sum(q[-4]), "index -4 .* length 3"),
    "column": (lambda q: jnp.sum(q[:, 2]), "index 2 .* length 2"),
    "array": (lambda q: jnp.sum(q[PAIR]), "index 5 .* length 3"),
    "pairs": (lambda q: jnp.sum(q[PAIR, 1]), "index 5 .* length 3"),
    "written": (lambda q: jnp.sum(jnp.zeros(3).at[PAIR].add(q[:2, 0])), "index 5 .* length 3"),
    "segments": (lambda q: jnp.sum(jax.ops.segment_sum(q[:2, 0], PAIR, 3)), "index 5 .* length 3"),
    "fori_loop": (lambda q: jax.lax.fori_loop(0, 4, lambda i, s: s + q[i, 0], 0.0), "index 3 .* length 3"),
    "while_loop": (
        lambda q: jax.lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] + q[c[0], 0]), (0, 0.0))[1],
        "index 3",
    ),
    "scan": (
        lambda q: jax.lax.scan(lambda s, i: (s + q[i, 0], None), 0.0, jnp.array([0, -7]))[0],
        "index -7 .* length 3",
    ),
    "vmap": (lambda q: jnp.sum(jax.vmap(lambda i: q[i, 0])(jnp.arange(4))), "index 3 .* length 3"),
    "jit": (lambda q: jax.jit(lambda i: q[i, 0])(4), "index 4 .* length 3"),
    "cond": (lambda q: jax.lax.cond(q[0, 0] > 0, lambda q: q[8, 0], lambda q: q[0, 0], q), "index 8 .* length 3"),
    "slice": (lambda q: jnp.sum(jax.lax.dynamic_slice(q, (2, 0), (2, 2))), "2 elements from index 2 on .* length 3"),
    "table": (lambda q: jnp.arange(3.0)[jnp.floor(q[2, 0]).astype(int)], "index 3 of an axis of length 3"),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_an_index_out_of_range_is_refused(name):
    potential, words = OUT_OF_RANGE[name]
    with pytest.raises(gm.InputError, match=f"potential uses .*{words}"):
        goes(gm.System(potential))


IN_RANGE = {
    "negative": lambda q: jnp.sum(q[-3] + q[np.array([-1, 2])]),
    "slices": lambda q: jnp.sum(q[1:7]),
    "loops": lambda q: jax.lax.fori_loop(0, 3, lambda i, s: s + q[i, 0], 0.0),
    "the branch that is not taken": lambda q: jax.lax.cond(q[0, 0] > 0, lambda q: q[0, 0], lambda q: q[8, 0], q),
    "asked for": lambda q: jnp.sum(q.at[PAIR].get(mode="clip") + q.at[PAIR].get(mode="fill", fill_value=0.0)),
    "sorted": lambda q: jnp.sum(q[jnp.argsort(q[:, 0]), 1]),
    # Functions of JAX that read out of range on purpose, and mask it.
    "nonzero": lambda q: jnp.sum(q[jnp.nonzero(q[:, 0] > 2.5, size=2, fill_value=0)[0]]),
    "triangle": lambda q: jnp.sum((q @ q.T)[jnp.triu_indices(3)]),
    "interpolation": lambda q: jnp.sum(
        jax.scipy.ndimage.map_coordinates(jnp.arange(9.0).reshape(3, 3), [q[:, 0], q[:, 1]], 1)
    ),
}


@pytest.mark.parametrize("name", IN_RANGE)
def test_indices_that_are_meant_pass(name):
    check_indices(gm.System(IN_RANGE[name]), Q, Q)


def test_every_function_of_a_system_is_looked_at():
    beyond = lambda q, *rest: jnp.sum(q[3])
    square = lambda q: jnp.sum(q**2)
    systems = {
        "fast": gm.System(square, fast=beyond),
        "constraint": gm.System(square, constraint=lambda q: q[3, :1]),
        r"watch\['far'\]": gm.System(square, watch={"far": beyond}),
        r"overrides\['gradient'\]": gm.System(square, overrides={"gradient": lambda q: 2 * q + 0 * q[3]}),
        "lagrangian": gm.LagrangianSystem(lambda q, v: jnp.sum(v**2) / 2 - jnp.sum(q[3])),
        "force": gm.LagrangianSystem(lambda q, v: jnp.sum(v**2) / 2, force=lambda q, v, t: -v[3] + 0 * q),
    }
    for name, system in systems.items():
        with pytest.raises(gm.InputError, match=f"{name} uses index 3"):
            check_indices(system, Q, Q)


def test_indices_in_params_are_checked_at_every_call():
    system = gm.System(
        lambda q, bonds: jnp.sum((q[bonds[:, 0]] - q[bonds[:, 1]]) ** 2), params=np.array([[0, 1], [1, 2]])
    )
    check_indices(system, Q, Q)
    other = system.with_params(np.array([[0, 1], [1, 3]]))
    with pytest.raises(gm.InputError, match="potential uses index 3"):
        goes(other)
    with pytest.raises(gm.InputError, match="potential uses index 3"):
        gm.ensemble(
            system, np.stack([Q, Q]), params=np.array([[[0, 1]], [[0, 3]]]), method=gm.Verlet(), dt=0.01, t_end=0.02
        )


def test_constant_indices_are_checked_inside_a_transformation():
    with pytest.raises(gm.InputError, match="potential uses index 3"):
        jax.grad(lambda q: goes(gm.System(lambda x: jnp.sum(x[3] ** 2)), q).q.sum())(jnp.asarray(Q))
    table = gm.System(lambda q: jnp.sum(jnp.arange(3.0)[jnp.floor(q[:, 0]).astype(int) - 1] * q[:, 1] ** 2))
    assert jax.eval_shape(lambda q: goes(table, q).q, jnp.asarray(Q)).shape == (
        3,
        3,
        2,
    )  # what follows from a traced q is left out


def test_a_long_loop_does_not_hold_up_a_run():
    """A million iterations are not followed to their end."""
    long = gm.System(lambda q: jax.lax.fori_loop(0, 10**6, lambda i, s: s + q[i % 3, 0], 0.0))
    check_indices(long, Q, Q)


ROWS = {
    "one": lambda q: jax.lax.fori_loop(0, 30_000, lambda i, s: s + q[i % 3, 0], 0.0),
    "twenty": lambda q: sum(jax.lax.fori_loop(0, 30_000, lambda i, s: s + q[i % 3, 0], 0.0) for _ in range(20)),
    "nested": lambda q: jax.lax.scan(
        lambda s, i: (s + jax.lax.fori_loop(0, 30_000, lambda j, r: r + q[(i + j) % 3, 0], 0.0), None),
        0.0,
        np.arange(9),
    )[0],
}


@pytest.mark.parametrize("name", ROWS)
def test_indices_behind_a_long_loop_are_checked(name):
    """A loop that is cut short leaves its result unknown, and nothing else: constants, rows that follow from q, and
    the first rows of a later loop are checked all the same."""
    behind = {
        "index 7 of an axis of length 3": lambda q: q[7, 0],
        "index 3 of an axis of length 3": lambda q: q[jnp.floor(q[2, 0]).astype(int), 0],
        "index 4 of an axis of length 3": lambda q: jax.lax.fori_loop(4, 10**6, lambda i, s: s + q[i, 0], 0.0),
    }
    for words, last in behind.items():
        with pytest.raises(gm.InputError, match=words):
            check_indices(gm.System(lambda q, last=last: ROWS[name](q) + last(q)), Q, Q)
    counted = lambda q: q[ROWS[name](q).astype(int) % 3, 0]  # known to nobody
    check_indices(gm.System(counted), Q, Q)


def test_a_refusal_leaves_what_is_known_of_other_params():
    """A reads its table at q, B at a constant; between two calls for A, B is refused for its second function."""
    table = lambda q, k: jax.lax.cond(
        k[0] > 0, lambda: jnp.arange(5.0)[jnp.floor(q[0]).astype(int)], lambda: jnp.arange(5.0)[0]
    )
    watch = {"w": lambda q, p, k: jnp.arange(5.0)[k[1].astype(int)]}
    a = gm.System(table, watch=watch, params=jnp.array([1.0, 0.0]))
    b = gm.System(table, watch=watch, params=jnp.array([-1.0, 9.0]))
    inside, outside = np.array([2.0]), np.array([9.0])
    check_indices(a, inside, inside)
    with pytest.raises(gm.InputError, match="watch.*index 9"):
        check_indices(b, inside, inside)
    with pytest.raises(gm.InputError, match="potential uses index 9"):
        check_indices(a, outside, outside)


# --- masses ---------------------------------------------------------------------------------------------------------
def test_a_mass_that_fits_bodies_and_axes_is_refused():
    mass, q = np.array([1.0, 3.0]), np.array([[1.0, 0.0], [0.0, 1.0]])
    system = lambda m: gm.System(lambda q: jnp.sum(q[:, 1]), mass=m)
    with pytest.raises(gm.InputError, match=r"mass\[:, None\] .*body.* mass\[None, :\] .*axis"):
        goes(system(mass), q)
    with pytest.raises(gm.InputError, match=r"mass\[None, :, None\].*mass\[None, None, :\]"):
        goes(gm.System(lambda q: jnp.sum(q), mass=np.array([1.0, 2.0, 3.0])), np.ones((4, 3, 3)))
    with pytest.raises(gm.InputError, match=r"mass\[:, None\]"):
        gm.ensemble(system(mass), np.stack([q, q]), method=gm.Verlet(), dt=0.01, t_end=0.02)
    per_body, per_axis, equal = (
        gm.Mechanics(system(m), q.shape).velocity(jnp.ones((2, 2)))
        for m in (mass[:, None], mass[None, :], np.full(2, 4.0))
    )
    goes(system(mass[:, None]), q)
    np.testing.assert_allclose(per_body, [[1, 1], [1 / 3, 1 / 3]])
    np.testing.assert_allclose(per_axis, [[1, 1 / 3], [1, 1 / 3]])
    check_mass(system(np.full(2, 4.0)), q.shape)  # equal entries mean the same either way
    np.testing.assert_allclose(equal, 0.25)


TAKEN = {
    "take": (lambda q: jnp.sum(jnp.take(q, jnp.array([7]))), "index 7 .* length 6"),
    "take along": (lambda q: jnp.sum(jnp.take(q, jnp.array([0, -4]), axis=0)), "index -4 .* length 3"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_take_out_of_range_is_named_where_it_makes_the_energy_nan(name):
    potential, words = TAKEN[name]
    with pytest.raises(gm.InputError, match=f"potential uses {words}.*NaN"):
        goes(gm.System(potential))
    with pytest.raises(gm.InputError, match=f"potential uses {words}.*NaN"):
        gm.ensemble(gm.System(potential), np.stack([Q, Q]), method=gm.Verlet(), dt=0.01, t_end=0.02)


def test_what_take_fills_may_be_masked():
    masked = gm.System(lambda q: jnp.sum(jnp.where(np.array([True, False]), jnp.take(q, PAIR, axis=0)[:, 0], 0.0) ** 2))
    goes(masked)
    with pytest.raises(gm.InputError, match=r"potential\(q0\) is not finite"):  # with no index to blame
        goes(gm.System(lambda q: jnp.sum(jnp.log(-jnp.take(q, np.array([0]))))))
