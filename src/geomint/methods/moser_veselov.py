"""Rigid bodies by discrete rotations F = q₀ᵀq₁ instead of vectors: Moser–Veselov."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ..errors import InputError
from ..numerics.compensated import value
from ..numerics.linalg import newton
from ..numerics.rotations import cross, dot, hat, solve3
from ..system.mass import mass_is_matrix
from ..system.spaces import SO3
from ..system.system import Stated
from .base import register
from .on_groups import Moved, OnGroup


@register()
class MoserVeselov(OnGroup):
    """The discrete top of Moser and Veselov, with half kicks by the potential before and after:

    p₊ = p₀ + ½h f(q₀),   h p̂₊ = F D − D Fᵀ,   q₁ = q₀ F,   p₁ = Fᵀp₊ + ½h f(q₁),   D = ½ tr(I) − I.

    Its discrete Lagrangian −tr(q₀ D q₁ᵀ)/h is that of RATTLE by matrices, whose momenta and rotations it reproduces
    with 12 numbers instead of 18. Order 2, symmetric, symplectic. Of the free top it keeps the energy and |p| to
    rounding: its momentum follows the exact path at another speed. The step solves three equations for the vector part
    e of the unit quaternion of F:

    2e₀e₁ I₁ + 2e₂e₃(I₃ − I₂) = h p₁ and cyclic,   e₀² + |e|² = 1.

    References: Moser, Veselov, Commun. Math. Phys. 139 (1991) 217; McLachlan, Zanna, Found. Comput. Math. 5 (2005) 87;
    Lee, Leok, McClamroch, Comput. Methods Appl. Mech. Eng. 196 (2007) 2907.
    """

    def check(self, system: Stated) -> None:
        super().check(system)
        mass = getattr(system, "mass", None)
        if not isinstance(getattr(system, "space", None), SO3) or (mass is not None and _is_tensor(mass)):
            raise InputError(
                f"{self.name} moves rotations of bodies by their principal moments, RigidBody((I1, I2, I3)) without a "
                "mass; for other groups and for inertias that are matrices use LieVerlet()."
            )

    def displace(self, mech: Any, q: Any, p: Any, h: Array) -> Moved:
        q, p = value(q), value(p)
        moments = jnp.broadcast_to(mech.system.mass, p.shape)
        turn = lambda x: jnp.roll(x, -1, axis=-1)
        twist = turn(turn(moments)) - turn(moments)  # I₃ − I₂ and cyclic
        right = h * p

        def residual(e: Array) -> Array:
            zeroth = jnp.sqrt(1 - dot(e, e))
            return 2 * zeroth * e * moments + 2 * turn(e) * turn(turn(e)) * twist - right

        def solve(apply: Any, r: Array) -> Array:
            units = jnp.eye(3, dtype=r.dtype)
            return solve3(jnp.stack([apply(jnp.broadcast_to(unit, r.shape)) for unit in units], axis=-1), r)

        e, converged = newton(residual, right / (2 * moments), jnp.ones((), q.dtype), solve)
        zeroth = jnp.sqrt(1 - dot(e, e))
        # F − I = 2e₀ê + 2ê², and Fᵀp − p by the same products.
        skew = hat(e)
        change = q @ (2 * zeroth[..., None] * skew + 2 * skew @ skew)
        turned = cross(e, p)
        impulse = 2 * cross(e, turned) - 2 * zeroth * turned
        return Moved(change + mech.space.polish(q), impulse, converged)


def _is_tensor(mass: Any) -> bool:
    """Whether the mass of bodies on SO(3) couples their principal axes."""
    shape = mass.shape
    return len(shape) >= 2 and (shape == (3, 3) or mass_is_matrix(mass, (shape[0], 3)))
