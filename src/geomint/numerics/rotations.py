"""Rotations of space in closed form: skew matrices, the exponential and the Cayley map of SO(3), unit quaternions.

Vectors have shape (..., 3) and matrices (..., 3, 3). Everything is written entry by entry or by products of 3 × 3
matrices, so that every engine covers it, and with series near zero, so that it can be differentiated there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import jax.numpy as jnp
from jaxtyping import Array

TERMS = 11  # of the series, used for angles up to 1; the term left out is below 1e-16
# Up to this squared angle the series is used; beyond, the closed forms lose no more than two digits.
SERIES_UP_TO = 1.0


def hat(v: Array) -> Array:
    """The skew matrix v̂ with v̂ x = v × x."""
    x, y, z = v[..., 0], v[..., 1], v[..., 2]
    zero = jnp.zeros_like(x)
    rows = [jnp.stack(row, axis=-1) for row in ((zero, -z, y), (z, zero, -x), (-y, x, zero))]
    return jnp.stack(rows, axis=-2)


def twice_vee(a: Array) -> Array:
    """The vector of the skew matrix A − Aᵀ: 2v for A = v̂."""
    return jnp.stack([a[..., 2, 1] - a[..., 1, 2], a[..., 0, 2] - a[..., 2, 0], a[..., 1, 0] - a[..., 0, 1]], axis=-1)


def cross(a: Array, b: Array) -> Array:
    """a × b, entry by entry."""
    (a0, a1, a2), (b0, b1, b2) = ([v[..., i] for i in range(3)] for v in (a, b))
    return jnp.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=-1)


def dot(a: Array, b: Array) -> Array:
    """a·b, with an axis of length 1 in place of the last one."""
    return jnp.sum(a * b, axis=-1, keepdims=True)


def solve3(columns: Array, b: Array) -> Array:
    """x with A x = b by Cramer's rule, for A of shape (..., 3, 3)."""
    first, second, third = (columns[..., :, i] for i in range(3))
    normal = cross(second, third)
    inverse = 1 / dot(first, normal)
    rows = (dot(b, normal), dot(b, cross(third, first)), dot(b, cross(first, second)))
    return jnp.concatenate(rows, axis=-1) * inverse


# --- even functions of the angle ----------------------------------------------------------------------------------
@cache
def _series(name: str) -> tuple[float, ...]:
    """Coefficients in powers of t = θ²."""
    if name == "sine":  # sin θ/θ
        return tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(TERMS))
    if name == "versine":  # (1 − cos θ)/θ²
        return tuple((-1.0) ** k / math.factorial(2 * k + 2) for k in range(TERMS))
    # (1 − ½θ cot ½θ)/θ² = Σ |B₂ₖ| t^(k−1)/(2k)!
    return tuple(float(abs(_bernoulli(2 * k)) / math.factorial(2 * k)) for k in range(1, TERMS + 1))


@cache
def _bernoulli(n: int) -> Fraction:
    if n == 0:
        return Fraction(1)
    return -sum((math.comb(n + 1, k) * _bernoulli(k) for k in range(n)), Fraction(0)) / (n + 1)


def bernoulli_ratio(n: int) -> float:
    """Bₙ/n!, with B₁ = −½."""
    return float(_bernoulli(n) / math.factorial(n))


def _even(name: str, t: Array, closed: Callable[[Array], Array]) -> Array:
    near = t < SERIES_UP_TO
    small, sum_ = jnp.where(near, t, 0.0), jnp.zeros_like(t)
    for c in reversed(_series(name)):
        sum_ = sum_ * small + c
    return jnp.where(near, sum_, closed(jnp.sqrt(jnp.where(near, 1.0, t))))


def sine(t: Array) -> Array:
    """sin θ/θ for t = θ²."""
    return _even("sine", t, lambda a: jnp.sin(a) / a)


def versine(t: Array) -> Array:
    """(1 − cos θ)/θ² for t = θ²."""
    return _even("versine", t, lambda a: (1 - jnp.cos(a)) / a**2)


def half_cotangent(t: Array) -> Array:
    """(1 − ½θ cot ½θ)/θ² for t = θ²."""
    return _even("half cotangent", t, lambda a: (1 - 0.5 * a * jnp.cos(0.5 * a) / jnp.sin(0.5 * a)) / a**2)


