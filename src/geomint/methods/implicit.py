"""Implicit equations with a matrix M + c·Hess U, by a structure that is found before the run."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.linalg import Plan, Solution, newton
from ..numerics.linalg.newton import Residual
from ..system.mechanics import Mechanics
from ..system.system import System


def stiffness_product(system: System, x: Array, v: Array) -> Array:
    """(M + Hess U) v, for the search of structure."""
    mech, v = Mechanics(system, x.shape), v.reshape(x.shape)
    return (mech.momentum(v) + mech.hessian_product(x, v)).ravel()


def solved_by_plan(mech: Any, plan: Plan, residual: Residual, start: Array, at: Array, scale: Any = None) -> Solution:
    """residual(s) = 0 by Newton's method, for changes s of a position `at`; the Jacobian is near M + c·Hess U. Where
    the plan is to iterate, four digits of each correction are computed. scale: of `newton`, by default the size of the
    position."""
    diagonal = mech.inertia.diagonal(at.shape).ravel() if plan.kind == "matrix-free" else None

    def solve(apply: Residual, r: Array, rough: bool = False) -> Array:
        flat = lambda v: apply(v.reshape(at.shape)).ravel()
        return plan.solve(flat, r.ravel(), diagonal, rough).x.reshape(at.shape)

    rough_solve = (lambda apply, r: solve(apply, r, rough=True)) if plan.kind == "matrix-free" else None
    scale = jnp.max(jnp.abs(at)) if scale is None else scale
    return newton(residual, start, scale, solve, rough_solve=rough_solve)
