"""Splittings H = T(p) + U(q): kicks p ← p − b h ∇U(q) and drifts q ← q + a h M⁻¹p in turn.

Both are exact flows, so every such method is symplectic, explicit, and keeps the momentum maps of linear actions; a
palindromic sequence is symmetric. This one file holds symplectic Euler, Verlet and the multi-stage splittings. Forces,
damping and potentials that depend on the time enter by the kicks (`driven`); time advances with the drifts.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.compensated import value
from ..system.checks import one_of, vector
from ..system.mechanics import Mechanics
from ..system.system import Stated
from . import driven
from .base import ALL, Carry, Method, State, Traits, register, setting
from .driven import DrivenCarry
from .protocols import HasScalarForm, InterruptsDrift, Middle
from .splitting_tables import TABLES, Stages, palindrome

# Of a carry, by a length. `since` is the time from the start of the step, None where no function depends on the time.
Move = Callable[[Carry, Array, Any], Carry]

# Up to this many coordinates a sequence that begins and ends with a kick evaluates its force anew instead of carrying
# it: XLA then fuses the whole step into one loop (FPU, 6 coordinates: .021 µs a step against .14 with the force
# carried).
SMALL = 16
KICK_DRIFT_KICK: Stages = (("kick", 0.5), ("drift", 1.0), ("kick", 0.5))


def apply_stages(
    stages: Stages, kick: Move, drift: Move, carry: Carry, dt: Array, cheap_drift: bool, timed: bool = False
) -> Carry:
    """All stages of a step, one after another; `timed` tells them the time from the start of the step.

    Pairs of stages run in a loop: XLA makes one small kernel of the body of a loop, but splits straight-line code of
    many stages into dozens of calls. If the number of stages is odd and drifts are cheap, the last kick is paired with
    a drift of length zero.
    """
    first, second = (kick, drift) if stages[0][0] == "kick" else (drift, kick)

    def pair(moving: Carry, c: tuple[Array, Any]) -> tuple[Carry, None]:
        lengths, since = c
        when = lambda i: None if since is None else since[i] * dt
        return second(first(moving, lengths[0] * dt, when(0)), lengths[1] * dt, when(1)), None

    lengths = [c for _, c in stages]
    if len(lengths) > 3 and len(lengths) % 2 and cheap_drift and first is kick:
        lengths.append(0.0)
    whole = len(lengths) // 2
    coefficients = jnp.asarray(lengths, dt.dtype)
    drifted = np.cumsum([0.0, *(c if (i % 2 == 0) == (first is drift) else 0.0 for i, c in enumerate(lengths))])
    since = jnp.asarray(drifted, dt.dtype) if timed else None
    if whole == 1:
        carry, _ = pair(carry, (coefficients, since))
    else:
        pairs = jax.tree.map(lambda x: x[: 2 * whole].reshape(whole, 2), (coefficients, since))
        carry, _ = jax.lax.scan(pair, carry, pairs)
    if len(lengths) % 2 == 0:
        return carry
    return first(carry, coefficients[-1] * dt, None if since is None else since[len(lengths) - 1] * dt)


class OnManifold(Method):
    """A sequence of kicks and drifts that Rattle can hold on a manifold. The drifts may have another mass than M."""

    @property
    @abc.abstractmethod
    def stages(self) -> Stages:
        """("kick" or "drift", its share of the step), in order."""

    def drift_mass(self, mech: Mechanics, q: Array, dt: Array) -> Any:
        """Factors of the mass of drifts in steps of length dt, where it is not M."""
        return None

    def drift_mechanics(self, mech: Mechanics, mass: Any) -> Any:
        """What drifts see: the mass and the constraint."""
        return mech

    def prepared_on_manifold(self, starts: Sequence[tuple[Any, Any]], caller: str) -> OnManifold:
        """The method with what it finds before a run on a manifold; itself where the mass of drifts is M."""
        return self

    def misfits(self, system: Any, q: Any, own_params: bool) -> np.ndarray:
        return np.zeros(len(q), bool)


class KickDrift(OnManifold, HasScalarForm, InterruptsDrift):
    """Any sequence of kicks and drifts."""

    small: int = eqx.field(static=True, default=SMALL, kw_only=True, metadata={"found": True})  # see above

    def for_scalar_code(self, many: bool) -> Method:
        return dataclasses.replace(self, small=0)

    def _carries_force(self, q: Array) -> bool:
        return self.stages[0][0] == self.stages[-1][0] == "kick" and q.size > self.small

    def init(self, mech: Mechanics, state: State, dt: Array) -> Carry:
        if mech.driven:
            return DrivenCarry(state.q, state.p, jnp.zeros((), value(state.q).dtype))
        return (state.q, state.p, mech.force(state.q)) if self._carries_force(state.q) else (state.q, state.p)

    def step(self, mech: Mechanics, carry: Carry, dt: Array) -> Carry:
        moves = (_driven_kick, _driven_drift) if mech.driven else (self._kick, self._drift)
        kick, drift = (functools.partial(act, mech) for act in moves)
        cheap = not mech.driven and len(carry) == 2
        return apply_stages(self.stages, kick, drift, carry, dt, cheap, timed=mech.time is not None)

    @property
    def has_one_drift(self) -> bool:
        return self.stages == KICK_DRIFT_KICK

    def step_interrupted(self, mech: Mechanics, carry: Carry, dt: Array, middle: Middle) -> tuple[Carry, Any]:
        kick, drift = (_driven_kick, _driven_drift) if mech.driven else (self._kick, self._drift)
        half, timed = 0.5 * dt, mech.time is not None
        carry = kick(mech, carry, half, jnp.zeros_like(dt) if timed else None)
        q = carry[0] + mech.displacement(carry[1], half)  # without the force there, which a carry may hold
        p, more = middle(q, carry[1])
        carry = carry._replace(q=q, p=p) if isinstance(carry, DrivenCarry) else (q, p, *carry[2:])
        carry = drift(mech, carry, half, half if timed else None)
        return kick(mech, carry, half, dt if timed else None), more

    def output(self, mech: Mechanics, carry: Carry) -> State:
        return carry.shown() if mech.driven else super().output(mech, carry)

    @staticmethod
    def _kick(mech: Mechanics, carry: Carry, h: Array, since: Any) -> Carry:
        q, p, *force = carry
        return q, p + h * (force[0] if force else mech.force(q)), *force

    @staticmethod
    def _drift(mech: Mechanics, carry: Carry, h: Array, since: Any) -> Carry:
        q, p, *force = carry
        q = q + mech.displacement(p, h)
        return (q, p, mech.force(q)) if force else (q, p)


def _driven_kick(mech: Mechanics, carry: DrivenCarry, h: Array, since: Any) -> DrivenCarry:
    added = driven.kick(mech.after(since), carry.q, carry.p, h)
    return carry._replace(p=carry.p + added.impulse, work=carry.work + added.work)


def _driven_drift(mech: Mechanics, carry: DrivenCarry, h: Array, since: Any) -> DrivenCarry:
    return carry._replace(q=carry.q + mech.displacement(carry.p, h))


def _forces(stages: Stages) -> int:
    kicks = sum(kind == "kick" for kind, _ in stages)
    return kicks - (stages[0][0] == stages[-1][0] == "kick")


def _traits(stages: Stages, order: int) -> Traits:
    symmetric = stages == stages[::-1]
    return Traits(
        order,
        symplectic=True,
        symmetric=symmetric,
        reversible=symmetric,
        energy="bounded",
        momentum_maps="all",
        takes=ALL,
        conformal=True,
        forces=_forces(stages),
    )


@register({}, {"first": "drift"})
class SymplecticEuler(KickDrift):
    """p₁ = p₀ − h∇U(q₀), q₁ = q₀ + hM⁻¹p₁ (`first="kick"`), or its adjoint (`first="drift"`). Order 1.

    Reference: Hairer, Lubich, Wanner, section I.1.2.
    """

    first: str = setting(one_of("kick", "drift"), "kick")

    @property
    def stages(self) -> Stages:
        both = (("kick", 1.0), ("drift", 1.0))
        return both if self.first == "kick" else both[::-1]

    @property
    def traits(self) -> Traits:
        return _traits(self.stages, 1)


@register({}, {"form": "drift"})
class Verlet(KickDrift):
    """Störmer–Verlet (leapfrog): half kick, drift, half kick (`form="kick"`), or half drift, kick, half drift
    (`form="drift"`). Order 2, symmetric. Stable for hω < 2.

    Reference: Hairer, Lubich, Wanner, Acta Numerica 12 (2003) 399–450.
    """

    form: str = setting(one_of("kick", "drift"), "kick")

    @property
    def stages(self) -> Stages:
        outer, inner = ("kick", "drift") if self.form == "kick" else ("drift", "kick")
        return ((outer, 0.5), (inner, 1.0), (outer, 0.5))

    @property
    def traits(self) -> Traits:
        return _traits(self.stages, 2)


@register(*({"scheme": name} for name in TABLES))
class Splitting(KickDrift):
    """A multi-stage splitting by the name of its scheme; `gm.methods.TABLES` lists the schemes with their sources.

    Two and three stages of order 2 buy accuracy and stability for sampling and molecular dynamics; the fourth-order
    ones include Runge–Kutta–Nyström splittings, which use that the kinetic energy is quadratic.
    """

    scheme: str = setting(one_of(*TABLES), "two-stage")

    def check(self, system: Stated) -> None:
        super().check(system)
        table = TABLES[self.scheme]
        # forest-ruth is a composition of Verlet steps, which are symmetric.
        of_v = system.takes("force", "v") and table.order > 2 and self.scheme != "forest-ruth"
        # The conditions of Nyström splittings are those of kicks that do not depend on p. Damping does, and so does the
        # power f·v, the rate of the work; a symmetric sequence of order 4 meets all conditions anyway.
        partial = table.nystrom and table.stages != table.stages[::-1]
        damped = partial and getattr(system, "damping", None) is not None
        forced = partial and getattr(system, "force", None) is not None
        if system.constraint is None and (of_v or damped or forced):
            what = "forces that depend on v" if of_v else "damping" if damped else "a force, whose work it would miss"
            taken = "potentials only" if partial else "forces of q and t only"
            raise InputError(
                f"{self.name} has order {table.order} for {taken}, and this system has {what}; use "
                f"Composition(Verlet(), order={table.order})."
            )

    @property
    def stages(self) -> Stages:
        return TABLES[self.scheme].stages

    @property
    def traits(self) -> Traits:
        return _traits(self.stages, TABLES[self.scheme].order)


@register({"half": (0.22,)}, {"half": (0.11, 0.29)})
class MultiStage(KickDrift):
    """A palindromic splitting of order 2 by its own coefficients: `half` lists the first ones, for kick and drift in
    turn; the middle follows from consistency. half=(b,) has two stages, half=(b, a) three. `gm.adaptive_splitting`
    finds good ones."""

    half: tuple[float, ...] = setting(vector, (0.22,))
    first: str = setting(one_of("kick", "drift"), "kick")

    @property
    def stages(self) -> Stages:
        return palindrome(self.first, self.half)

    @property
    def traits(self) -> Traits:
        return _traits(self.stages, 2)
