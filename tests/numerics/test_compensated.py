"""Compensated sums: exact in what they promise, and still there after the compiler."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geomint as gm
from geomint.numerics.compensated import Compensated, two_sum

NUMBERS = st.floats(-1e12, 1e12, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-12)
compiled_two_sum = jax.jit(two_sum)


@given(NUMBERS, NUMBERS)
def test_two_sum_is_exact_after_compilation(a, b):
    s, e = compiled_two_sum(jnp.asarray(a), jnp.asarray(b))
    assert Fraction(float(s)) + Fraction(float(e)) == Fraction(a) + Fraction(b)


@jax.jit
def _sums(n, increment):
    add = lambda _, s: (s[0] + increment, s[1] + increment)
    return jax.lax.fori_loop(0, n, add, (jnp.asarray(1.0), Compensated.of(jnp.asarray(1.0))))


def test_the_compiled_loop_kept_the_compensation():
    """A million times .1: the plain sum is off by 1e-6, the compensated one by round-off of the result."""
    plain, kept = _sums(1_000_000, 0.1)
    exact = Fraction(1) + 1_000_000 * Fraction(0.1)
    assert abs(Fraction(float(plain)) - exact) > 1e-7
    assert abs(Fraction(float(kept.value)) + Fraction(float(kept.lost)) - exact) < 1e-10


def test_differences_are_compensated_too():
    """A million times .1 taken away from 1e5."""
    take = jax.jit(lambda c: jax.lax.fori_loop(0, 1_000_000, lambda _, s: s - 0.1, c))
    taken = take(Compensated.of(jnp.asarray(1e5)))
    exact = Fraction(10**5) - 1_000_000 * Fraction(0.1)
    assert abs(Fraction(float(taken.value)) + Fraction(float(taken.lost)) - exact) < 1e-11


def test_compensated_run_is_not_the_plain_one_and_is_better():
    model = gm.models.kepler(eccentricity=0.2)
    method = gm.Composition(gm.Verlet(form="drift"), order=8)
    errors = []
    for compensated in (False, True):
        run = gm.simulate(
            model.system,
            model.q0,
            model.v0,
            method=method,
            dt=0.05,
            t_end=5000.0,
            save_every=100,
            compensated=compensated,
        )
        errors.append(np.std(run.energy_error))
    assert errors[1] < errors[0] / 3


@pytest.mark.slow
def test_energy_error_of_ten_million_steps_grows_five_times_less():
    """Order 8 on Kepler, e = .2, at a step where truncation lies below round-off (dt = .05: 2e-15 in the energy)."""
    model = gm.models.kepler(eccentricity=0.2)
    method = gm.Composition(gm.Verlet(form="drift"), order=8)
    growth = {}
    for compensated in (False, True):
        run = gm.simulate(
            model.system,
            model.q0,
            model.v0,
            method=method,
            dt=0.05,
            t_end=0.05 * 10_000_000,
            save_every=1000,
            compensated=compensated,
        )
        # The energy computed at a saved point carries its own rounding; growth is what blocks of a thousand points
        # share.
        walk = run.energy_error[1:].reshape(10, 1000).mean(axis=1)
        growth[compensated] = np.max(np.abs(walk))
    assert growth[True] < growth[False] / 5, growth
