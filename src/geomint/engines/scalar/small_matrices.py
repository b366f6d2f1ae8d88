"""Factors and triangular systems of small matrices, written out on single values."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from .values import Code, NotCovered, Values, add, constant, divide, filled, multiply, select, subtract


class SmallMatrices:
    """Rules of a `ScalarInterpreter`."""

    code: Code

    def rule_cholesky(self, equation: Any, x: Values) -> Values:
        """L with LLᵀ = A. One division for each column; a triangular system with L later finds the same reciprocal."""
        n, out = x.shape[-1], filled(x.shape, [0.0] * x.size)
        for place in np.ndindex(*x.shape[:-2]):
            a, low = x[place], out[place]
            for j in range(n):
                low[j, j] = self.code.value("sqrt", self._minus_products(a[j, j], low[j, :j], low[j, :j]))
                for i in range(j + 1, n):
                    low[i, j] = self._divided(self._minus_products(a[i, j], low[i, :j], low[j, :j]), low[j, j])
        return out

    def rule_triangular_solve(self, equation: Any, a: Values, b: Values) -> Values:
        """X with op(A) X = B, or X op(A) = B."""
        p, out = equation.params, filled(b.shape, [0.0] * b.size)
        if p["conjugate_a"]:
            raise NotCovered("complex matrices")
        for place in np.ndindex(*b.shape[:-2]):
            transposed = bool(p["transpose_a"]) is bool(p["left_side"])  # X op(A) = B is op(A)ᵀ Xᵀ = Bᵀ
            matrix = a[place].T if transposed else a[place]
            right, x = (b[place], out[place]) if p["left_side"] else (b[place].T, out[place].T)
            self._triangular(matrix, right, x, bool(p["lower"]) is not transposed, p["unit_diagonal"])
        return out

    def rule_lu(self, equation: Any, x: Values) -> list[Values]:
        """L and U in one matrix, with PA = LU; the pivot rows; and the permutation. Pivots are known only at run time,
        so that each exchange is a select over all rows."""
        n, m = x.shape[-2:]
        out, pivots, order = x.copy(), np.empty((*x.shape[:-2], min(n, m)), object), np.empty(x.shape[:-1], object)
        for place in np.ndindex(*x.shape[:-2]):
            a, rows = out[place], list(range(n))
            for j in range(min(n, m)):
                at = self._largest(a[j:, j], j)
                pivots[(*place, j)] = at
                self._exchange(a, rows, j, at)
                for i in range(j + 1, n):
                    a[i, j] = self._divided(a[i, j], a[j, j])
                    for k in range(j + 1, m):
                        a[i, k] = subtract(self.code, a[i, k], multiply(self.code, a[i, j], a[j, k]))
            order[place] = filled((n,), rows)
        return [out, pivots, order]

    def rule_ffi_call(self, equation: Any, *operands: Values) -> Values:
        """The compiled loops that `linalg.cpu_kernels` calls, unrolled here into operations on single values."""
        rule = {
            "geomint_eliminate": self._eliminated,
            "geomint_substitute": self._substituted,
            "geomint_inner": self._inner,
        }
        name = equation.params["target_name"]
        if name not in rule:
            raise NotCovered(f"the foreign function {name}")
        return rule[name](*operands)

    def _eliminated(self, lower: Values, through: Values, upper: Values) -> Values:
        """Of tridiagonal rows: l_i/u_{i−1}, 1/u_i and the upper diagonal, with the pivots
        u_i = d_i − (l_i/u_{i−1}) upper_{i−1}."""
        out = np.empty((*through.shape[:-1], 3, through.shape[-1]), object)
        for place in np.ndindex(*through.shape[:-1]):
            a, d, c, (w, inverse, above) = lower[place], through[place], upper[place], out[place]
            for i in range(len(d)):
                w[i] = multiply(self.code, a[i], inverse[i - 1]) if i else 0.0
                inverse[i] = divide(
                    self.code, 1.0, subtract(self.code, d[i], multiply(self.code, w[i], c[i - 1])) if i else d[i]
                )
                above[i] = c[i]
        return out

    def _substituted(self, factors: Values, right: Values) -> Values:
        out = right.copy()
        for place in np.ndindex(*right.shape[:-1]):
            x, (w, inverse, above) = out[place], factors[place]
            for i in range(1, len(x)):
                x[i] = subtract(self.code, x[i], multiply(self.code, w[i], x[i - 1]))
            for i in reversed(range(len(x))):
                x[i] = multiply(
                    self.code,
                    subtract(self.code, x[i], multiply(self.code, above[i], x[i + 1])) if i + 1 < len(x) else x[i],
                    inverse[i],
                )
        return out

    def _inner(self, x: Values, y: Values) -> Values:
        out = np.empty(x.shape[:-1], object)
        for place in np.ndindex(*x.shape[:-1]):
            out[place] = functools.reduce(
                lambda a, b: add(self.code, a, b),
                [multiply(self.code, a, b) for a, b in zip(x[place], y[place], strict=True)],
            )
        return out

    def _largest(self, column: Values, first: int) -> Any:
        """The row of the entry of largest modulus; the first if there are several."""
        size = lambda x: abs(x) if constant(x) else self.code.value("abs", x)
        best, at = size(column[0]), first
        for i, x in enumerate(column[1:], start=first + 1):
            wins = size(x) > best if constant(x) and constant(best) else self.code.value("gt", size(x), best)
            best, at = select(self.code, wins, best, size(x)), select(self.code, wins, at, i)
        return at

    def _exchange(self, a: Values, rows: list[Any], j: int, at: Any) -> None:
        """Exchange rows j and `at` of a, and their numbers in `rows`."""
        for i in range(j + 1, len(rows)):
            here = at == i if constant(at) else self.code.value("eq", at, i)
            for k in range(a.shape[1]):
                a[j, k], a[i, k] = select(self.code, here, a[j, k], a[i, k]), select(self.code, here, a[i, k], a[j, k])
            rows[j], rows[i] = select(self.code, here, rows[j], rows[i]), select(self.code, here, rows[i], rows[j])

    def _triangular(self, a: Values, b: Values, x: Values, forward: bool, unit: bool) -> None:
        n = len(a)
        for i in range(n) if forward else reversed(range(n)):
            done = range(i) if forward else range(i + 1, n)
            for k in range(b.shape[1]):
                left = self._minus_products(b[i, k], [a[i, j] for j in done], [x[j, k] for j in done])
                x[i, k] = left if unit else self._divided(left, a[i, i])

    def _divided(self, x: Any, y: Any) -> Any:
        """x/y as x·(1/y): the reciprocal of a pivot serves its whole row and column."""
        return (
            divide(self.code, x, y)
            if constant(x) or constant(y)
            else multiply(self.code, x, self.code.value("div", 1.0, y))
        )

    def _minus_products(self, x: Any, left: Iterable[Any], right: Iterable[Any]) -> Any:
        """x − Σ left·right."""
        for a, b in zip(left, right, strict=True):
            x = subtract(self.code, x, multiply(self.code, a, b))
        return x
