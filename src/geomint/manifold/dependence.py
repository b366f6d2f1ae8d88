"""How far constraints are from depending on each other at a position, looked at outside a run.

Judged by the gradients in the metric of the mass, each scaled to length 1: a constraint multiplied by a factor, or
stated in another unit, depends on the others neither more nor less.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.compilation import concrete_evaluation, jit
from ..numerics.linalg import Plan
from ..numerics.linalg.rank import span
from ..numerics.linalg.structure import DENSE_LIMIT
from ..system.inertia import inertia
from ..system.mass import mass_is_matrix, mass_matrix
from ..system.mechanics import Mechanics
from ..system.system import System
from .gram import gram_product, unit_diagonal
from .normal_space import gradients

# Smallest singular value of the scaled gradients below which they count as dependent before a run, always in double
# precision. Inside a step the thresholds are powers of eps (normal_space, rank_deficient), since steps may be taken in
# single precision.
DEPENDENT = 1e-7
CLEAR = 1e-5  # singular value far above DEPENDENT, whose square is far above the rounding of a Gram matrix
NOT_KEPT = 1e-5  # relative size above which zᵀg''(v, v) does not count as zero


class Dependence(NamedTuple):
    """Of m constraints at one position."""

    rank: int
    of: int
    smallest: float  # singular value of the gradients, each of length 1
    among: list[int]  # the constraints that come nearest to depending on each other

    exact: bool = True  # otherwise the rank is known only as full or not

    @property
    def described(self) -> str:
        rank = f"{self.rank}" if self.rank == self.of or self.exact else f"below {self.of}"
        of = f" of {self.of}" if self.rank == self.of or self.exact else ""
        return f"G has rank {rank}{of}, smallest singular value {self.smallest:.1e} for gradients of length 1"

    @property
    def named(self) -> str:
        listed = ", ".join(map(str, self.among[:8])) + (", …" if len(self.among) > 8 else "")
        return f"constraints {listed}" if len(self.among) > 1 else f"constraint {listed} (its gradient vanishes)"


@jit
def _gradients(system: System, q: Array) -> Array:
    return gradients(Mechanics(system, q.shape), q)


@functools.partial(jit, static_argnums=0)
def _inverse_iteration(plan: Plan, system: System, q: Array, start: Array) -> tuple[Array, Array]:
    """The smallest eigenvalue of the scaled G M⁻¹Gᵀ and its vector, by inverse iteration with a shift of 1e-15 of
    the largest, so that a singular matrix can be factored."""
    scale = unit_diagonal(plan, lambda d: gram_product(system, q, d), q.dtype, 0.0)
    apply = lambda d: scale * gram_product(system, q, scale * d)
    unit = lambda x: x / jnp.sqrt(jnp.sum(x**2))
    largest = jnp.sqrt(jnp.sum(apply(jax.lax.fori_loop(0, 20, lambda _, x: unit(apply(x)), unit(start))) ** 2))
    shifted = lambda d: apply(d) + 1e-15 * largest * d
    solve = (lambda x: plan.solve(shifted, x).x) if plan.kind == "matrix-free" else plan.factor(shifted, q.dtype).solve
    vector = jax.lax.fori_loop(0, 6, lambda _, x: unit(solve(x)), unit(start))
    return jnp.sum(vector * apply(vector)), vector


def dependence(system: System, q: np.ndarray, plan: Plan) -> Dependence:
    """How far the constraints are from depending on each other at q, and which ones come nearest to it."""
    with concrete_evaluation():
        here = jnp.asarray(q, float)
        if plan.n > DENSE_LIMIT:
            smallest, vector = _inverse_iteration(
                plan, system, here, jnp.asarray(np.random.default_rng(5).normal(size=plan.n))
            )
            found = float(np.sqrt(abs(smallest))) if np.isfinite(smallest) else 0.0
            return Dependence(plan.n - (found < DEPENDENT), plan.n, found, _nearest(np.asarray(vector)), exact=False)
        rows = np.asarray(_gradients(system, here))
    if not np.all(np.isfinite(rows)):
        return Dependence(0, len(rows), 0.0, list(range(len(rows))))
    rows = _in_metric(rows, system, np.shape(q))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    left, singular, _ = _left_singular(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0))
    values = np.concatenate([singular, np.zeros(max(0, len(rows) - len(singular)))])
    null = left[
        :, min(int(np.sum(values > DEPENDENT)), len(rows) - 1) :
    ]  # combinations that vanish, or the one nearest to it
    return Dependence(
        int(np.sum(values > DEPENDENT)), len(rows), float(values[-1]), _nearest(np.linalg.norm(null, axis=1))
    )


def _in_metric(rows: np.ndarray, system: System, shape: tuple[int, ...]) -> np.ndarray:
    """G M^-½; of a large mass matrix with the diagonal of M in place of M, which has the same rank."""
    if mass_is_matrix(system.mass, shape) and rows.shape[1] <= DENSE_LIMIT:
        return np.linalg.solve(np.linalg.cholesky(mass_matrix(system.mass, shape)), rows.T).T
    with concrete_evaluation():  # M is known, even where a run is traced
        diagonal = np.asarray(inertia(system.mass, shape).diagonal(shape))
    return rows / np.sqrt(diagonal).ravel()


def _left_singular(rows: np.ndarray) -> Any:
    """The singular value decomposition, with all left vectors and no more right ones than these."""
    return np.linalg.svd(rows, full_matrices=len(rows) > rows.shape[1])


def _clearly_independent(rows: np.ndarray) -> bool:
    """Whether all singular values of rows of length 1 are above CLEAR: by a Cholesky factorisation, which takes a
    hundredth of the time of the singular values of hundreds of rows."""
    try:
        np.linalg.cholesky(rows @ rows.T - CLEAR**2 * np.eye(len(rows)))
    except np.linalg.LinAlgError:
        return False
    return True


def _nearest(vector: np.ndarray) -> list[int]:
    size = np.abs(vector)
    if not np.all(np.isfinite(size)):
        return list(range(len(size)))
    return [int(i) for i in np.nonzero(size > 1e-3 * size.max(initial=0.0))[0]]


def loses_rank(system: System, q: Array) -> Array:
    """Whether constraints depend on each other at q; for use over many members at once."""
    mech = Mechanics(system, q.shape)
    rows = gradients(mech, q)
    found = span(rows, DEPENDENT, lambda x: mech.velocity(x.reshape(q.shape)).ravel())
    return found.rank < len(rows)


@jit
def _curvature(system: System, q: Array, v: Array) -> Array:
    return Mechanics(system, q.shape).constraint_curvature(q, v)


def not_kept_by(system: System, q: np.ndarray, velocity: Callable[[], Array]) -> Dependence | None:
    """The constraints that no acceleration keeps where they depend on each other at q and a motion passes with v.

    With zᵀG(q) = 0 the second derivative of zᵀg along a motion is zᵀg''(v, v), whatever the acceleration. It vanishes
    for redundant constraints; at a singular position it vanishes for the velocities of the branches that meet there
    only. The velocity v is asked for where the constraints depend on each other.
    """
    with concrete_evaluation():
        here = jnp.asarray(q, float)
        rows = _in_metric(np.asarray(_gradients(system, here)), system, np.shape(q))
        lengths = np.linalg.norm(rows, axis=1)
        if not np.all(np.isfinite(rows)) or not np.all(lengths > 0):
            return None
        rows = rows / lengths[:, None]
        if _clearly_independent(rows):
            return None
        left, singular, _ = _left_singular(rows)
        z = left[:, int(np.sum(singular > DEPENDENT)) :].T / lengths
        if not len(z):
            return None
        bend = np.asarray(_curvature(system, here, jnp.asarray(velocity(), float)))
    off = np.abs(z @ bend) > NOT_KEPT * (np.abs(z) @ np.abs(bend))
    if not np.any(off):
        return None
    smallest = float(singular[-1]) if len(singular) == len(rows) else 0.0
    return Dependence(len(rows) - len(z), len(rows), smallest, _nearest(np.linalg.norm(z[off] * lengths, axis=0)))
