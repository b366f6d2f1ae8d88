"""Random energies, read by JAX and by an interpreter in numpy, and random systems made of them.

An energy is a list of lines, each a function of (namespace, values so far). The namespace `Traced` writes them with
jax.numpy; `Numbers` evaluates them with numpy on dual numbers, so that the gradient comes with the value and without
JAX. With `noise`, the interpreter rounds every result of an operation to a random neighbour: the spread of such runs
is the effect of rounding on this very computation.
"""

from __future__ import annotations

import contextlib
import dataclasses
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


# --- random energies ------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Line:
    name: str
    shape: tuple[int, ...]
    write: Callable[[Any, list[Any]], Any]


class Energy:
    """A random function of q (any shape) to a number, made of `length` lines.

    Numbers stay of order one: divisors, roots and logarithms are kept away from zero. smooth: twice differentiable
    everywhere, for methods that solve equations; otherwise there are kinks and jumps.
    """

    def __init__(self, random: np.random.Generator, shape: tuple[int, ...], length: int, smooth: bool):
        self.random, self.smooth = random, smooth
        self.shape = shape
        self.shapes: list[tuple[int, ...]] = []
        self.lines: list[Line] = []
        self._put("q", (int(np.prod(shape)),), lambda xp, x: x)  # the first line is q itself, flat
        if len(shape) == 2:
            column = int(random.integers(shape[1]))
            self._put("column", shape[:1], lambda xp, x: x[0][column :: shape[1]])
        kinds = (
            ["unary"] * 3
            + ["pair"] * 3
            + [
                "reduce",
                "reduce",
                "move",
                "move",
                "scatter",
                "matmul",
                "outer",
                "scan",
                "cond",
                "where",
                "power",
                "dot",
            ]
        )
        for _ in range(length):
            getattr(self, f"_{random.choice(kinds)}")()
        self.wells = random.uniform(0.4, 1.6, self.shapes[0])
        self.centre = random.normal(size=self.shapes[0]) * 0.3
        self.ends = [k for k in range(len(self.lines)) if k >= len(self.lines) - 3]

    # --- choices
    def _any(self, ndim: int | None = None) -> int:
        """A value, late ones more often."""
        fitting = [k for k, s in enumerate(self.shapes) if ndim is None or len(s) == ndim]
        return int(self.random.choice(fitting[-5:] if self.random.integers(3) else fitting))

    def _number(self, low: float = -1.0, high: float = 1.0) -> float:
        return float(self.random.uniform(low, high))

    def _put(self, name: str, shape: tuple[int, ...], write: Callable) -> None:
        self.shapes.append(tuple(shape))
        self.lines.append(Line(name, tuple(shape), write))

    # --- lines
    def _unary(self) -> None:
        k, a, b = self._any(), self._number(0.3, 1.5), self._number()
        smooth = {
            "sin": lambda xp, x: xp.sin(a * x[k] + b),
            "cos": lambda xp, x: xp.cos(a * x[k]),
            "tanh": lambda xp, x: xp.tanh(x[k] - b),
            "exp": lambda xp, x: xp.exp(-0.5 * x[k] * x[k]),
            "exp tanh": lambda xp, x: xp.exp(xp.tanh(x[k]) * a),
            "log": lambda xp, x: xp.log(0.6 + x[k] * x[k]),
            "sqrt": lambda xp, x: xp.sqrt(0.4 + x[k] * x[k]),
            "inverse": lambda xp, x: a / (1.0 + x[k] * x[k]),
            "cubed": lambda xp, x: xp.abs(xp.tanh(x[k] - b)) ** 3,
        }
        kinks = {"abs": lambda xp, x: xp.abs(x[k] - b), "clip": lambda xp, x: xp.minimum(xp.maximum(x[k], -a), a)}
        table = smooth if self.smooth else smooth | kinks
        name = str(self.random.choice(list(table)))
        self._put(name, self.shapes[k], table[name])

    def _pair(self) -> None:
        k = self._any()
        fitting = [j for j, s in enumerate(self.shapes) if s in (self.shapes[k], ())]
        j, a = int(self.random.choice(fitting)), self._number(0.3, 1.5)
        smooth = {
            "+": lambda xp, x: x[k] + a * x[j],
            "-": lambda xp, x: x[k] - x[j],
            "*": lambda xp, x: xp.tanh(x[k]) * x[j] * a,
            "/": lambda xp, x: x[k] / (0.8 + x[j] * x[j]),
            "ramp": lambda xp, x: xp.maximum(xp.tanh(x[k] - x[j]), 0.0) ** 3,
        }
        kinks = {"max": lambda xp, x: xp.maximum(x[k], x[j]), "min": lambda xp, x: xp.minimum(x[k], a * x[j])}
        table = smooth if self.smooth else smooth | kinks
        name = str(self.random.choice(list(table)))
        self._put(name, self.shapes[k], table[name])

    def _reduce(self) -> None:
        k = self._any(1)
        a = int(self.random.integers(self.shapes[k][0]))
        table = {
            "sum": lambda xp, x: xp.sum(x[k]),
            "norm": lambda xp, x: xp.sqrt(0.3 + xp.sum(x[k] * x[k])),
            "entry": lambda xp, x: x[k][a],
            "prod": lambda xp, x: xp.prod(xp.tanh(x[k])),
        }
        if not self.smooth:
            table["largest"] = lambda xp, x: xp.largest(x[k])
        name = str(self.random.choice(list(table)))
        self._put(name, (), table[name])

    def _move(self) -> None:
        k, j = self._any(1), self._any(1)
        n, m = self.shapes[k][0], self.shapes[j][0]
        places = self.random.integers(0, n, size=int(self.random.integers(1, n + 2)))
        a = int(self.random.integers(n))
        table = {
            "gather": (len(places), lambda xp, x: x[k][places]),
            "slice": (n - a, lambda xp, x: x[k][a:]),
            "reverse": (n, lambda xp, x: xp.reverse(x[k])),
            "roll": (n, lambda xp, x: xp.roll(x[k], a)),
            "cumsum": (n, lambda xp, x: xp.cumsum(x[k]) / n),
            "join": (n + m, lambda xp, x: xp.join([x[k], x[j]])),
            "strided": (len(range(0, n, 2)), lambda xp, x: x[k][::2]),
        }
        if n + m > 8:
            table.pop("join")
        name = str(self.random.choice(list(table)))
        self._put(name, (table[name][0],), table[name][1])

    def _scatter(self) -> None:
        k, kind = self._any(1), str(self.random.choice(["add", "add", "set", "multiply"]))
        n = self.shapes[k][0]
        size = n + int(self.random.integers(0, 2))
        places = (
            self.random.integers(0, size, size=n) if kind == "add" else self.random.permutation(size)[:n]
        )  # only sums are defined for two in one place
        self._put(f"scatter {kind}", (size,), lambda xp, x: xp.scatter(kind, size, places, xp.tanh(x[k])))

    def _matmul(self) -> None:
        k = self._any(1)
        n, m = self.shapes[k][0], int(self.random.integers(1, 5))
        matrix = self.random.normal(size=(m, n)) / n
        self._put("matmul", (m,), lambda xp, x: xp.dot(matrix, x[k]))

    def _outer(self) -> None:
        """Pairs of entries: a matrix, then its sums along an axis or its product with a vector."""
        k = self._any(1)
        n = self.shapes[k][0]
        if n > 4:
            return self._dot()
        axis, a = int(self.random.integers(2)), self._number(0.3, 1.5)
        f = [
            lambda xp: lambda y, z: xp.sin(y - a * z),
            lambda xp: lambda y, z: 1.0 / (1.0 + (y - z) * (y - z)),
            lambda xp: lambda y, z: y * z,
        ][int(self.random.integers(3))]
        if self.random.integers(2):
            return self._put("outer sum", (n,), lambda xp, x: xp.sum(xp.outer(f(xp), x[k], x[k]), axis) / n)
        return self._put("outer matmul", (n,), lambda xp, x: xp.dot(xp.outer(f(xp), x[k], x[k]), xp.tanh(x[k])) / n)

    def _dot(self) -> None:
        k = self._any(1)
        same = [j for j, s in enumerate(self.shapes) if s == self.shapes[k]]
        j, weights = int(self.random.choice(same)), self.random.normal(size=self.shapes[k])
        if self.random.integers(2):
            return self._put("dot", (), lambda xp, x: xp.dot(xp.sin(x[k]), x[j]))
        return self._put("dot constant", (), lambda xp, x: xp.dot(weights, x[k]))

    def _scan(self) -> None:
        k, a, b = self._any(1), self._number(0.2, 0.9), self._number()
        carried = bool(self.random.integers(2))

        def write(xp: Any, x: list[Any]) -> Any:
            end, kept = xp.scan(lambda c, y: (xp.tanh(a * c + y), xp.sin(c * y + b)), x[k][0] * 0.0, x[k])
            return end if carried else kept

        self._put("scan", () if carried else self.shapes[k], write)

    def _cond(self) -> None:
        """Two branches; where it must be smooth, both vanish at the boundary together with two derivatives."""
        k, j, a = self._any(), self._any(0) if () in self.shapes else None, self._number(0.3, 1.5)
        if j is None:
            return self._reduce()
        if self.smooth:
            yes, no = (lambda xp: lambda y: y * y * y * a), (lambda xp: lambda y: xp.sin(y) * y * y)
            self._put("cond", (), lambda xp, x: xp.cond(xp.tanh(x[j]) > 0.1, yes(xp), no(xp), xp.tanh(x[j]) - 0.1))
        else:
            yes, no = (lambda xp: lambda y: xp.cos(y)), (lambda xp: lambda y: y / (1.0 + y * y))
            self._put("cond", self.shapes[k], lambda xp, x: xp.cond(x[j] > 0.1 * a, yes(xp), no(xp), x[k]))
        return None

    def _where(self) -> None:
        k, a, b = self._any(), self._number(0.3, 1.5), self._number()
        if self.smooth:
            self._put(
                "where",
                self.shapes[k],
                lambda xp, x: xp.where(x[k] > b, xp.tanh(x[k] - b) ** 3, a * xp.sin(x[k] - b) ** 3),
            )
        else:
            self._put("where", self.shapes[k], lambda xp, x: xp.where(x[k] > b, xp.sin(x[k]), a * x[k]))

    def _power(self) -> None:
        k, a = self._any(), self._number(-1.5, 2.5)
        whole = int(self.random.integers(2, 5))
        table = [
            lambda xp, x: (0.5 + x[k] * x[k]) ** (a if abs(a) > 0.1 else 0.7),
            lambda xp, x: xp.tanh(x[k]) ** whole,
        ]
        self._put("power", self.shapes[k], table[int(self.random.integers(2))])

    # --- the value
    def value(self, xp: Any, q: Any) -> Any:
        """A confining parabola and what the last lines left."""
        values = [q]
        for line in self.lines[1:]:
            values.append(line.write(xp, values))
        total = xp.sum(0.5 * self.wells * (q - self.centre) * (q - self.centre))
        for k in self.ends:
            last = 0.4 * xp.sin(values[k])
            total = total + (xp.sum(last) if self.shapes[k] else last)
        return total

    def __call__(self, q: Any) -> Any:
        """For JAX."""
        return self.value(Traced, jnp.ravel(q))

    def numbers(self, q: np.ndarray) -> tuple[float, np.ndarray]:
        """The value and the gradient by numpy."""
        found = self.value(Numbers, Dual(q.ravel(), np.eye(q.size)))
        return float(found.v), found.d.reshape(q.shape)

    def __repr__(self) -> str:
        return " ".join(line.name.replace(" ", "-") for line in self.lines[1:])


