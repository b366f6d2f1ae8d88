"""The matrix K = G M⁻¹Gᵀ: products with it, and solutions of K x = r by a structure found before the run.

One refinement x → x + δ of a solution tells whether it is right, by δᵀKδ relative to xᵀKx: K may have become
singular, or may have entries that the structure does not know. No unit enters the comparison.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..numerics.compilation import jit
from ..numerics.linalg import Plan
from ..numerics.linalg.cpu_kernels import inner
from ..numerics.linalg.rank import cutoff
from ..numerics.linalg.structure import matrix_free_plan
from ..system.mechanics import Mechanics
from ..system.system import System
from .scales import over_groups, seeds

# In powers of eps: above the first, the plan misses entries of K; above the second, K is singular.
PATTERN_SHARE = 1.0
SINGULAR_SHARE = 0.5

Product = Callable[[Array], Array]


def product_with(mech: Any, q: Array) -> Product:
    """λ → G M⁻¹Gᵀλ at q."""
    return lambda multipliers: mech.constraint_rate(q, mech.velocity(mech.constraint_force(q, multipliers)))


def gram_product(system: System, q: Array, multipliers: Array) -> Array:
    """G M⁻¹Gᵀλ."""
    return product_with(Mechanics(system, q.shape), q)(multipliers)


def gram_solve(plan: Plan, mech: Any, q: Array, right: Array, noise: Array | float = 0.0) -> Array:
    """x with K x = right. Where K is singular, a dense plan gives NaN, on which the host loop takes the step by
    `ConstraintSolver.rescued`; blocks and bands, and a matrix-free plan, go by conjugate gradients.

    `noise`: the largest xᵀKx for which right may consist of rounding errors only. Its two uses, in x and in the
    residual right − K x, may then differ by as much as right itself, since XLA may compute it once with fused
    multiply-adds and once without. The refinement says nothing about K there, and x is accepted."""
    if plan.assembled:
        return _assembled_solve(plan, mech, q, right)
    apply = product_with(mech, q)
    if plan.kind == "matrix-free":
        return plan.solve(apply, right).x
    x, off, size = _refined(plan, apply, right)
    return jnp.where(off <= cutoff(right.dtype, SINGULAR_SHARE) * size + noise, x, jnp.nan)


@functools.partial(jit, static_argnums=0)  # traced once for all its uses in a program: it takes half a second
def _assembled_solve(plan: Plan, mech: Any, q: Array, right: Array) -> Array:
    solve = lambda apply, right: _with_or_without_pattern(plan, apply, right)
    return jax.lax.custom_linear_solve(product_with(mech, q), right, solve, symmetric=True)


def _with_or_without_pattern(plan: Plan, apply: Product, right: Array) -> Array:
    """By the plan, or by conjugate gradients where K has entries that the plan does not know."""
    x, off, size = _refined(plan, apply, right)
    accurate = off <= cutoff(right.dtype, PATTERN_SHARE) * size
    return jnp.where(accurate, x, _unless(accurate, lambda: _conjugate_gradients(plan, apply, right)))


def _refined(plan: Plan, apply: Product, right: Array) -> tuple[Array, Array, Array]:
    """x by the plan, δᵀKδ of its refinement, and xᵀKx."""
    factored = plan.factor(apply, right.dtype)
    x = factored.solve(right)
    rest = right - apply(x)
    return x, jnp.abs(inner(factored.solve(rest), rest)), jnp.abs(inner(x, right))


def _conjugate_gradients(plan: Plan, apply: Product, right: Array) -> Array:
    """On the matrix with rows and columns scaled to a diagonal of ones, as far as its pattern is known."""
    scale = unit_diagonal(plan, apply, right.dtype, 1.0)
    return scale * matrix_free_plan(plan.n).solve(lambda d: scale * apply(scale * d), scale * right).x


def unit_diagonal(plan: Plan, apply: Product, dtype: Any, otherwise: float) -> Array:
    """Factors of rows and columns that scale the diagonal of K to ones; `otherwise` where it vanishes."""
    diagonal = over_groups(lambda group: jnp.where(group > 0, apply(group), 0.0), seeds(plan.n, plan), dtype)
    return jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0)), otherwise)


def _unless(accurate: Array, compute: Callable[[], Array]) -> Array:
    """compute(), or zeros where `accurate`: a loop of at most one round, which a batch of members skips if none needs
    it."""
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(compute))
    body = lambda s: (compute(), jnp.ones((), bool))
    return jax.lax.while_loop(lambda s: ~s[1], body, (nothing, jax.lax.stop_gradient(accurate)))[0]
