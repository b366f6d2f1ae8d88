"""The first time at which a straight flight leaves a region: the event search of event-driven methods.

A region is given by gauges w_i, positive inside. Along the ray q + t v a gauge is a smooth function of t, evaluated at
chosen times as its jet (w, w', w''). The search advances by trials: [0, a] is known to contain no exit, b > a is the
trial time, and the jets at a and b decide about [a, b]. At a, the third and fourth derivatives are known too.

 -  H5 is the quintic with both jets. In Bernstein form it is positive if all its control points are; they are computed
    for [a, b] and, where that does not decide, for its eight equal pieces. The error of H5 is estimated, control point
    by control point, as |H5 − H3| + |H7 − H5|: H3 is the cubic through the values and slopes, with an error of order
    (b − a)⁴, two orders larger than that of H5; H7 also has the third and fourth derivatives at a. If all control
    points exceed this margin, [a, b] contains no exit, and a moves to b.
 -  One sign change among the control points means exactly one root (variation-diminishing property). The smallest such
    root over all gauges is the next trial.
 -  Otherwise [a, b] is not decided, and b moves to its midpoint.

If lower bounds w'' ≥ m over [a, b] are known, no polynomial model is needed: a gauge is positive as long as
w + w't + ½mt² is, so a moves to the smallest first root of these parabolas. The bounds tighten as [a, b] shrinks, and a
converges to the first exit from below; each trial triples the number of correct digits. Up to rounding this is proved.

Near a root, the root of the parabola at b is accepted as the exit once its error, estimated with the third derivative
(from the two jets), is below rounding. Two jets do not detect an oscillation that is fast compared with b − a. The
length of a trial is therefore limited to REACH/ω, where

    ω² = (|w⁗ w″| + w‴²) / (|w‴ w′| + w″²)

at a. For an oscillation, ω is its frequency, at every phase. For a potential r⁻ⁿ of a body at the distance r,
ω ≈ (n + 2)/r, so that trials become shorter as the body is approached. A feature that begins abruptly, without any
effect on the derivatives at a, is not detected; `EnergyStepping(reach=...)` limits the trials for such potentials.

The same derivatives predict the exit time, usually so accurately that the first trial finds it.

Reference: the search of Gonzalez, Schmidt and Ortiz, Int. J. Numer. Meth. Engng 82 (2010) 205, section 3, made safe.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

PIECES = 8
POINTS = 5 * PIECES + 1
ROOT_TOLERANCE = 1e-13  # largest error of a gauge at an accepted root, relative to its largest control point
REACH = 2.0  # radians of the quickest oscillation that a trial may cover
TOUCH_TOLERANCE = 1e-13  # a gauge that falls below 0 by less than this fraction of its size counts as touching 0


class Jet(NamedTuple):
    """Values and the first two derivatives of the gauges, each of shape (gauges,)."""

    value: Array
    first: Array
    second: Array


class HigherDerivatives(NamedTuple):
    """The third and fourth derivatives at the beginning of a trial."""

    third: Array
    fourth: Array


def longest_trial(jet: Jet, higher: HigherDerivatives) -> Array:
    """The longest trial: REACH/ω of the quickest gauge."""
    (_, first, second), (third, fourth) = jet, higher
    above, below = third**2 + jnp.abs(second * fourth), second**2 + jnp.abs(first * third)
    usable = jnp.minimum(above, below) > 1e-200  # otherwise the products have underflown
    return jnp.min(jnp.where(usable, REACH * jnp.sqrt(below / above), jnp.inf))


def predicted_exit(jet: Jet, higher: HigherDerivatives, tolerance: Array) -> Array:
    """The expected time of the first exit: the root of the parabola, improved by three Newton steps on the Taylor
    polynomial of degree four. It only sets the length of the next trial; where Newton's method leaves the range from
    half to twice the parabola's root, the latter is used."""
    steps = parabola_exit(jet, tolerance)
    (w, first, second), (third, fourth) = jet, higher
    t = steps
    for _ in range(3):
        f = w + t * (first + t * (second / 2 + t * (third / 6 + t * fourth / 24)))
        slope = first + t * (second + t * (third / 2 + t * fourth / 6))
        t = t - f / slope
    t = jnp.where((t > 0.5 * steps) & (t < 2 * steps), t, steps)
    return jnp.min(jnp.where(steps > 0, t, jnp.inf))


