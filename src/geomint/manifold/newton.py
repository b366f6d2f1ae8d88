"""Newton's method for the position equation g(Q) = 0, Q = Q_free − M⁻¹G(q)ᵀx.

Newton's matrix is −K with K = G(Q) M⁻¹G(q)ᵀ, which has the structure of G M⁻¹Gᵀ (blocks for molecules, a band for
chains), found before the run, and is close to that positive definite matrix, whatever the sign of h.

The first guess is a normal impulse w = G(q)ᵀμ extrapolated from the steps before, not an impulse μ: near a singular
position μ grows like 1/(t − t*), while w stays smooth. The guess places Q₀, and the first round solves
K x = g(Q₀) + G(Q₀)(Q_free − Q₀) for the whole x. The rounds after it use the same matrix and gain as many digits each
as the guess has. Where they do not, the iteration goes on from the last x with a new matrix in every round, and after
ten of these rounds from x = 0.

The iteration goes on until the correction of Q is at round-off of |Q|: a looser tolerance would leave an error that
depends on the path and shows as a drift. Near a singular position the correction stays larger than that, because the
rounding of g is divided by the smallest singular value of G; there the iteration ends when each g_i is at its own
rounding.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.linalg import Plan
from ..numerics.linalg.cpu_kernels import inner
from ..numerics.linalg.structure import DENSE_LIMIT, matrix_free_plan
from .position import Placed, PositionEquation, Root, differentiable_root
from .scales import Sizes, rounding_scale, sizes
from .solver import ConstraintSolver, IterativeSolver

MATRICES = 20  # rounds with a new matrix in each, half of them from the guess and half from none
SMALL = 32  # coordinates up to which a position is computed where it is used rather than carried through a loop
OWN_ROUNDING = 4.0  # units of round-off of Σ|G_ij||Q_j| below which g_i counts as zero


class _Chord(NamedTuple):
    """Rounds with one matrix."""

    x: Array
    position: tuple[Array, ...]  # Q, where it is carried
    size: Array  # squared length of the last correction, times Sizes.unit
    done: Any
    over: Any  # done, or not converging
    rounds: Any


class _Renewed(NamedTuple):
    """Rounds with a new matrix in each."""

    x: Array
    size: Array  # as in _Chord
    done: Any
    count: Any


class Iteration:
    """One solve of the position equation."""

    def __init__(self, plan: Plan, equation: PositionEquation, constrained: tuple[int, ...] | None):
        self.plan, self.equation = plan, equation
        self.sizes = functools.partial(sizes, constrained)
        self.margin = 100.0 * equation.q.size

    def matrix(self, there: Array, dtype: Any) -> Any:
        """K, factored; the iteration corrects itself, so that few digits do."""
        constraint = self.equation.target.constraint
        return self.plan.factor(
            lambda x: jax.jvp(constraint, (there,), (self.equation.displacement_of(x),))[1], dtype, rough=True
        )

    def squared(self, x: Array, g: Array) -> Array:
        """|ΔQ|². With one mass for all, `displacement_of` is G(q)ᵀ and K = G(Q)G(q)ᵀ, so that |ΔQ|² = |G(q)ᵀx|² is x·g
        up to the difference of G(Q) and G(q) (not used in single precision, where it might underflow)."""
        if self.equation.one_mass and x.dtype == jnp.float64:
            return jnp.abs(inner(x, g))
        moved = self.equation.displacement_of(x)
        return inner(moved, moved)

    def last(self, size: Array, before: Array, measure: Sizes) -> Array:
        """Whether a correction is the last one needed. `size` and `before` are the squared lengths of this correction
        and of the one before it. This one is at round-off; or the next one, of squared length size²/before, would be
        shorter than eps|Q|/(10√n), a tenth of the rounding of a single coordinate."""
        return (size <= measure.rounding) | (self.margin * (size * size) <= before * measure.rounding)

    def chords(self, guess: Array) -> _Chord:
        """The matrix of the guess, as long as it gains a digit a round."""
        equation, mech = self.equation, self.equation.mech
        guessed_shift = mech.displacement(guess, equation.h)
        guessed = equation.free - guessed_shift
        factored, measure = self.matrix(guessed, guess.dtype), self.sizes(equation.q)
        g, rate = jax.jvp(equation.target.constraint, (guessed,), (guessed_shift,))
        x = factored.solve(g + rate)
        there = equation.at(x)
        moved = there - guessed
        carried, no = guessed.size > SMALL, jnp.zeros((), bool)

        def chord(s: _Chord) -> _Chord:
            g = equation.target.constraint(s.position[0] if carried else equation.at(s.x))
            change = factored.solve(g)
            size = measure.unit * self.squared(change, g)
            done = self.last(size, s.size, measure)
            # A round that gains less than a digit is not taken: a new matrix is worth its cost then. NaN compares
            # false, which ends the loop too.
            gains = 100 * size <= s.size
            x = jnp.where(gains, s.x + change, s.x)
            return _Chord(x, (equation.at(x),) if carried else (), size, done, done | ~gains, s.rounds + 1)

        begin = _Chord(x, (there,) if carried else (), measure.unit * inner(moved, moved), no, no, 1)
        return jax.lax.while_loop(lambda s: ~s.over, chord, begin)

    def renewed(self, x: Array, done: Any) -> _Renewed:
        """A new matrix in every round, by the structure found before the run."""
        equation, eps = self.equation, jnp.finfo(x.dtype).eps

        def newton(s: _Renewed) -> _Renewed:
            again = s.count == MATRICES // 2  # a guess that led nowhere is given up for none at all
            x = jnp.where(again, 0.0, s.x)
            there = equation.at(x)
            g = equation.target.constraint(there)
            change = self.matrix(there, x.dtype).solve(g)
            measure = self.sizes(equation.q, there)
            size = measure.unit * self.squared(change, g)
            first = (s.count == 0) | again
            zero = jnp.all(jnp.abs(g) <= OWN_ROUNDING * eps * rounding_scale(equation.target, there))
            done = zero | (size <= measure.rounding) | (~first & self.last(size, s.size, measure))
            stalled = (4 * size >= s.size) & (size <= 1e6 * measure.rounding)  # as small as rounding lets it become
            return _Renewed(jnp.where(zero, x, x + change), size, done | (stalled & ~first), s.count + 1)

        begin = _Renewed(x, self.sizes(equation.q).whole, done, 0)
        return jax.lax.while_loop(lambda s: ~s.done & (s.count < MATRICES), newton, begin)


class NewtonSolver(IterativeSolver):
    """Newton's method with the structure of G M⁻¹Gᵀ. Fails at singular positions, where `rescued` takes over."""

    failure: ClassVar[str] = "Newton's method did not converge"

    @property
    def accepts_dependent_constraints(self) -> bool:
        return self.plan.kind == "matrix-free"

    def guess(self, impulse: Array, normal_impulse: Array) -> Array:
        return normal_impulse

    def place(self, mech: Any, q: Array, p: Array, h: Array, guess: Array) -> Placed:
        equation = PositionEquation(mech, q, p, h)

        def solve() -> Root:
            iteration = Iteration(self.plan, equation, self.constrained)
            chord = iteration.chords(guess)
            found = iteration.renewed(chord.x, chord.done)
            return Root(found.x, None, found.done, chord.rounds + found.count)

        return differentiable_root(self.plan, equation, solve)

    def rescued(self) -> ConstraintSolver | None:
        from .rank_deficient import RankDeficientSolver  # which begins with the chords of this module

        if self.plan.kind == "matrix-free":
            return None
        if self.plan.n > DENSE_LIMIT:  # a basis of the normal space would be too large
            return NewtonSolver(matrix_free_plan(self.plan.n), self.constrained)
        return RankDeficientSolver(self.plan, self.constrained, after_chords=True)
