"""Starting values that are wrong on purpose: what parasitic components they excite, and how these are measured."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...methods import SymmetricMultistep
from ...methods.base import State
from ...methods.multistep import History
from ...models import Model
from ...numerics.compensated import Compensated, value
from ...run import Trajectory, ensemble
from ...system.mechanics import Mechanics
from ...system.system import System

SEED = 1  # of the directions of the errors


class Displaced(SymmetricMultistep):
    """The method with errors in its starting values. The system's params say how large:

        q_j + δ e_j, moved back to g(q) = 0,      δ = params["positions"]
        λ_j + ε r_j,                              ε = params["multipliers"]

    with random e_j, tangent to the constraints, and r_j of size 1. The column "pull" of a run is −G(q_n)ᵀλ_n with the
    multipliers of the recursion, which contain the parasitic components ν_i.
    """

    def init(self, mech: Mechanics, state: State, dt: Array) -> History:
        right = super().init(mech, state, dt)
        random, errors = np.random.default_rng(SEED), mech.system.params
        solver = self.solver_for(mech, value(state.q))
        q = jnp.concatenate([right.positions, right.front.value[None]])
        directions = jnp.asarray(random.normal(size=q.shape))

        def moved(x: Array, direction: Array) -> Array:
            x = x + errors["positions"] * mech.velocity(self.tangent(mech, x, mech.momentum(direction)))
            for _ in range(2):
                x = x + solver.polish(x)
            return x

        displaced = jax.vmap(moved)(q, directions)
        momenta = right.momenta + jax.vmap(mech.momentum)(jnp.diff(displaced - q, axis=0)) / dt
        count = jax.eval_shape(mech.constraint, q[0]).shape
        multipliers = jnp.asarray(random.normal(size=(len(right.forces), *count)))
        pulls = jax.vmap(mech.constraint_force)(displaced[1:-1], multipliers)
        return dataclasses.replace(
            right,
            positions=displaced[:-1],
            momenta=momenta,
            forces=right.forces - errors["multipliers"] * pulls,
            front=Compensated(displaced[-1], right.front.lost),
            summed=Compensated.of(self._weighted(self.coefficients.rho_tilde, momenta[1:])),
        )

    def output(self, mech: Mechanics, carry: History) -> State:
        shown, middle = super().output(mech, carry), self.order // 2
        pull = carry.forces[middle - 1] - mech.force(carry.positions[middle])
        return State(shown.q, shown.p, extras={**shown.extras, "pull": pull})


def displaced_runs(
    model: Model, method: Displaced, dt: float, steps: int, positions: Any = 0.0, multipliers: Any = 0.0
) -> Trajectory:
    """Runs with these errors of the starting values, one for each."""
    delta, epsilon = np.broadcast_arrays(np.atleast_1d(positions).astype(float), np.atleast_1d(multipliers))
    everywhere = np.ones((len(delta), *np.ones(model.q0.ndim, int)))
    errors = {"positions": delta, "multipliers": np.array(epsilon, float)}
    return ensemble(
        model.system,
        model.q0 * everywhere,
        model.v0 * everywhere,
        params=errors,
        method=method,
        dt=dt,
        t_end=steps * dt,
    )


def with_errors(model: Model) -> Model:
    """The model with params for the errors of starting values; one object, so that a method is compiled for it once."""
    right: Any = model.system
    params = {"positions": 0.0, "multipliers": 0.0}
    potential = right.potential
    system = System(lambda q, k: potential(q), constraint=right.constraint, symmetries=right.symmetries, params=params)
    return dataclasses.replace(model, system=system)


def component(x: Any, angle: float, window: int) -> np.ndarray:
    """The slowly varying z of x_n = y(nh) + ζⁿz(nh) + ζ⁻ⁿz̄(nh) + …, ζ = exp(i·angle), in consecutive windows of steps.

    It is the mean of ζ⁻ⁿx_n under a Kaiser window, which suppresses by 1e-13 what is more than 56/window radians away:
    the smooth y, and components at other roots. Second differences, divided by their factor 2 cos(angle) − 2, suppress
    y before that.
    """
    x = np.asarray(x).reshape(len(x), -1)
    curved = (x[2:] - 2 * x[1:-1] + x[:-2]) / (2 * np.cos(angle) - 2)
    whole = len(curved) // window * window
    n, weights = np.arange(1, whole + 1), np.kaiser(window, 28.0)
    turned = curved[:whole] * np.exp(-1j * angle * n)[:, None]
    return np.einsum("wnd,n->wd", turned.reshape(whole // window, window, -1), weights / weights.sum())


def size(z: np.ndarray) -> np.ndarray:
    """|z| in each window."""
    return np.sqrt(np.sum(np.abs(z) ** 2, axis=1))
