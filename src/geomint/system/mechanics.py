"""Mechanics(system): all that follows from what the user stated, by differentiation. Derivatives are taken only here.

Notation: U = V + W the whole potential, M the mass, G = ∂g/∂q, f the outer force, D the damping. Methods call these
with plain arrays or with compensated ones; everything is evaluated at the value.

Functions of a system may depend on the time. Mechanics then has a time: `at(t)` and `after(h)` return the mechanics of
another one. For other systems both return the mechanics itself, and no operation is added to a step.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..errors import InputError
from ..numerics.compensated import Compensated, value
from ..numerics.hints import materialize
from ..numerics.linalg.sparse_matrix import SparseMatrix
from ..numerics.module import Module
from .calls import takes
from .damping import DampingFlow
from .inertia import Inertia, inertia
from .magnetic import as_field, cross, field_shape
from .mass import mass_is_matrix
from .system import System

Position = Array | Compensated


def real_array(name: str, x: Any) -> Array:
    """What a user's function returned, as an array of real numbers."""
    try:
        x = jnp.asarray(x)
    except (TypeError, ValueError):
        raise InputError(f"{name} must return real numbers, but it returns {type(x).__name__}.") from None
    if not (jnp.issubdtype(x.dtype, jnp.floating) or jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == bool):
        raise InputError(f"{name} must return real numbers, not {x.dtype}.")
    return x


def scalar(name: str, energy: Any, q: Array) -> Array:
    if energy is None:
        raise InputError(f"{name}(q) must return one number, but it returns None; is a `return` missing?")
    energy = real_array(f"{name}(q)", energy)
    if energy.shape != ():
        hint = "return its sum" if energy.size > 1 else "return a scalar, as jnp.sum does"
        raise InputError(
            f"{name}(q) must return one number, but for q of shape {q.shape} it returns an array of shape "
            f"{energy.shape}; {hint}."
        )
    if energy.dtype != q.dtype and jnp.issubdtype(energy.dtype, jnp.floating):
        raise InputError(
            f"{name}(q) returns {energy.dtype} although q is {q.dtype}: something inside lowers the precision (a "
            "cast, or dtype=jnp.float32)."
        )
    return energy.astype(q.dtype)


