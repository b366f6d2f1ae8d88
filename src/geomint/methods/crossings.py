"""Methods that watch the sign of a function of the state, and locate its changes by a shorter step of their base.

`Until` fails at the first step after which the sign has changed: gm.simulate(until=...). `PoincareMap` goes from one
change to the next in a step: gm.section. Both are methods, so that every engine runs them in its own loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..errors import InputError
from ..numerics.compensated import value
from ..numerics.roots import root
from ..system.index_check import check_function
from ..system.mechanics import Mechanics, real_array
from . import protocols
from .base import Carry, Method, State, Traits
from .composition import Composition
from .protocols import DependsOnStepLength, HasHistory
from .wrapping import Wrapping

REACHED = 1001  # the status of Until after the sign has changed
NO_CROSSING = 1002  # the status of PoincareMap where the next change does not come


def value_of(mech: Mechanics, name: str, function: Callable[..., Any], state: State, t: Array) -> Array:
    """The user's f(q, p, t), a number; `name` is how errors call it."""
    q, p = value(state.q), value(state.p)
    f = real_array(f"{name}(q, p)", mech.at(t).called(name, function, q, p, t))
    if f.shape != ():
        raise InputError(f"{name}(q, p) must return one number, but it returns an array of shape {f.shape}.")
    if f.dtype == bool:
        raise InputError(
            f"{name}(q, p) must return a number that changes its sign, not True or False: q[0] - 1 in place of "
            "q[0] > 1."
        )
    return f.astype(q.dtype)


def crossed(before: Array, after: Array, direction: int = 0) -> Array:
    """Whether the sign has changed: from negative to positive (direction 1), back (−1), or either (0). A change that
    ends at zero counts, and one that begins there does not, so that none counts twice."""
    up, down = (before < 0) & (after >= 0), (before > 0) & (after <= 0)
    return up if direction > 0 else down if direction < 0 else up | down


def starts_anew(method: Method) -> bool:
    """Whether a carry of the method serves steps of one length only."""
    if isinstance(method, (HasHistory, DependsOnStepLength)):
        return True
    return isinstance(method, Wrapping) and not isinstance(method, Composition) and starts_anew(method.base)


def shorter_step(method: Method, mech: Mechanics, carry: Carry, h: Array) -> State:
    """The state after one step of length h from a carry made for steps of another length. Methods whose carry holds
    several steps, or something made for one length, start anew; the starting values of the former are of order 8."""
    if starts_anew(method):
        shown = method.output(mech, carry)
        carry = method.init(mech, State(value(shown.q), value(shown.p), jnp.zeros(())), h)
    return method.output(mech.after(h), method.step(mech, carry, h))


class UntilCarry(NamedTuple):
    """What `Until` carries."""

    base: Carry
    t0: Array
    step: Array
    value: Array  # f at the last step
    status: Array


class Watching(Wrapping, protocols.ChecksStart):
    """A method over a base that watches the sign of a function."""

    base: Method
    function: Callable[..., Any] = eqx.field(static=True)
    called: ClassVar[str]  # the function in errors

    @property
    def name(self) -> str:
        """That of the base, which the user has chosen."""
        return self.base.name

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (*self.base.functions, self.function)

    def check(self, system: Any) -> None:
        self.base.check(system)

    def check_start(self, system: Any, q: Any, p: Any, members: bool = False) -> None:
        check_function(system, self.called, self.function, *((q[0], p[0]) if members else (q, p)))

    def base_carry(self, carry: Any) -> Carry:
        return carry.base

    def status(self, carry: Any) -> Array:
        below = protocols.status(self.base, carry.base)
        return carry.status if below is None else jnp.where(below != 0, below, carry.status)


