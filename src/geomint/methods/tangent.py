"""The tangent map of a method along its own motion, for Lyapunov exponents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..numerics.compensated import value
from ..system.mechanics import Mechanics
from . import protocols
from .base import Method, State, Traits
from .wrapping import Wrapping

WRITTEN_OUT = 12  # most vectors that are made orthonormal one by one; more are factored by QR


class TangentCarry(NamedTuple):
    """What `TangentMap` carries."""

    q: Array
    p: Array
    vectors: Array  # (count, 2n), orthonormal
    growth: Array  # (count,): the sums of the logarithms of their growth
    status: Array


def orthogonal_symplectic(n: int) -> np.ndarray:
    """A matrix (2n, 2n), the same every time, whose rows w are orthonormal, and with Ω(wᵢ, w₂ₙ₊₁₋ᵢ) = 1 for i ≤ n, all
    other Ω(wᵢ, wⱼ) = 0 for i < j.

    With the rows as a basis a symplectic matrix factors as W = QR with R symplectic as well, so that the logarithms of
    the diagonal come in pairs ±, to rounding and after any time. From a unitary matrix A + iB: rows (a, b) and, in
    reverse order, (−b, a).
    """
    random = np.random.default_rng(7)
    unitary, _ = np.linalg.qr(random.normal(size=(n, n)) + 1j * random.normal(size=(n, n)))
    a, b = np.real(unitary), np.imag(unitary)
    return np.concatenate([np.concatenate([a, b], 1), np.concatenate([-b, a], 1)[::-1]])


def orthonormal(vectors: Array) -> tuple[Array, Array]:
    """The rows made orthonormal, one after another, and the lengths that were left of them."""
    if len(vectors) > WRITTEN_OUT:
        q, r = jnp.linalg.qr(vectors.T)
        diagonal = jnp.diagonal(r)
        return (q * jnp.sign(diagonal)).T, jnp.abs(diagonal)
    rows, lengths = [], []
    for k in range(len(vectors)):
        w = vectors[k]
        for _ in range(2 if k else 0):  # twice, for orthogonality to rounding
            for u in rows:
                w = w - jnp.sum(u * w) * u
        length = jnp.sqrt(jnp.sum(w * w))
        rows.append(w / length)
        lengths.append(length)
    return jnp.stack(rows), jnp.stack(lengths)


class TangentMap(Wrapping):
    """`substeps` steps of the base, with the derivative of the state by the initial state along `count` directions,
    which are made orthonormal after them.

    The base starts anew from (q, p) after each such step, so that the derivative is that of the map (q, p) ↦ (q, p).
    """

    base: Method
    count: int = eqx.field(static=True)
    substeps: int = eqx.field(static=True, default=1)

    @property
    def traits(self) -> Traits:
        return self.base.traits.without_structure()

    @property
    def failures(self) -> Mapping[int, str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return protocols.failures(self.base)

    @property
    def name(self) -> str:
        """That of the base, which the user has chosen."""
        return self.base.name

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return self.base.functions

    def check(self, system: Any) -> None:
        self.base.check(system)

    def with_base(self, base: Method) -> TangentMap:
        return TangentMap(base, self.count, self.substeps)

    def rescued(self, status: int) -> None:
        return None

    def warn(self, system: Any, q: Any, dt: float) -> None:
        protocols.warn(self.base, system, q, dt / self.substeps)

    def status(self, carry: TangentCarry) -> Array:
        return carry.status

    def init(self, mech: Mechanics, state: State, dt: Array) -> TangentCarry:
        q, p = value(state.q), value(state.p)
        vectors = jnp.asarray(orthogonal_symplectic(q.size)[: self.count], q.dtype)
        if mech.system.constraint is not None:
            vectors, _ = orthonormal(_tangential(mech, q, p, vectors))
        return TangentCarry(q, p, vectors, jnp.zeros(self.count, q.dtype), jnp.zeros((), int))

    def step(self, mech: Mechanics, carry: TangentCarry, dt: Array) -> TangentCarry:
        shape, n, h = carry.q.shape, carry.q.size, dt / self.substeps

        def moved(x: Array) -> tuple[Array, Array]:
            """(q, p) after the substeps, as a vector, and the status."""
            state = State(x[:n].reshape(shape), x[n:].reshape(shape), jnp.zeros(()), jnp.zeros(2, jnp.uint32))
            base = self.base.init(mech, state, h)
            if self.substeps == 1:
                base = self.base.step(mech, base, h)
            else:
                step = lambda c, i: (self.base.step(mech.after(i * h), c, h), None)
                base, _ = jax.lax.scan(step, base, jnp.arange(self.substeps))
            end, status = self.base.output(mech.after(dt), base), protocols.status(self.base, base)
            there = jnp.concatenate([value(end.q).ravel(), value(end.p).ravel()])
            return there, jnp.zeros((), int) if status is None else status

        x = jnp.concatenate([carry.q.ravel(), carry.p.ravel()])
        push = lambda w: jax.jvp(moved, (x,), (w,), has_aux=True)
        x, vectors, status = jax.vmap(push, out_axes=(None, 0, None))(carry.vectors)
        vectors, lengths = orthonormal(vectors)
        status = jnp.where(carry.status == 0, status, carry.status)
        growth = carry.growth + jnp.log(lengths)
        return TangentCarry(x[:n].reshape(shape), x[n:].reshape(shape), vectors, growth, status)

    def output(self, mech: Mechanics, carry: TangentCarry) -> State:
        return State(carry.q, carry.p, extras={"growth": carry.growth})


def _tangential(mech: Mechanics, q: Array, p: Array, vectors: Array) -> Array:
    """The vectors projected onto the tangent space of g(q) = 0, G(q) M⁻¹p = 0."""
    n = q.size

    def conditions(x: Array) -> Array:
        q_, p_ = x[:n].reshape(q.shape), x[n:].reshape(q.shape)
        return jnp.concatenate([mech.constraint(q_), mech.velocity_constraint(q_, mech.velocity_at(q_, p_))])

    normal = jax.jacrev(conditions)(jnp.concatenate([q.ravel(), p.ravel()]))
    return vectors - (jnp.linalg.pinv(normal) @ (normal @ vectors.T)).T
