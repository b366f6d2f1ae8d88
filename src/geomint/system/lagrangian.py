"""Systems stated by a Lagrangian: position-dependent mass, generalised coordinates, forces that do work.

d/dt ∂L/∂v − ∂L/∂q = f(q, v, t) − Gᵀλ,    g(q) = 0.

L and g may depend on the time: dE/dt = −∂L/∂t + f·v + λᵀ∂g/∂t for the energy E = v·∂L/∂v − L.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..numerics.compensated import value
from ..numerics.keywords import checked_keywords
from ..numerics.linalg.newton import dense_solve, inverse
from ..numerics.polynomials import degree
from .checks import function
from .group_mechanics import GroupMechanics
from .mechanics import Derived, Mechanics, Position, scalar
from .symmetries import Symmetry
from .system import Stated, System, as_function, checked_origin, checked_params, checked_symmetries, checked_watch


class LagrangianSystem(Stated):
    """A system by its Lagrangian.

    lagrangian:  L(q, v) -> scalar, and by name t and params; ∂²L/∂v² must be invertible. It need not be
                 quadratic in v, nor have a value for every v (a relativistic particle).
    constraint:  g(q) -> (m,), holonomic; g(q, t) moves.
    force:       f(q, v, t) -> an array like q: friction, drives, controls. Work is done, energy is not conserved.
    symmetries, params, watch: as for System.
    """

    lagrangian: Any
    force: Any

    @checked_keywords
    def __init__(
        self,
        lagrangian: Callable,
        constraint: Callable | None = None,
        force: Callable | None = None,
        symmetries: Sequence[Symmetry] | Symmetry = (),
        params: PyTree = None,
        watch: Mapping[str, Callable] | None = None,
        origin: str | None = None,
    ):
        self.lagrangian = as_function("lagrangian", function(lagrangian, "lagrangian", of="(q, v)"))
        self.constraint = as_function("constraint", constraint)
        self.force = as_function("force", force)
        self.symmetries = checked_symmetries(symmetries)
        self.params = checked_params(params)
        self.watch = checked_watch(watch)
        self.origin = checked_origin(origin)


class LagrangianMechanics(Derived):
    """The derived quantities of a Lagrangian system."""

    system: LagrangianSystem
    time: Any

    def __init__(self, system: LagrangianSystem, shape: tuple[int, ...] | None = None, time: Any = 0.0):
        self.system = system
        self.time = jnp.asarray(time, float) if system.depends_on_time else None

    def lagrangian(self, q: Array, v: Array) -> Array:
        return scalar("lagrangian", self.system.call(self.system.lagrangian, q, v=v, t=self.time), q)

    def energy_time_rate(self, q: Array, v: Array) -> Array:
        """∂E/∂t = −∂L/∂t."""
        if not self.system.takes("lagrangian", "t"):
            return jnp.zeros((), q.dtype)
        return -self._by_time(lambda mech: mech.lagrangian(q, v))

    def momentum_at(self, q: Position, v: Position) -> Array:
        """p = ∂L/∂v."""
        return jax.grad(self.lagrangian, argnums=1)(value(q), value(v))

    def velocity_at(self, q: Position, p: Position, guess: Array | None = None) -> Array:
        """v with ∂L/∂v(q, v) = p: by a linear solve if the jaxpr of L proves that L is quadratic in v, else by damped
        Newton steps from `guess`. NaN where there is no such v, or none is found."""
        q, p = value(q), value(p)
        momentum = lambda v: self.momentum_at(q, v)
        if self.quadratic_in_velocity(q):
            zero = jnp.zeros_like(p)
            improved = lambda v: v - dense_solve(lambda d: momentum(d) - momentum(zero), momentum(v) - p)
            return improved(improved(zero))  # the second solve removes rounding errors of the first
        v, converged = inverse(momentum, p, self._velocity_to_start_from(momentum, p, guess))
        return jnp.where(converged, v, jnp.nan)

    def quadratic_in_velocity(self, q: Position) -> bool:
        """Whether the jaxpr of L proves that L is a polynomial of degree at most two in v; p is then affine in v."""
        q = value(q)
        return degree(lambda v: self.lagrangian(q, v), jax.ShapeDtypeStruct(q.shape, q.dtype)) <= 2

    @staticmethod
    def _velocity_to_start_from(momentum: Callable[[Array], Array], p: Array, guess: Array | None) -> Array:
        """Where Newton's method starts: `guess`, or if that is None or ∂L/∂v is not finite there, the one of 0 and
        multiples of p whose momentum is nearest to p. (At 0 alone, ∂²L/∂v² may be singular, as for L = v⁴.)"""
        multiples = jnp.asarray([0.0, *4.0 ** np.arange(-6, 7)], p.dtype)
        candidates = jnp.multiply.outer(multiples, p)
        miss = jax.vmap(lambda v: jnp.max(jnp.abs(momentum(v) - p)))(candidates)
        best = candidates[jnp.argmin(jnp.where(jnp.isfinite(miss), miss, jnp.inf))]
        start = best if guess is None else jnp.where(jnp.all(jnp.isfinite(momentum(guess))), guess, best)
        return jax.lax.stop_gradient(start)

    def energy(self, q: Position, p: Position, guess: Array | None = None) -> Array:
        """E = v·∂L/∂v − L."""
        q, p = value(q), value(p)
        v = self.velocity_at(q, p, guess)
        return jnp.sum(p * v) - self.lagrangian(q, v)

    def kinetic_at(self, q: Position, p: Position) -> Array:
        """The energy without that at rest, E(q, p) + L(q, 0)."""
        return self.energy(q, p) + self.lagrangian(value(q), jnp.zeros_like(value(q)))

    def acceleration(self, q: Position, v: Array, t: Array | float | None = None) -> Array:
        """q̈ of the equation of motion, constrained or not; at another time where one is given."""
        return (self if t is None else self.at(t))._accelerated(value(q), v)[0]

    def multipliers(self, q: Position, v: Array) -> Array:
        """λ of the exact motion."""
        return self._accelerated(value(q), v)[1]

    def _accelerated(self, q: Array, v: Array) -> tuple[Array, Array]:
        """q̈ and λ: mass·q̈ = ∂L/∂q − d/dt ∂L/∂v|_{v fixed} + f − Gᵀλ, with the second derivative of g zero."""
        n = q.size
        mass = jax.jacfwd(self.momentum_at, argnums=1)(q, v).reshape(n, n)
        push = (
            jax.grad(self.lagrangian)(q, v)
            - jax.jvp(lambda x: self.momentum_at(x, v), (q,), (v,))[1]
            + self.outer_force(q, v)
        )
        if self.system.takes("lagrangian", "t"):
            push = push - self._by_time(lambda mech: mech.momentum_at(q, v))
        free = jnp.linalg.solve(mass, push.ravel())
        if self.system.constraint is None:
            return free.reshape(q.shape), jnp.zeros(0, q.dtype)
        jacobian = self.constraint_jacobian(q)
        weighted = jnp.linalg.solve(mass, jacobian.T)
        multipliers = jnp.linalg.solve(jacobian @ weighted, jacobian @ free + self.constraint_curvature(q, v))
        return (free - weighted @ multipliers).reshape(q.shape), multipliers


def derive(system: Any, shape: tuple[int, ...] | None = None, time: Any = 0.0) -> Any:
    """The derived quantities of a system of either kind, at a time that counts where its functions depend on it."""
    if isinstance(system, LagrangianSystem):
        return LagrangianMechanics(system, shape, time)
    return (Mechanics if system.space.flat else GroupMechanics)(system, shape, time)


__all__ = ["LagrangianMechanics", "LagrangianSystem", "System", "derive"]
