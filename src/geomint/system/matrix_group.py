"""Any matrix group as a configuration space, by a basis of its algebra; SE(3) is one of them."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.rotations import bernoulli_ratio
from .checks import as_array
from .spaces import ON_GROUP, Shape, Space

CLOSED = 1e-10  # relative part of a commutator, or of a logarithm, outside the span of the basis that is rounding
SQUARINGS, TERMS = 3, 13  # of the exponential: a series for a matrix an eighth of the size, squared three times
ITERATIONS = 8  # of the logarithm
ORDER = 22  # of the series of the inverse derivative, whose radius of convergence is |ad_w| = 2π


class MatrixGroup(Space):
    """A group of n × n matrices: q has shape (n, n), and v and p have shape (k,), components in a basis of the algebra
    and in its dual.

    basis:  k matrices (k, n, n), linearly independent and closed under commutators.

    The exponential is a series with three squarings, and the inverse of its derivative a series in ad_w; steps with
    |ad_w| above 2 lose digits, beyond 2π they are wrong. The Cayley map stays on groups defined by a quadratic
    equation, such as rotations and SE(3); others have the exponential only.
    """

    rows: tuple[tuple[tuple[float, ...], ...], ...] = eqx.field(static=True)
    is_quadratic: bool = eqx.field(static=True)

    def __init__(self, basis: Any):
        e = as_array(basis, "basis", "MatrixGroup")
        if e.ndim != 3 or e.shape[1] != e.shape[2] or not e.size:
            raise InputError(f"MatrixGroup(basis=...): basis must have the shape (k, n, n), not {e.shape}.")
        flat = e.reshape(len(e), -1)
        if np.linalg.matrix_rank(flat) < len(e):
            raise InputError("MatrixGroup(basis=...): the matrices of the basis are linearly dependent.")
        span = flat.T @ np.linalg.pinv(flat.T)
        for i in range(len(e)):
            for j in range(i):
                bracket = (e[i] @ e[j] - e[j] @ e[i]).ravel()
                off = np.abs(bracket - span @ bracket).max()
                if off > CLOSED * max(1.0, np.abs(bracket).max()):
                    raise InputError(
                        f"MatrixGroup(basis=...): the commutator of matrices {j} and {i} is not in their span (it is "
                        f"off by {off:.3g}), so that they are no basis of an algebra."
                    )
        self.rows = tuple(tuple(map(tuple, m)) for m in e.tolist())
        self.is_quadratic = _cayley_stays(e, span)

    @property
    def basis(self) -> np.ndarray:
        return np.array(self.rows)

    @property
    def _dual(self) -> np.ndarray:
        """(k, n, n): components are sums of products with these."""
        e = self.basis
        return np.linalg.pinv(e.reshape(len(e), -1).T).reshape(e.shape)

    @property
    def structure(self) -> np.ndarray:
        """c with [e_i, e_j] = Σ c_kij e_k."""
        e = self.basis
        brackets = np.einsum("iab,jbc->ijac", e, e) - np.einsum("jab,ibc->ijac", e, e)
        return np.einsum("kab,ijab->kij", self._dual, brackets)

    def hat(self, v: Array) -> Array:
        return jnp.einsum("i,iab->ab", v, self.basis)

    def vee(self, a: Array) -> Array:
        return jnp.einsum("kab,ab->k", self._dual, a)

    def velocity_shape(self, shape: Shape) -> Shape:
        e = self.basis
        if shape != e.shape[1:]:
            raise InputError(f"this group has matrices of shape {e.shape[1:]}, and q0 has shape {shape}.")
        return (len(e),)

    def _minus_one(self, w: Array, map: str) -> Array:
        a, one = self.hat(w), np.eye(self.basis.shape[1])
        if map == "cayley":
            if not self.is_quadratic:
                raise InputError("the Cayley map leaves this group; use map='exponential'.")
            return jnp.linalg.solve(one - 0.5 * a, a)
        small, total = a / 2**SQUARINGS, jnp.zeros_like(a)
        for k in range(TERMS, 0, -1):
            total = small @ (one / math.factorial(k) + total)
        for _ in range(SQUARINGS):
            total = 2 * total + total @ total
        return total

    def increment(self, q: Array, w: Array, map: str = "exponential") -> Array:
        return q @ self._minus_one(w, map)

    def difference(self, q1: Array, q0: Array) -> Array:
        """By Newton's method on exp(ŵ) = q0⁻¹q1, from w = 0: for points that are near each other."""
        target, w = jnp.linalg.solve(q0, q1), jnp.zeros(len(self.rows), q0.dtype)
        for _ in range(ITERATIONS):
            turned = self._minus_one(-w, "exponential")
            left = self.vee(target - np.eye(len(q0)) + turned @ target)  # exp(−ŵ)q0⁻¹q1 = I + left
            w = w + self._inverse_derivative(left, -self._ad(w).T)
        return w

    @staticmethod
    def _inverse_derivative(x: Array, ad: Array) -> Array:
        """Σ Bₙ/n! adⁿ x, with ad acting from the right."""
        power, total = x, jnp.zeros_like(x)
        for n in range(ORDER + 1):
            total = total + bernoulli_ratio(n) * power
            power = power @ ad
        return total

    def lift(self, q: Array, v: Array) -> Array:
        return q @ self.hat(v)

    def tangent(self, q: Array, rate: Array) -> Array:
        return self.vee(jnp.linalg.solve(q, rate))

    def pull(self, q: Array, force: Array) -> Array:
        return jnp.einsum("iab,ab->i", self.basis, q.T @ force)

    def _ad(self, w: Array) -> Array:
        return jnp.einsum("kij,i->kj", self.structure, w)

    def coadjoint(self, v: Array, p: Array) -> Array:
        return p @ self._ad(v)

    def cotangent(self, w: Array, mu: Array, map: str = "exponential") -> Array:
        if map == "cayley":  # dcay_w⁻¹(y) = (I − ½ŵ) ŷ (I + ½ŵ)
            a, one = self.hat(w), np.eye(self.basis.shape[1])
            columns = jnp.einsum("ab,ibc,cd->iad", one - 0.5 * a, self.basis, one + 0.5 * a)
            return jnp.einsum("kab,iab,k->i", self._dual, columns, mu)
        return self._inverse_derivative(mu, self._ad(w))

    def check(self, q: Any, name: str) -> None:
        """That q is near the identity component, as far as the logarithm tells."""
        from scipy.linalg import logm

        e, dual = self.basis, self._dual
        for place in np.ndindex(np.shape(q)[:-2]):
            found = logm(np.asarray(q)[place])
            off = np.abs(found - np.einsum("kab,ab,kcd->cd", dual, found, e)).max()
            if not off < ON_GROUP:
                which = str(list(place)) if place else ""
                raise InputError(f"{name}{which} is not in the group: its logarithm leaves the algebra by {off:.3g}.")


