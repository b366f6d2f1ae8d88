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
Measured = Callable[[Array, Array], Array]  # (x, change) -> the part of a change that must vanish
LIMIT = 50  # iterations; Newton needs 3 to 5, a contracting fixed point of rate ½ needs 50 to reach round-off


class Solution(NamedTuple):
    root: Array
    converged: Array


class _Iterate(NamedTuple):
    x: Array
    size: Array  # of the last correction
    before: Array  # the size of the correction before it
    iterations: Array | int


def _round_off(x: Array, scale: Array) -> Array:
    return jnp.finfo(x.dtype).eps * jnp.maximum(scale, jnp.max(jnp.abs(x)))


def _entire_change(x: Array, change: Array) -> Array:
    return change


def _iterate(
    correction: Residual, start: Array, scale: Array, measured: Measured = _entire_change
) -> tuple[Array, Array]:
    """x ← x − correction(x) until |correction| is at round-off of `scale` or of x, or stops shrinking near it.

    Returns x and the last |correction|.
    """

    def unfinished(s: _Iterate) -> Array:
        tiny = _round_off(s.x, scale) if measured is _entire_change else jnp.finfo(s.x.dtype).eps * scale
        stalled = (s.size >= 0.5 * s.before) & (s.size <= 1e4 * tiny)
        return (s.size > tiny) & ~stalled & (s.iterations < LIMIT)  # a NaN compares false and ends the loop

    def advance(s: _Iterate) -> _Iterate:
        change = correction(s.x)
        return _Iterate(s.x - change, jnp.max(jnp.abs(measured(s.x, change))), s.size, s.iterations + 1)

    infinite = (jnp.asarray(jnp.inf, start.dtype), jnp.asarray(jnp.inf, start.dtype))
    end = jax.lax.while_loop(unfinished, advance, _Iterate(start, *infinite, 0))
    return end.x, end.size


def _root(
    residual: Residual,
    start: Array,
    scale: Array,
    solve: Callable,
    tangent_solve: Callable,
    include_root_rounding: bool = True,
) -> Solution:
    """The root that `solve` finds, differentiated by `tangent_solve`. `include_root_rounding`: whether the rounding of
    the root itself counts as round-off, not only that of `scale`."""
    root, size = jax.lax.custom_root(residual, start, solve, tangent_solve, has_aux=True)
    tiny = _round_off(root, scale) if include_root_rounding else jnp.finfo(root.dtype).eps * scale
    return Solution(root, size <= 1e4 * tiny)


def dense_solve(linear: Residual, right: Array) -> Array:
    """The solution of linear(x) = right, by its dense matrix."""
    n = right.size
    matrix = jax.jacfwd(linear)(jnp.zeros_like(right)).reshape(n, n)
    return jnp.linalg.solve(matrix, right.ravel()).reshape(right.shape)


def least_squares_solve(linear: Residual, right: Array) -> Array:
    """The solution of linear(x) = right by its dense matrix, whose rows may be dependent; differentiated as a linear
    solve."""

    def solve(apply: Residual, r: Array) -> Array:
        columns = jax.vmap(apply)(jnp.eye(r.size, dtype=r.dtype))
        lengths = jnp.max(jnp.abs(columns), axis=0)  # each row of the matrix is scaled by its own size
        scale = jnp.where(lengths > 0, 1 / jnp.where(lengths > 0, lengths, 1.0), 0.0)
        return least_squares(columns * scale, r * scale, 1e-10)

    return jax.lax.custom_linear_solve(linear, right, solve, solve)


def newton(
    residual: Residual,
    start: Array,
    scale: Array,
    linear_solve: LinearSolve = dense_solve,
    measured: Measured = _entire_change,
    rough_solve: LinearSolve | None = None,
) -> Solution:
    """residual(x) = 0 by Newton's method with the exact Jacobian; corrections of eps·scale count as round-off.

    linear_solve(A, b) returns x with A(x) = b, by default with a dense matrix. measured(x, change) is the part of a
    change that has to vanish, where not all of x is determined equally well. rough_solve, where it is given, makes the
    corrections; a few digits suffice, since they are repeated until they vanish (inexact Newton: the rounds of an
    iterative solver add up to those of one accurate solve). Derivatives are by linear_solve.
    """

    def solve(f: Residual, x: Array) -> tuple[Array, Array]:
        correction = lambda y: (rough_solve or linear_solve)(lambda d: jax.jvp(f, (y,), (d,))[1], f(y))
        return _iterate(correction, x, scale, measured)

    return _root(residual, start, scale, solve, linear_solve, measured is _entire_change)


