"""The state of energy-stepping: a straight flight between two events, and the counts of events so far."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

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
