"""The exact flow of a quadratic fast part W, and functions of hΩ with Ω² = M⁻¹Hess W, for `trigonometric`.

All functions are even, so they are written as functions of z = (hω)², an eigenvalue of h²Ω². They are numbers for each
coordinate where Ω² is diagonal, and matrices, from the eigenvectors of M^-½ Hess W M^-½, where it is not.

References: Hairer, Lubich, Wanner, chapter XIII.2; Stumpff's functions: Battin, An Introduction to the Mathematics and
Methods of Astrodynamics, chapter 4.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.compilation import concrete_evaluation, jit
from ..numerics.linalg import Plan
from ..numerics.linalg.discovery import concrete
from ..numerics.module import Module
from ..system.mechanics import Mechanics

# An ω² below this many eps times the largest ω² counts as zero; up to 3 were measured for free motions.
ZERO_FREQUENCY = 16
# Deviation of ∇W from an affine function, in units of rounding, that stops a run; below 1 for quadratic W.
DEVIATION_LIMIT = 1000
TERMS = 10  # of a series for |z| ≤ 1: the next one is 1/20! = 4e-19


# --- functions of z = x² --------------------------------------------------------------------------------------------
def _entire(z: Array, k: int, circular: Callable[[Array], Array], hyperbolic: Callable[[Array], Array]) -> Array:
    """Stumpff's function c_k(z) = Σ (−z)ʲ/(2j + k)!: by its series near 0, which is differentiable there; else by
    circular(√z) or hyperbolic(√−z)."""
    z = jnp.asarray(z, float)
    near, series = jnp.where(jnp.abs(z) <= 1, z, 0.0), jnp.zeros_like(z)
    for j in reversed(range(TERMS)):
        series = (-1) ** j / math.factorial(2 * j + k) + near * series
    # Where a branch is not used, its derivative must be finite all the same.
    root = lambda far, x: jnp.sqrt(jnp.where(far, x, 1.0))
    return jnp.where(z > 1, circular(root(z > 1, z)), jnp.where(z < -1, hyperbolic(root(z < -1, -z)), series))


def sinc(z: Array) -> Array:
    """sin x / x; sinh |x| / |x| for negative z."""
    return _entire(z, 1, lambda x: jnp.sin(x) / x, lambda x: jnp.sinh(x) / x)


def c2(z: Array) -> Array:
    """(1 − cos x)/x²; (cosh |x| − 1)/|x|² for negative z."""
    return _entire(z, 2, lambda x: 2 * (jnp.sin(x / 2) / x) ** 2, lambda x: 2 * (jnp.sinh(x / 2) / x) ** 2)


def c3(z: Array) -> Array:
    """(1 − sinc x)/x²."""
    return _entire(z, 3, lambda x: (1 - jnp.sin(x) / x) / x**2, lambda x: (jnp.sinh(x) / x - 1) / x**2)


Function = Callable[[Array], Array]


class Filters(NamedTuple):
    """ψ and φ as functions of z = (hω)², and χ = (1 − φ)/z, None where φ = 1."""

    psi: Function
    phi: Function = jnp.ones_like
    chi: Function | None = None


_sine = lambda z: z * sinc(z / 4) ** 2 / 4  # sin²(x/2)
# Symmetric with ψ₁ = ψ/sinc and ψ₀ = cos ψ₁; symplectic where ψ = sinc φ.
FILTERS: dict[str, Filters] = {
    "gautschi": Filters(lambda z: sinc(z / 4) ** 2),
    "deuflhard": Filters(sinc),
    "garcia-archilla": Filters(lambda z: sinc(z) ** 2, sinc, c3),
    "hochbruck-lubich": Filters(
        lambda z: sinc(z / 4) ** 2,
        lambda z: sinc(z) * (1 + _sine(z) / 3),
        lambda z: c3(z) - sinc(z) * sinc(z / 4) ** 2 / 12,
    ),
    "hairer-lubich": Filters(lambda z: sinc(z) ** 2),
    "grimm-hochbruck": Filters(lambda z: sinc(z) ** 3, sinc, c3),
}
SYMPLECTIC = ("deuflhard", "garcia-archilla")


@functools.cache
def flow_functions(filter: str) -> tuple[Function, ...]:
    """Of z: cos − 1, sinc, z sinc, c₂, ψ₁ and, where φ is not 1, φ and χ."""
    psi, phi, chi = FILTERS[filter]
    always: tuple[Function, ...] = (lambda z: -z * c2(z), sinc, lambda z: z * sinc(z), c2, lambda z: psi(z) / sinc(z))
    return always if chi is None else (*always, phi, chi)


def nonzero(z: Array) -> Array:
    return jnp.where(z == 0, jnp.zeros_like(z), jnp.ones_like(z))


def inverse(z: Array) -> Array:
    """1/z for fast motions, whose rest position is near, and zero for the others."""
    return jnp.where(z >= 1, 1 / jnp.where(z >= 1, z, 1.0), 0.0)


# --- the flow of W --------------------------------------------------------------------------------------------------
class Flow(Module):
    """All that a step of one length h applies: functions of hΩ, as numbers for each coordinate where Ω² = M⁻¹Hess W
    is diagonal and as matrices where not, and what the constant force b does in that time."""

    centre: Array | None  # a; None for the origin, where Ω² is diagonal
    cosine_minus_one: Array  # cos − 1
    sinc: Array  # h sinc
    restoring: Array  # hΩ² sinc
    kick: Array  # ½hψ₁
    displacement_by_b: Array  # −h² c₂ b
    velocity_by_b: Array  # −h sinc b
    averaged: tuple[Array, Array] | None  # φ and a − h²χ b, where φ is not 1
    stiff_projection: Array | None = None  # the projection on the motions with stiffness, where there are others

    def displacement(self, q: Array) -> Array:
        """x = q − a. A diagonal Ω² acts on each coordinate separately, so that a = 0 is accurate enough. With matrices
        rounding errors grow with |x|, so that a point a near the motion is used."""
        return q if self.centre is None else q - self.centre

    def without_free(self, x: Array) -> Array:
        """x without its components along free motions (ω = 0). There the matrices of cos − 1 and Ω² vanish only up to
        rounding, which would act as a weak spring on a free motion that goes far."""
        return x if self.stiff_projection is None else applied(self.stiff_projection, x)

    def positions(self, q: Array) -> Array:
        """Φq."""
        return q if self.averaged is None else applied(self.averaged[0], self.displacement(q)) + self.averaged[1]


def applied(function: Array, x: Array) -> Array:
    return function * x if function.shape == x.shape else (function @ x.ravel()).reshape(x.shape)


def is_diagonal(plan: Plan | None) -> bool:
    return plan is not None and plan.kind == "blocks" and plan.order is not None and plan.order.shape[1] == 1


def _spectrum(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of a symmetric matrix."""
    squares, modes = jnp.linalg.eigh(matrix)
    # eigh has an absolute error of about eps|A|, which would act as a spring on a free motion: eigenvalues of that size
    # are set to zero. A true ω² below it can't be distinguished from zero, since the entries of a full matrix do not
    # determine it.
    smallest = ZERO_FREQUENCY * jnp.finfo(matrix.dtype).eps * jnp.max(jnp.abs(squares))
    return jnp.where(jnp.abs(squares) > smallest, squares, 0.0), modes


