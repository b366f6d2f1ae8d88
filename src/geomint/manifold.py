"""Onto the manifold g(q) = 0 and into its tangent spaces: the solver under every constrained method.

    position:   g(Q) = 0,   Q = q + h M⁻¹(p − G(q)ᵀμ)   for the impulse μ of the constraint in a drift of length h
    momentum:   (G M⁻¹Gᵀ) ν = G M⁻¹p,   p ← p − Gᵀν

Newton's matrix is h K with K = G(Q) M⁻¹G(q)ᵀ, which has the structure of G M⁻¹Gᵀ (blocks for molecules, a band for chains), found
before the run, and is close to that positive definite matrix, whatever the sign of h. It is formed at the first guess, which is extrapolated and so almost right: the iteration with that one matrix
gains as many digits a round as the guess has. Only where it does not is the matrix formed again.

The iteration goes on until the correction of Q is at round-off of |Q|: a looser tolerance would leave an error that
depends on the path and shows as a drift. Derivatives are those of the root, not of the iteration.

Other ways to the same root: the classical sweep of SHAKE, one constraint after another, also over-relaxed; and closed
forms for points on spheres and for rotation matrices.

References: Ryckaert, Ciccotti, Berendsen, J. Comput. Phys. 23 (1977) 327; Barth, Kuczera, Leimkuhler, Skeel, J. Comput.
Chem. 16 (1995) 1192; Hairer, Lubich, Wanner, sections VII.1 and VII.5.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy import sparse

from .constraints import UPPER, WEIGHTS, OnSphere, Orthogonal
from .linalg import Plan, newton
from .linalg.native import inner
from .linalg.sparsity import greedy_colours
from .linalg.structure import dense
from .mechanics import Mechanics
from .system import mass_is_matrix

MATRICES = 20  # in one solve that the first does not do for, half of them from the guess
SMALL = 32  # coordinates up to which a position is computed where it is used rather than carried through a loop
SWEEPS = 5_000_000
QUIET = 20  # sweeps in a row that come no nearer, before they count as ended at round-off


class Placed(NamedTuple):
    """A root of the position equation."""

    impulse: Array  # μ
    converged: Any
    rounds: Any  # iterations or sweeps it took


class Sizes(NamedTuple):
    """How corrections are measured."""

    unit: Any
    rounding: Any  # of positions
    whole: Any  # of positions themselves


class Manifold(eqx.Module):
    """How one system's constraint is solved. `way` is "newton", "sweep", "sphere" or "rotation"."""

    way: str = eqx.field(static=True)
    plan: Plan = eqx.field(static=True)
    relaxation: Any = 1.0

    # --- positions --------------------------------------------------------------------------------------------------
    def place(self, mech: Any, q: Array, p: Array, h: Array, guess: Array) -> Placed:
        """μ with g(q + h M⁻¹(p − G(q)ᵀμ)) = 0."""
        if self.way == "sphere":
            return _on_sphere(mech, q, q + mech.displacement(p, h), h)
        if self.way == "rotation":
            return _rotation(mech, q, q + mech.displacement(p, h), h)
        pull = mech.constraint_pull(q)
        at = lambda impulse: q + mech.displacement(p - pull(impulse), h)
        iterate = self._sweeps if self.way == "sweep" else self._chords

        def solve(_: Any, start: Array) -> tuple[Array, tuple[Array, Array]]:
            found = iterate(mech, q, at, pull, h, start)
            return found.impulse, (found.converged.astype(start.dtype), found.rounds.astype(start.dtype))  # JAX wants floats

        # The operator is −h K.
        tangent = lambda linear, right: self.plan.factor(lambda d: linear(d) * (-1 / h), right.dtype).solve(right) * (-1 / h)
        residual = lambda impulse: mech.constraint(at(impulse))
        root, (converged, rounds) = jax.lax.custom_root(residual, guess, solve, tangent, has_aux=True)
        return Placed(root, converged > 0, rounds)

    def _chords(self, mech: Any, q: Array, at: Any, pull: Any, h: Array, start: Array) -> Placed:
        """Newton's method: with the matrix of the guess as long as that serves, then with a new one in every round.

        K x = g(Q) says how Q moves, ΔQ = −M⁻¹G(q)ᵀx, and Δμ = x/h. A mass that is one number goes with h instead of M⁻¹.

        Sizes are squares of lengths of displacements. The rounding of Q is that of q and Q together; for the matrix of the guess that of q does,
        which at worst is too small, so that a new matrix is asked for a last time."""
        guessed, lost = at(start), 100.0 * q.size
        push, stride = (pull, jnp.reshape(h * mech.mass_inverse, ())) if mech.one_mass else (lambda x: mech.velocity(pull(x)), h)

        def matrix(there: Array) -> Any:
            return self.plan.factor(lambda x: jax.jvp(mech.constraint, (there,), (push(x),))[1], start.dtype, rough=True)

        def squared(x: Array, g: Array) -> Array:
            """|ΔQ|². ΔQᵀM ΔQ = x·g: with one mass for all that is enough (not in single precision, where it might underflow)."""
            if mech.one_mass and start.dtype == jnp.float64:
                return jnp.abs(inner(x, g))
            moved = push(x)
            return inner(moved, moved)

        def corrected(factored: Any, there: Array, sizes: Sizes, before: Array, first: Any) -> tuple[Array, Array, Array]:
            """x, the size of the correction, and whether it is the last one needed, after one of the size given."""
            g = mech.constraint(there)
            x = factored.solve(g)
            size = sizes.unit * squared(x, g)
            # It is at round-off; or the next one would be a tenth of the rounding of a single coordinate.
            return x, size, (size <= sizes.rounding) | (~first & (lost * (size * size) <= before * sizes.rounding))

        factored, sizes, back = matrix(guessed), _sizes(q), 1 / stride
        carried = guessed.size > SMALL

        def chord(s):
            impulse, kept, before, first, _, _, rounds = s
            x, size, done = corrected(factored, kept[0] if kept else at(impulse), sizes, before, first)
            # Where a round gains less than a digit, it is not taken, and a new matrix pays; NaN compares false and ends it.
            gains = 100 * size <= before
            impulse = jnp.where(gains, impulse + back * x, impulse)
            return impulse, (at(impulse),) if carried else (), size, no, done, done | ~gains, rounds + 1

        no = jnp.zeros((), bool)
        begin = (start, (guessed,) if carried else (), sizes.whole, ~no, no, no, 0)
        impulse, _, _, _, done, _, rounds = jax.lax.while_loop(lambda s: ~s[5], chord, begin)

        def newton(s):
            impulse, before, _, count = s
            # A guess that led nowhere is given up for none at all.
            again = count == MATRICES // 2
            impulse = jnp.where(again, 0.0, impulse)
            there = at(impulse)
            sizes = _sizes(q, there)
            x, size, done = corrected(matrix(there), there, sizes, before, (count == 0) | again)
            stalled = (4 * size >= before) & (size <= 1e6 * sizes.rounding)  # as small as rounding lets it become
            return impulse + back * x, size, done | (stalled & (count != 0) & ~again), count + 1

        unfinished = lambda s: ~s[2] & (s[3] < MATRICES)
        impulse, _, done, more = jax.lax.while_loop(unfinished, newton, (impulse, sizes.whole, done, 0))
        return Placed(impulse, done, rounds + more)

    def _sweeps(self, mech: Mechanics, q: Array, at: Any, pull: Any, h: Array, start: Array) -> Placed:
        """Δμ_i = ω g_i(Q)/(h G_i(Q) M⁻¹G_i(q)ᵀ), one constraint after another until all are at round-off. Constraints that
        share no coordinate are done together, which changes nothing but the order."""
        colours = _sweep_colours(self.plan)
        groups = jnp.asarray(colours[None, :] == np.arange(colours.max() + 1)[:, None])
        free = at(jnp.zeros_like(start))
        tiny = jnp.finfo(free.dtype).eps * jnp.max(jnp.abs(free))
        shift = lambda impulse: mech.displacement(pull(impulse), h)
        lightest = jnp.sqrt(jnp.max(mech.velocity(jnp.ones_like(free))) * jnp.abs(h))

        def correct(q_and_impulse, group):
            q, impulse = q_and_impulse
            value, rate = jax.jvp(mech.constraint, (q,), (shift(group.astype(q.dtype)),))
            rate = jnp.where(group, rate, 1.0)
            change = jnp.where(group, self.relaxation * value / rate, 0.0)
            # How far the constraints of this group are away, as lengths.
            off = lightest * jnp.max(jnp.where(group, jnp.abs(value) / jnp.sqrt(jnp.abs(rate)), 0.0))
            return (q - shift(change), impulse + change), off

        def sweep(s):
            impulse, _, least, quiet, count = s
            # From μ anew, or the rounding of thousands of sweeps adds up. Small corrections do not mean that the root is
            # near, so slowly do sweeps converge: what is left of g tells, down to its own rounding.
            (_, impulse), offs = jax.lax.scan(correct, (at(impulse), impulse), groups)
            off = jnp.max(offs)
            quiet = jnp.where((off >= least) & (off <= 100 * tiny), quiet + 1, 0)
            return impulse, off, jnp.minimum(off, least), jnp.where(off <= 2 * tiny, QUIET, quiet), count + 1

        unfinished = lambda s: (s[3] < QUIET) & (s[4] < SWEEPS) & jnp.isfinite(s[1])
        begin = (start, jnp.zeros((), free.dtype), jnp.asarray(jnp.inf, free.dtype), 0, 0)
        impulse, _, _, quiet, count = jax.lax.while_loop(unfinished, sweep, begin)
        return Placed(impulse, quiet >= QUIET, count)

    def polish(self, q: Array) -> Array:
        """What brings q back onto the manifold where a closed form leaves rounding to add up: ½Q(I − QᵀQ) for rotations."""
        if self.way != "rotation":
            return jnp.zeros((), q.dtype)
        return 0.5 * q @ (jnp.eye(3, dtype=q.dtype) - jnp.swapaxes(q, -1, -2) @ q)

    # --- momenta ----------------------------------------------------------------------------------------------------
    def tangent(self, mech: Mechanics, q: Array, p: Array) -> Array:
        """ν with G M⁻¹(p − Gᵀν) = 0."""
        if self.way == "sphere":
            arm = q - mech.system.constraint.centre
            return jnp.atleast_1d(jnp.sum(arm * p, axis=-1) / (2 * jnp.sum(arm**2, axis=-1)))
        return self.gram_solve(mech, q, mech.constraint_rate(q, mech.velocity(p)))

    def multipliers(self, mech: Mechanics, q: Array, p: Array) -> Array:
        """λ of the exact motion: (G M⁻¹Gᵀ) λ = G M⁻¹f + g''(v, v)."""
        right = mech.constraint_rate(q, mech.velocity(mech.force(q))) + mech.constraint_curvature(q, mech.velocity(p))
        return self.gram_solve(mech, q, right)

    def gram_solve(self, mech: Mechanics, q: Array, right: Array) -> Array:
        """x with (G M⁻¹Gᵀ) x = right."""
        apply = lambda d: mech.constraint_rate(q, mech.velocity(mech.constraint_force(q, d)))
        if self.plan.kind in ("matrix-free", "least-squares"):
            return self.plan.solve(apply, right).x
        return self.plan.factor(apply, q.dtype).solve(right)


