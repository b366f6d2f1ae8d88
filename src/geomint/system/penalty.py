"""Constraints as stiff springs: the penalised system of Tao and Owhadi's (1.7),

    M q̈ = −∇V − ω² Gᵀg.

The motion normal to the manifold oscillates with frequencies of order ω. analysis/penalty.py recovers multipliers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..errors import InputError
from ..numerics.module import Module
from .calls import call_function
from .checks import positive
from .system import System, checked_system


class Penalty(Module):
    """½ω²|g(q)|², plus the fast part that the system had before."""

    constraint: Any
    omega: Array
    before: Any

    def __call__(self, q: Array, params: Any = None) -> Array:
        stiff = 0.5 * self.omega**2 * jnp.sum(call_function("constraint", self.constraint, {"q": q}, params) ** 2)
        return stiff if self.before is None else stiff + call_function("fast", self.before, {"q": q}, params)


class PenaltyGradient(Module):
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
