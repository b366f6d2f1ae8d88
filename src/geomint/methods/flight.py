"""The state of energy-stepping: a straight flight between two events, and the counts of events so far."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.compensated import value
from ..system.lines import on_line
from ..system.mechanics import Mechanics
from .first_exit import HigherDerivatives, Jet

UP, DOWN, REFLECTED, WALL = 1, 2, 3, 4
KINDS = {UP: "up", DOWN: "down", REFLECTED: "reflected", WALL: "wall"}
STRETCH = 100  # consecutive reflections from which on the motion counts as trapped


class Counts(NamedTuple):
    """What has happened so far."""

    events: Any
    up: Any
    down: Any
    reflected: Any
    wall: Any
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
            self.jets + 1,
            in_a_row,
            jnp.maximum(self.longest, in_a_row),
            self.stretches + (in_a_row == STRETCH),
            jnp.where(idle, self.idle + 1, 0),
        )


class Flight(eqx.Module):
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
