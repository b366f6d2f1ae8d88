"""What methods on Lie groups share: kicks of the body momentum, and displacements q ← q·τ(w) found from a momentum.

With velocities and momenta trivialised from the left (see system/spaces.py), a discrete Lagrangian T_d(w) of the
displacement w = τ⁻¹(q₀⁻¹q₁) has the momenta

    p₀ = (dτ_w⁻¹)ᵀμ,      p₁ = (dτ_{−w}⁻¹)ᵀμ,      μ = ∂T_d/∂w = M w/h.

The first equation is solved for w, which is implicit where M is not a multiple of the identity; the others are
explicit. p₁ = Ad*_τ(w) p₀, so that the momentum in space is kept exactly.

References: Bou-Rabee, Marsden, Found. Comput. Math. 9 (2009) 197; Hairer, Lubich, Wanner, section VII.5; Kobilarov,
Crane, Desbrun, ACM Trans. Graph. 28 (2009) 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.compensated import value
from ..numerics.linalg import newton
from ..numerics.rotations import solve3
from ..system.mechanics import Mechanics
from .base import Carry, State, Traits
from .protocols import CanFail

NOT_SOLVED = 1  # status: the equation of a displacement was not solved
LIE_GROUP = ("lie group",)


class Moved(NamedTuple):
    """What a displacement adds to q and to p, and whether its equation was solved."""

    change: Array
    impulse: Array
    converged: Any


class GroupCarry(NamedTuple):
    """What methods on groups carry."""

    q: Any
    p: Any
    force: Any  # f(q)
    status: Any


def per_block(apply: Callable[[Array], Array], right: Array) -> Array:
    """A(x) = right for a linear map that acts on each row of the last axis by itself; rows of three by Cramer's
    rule."""
    k = right.shape[-1]
    columns = jnp.stack([apply(jnp.broadcast_to(unit, right.shape)) for unit in jnp.eye(k, dtype=right.dtype)], axis=-1)
    return solve3(columns, right) if k == 3 else jnp.linalg.solve(columns, right[..., None])[..., 0]


def displacement(mech: Any, q: Any, p: Any, h: Array, map: str) -> Moved:
    """The displacement of a body without forces in a step of length h, from (dτ_w⁻¹)ᵀ M w/h = p.

    Newton's method starts from w = h M⁻¹(p + ½ h ad*_v p), v = M⁻¹p, which is off by O(h³)."""
    q, p, space = value(q), value(p), mech.space
    v = mech.velocity(p)
    start = h * mech.velocity(p + (0.5 * h) * space.coadjoint(v, p))
    # In units of w: h M⁻¹ times the equation. Its derivative is the identity up to O(h).
    residual = lambda w: h * mech.velocity(space.cotangent(w, mech.momentum(w) / h, map) - p)
    w, converged = newton(residual, start, jnp.max(jnp.abs(start)), per_block)
    return moved_by(space, q, w, mech.momentum(w) / h, p, map, converged)


def moved_by(space: Any, q: Array, w: Array, mu: Array, p: Array, map: str, converged: Any) -> Moved:
    """The change of q, with what keeps it on the group, and that of the momentum."""
    return Moved(space.increment(q, w, map) + space.polish(q), space.transport(w, mu, p, map), converged)


class OnGroup(CanFail):
    """A symmetric step on a group: half a kick, a free displacement, half a kick; the force is carried."""

    failures: ClassVar[Mapping[int, str]] = {
        NOT_SOLVED: "the equation of a displacement was not solved: a body turns by a radian or more in a step"
    }

    @property
    def traits(self) -> Traits:
        return Traits(
            2,
            symplectic=True,
            symmetric=True,
            reversible=True,
            energy="bounded",
            momentum_maps="all",
            needs=LIE_GROUP,
            forces=1,
        )

    def displace(self, mech: Any, q: Any, p: Any, h: Array) -> Moved:
        """The free displacement in a step of length h."""
        raise NotImplementedError

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        return GroupCarry(state.q, state.p, mech.force(state.q), jnp.zeros((), int))

    def step(self, mech: Mechanics, carry: GroupCarry, dt: Array) -> GroupCarry:
        p = carry.p + (0.5 * dt) * carry.force
        moved = self.displace(mech, carry.q, p, dt)
        q = carry.q + moved.change
        force = mech.force(q)
        p = p + (moved.impulse + (0.5 * dt) * force)
        return GroupCarry(q, p, force, _status(carry.status, moved))

    def output(self, mech: Mechanics, carry: GroupCarry) -> State:
        return State(carry.q, carry.p)

    def status(self, carry: GroupCarry) -> Array:
        return carry.status

    def explain(self, status: int, mech: Any, q: Any, dt: float) -> str:
        return f". Try dt = {dt / 4:g}"


def _status(before: Any, moved: Moved) -> Any:
    return jnp.where((before == 0) & ~moved.converged, NOT_SOLVED, before)
