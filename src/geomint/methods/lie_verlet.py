"""Variational methods on Lie groups by a map from the algebra: Lie–Verlet, and variational Euler with the Cayley
map."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ..errors import InputError
from ..numerics.compensated import value
from ..numerics.linalg import newton
from ..system.checks import one_of
from ..system.mechanics import Mechanics
from ..system.spaces import MAPS, SO3
from ..system.system import Stated
from .base import Traits, register, setting
from .on_groups import GroupCarry, Moved, OnGroup, _status, displacement, moved_by


@register({}, {"map": "exponential"})
class LieVerlet(OnGroup):
    """Störmer–Verlet on a Lie group, the discrete Lagrangian h·½⟨M w/h, w/h⟩ − ½h(V(q₀) + V(q₁)) with q₁ = q₀ τ(w):

    p₊ = p₀ + ½h f(q₀),   (dτ_w⁻¹)ᵀ M w/h = p₊,   q₁ = q₀ τ(w),   p₁ = (dτ_{−w}⁻¹)ᵀ M w/h + ½h f(q₁).

    Order 2, symmetric, symplectic; momentum maps of rotations of space are kept to rounding. Composition(LieVerlet(),
    order=4, 6 or 8) raises the order.

    map:  τ, "cayley" (rational) or "exponential".

    Reference: Bou-Rabee, Marsden, Found. Comput. Math. 9 (2009) 197.
    """

    map: str = setting(one_of(*MAPS), "cayley")

    def displace(self, mech: Any, q: Any, p: Any, h: Array) -> Moved:
        return displacement(mech, q, p, h, self.map)


@register()
class CayleyVariationalEuler(OnGroup):
    """Variational Euler with the Cayley map (Tao and Owhadi 2015, equation 4.12), of order 1:

    p₊ = p₀ + h f(q₀),   (dcay_w⁻¹)ᵀ M w/h = p₊,   q₁ = q₀ cay(w),   p₁ = (dcay_{−w}⁻¹)ᵀ M w/h.

    For a ball, M = I·1, w is parallel to p₊, and the equation is that of the factor k in w = h k p₊/I:
    k + ¼|h p₊/I|² k³ = 1, which has one real root. In terms of Ω = w/h the momenta are p₁ = I(1 + ¼h²|Ω|²)Ω; without
    forces that spin the body about its own axis Ω₃(1 + ¼h²|Ω|²) is constant.
    """

    @property
    def traits(self) -> Traits:
        return dataclasses.replace(super().traits, order=1, symmetric=False, reversible=False)

    def step(self, mech: Mechanics, carry: GroupCarry, dt: Array) -> GroupCarry:
        p = carry.p + dt * carry.force
        moved = self.displace(mech, carry.q, p, dt)
        q = carry.q + moved.change
        return GroupCarry(q, p + moved.impulse, mech.force(q), _status(carry.status, moved))

    def displace(self, mech: Any, q: Any, p: Any, h: Array) -> Moved:
        if not (mech.one_mass and isinstance(mech.space, SO3)):
            return displacement(mech, q, p, h, "cayley")
        straight = h * mech.velocity(p)
        quarter = 0.25 * jnp.sum(straight * straight, axis=-1, keepdims=True)
        one = jnp.ones((), quarter.dtype)
        # Convex and increasing in k > 0: Newton's method converges from every start on the right of the root.
        solve = lambda apply, right: right / apply(jnp.ones_like(right))
        k, converged = newton(lambda k: k + quarter * k**3 - 1, jnp.ones_like(quarter), one, solve)
        w = k * straight
        return moved_by(mech.space, value(q), w, mech.momentum(w) / h, value(p), "cayley", converged)

    def check(self, system: Stated) -> None:
        super().check(system)
        space = getattr(system, "space", None)
        if getattr(space, "is_quadratic", True) is False:
            raise InputError(f"{self.name}: the Cayley map leaves this group; use LieVerlet(map='exponential').")
