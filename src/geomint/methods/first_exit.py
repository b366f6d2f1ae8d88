"""Where a straight flight first leaves a region: the search under every event-driven method.

A region is given by gauges w_i, positive inside. Along the ray q + t v a gauge is a smooth function of t, known at
chosen times by its jet (w, w', w''). The search marches: [0, a] is known to be free of exits, b is a trial, and the
jets at a and b decide whether [a, b] is free of exits. At a, the third and fourth derivatives are known too.

 -  The quintic H5 that has both jets, in Bernstein form on eight pieces, encloses itself: where all its control
    points are positive, so is H5. What H5 may differ from w is taken to be |H5 − H3| + |H7 − H5|, control point by
    control point: H3, the cubic through values and slopes, errs by the first, of order (b − a)⁴, and H5 is better by
    two orders; H7 has all derivatives known at a. All control points positive by that margin: [a, b] is free, and a
    moves to b.
 -  One sign change among them means one root (the polygon varies no less than the polynomial): the root of the
    smallest is the next trial.
 -  Everything else is not yet clear: b moves to the middle.

Where bounds of the curvatures over [a, b] are known, w'' ≥ m, no model is needed: a gauge is positive as long as
w + w't + ½mt² is, so a may move to the first root of the lowest of these parabolas. Bounds tighten with [a, b], and
the march converges to the first exit from inside, by three times the digits a trial. That is a proof, up to rounding.

Near a root the parabola at b finishes, where the third derivative (from the two jets) says that it errs less than
rounding. Two jets can't tell what happens between them if that is quicker than they are apart. So no trial is longer
than REACH/ω, where

    ω² = (w⁗ w″ + w‴²) / (w‴ w′ + w″²),   all products taken by their size,

at a: the frequency of an oscillation, at any phase of it, and about (n + 2)/r for a potential that goes like the
power −n of the distance r from a body ahead: trials shorten in time. What begins abruptly, and shows nothing of
itself before, escapes this.

The same derivatives foretell the exit, mostly so well that the first trial ends there.

Reference: the search of Gonzalez, Schmidt and Ortiz, Int. J. Numer. Meth. Engng 82 (2010) 205, section 3, made safe.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.taylor import derivatives

PIECES = 8
POINTS = 5 * PIECES + 1
SHARP = 1e-13  # error of a root, in units of the largest control point of its gauge
REACH = 2.0  # radians of the quickest oscillation that a trial may cover
GRAZE = 1e-13  # a gauge that goes below 0 by less than this part of its size has touched it, no more


class Jet(NamedTuple):
    """Values and the first two derivatives of the gauges, each of shape (gauges,)."""

    value: Array
    rate: Array
    bend: Array


def jet(gauges: Callable[[Array], Array], t: Array) -> Jet:
    """The jet of functions of time."""
    return Jet(*derivatives(gauges, t, 2))


class Outlook(NamedTuple):
    """The third and fourth derivatives at the beginning of a trial."""

    third: Array
    fourth: Array


def outlook(gauges: Callable[[Array], Array], t: Array) -> tuple[Jet, Outlook]:
    """The jet and what follows it."""
    value, rate, bend, third, fourth = derivatives(gauges, t, 4)
    return Jet(value, rate, bend), Outlook(third, fourth)


def quickness(jet: Jet, ahead: Outlook) -> Array:
    """The longest trial: REACH/ω of the quickest gauge."""
    (_, rate, bend), (third, fourth) = jet, ahead
    above, below = third**2 + jnp.abs(bend * fourth), bend**2 + jnp.abs(rate * third)
    usable = jnp.minimum(above, below) > 1e-200  # otherwise the products have underflown
    return jnp.min(jnp.where(usable, REACH * jnp.sqrt(below / above), jnp.inf))


def predicted(jet: Jet, ahead: Outlook, slack: Array) -> Array:
    """When the first exit is to be expected: that of the parabola and, from there, Newton's method on the polynomial
    with all four derivatives. A guess, for a trial to judge: where it strays far from the parabola's, that one is as
    good."""
    steps = parabola_exit(jet, slack)
    (w, rate, bend), (third, fourth) = jet, ahead
    t = steps
    for _ in range(3):
        f = w + t * (rate + t * (bend / 2 + t * (third / 6 + t * fourth / 24)))
        slope = rate + t * (bend + t * (third / 2 + t * fourth / 6))
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


class Judged(NamedTuple):
    """What is known of [a, b]; all of shape (gauges,) but for `finite`."""

    clear: Array  # positive throughout
    single: Array  # positive, then one root
    root: Array  # that root, as a part of b − a
    finite: Array
    size: Array  # of the largest control point


def judge(before: Jet, ahead: Outlook, after: Jet, length: Array, slack: Array) -> Judged:
    """The verdict on an interval from the jets at its ends and what more is known at its beginning. Gauges count as
    positive down to −slack."""
    c = _quintic(before, after, length)
    low = (3 * c[0] + 5 * (c[1] - c[0])) / 3  # control points of the cubic: its ends, and these between
    high = (3 * c[5] + 5 * (c[4] - c[5])) / 3
    more, zero = _unforeseen(c, ahead, length), jnp.zeros_like(c[0])
    # The margin, too, has control points, none of them negative: it does not vanish where H5 and H3 happen to cross.
    off = (
        jnp.abs(c[2] - (c[0] + 6 * low + 3 * high) / 10) + more,
        jnp.abs(c[3] - (3 * low + 6 * high + c[5]) / 10) + more,
    )
    whole = _verdict(jnp.stack(c), jnp.stack([zero, zero, *off, zero, zero]), slack)
    # Where the six points of the whole decide, those of its pieces, which are means of them, would decide alike: they
    # vary no more. Most flights are short and end here; forty-one points cost more than a jet of seven atoms.
    decided = jnp.all((c[0] > -slack) & (whole[0] | whole[1]))
    clear, single, start = jax.lax.cond(decided, lambda: whole, lambda: _verdict(*_in_pieces(c, off), slack))
    finite = jnp.all(jnp.isfinite(c[5]) & jnp.isfinite(c[4]) & jnp.isfinite(c[3]))
    size = jnp.maximum(jnp.maximum(jnp.abs(c[0]), jnp.abs(c[5])), jnp.maximum(jnp.abs(c[1]), jnp.abs(c[4])))
    return Judged(clear, single, _root(c, start), finite, size)


def _unforeseen(c: tuple[Array, ...], ahead: Outlook, length: Array) -> Array:
    """What the quintic misses of the third and fourth derivatives at its beginning: with them it would be greater by

        d₃ s³(1 − s)³ + d₄ s⁴(1 − s)³,

    at most |d₃|/40 + |d₄|/67.5 times B₂ + B₃ = 10 s²(1 − s)²."""
    cube = lambda x: x * length * length * length  # in this order, as the length of a free flight has no cube
    d3 = cube(ahead.third) / 6 - 10 * (c[3] - c[0] + 3 * (c[1] - c[2]))
    d4 = cube(ahead.fourth) * length / 24 - 5 * (c[4] + c[0] - 4 * (c[3] + c[1]) + 6 * c[2]) + 3 * d3
    return jnp.abs(d3) / 40 + jnp.abs(d4) / 67.5


def _in_pieces(c: tuple[Array, ...], off: tuple[Array, Array]) -> tuple[Array, Array]:
    """Control points of the pieces and their margins, (POINTS, gauges): sums over constant columns, element-wise
    arithmetic, which the compiler fuses."""
    column = lambda j: REFINE[:, j].reshape(POINTS, 1)
    return jnp.asarray(sum(column(j) * c[j] for j in range(6))), jnp.asarray(column(2) * off[0] + column(3) * off[1])


def _verdict(points: Array, margin: Array, slack: Array) -> tuple[Array, Array, Array]:
    """Whether control points (points, gauges) prove that a gauge is positive, or that it has one root, and about
    where."""
    legs = len(points) - 1
    inside, safe = points > -slack, points - margin > -slack
    turns = lambda x: (x[1:] != x[:-1]).astype(int)
    # Four counts in one sum.
    word = inside[1:].astype(int) + (turns(inside) << 8) + (turns(safe) << 16) + (safe[1:].astype(int) << 24)
    word = jnp.sum(word, axis=0)
    inner, crossings, doubts, sure = word & 255, (word >> 8) & 255, (word >> 16) & 255, word >> 24
    return sure == legs, (crossings == 1) & (doubts == 1), (inner + 0.5) / legs


def _quintic(before: Jet, after: Jet, length: Array) -> tuple[Array, ...]:
    """Control points of the quintic with these jets at its ends."""
    rise, fall = length * before.rate / 5, length * after.rate / 5
    square = length * length / 20
    return (
        before.value, before.value + rise, before.value + 2 * rise + square * before.bend,
        after.value - 2 * fall + square * after.bend, after.value - fall, after.value,
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


def parabola_exit(jet: Jet, slack: Array | float = 0.0) -> Array:
    """The first positive root of w + w't + ½w''t², for each gauge; infinite where there is none. A root at 0 of a
    gauge that rises from it does not count; a gauge just below 0 that falls has its root a little before; one that
    dips below 0 by less than `slack` has none."""
    w, rate, bend = jet
    shallow = (bend > 0) & (rate * rate < 2 * (w + slack) * bend)
    under = jnp.where(shallow, -1.0, rate * rate - 2 * w * bend)
    square = jnp.sqrt(jnp.maximum(under, 0.0))
    falling = 2 * w / (square - rate)
    rising = (rate + square) / -bend
    root = jnp.where(rate < 0, falling, jnp.where(bend < 0, rising, jnp.inf))
    return jnp.where(under >= 0, root, jnp.inf)


class Found(NamedTuple):
    """The outcome of one trial."""

    moved: Array  # whether [a, b] is free of exits
    exit: Array  # whether an exit was found
    at: Array  # its time after b
    gauge: Array  # and the gauge that vanishes there
    trial: Array  # length of the next trial, from a or, where that moved, from b


def one_trial(before: Jet, ahead: Outlook, after: Jet, length: Array, slack: Array, starts: Array) -> Found:
    """What two jets, `length` apart, say, and what follows the first; `starts`: whether that is the beginning of the
    flight."""
    judged = judge(before, ahead, after, length, slack)
    steps = parabola_exit(after, slack)
    # The third derivative, from the two jets; where they happen to have the same curvature, as much as it may be at
    # this length.
    curve = jnp.maximum(jnp.abs(after.bend), jnp.abs(before.bend))
    error = jnp.maximum(jnp.abs(after.bend - before.bend), curve / 16) / length * jnp.abs(steps) ** 3 / 6
    sharp = (after.rate < 0) & (jnp.abs(steps) <= length / 4) & (error <= SHARP * judged.size)
    # Two exits at the same time leave the second for the next flight; a gauge that was let pass as touching may fall
    # after all.
    at_once = (before.rate < 0) & ((starts & (before.value <= 0)) | (~judged.clear & (before.value <= slack)))
    offered = jnp.where(at_once, -length, jnp.where(sharp, steps, jnp.inf))
    at, gauge = jnp.min(offered), jnp.argmin(offered)
    others = (judged.clear & ((steps <= 0) | (steps > at))) | (jnp.arange(len(steps)) == gauge) & (
        judged.clear | judged.single
    )
    exit = judged.finite & ((at == -length) | ((at < jnp.inf) & jnp.all(others)))
    moved = judged.finite & jnp.all(judged.clear) & ~exit
    nearer = jnp.where(judged.root < 1 - 1e-9, judged.root, 0.995)  # b moves in any case
    root = jnp.min(jnp.where(judged.single, nearer, jnp.where(judged.clear, 1.0, 0.5)))
    shorter = length * jnp.where(judged.finite & (root > 0), root, 0.5)
    onward = jnp.min(jnp.where(steps > 0, steps, jnp.inf))
    return Found(moved, exit, at, gauge, jnp.where(moved, onward, shorter))


def proved(before: Jet, low: Array, length: Array, slack: Array) -> Array:
    """How far from a, up to `length`, no gauge can vanish whose curvature is at least `low`."""
    free = parabola_exit(Jet(before.value + slack, before.rate, low))
    return jnp.minimum(jnp.min(jnp.where(free > 0, free, 0.0)), length)


def one_proof(
    before: Jet, after: Jet, low: Array, high: Array, length: Array, advance: Array, slack: Array, starts: Array
) -> Found:
    """What is known after an `advance` of at most `length`, over which the curvatures lay between `low` and `high`;
    `after` is there."""
    steps = parabola_exit(after, slack)
    sharp = (after.rate < 0) & (
        (high - low) * steps * steps <= SHARP * jnp.maximum(jnp.abs(before.value), jnp.abs(after.value)) + slack
    )
    at_once = (before.rate < 0) & ((starts & (before.value <= 0)) | ((advance == 0) & (before.value <= slack)))
    offered = jnp.where(at_once, -advance, jnp.where(sharp, steps, jnp.inf))
    at, gauge = jnp.min(offered), jnp.argmin(offered)
    finite = jnp.all(jnp.isfinite(after.value + after.rate + after.bend))
    exit = jnp.any(at_once) | (finite & (at < jnp.inf) & jnp.all((steps <= 0) | (steps >= at)))
    moved = finite & (advance > 0) & ~exit
    # Bounds that were too wide for the whole length are asked for less.
    onward = jnp.where(advance < length, 2 * advance, 4 * length)
    onward = jnp.minimum(jnp.min(jnp.where(steps > 0, 1.001 * steps, jnp.inf)), onward)
    return Found(moved, exit, at, gauge, jnp.where(moved, onward, 0.5 * length))


def tolerated(here: Jet) -> Array:
    """How far each gauge may go below 0 and still only touch it."""
    walls = here.value[2:]
    return GRAZE * jnp.concatenate(
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
