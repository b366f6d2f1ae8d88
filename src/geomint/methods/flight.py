"""The state of energy-stepping: a straight flight between two events, and the counts of events so far."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.compensated import Compensated, value
from ..numerics.module import Module
from ..system.lines import on_line
from ..system.mechanics import Mechanics
from .first_exit import HigherDerivatives, Jet

UP, DOWN, REFLECTED, WALL, CONTACT = 1, 2, 3, 4, 5
KINDS = {UP: "up", DOWN: "down", REFLECTED: "reflected", WALL: "wall", CONTACT: "contact"}
NO_EXIT_FOUND, TIME_STOPPED = 1, 2
TRIALS = 100  # consecutive trials without progress after which the run fails: the potential is not smooth
IDLE = 1000  # consecutive events at the same time after which the run fails
EXPLAINED = {
    NO_EXIT_FOUND: f": {TRIALS} consecutive trials made no progress. The potential, its slope or its curvature jumps "
    "there or is not finite; make it smooth, or put what jumps into inside=[...]",
    TIME_STOPPED: f": more than {IDLE} consecutive events happened at the same time (a corner of `inside`, or walls "
    "that touch)",
}
STRETCH = 100  # consecutive reflections from which on the motion counts as trapped


class Counts(NamedTuple):
    """What has happened so far."""

    events: Any
    up: Any
    down: Any
    reflected: Any
    wall: Any
    contact: Any
    jets: Any  # evaluations of (φ, φ', φ'')
    in_a_row: Any  # consecutive reflections up to now
    longest: Any  # the largest value of in_a_row so far
    stretches: Any  # how often in_a_row reached STRETCH
    idle: Any  # consecutive events at the same time

    def after(self, kind: Array, idle: Array) -> Counts:
        """One event more."""
        is_a = lambda which: (kind == which).astype(int)
        in_a_row = jnp.where(kind == REFLECTED, self.in_a_row + 1, 0)
        return Counts(
            self.events + 1,
            self.up + is_a(UP),
            self.down + is_a(DOWN),
            self.reflected + is_a(REFLECTED),
            self.wall + is_a(WALL),
            self.contact + is_a(CONTACT),
            self.jets + 1,
            in_a_row,
            jnp.maximum(self.longest, in_a_row),
            self.stretches + (in_a_row == STRETCH),
            jnp.where(idle, self.idle + 1, 0),
        )

    def trapped(self, height: float) -> str:
        """A warning where the motion was trapped on terraces of this height, "" otherwise."""
        longest, stretches = int(np.max(self.longest)), int(np.sum(self.stretches))
        if not stretches:
            return ""
        return (
            f"EnergyStepping was trapped {stretches} times, {longest} reflections in a row at most: the motion goes "
            f"along an edge of a terrace that it can't climb. Smaller terraces (height = {height / 4:g}) or another "
            "offset help."
        )


class Flight(Module):
    """A straight flight from (q, p) at time t, known to be free of events up to t + a."""

    t: Any
    q: Any
    p: Any
    level: Any
    base: Any  # V at level 0
    a: Any
    exit_gauge: Any  # index of the gauge that vanishes at t + a, −1 while no exit is known
    at_a: Jet
    higher: HigherDerivatives  # higher derivatives at t + a; zeros where the search does not use them
    trial: Any  # length b − a of the next trial
    limit: Any  # largest length of a trial: REACH/ω, see first_exit
    longest_by_speed: Any  # largest length of a trial by `reach` and the speed
    failed: Any  # consecutive trials without progress
    counts: Counts
    kind: Any  # of the last event
    status: Any
    what: Any = None  # meets at t + a, where exit_gauge is the number of gauges; None without contact
    line: Any = None  # the potential along the flight, where it has a form of its own (system/lines.py)

    def with_line(self, mech: Mechanics) -> Flight:
        """The flight with the potential along it, where the system has a form for that."""
        q, v = jax.lax.stop_gradient((value(self.q), mech.velocity(value(self.p))))
        return dataclasses.replace(self, line=on_line(mech.system, q, v))

    def ends(self, t: Array, order: int, height: Any) -> list[Array]:
        """V above the lower edge of the terrace and below the upper one, in units of its height, and its derivatives by
        the time t, from `line`."""
        energy, *rates = self.line.derivatives(t, order)
        above = (energy - self.base) / height - self.level
        return [jnp.stack([above, 1 - above]), *(jnp.stack([x, -x]) / height for x in rates)]

    @classmethod
    def at_start(
        cls, t: Any, q: Any, p: Any, level: Array, base: Array, gauges: int, longest_by_speed: Array, what: Any
    ) -> Flight:
        """The flight before its jets are known; q and p may be compensated."""
        zero, none = jnp.zeros((), value(q).dtype), jnp.zeros((), int)
        unknown = Jet(*[jnp.zeros(gauges, zero.dtype)] * 3)
        return cls(
            t=Compensated.of(jnp.asarray(t, zero.dtype)),
            q=q,
            p=p,
            level=level,
            base=base,
            a=zero,
            exit_gauge=none - 1,
            at_a=unknown,
            higher=HigherDerivatives(unknown.value, unknown.value),
            trial=zero,
            limit=zero + jnp.inf,
            longest_by_speed=longest_by_speed,
            failed=none,
            counts=Counts(*[none] * len(Counts._fields)),
            kind=none,
            status=none,
            what=what,
        )
