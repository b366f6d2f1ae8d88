"""The classical sweep of SHAKE: one constraint after another."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.linalg import Plan
from ..numerics.linalg.colouring import vertex_colours
from .position import Placed, PositionEquation, Root, differentiable_root
from .solver import IterativeSolver

SWEEPS = 5_000_000
QUIET = 20  # sweeps in a row that come no nearer, before they count as ended at round-off


class _Sweep(NamedTuple):
    x: Array
    off: Any  # the largest distance from a constraint that the last sweep met
    least: Any  # the smallest of these so far
    quiet: Any  # sweeps in a row that came no nearer
    count: Any


def sweeps(
    plan: Plan, relaxation: Any, constrained: tuple[int, ...] | None, equation: PositionEquation, start: Array
) -> Root:
    """Δx_i = ω g_i(Q)/(G_i(Q) M⁻¹G_i(q)ᵀ), one constraint after another until all are at round-off. Constraints that
    share no coordinate are corrected together, which changes their order only. `start` is a guess of μ."""
    mech, colours = equation.mech, _sweep_colours(plan)
    groups = jnp.asarray(colours[None, :] == np.arange(colours.max() + 1)[:, None])
    free = equation.free
    counted = free if constrained is None else free.ravel()[np.asarray(constrained)]
    tiny = jnp.finfo(free.dtype).eps * jnp.max(jnp.abs(counted))
    length_factor = 1.0 if equation.one_mass else jnp.sqrt(jnp.max(mech.velocity(jnp.ones_like(free))))

    def correct(q_and_x, group):
        q, x = q_and_x
        value, rate = jax.jvp(equation.target.constraint, (q,), (equation.displacement_of(group.astype(q.dtype)),))
        rate = jnp.where(group, rate, 1.0)
        change = jnp.where(group, relaxation * value / rate, 0.0)
        # How far the constraints of this group are away; `length_factor` makes lengths of |g|/√rate.
        off = length_factor * jnp.max(jnp.where(group, jnp.abs(value) / jnp.sqrt(jnp.abs(rate)), 0.0))
        return (q - equation.displacement_of(change), x + change), off

    def sweep(s: _Sweep) -> _Sweep:
        # From x anew, or the rounding of thousands of sweeps adds up. Small corrections do not mean that the root is
        # near, because sweeps converge slowly: the residual g decides, down to its own rounding.
        (_, x), offs = jax.lax.scan(correct, (equation.at(s.x), s.x), groups)
        off = jnp.max(offs)
        quiet = jnp.where((off >= s.least) & (off <= 100 * tiny), s.quiet + 1, 0)
        return _Sweep(x, off, jnp.minimum(off, s.least), jnp.where(off <= 2 * tiny, QUIET, quiet), s.count + 1)

    unfinished = lambda s: (s.quiet < QUIET) & (s.count < SWEEPS) & jnp.isfinite(s.off)
    begin = _Sweep(equation.x_per_impulse * start, jnp.zeros((), free.dtype), jnp.asarray(jnp.inf, free.dtype), 0, 0)
    found = jax.lax.while_loop(unfinished, sweep, begin)
    return Root(found.x, None, found.quiet >= QUIET, found.count)


def _sweep_colours(plan: Plan) -> np.ndarray:
    """Constraints of one colour do not meet in G M⁻¹Gᵀ; all differ where its pattern is not known."""
    from scipy import sparse

    if plan.order is None or plan.diagonal is None:
        return np.arange(plan.n)
    block, a, b = np.nonzero(plan.diagonal)
    pairs = [(plan.order[block, a], plan.order[block, b])]
    if plan.lower is not None:
        block, a, b = np.nonzero(plan.lower)
        pairs += [(plan.order[block + 1, a], plan.order[block, b]), (plan.order[block, b], plan.order[block + 1, a])]
    rows, columns = (np.concatenate(side) for side in zip(*pairs, strict=True))
    real = (rows != columns) & (rows < plan.n) & (columns < plan.n)
    return vertex_colours(
        sparse.csr_matrix((np.ones(real.sum(), bool), (rows[real], columns[real])), shape=(plan.n, plan.n))
    )


class SweepSolver(IterativeSolver):
    """SHAKE's own iteration, over-relaxed by `relaxation` (1: Gauss–Seidel)."""

    relaxation: Any = 1.0
    failure: ClassVar[str] = "the sweeps of SHAKE did not converge"

    def guess(self, impulse: Array, normal_impulse: Array) -> Array:
        return impulse

    def guess_from_normal_impulse(self, mech: Any, q: Array, normal_impulse: Array) -> Array:
        return self.gram_solve(mech, q, mech.constraint_rate(q, mech.velocity(normal_impulse)))

    def place(self, mech: Any, q: Array, p: Array, h: Array, guess: Array) -> Placed:
        equation = PositionEquation(mech, q, p, h)
        return differentiable_root(
            self.plan, equation, lambda: sweeps(self.plan, self.relaxation, self.constrained, equation, guess)
        )
