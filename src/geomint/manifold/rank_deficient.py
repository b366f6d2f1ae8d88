"""Constraints that depend on each other: redundant ones, and singular positions.

Newton's method in an orthonormal basis U of the normal space at q (see `normal_space`): the correction of the pull is
Uᵀy/h with the least-squares solution of G(Q) M⁻¹Uᵀy = g(Q). Its condition is that of G, not the square of it as for G
M⁻¹Gᵀ.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.linalg.cpu_kernels import inner
from ..numerics.linalg.rank import cutoff, least_squares, length
from .newton import MATRICES, OWN_ROUNDING, Iteration
from .normal_space import gradients, normal_space
from .position import Drift, Placed, Root, placed
from .scales import sizes
from .solver import IterativeSolver

COLUMNS_SHARE = 0.64  # columns of length 1 of which less than this power of eps is left count as dependent


class _Round(NamedTuple):
    pull: Array
    x: Array
    size: Array  # of the last correction
    done: Any
    count: Any


def in_normal_space(drift: Drift, constrained: tuple[int, ...] | None, guess: Array, x: Array, done: Any) -> _Round:
    """The iteration, from a guess of the pull; x is returned as it is where `done`."""
    mech, shape, eps = drift.mech, drift.q.shape, jnp.finfo(x.dtype).eps

    def newton(s: _Round) -> _Round:
        again = s.count == MATRICES // 2  # give up the guess and begin with none
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
        columns = (velocities(normal.basis) @ rows.T) * scale
        y = least_squares(columns, g * scale, cutoff(g.dtype, COLUMNS_SHARE))
        change = normal.pull(y, shape)
        moved, measure = mech.velocity(change), sizes(constrained, drift.q, there)
        size = measure.unit * inner(moved, moved)
        zero = jnp.all(jnp.abs(g) <= OWN_ROUNDING * eps * jnp.sum(jnp.abs(rows * there.ravel()), axis=1))
        stalled = (4 * size >= s.size) & (size <= 1e6 * measure.rounding) & (s.count != 0) & ~again
        pull = jnp.where(zero, pull, pull + change / drift.h)
        x = drift.stride * normal.multipliers(mech, coordinates + jnp.where(zero, 0.0, y / drift.h), shape)
        return _Round(pull, x, size, zero | (size <= measure.rounding) | stalled, s.count + 1)

    begin = _Round(guess, x, sizes(constrained, drift.q).whole, done, 0)
    return jax.lax.while_loop(lambda s: ~s.done & (s.count < MATRICES), newton, begin)


class RankDeficientSolver(IterativeSolver):
    """The solver of redundant constraints all along a run; with `after_chords`, of a step that Newton's method failed
    to take, whose plan it keeps."""

    after_chords: bool = eqx.field(static=True, default=False)
    failure: ClassVar[str] = "Newton's method did not converge"

    @property
    def covers_dependence(self) -> bool:
        return True

    @property
    def dependent(self) -> bool:
        return True

    def guess(self, impulse: Array, pull: Array) -> Array:
        return pull

    def place(self, mech: Any, q: Array, p: Array, h: Array, guess: Array) -> Placed:
        drift = Drift(mech, q, p, h)

        def solve() -> Root:
            if not self.after_chords:
                zeros, no = jnp.zeros(drift.constraints, guess.dtype), jnp.zeros((), bool)
                found = in_normal_space(drift, self.constrained, guess, zeros, no)
                return Root(found.x, found.pull, found.done, found.count)
            chord = Iteration(self.plan, drift, self.constrained).chords(guess)
            found = in_normal_space(drift, self.constrained, guess, chord.x, chord.done)
            pull = jnp.where(found.count > 0, found.pull, drift.pull(found.x))
            return Root(found.x, pull, found.done, chord.rounds + found.count)

        return placed(self.plan, drift, solve, may_add=True)