class Derived(Module):
    """What follows from a constraint, an outer force and symmetries, whatever the energy is."""

    system: eqx.AbstractVar[Any]
    time: eqx.AbstractVar[Any]  # None where no function of the system depends on it

    # --- time -------------------------------------------------------------------------------------------------------
    def at(self, t: Any) -> Self:
        """The mechanics at time t."""
        if self.time is None:
            return self
        return eqx.tree_at(lambda m: m.time, self, jnp.asarray(t, float))

    def after(self, h: Any) -> Self:
        """The mechanics at a time later by h."""
        return self if self.time is None else self.at(self.time + h)

    @property
    def driven(self) -> bool:
        """Whether the energy changes along the exact motion; methods then save the work."""
        return self.system.driven

    def _by_time(self, function: Callable[[Any], Array]) -> Array:
        """∂/∂t of function(mechanics)."""
        t = jnp.asarray(self.time, float)
        return jax.jvp(lambda s: function(self.at(s)), (t,), (jnp.ones_like(t),))[1]

    # --- outer forces -----------------------------------------------------------------------------------------------
    def outer_force(self, q: Position, v: Array) -> Array:
        """f(q, v, t), zero where none is stated."""
        q = value(q)
        if self.system.force is None:
            return jnp.zeros_like(q)
        force = real_array("force(q, v, t)", self.system.call(self.system.force, q, v=v, t=self.time))
        if force.shape != q.shape:
            raise InputError(f"force(q, v, t) must return an array of the shape of q, {q.shape}, not {force.shape}.")
        return force.astype(q.dtype)

    def nonconservative_force(self, q: Position, v: Array) -> Array:
        """All that does work besides the potential: f(q, v, t), and of a System − D v."""
        return self.outer_force(q, v)

    # --- constraints ------------------------------------------------------------------------------------------------
    def constraint(self, q: Position) -> Array:
        """g(q), always a vector."""
        q = value(q)
        if self.system.constraint is None:
            return jnp.zeros((0,), q.dtype)
        g = real_array("constraint(q)", self.system.call(self.system.constraint, q, t=self.time))
        if g.ndim > 1:
            raise InputError(f"constraint(q) must return a vector (m,), not an array of shape {g.shape}; ravel it.")
        if not g.size:
            raise InputError("constraint(q) returns no numbers. Leave it out where the system is free.")
        return g.reshape(-1) if jnp.issubdtype(g.dtype, jnp.floating) else g.reshape(-1).astype(q.dtype)

    def constraint_rate(self, q: Position, v: Array) -> Array:
        """G(q) v."""
        return jax.jvp(self.constraint, (value(q),), (v,))[1]

    def constraint_force(self, q: Position, multipliers: Array) -> Array:
        """G(q)ᵀλ."""
        return jax.vjp(self.constraint, value(q))[1](multipliers)[0]

    def constraint_pull(self, q: Position) -> Callable[[Array], Array]:
        """G(q)ᵀ, for many λ."""
        pull = jax.tree.map(materialize, jax.vjp(self.constraint, value(q))[1])
        return lambda multipliers: pull(multipliers)[0]

    @property
    def moving(self) -> bool:
        """Whether the constraint depends on the time."""
        return self.system.takes("constraint", "t")

    def constraint_time_rate(self, q: Position) -> Array:
        """∂g/∂t."""
        return self._by_time(lambda mech: mech.constraint(q)) if self.moving else jnp.zeros_like(self.constraint(q))

    def velocity_constraint(self, q: Position, v: Array) -> Array:
        """G(q) v + ∂g/∂t, which vanishes along a motion."""
        rate = self.constraint_rate(q, v)
        return rate + self.constraint_time_rate(q) if self.moving else rate

    def constraint_curvature(self, q: Position, v: Array) -> Array:
        """g''(q)(v, v); of a moving constraint the second derivative in the direction (v, 1) of (q, t)."""
        if self.moving:
            line = lambda s: self.after(s).constraint(value(q) + s * v)
            slope = lambda s: jax.jvp(line, (s,), (jnp.ones_like(s),))[1]
            zero = jnp.zeros((), value(q).dtype)
            return jax.jvp(slope, (zero,), (jnp.ones_like(zero),))[1]
        rate = lambda x: jax.jvp(self.constraint, (x,), (v,))[1]
        return jax.jvp(rate, (value(q),), (v,))[1]

    def constraint_jacobian(self, q: Position) -> Array:
        """G(q) as a matrix (m, n); for small m or for tests."""
        q = value(q)
        return jax.jacrev(self.constraint)(q).reshape(-1, q.size)

    # --- what is watched --------------------------------------------------------------------------------------------
    def momentum_maps(self, q: Position, p: Position) -> dict[str, Array]:
        """J(q, p) of every stated symmetry, by name."""
        return {
            name: symmetry.momentum_map(value(q), value(p)) for name, symmetry in self.system.named_symmetries.items()
        }

    def watched(self, q: Position, p: Position, t: Any) -> dict[str, Array]:
        """What the system asks to be watched, by name, at time t; Mechanics has no time where only watched functions
        depend on it."""
        watch = self.system.watch.items()
        seen = {name: self.called(f"watch[{name!r}]", f, value(q), value(p), t) for name, f in watch}
        return {name: real_array(f"watch[{name!r}](q, p)", x).astype(value(q).dtype) for name, x in seen.items()}

    def called(self, name: str, function: Any, q: Array, p: Array, t: Any) -> Any:
        """A function of the user's of (q, p) and, by name, of v, t and params, which is no part of the energy; `name`
        is what it is called in errors (calls.py lists the kinds)."""
        has_v = takes(name, function, "v", self.system.params is not None)
        v = self.velocity_at(q, p) if has_v else None
        return self.system.call(function, q, p, v=v, t=t, name=name)

    @abc.abstractmethod
    def velocity_at(self, q: Position, p: Position, guess: Array | None = None) -> Array:
        """The velocity of the momentum p at q."""


