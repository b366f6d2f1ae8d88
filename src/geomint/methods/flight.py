"""The state of energy-stepping: a straight flight between two events, and the counts of events so far."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .first_exit import Jet, Outlook

UP, DOWN, REFLECTED, WALL = 1, 2, 3, 4
KINDS = {UP: "up", DOWN: "down", REFLECTED: "reflected", WALL: "wall"}
STRETCH = 100  # reflections in a row that make a trapped stretch


class Counts(NamedTuple):
    """What has happened so far."""

    events: Any
    up: Any
    down: Any
    reflected: Any
    wall: Any
    jets: Any  # evaluations of (φ, φ', φ'')
    in_a_row: Any  # reflections, up to now
    longest: Any  # and at most
    stretches: Any  # of STRETCH reflections and more
    idle: Any  # events in a row without time going on

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
    due: Any  # the gauge that vanishes at t + a, or −1
    at_a: Jet
    ahead: Outlook  # higher derivatives there; zeros where the search does not use them
    trial: Any  # b − a
    limit: Any  # on its length, from how quickly V changes
    stride: Any  # and from the speed
    failed: Any  # trials in a row that did not come forward
    counts: Counts
    kind: Any  # of the last event
    status: Any