def _sizes(*positions: Array) -> Sizes:
    """The sizes of corrections of positions like these."""
    number = jnp.finfo(positions[0].dtype)
    whole = sum(inner(x, x) for x in positions) * (2 / len(positions)) + number.tiny / number.eps**2
    if number.bits == 64:
        return Sizes(1.0, number.eps**2 * whole, whole)
    return Sizes(1 / (number.eps**2 * whole), 1.0, jnp.asarray(number.eps**-2, number.dtype))  # whose range does not hold fourth powers of lengths


def _sweep_colours(plan: Plan) -> np.ndarray:
    """Constraints of one colour do not meet in G M⁻¹Gᵀ; all differ where its pattern is not known."""
    if plan.order is None or plan.diagonal is None:
        return np.arange(plan.n)
    block, a, b = np.nonzero(plan.diagonal)
    pairs = [(plan.order[block, a], plan.order[block, b])]
    if plan.lower is not None:
        block, a, b = np.nonzero(plan.lower)
        pairs += [(plan.order[block + 1, a], plan.order[block, b]), (plan.order[block, b], plan.order[block + 1, a])]
    rows, columns = (np.concatenate(side) for side in zip(*pairs, strict=True))
    real = (rows != columns) & (rows < plan.n) & (columns < plan.n)
    return greedy_colours(sparse.csr_matrix((np.ones(real.sum(), bool), (rows[real], columns[real])), shape=(plan.n, plan.n)))


