"""Normal random numbers: their distribution, their largest values, and streams that have been used up."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from geomint.numerics import normal_numbers
from geomint.numerics.normal_numbers import LAST, Stream


def test_normal_numbers():
    x, after = Stream.of(np.array([3, 5], np.uint32)).normal((100_001,), np.float64)
    assert stats.kstest(x, "norm").pvalue > 1e-3
    assert np.corrcoef(x[:50_000], x[50_001:100_001])[0, 1] == pytest.approx(0, abs=0.02)  # the two of a pair
    assert np.mean(x**4) == pytest.approx(3, abs=0.15)
    y, _ = after.normal((100_001,), np.float64)
    assert abs(np.corrcoef(x, y)[0, 1]) < 0.02


@pytest.mark.parametrize(("dtype", "largest"), [(np.float64, 8.6), (np.float32, 5.8)])
def test_the_largest_normal_numbers_are_finite(dtype, largest, monkeypatch):
    for word in (0, -1):
        bits = lambda key, shape, kind, word=word: jnp.full(shape, word).astype(kind)
        monkeypatch.setattr(normal_numbers.jax.random, "bits", bits)
        x, _ = Stream.of(None).normal((4,), dtype)
        assert x.dtype == dtype
        assert np.all(np.isfinite(x))
        assert np.max(np.abs(x)) < largest


def test_a_stream_begins_anew_after_all_counts():
    key = np.array([3, 5], np.uint32)
    last = Stream(jnp.asarray(key), jnp.asarray(LAST, jnp.uint32))
    _, after = last.normal((2,), np.float64)
    assert int(after.draws) == 0
    assert not np.array_equal(after.key, key)
    assert after.normal((2,), np.float64)[1].draws == 1