def newton_within(
    residual: Residual, start: Array, safe: Array, scale: Array, linear_solve: LinearSolve = dense_solve
) -> Solution:
    """As `newton`, for a residual that is finite in a part of space only: a step that leaves this part is halved until
    it does not. `safe` is a point inside; a start outside is moved towards it. Where no step leaves, the iterations are
    those of `newton`."""

    class Guarded(NamedTuple):
        x: Array
        inside: Array  # the last point where the residual was finite
        step: Array  # from there to x
        size: Array
        before: Array
        iterations: Array

    def solve(f: Residual, x: Array) -> tuple[Array, Array]:
        def unfinished(s: Guarded) -> Array:
            tiny = _round_off(s.x, scale)
            stalled = (s.size >= 0.5 * s.before) & (s.size <= 1e4 * tiny)
            return (s.size > tiny) & ~stalled & (s.iterations < 2 * LIMIT)

        def advance(s: Guarded) -> Guarded:
            change = linear_solve(lambda d: jax.jvp(f, (s.x,), (d,))[1], f(s.x))
            finite = jnp.all(jnp.isfinite(change))
            step = jnp.where(finite, -change, 0.5 * s.step)
            inside = jnp.where(finite, s.x, s.inside)
            # The size of a halved step is no measure of convergence.
            size, before = jnp.where(finite, jnp.max(jnp.abs(change)), jnp.inf), jnp.where(finite, s.size, jnp.inf)
            return Guarded(inside + step, inside, step, size, before, s.iterations + 1)

        infinite = jnp.asarray(jnp.inf, x.dtype)
        end = jax.lax.while_loop(
            unfinished, advance, Guarded(x, safe, x - safe, infinite, infinite, jnp.zeros((), int))
        )
        return end.x, end.size

    return _root(residual, start, scale, solve, linear_solve)


def inverse(function: Residual, right: Array, start: Array) -> Solution:
    """x with function(x) = right by damped Newton steps from `start`, where the function must be finite.

    A step is halved until the next correction with the same matrix is shorter than the step's own, which also keeps x
    where the function is finite (Deuflhard, Newton Methods for Nonlinear Problems, section 3.3: the natural
    monotonicity test, the same in all units). It has converged when the correction is at the rounding of x, or at the
    change of x that the rounding of `right` causes.
    """
    n, shape = right.size, right.shape

    class Damped(NamedTuple):
        x: Array
        matrix: Array  # of the derivative at x
        change: Array  # the whole correction there
        share: Array  # the fraction of it that is tried next
        iterations: Array

    def solve(f: Residual, x: Array) -> tuple[Array, tuple[Array, Array]]:
        def at(x: Array, share: Array, count: Array) -> Damped:
            matrix = jax.jacfwd(f)(x).reshape(n, n)
            return Damped(x, matrix, jnp.linalg.solve(matrix, f(x).ravel()).reshape(shape), share, count)

        def tiny(s: Damped) -> Array:
            # The change of x that the rounding of `right` causes, by the present matrix.
            effect = jnp.max(jnp.abs(jnp.linalg.solve(s.matrix, right.ravel())))
            return jnp.finfo(x.dtype).eps * jnp.maximum(effect, jnp.max(jnp.abs(s.x)))

        def unfinished(s: Damped) -> Array:
            return (jnp.max(jnp.abs(s.change)) > tiny(s)) & (s.share > 1e-12) & (s.iterations < 4 * LIMIT)

        def advance(s: Damped) -> Damped:
            tried = at(s.x - s.share * s.change, jnp.minimum(1.0, 2 * s.share), s.iterations + 1)
            same = jnp.linalg.solve(s.matrix, f(tried.x).ravel())
            length = lambda d: jnp.sqrt(jnp.sum(d**2))
            good = (length(same) <= (1 - 0.25 * s.share) * length(s.change)) & jnp.all(jnp.isfinite(tried.change))
            near = jnp.max(jnp.abs(s.change)) <= 1e4 * tiny(s)  # where rounding decides whether it is shorter
            stay = s._replace(share=jnp.where(near, 0.0, 0.5 * s.share), iterations=s.iterations + 1)
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
        # JAX transposes this function: the solves may depend on `right` only through their argument.
        return jax.lax.custom_linear_solve(linear, right, solve=by_iteration, transpose_solve=by_iteration)

    return _root(residual, start, scale, solve, tangent)
