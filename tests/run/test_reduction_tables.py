"""Tables of reductions over several tiles, against numpy."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from geomint.run.reductions import Histogram, Mean, Quantiles


# --- reductions -----------------------------------------------------------------------------------------
def tiled(x: np.ndarray, well: np.ndarray, reduction) -> dict[str, np.ndarray]:
    """A reduction of (members, …) in tiles of 4, joined as in a run of one row."""
    tiles = [reduction.of_tile(jnp.asarray(x[a : a + 4]), jnp.asarray(well[a : a + 4])) for a in range(0, len(x), 4)]
    return reduction.joined(
        [{k: np.asarray(v)[None] for k, v in tile.items()} for tile in tiles], np.array([well.sum()])
    )


@pytest.mark.parametrize("members", [1, 2, 5, 10, 13])
def test_reductions_of_several_tiles_are_those_of_numpy(members):
    """Quantiles between two members, at levels on both sides of the middle between them, without those that failed."""
    chance = np.random.default_rng(members)
    x, well = 5 + chance.normal(size=(members + 3, 2)) ** 3, np.ones(members + 3, bool)
    well[chance.choice(members + 3, 3, replace=False)] = False
    counted, levels = x[well], (0.0, 0.1, 0.21, 0.5, 0.77, 0.987, 1.0)
    quantiles = tiled(x, well, Quantiles("q", levels))["quantiles"][0]
    np.testing.assert_array_equal(quantiles, np.quantile(counted, levels, axis=0))
    mean = tiled(x, well, Mean("q"))
    np.testing.assert_allclose(mean["mean"][0], counted.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(mean["standard_deviation"][0], counted.std(axis=0), rtol=1e-12, atol=1e-14)
    edges = np.unique([*np.sort(x[:, 0])[[0, -1]], 4.0, 5.0, 6.0])  # two values lie on the outermost edges
    counts = tiled(x, well, Histogram("q", edges))["counts"][0]
    np.testing.assert_array_equal(counts.T, [np.histogram(counted[:, k], edges)[0] for k in (0, 1)])


def test_quantiles_are_exact_at_both_ends_of_an_interval():
    """Between numbers of very different size, where lower + share (upper − lower) loses the digits of the upper one."""
    x, levels = np.array([[-1e17], [3.3]]), (0.25, 0.75, 0.987, 1.0)
    found = tiled(x, np.ones(2, bool), Quantiles("q", levels))["quantiles"][0]
    np.testing.assert_array_equal(found, np.quantile(x, levels, axis=0))
    chance = np.random.default_rng(0)
    x, levels = chance.normal(size=(50, 7)) * 10.0 ** chance.integers(-8, 8, (50, 7)), tuple(chance.random(200))
    found = tiled(x, np.ones(50, bool), Quantiles("q", levels))["quantiles"][0]
    np.testing.assert_array_equal(found, np.quantile(x, levels, axis=0))


def test_reductions_of_no_member_are_not_numbers():
    for reduction, name in ((Mean("q"), "mean"), (Quantiles("q"), "quantiles")):
        with np.errstate(all="ignore"):
            assert np.isnan(tiled(np.ones((5, 2)), np.zeros(5, bool), reduction)[name]).all()
