"""Charged particles in a magnetic field, M q̈ = −∇U(q, t) + f + e q̇ × B(q, t): Boris' method for any field, and an
explicit symplectic splitting for a uniform one.

Both use that v̇ = v × Ω, Ω = e B/m, is a rotation of v about B, and move the kinetic momentum p = M v. The canonical
momentum is p + e A(q), with a vector potential A that is never needed. Where no field is stated both are Verlet's
method, half a drift, a kick, half a drift. Other forces, damping and the time enter by the kicks (`driven`).

Speed. A rotation leaves |p| unchanged, but rounding does not. Coefficients that are constant along a run are rounded
the same way in every step, which makes the part of p normal to B drift like the number of steps (2e-10 in 1e7 steps of
hΩ = 1); each rotation is corrected for that. All other rounding makes |p| a random walk. So |p|² is carried beside p.
Kicks change it by δp·(2p + δp), rotations do not, and p is scaled to it after each rotation. Without an electric field
it never changes, and the speed is constant to some units of rounding for any number of steps.
"""

from __future__ import annotations

import abc
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.compensated import Compensated, value
from ..system.magnetic import cross, squared
from ..system.mechanics import Mechanics
from . import driven
from .base import Carry, State, Traits, register
from .driven import with_work
from .protocols import ReplacesMomentum

# Units of rounding, relative, by which the carried |p|² may differ from that of p. The rounding of earlier, larger
# momenta stays in it; once it is larger than this, |p|² is computed anew.
TRUSTED = 16
SERIES_TERMS = 9  # of (θ − sin θ)/θ³ for θ² < 1: the next one is below 1/21! = 2e-20


class Gyrating(NamedTuple):
    """What the methods of this file carry."""

    q: Any
    p: Any
    square: Any = None  # |p|² of each particle, where there is a field
    work: Any = None  # of a driven system


def _square(p: Array) -> Array:
    return jnp.sum(p * p, axis=-1, keepdims=True)


def _square_beside(p: Any) -> Any:
    """|p|² to be carried beside p, summed with compensation where p is."""
    square = _square(value(p))
    return Compensated.of(square) if isinstance(p, Compensated) else square


def kicked(mech: Mechanics, carry: Gyrating, h: Array) -> Gyrating:
    """A kick of length h."""
    if mech.driven:
        added = driven.kick(mech, carry.q, carry.p, h)
        return _pushed(carry._replace(work=carry.work + added.work), added.impulse)
    return _pushed(carry, h * mech.force(carry.q))


def _pushed(carry: Gyrating, impulse: Array) -> Gyrating:
    square = carry.square
    if square is not None:
        square = square + jnp.sum(impulse * (2 * value(carry.p) + impulse), axis=-1, keepdims=True)
    return carry._replace(p=carry.p + impulse, square=square)


def rotated(carry: Gyrating, axis: Array, sine: Array, cosine: Array) -> Gyrating:
    """p + sine p × axis + cosine (p × axis) × axis, where this is a rotation of p. Rounding of the two coefficients is
    corrected along the part of p normal to the axis, then p is scaled to the carried |p|². Neither has a derivative:
    in exact arithmetic both corrections are zero.

    The first correction keeps |p × axis|. Its growth is computed from p × axis and the change of that; computed from p
    itself, the rounding of the part of p along the axis would be divided by the part normal to it, which may be
    arbitrarily small."""
    p = value(carry.p)
    across = cross(p, axis)
    back = cross(across, axis)
    change = sine * across + cosine * back
    turned = cross(change, axis)  # the change of p × axis
    growth = jnp.sum(turned * (2 * across + turned), axis=-1, keepdims=True)  # of |p × axis|²
    size, square_axis = _square(across), squared(axis, p.shape)
    weight = size * square_axis
    excess = 0.5 * growth / jnp.where(weight > 0, weight, 1.0)
    change = change - jax.lax.stop_gradient(excess * (square_axis * change - back))
    p = p + change
    now = _square(p)
    gap = value(carry.square) - now
    trusted = jnp.abs(gap) <= TRUSTED * jnp.finfo(p.dtype).eps * now
    scale = jnp.where(trusted, 0.5 * gap / jnp.where(now > 0, now, 1.0), 0.0)
    fresh = Compensated.of(now) if isinstance(carry.square, Compensated) else now
    square = jax.tree.map(lambda kept, new: jnp.where(trusted, kept, new), carry.square, fresh)
    return carry._replace(p=carry.p + (change + jax.lax.stop_gradient(scale * p)), square=square)


class _InField(ReplacesMomentum):
    """A step that begins and ends with a drift."""

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        square = None if mech.system.magnetic_field is None else _square_beside(state.p)
        work = jnp.zeros((), value(state.q).dtype) if mech.driven else None
        return Gyrating(state.q, state.p, square, work)

    def step(self, mech: Mechanics, carry: Gyrating, dt: Array) -> Gyrating:
        carry = self.drift(mech, carry, 0.5 * dt)
        return self.drift(mech, self.middle(mech.after(0.5 * dt), carry, dt), 0.5 * dt)

    @abc.abstractmethod
    def drift(self, mech: Mechanics, carry: Gyrating, h: Array) -> Gyrating:
        """The motion between the kicks."""

    @abc.abstractmethod
    def middle(self, mech: Mechanics, carry: Gyrating, h: Array) -> Gyrating:
        """What happens in the middle of a step, with q and t held."""

    def with_momentum(self, carry: Gyrating, p: Any) -> Gyrating:
        return carry._replace(p=p, square=None if carry.square is None else _square_beside(p))

    def output(self, mech: Mechanics, carry: Gyrating) -> State:
        state = State(carry.q, carry.p)
        return with_work(state, carry.work) if mech.driven else state