class Mechanics(Derived):
    """The derived quantities of a system."""

    system: System
    inertia: Inertia
    time: Any
    auxiliary: Any  # the auxiliary state of the system; None outside a run, and where it has none

    def __init__(self, system: System, shape: tuple[int, ...] | None = None, time: Any = 0.0):
        """`shape` is that of q; without it a square mass is taken for a matrix."""
        self.system, self.auxiliary = system, None
        self.time = jnp.asarray(time, float) if system.depends_on_time else None
        self.inertia = inertia(system.mass, shape)

    def with_auxiliary(self, auxiliary: Any) -> Self:
        """The mechanics with this auxiliary state."""
        return eqx.tree_at(lambda m: m.auxiliary, self, auxiliary, is_leaf=lambda x: x is None)

    # --- energy -----------------------------------------------------------------------------------------------------
    def slow_potential(self, q: Position) -> Array:
        """V(q)."""
        q = value(q)
        if self.system.potential is None:
            return jnp.zeros((), q.dtype)
        return scalar("potential", self.system.call(self.system.potential, q, t=self.time, auxiliary=self.auxiliary), q)

    def fast_potential(self, q: Position) -> Array:
        """W(q)."""
        q = value(q)
        if self.system.fast is None:
            return jnp.zeros((), q.dtype)
        return scalar("fast", self.system.call(self.system.fast, q, t=self.time, auxiliary=self.auxiliary), q)

    def potential(self, q: Position) -> Array:
        """U = V + W."""
        return self.slow_potential(q) if self.system.fast is None else self.slow_potential(q) + self.fast_potential(q)

    def energy_time_rate(self, q: Position, v: Array | None = None) -> Array:
        """∂H/∂t = ∂U/∂t."""
        if not (self.system.takes("potential", "t") or self.system.takes("fast", "t")):
            return jnp.zeros((), value(q).dtype)
        return self._by_time(lambda mech: mech.potential(q))

    def kinetic(self, p: Position) -> Array:
        """½ pᵀM⁻¹p."""
        return 0.5 * jnp.sum(value(p) * self.velocity(p))

    def kinetic_at(self, q: Position, p: Position) -> Array:
        """The kinetic energy, as for any kind of system."""
        return self.kinetic(p)

    def energy(self, q: Position, p: Position) -> Array:
        """H = ½ pᵀM⁻¹p + U(q)."""
        return self.kinetic(p) + self.potential(q)

    def lagrangian(self, q: Array, v: Array) -> Array:
        """L = ½ vᵀMv − U(q)."""
        return 0.5 * jnp.sum(v * self.momentum(v)) - self.potential(q)

    # --- forces that do work ----------------------------------------------------------------------------------------
    def drag(self, v: Array) -> Array:
        """D v, zero without damping."""
        damping = self.system.damping
        if damping is None:
            return jnp.zeros_like(v)
        if isinstance(damping, SparseMatrix):
            return self.system.damping_rate * self.momentum(v)  # the only sparse D that is accepted is γM
        return (damping @ v.ravel()).reshape(v.shape) if mass_is_matrix(damping, v.shape) else damping * v

    def nonconservative_force(self, q: Position, v: Array) -> Array:
        """f(q, v, t) − D v."""
        force = self.outer_force(q, v)
        return force if self.system.damping is None else force - self.drag(v)

    def total_force(self, q: Position, v: Array) -> Array:
        """−∇U(q) + f(q, v, t) − D v + e v × B(q, t)."""
        force = self.force(q) + self.nonconservative_force(q, v)
        return force if self.system.magnetic_field is None else force + self.magnetic_force(q, v)

    def damping_flow(self, shape: tuple[int, ...]) -> DampingFlow | None:
        """The exact flow of ṗ = N − D M⁻¹p for q of that shape; None without damping."""
        return None if self.system.damping is None else DampingFlow.of(self.system.mass, self.system.damping, shape)

    # --- the magnetic field -----------------------------------------------------------------------------------------
    def magnetic_field(self, q: Position) -> Array:
        """e B(q, t): a vector at each particle, in the plane a number."""
        q = value(q)
        b = real_array("magnetic_field(q)", self.system.call(self.system.magnetic_field, q, t=self.time))
        charge = jnp.asarray(self.system.charge)
        each = charge[..., None] if charge.ndim and q.shape[-1] == 3 else charge
        return each * as_field(b, q.shape).astype(q.dtype)

    def magnetic_force(self, q: Position, v: Array) -> Array:
        """e v × B(q, t)."""
        return cross(v, self.magnetic_field(q))

    def gyration(self, q: Position) -> Array:
        """Ω = e B(q, t)/m, in the shape of the field: v̇ = v × Ω."""
        shape = value(q).shape
        inverse = self.inertia.velocity(jnp.ones(shape, value(q).dtype))  # M is diagonal: matrices are refused
        return self.magnetic_field(q) * (inverse if field_shape(shape) == shape else inverse[..., 0])

    # --- mass -------------------------------------------------------------------------------------------------------
    def velocity(self, p: Position) -> Array:
        """M⁻¹p."""
        return self.inertia.velocity(value(p))

    @property
    def one_mass(self) -> bool:
        """Whether M is a number."""
        return self.system.mass.size == 1

    def displacement(self, p: Position, h: Array) -> Array:
        """h M⁻¹p: a drift."""
        return self.inertia.displacement(value(p), h)

    def momentum(self, v: Position) -> Array:
        """M v."""
        return self.inertia.momentum(value(v))

    def momentum_at(self, q: Position, v: Position) -> Array:
        """∂L/∂v, as for any kind of system; here M v."""
        return self.momentum(v)

    def velocity_at(self, q: Position, p: Position, guess: Array | None = None) -> Array:
        """Its inverse; here M⁻¹p."""
        return self.velocity(p)

    # --- derivatives of the potential -------------------------------------------------------------------------------
    def slow_gradient(self, q: Position) -> Array:
        """∇V(q), by hand where the system overrides it."""
        q = value(q)
        if self.system.potential is None:
            return jnp.zeros_like(q)
        by_hand = self.system.overrides.get("gradient")
        return (
            jax.grad(self.slow_potential)(q)
            if by_hand is None
            else self.system.call(by_hand, q, t=self.time, auxiliary=self.auxiliary)
        )

    def fast_gradient(self, q: Position) -> Array:
        """∇W(q), by hand where the system overrides it."""
        q = value(q)
        if self.system.fast is None:
            return jnp.zeros_like(q)
        by_hand = self.system.overrides.get("fast_gradient")
        return (
            jax.grad(self.fast_potential)(q)
            if by_hand is None
            else self.system.call(by_hand, q, t=self.time, auxiliary=self.auxiliary)
        )

    def gradient(self, q: Position) -> Array:
        """∇U(q)."""
        if self.system.overrides:
            return self.slow_gradient(q) + self.fast_gradient(q)
        # One backward pass through the sum: the compiler shares what V and W have in common.
        return jax.grad(self.potential)(value(q))

    def force(self, q: Position) -> Array:
        """−∇U(q)."""
        return -self.gradient(q)

    def slow_force(self, q: Position) -> Array:
        return -self.slow_gradient(q)

    def fast_force(self, q: Position) -> Array:
        return -self.fast_gradient(q)

    def hessian_product(self, q: Position, a: Array) -> Array:
        """U''(q)·a, at the cost of about two gradients."""
        return jax.jvp(self.gradient, (value(q),), (a,))[1]

    def fast_hessian_product(self, q: Position, a: Array) -> Array:
        """W''(q)·a."""
        return jax.jvp(self.fast_gradient, (value(q),), (a,))[1]

    def third(self, q: Position, a: Array) -> Array:
        """a·U'''(q)·a, the gradient of aᵀU''(q)a, without a tensor: the second derivative of ∇U along a."""
        along = lambda x: jax.jvp(self.gradient, (x,), (a,))[1]
        return jax.jvp(along, (value(q),), (a,))[1]

    # --- the equation of motion -------------------------------------------------------------------------------------
    def multipliers(self, q: Position, v: Array) -> Array:
        """λ of the exact motion: (G M⁻¹Gᵀ) λ = G M⁻¹F + g''(v, v), F = −∇U + f − D v."""
        jacobian = self.constraint_jacobian(q)
        columns = jax.vmap(lambda row: self.velocity(row.reshape(value(q).shape)).ravel(), out_axes=1)(jacobian)
        right = self.constraint_rate(q, self.velocity(self.total_force(q, v))) + self.constraint_curvature(q, v)
        return jnp.linalg.solve(jacobian @ columns, right)

    def acceleration(self, q: Position, v: Array, t: Array | float | None = None) -> Array:
        """q̈ = M⁻¹(F − Gᵀλ), the underlying ordinary differential equation, constrained or not; at another time where
        one is given."""
        mech = self if t is None else self.at(t)
        force = mech.total_force(q, v)
        if self.system.constraint is None:
            return self.velocity(force)
        return self.velocity(force - mech.constraint_force(q, mech.multipliers(q, v)))
