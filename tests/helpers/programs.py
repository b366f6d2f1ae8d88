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

import jax.numpy as jnp
import numpy as np

from helpers.dual_numbers import Dual, Numbers, Traced


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