@register()
class Boris(_InField):
    """Boris' method, for any magnetic field B(q, t): half a drift, and in the middle of the step, with q and t held,
    half a kick, a rotation and half a kick; then half a drift:

        q_{n+½} = q_n + ½h M⁻¹p_n
        p⁻ = p_n + ½h F,   p⁺ = p⁻ + (p⁻ + p⁻ × s) × 2s/(1 + |s|²),   p_{n+1} = p⁺ + ½h F,   s = ½h e B/m
        q_{n+1} = q_{n+½} + ½h M⁻¹p_{n+1},

    with F = −∇U + f and B at q_{n+½} and t_n + ½h. The rotation is the Cayley transform of ½h v × Ω, without
    trigonometric functions: by 2 arctan(½hΩ) in place of hΩ, and stable for every hΩ.

    Explicit, of order 2, symmetric. Every part of a step preserves the volume of phase space. It is not symplectic
    unless the field vanishes, and its energy may drift in a field that is not uniform (Hairer, Lubich): it does not
    where the potential is quadratic and the field uniform, and in practice not in fields that vary little over a
    gyration. Momentum maps of p = M v change in a magnetic field.

    Reference: Boris, Proc. 4th Conf. Numerical Simulation of Plasmas (1970) 3; Qin, Zhang, Xiao, Liu, Sun, Tang, Phys.
    Plasmas 20 (2013) 084503; Hairer, Lubich, BIT 58 (2018) 969.
    """

    @property
    def traits(self) -> Traits:
        return Traits(
            2,
            symplectic=False,
            symmetric=True,
            reversible=False,
            energy=None,
            momentum_maps=None,
            takes=("time", "force", "velocity", "damping", "uniform field", "field"),
            forces=1,
            volume=True,
        )

    def drift(self, mech: Mechanics, carry: Gyrating, h: Array) -> Gyrating:
        return carry._replace(q=carry.q + mech.displacement(carry.p, h))

    def middle(self, mech: Mechanics, carry: Gyrating, h: Array) -> Gyrating:
        if mech.system.magnetic_field is None:
            return kicked(mech, carry, h)
        carry = kicked(mech, carry, 0.5 * h)
        s = 0.5 * h * mech.gyration(carry.q)
        share = 2 / (1 + squared(s, value(carry.q).shape))
        return kicked(mech, rotated(carry, s, share, share), 0.5 * h)


class Helix(NamedTuple):
    """Coefficients of the motion in a uniform field by the angle θ, of each particle."""

    sine: Array  # sin θ/θ
    cosine: Array  # (1 − cos θ)/θ²
    rest: Array  # (θ − sin θ)/θ³

    @classmethod
    def of(cls, square: Array) -> Helix:
        """From θ². The last one is summed for small angles, where its closed form loses digits by cancellation."""
        near, turning = square < 1, square > 0
        angle = jnp.sqrt(jnp.where(turning, square, 1.0))
        sine = jnp.where(turning, jnp.sin(angle) / angle, 1.0)
        cosine = jnp.where(turning, 2 * (jnp.sin(0.5 * angle) / angle) ** 2, 0.5)
        small, total = jnp.where(near, square, 0.0), jnp.zeros_like(square)
        for k in reversed(range(SERIES_TERMS)):
            total = total * -small + 1 / math.factorial(2 * k + 3)
        return cls(sine, cosine, jnp.where(near, total, (1 - sine) / jnp.where(near, 1.0, square)))


@register()
class MagneticSplitting(_InField):
    """The splitting for a uniform magnetic field, stated as numbers: half a step on the exact helix, a kick by the
    potential, half a step on the helix. The helix of length h is, with θ = h|Ω|, Ω = e B/m,

        v(h) = v + h (sin θ/θ) v × Ω + h² ((1 − cos θ)/θ²) (v × Ω) × Ω
        q(h) = q + h v + h² ((1 − cos θ)/θ²) v × Ω + h³ ((θ − sin θ)/θ³) (v × Ω) × Ω.

    Both parts are exact flows of Hamiltonians for the form dq ∧ dp − e (B₁ dq₂ ∧ dq₃ + B₂ dq₃ ∧ dq₁ + B₃ dq₁ ∧ dq₂),
    p = M v, that is, for the canonical dq ∧ d(p + e A): the step is symplectic, explicit, symmetric and of order 2, and
    its energy has no drift. Steps may be much longer than a gyration where the potential is smooth. `Composition`
    raises the order. Momentum maps of p = M v change in a magnetic field.

    Reference: Hairer, Lubich, Wanner, Geometric Numerical Integration, section II.5; Spreiter, Walter, J. Comput. Phys.
    152 (1999) 102.
    """

    @property
    def traits(self) -> Traits:
        return Traits(
            2,
            symplectic=True,
            symmetric=True,
            reversible=False,
            energy="bounded",
            momentum_maps=None,
            takes=("time", "force", "velocity", "damping", "uniform field"),
            forces=1,
            volume=True,
        )

    def drift(self, mech: Mechanics, carry: Gyrating, h: Array) -> Gyrating:
        if mech.system.magnetic_field is None:
            return carry._replace(q=carry.q + mech.displacement(carry.p, h))
        p, omega = value(carry.p), mech.gyration(carry.q)
        across = cross(p, omega)
        back = cross(across, omega)
        helix = Helix.of(h * h * squared(omega, p.shape))
        mean = p + (h * helix.cosine) * across + (h * h * helix.rest) * back
        carry = carry._replace(q=carry.q + mech.displacement(mean, h))
        return rotated(carry, omega, h * helix.sine, h * h * helix.cosine)

    def middle(self, mech: Mechanics, carry: Gyrating, h: Array) -> Gyrating:
        return kicked(mech, carry, h)
