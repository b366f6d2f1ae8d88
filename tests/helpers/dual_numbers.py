"""Numbers for random programs: dual numbers of numpy with their derivatives, and traced numbers of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


# --- dual numbers ---------------------------------------------------------------------------------------------------
class Dual:
    """An array and its derivative by n inputs, (…, n)."""

    __array_ufunc__ = None  # numpy's operators leave the work to those below
    noise: np.random.Generator | None = None

    def __init__(self, v: Any, d: Any):
        self.v, self.d = np.asarray(v, float), np.asarray(d, float)

    @classmethod
    def of(cls, v: Any, d: Any) -> Dual:
        """The result of an operation."""
        v = np.asarray(v, float)
        d = np.broadcast_to(d, (*v.shape, np.shape(d)[-1]))
        if cls.noise is not None:
            v, d = (x * (1 + np.finfo(float).eps * cls.noise.uniform(-1, 1, x.shape)) for x in (v, d))
        return cls(v, d)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.v.shape

    def chain(self, value: Any, slope: Any) -> Dual:
        """f(x), from its value and its derivative."""
        return Dual.of(value, np.asarray(slope)[..., None] * self.d)

    def __add__(self, other: Any) -> Dual:
        other = dual(other, self)
        return Dual.of(self.v + other.v, self.d + other.d)

    def __mul__(self, other: Any) -> Dual:
        other = dual(other, self)
        return Dual.of(self.v * other.v, self.v[..., None] * other.d + other.v[..., None] * self.d)

    def __neg__(self) -> Dual:
        return Dual(-self.v, -self.d)

    def __sub__(self, other: Any) -> Dual:
        other = dual(other, self)
        return Dual.of(self.v - other.v, self.d - other.d)

    def __rsub__(self, other: Any) -> Dual:
        return dual(other, self) - self

    def __truediv__(self, other: Any) -> Dual:
        other = dual(other, self)
        quotient = self.v / other.v
        return Dual.of(quotient, (self.d - quotient[..., None] * other.d) / other.v[..., None])

    def __rtruediv__(self, other: Any) -> Dual:
        return dual(other, self) / self

    def __pow__(self, power: Any) -> Dual:
        return self.chain(self.v**power, power * self.v ** (power - 1))

    __radd__, __rmul__ = __add__, __mul__

    def __gt__(self, other: Any) -> Any:
        return self.v > dual(other, self).v

    def __getitem__(self, place: Any) -> Dual:
        rest = (*place, slice(None)) if isinstance(place, tuple) else place
        return Dual(self.v[place], self.d[rest])


def dual(x: Any, like: Dual) -> Dual:
    return x if isinstance(x, Dual) else Dual(x, np.zeros((*np.shape(x), like.d.shape[-1])))


class Numbers:
    """The operations of a program, on dual numbers."""

    sin = staticmethod(lambda x: x.chain(np.sin(x.v), np.cos(x.v)))
    cos = staticmethod(lambda x: x.chain(np.cos(x.v), -np.sin(x.v)))
    tanh = staticmethod(lambda x: x.chain(np.tanh(x.v), 1 - np.tanh(x.v) ** 2))
    exp = staticmethod(lambda x: x.chain(np.exp(x.v), np.exp(x.v)))
    log = staticmethod(lambda x: x.chain(np.log(x.v), 1 / x.v))
    sqrt = staticmethod(lambda x: x.chain(np.sqrt(x.v), 0.5 / np.sqrt(x.v)))
    abs = staticmethod(lambda x: x.chain(np.abs(x.v), np.sign(x.v)))
    reverse = staticmethod(lambda x: x[::-1])

    @staticmethod
    def where(test: Any, x: Any, y: Any) -> Dual:
        x = x if isinstance(x, Dual) else dual(x, y)
        y = dual(y, x)
        return Dual(np.where(test, x.v, y.v), np.where(np.asarray(test)[..., None], x.d, y.d))

    @staticmethod
    def maximum(x: Dual, y: Any) -> Dual:
        return Numbers.where(x > y, x, y)

    @staticmethod
    def minimum(x: Dual, y: Any) -> Dual:
        return Numbers.where(x > y, y, x)

    @staticmethod
    def sum(x: Dual, axis: int | None = None) -> Dual:
        return Dual.of(np.sum(x.v, axis), np.sum(x.d, axis if axis is not None else tuple(range(x.v.ndim))))

    @staticmethod
    def prod(x: Dual) -> Dual:
        total = x[0]
        for k in range(1, x.shape[0]):
            total = total * x[k]
        return total

    @staticmethod
    def largest(x: Dual) -> Dual:
        return x[int(np.argmax(x.v))]

    @staticmethod
    def dot(x: Any, y: Any) -> Dual:
        """Of vectors, or of matrices and vectors, one of which may be a constant."""
        like = x if isinstance(x, Dual) else y
        x, y = dual(x, like), dual(y, like)
        left = np.tensordot(x.v, y.d, (x.v.ndim - 1, 0))
        right = np.moveaxis(np.tensordot(x.d, y.v, (x.v.ndim - 1, 0)), x.v.ndim - 1, -1)
        return Dual.of(x.v @ y.v, left + right)

    @staticmethod
    def outer(f: Callable, x: Dual, y: Dual) -> Dual:
        return f(x[:, None], y[None, :])

    @staticmethod
    def join(parts: list[Dual]) -> Dual:
        return Dual(np.concatenate([x.v for x in parts]), np.concatenate([x.d for x in parts]))

    @staticmethod
    def stack(parts: list[Dual]) -> Dual:
        return Dual(np.stack([x.v for x in parts]), np.stack([x.d for x in parts]))

    @staticmethod
    def roll(x: Dual, by: int) -> Dual:
        return Dual(np.roll(x.v, by, 0), np.roll(x.d, by, 0))

    @staticmethod
    def scatter(kind: str, size: int, places: np.ndarray, x: Dual) -> Dual:
        """Into an array of halves."""
        out = dual(np.full(size, 0.5), x)
        parts = [out[k] for k in range(size)]
        for k, place in enumerate(places):
            parts[place] = {"add": lambda a, b: a + b, "set": lambda a, b: b, "multiply": lambda a, b: a * b}[kind](
                parts[place], x[k]
            )
        return Numbers.stack(parts)

    @staticmethod
    def scan(f: Callable, first: Dual, x: Dual) -> tuple[Dual, Dual]:
        carry, kept = first, []
        for k in range(x.shape[0]):
            carry, y = f(carry, x[k])
            kept.append(y)
        return carry, Numbers.stack(kept)

    @staticmethod
    def cond(test: Any, yes: Callable, no: Callable, x: Dual) -> Dual:
        return yes(x) if bool(test) else no(x)

    @staticmethod
    def cumsum(x: Dual) -> Dual:
        return Numbers.scan(lambda total, y: (total + y,) * 2, x[0] * 0.0, x)[1]


class Traced:
    """The same operations, for JAX."""

    sin, cos, tanh, exp, log, sqrt, abs, where = (
        jnp.sin,
        jnp.cos,
        jnp.tanh,
        jnp.exp,
        jnp.log,
        jnp.sqrt,
        jnp.abs,
        jnp.where,
    )
    maximum, minimum, sum, prod, cumsum = jnp.maximum, jnp.minimum, jnp.sum, jnp.prod, jnp.cumsum
    roll = staticmethod(lambda x, by: jnp.roll(x, by, 0))
    reverse = staticmethod(lambda x: x[::-1])
    largest = staticmethod(lambda x: x[jnp.argmax(x)])
    dot = staticmethod(lambda x, y: x @ y)
    join, stack = jnp.concatenate, jnp.stack
    outer = staticmethod(lambda f, x, y: f(x[:, None], y[None, :]))
    scatter = staticmethod(
        lambda kind, size, places, x: getattr(jnp.full(size, 0.5).at[places], kind)(x, unique_indices=kind != "add")
    )
    scan = staticmethod(jax.lax.scan)
    cond = staticmethod(jax.lax.cond)
