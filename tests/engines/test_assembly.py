"""PTX instructions of kernels, number by number: on a GPU, and one of them by an interpreter of its text."""

import re
from fractions import Fraction

import jax
import jax.extend.random
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from geomint.engines.pallas import assembly

on_a_gpu = pytest.mark.skipif(jax.default_backend() != "gpu", reason="an NVIDIA GPU")


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


@on_a_gpu
def test_reciprocals():
    usual = numbers(2**16, (-1021, 1022))
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0**1023, 2.0**-1022, 5e-324])
    x = np.concatenate([usual, np.resize(special, 32)])
    found = done_by_a_kernel(assembly.reciprocal, x)
    with np.errstate(divide="ignore", over="ignore"):
        np.testing.assert_array_equal(found[: 2**16], 1 / usual)
        np.testing.assert_allclose(found[2**16 :], 1 / x[2**16 :], rtol=0, atol=1e-307)


@on_a_gpu
def test_rough_reciprocals():
    x = numbers(2**16, (-1000, 1000))
    np.testing.assert_allclose(done_by_a_kernel(assembly.rough_reciprocal, x), 1 / x, rtol=1e-11)


@on_a_gpu
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


@on_a_gpu
def test_inverse_roots():
    x = np.abs(numbers(2**16, (-1000, 1000)))
    np.testing.assert_allclose(done_by_a_kernel(assembly.inverse_root, x), 1 / np.sqrt(x), rtol=4e-16)
    special = np.resize([0.0, np.inf, np.nan, -1.0], 32)
    np.testing.assert_array_equal(
        done_by_a_kernel(assembly.inverse_root, special), np.resize([np.inf, 0, np.nan, np.nan], 32)
    )


@on_a_gpu
@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_the_next_lane(real):
    x = numbers(128, (-3, 4)).astype(real)
    expected = np.roll(x.reshape(-1, 32), -1, axis=1).ravel()
    np.testing.assert_array_equal(done_by_a_kernel(assembly.next_lane, x), expected)


def interpreted(text, *operands):
    """The result of PTX instructions on 32-bit words, as its two halves."""
    words = {f"${k + 1}": x for k, x in enumerate(operands)}
    rotate = lambda x, _, r: (x << r | x >> (32 - r)) % 2**32
    rules = {
        "add.u32": lambda x, y: (x + y) % 2**32,
        "xor.b32": lambda x, y: x ^ y,
        "shf.l.wrap.b32": rotate,
        "cvt.u32.u64": lambda x: x % 2**32,
    }
    *lines, last = re.findall(r"^([\w.]+) ([$\w]+), (.*);$", text, re.MULTILINE)
    for name, out, given in lines:
        if name != ".reg":
            x = [words[y] if y in words else int(y) for y in given.split(", ")]
            words[out] = rules[name](*x)
    assert last == ("mov.b64", "$0", "{x, y}")
    return words["x"], words["y"]


def test_threefry():
    """The instructions against JAX's generator, and the published result for zeros."""
    assert interpreted(assembly.threefry_code(), 0, 0, 0, 0) == (0x6B200159, 0x99BA4EFE)
    words = [int(x) for x in np.random.default_rng(0).integers(0, 2**32, 4)]
    key, counter = (jax.numpy.array(x, "uint32") for x in (words[:2], words[2:]))
    expected = jax.extend.random.threefry_2x32(key, counter)
    assert interpreted(assembly.threefry_code(), *words) == tuple(map(int, expected))