# --- closed forms ---------------------------------------------------------------------------------------------------
def closed_form(system: Any, shape: tuple[int, ...]) -> str | None:
    """The closed form that fits a system's constraint and mass, if one does."""
    mass = np.shape(system.mass)
    if mass_is_matrix(mass, shape):
        return None
    if isinstance(system.constraint, OnSphere) and system.constraint.particles is None:
        # The force is along the arm; so must be the displacement: one mass for all coordinates of a particle.
        return "sphere" if not mass or mass[-1] == 1 else None
    if isinstance(system.constraint, Orthogonal):
        return "rotation" if len(mass) < 2 or mass[-2] == 1 else None
    return None


def closed_plan(n: int, way: str) -> Plan:
    """For closed forms the plan serves the multipliers alone."""
    description = {"sphere": "closed form for points on spheres", "rotation": "quaternions for rotation matrices"}[way]
    return dataclasses.replace(dense(n), description=description)


def _on_sphere(mech: Mechanics, q: Array, free: Array, h: Array) -> Placed:
    """|X − a n|² = R² with n = q − c, X = free − c: a = C/(B + √(B² − C R²)), B = n·X, C = |X|² − R²; and h M⁻¹Gᵀμ = a n."""
    sphere = mech.system.constraint
    arm, there = q - sphere.centre, free - sphere.centre
    reach = jnp.sum(arm**2, axis=-1)
    b, c = jnp.sum(arm * there, axis=-1), jnp.sum(there**2, axis=-1) - sphere.radius**2
    root = b**2 - c * reach
    a = c / (b + jnp.sqrt(root))
    mass = jnp.broadcast_to(mech.system.mass, q.shape)[..., 0]
    return Placed(jnp.atleast_1d(0.5 * mass * a) * (1 / h), jnp.all(root > 0), jnp.zeros((), int))


