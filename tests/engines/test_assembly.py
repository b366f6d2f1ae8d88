"""What kernels say to an NVIDIA machine in its own words, number by number."""

from fractions import Fraction

import jax
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from geomint.engines.pallas import assembly

pytestmark = pytest.mark.skipif(jax.default_backend() != "gpu", reason="an NVIDIA GPU")


def done_by_a_kernel(function, *x):
    """The function of numbers, 32 at a time."""
    blocks = pl.BlockSpec((32,), lambda i: i)

    def kernel(*refs):
        refs[-1][...] = function(*(r[...] for r in refs[:-1]))

    shape = jax.ShapeDtypeStruct(x[0].shape, x[0].dtype)
    call = pl.pallas_call(
        kernel,
        out_shape=shape,
        grid=(len(x[0]) // 32,),
        compiler_params=triton.CompilerParams(num_warps=1),
        in_specs=[blocks] * len(x),
        out_specs=blocks,
    )
    return np.asarray(call(*x))


def numbers(n, exponents, seed=0):
    random = np.random.default_rng(seed)
    return np.ldexp(random.uniform(1, 2, n), random.integers(*exponents, n)) * random.choice([-1, 1], n)


def test_reciprocals():
    usual = numbers(2**16, (-1021, 1022))
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0**1023, 2.0**-1022, 5e-324])
    x = np.concatenate([usual, np.resize(special, 32)])
    found = done_by_a_kernel(assembly.reciprocal, x)
    with np.errstate(divide="ignore", over="ignore"):
        np.testing.assert_array_equal(found[: 2**16], 1 / usual)
        np.testing.assert_allclose(found[2**16 :], 1 / x[2**16 :], rtol=0, atol=1e-307)


def test_rough_reciprocals():
    x = numbers(2**16, (-1000, 1000))
    np.testing.assert_allclose(done_by_a_kernel(assembly.rough_reciprocal, x), 1 / x, rtol=1e-11)


@pytest.mark.parametrize("real", [np.float64, np.float32])
@pytest.mark.parametrize("form", ["xy+z", "z-xy", "xy-z"])
def test_fused_operations_round_once(form, real):
    x, y, z = (numbers(1024, (-3, 4), seed).astype(real) for seed in (1, 2, 3))
    z = np.where(
        np.arange(1024) % 2, z, -x * y if form == "xy+z" else x * y
    )  # what is left is the rounding of the product
    exactly = lambda a, b, c: {"xy+z": a * b + c, "z-xy": c - a * b, "xy-z": a * b - c}[form]
    expected = [float(exactly(*map(Fraction, map(float, v)))) for v in zip(x, y, z, strict=True)]
    np.testing.assert_array_equal(
        done_by_a_kernel(lambda *v: assembly.fused(form, *v), x, y, z), np.array(expected).astype(real)
    )
