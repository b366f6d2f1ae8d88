"""Where the user sets JAX to single precision. One process runs all of it: starting another takes longer than a run."""

from __future__ import annotations

import json

import pytest

from helpers import processes

SETTING = """
import geomint as gm, numpy as np
m = gm.models.kepler()
r = gm.simulate(m.system, m.q0, m.v0, method=gm.Verlet(), dt=.02, t_end=10.)
told = {"precision": [str(r.q.dtype), float(abs(r.energy_error).max())]}
"""

REDUNDANT = """
import warnings; warnings.simplefilter("ignore")
import jax.numpy as jnp
rods = lambda q: jnp.stack([jnp.sum(q[0]**2) - 1, jnp.sum((q[1] - q[0])**2) - 1])
thrice = lambda q: jnp.array([[1, 0], [0, 1], [1.7, -0.6]]) @ rods(q)
system = gm.System(lambda q: jnp.sum(q[:, 1]), constraint=thrice)
q0 = np.array([[0.6, 0.8], [1.4, 0.2]])
run = gm.simulate(system, q0, method=gm.Rattle(), dt=0.01, t_end=2.0, engine="xla")
assert run.q.dtype == np.float32
told["redundant"] = [float(np.max(np.abs(x))) for x in (run.energy_error, run.multipliers)]
"""

FAST = """
zero = lambda q: 0.0 * jnp.sum(q)
chain = gm.System(zero, fast=lambda q: 0.5e4 * jnp.sum((q[1:] - q[:-1]) ** 2))
run = gm.simulate(chain, np.linspace(0, 1, 8), np.ones(8), method=gm.Impulse(), dt=0.05, t_end=500.0, save_every=100)
told["chain"] = [str(run.q.dtype), float(np.mean(run.q[-1].astype(float)))]
spring = lambda q: jnp.where(q[0] < 1e6, 50.0 * (q[0] - q[1]) ** 2 + 0.5 * q[1] ** 2, 0.0)
run = gm.simulate(gm.System(zero, fast=spring), [1.0, 0.5], method=gm.Impulse(), dt=0.05, t_end=50.0)
told["spring"] = [run.method.quadratic, float(np.max(np.abs(run.energy_error)) / run.energy[0])]
gm.simulate(gm.System(zero, fast=lambda q: zero(q)), [1.0, 0.5], method=gm.Impulse(), dt=0.05, t_end=1.0)
try:
    cubic = gm.System(zero, fast=lambda q: 50.0 * jnp.sum(q**2) + jnp.sum(jnp.abs(q) ** 3))
    gm.simulate(cubic, [1.0, 0.5], method=gm.Impulse(), dt=0.05, t_end=1.0)
except gm.InputError as error:
    told["cubic"] = str(error)
"""

TELL = "import json; print(json.dumps(told))"


@pytest.fixture(scope="module")
def told():
    return json.loads(processes.ends(processes.start(SETTING + REDUNDANT + FAST + TELL, JAX_ENABLE_X64="0")))


def test_precision_is_the_users_where_they_set_it(told):
    double = json.loads(processes.ends(processes.start(SETTING + TELL, JAX_ENABLE_X64="1")))
    for (dtype, error), expected in ((told["precision"], "float32"), (double["precision"], "float64")):
        assert dtype == expected
        assert error < 3e-3


def test_redundant_constraints(told):
    """The rank is judged by the precision of the numbers: 1e-8 would be below round-off."""
    energy, multipliers = told["redundant"]
    assert energy < 1e-3
    assert multipliers < 100


def test_fast_parts(told):
    """A free chain keeps its velocity (it was pulled back by a rounding error of 1e-7 ω²); a fast part that is
    quadratic by its numbers only is accepted, and one that is not is refused."""
    (dtype, centre), (quadratic, error) = told["chain"], told["spring"]
    assert dtype == "float32"
    assert abs(centre - 500.5) < 0.5
    assert quadratic is False
    assert error < 1e-3
    assert "this one is not quadratic" in told["cubic"]
