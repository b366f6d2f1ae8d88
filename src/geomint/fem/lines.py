"""The elastic energy along a straight line x + t u.

Since F_e(t) is linear in t, tr FᵀF is one quadratic for all elements together, and det F_e a cubic each (in the plane
a quadratic). Their coefficients are computed once, by one pass over the elements; after that the energy of a material
that depends on F by these two alone, and its derivatives by t, need no positions of nodes. For other materials F_e(0)
and F_e'(0) are stored.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engines.scalar.values import NotCovered
from ..numerics.linalg import cpu_kernels
from ..numerics.taylor import derivatives
from ..system.lines import Line
from .element_sums import Geometry, differences, padded
from .element_terms import Components, ElementTerm, gradient, rows, scalar_program
from .materials import determinant, squared


class ElasticLine(Line):
    """Σ w W along a line, and the work of a constant load."""

    stored: Array  # (k, m): the coefficients of det F, or the entries of F(0) and of F'(0)
    sums: Array  # (3,): the coefficients of Σ w s tr FᵀF with the factor s of the material; unused for other materials
    weights: Array
    numbers: list[Any]
    work: Any  # the load's potential and its slope
    term: ElementTerm = eqx.field(static=True)

    def derivatives(self, t: Array, order: int) -> list[Array]:
        found = _sums(self, jnp.asarray(t, self.stored.dtype), order)
        if self.term.separable:
            a, b, c = self.sums
            found = [x + y for x, y in zip(found, [a + t * (b + t * c), b + 2 * t * c, 2 * c], strict=False)] + found[
                3:
            ]
        if self.work is not None:
            linear = [self.work[0] + t * self.work[1], self.work[1]]
            found = [x + y for x, y in zip(found, linear, strict=False)] + found[2:]
        return found


def elastic_line(term: ElementTerm, numbers: Sequence[Any], geometry: Geometry, x: Array, u: Array, work: Any) -> Line:
    """The line x + t u of the positions of all nodes."""
    stored, sums = _coefficients(term, list(numbers), geometry, x, u)
    return ElasticLine(stored, sums, geometry.weights, list(numbers), work, term)


# --- functions of one element -----------------------------------------------------------------------------------------
def _one_line(term: ElementTerm, D: Components, U: Components, G: Components, w: Any, numbers: Any) -> list[Any]:
    """What is stored, and three numbers that are added up."""
    A, B = gradient(D, G), gradient(U, G)
    if not term.separable:
        return [x for M in (A, B) for row in M for x in row]
    d = range(term.dim)
    factor = w * term.material(numbers).square_factor
    mixed = sum((A[i][j] * B[i][j] for i in d for j in d), 0.0)
    return [
        *_determinant_along(A, B),
        factor * (squared(A) - float(term.dim)),
        2.0 * factor * mixed,
        factor * squared(B),
    ]


def _determinant_along(A: Components, B: Components) -> list[Any]:
    """The coefficients of det(A + tB): in space det A, cof A : B, cof B : A, det B."""
    if len(A) == 2:
        mixed = A[0][0] * B[1][1] + B[0][0] * A[1][1] - A[0][1] * B[1][0] - B[0][1] * A[1][0]
        return [determinant(A), mixed, determinant(B)]
    return [determinant(A), _cofactor_product(A, B), _cofactor_product(B, A), determinant(B)]


def _cofactor_product(A: Components, B: Components) -> Any:
    rows = [[B[0], A[1], A[2]], [A[0], B[1], A[2]], [A[0], A[1], B[2]]]
    first, *rest = [determinant(x) for x in rows]
    return functools.reduce(lambda x, y: x + y, rest, first)


def _energy_along(term: ElementTerm, t: Any, stored: Sequence[Any], w: Any, numbers: Any) -> Any:
    """w W of one element, without the part that is one quadratic for all."""
    if term.separable:
        J = stored[-1]
        for c in stored[-2::-1]:
            J = J * t + c
        return w * term.material(numbers).energy_of_volume(J)
    A, B = rows(stored, 2, term.dim)
    d = range(term.dim)
    return w * term.density([[A[i][j] + t * B[i][j] for j in d] for i in d], numbers)


def _stored(term: ElementTerm) -> int:
    return term.dim + 1 if term.separable else 2 * term.dim**2


# --- machine code -----------------------------------------------------------------------------------------------------
@functools.lru_cache(64)
def _line_target(term: ElementTerm) -> tuple[Any, str]:
    from . import element_code

    square = term.dim**2
    kernel = element_code.Kernel(
        term.dim, (square, 1), term.parameters, 2, stored=_stored(term), sums=3 if term.separable else 0
    )

    def one(*x: Any) -> list[Any]:
        D, U, G = rows(x, 3, term.dim)
        w, *numbers = x[3 * square :]
        return _one_line(term, D, U, G, w, numbers)

    return kernel, element_code.target(kernel, scalar_program(one, kernel.inputs))


@functools.lru_cache(64)
def _sums_target(term: ElementTerm, order: int) -> tuple[Any, str]:
    from . import element_code

    kernel = element_code.Kernel(term.dim, (_stored(term), 1), 1 + term.parameters, sums=order + 1)

    def one(*x: Any) -> list[Any]:
        stored, (w, t, *numbers) = x[: _stored(term)], x[_stored(term) :]
        return derivatives(lambda s: _energy_along(term, s, stored, w, numbers), t, order)

    return kernel, element_code.target(kernel, scalar_program(one, kernel.inputs))


def _by_machine_code(*arrays: Any) -> bool:
    return cpu_kernels.available() and all(x.dtype == np.float64 for x in arrays)


def _coefficients(term: ElementTerm, numbers: Any, geometry: Geometry, x: Array, u: Array) -> tuple[Array, Array]:
    if _by_machine_code(x, u, *numbers):
        try:
            from . import element_code

            kernel, name = _line_target(term)
            vectors, lists = (x, u), [geometry.cells]
            sums, stored = element_code.call(
                kernel, name, vectors, numbers, [geometry.gradients, geometry.weights], lists
            )
            return stored, sums if term.separable else jnp.zeros(3, x.dtype)
        except NotCovered:
            pass
    D, U = (differences(y, geometry.cells) for y in (x, u))
    (G,) = rows(list(geometry.gradients), 1, term.dim)
    elements = geometry.weights.shape[0]
    found = _one_line(term, D, U, G, geometry.weights, [padded(y, elements) for y in numbers])
    sums = jnp.stack([jnp.sum(y) for y in found[_stored(term) :]]) if term.separable else jnp.zeros(3, x.dtype)
    return jnp.stack(found[: _stored(term)]), sums


def _sums(line: ElasticLine, t: Array, order: int) -> list[Array]:
    term = line.term
    if _by_machine_code(line.stored, t, *line.numbers):
        try:
            from . import element_code

            kernel, name = _sums_target(term, order)
            found, _ = element_code.call(kernel, name, [], [t, *line.numbers], [line.stored, line.weights], [])
            return list(found)
        except NotCovered:
            pass
    numbers = [padded(y, line.weights.shape[0]) for y in line.numbers]
    total = lambda s: jnp.sum(_energy_along(term, s, list(line.stored), line.weights, numbers))
    return derivatives(total, t, order)