def _rotation(mech: Mechanics, q: Array, free: Array, h: Array) -> Placed:
    """Q D = X D − qΛ with Λ symmetric: R = qᵀQ has the skew part of R D that B = qᵀX D has. In quaternions, with e₀ from
    |e| = 1 and D = diag(d):   2e₀e₁(d₂ + d₃) + 2e₂e₃(d₂ − d₃) = B₃₂ − B₂₃ and cyclic. (Hairer, Lubich, Wanner, VII.5.3.)"""
    d = jnp.broadcast_to(mech.system.mass, q.shape)[..., 0, :]
    b = jnp.swapaxes(q, -1, -2) @ free * d[..., None, :]
    skew = b - jnp.swapaxes(b, -1, -2)
    right = jnp.stack([skew[..., 2, 1], skew[..., 0, 2], skew[..., 1, 0]], axis=-1)
    turn = lambda x: jnp.roll(x, -1, axis=-1)
    sums, differences = turn(d) + turn(turn(d)), turn(d) - turn(turn(d))

    def residual(e: Array) -> Array:
        zeroth = jnp.sqrt(1 - jnp.sum(e**2, axis=-1, keepdims=True))
        return 2 * zeroth * e * sums + 2 * turn(e) * turn(turn(e)) * differences - right

    def linear_solve(apply: Any, r: Array) -> Array:
        columns = jnp.stack([apply(jnp.broadcast_to(unit, r.shape)) for unit in jnp.eye(3, dtype=r.dtype)], axis=-1)
        return jnp.linalg.solve(columns, r[..., None])[..., 0]

    e, converged = newton(residual, right / (2 * sums), jnp.ones((), q.dtype), linear_solve)
    zeroth = jnp.sqrt(1 - jnp.sum(e**2, axis=-1))[..., None, None]
    x, y, z = e[..., 0], e[..., 1], e[..., 2]
    zero = jnp.zeros_like(x)
    cross = jnp.stack([jnp.stack([zero, -z, y], -1), jnp.stack([z, zero, -x], -1), jnp.stack([-y, x, zero], -1)], axis=-2)
    rotation = jnp.eye(3, dtype=q.dtype) + 2 * zeroth * cross + 2 * cross @ cross
    symmetric = b - rotation * d[..., None, :]
    symmetric = 0.5 * (symmetric + jnp.swapaxes(symmetric, -1, -2))
    # Gᵀμ = qΛ for the six equations of the upper triangle: Λ_ii = 2μ_ii, Λ_ij = √2 μ_ij.
    multipliers = symmetric[..., *UPPER] * np.where(WEIGHTS == 1, 0.5, 1 / WEIGHTS)
    return Placed(multipliers.reshape(-1) * (1 / h), converged, jnp.zeros((), int))
