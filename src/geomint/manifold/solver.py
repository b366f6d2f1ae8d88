"""Onto the manifold g(q) = 0 and into its tangent spaces: the solver under every constrained method.

    position:   g(Q) = 0,   Q = q + h M⁻¹(p − G(q)ᵀμ)   for the impulse μ of the constraint in a drift of length h
    momentum:   (G M⁻¹Gᵀ) ν = G M⁻¹p,   p ← p − Gᵀν

The position equation is solved by Newton's method (`newton`), by the classical sweep of SHAKE, one constraint after another,
also over-relaxed (`sweep`), or in closed form for points on spheres and for rotation matrices (`closed_forms`). Derivatives
are those of the root, not of the iteration.

References: Ryckaert, Ciccotti, Berendsen, J. Comput. Phys. 23 (1977) 327; Barth, Kuczera, Leimkuhler, Skeel, J. Comput.
Chem. 16 (1995) 1192; Hairer, Lubich, Wanner, sections VII.1 and VII.5.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.linalg import Plan
from ..numerics.linalg.machine_code import inner
from ..numerics.linalg.rank import cutoff
from ..numerics.linalg.structure import DENSE_LIMIT, matrix_free
from ..system.mechanics import Mechanics
from .closed_forms import on_sphere, rotation
from .newton import newton
from .normal_space import normal_space, smallest_multipliers
from .place import Drift, Placed
from .scales import seeds
from .sweep import sweeps

# One refinement x → x + δ of a solution of K x = r, K = G M⁻¹Gᵀ, is judged by δᵀKδ relative to xᵀKx, in powers of eps: above
# the first, the pattern of K that the plan knows misses entries; above the second, K is singular.
PATTERN_SHARE = 1.0
SINGULAR_SHARE = 0.5


class Manifold(eqx.Module):
    """How one system's constraint is solved. `way` is "newton", "sweep", "sphere" or "rotation"."""

    way: str = eqx.field(static=True)
    plan: Plan = eqx.field(static=True)
    relaxation: Any = 1.0
    rescue: bool = eqx.field(static=True, default=False)  # cover singular positions, where Newton's method alone fails
    # The coordinates that enter constraints, as places in q.ravel(); None for all. Only these decide how small the rounding
    # of a position is: a satellite's attitude is solved as well at 7e6 m from the origin as at the origin.
    constrained: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def rescued(self) -> Manifold | None:
        """The solver for a step that this one failed to solve, or None where there is none."""
        if self.way != "newton" or self.rescue or self.plan.kind in ("least-squares", "matrix-free"):
            return None
        if self.plan.n > DENSE_LIMIT:  # a basis of the normal space would be too large
            return dataclasses.replace(self, plan=matrix_free(self.plan.n))
        return dataclasses.replace(self, rescue=True)

    # --- positions --------------------------------------------------------------------------------------------------
    def guess(self, impulse: Array, pull: Array) -> Array:
        """What the next solve wants to know of this one: the pull, μ for the sweep, and nothing for closed forms."""
        return {"newton": pull, "sweep": impulse}.get(self.way, jnp.zeros(0, pull.dtype))

    def first_guess(self, mech: Any, q: Array, p: Array) -> Array:
        """The guess at the start of a motion, by unit of time: from the multipliers of the exact motion."""
        if self.way in ("sphere", "rotation"):
            return jnp.zeros(0, q.dtype)
        multipliers = self.multipliers(mech, q, p)
        return self.guess(multipliers, mech.constraint_force(q, multipliers))

    def as_guess(self, mech: Any, q: Array, pull: Array) -> Array:
        """The guess that a pull known by itself gives."""
        if self.way != "sweep":
            return self.guess(pull, pull)
        return self.gram_solve(mech, q, mech.constraint_rate(q, mech.velocity(pull)))

    def place(self, mech: Any, q: Array, p: Array, h: Array, guess: Array) -> Placed:
        """μ with g(q + h M⁻¹(p − G(q)ᵀμ)) = 0."""
        if self.way == "sphere":
            return on_sphere(mech, q, q + mech.displacement(p, h), h)
        if self.way == "rotation":
            return rotation(mech, q, q + mech.displacement(p, h), h)
        drift = Drift(mech, q, p, h)
        m = jax.eval_shape(mech.constraint, q).size

        def solve(_: Any, start: Array) -> tuple[Array, tuple[Array, Array, Array]]:
            if self.way == "sweep":
                found = sweeps(self.plan, self.relaxation, self.constrained, drift, guess)
            else:
                found = newton(self.plan, self.rescue, self.constrained, drift, guess, m)
            # At a singular position the pull has a part along directions that G(q)ᵀ lacks; no multiplier stands for it.
            more = found.pull - drift.pull(found.x) if self._may_add else jnp.zeros((), q.dtype)
            return found.x, (found.converged.astype(q.dtype), found.rounds.astype(q.dtype), more)  # JAX wants floats

        def tangent(linear: Callable[[Array], Array], right: Array) -> Array:
            """The operator is −K."""
            apply = lambda d: -linear(d)
            factored = self.plan.factor(apply, right.dtype)
            x = factored.solve(right)
            for _ in range(2 if self.plan.assembled else 0):  # entries that the pattern of the plan misses
                x = x + factored.solve(right - apply(x))
            return -x

        residual = lambda x: mech.constraint(drift.at(x))
        x, (converged, rounds, more) = jax.lax.custom_root(
            residual, jnp.zeros(m, q.dtype), solve, tangent, has_aux=True
        )
        pull = drift.pull(x) + jax.lax.stop_gradient(more) if self._may_add else drift.pull(x)
        return Placed(x * (1 / drift.stride), pull, converged > 0, rounds)

    @property
    def _may_add(self) -> bool:
        return self.way == "newton" and (self.rescue or self.plan.kind == "least-squares")

    def polish(self, q: Array) -> Array:
        """What brings q back onto the manifold where a closed form leaves rounding to add up: ½Q(I − QᵀQ) for rotations."""
        if self.way != "rotation":
            return jnp.zeros((), q.dtype)
        return 0.5 * q @ (jnp.eye(3, dtype=q.dtype) - jnp.swapaxes(q, -1, -2) @ q)

    # --- momenta ----------------------------------------------------------------------------------------------------
    def normal_part(self, mech: Mechanics, q: Array, p: Array) -> Array:
        """Gᵀν with G M⁻¹(p − Gᵀν) = 0."""
        pull = mech.constraint_pull(q)
        if self.way == "sphere":
            arm = q - mech.system.constraint.centre
            return pull(jnp.atleast_1d(jnp.sum(arm * p, axis=-1) / (2 * jnp.sum(arm**2, axis=-1))))
        if self.rescue or self.plan.kind == "least-squares":
            return normal_space(mech, q, p).part(mech, p)
        return pull(self.gram_solve(mech, q, mech.constraint_rate(q, mech.velocity(p))))

    def multipliers(self, mech: Mechanics, q: Array, p: Array) -> Array:
        """λ of the exact motion: (G M⁻¹Gᵀ) λ = G M⁻¹f + g''(v, v)."""
        right = mech.constraint_rate(q, mech.velocity(mech.force(q))) + mech.constraint_curvature(q, mech.velocity(p))
        return self.gram_solve(mech, q, right)

    def gram_solve(self, mech: Mechanics, q: Array, right: Array) -> Array:
        """x with (G M⁻¹Gᵀ) x = right; the smallest, where constraints depend on each other."""
        if self.rescue or self.plan.kind == "least-squares":
            return smallest_multipliers(mech, q, right)
        apply = lambda d: mech.constraint_rate(q, mech.velocity(mech.constraint_force(q, d)))
        if self.plan.kind == "matrix-free":
            return self.plan.solve(apply, right).x
        if not self.plan.assembled:
            return self._checked(apply, right)
        return jax.lax.custom_linear_solve(apply, right, self._or_without_pattern, symmetric=True)

    def _checked(self, apply: Callable[[Array], Array], right: Array) -> Array:
        """x with K x = right by the plan; NaN where K is singular, on which the host loop takes the step by `rescued`."""
        x, off, size = self._refined(apply, right)
        return jnp.where(off <= cutoff(right.dtype, SINGULAR_SHARE) * size, x, jnp.nan)

    def _or_without_pattern(self, apply: Callable[[Array], Array], right: Array) -> Array:
        """x with K x = right by the plan, or by conjugate gradients where K has entries that the plan does not know."""
        x, off, size = self._refined(apply, right)
        sound = off <= cutoff(right.dtype, PATTERN_SHARE) * size
        return jnp.where(sound, x, _where_needed(sound, lambda: self._scaled_gradients(apply, right)))

    def _refined(self, apply: Callable[[Array], Array], right: Array) -> tuple[Array, Array, Array]:
        """x by the plan, δᵀKδ of its refinement, and xᵀKx. No unit enters the comparison of the two."""
        factored = self.plan.factor(apply, right.dtype)
        x = factored.solve(right)
        rest = right - apply(x)
        return x, jnp.abs(inner(factored.solve(rest), rest)), jnp.abs(inner(x, right))

    def _scaled_gradients(self, product: Callable[[Array], Array], right: Array) -> Array:
        """Conjugate gradients on the matrix with rows and columns scaled to a diagonal of ones, as far as its pattern is known."""
        groups = seeds(self.plan.n, self.plan)
        products = jax.vmap(product)(jnp.asarray(groups, right.dtype))
        diagonal = jnp.sum(jnp.where(groups, products, 0.0), axis=0)
        scale = jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0)), 1.0)
        return scale * matrix_free(self.plan.n).solve(lambda d: scale * product(scale * d), scale * right).x


def _where_needed(sound: Array, compute: Callable[[], Array]) -> Array:
    """compute(), or zeros where all is sound: a loop of at most one round, which a batch of members skips if none needs it."""
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(compute))
    body = lambda s: (compute(), jnp.ones((), bool))
    return jax.lax.while_loop(lambda s: ~s[1], body, (nothing, jax.lax.stop_gradient(sound)))[0]