@contextlib.contextmanager
def noisy(seed: int):
    """Every operation of the interpreter is rounded at random."""
    before, Dual.noise = Dual.noise, np.random.default_rng(seed)
    try:
        yield
    finally:
        Dual.noise = before


# --- random systems -------------------------------------------------------------------------------------------------
class Sum:
    """Energies on consecutive parts of q, each by its own scale: many random programs in one system, for one
    compilation."""

    def __init__(
        self, random: np.random.Generator, sizes: list[int], length: int, smooth: bool, takes_params: bool = False
    ):
        self.ends, self.takes_params = np.cumsum(sizes), takes_params
        self.parts = [
            Energy(random, (2, 2) if n == 4 else (n,), int(random.integers(2, length + 1)), smooth) for n in sizes
        ]
        self.scales = random.uniform(0.5, 1.0, len(sizes))

    def places(self) -> list[slice]:
        return [slice(end - int(np.prod(part.shape)), end) for part, end in zip(self.parts, self.ends, strict=True)]

    def __call__(self, q: Any, scales: Any = None) -> Any:
        flat, scales = jnp.ravel(q), self.scales if scales is None or not self.takes_params else scales
        return sum(
            scales[k] * part(flat[place]) for k, (part, place) in enumerate(zip(self.parts, self.places(), strict=True))
        )

    def numbers(self, q: np.ndarray) -> tuple[float, np.ndarray]:
        flat = q.ravel()
        found = [part.numbers(flat[place]) for part, place in zip(self.parts, self.places(), strict=True)]
        return float(sum(s * v for s, (v, _) in zip(self.scales, found, strict=True))), np.concatenate(
            [s * d for s, (_, d) in zip(self.scales, found, strict=True)]
        ).reshape(q.shape)


