"""Constraints as stiff springs, and back: the penalised system of (1.7) and the multipliers recovered from it by (1.8).

    M q̈ = −∇V − ω² Gᵀg,    ω²·(g averaged over a short time) → λ    as ω → ∞,

with geomint's sign, M q̈ = −∇V − Gᵀλ. The motion normal to the manifold oscillates with frequencies of order ω, so that
ω²g itself has no limit; only its average has.

Reference: Tao, Owhadi, IMA J. Numer. Anal. (2015), theorem 1.3.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..run import Trajectory
from ..system.calls import call_function
from ..system.checks import instance, positive
from ..system.system import System, checked_system


class Penalty(eqx.Module):
    """½ω²|g(q)|², plus the fast part that the system had before."""

    constraint: Any
    omega: Array
    before: Any

    def __call__(self, q: Array, params: Any = None) -> Array:
        stiff = 0.5 * self.omega**2 * jnp.sum(call_function("constraint", self.constraint, {"q": q}, params) ** 2)
        return stiff if self.before is None else stiff + call_function("fast", self.before, {"q": q}, params)


class PenaltyGradient(eqx.Module):
    """ω²Gᵀg, plus the stated gradient of the fast part that the system had before."""

    constraint: Any
    omega: Array
    before: Any

    def __call__(self, q: Array, params: Any = None) -> Array:
        stiff = Penalty(self.constraint, self.omega, None)
        return jax.grad(stiff)(q, params) + call_function("overrides", self.before, {"q": q}, params)


def penalize(system: System, omega: float) -> System:
    """The free system in which springs of stiffness ω² replace the constraint; they are its `fast` part."""
    checked_system(system, System, callee="penalize")
    if system.constraint is None:
        raise InputError("penalize(system=...): the system has no constraint to turn into springs.")
    if system.takes("constraint", "t") or system.takes("fast", "t"):
        raise InputError("penalize(system=...): constraint and fast must not depend on t; state fast=W(q, t) yourself.")
    frequency = jnp.asarray(positive(omega, "omega", "penalize"), float)
    overrides = {name: f for name, f in system.overrides.items() if name != "fast_gradient"}
    if system.fast is not None and "fast_gradient" in system.overrides:
        overrides["fast_gradient"] = PenaltyGradient(system.constraint, frequency, system.overrides["fast_gradient"])
    # All other fields are kept. `origin` names a model from which an archive can be resumed; this is another system.
    fast = Penalty(system.constraint, frequency, system.fast)
    return dataclasses.replace(system, constraint=None, fast=fast, overrides=overrides, origin=None)


def recover_multipliers(run: Trajectory, window: float) -> np.ndarray:
    """λ(t) ≈ ω² g, averaged over a window centred at each saved time (narrower at the ends), as (saved, m).

    Read at the filtered positions where the method has them; at the plain ones the error grows with ω.
    """
    must = "the run of a system made by gm.penalize"
    instance(run, "run", "recover_multipliers", kinds=Trajectory, must=must)
    window = positive(window, "window", "recover_multipliers")
    system = run.system
    if not isinstance(system, System) or not isinstance(system.fast, Penalty):
        raise InputError("recover_multipliers needs a run of a system made by gm.penalize.")
    if run.members:
        raise InputError("recover_multipliers(run=...): the run is an ensemble; run each member with gm.simulate.")
    q = jnp.asarray(run.columns.get("q_filtered", run.q))
    penalty = system.fast
    constraint = lambda x: jnp.atleast_1d(system.call(penalty.constraint, x, name="constraint"))
    raw = np.asarray(penalty.omega) ** 2 * np.asarray(jax.vmap(constraint)(q))
    spacing = run.grid.dt * run.grid.save_every
    half = round(min(window / spacing / 2, len(raw)))
    if half < 1:
        raise InputError(
            f"window = {window:g} is shorter than two saved intervals of {spacing:g}; save more often or widen it."
        )
    count = len(raw)
    reach = np.minimum(half, np.minimum(np.arange(count), count - 1 - np.arange(count)))
    sums = np.concatenate([np.zeros((1, raw.shape[1])), np.cumsum(raw, axis=0)])
    return (sums[np.arange(count) + reach + 1] - sums[np.arange(count) - reach]) / (2 * reach + 1)[:, None]


__all__ = ["Penalty", "penalize", "recover_multipliers"]