# --- maps from vectors to rotations -------------------------------------------------------------------------------
def exponential_minus_one(w: Array) -> Array:
    """exp(ŵ) − I = (sin θ/θ) ŵ + (1 − cos θ)/θ² ŵ² (Rodrigues)."""
    t, skew = dot(w, w)[..., None], hat(w)
    return sine(t) * skew + versine(t) * _square(w, t)


def cayley_minus_one(w: Array) -> Array:
    """(I − ½ŵ)⁻¹(I + ½ŵ) − I = (ŵ + ½ŵ²)/(1 + ¼|w|²)."""
    t = dot(w, w)[..., None]
    return (hat(w) + 0.5 * _square(w, t)) / (1 + 0.25 * t)


def _square(w: Array, t: Array) -> Array:
    """ŵ² = w wᵀ − |w|²."""
    return w[..., :, None] * w[..., None, :] - t * jnp.eye(3, dtype=w.dtype)


def exponential_cotangent(w: Array, mu: Array) -> Array:
    """(dexp_w⁻¹)ᵀμ = μ + ½ w × μ + ((1 − ½θ cot ½θ)/θ²) w × (w × μ)."""
    turned = cross(w, mu)
    return mu + 0.5 * turned + half_cotangent(dot(w, w)) * cross(w, turned)


def cayley_cotangent(w: Array, mu: Array) -> Array:
    """(dcay_w⁻¹)ᵀμ = μ + ½ w × μ + ¼ (w·μ) w."""
    return mu + 0.5 * cross(w, mu) + 0.25 * dot(w, mu) * w


def logarithm(r: Array) -> Array:
    """The rotation vector of a rotation matrix, of length up to π; by its unit quaternion, accurate at all angles."""
    e = to_quaternion(r)
    x, w = e[..., 1:], e[..., :1]
    square = jnp.sum(x * x, axis=-1, keepdims=True)
    tiny = square < 1e-300
    sine_ = jnp.sqrt(jnp.where(tiny, 1.0, square))
    return jnp.where(tiny, 2.0, 2 * jnp.arctan2(sine_, w) / sine_) * x


def polish(r: Array) -> Array:
    """½R(I − RᵀR): what Newton–Schulz adds to R to make it orthogonal."""
    return 0.5 * r @ (jnp.eye(3, dtype=r.dtype) - jnp.swapaxes(r, -1, -2) @ r)


# --- quaternions --------------------------------------------------------------------------------------------------
def from_quaternion(e: Array) -> Array:
    """The rotation matrix of a quaternion (e₀, e₁, e₂, e₃), which need not be of unit length."""
    e = jnp.asarray(e)
    zeroth, vector = e[..., :1], e[..., 1:]
    scale = 2 / jnp.sum(e * e, axis=-1)[..., None, None]
    return jnp.eye(3, dtype=e.dtype) + scale * (
        zeroth[..., None] * hat(vector) + _square(vector, dot(vector, vector)[..., None])
    )


def to_quaternion(r: Array) -> Array:
    """The unit quaternion (e₀ ≥ 0, e₁, e₂, e₃) of a rotation matrix: of the four formulas the one that divides by the
    largest entry (Shepperd)."""
    r = jnp.asarray(r)
    d = [r[..., i, i] for i in range(3)]
    trace = d[0] + d[1] + d[2]
    odd = twice_vee(r)
    even = lambda i, j: r[..., i, j] + r[..., j, i]
    rows = [
        jnp.stack([1 + trace, odd[..., 0], odd[..., 1], odd[..., 2]], axis=-1),
        jnp.stack([odd[..., 0], 1 + 2 * d[0] - trace, even(0, 1), even(0, 2)], axis=-1),
        jnp.stack([odd[..., 1], even(0, 1), 1 + 2 * d[1] - trace, even(1, 2)], axis=-1),
        jnp.stack([odd[..., 2], even(0, 2), even(1, 2), 1 + 2 * d[2] - trace], axis=-1),
    ]
    every = jnp.stack(rows, axis=-2)
    largest = jnp.argmax(jnp.diagonal(every, axis1=-2, axis2=-1), axis=-1)
    e = jnp.take_along_axis(every, largest[..., None, None], axis=-2)[..., 0, :]
    e = e / jnp.sqrt(jnp.sum(e * e, axis=-1, keepdims=True))
    return jnp.where(e[..., :1] < 0, -e, e)