class Springs:
    """½ Σ k_i q_i²: a fast part that is quadratic."""

    def __init__(self, random: np.random.Generator, size: int):
        self.stiffness, self.parts = random.uniform(5.0, 30.0, size), []

    def __call__(self, q: Any, _: Any = None) -> Any:
        return 0.5 * jnp.sum(self.stiffness * jnp.ravel(q) ** 2)

    def numbers(self, q: np.ndarray) -> tuple[float, np.ndarray]:
        pull = self.stiffness * q.ravel()
        return 0.5 * float(pull @ q.ravel()), pull.reshape(q.shape)


class Surfaces:
    """g_i(q) = |q − a_i|² + .2 E_i(q) − c_i, with c_i such that g(q0) = 0."""

    def __init__(self, random: np.random.Generator, q0: np.ndarray, count: int):
        self.centres = random.normal(size=(count, q0.size)) * 1.5
        self.parts = [Energy(random, (q0.size,), 2, True) for _ in range(count)]
        self.level = np.zeros(count)
        self.level = self.numbers(q0)[0]

    def __call__(self, q: Any, _: Any = None) -> Any:
        flat = jnp.ravel(q)
        return jnp.stack(
            [
                jnp.sum((flat - a) ** 2) + 0.2 * part(flat) - c
                for a, part, c in zip(self.centres, self.parts, self.level, strict=True)
            ]
        )

    def numbers(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """g and G."""
        flat = q.ravel()
        found = [part.numbers(flat) for part in self.parts]
        g = np.array(
            [
                np.sum((flat - a) ** 2) + 0.2 * v - c
                for a, (v, _), c in zip(self.centres, found, self.level, strict=True)
            ]
        )
        return g, np.stack([2 * (flat - a) + 0.2 * d.ravel() for a, (_, d) in zip(self.centres, found, strict=True)])


@dataclasses.dataclass
class Motion:
    """A system as the interpreter sees it, and methods of integration in numpy on it. Flat arrays."""

    slow: Any
    fast: Any
    surfaces: Any
    mass: np.ndarray  # (n, n)
    shape: tuple[int, ...]

    def pull(self, part: Any, q: np.ndarray) -> np.ndarray:
        return np.zeros_like(q) if part is None else part.numbers(q.reshape(self.shape))[1].ravel()

    def force(self, q: np.ndarray) -> np.ndarray:
        return -self.pull(self.slow, q) - self.pull(self.fast, q)

    def velocity(self, p: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.mass, p)

    def energy(self, q: np.ndarray, p: np.ndarray) -> float:
        parts = [part.numbers(q.reshape(self.shape))[0] for part in (self.slow, self.fast) if part is not None]
        return 0.5 * float(p @ self.velocity(p)) + sum(parts)

    # --- methods: (q, p, h) → (q, p)
    def kick_drift(self, q, p, h):
        p = p + h * self.force(q)
        return q + h * self.velocity(p), p

    def drift_kick(self, q, p, h):
        q = q + h * self.velocity(p)
        return q, p + h * self.force(q)

    def verlet(self, q, p, h):
        p = p + 0.5 * h * self.force(q)
        q = q + h * self.velocity(p)
        return q, p + 0.5 * h * self.force(q)

    def drift_verlet(self, q, p, h):
        q = q + 0.5 * h * self.velocity(p)
        p = p + h * self.force(q)
        return q + 0.5 * h * self.velocity(p), p

    def yoshida(self, q, p, h):
        outer = 1 / (2 - 2 ** (1 / 3))
        for part in (outer, 1 - 2 * outer, outer):
            q, p = self.drift_verlet(q, p, part * h)
        return q, p

    def runge_kutta(self, q, p, h):
        slope = lambda y: np.stack([self.velocity(y[1]), self.force(y[0])])
        y = np.stack([q, p])
        a = slope(y)
        b = slope(y + 0.5 * h * a)
        c = slope(y + 0.5 * h * b)
        return tuple(y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c)))

    def respa(self, q, p, h, inner=4):
        p = p - 0.5 * h * self.pull(self.slow, q)
        for _ in range(inner):  # Verlet in drift form
            q = q + 0.5 * h / inner * self.velocity(p)
            p = p - h / inner * self.pull(self.fast, q)
            q = q + 0.5 * h / inner * self.velocity(p)
        return q, p - 0.5 * h * self.pull(self.slow, q)

    def collocation(self, q, p, h, a, b, force=None):
        """An implicit Runge–Kutta method, its stages by fixed-point iteration."""
        force = force or self.force
        kicks = np.zeros((len(b), q.size))
        for _ in range(60):
            velocities = np.stack([self.velocity(p + h * row @ kicks) for row in a])
            kicks, before = np.stack([force(q + h * row @ velocities) for row in a]), kicks
            if np.max(np.abs(kicks - before)) < 1e-16:
                break
        velocities = np.stack([self.velocity(p + h * row @ kicks) for row in a])
        return q + h * b @ velocities, p + h * b @ kicks

    def midpoint(self, q, p, h):
        return self.collocation(q, p, h, np.array([[0.5]]), np.array([1.0]))

    def gauss(self, q, p, h):
        root = np.sqrt(3) / 6
        return self.collocation(q, p, h, np.array([[0.25, 0.25 - root], [0.25 + root, 0.25]]), np.array([0.5, 0.5]))

    def imex(self, q, p, h):
        p = p - 0.5 * h * self.pull(self.slow, q)
        q, p = self.collocation(q, p, h, np.array([[0.5]]), np.array([1.0]), lambda x: -self.pull(self.fast, x))
        return q, p - 0.5 * h * self.pull(self.slow, q)

    def rattle(self, q, p, h):
        """p½ = p + (h/2)f(q) − Gᵀμ, q' = q + hM⁻¹p½ with g(q') = 0; p' = p½ + (h/2)f(q') − G'ᵀν with G'M⁻¹p' = 0."""
        g = lambda x: self.surfaces.numbers(x.reshape(self.shape))
        half, normal = p + 0.5 * h * self.force(q), g(q)[1]
        across = np.linalg.solve(self.mass, normal.T)
        impulse = np.zeros(len(normal))
        for _ in range(30):
            end = q + h * self.velocity(half - normal.T @ impulse)
            off, there = g(end)
            step = np.linalg.solve(h * there @ across, off)
            impulse = impulse + step
            if np.max(np.abs(step)) < 1e-16:
                break
        half = half - normal.T @ impulse
        q = q + h * self.velocity(half)
        p = half + 0.5 * h * self.force(q)
        return q, self.tangent(q, p)

    def tangent(self, q, p):
        """p without its part normal to the surfaces."""
        normal = self.surfaces.numbers(q.reshape(self.shape))[1]
        across = np.linalg.solve(self.mass, normal.T)
        return p - normal.T @ np.linalg.solve(normal @ across, across.T @ p)

    def run(self, name, q, p, h, steps, every):
        """(saves, 2, n): q and p at every so many steps."""
        kept, step = [np.stack([q, p])], getattr(self, name)
        for k in range(steps):
            q, p = step(q, p, h)
            if (k + 1) % every == 0:
                kept.append(np.stack([q, p]))
        return np.stack(kept)