def _independent(plan: Plan | None) -> np.ndarray | None:
    """(count, size): the coordinates of each independent block of M + Hess W, padded with n; None where there are no
    blocks. Blocks are diagonalised separately, so that the rounding error of a stiff one does not affect a soft one."""
    return plan.order if plan is not None and plan.kind == "blocks" else None


def _blocks(matrix: Array, order: np.ndarray) -> Array:
    """(count, size, size), zero in the padding."""
    return jnp.pad(matrix, (0, 1))[order[:, :, None], order[:, None, :]]


def _joined(blocks: Array, order: np.ndarray, n: int) -> Array:
    whole = jnp.zeros((n + 1, n + 1), blocks.dtype)
    return whole.at[order[:, :, None], order[:, None, :]].set(blocks)[:n, :n]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _matrix_functions(functions: tuple[Function, ...], matrix: Array) -> tuple[Array, ...]:
    """f(Z) − f(0) of a symmetric Z, for several f. Derivatives of eigenvectors have poles where eigenvalues coincide,
    as they do for the two directions of a spring in the plane; the derivative of f(Z) has none. Second derivatives
    need distinct eigenvalues."""
    squares, modes = _spectrum(matrix)
    return tuple((modes * (f(squares) - f(jnp.zeros_like(squares)))) @ modes.T for f in functions)


@_matrix_functions.defjvp
def _derivative(functions: tuple[Function, ...], at: tuple[Array], by: tuple[Array]) -> tuple[Any, Any]:
    """V (F ∘ VᵀdZ V) Vᵀ with the divided differences F_ij = (f(z_i) − f(z_j))/(z_i − z_j) (Daleckii and Krein)."""
    squares, modes = _spectrum(at[0])
    turned = modes.T @ by[0] @ modes
    apart = squares[:, None] - squares[None, :]
    middle = 0.5 * (squares[:, None] + squares[None, :])
    # f changes over a length of √z. At a distance of eps^¼ of it (1e-4 in float64) the quotient has lost few digits,
    # and the slope in the middle is as good.
    closest = jnp.finfo(squares.dtype).eps ** 0.25
    near = jnp.abs(apart) < closest * jnp.maximum(1.0, jnp.sqrt(jnp.abs(middle)))

    def divided(f: Function) -> Array:
        values, slopes = f(squares), jax.jvp(f, (middle,), (jnp.ones_like(middle),))[1]
        return jnp.where(near, slopes, (values[:, None] - values[None, :]) / jnp.where(near, 1.0, apart))

    return _matrix_functions(functions, at[0]), tuple(modes @ (divided(f) * turned) @ modes.T for f in functions)