def _pieces() -> np.ndarray:
    """(POINTS, 6): control points of the pieces from those of the whole, by de Casteljau's rule; pieces share their
    ends."""

    def halves(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        left, right, level = [], [], list(rows)
        while level:
            left, right = [*left, level[0]], [level[-1], *right]
            level = [0.5 * (a + b) for a, b in itertools.pairwise(level)]
        return np.array(left), np.array(right)

    parts = [np.eye(6)]
    while len(parts) < PIECES:
        parts = [half for part in parts for half in halves(part)]
    return np.concatenate([parts[0][:1], *(part[1:] for part in parts)])


REFINE = _pieces()
_BINOMIAL = np.array([1, 5, 10, 10, 5, 1])


class Decision(NamedTuple):
    """What is known of [a, b]; all of shape (gauges,) but for `finite`."""

    clear: Array  # positive throughout
    single: Array  # positive, then one root
    root: Array  # that root, as a part of b − a
    finite: Array
    size: Array  # of the largest control point


def decide(before: Jet, higher: HigherDerivatives, after: Jet, length: Array, tolerance: Array) -> Decision:
    """For each gauge, whether [a, b] contains no root or exactly one, from the jets at its ends and the higher
    derivatives at a (`higher`). Values above −tolerance count as positive."""
    c = _quintic(before, after, length)
    low = (3 * c[0] + 5 * (c[1] - c[0])) / 3  # control points of the cubic: its ends, and these between
    high = (3 * c[5] + 5 * (c[4] - c[5])) / 3
    more, zero = _higher_order_margin(c, higher, length), jnp.zeros_like(c[0])
    # The margin is given by nonnegative control points too, so that it does not vanish where H5 and H3 cross.
    off = (
        jnp.abs(c[2] - (c[0] + 6 * low + 3 * high) / 10) + more,
        jnp.abs(c[3] - (3 * low + 6 * high + c[5]) / 10) + more,
    )
    whole = _decide_by_points(jnp.stack(c), jnp.stack([zero, zero, *off, zero, zero]), tolerance)
    # If the six control points of [a, b] decide, those of its pieces, which are averages of them, would decide alike.
    # Most flights are short and are decided here; all 41 points cost more than a jet of seven atoms.
    decided = jnp.all((c[0] > -tolerance) & (whole[0] | whole[1]))
    clear, single, start = jax.lax.cond(
        decided, lambda: whole, lambda: _decide_by_points(*_in_pieces(c, off), tolerance)
    )
    finite = jnp.all(jnp.isfinite(c[5]) & jnp.isfinite(c[4]) & jnp.isfinite(c[3]))
    size = jnp.maximum(jnp.maximum(jnp.abs(c[0]), jnp.abs(c[5])), jnp.maximum(jnp.abs(c[1]), jnp.abs(c[4])))
    return Decision(clear, single, _root(c, start), finite, size)


def _higher_order_margin(c: tuple[Array, ...], higher: HigherDerivatives, length: Array) -> Array:
    """A bound of |H7 − H5|, where H7 also has the third and fourth derivatives at a:

        H7 − H5 = d₃ s³(1 − s)³ + d₄ s⁴(1 − s)³,

    which is at most |d₃|/40 + |d₄|/67.5 times B₂ + B₃ = 10 s²(1 − s)²."""
    cube = lambda x: x * length * length * length  # in this order: length³ overflows for a free flight
    d3 = cube(higher.third) / 6 - 10 * (c[3] - c[0] + 3 * (c[1] - c[2]))
    d4 = cube(higher.fourth) * length / 24 - 5 * (c[4] + c[0] - 4 * (c[3] + c[1]) + 6 * c[2]) + 3 * d3
    return jnp.abs(d3) / 40 + jnp.abs(d4) / 67.5


def _in_pieces(c: tuple[Array, ...], off: tuple[Array, Array]) -> tuple[Array, Array]:
    """Control points of the pieces and their margins, (POINTS, gauges): sums over constant columns, element-wise
    arithmetic, which the compiler fuses."""
    column = lambda j: REFINE[:, j].reshape(POINTS, 1)
    return jnp.asarray(sum(column(j) * c[j] for j in range(6))), jnp.asarray(column(2) * off[0] + column(3) * off[1])


def _decide_by_points(points: Array, margin: Array, tolerance: Array) -> tuple[Array, Array, Array]:
    """Whether control points (points, gauges) prove that a gauge is positive, or that it has one root, and about
    where."""
    legs = len(points) - 1
    inside, safe = points > -tolerance, points - margin > -tolerance
    turns = lambda x: (x[1:] != x[:-1]).astype(int)
    # Four counts are packed into the four bytes of one integer, so that one sum computes all of them.
    word = inside[1:].astype(int) + (turns(inside) << 8) + (turns(safe) << 16) + (safe[1:].astype(int) << 24)
    word = jnp.sum(word, axis=0)
    inner, crossings, doubts, sure = word & 255, (word >> 8) & 255, (word >> 16) & 255, word >> 24
    return sure == legs, (crossings == 1) & (doubts == 1), (inner + 0.5) / legs


def _quintic(before: Jet, after: Jet, length: Array) -> tuple[Array, ...]:
    """Control points of the quintic with these jets at its ends."""
    rise, fall = length * before.first / 5, length * after.first / 5
    square = length * length / 20
    return (
        before.value, before.value + rise, before.value + 2 * rise + square * before.second,
        after.value - 2 * fall + square * after.second, after.value - fall, after.value,
    )  # fmt: skip


def _root(c: tuple[Array, ...], s: Array) -> Array:
    """The root of the quintic near s by Newton's method, in powers of s."""
    differences, powers = list(c), []
    for k in range(6):
        powers.append(_BINOMIAL[k] * differences[0])
        differences = [b - a for a, b in itertools.pairwise(differences)]
    for _ in range(4):
        f, slope = powers[5], jnp.zeros_like(s)
        for k in range(4, -1, -1):
            f, slope = f * s + powers[k], slope * s + f
        s = jnp.clip(s - f / jnp.where(slope == 0, 1.0, slope), 0.0, 1.0)
    return s


def parabola_exit(jet: Jet, tolerance: Array | float = 0.0) -> Array:
    """The first positive root of w + w't + ½w''t², for each gauge; infinite where there is none. A root at t = 0 does
    not count if the gauge rises. A falling gauge that is already slightly below 0 has a slightly negative root. A gauge
    whose minimum is above −tolerance has no root."""
    w, first, second = jet
    shallow = (second > 0) & (first * first < 2 * (w + tolerance) * second)
    under = jnp.where(shallow, -1.0, first * first - 2 * w * second)
    square = jnp.sqrt(jnp.maximum(under, 0.0))
    falling = 2 * w / (square - first)
    rising = (first + square) / -second
    root = jnp.where(first < 0, falling, jnp.where(second < 0, rising, jnp.inf))
    return jnp.where(under >= 0, root, jnp.inf)


class Found(NamedTuple):
    """The outcome of one trial."""

    moved: Array  # whether [a, b] is free of exits
    exit: Array  # whether an exit was found
    at: Array  # its time after b
    gauge: Array  # and the gauge that vanishes there
    trial: Array  # length of the next trial, from a or, where that moved, from b


def one_trial(
    before: Jet, higher: HigherDerivatives, after: Jet, length: Array, tolerance: Array, starts: Array
) -> Found:
    """The outcome of a trial, from the jets at a and b = a + length and the higher derivatives at a (`higher`).
    `starts`: whether a is the beginning of the flight."""
    decision = decide(before, higher, after, length, tolerance)
    steps = parabola_exit(after, tolerance)
    # The third derivative is the difference of the two curvatures over the length, but at least 1/16 of the larger
    # curvature over the length, since the two may be equal by chance.
    curve = jnp.maximum(jnp.abs(after.second), jnp.abs(before.second))
    error = jnp.maximum(jnp.abs(after.second - before.second), curve / 16) / length * jnp.abs(steps) ** 3 / 6
    sharp = (after.first < 0) & (jnp.abs(steps) <= length / 4) & (error <= ROOT_TOLERANCE * decision.size)
    # Exits at a itself. Of two simultaneous exits the second is left for the next flight, which then starts on or below
    # an edge; and a gauge that was accepted as touching 0 may still fall below it.
    exits_at_a = (before.first < 0) & ((starts & (before.value <= 0)) | (~decision.clear & (before.value <= tolerance)))
    offered = jnp.where(exits_at_a, -length, jnp.where(sharp, steps, jnp.inf))
    at, gauge = jnp.min(offered), jnp.argmin(offered)
    others = (decision.clear & ((steps <= 0) | (steps > at))) | (jnp.arange(len(steps)) == gauge) & (
        decision.clear | decision.single
    )
    exit = decision.finite & ((at == -length) | ((at < jnp.inf) & jnp.all(others)))
    moved = decision.finite & jnp.all(decision.clear) & ~exit
    nearer = jnp.where(decision.root < 1 - 1e-9, decision.root, 0.995)  # b moves in any case
    root = jnp.min(jnp.where(decision.single, nearer, jnp.where(decision.clear, 1.0, 0.5)))
    shorter = length * jnp.where(decision.finite & (root > 0), root, 0.5)
    onward = jnp.min(jnp.where(steps > 0, steps, jnp.inf))
    return Found(moved, exit, at, gauge, jnp.where(moved, onward, shorter))


def proved_advance(before: Jet, low: Array, length: Array, tolerance: Array) -> Array:
    """How far from a, up to `length`, no gauge can vanish whose curvature is at least `low`."""
    free = parabola_exit(Jet(before.value + tolerance, before.first, low))
    return jnp.minimum(jnp.min(jnp.where(free > 0, free, 0.0)), length)


def one_proof(
    before: Jet, after: Jet, low: Array, high: Array, length: Array, advance: Array, tolerance: Array, starts: Array
) -> Found:
    """The outcome of a trial of which the first part, `advance` ≤ `length`, is proved to be free of exits. `low` and
    `high` bound the curvatures over `length`; `after` is the jet at a + advance."""
    steps = parabola_exit(after, tolerance)
    sharp = (after.first < 0) & (
        (high - low) * steps * steps
        <= ROOT_TOLERANCE * jnp.maximum(jnp.abs(before.value), jnp.abs(after.value)) + tolerance
    )
    exits_at_a = (before.first < 0) & ((starts & (before.value <= 0)) | ((advance == 0) & (before.value <= tolerance)))
    offered = jnp.where(exits_at_a, -advance, jnp.where(sharp, steps, jnp.inf))
    at, gauge = jnp.min(offered), jnp.argmin(offered)
    finite = jnp.all(jnp.isfinite(after.value + after.first + after.second))
    exit = jnp.any(exits_at_a) | (finite & (at < jnp.inf) & jnp.all((steps <= 0) | (steps >= at)))
    moved = finite & (advance > 0) & ~exit
    # Bounds that were too wide for the whole length are asked for less.
    onward = jnp.where(advance < length, 2 * advance, 4 * length)
    onward = jnp.minimum(jnp.min(jnp.where(steps > 0, 1.001 * steps, jnp.inf)), onward)
    return Found(moved, exit, at, gauge, jnp.where(moved, onward, 0.5 * length))


def touch_tolerance(here: Jet) -> Array:
    """How far each gauge may go below 0 and still only touch it."""
    walls = here.value[2:]
    return TOUCH_TOLERANCE * jnp.concatenate(
        [jnp.ones(2, walls.dtype), jnp.full_like(walls, jnp.max(jnp.abs(walls), initial=0.0))]
    )


@jax.custom_jvp
def exit_time(t: Array, gauge: Array, rate: Array) -> Array:
    """The time t at which a gauge vanishes, found by a search; its derivative is that of the root, dt = −dw/w'."""
    return t


@exit_time.defjvp
def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
    t, _, rate = primals
    return t, -tangents[1] / rate
