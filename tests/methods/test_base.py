"""What a new method may get wrong, and is told of: claims, columns, multipliers."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import pytest

import geomint as gm
from geomint.methods import State


class WithColumn(gm.Verlet):
    """Verlet with a column of its own."""

    column: str = eqx.field(static=True, default="steps")

    def output(self, mech, carry):
        state = super().output(mech, carry)
        return dataclasses.replace(state, extras={self.column: jnp.ones(())})


class WithoutMultipliers(gm.Rattle):
    """Rattle with the output of a free method."""

    def output(self, mech, carry):
        found = super().output(mech, carry)
        return State(found.q, found.p)


@pytest.mark.parametrize(("claim", "value"), [("energy", "drifts"), ("momentum_maps", "none")])
def test_claims_are_words_that_exist(claim, value):
    claims = {"order": 2, "symplectic": True, "symmetric": True, "reversible": True, "energy": None} | {claim: value}
    with pytest.raises(gm.InputError, match=f"{claim}.*must be one of.*not '{value}'"):
        gm.methods.Traits(**({"momentum_maps": None} | claims))


@pytest.mark.parametrize("column", ["p", "q", "watched", "t", "a/b"])
def test_a_column_of_a_method_has_a_name_of_its_own(column):
    model, grid = gm.models.pendulum(), {"dt": 0.01, "t_end": 0.02, "engine": "xla"}
    with pytest.raises(gm.InputError, match="can't be a column"):
        gm.simulate(model.system, model.q0, model.v0, method=WithColumn(column=column), **grid)
    assert gm.simulate(model.system, model.q0, model.v0, method=WithColumn(), **grid).columns["steps"].shape == (3,)


def test_missing_multipliers_are_not_zero():
    model = gm.models.double_pendulum()
    run = gm.simulate(model.system, model.q0, model.v0, method=WithoutMultipliers(), dt=0.01, t_end=0.02, engine="xla")
    for name in ("multipliers", "constraint_forces"):
        with pytest.raises(gm.InputError, match="saves no multipliers.*state_with_multipliers"):
            getattr(run, name)