class Until(Watching):
    """The base, with the status REACHED after the first step in which the sign of function(q, p, t) changes."""

    called = "until"

    @property
    def traits(self) -> Traits:
        return self.base.traits

    @property
    def failures(self) -> Mapping[int, str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return {**protocols.failures(self.base), REACHED: "until(q, p) has changed its sign"}

    def with_base(self, base: Method) -> Until:
        return Until(base, self.function)

    def rescued(self, status: int) -> Until | None:
        return None if status == REACHED else super().rescued(status)

    def init(self, mech: Mechanics, state: State, dt: Array) -> UntilCarry:
        carry, t0 = self.base.init(mech, state, dt), jnp.asarray(state.t, value(state.q).dtype)
        first = value_of(mech, self.called, self.function, self.base.output(mech, carry), t0)
        return UntilCarry(carry, t0, jnp.zeros((), int), first, jnp.zeros((), int))

    def step(self, mech: Mechanics, carry: UntilCarry, dt: Array) -> UntilCarry:
        base, n = self.base.step(mech, carry.base, dt), carry.step + 1
        after = self.base.output(mech.after(dt), base)
        f = value_of(mech, self.called, self.function, after, carry.t0 + n * dt)
        status = jnp.where((carry.status == 0) & crossed(carry.value, f), REACHED, carry.status)
        return UntilCarry(base, carry.t0, n, f, status)


class MapCarry(NamedTuple):
    """What `PoincareMap` carries: the base after the step in which the last crossing lies, and that crossing."""

    base: Carry
    t0: Array
    step: Array  # steps of the base
    value: Array  # f after them
    q: Array
    p: Array
    t: Array  # of the crossing
    status: Array


class _Between(NamedTuple):
    """The base on its way to the next crossing, before and after its newest step."""

    before: Carry
    value_before: Array
    after: Carry
    value: Array
    step: Array
    taken: Array


class PoincareMap(Watching):
    """A step goes on in steps of the base until the sign of function(q, p, t) changes, and shows the state there:
    that after a shorter last step, whose length is the root of the function along it.

    direction:  1 counts changes from negative to positive, −1 those back, 0 both
    most_steps: of the base from one crossing to the next; beyond, the trajectory ends
    """

    called = "f"
    direction: int = eqx.field(static=True)
    most_steps: float

    @property
    def traits(self) -> Traits:
        return self.base.traits.without_structure()

    @property
    def failures(self) -> Mapping[int, str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return {**protocols.failures(self.base), NO_CROSSING: "the section was not crossed again"}

    def with_base(self, base: Method) -> PoincareMap:
        return PoincareMap(base, self.function, self.direction, self.most_steps)

    def rescued(self, status: int) -> None:
        return None

    def _value(self, mech: Mechanics, state: State, t: Array) -> Array:
        return value_of(mech, self.called, self.function, state, t)

    def init(self, mech: Mechanics, state: State, dt: Array) -> MapCarry:
        carry, t0 = self.base.init(mech, state, dt), jnp.asarray(state.t, value(state.q).dtype)
        shown = self.base.output(mech, carry)
        q, p, none = value(shown.q), value(shown.p), jnp.zeros((), int)
        return MapCarry(carry, t0, none, self._value(mech, shown, t0), q, p, t0, none)

    def step(self, mech: Mechanics, carry: MapCarry, dt: Array) -> MapCarry:
        def going(s: _Between) -> Array:
            goes_on = (carry.status == 0) & (s.taken < self.most_steps) & jnp.isfinite(s.value)
            return goes_on & ((s.taken == 0) | ~crossed(s.value_before, s.value, self.direction))

        def on(s: _Between) -> _Between:
            t = carry.t0 + s.step * dt
            after = self.base.step(mech.at(t), s.after, dt)
            later = carry.t0 + (s.step + 1) * dt
            f = self._value(mech, self.base.output(mech.at(later), after), later)
            return _Between(s.after, s.value, after, f, s.step + 1, s.taken + 1)

        start = _Between(carry.base, carry.value, carry.base, carry.value, carry.step, jnp.zeros((), int))
        s = jax.lax.while_loop(going, on, start)
        found = (s.taken > 0) & crossed(s.value_before, s.value, self.direction)
        t = carry.t0 + (s.step - 1) * dt  # before the step with the crossing
        at = lambda share: shorter_step(self.base, mech.at(t), s.before, share * dt)
        zero, one = jnp.zeros_like(s.value), jnp.ones_like(s.value)
        # Without a crossing the bracket is empty, and the search ends at once.
        ends = jnp.where(found, s.value_before, 0.0), jnp.where(found, s.value, 0.0)
        share = root(lambda x: self._value(mech, at(x), t + x * dt), zero, one, *ends)
        there = at(share)
        status = jnp.where((carry.status == 0) & ~found, NO_CROSSING, carry.status)
        pick = lambda new, old: jnp.where(found, new, old)
        q, p = pick(value(there.q), carry.q), pick(value(there.p), carry.p)
        return MapCarry(s.after, carry.t0, s.step, s.value, q, p, pick(t + share * dt, carry.t), status)

    def output(self, mech: Mechanics, carry: MapCarry) -> State:
        state, here = State(carry.q, carry.p), mech.at(carry.t)
        f = self._value(mech, state, carry.t)
        extras = {"crossing_time": carry.t, "crossing_value": f}
        if mech.time is not None:
            extras["energy"] = here.energy(carry.q, carry.p)
        return State(carry.q, carry.p, extras=extras)
