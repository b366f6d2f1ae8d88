"""Constraints that depend on each other: redundant ones, and singular positions.

Newton's method in an orthonormal basis U of the normal space at q (see `normal_space`): the correction of the normal
impulse is Uᵀy/h with the least-squares solution of G(Q) M⁻¹Uᵀy = g(Q). Its condition is that of G, not the square of it
as for G M⁻¹Gᵀ.
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
from .position import Placed, PositionEquation, Root, differentiable_root
from .scales import sizes
from .solver import IterativeSolver

COLUMNS_SHARE = 0.64  # columns of length 1 of which less than this power of eps is left count as dependent


class _Round(NamedTuple):
    normal_impulse: Array
    x: Array
    size: Array  # of the last correction
    done: Any
    count: Any


def in_normal_space(
    equation: PositionEquation, constrained: tuple[int, ...] | None, guess: Array, x: Array, done: Any
) -> _Round:
    """The iteration, from a guess of the normal impulse; x is returned as it is where `done`."""
    mech, shape, eps = equation.mech, equation.q.shape, jnp.finfo(x.dtype).eps

    def newton(s: _Round) -> _Round:
        again = s.count == MATRICES // 2  # give up the guess and begin with none
        # q and p are made to depend on the loop counter, so that XLA does not compute the normal space in front of the
        # loop, in steps that need no round of it.
        never = s.count < 0
        normal = normal_space(
            mech, jnp.where(never, s.normal_impulse, equation.q), jnp.where(never, s.normal_impulse, equation.p)
        )
        coordinates = normal.coordinates(mech, jnp.where(again, 0.0, s.normal_impulse))
        normal_impulse = normal.momentum(coordinates, shape)
        there = equation.position_for(normal_impulse)
        g, rows = equation.target.constraint(there), gradients(equation.target, there)
        velocities = jax.vmap(lambda x: mech.velocity(x.reshape(shape)).ravel())
        lengths = length(jnp.sum(rows * velocities(rows), axis=1))
        scale = jnp.where(lengths > 0, 1 / jnp.where(lengths > 0, lengths, 1.0), 0.0)
        columns = (velocities(normal.basis) @ rows.T) * scale
        y = least_squares(columns, g * scale, cutoff(g.dtype, COLUMNS_SHARE))
        change = normal.momentum(y, shape)
        moved, measure = mech.velocity(change), sizes(constrained, equation.q, there)
        size = measure.unit * inner(moved, moved)
        zero = jnp.all(jnp.abs(g) <= OWN_ROUNDING * eps * jnp.sum(jnp.abs(rows * there.ravel()), axis=1))
        stalled = (4 * size >= s.size) & (size <= 1e6 * measure.rounding) & (s.count != 0) & ~again
        normal_impulse = jnp.where(zero, normal_impulse, normal_impulse + change / equation.h)
        x = equation.x_per_impulse * normal.multipliers(mech, coordinates + jnp.where(zero, 0.0, y / equation.h), shape)
        return _Round(normal_impulse, x, size, zero | (size <= measure.rounding) | stalled, s.count + 1)

    begin = _Round(guess, x, sizes(constrained, equation.q).whole, done, 0)
    return jax.lax.while_loop(lambda s: ~s.done & (s.count < MATRICES), newton, begin)


class RankDeficientSolver(IterativeSolver):
    """The solver of redundant constraints all along a run; with `after_chords`, of a step that Newton's method failed
    to take, whose plan it keeps."""

    after_chords: bool = eqx.field(static=True, default=False)
    failure: ClassVar[str] = "Newton's method did not converge"

    @property
    def accepts_dependent_constraints(self) -> bool:
        return True

    @property
    def uses_normal_space(self) -> bool:
        return True

    def guess(self, impulse: Array, normal_impulse: Array) -> Array:
        return normal_impulse

    def place(self, mech: Any, q: Array, p: Array, h: Array, guess: Array) -> Placed:
        equation = PositionEquation(mech, q, p, h)

        def solve() -> Root:
            if not self.after_chords:
                zeros, no = jnp.zeros(equation.constraints, guess.dtype), jnp.zeros((), bool)
                found = in_normal_space(equation, self.constrained, guess, zeros, no)
                return Root(found.x, found.normal_impulse, found.done, found.count)
            chord = Iteration(self.plan, equation, self.constrained).chords(guess)
            found = in_normal_space(equation, self.constrained, guess, chord.x, chord.done)
            normal_impulse = jnp.where(found.count > 0, found.normal_impulse, equation.normal_impulse(found.x))
            return Root(found.x, normal_impulse, found.done, chord.rounds + found.count)

        return differentiable_root(self.plan, equation, solve, may_add=True)
