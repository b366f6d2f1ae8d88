"""Roots of the equations of an implicit step, to round-off, differentiable to any order.

Iterations go on until the correction is at round-off or stops shrinking: an iteration stopped early at a tolerance
leaves a systematic error that breaks symplecticity and shows as a drift of the energy (Hairer, McLachlan, Razakarivony,
BIT 48 (2008) 231). Derivatives come from the implicit function theorem (`jax.lax.custom_root`), not from the iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .rank import least_squares

Residual = Callable[[Array], Array]
LinearSolve = Callable[[Residual, Array], Array]
Measured = Callable[[Array, Array], Array]
LIMIT = 50  # iterations; Newton needs 3 to 5, a contracting fixed point of rate ½ needs 50 to reach round-off


class Solution(NamedTuple):
    root: Array
    converged: Array


def _round_off(x: Array, scale: Array) -> Array:
    return jnp.finfo(x.dtype).eps * jnp.maximum(scale, jnp.max(jnp.abs(x)))


def _whole(x: Array, change: Array) -> Array:
    return change


def _iterate(correction: Residual, start: Array, scale: Array, measured: Measured = _whole) -> tuple[Array, Array]:
    """x ← x − correction(x) until |correction| is at round-off of `scale` or of x, or stalls near it: x and the last |correction|."""

    def unfinished(s):
        x, size, before, count = s
        tiny = _round_off(x, scale) if measured is _whole else jnp.finfo(x.dtype).eps * scale
        stalled = (size >= 0.5 * before) & (size <= 1e4 * tiny)
        return (size > tiny) & ~stalled & (count < LIMIT)  # NaN compares false and ends it

    def advance(s):
        x, size, _, count = s
        change = correction(x)
        return x - change, jnp.max(jnp.abs(measured(x, change))), size, count + 1

    first = (start, jnp.asarray(jnp.inf, start.dtype), jnp.asarray(jnp.inf, start.dtype), 0)
    x, size, *_ = jax.lax.while_loop(unfinished, advance, first)
    return x, size


def _root(
    residual: Residual, start: Array, scale: Array, solve: Callable, tangent_solve: Callable, whole: bool = True
) -> Solution:
    root, size = jax.lax.custom_root(residual, start, solve, tangent_solve, has_aux=True)
    tiny = _round_off(root, scale) if whole else jnp.finfo(root.dtype).eps * scale
    return Solution(root, size <= 1e4 * tiny)


def dense_solve(linear: Residual, right: Array) -> Array:
    """linear(x) = right by its matrix."""
    n = right.size
    matrix = jax.jacfwd(linear)(jnp.zeros_like(right)).reshape(n, n)
    return jnp.linalg.solve(matrix, right.ravel()).reshape(right.shape)


def least_squares_solve(linear: Residual, right: Array) -> Array:
    """linear(x) = right by its matrix, whose rows may depend on each other; differentiated as a linear solve."""

    def solve(apply: Residual, r: Array) -> Array:
        columns = jax.vmap(apply)(jnp.eye(r.size, dtype=r.dtype))
        lengths = jnp.max(jnp.abs(columns), axis=0)  # rows of the matrix in units of their own
        scale = jnp.where(lengths > 0, 1 / jnp.where(lengths > 0, lengths, 1.0), 0.0)
        return least_squares(columns * scale, r * scale, 1e-10)

    return jax.lax.custom_linear_solve(linear, right, solve, solve)


def newton(
    residual: Residual, start: Array, scale: Array, linear_solve: LinearSolve = dense_solve, measured: Measured = _whole
) -> Solution:
    """residual(x) = 0 by Newton's method with the exact Jacobian; `scale` is the size of x's unit.

    linear_solve(A, b) returns x with A(x) = b; a dense matrix by default, a structured solve where one is known.
    measured(x, change) is what of a change has to vanish, where not all of x is determined equally well.
    """

    def solve(f: Residual, x: Array) -> tuple[Array, Array]:
        correction = lambda y: linear_solve(lambda d: jax.jvp(f, (y,), (d,))[1], f(y))
        return _iterate(correction, x, scale, measured)

    return _root(residual, start, scale, solve, linear_solve, measured is _whole)


def newton_within(
    residual: Residual, start: Array, safe: Array, scale: Array, linear_solve: LinearSolve = dense_solve
) -> Solution:
    """As `newton`, for a residual that is finite in a part of space only: a step that leaves it is halved until it
    does not. `safe` is a point inside, in whose direction a start outside is moved. Where nothing leaves, the
    iterations are those of `newton`."""

    class At(NamedTuple):
        x: Array
        inside: Array  # the last point where the residual was finite
        step: Array  # from there to x
        size: Array
        before: Array
        count: Array

    def solve(f: Residual, x: Array) -> tuple[Array, Array]:
        def unfinished(s: At) -> Array:
            tiny = _round_off(s.x, scale)
            stalled = (s.size >= 0.5 * s.before) & (s.size <= 1e4 * tiny)
            return (s.size > tiny) & ~stalled & (s.count < 2 * LIMIT)

        def advance(s: At) -> At:
            change = linear_solve(lambda d: jax.jvp(f, (s.x,), (d,))[1], f(s.x))
            finite = jnp.all(jnp.isfinite(change))
            step = jnp.where(finite, -change, 0.5 * s.step)
            inside = jnp.where(finite, s.x, s.inside)
            # A halved step says nothing about convergence.
            size, before = jnp.where(finite, jnp.max(jnp.abs(change)), jnp.inf), jnp.where(finite, s.size, jnp.inf)
            return At(inside + step, inside, step, size, before, s.count + 1)

        infinite = jnp.asarray(jnp.inf, x.dtype)
        end = jax.lax.while_loop(unfinished, advance, At(x, safe, x - safe, infinite, infinite, jnp.zeros((), int)))
        return end.x, end.size

    return _root(residual, start, scale, solve, linear_solve)


def inverse(function: Residual, right: Array, start: Array) -> Solution:
    """x with function(x) = right by damped Newton steps from `start`, where the function must be finite.

    A step is halved until the next correction with the same matrix is shorter than the step's own, which also keeps x
    where the function is finite (Deuflhard, Newton Methods for Nonlinear Problems, section 3.3: the natural
    monotonicity test, the same in all units). Converged is a correction at the rounding of x, or at what the rounding
    of `right` makes of it.
    """
    n, shape = right.size, right.shape

    class At(NamedTuple):
        x: Array
        matrix: Array  # of the derivative at x
        change: Array  # the whole correction there
        share: Array  # of it that is tried next
        count: Array

    def solve(f: Residual, x: Array) -> tuple[Array, Array]:
        def at(x: Array, share: Array, count: Array) -> At:
            matrix = jax.jacfwd(f)(x).reshape(n, n)
            return At(x, matrix, jnp.linalg.solve(matrix, f(x).ravel()).reshape(shape), share, count)

        def tiny(s: At) -> Array:
            # What the rounding of `right` makes of x, with the matrix at hand.
            felt = jnp.max(jnp.abs(jnp.linalg.solve(s.matrix, right.ravel())))
            return jnp.finfo(x.dtype).eps * jnp.maximum(felt, jnp.max(jnp.abs(s.x)))

        def unfinished(s: At) -> Array:
            return (jnp.max(jnp.abs(s.change)) > tiny(s)) & (s.share > 1e-12) & (s.count < 4 * LIMIT)

        def advance(s: At) -> At:
            tried = at(s.x - s.share * s.change, jnp.minimum(1.0, 2 * s.share), s.count + 1)
            same = jnp.linalg.solve(s.matrix, f(tried.x).ravel())
            length = lambda d: jnp.sqrt(jnp.sum(d**2))
            good = (length(same) <= (1 - 0.25 * s.share) * length(s.change)) & jnp.all(jnp.isfinite(tried.change))
            near = jnp.max(jnp.abs(s.change)) <= 1e4 * tiny(s)  # where rounding decides whether it is shorter
            stay = s._replace(share=jnp.where(near, 0.0, 0.5 * s.share), count=s.count + 1)
            return jax.tree.map(lambda a, b: jnp.where(good, a, b), tried, stay)

        end = jax.lax.while_loop(unfinished, advance, at(x, jnp.ones((), x.dtype), jnp.zeros((), int)))
        return end.x, (jnp.max(jnp.abs(end.change)), tiny(end))

    root, (size, unit) = jax.lax.custom_root(lambda x: function(x) - right, start, solve, dense_solve, has_aux=True)
    return Solution(root, size <= 1e4 * unit)


def fixed_point(residual: Residual, start: Array, scale: Array) -> Solution:
    """residual(x) = x − φ(x) = 0 for a contraction φ, without a matrix; derivatives by the same iteration."""

    def solve(f: Residual, x: Array) -> tuple[Array, Array]:
        return _iterate(f, x, scale)

    def by_iteration(linear: Residual, right: Array) -> Array:
        size = jnp.maximum(jnp.max(jnp.abs(right)), jnp.finfo(right.dtype).tiny)
        return _iterate(lambda x: linear(x) - right, right, size)[0]

    def tangent(linear: Residual, right: Array) -> Array:
        # JAX transposes this, so that the solves may depend on `right` through their argument alone.
        return jax.lax.custom_linear_solve(linear, right, solve=by_iteration, transpose_solve=by_iteration)

    return _root(residual, start, scale, solve, tangent)