def _cayley_stays(e: np.ndarray, span: np.ndarray) -> bool:
    """Whether cay maps the algebra into the group, tried on two random elements: log cay must be in the algebra."""
    from scipy.linalg import logm

    for coefficients in np.random.default_rng(0).normal(size=(2, len(e))):
        a = np.einsum("i,iab->ab", coefficients, e)
        a = 0.5 * a / max(1e-300, np.linalg.norm(a))
        found = np.asarray(logm(np.linalg.solve(np.eye(len(a)) - a / 2, np.eye(len(a)) + a / 2))).ravel()
        if np.abs(found - span @ found).max() > CLOSED:
            return False
    return True


def _se3() -> np.ndarray:
    """Six matrices: translations along the axes of the body, then rotations about them."""
    basis = np.zeros((6, 4, 4))
    for i in range(3):
        basis[i, i, 3] = 1.0
        j, k = (i + 1) % 3, (i + 2) % 3
        basis[3 + i, k, j], basis[3 + i, j, k] = 1.0, -1.0
    return basis


class SE3(MatrixGroup):
    """Rigid motions as matrices [[R, x], [0, 1]] of shape (4, 4), with velocities (linear, angular) in the body. For a
    body whose kinetic energy has no mixed terms `Poses` has shorter equations."""

    def __init__(self):
        super().__init__(_se3())

    def check(self, q: Any, name: str) -> None:
        from .spaces import SO3

        q = np.asarray(q)
        if np.any(np.abs(q[..., 3, :] - np.eye(4)[3]) > ON_GROUP):
            raise InputError(f"{name}: the last row of a rigid motion is (0, 0, 0, 1).")
        SO3().check(q[..., :3, :3], f"the rotation of {name}")
