"""jax 0.10.2 returns wrong numbers on the CPU (jax-ml/jax#39103): a batched matrix–vector product followed by a reduction
over more than 16,384 rows. pyproject.toml excludes it; this checks the numbers of whichever version is here."""

import jax
import jax.numpy as jnp
import numpy as np

import geomint as gm


def test_batched_product_then_reduction():
    random = np.random.default_rng(0)
    matrices, vectors = random.normal(size=(20_000, 3, 3)), random.normal(size=(20_000, 3))
    compiled = jax.jit(lambda a, x: jnp.sum(jnp.einsum("nij,nj->ni", a, x) ** 2, axis=0))
    np.testing.assert_allclose(compiled(matrices, vectors), np.sum(np.einsum("nij,nj->ni", matrices, vectors) ** 2, axis=0), rtol=1e-12)
    squares = jax.jit(lambda a, x: jnp.sum((a @ x[..., None])[..., 0] * x))
    np.testing.assert_allclose(squares(matrices, vectors), np.einsum("ni,nij,nj->", vectors, matrices, vectors), rtol=1e-10)


def test_the_bad_version_is_not_installed():
    assert jax.__version__ != "0.10.2"
    assert gm.__version__
