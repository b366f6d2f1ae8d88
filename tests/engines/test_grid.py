"""The grid of a run: whole steps, saves, and chunks of steps that cover it."""

from __future__ import annotations

import numpy as np
import pytest

import geomint as gm
from geomint.engines.grid import Grid, grid
from geomint.run.loop import _chunk


# --- grids ----------------------------------------------------------------------------------------------
def test_a_grid_takes_whole_steps_only():
    assert grid(0.1, 0.3).steps == 3  # 0.3/0.1 is not 3 in floating point
    assert grid(1e-3, 1e6 + 1.0, 1e6).steps == 1000
    assert grid(1e-3, 1e9 + 0.7, 1e9).steps == 700  # a unit in the last place of t_end is 1e-4 steps
    assert Grid(2.0, 0.5, 6, 3).saves == 3
    assert np.array_equal(Grid(2.0, 0.5, 12, 3).times(1, 2), [3.5, 5.0])
    assert np.array_equal(Grid(2.0, 0.5, 12, 3).times(3), [6.5, 8.0])
    assert Grid(2.0, 0.5, 12, 3).t_end == 8.0
    for off in (1e-4, -1e-4, 1e-5):
        with pytest.raises(gm.InputError, match="not a whole number"):
            grid(1.0, 7 + off)
    with pytest.raises(
        gm.InputError,
        match=r"save_every = 4 does not divide the 10 steps of the run\. Nearest that do: 2 or 5; or t_end = 8 or 12\.",
    ):
        grid(1.0, 10, save_every=4)
    with pytest.raises(gm.InputError, match=r"Nearest that do: 5 or 10;"):
        grid(1.0, 10, save_every=6)
    with pytest.raises(gm.InputError, match=r"Nearest that fit: t_end = 0\.9 or 1\.2; or dt = 0\.25 or 0\.33"):
        grid(0.3, 1.0)
    assert grid(1.0, 5.0, 5.0).steps == 0
    with pytest.raises(gm.InputError, match="before t0"):
        grid(1.0, 4.0, 5.0)


@pytest.mark.parametrize("budget", [1, 3, 10, 25, 1000])
def test_chunks_end_at_saves_and_cover_the_grid_once(budget):
    """Whatever the budget: no part of a block across a save, no more rows than there is room for, each step once."""
    times, n, saved = Grid(0.0, 1.0, 70, 10), 0, []
    while n < times.steps:
        steps, blocks = _chunk(times, n, 3, budget)
        assert 0 < steps * blocks <= max(budget, 1)
        assert blocks <= 3
        assert blocks == 1 or (steps == 10 and n % 10 == 0)
        assert n // 10 == (n + steps - 1) // 10
        saved += [n + steps * (k + 1) for k in range(blocks) if (n + steps * (k + 1)) % 10 == 0]
        n += steps * blocks
    assert saved == list(range(10, 71, 10))
