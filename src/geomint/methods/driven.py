"""Kicks of driven systems: with an outer force, damping, or a potential that depends on the time.

With q and t held, a kick of length h is the flow of

    ṗ = −∇U(q, t) + f(q, M⁻¹p, t) − D M⁻¹p,      Ẇ = f·v − v·D v + ∂U/∂t,

where W, the work, is a variable like q and p, so that it has the order of the method and H − W is what the exact motion
conserves. For f(q, t) and linear damping the flow is exact (see system/damping.py). Kicks and drifts are then exact
flows of two vector fields, and every splitting keeps its order, except Nyström ones that are not symmetric: their order
conditions exclude damping, and the work of f, whose rate f·v depends on p. With D = γM and f a gradient the step scales
dq ∧ dp by exp(−γh). A force of v is taken at the mean of the momenta before and after the kick: symmetric, of order 2.

Time advances with the drifts: (q, t) and (p, −H) are conjugate, and a step is the splitting of H + p_t on the extended
phase space. Without forces and damping it is therefore symplectic there, and H − W has no drift.

On a manifold g(q, t) = 0 the momenta p of a kick are projected: G M⁻¹p + ∂g/∂t = 0. The constraint pushes by −Gᵀλ and
does the work λᵀ∂g/∂t, since G v = −∂g/∂t; that of its impulse during a kick is part of the work of the kick.

These are discrete Lagrange–d'Alembert principles: Marsden, West, Acta Numerica 10 (2001) 357, section 3.2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.compensated import value
from ..numerics.linalg import fixed_point, newton
from ..system.damping import DampingFlow
from ..system.mechanics import Mechanics
from .base import State

DENSE_LIMIT = 200  # coordinates up to which Newton's matrix of an implicit kick is formed; fixed-point iteration beyond


def with_work(state: State, work: Any) -> State:
    """The state with the column `work`."""
    return dataclasses.replace(state, extras={**state.extras, "work": work})


class DrivenCarry(NamedTuple):
    """What splittings carry of a driven system."""

    q: Any
    p: Any
    work: Any

    def shown(self) -> State:
        return with_work(State(self.q, self.p), self.work)


class Kick(NamedTuple):
    """What a kick adds to the momentum and to the work."""

    impulse: Array
    work: Array


def _itself(p: Array) -> Array:
    return p


def kick(mech: Mechanics, q: Any, p: Any, h: Array, project: Callable[[Array], Array] = _itself) -> Kick:
    """A kick of length h from the momentum p. `project` makes a momentum tangent to a constraint; p is tangent."""
    q, p, system = value(q), value(p), mech.system
    on_manifold = project is not _itself
    # The exact flow of a damping that is not proportional to the mass leaves the tangent space of a manifold.
    exact = system.uniform_damping or not on_manifold
    flow = mech.damping_flow(p.shape) if exact else None
    drag = system.damping is not None and not exact
    conservative = mech.force(q)

    def outer(v: Array) -> Array:
        return mech.outer_force(q, v) - mech.drag(v) if drag else mech.outer_force(q, v)

    def impulse(mean: Array) -> Array:
        """The change of p, with the outer force at the momentum `mean`."""
        stated = system.force is not None or drag
        force = conservative + outer(mech.velocity(mean)) if stated else conservative
        return h * force if flow is None else flow.impulse(p, force, h)

    def middle(change: Array) -> Array:
        return 0.5 * (p + project(p + change)) if on_manifold else p + 0.5 * change

    change = impulse(p)
    if drag or system.takes("force", "v"):
        scale = jnp.max(jnp.abs(p)) + jnp.max(jnp.abs(change))
        solve = newton if p.size <= DENSE_LIMIT else fixed_point
        found, converged = solve(lambda x: x - impulse(middle(x)), change, scale)
        change = jnp.where(converged, found, jnp.nan)
    work = h * mech.energy_time_rate(q)
    if mech.moving:
        # Drag and the moving constraint do their work together: the change of the kinetic energy, less that by U.
        change = project(p + change) - p
        v = mech.velocity(p + 0.5 * change)
        return Kick(change, work + jnp.sum((change - h * conservative) * v))
    if system.force is not None or system.damping is not None:
        v = mech.velocity(middle(change))
        if flow is not None and not on_manifold:
            work = work + _damped_work(mech, flow, conservative, outer(v), p, change, h)
        else:
            push = outer(v) if flow is None else outer(v) - mech.drag(v)
            work = work + h * jnp.sum(push * v)
    return Kick(change, work)


def _damped_work(
    mech: Mechanics, flow: DampingFlow, conservative: Array, outer: Array, p: Array, change: Array, h: Array
) -> Array:
    """∫ (f·v − v·D v) along the exact flow: the change of the kinetic energy less ∫ −∇U·v."""
    kinetic = jnp.sum(change * mech.velocity(p + 0.5 * change))
    travelled = mech.velocity(flow.integral(p, conservative + outer, h))
    return kinetic - jnp.sum(conservative * travelled)
