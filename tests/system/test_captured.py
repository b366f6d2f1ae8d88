"""Numbers that functions take from outside count as they are when a run starts."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.system import captured

STIFFNESS = 1.0


def helper():
    return STIFFNESS


class Spring:
    def __init__(self):
        self.numbers = {"stiffness": 1.0}

    def energy(self, q):
        return 0.5 * self.numbers["stiffness"] * q @ q

    def __call__(self, q):
        return self.energy(q)


def set_globally(k):
    global STIFFNESS
    STIFFNESS = k


def by_global():
    return (lambda q: 0.5 * helper() * q @ q), set_globally


def by_closure():
    k = 1.0

    def change(x):
        nonlocal k
        k = x

    return (lambda q: jnp.sum(jnp.stack([0.5 * k * x**2 for x in q]))), change


def by_array():
    k = np.ones(2)
    return (lambda q: 0.5 * jnp.sum(k * q**2)), lambda x: k.__setitem__(slice(None), x)


def by_method():
    spring = Spring()
    return spring.energy, lambda x: spring.numbers.update(stiffness=x)


def by_object():
    spring = Spring()
    return spring, lambda x: spring.numbers.update(stiffness=x)


def by_whole_number():
    numbers = [1]
    return (lambda q: 0.5 * numbers[0] * q @ q), lambda x: numbers.__setitem__(0, int(x))


def by_partial():
    held = {"energy": functools.partial(lambda q, k: 0.5 * k * q @ q, k=1.0)}
    change = lambda x: held.update(energy=functools.partial(held["energy"].func, k=x))
    return (lambda q: held["energy"](q)), change


def by_another_function():
    """As a cell of a notebook that is run again."""
    one, four = (lambda q: 0.5 * q @ q), (lambda q: 2.0 * q @ q)
    helper = one

    def change(x):
        nonlocal helper
        helper = one if x == 1 else four

    return (lambda q: helper(q)), change


def by_argument():
    numbers = [1.0]
    return functools.partial(lambda q, k=numbers: 0.5 * k[0] * q @ q), lambda x: numbers.__setitem__(0, x)


WAYS = [
    by_global, by_closure, by_array, by_method, by_object, by_whole_number, by_partial,
    by_another_function, by_argument,
]  # fmt: skip


@pytest.mark.parametrize("make", WAYS)
@pytest.mark.parametrize("engine", ["xla", "native"])
def test_a_number_from_outside_is_changed_between_runs(make, engine):
    potential, change = make()
    system, times = gm.System(potential), {"dt": 0.01, "t_end": 1.0, "progress": False, "engine": engine}
    for k in (1.0, 4.0, 1.0):
        change(k)
        run = gm.simulate(system, np.ones(2), np.zeros(2), method=gm.Verlet(), **times)
        np.testing.assert_allclose(run.q[-1], np.cos(np.sqrt(k)), atol=1e-4)
        assert run.energy[0] == k
    change(1.0)


def test_constraints_and_members():
    length = 1.0
    system = gm.System(lambda q: 9.81 * q[1], constraint=lambda q: q @ q - length**2)
    method = gm.Rattle()
    for length in (1.0, 2.0):
        starts = np.array([[length, 0.0], [0.0, -length]])
        run = gm.ensemble(system, starts, np.zeros((2, 2)), method=method, dt=0.01, t_end=0.5)
        np.testing.assert_allclose(np.linalg.norm(run.q, axis=-1), length, rtol=1e-12)


def test_nothing_is_compiled_again_where_nothing_changed():
    traced, k = itertools.count(), 2.0

    def potential(q):
        next(traced)
        return 0.5 * k * q @ q

    system = gm.System(potential)
    go = lambda: gm.simulate(system, np.ones(2), np.zeros(2), method=gm.Verlet(), dt=0.1, t_end=1.0, progress=False)
    go()
    before = next(traced)
    go()
    assert next(traced) <= before + 3  # the energy at the start is computed anew, by numbers


def test_numbers_next_to_each_other_are_told_apart():
    of = lambda *numbers: captured.digest(lambda q: numbers)
    assert len({of(1.0, 12.0), of(1.01, 2.0), of(1, 23), of(12, 3), of((1,), 23), of((1, 23))}) == 6
    key = jax.random.key(0)  # which has no numbers for numpy
    assert captured.digest(lambda q: key) == captured.digest(lambda q: key)


def test_a_run_goes_on_with_the_numbers_that_it_began_with(tmp_path):
    potential, change = by_closure()
    system, path = gm.System(potential), tmp_path / "run.h5"
    gm.simulate(system, np.ones(2), np.zeros(2), method=gm.Verlet(), dt=0.01, t_end=1.0, output=path)
    change(4.0)
    with pytest.raises(gm.ArchiveError, match="not the one that was run"):
        gm.resume(path, system=system, t_end=2.0)
    change(1.0)
    run = gm.resume(path, system=system, t_end=2.0)
    np.testing.assert_allclose(run.q[-1], np.cos(2.0), atol=1e-4)
