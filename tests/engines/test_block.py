"""The loop over steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.engines import block


@pytest.mark.parametrize("save_every", [3, 9])
def test_rounds_of_several_steps(save_every, monkeypatch):
    """As on a GPU, with and without steps that are left over; the time of each step is its own."""
    method, times = gm.Verlet(), {"dt": 0.1, "t_end": 1.8, "save_every": save_every, "progress": False}
    runs = []
    for several in (1, 4):
        monkeypatch.setitem(block.STEPS_OF_A_ROUND, jax.default_backend(), several)
        system = gm.System(lambda q, t: 0.5 * (q @ q) * (1.0 + 0.3 * jnp.sin(t)))  # new, so that it is compiled again
        end = lambda q, system=system: gm.simulate(system, q, jnp.zeros(2), method=method, **times).q[-1]
        run = gm.simulate(system, np.ones(2), np.zeros(2), method=method, engine="xla", **times)
        runs.append((run.q, jax.jacobian(end)(jnp.ones(2))))
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    np.testing.assert_allclose(runs[0][1], runs[1][1], rtol=1e-14)