def functions_of(
    functions: tuple[Function, ...], mech: Mechanics, a: Array, h: Array, plan: Plan | None
) -> tuple[Array, ...]:
    """f(h²Ω²) for each f, with Ω² at a; anywhere, since W is quadratic."""
    if is_diagonal(plan):
        return tuple(f(h**2 * _diagonal_squares(mech, a)) for f in functions)
    lower, matrix = _weighted(mech, a)
    solved = functools.partial(jax.scipy.linalg.solve_triangular, lower, lower=True, trans=1)
    identity, origin = jnp.eye(a.size, dtype=a.dtype), jnp.zeros((), a.dtype)
    # f(0) is added separately, so that motions on which no fast force acts are exact.
    order, wanted = _independent(plan), functools.partial(_matrix_functions, functions)
    if order is None:
        rest = wanted(h**2 * matrix)
    else:
        rest = tuple(_joined(x, order, a.size) for x in jax.vmap(wanted)(_blocks(h**2 * matrix, order)))
    return tuple(f(origin) * identity + solved(x @ lower.T) for f, x in zip(functions, rest, strict=True))


def squared_frequencies(mech: Mechanics, a: Array, plan: Plan | None) -> Array:
    """The eigenvalues of Ω² at a, and some zeros more."""
    if is_diagonal(plan):
        return _diagonal_squares(mech, a).ravel()
    matrix, order = _weighted(mech, a)[1], _independent(plan)
    return jax.vmap(_spectrum)(matrix[None] if order is None else _blocks(matrix, order))[0].ravel()


@functools.partial(jit, static_argnums=2)
def frequencies_at(system: Any, q: Array, plan: Plan | None) -> Array:
    """The eigenvalues of Ω² at q, before a run."""
    return squared_frequencies(Mechanics(system, q.shape), q, plan)


@functools.partial(jit, static_argnums=(3, 4))
def largest_kick(system: Any, q: Array, h: Array, filter: str, plan: Plan | None) -> Array:
    """The largest |ψ₁(hω)| at q."""
    first = flow_functions(filter)[4]
    return jnp.max(jnp.abs(first(h**2 * frequencies_at(system, q, plan))))


def has_free(system: Any, q: Any, plan: Plan | None) -> bool:
    """Whether W leaves a motion without stiffness at a start."""
    system, q = concrete(system, q, np.random.default_rng(1))
    with concrete_evaluation():
        squares = np.asarray(frequencies_at(system, np.asarray(q, float), plan))
    return np.count_nonzero(squares) < q.size


def _diagonal_squares(mech: Mechanics, a: Array) -> Array:
    return mech.velocity(mech.fast_hessian_product(a, jnp.ones_like(a)))


def _weighted(mech: Mechanics, a: Array) -> tuple[Array, Array]:
    """L and L⁻¹KL⁻ᵀ, M = LLᵀ and K = Hess W(a)."""
    flat = lambda f: lambda v: f(v.reshape(a.shape)).ravel()
    identity = jnp.eye(a.size, dtype=a.dtype)
    lower = jnp.linalg.cholesky(jax.vmap(flat(mech.momentum))(identity))
    stiffness = jax.vmap(flat(lambda v: mech.fast_hessian_product(a, v)))(identity)
    half = jax.scipy.linalg.solve_triangular(lower, stiffness, lower=True)
    matrix = jax.scipy.linalg.solve_triangular(lower, half.T, lower=True)
    return lower, 0.5 * (matrix + matrix.T)


class AffineCheck(Module):
    """A check that W is still the quadratic function that it was near the start, for a W whose jaxpr does not prove
    it: one random linear combination r of the equations ∇W(q) = ∇W(a) + Hess W(a)(q − a)."""

    centre: Array
    slope: Array  # Hess W(a) r
    rise: Array  # r · ∇W(a)

    @staticmethod
    def combination(like: Array) -> np.ndarray:
        random = np.random.default_rng(5)
        return random.uniform(0.5, 1.5, like.shape) * random.choice([-1.0, 1.0], like.shape)

    @classmethod
    def of(cls, mech: Mechanics, a: Array) -> AffineCheck:
        r = jnp.asarray(cls.combination(a), a.dtype)
        return cls(a, mech.fast_hessian_product(a, r), jnp.sum(r * mech.fast_gradient(a)))

    def violated(self, mech: Mechanics, q: Array) -> Array:
        """Whether ∇W(q) differs from the affine function by more than rounding."""
        terms = self.combination(q) * mech.fast_gradient(q)
        off = jnp.abs(jnp.sum(terms) - self.rise - jnp.sum(self.slope * (q - self.centre)))
        reach = jnp.abs(q) + jnp.abs(self.centre)
        scale = jnp.sum(jnp.abs(terms)) + jnp.abs(self.rise) + jnp.sum(jnp.abs(self.slope) * reach)
        return ~(off <= DEVIATION_LIMIT * jnp.finfo(q.dtype).eps * scale) & jnp.all(jnp.isfinite(q))
