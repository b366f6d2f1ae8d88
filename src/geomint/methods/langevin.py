"""Langevin dynamics at constant temperature, by a thermostat over any symmetric method (geometric Langevin algorithms).

    dq = M⁻¹p dt,    dp = −∇U(q) dt − γ p dt + √(2γ kT) M^½ dW,

with the friction γ, a rate, and the temperature kT, an energy in the unit of U. Its invariant distribution is Gibbs':
exp(−H(q, p)/kT). The motion is split into Hamilton's, for which any method of the registry is taken, and the
Ornstein–Uhlenbeck process of p with q held, whose solution is known exactly:

    O(h):   p ← e^{−γh} p + √(kT (1 − e^{−2γh})) M^½ ξ,    ξ normal numbers, M^½ any factor with M^½ (M^½)ᵀ = M.

O keeps Gibbs' distribution exactly, for any h and γ; the error is that of the other part alone.

    OBABO   O(h/2) base(h) O(h/2)                    for any symmetric base
    BAOAB   B(h/2) A(h/2) O(h) A(h/2) B(h/2)         for a base kick (B), drift (A), kick: O in the middle of the drift

Both are of weak order 2. Averages of functions of q by BAOAB are more accurate: for a harmonic oscillator they are
exact, and in general of order 4 for γ → ∞.

On a manifold g(q) = 0 the momenta satisfy G M⁻¹p = 0, and O is projected orthogonally in M⁻¹,

    p ← Π (e^{−γh} p + √(kT (1 − e^{−2γh})) M^½ ξ),    Π = I − Gᵀ(G M⁻¹Gᵀ)⁻¹ G M⁻¹,

the exact solution of the process on the cotangent space: it keeps exp(−H/kT) on the cotangent bundle of the manifold.
(Springs in place of constraints give another distribution of q; see `gm.fixman`.)

Random numbers. The numbers of step n depend on the seed, the member and n alone. Methods do not see the number of a
step, and the time would be rounded: the carry has the key of the member and the number of draws (see
`numerics.normal_numbers`), so that chunks, tiles, shards and resumed runs draw the same ones.

Heat. O adds the kinetic energy Q, which the carry adds up, and which is the column `heat`. H − Q − W (W the work of
forces) changes by the error of the base alone.

References: Bou-Rabee, Owhadi, SIAM J. Numer. Anal. 48 (2010) 278; Tao, Owhadi, IMA J. Numer. Anal. (2015), section 4.3;
Leimkuhler, Matthews, Appl. Math. Res. Express (2013) 34, and Proc. R. Soc. A 472 (2016) 20160138 for constraints
(g-BAOAB); Lelièvre, Rousset, Stoltz, Math. Comput. 81 (2012) 2071.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ..errors import InputError
from ..numerics.compensated import value
from ..numerics.normal_numbers import Stream
from ..system.checks import bounded, number, one_of
from ..system.inertia import mass_root, root_product
from ..system.mechanics import Mechanics
from ..system.system import Stated, System
from . import protocols
from .base import Carry, Method, State, Traits, as_method, register, setting
from .constrained import Constrained
from .protocols import InterruptsDrift
from .rattle import Rattle
from .splitting import Verlet
from .wrapping import Wrapping

ORDERINGS = ("BAOAB", "OBABO")


class LangevinCarry(NamedTuple):
    """What GeometricLangevin carries."""

    base: Carry
    stream: Stream
    heat: Array
    root: Any  # M^½ where the mass is a matrix


class Noise(NamedTuple):
    """What a part O changes."""

    stream: Stream
    heat: Array


@register(
    {"base": Verlet(), "friction": 1.0, "temperature": 1.0},
    {"base": Rattle(), "friction": 1.0, "temperature": 1.0},
)
class GeometricLangevin(Wrapping):
    """Langevin dynamics at constant temperature over a symmetric method.

    base:         moves q and p between the random kicks
    friction:     γ ≥ 0, a rate: p ← e^{−γh} p; 0 gives the motion of the base, to rounding
    temperature:  kT ≥ 0, an energy in the unit of the potential
    ordering:     "BAOAB", with the random kick in the middle of the drift, for a base kick, drift, kick: Verlet(),
                  Rattle(), ZhangSkeel(), SimplifiedZhangSkeel(), StiffZhangSkeel(), PushforwardNewmark(), Newmark();
                  "OBABO", half a random kick before and after each step of any symmetric base
    """

    base: Method
    friction: float = setting(bounded(number, least=0.0), static=False)
    temperature: float = setting(bounded(number, least=0.0), static=False)
    ordering: str = setting(one_of(*ORDERINGS), "BAOAB")

    def check_settings(self) -> None:
        base = as_method(self.base, "GeometricLangevin: base")
        traits = base.traits
        if traits.stochastic or not traits.symmetric or traits.event_driven or traits.steps > 1:
            raise InputError(
                f"GeometricLangevin(base={base.name}): base must be a symmetric one-step method without random numbers "
                "of its own, such as Verlet(), Rattle() or StiffZhangSkeel()."
            )
        if self.ordering == "BAOAB" and not (isinstance(base, InterruptsDrift) and base.has_one_drift):
            raise InputError(
                f"GeometricLangevin(base={base.name}): BAOAB acts in the middle of the drift of a base kick, drift, "
                'kick, which this is not; take ordering="OBABO" with this base, or one of Verlet(), Rattle(), '
                "ZhangSkeel(), SimplifiedZhangSkeel(), StiffZhangSkeel(), PushforwardNewmark() and Newmark()."
            )

    @property
    def traits(self) -> Traits:
        base = self.base.traits
        return dataclasses.replace(
            base,
            order=0,
            symplectic=False,
            symmetric=False,
            reversible=False,
            volume=False,
            conformal=False,
            energy=None,
            momentum_maps=None,
            constrained=base.constrained and projecting(self.base) is not None,
            lagrangian=False,
            takes=tuple(name for name in base.takes if name not in ("moving", "damping")),
            stochastic=True,
            weak_order=2,
        )

    def check(self, system: Stated) -> None:
        if not isinstance(system, System):
            raise InputError(
                f"{self.name} needs a constant mass, gm.System: the mass of a gm.LagrangianSystem depends on q."
            )
        if system.damping is not None:
            raise InputError(
                f"{self.name} has a friction of its own, which the noise balances, and this system has damping, which "
                "no noise does; state it without damping."
            )
        if system.takes("constraint", "t"):
            raise InputError(f"{self.name} does not take constraints that depend on t: they have no temperature.")
        self.base.check(system)
        if system.constraint is not None and projecting(self.base) is None:
            raise InputError(
                f"{self.name}: random momenta are projected onto the constraint by the solver of the base, and "
                f"{self.base.name} has none; take base=Rattle()."
            )
        mass_root(system.mass, None)
        super().check(system)

    def with_base(self, base: Method) -> GeometricLangevin:
        return dataclasses.replace(self, base=base)

    def base_carry(self, carry: LangevinCarry) -> Carry:
        return carry.base

    # --- one step ---------------------------------------------------------------------------------------------------
    def init(self, mech: Mechanics, state: State, dt: Array) -> LangevinCarry:
        begin = self.base.init if self.ordering == "OBABO" else self.base.init_interrupted  # pyright: ignore
        carry, q = begin(mech, state, dt), value(state.q)
        if not _shows_momentum(carry):
            raise InputError(f"{self.name}: the base does not carry momenta; take Verlet() or Rattle() instead.")
        root = mass_root(mech.system.mass, q.shape)
        return LangevinCarry(carry, Stream.of(state.key), jnp.zeros((), q.dtype), root)

    def step(self, mech: Mechanics, carry: LangevinCarry, dt: Array) -> LangevinCarry:
        base, stream, heat, root = carry
        if self.ordering == "BAOAB":
            middle = lambda q, p: self._thermostat(mech, q, p, root, Noise(stream, heat), dt)
            interrupted = self.base.step_interrupted  # pyright: ignore[reportAttributeAccessIssue]
            base, noise = interrupted(mech, base, dt, middle)
            return LangevinCarry(base, noise.stream, noise.heat, root)
        noise = Noise(stream, heat)
        base, noise = self._outside(mech, base, root, noise, 0.5 * dt)
        base = self.base.step(mech, base, dt)
        base, noise = self._outside(mech.after(dt), base, root, noise, 0.5 * dt)
        return LangevinCarry(base, noise.stream, noise.heat, root)

    def _outside(self, mech: Mechanics, base: Carry, root: Any, noise: Noise, h: Array) -> tuple[Carry, Noise]:
        q, p = (base[0], base[1]) if isinstance(base, tuple) else (base.q, base.p)
        p, noise = self._thermostat(mech, q, p, root, noise, h)
        return protocols.with_momentum(self.base, base, p), noise

    def _thermostat(self, mech: Mechanics, q: Any, p: Any, root: Any, noise: Noise, h: Array) -> tuple[Any, Noise]:
        """O(h), and what it adds to the heat."""
        here = value(p)
        normal, stream = noise.stream.normal(here.shape, here.dtype)
        kick = root_product(mech.system.mass, root, normal)
        if mech.system.constraint is not None:
            solver = projecting(self.base)
            assert solver is not None
            p, kick = solver.tangent(mech, q, p), solver.tangent(mech, q, kick)
        loss = jnp.expm1(-self.friction * h)  # e^{−γh} − 1, and 1 − e^{−2γh} = −loss (2 + loss)
        change = loss * value(p) + jnp.sqrt(self.temperature * -loss * (2 + loss)) * kick
        heat = noise.heat + jnp.sum(change * mech.velocity(value(p) + 0.5 * change))
        return p + change, Noise(stream, heat)

    def output(self, mech: Mechanics, carry: LangevinCarry) -> State:
        state = self.base.output(mech, carry.base)
        return dataclasses.replace(state, extras={**state.extras, "heat": carry.heat})


def projecting(base: Method) -> Constrained | None:
    """The method inside that projects momenta onto a constraint, None where there is none."""
    while isinstance(base, Wrapping):
        base = base.base
    return base if isinstance(base, Constrained) else None


def _shows_momentum(carry: Carry) -> bool:
    return isinstance(carry, tuple) or hasattr(carry, "p")
