"""Newton's method for the position equation g(Q) = 0, Q = Q_free − M⁻¹G(q)ᵀx.

Newton's matrix is −K with K = G(Q) M⁻¹G(q)ᵀ, which has the structure of G M⁻¹Gᵀ (blocks for molecules, a band for chains),
found before the run, and is close to that positive definite matrix, whatever the sign of h.

The first guess is a pull w = G(q)ᵀμ extrapolated from the steps before, not an impulse μ: near a singular position μ grows
like 1/(t − t*), while the pull stays smooth. The guess places Q₀, and the first round solves
K x = g(Q₀) + G(Q₀)(Q_free − Q₀) for the whole x. The rounds after it use the same matrix and gain as many digits each as
the guess has. Where they do not, Newton's method starts again from Q₀ with a new matrix in every round.

The iteration goes on until the correction of Q is at round-off of |Q|: a looser tolerance would leave an error that
depends on the path and shows as a drift. Near a singular position the correction stays larger than that, because the rounding
of g is divided by the smallest singular value of G; there the iteration ends when each g_i is at its own rounding.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.linalg import Plan
from ..numerics.linalg.machine_code import inner
from ..numerics.linalg.rank import cutoff, least_squares, length
from .normal_space import gradients, normal_space
from .place import Drift, Root
from .scales import rounding_scale

MATRICES = 20  # rounds with a new matrix in each, half of them from the guess and half from none
SMALL = 32  # coordinates up to which a position is computed where it is used rather than carried through a loop
OWN_ROUNDING = 4.0  # units of round-off of Σ|G_ij||Q_j| below which g_i counts as zero


class Sizes(NamedTuple):
    """How corrections of positions are measured: `unit` times a squared length is compared with `rounding`."""

    unit: Any
    rounding: Any  # of positions
    whole: Any  # positions themselves


def sizes(constrained: tuple[int, ...] | None, *positions: Array) -> Sizes:
    """The sizes of corrections of positions like these, of which only the coordinates in constraints count (None: all)."""
    number = jnp.finfo(positions[0].dtype)
    if constrained is not None:
        positions = tuple(x.ravel()[np.asarray(constrained)] for x in positions)
    whole = sum(inner(x, x) for x in positions) * (2 / len(positions)) + number.tiny / number.eps**2
    if number.bits == 64:
        return Sizes(1.0, number.eps**2 * whole, whole)
    # In single precision fourth powers of lengths would leave the range of numbers: lengths are divided by eps|Q| first.
    return Sizes(1 / (number.eps**2 * whole), 1.0, jnp.asarray(number.eps**-2, number.dtype))


class _Chord(NamedTuple):
    x: Array
    position: tuple[Array, ...]  # Q, where it is carried
    size: Array  # of the last correction
    done: Any
    over: Any  # done, or not converging
    rounds: Any


class _Renewed(NamedTuple):
    x: Array
    size: Array
    done: Any
    count: Any


class _Rescued(NamedTuple):
    pull: Array
    x: Array
    size: Array
    done: Any
    count: Any


class Newton:
    """One solve."""

    def __init__(self, plan: Plan, drift: Drift, constrained: tuple[int, ...] | None):
        self.plan, self.drift = plan, drift
        self.sizes = functools.partial(sizes, constrained)
        self.margin = 100.0 * drift.q.size

    def matrix(self, there: Array, dtype: Any) -> Any:
        """K, factored; the iteration corrects itself, so that few digits do."""
        constraint = self.drift.mech.constraint
        return self.plan.factor(lambda x: jax.jvp(constraint, (there,), (self.drift.push(x),))[1], dtype, rough=True)

    def squared(self, x: Array, g: Array) -> Array:
        """|ΔQ|². With one mass for all, `push` is G(q)ᵀ and K = G(Q)G(q)ᵀ, so that |ΔQ|² = |G(q)ᵀx|² is x·g up to the
        difference of G(Q) and G(q) (not used in single precision, where it might underflow)."""
        if self.drift.one_mass and x.dtype == jnp.float64:
            return jnp.abs(inner(x, g))
        moved = self.drift.push(x)
        return inner(moved, moved)

    def last(self, size: Array, before: Array, measure: Sizes) -> Array:
        """Whether a correction is the last one needed: it is at round-off; or the next one, whose square is about
        size²/before, would be below eps|Q|/(10√n), a tenth of the rounding of a single coordinate."""
        return (size <= measure.rounding) | (self.margin * (size * size) <= before * measure.rounding)

    def chords(self, guess: Array) -> _Chord:
        """The matrix of the guess, as long as it gains a digit a round."""
        drift, mech = self.drift, self.drift.mech
        guessed_shift = mech.displacement(guess, drift.h)
        guessed = drift.free - guessed_shift
        factored, measure = self.matrix(guessed, guess.dtype), self.sizes(drift.q)
        g, rate = jax.jvp(mech.constraint, (guessed,), (guessed_shift,))
        x = factored.solve(g + rate)
        there = drift.at(x)
        moved = there - guessed
        carried, no = guessed.size > SMALL, jnp.zeros((), bool)

        def chord(s: _Chord) -> _Chord:
            g = mech.constraint(s.position[0] if carried else drift.at(s.x))
            change = factored.solve(g)
            size = measure.unit * self.squared(change, g)
            done = self.last(size, s.size, measure)
            # Where a round gains less than a digit, it is not taken, and a new matrix pays; NaN compares false and ends it.
            gains = 100 * size <= s.size
            x = jnp.where(gains, s.x + change, s.x)
            return _Chord(x, (drift.at(x),) if carried else (), size, done, done | ~gains, s.rounds + 1)

        begin = _Chord(x, (there,) if carried else (), measure.unit * inner(moved, moved), no, no, 1)
        return jax.lax.while_loop(lambda s: ~s.over, chord, begin)

    def renewed(self, x: Array, done: Any) -> _Renewed:
        """A new matrix in every round, by the structure found before the run."""
        drift, eps = self.drift, jnp.finfo(x.dtype).eps

        def newton(s: _Renewed) -> _Renewed:
            again = s.count == MATRICES // 2  # a guess that led nowhere is given up for none at all
            x = jnp.where(again, 0.0, s.x)
            there = drift.at(x)
            g = drift.mech.constraint(there)
            change = self.matrix(there, x.dtype).solve(g)
            measure = self.sizes(drift.q, there)
            size = measure.unit * self.squared(change, g)
            first = (s.count == 0) | again
            zero = jnp.all(jnp.abs(g) <= OWN_ROUNDING * eps * rounding_scale(drift.mech, there))
            done = zero | (size <= measure.rounding) | (~first & self.last(size, s.size, measure))
            stalled = (4 * size >= s.size) & (size <= 1e6 * measure.rounding)  # as small as rounding lets it become
            return _Renewed(jnp.where(zero, x, x + change), size, done | (stalled & ~first), s.count + 1)

        begin = _Renewed(x, self.sizes(drift.q).whole, done, 0)
        return jax.lax.while_loop(lambda s: ~s.done & (s.count < MATRICES), newton, begin)

    def rescued(self, guess: Array, x: Array, done: Any) -> _Rescued:
        """A new matrix in every round, by an orthonormal basis U of the normal space at q: the correction of the pull is
        Uᵀy/h with the least-squares solution of G(Q) M⁻¹Uᵀy = g(Q). Its condition is that of G, not the square of it, and
        constraints may depend on each other."""
        drift, mech, shape = self.drift, self.drift.mech, self.drift.q.shape
        eps = jnp.finfo(x.dtype).eps

        def newton(s: _Rescued) -> _Rescued:
            again = s.count == MATRICES // 2
            # q and p are made to depend on the loop counter, so that XLA does not compute the normal space in front of the
            # loop, in steps that need no round of it.
            never = s.count < 0
            normal = normal_space(mech, jnp.where(never, s.pull, drift.q), jnp.where(never, s.pull, drift.p))
            coordinates = normal.coordinates(mech, jnp.where(again, 0.0, s.pull))
            pull = normal.pull(coordinates, shape)
            there = drift.pulled(pull)
            g, rows = mech.constraint(there), gradients(mech, there)
            velocities = jax.vmap(lambda x: mech.velocity(x.reshape(shape)).ravel())
            lengths = length(jnp.sum(rows * velocities(rows), axis=1))
            scale = jnp.where(lengths > 0, 1 / jnp.where(lengths > 0, lengths, 1.0), 0.0)
            y = least_squares((velocities(normal.basis) @ rows.T) * scale, g * scale, cutoff(g.dtype, 0.64))
            change = normal.pull(y, shape)
            moved, measure = mech.velocity(change), self.sizes(drift.q, there)
            size = measure.unit * inner(moved, moved)
            zero = jnp.all(jnp.abs(g) <= OWN_ROUNDING * eps * jnp.sum(jnp.abs(rows * there.ravel()), axis=1))
            stalled = (4 * size >= s.size) & (size <= 1e6 * measure.rounding) & (s.count != 0) & ~again
            pull = jnp.where(zero, pull, pull + change / drift.h)
            x = drift.stride * normal.multipliers(mech, coordinates + jnp.where(zero, 0.0, y / drift.h), shape)
            return _Rescued(pull, x, size, zero | (size <= measure.rounding) | stalled, s.count + 1)

        begin = _Rescued(guess, x, self.sizes(drift.q).whole, done, 0)
        return jax.lax.while_loop(lambda s: ~s.done & (s.count < MATRICES), newton, begin)


def newton(plan: Plan, rescue: bool, constrained: tuple[int, ...] | None, drift: Drift, guess: Array, m: int) -> Root:
    """x from a guess of w = G(q)ᵀμ; with `rescue`, singular positions are covered too, and w is more than G(q)ᵀμ there."""
    solve = Newton(plan, drift, constrained)
    if plan.kind == "least-squares":
        zeros, no = jnp.zeros(m, guess.dtype), jnp.zeros((), bool)
        found = solve.rescued(guess, zeros, no)
        return Root(found.x, found.pull, found.done, found.count)
    chord = solve.chords(guess)
    if not rescue:
        found = solve.renewed(chord.x, chord.done)
        return Root(found.x, None, found.done, chord.rounds + found.count)
    found = solve.rescued(guess, chord.x, chord.done)
    pull = jnp.where(found.count > 0, found.pull, drift.pull(found.x))
    return Root(found.x, pull, found.done, chord.rounds + found.count)
