"""Parts of Tao and Owhadi's experiments: the leading error of a step, transitions of DNA, pictures of ropes."""

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.papers.tao_owhadi_2015.common import scene_of_ropes
from geomint.papers.tao_owhadi_2015.dna_runs import REST, Opening
from geomint.papers.tao_owhadi_2015.local_error import leading_terms, one_step, power


def test_the_leading_error_of_a_step_on_an_oscillator():
    # q̈ = −q from (1, 0): f = −1, ḟ = 0, f̈ = 1, K = 1, so that v is off by h³(1/12 + β).
    oscillator, q, p = gm.System(lambda q: 0.5 * jnp.sum(q**2), fast=lambda q: 0.0 * q[0]), jnp.ones(1), jnp.zeros(1)
    in_x, in_v, in_v_stiff = leading_terms(oscillator, q, p, 0.4)
    np.testing.assert_allclose([in_x[0], in_v[0], in_v_stiff[0]], [0.0, 1 / 12 + 0.4, 1 / 12], atol=1e-15)
    steps = np.array([0.02, 0.01])
    _, v = one_step(gm.ZhangSkeel(beta=0.4), oscillator, q, p, jnp.asarray(steps))
    off = np.asarray(v)[:, 0] + np.sin(steps)
    assert off[-1] / steps[-1] ** 3 == pytest.approx(1 / 12 + 0.4, rel=1e-3)
    assert power(steps, np.abs(off)) == pytest.approx(3, abs=1e-3)


def test_transitions_count_arrivals_only():
    run = object.__new__(Opening)
    open_, pi = 2 * np.pi - REST, np.pi
    for angles, count in (
        ([REST, pi, REST, pi, REST], 0),  # it turns back half-way
        ([REST, pi, open_, 6.0, open_], 1),
        ([REST, open_, pi, REST, 0.2, open_], 3),
    ):
        run.angle = np.array(angles)
        assert run.transitions == count


def test_ropes_hang_from_the_origin():
    one, two = np.zeros((5, 2, 2)), np.ones((5, 3, 2))
    scene = scene_of_ropes(np.arange(5.0), {"one": one, "two": two}, "ropes", "")
    assert scene.positions.shape == (5, 5, 2)
    assert list(scene.bonds) == [(0, 5), (0, 1), (2, 5), (2, 3), (3, 4)]  # 5 is the hinge
    assert scene.colors == [0, 0, 1, 1, 1]
