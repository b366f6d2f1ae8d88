"""Bounds on the degree of a function as a polynomial, read from its JAX program.

A quadratic fast part allows methods that are wrong for any other. Sampling its gradient near the start can't exclude
that it is another function elsewhere (`jnp.where`, a spring with a limit); the program of the function can. Every
operation is replaced by a rule on degrees: a sum has the largest degree of its terms, a product the sum of them. What
has no rule counts as "no polynomial", so that a finite degree is a proof, and an infinite one says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from .jaxprs import inside, scan_sizes


class Degree(NamedTuple):
    """A polynomial of at most this degree; if `root`, the square root of one that is nowhere negative (a norm)."""

    degree: float
    root: bool = False


NUMBER = Degree(0)
UNKNOWN = Degree(math.inf)

MOVED = {
    "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "rev", "copy", "copy_p", "name",
    "optimization_barrier", "neg",
}  # fmt: skip
SUMS = {"add", "add_any", "sub", "reduce_sum", "cumsum", "concatenate", "pad", "stack", "split"}
PRODUCTS = {"mul", "dot_general", "conv_general_dilated"}
# operation -> which operands are data; all others are indices, which must not depend on x. Of select_n, all but the
# first are data.
PLACED = {
    "gather": (0,), "dynamic_slice": (0,), "dynamic_update_slice": (0, 1), "scatter": (0, 2), "scatter-add": (0, 2),
    "select_n": None,
}  # fmt: skip


def degree(function: Callable[..., Any], *arguments: Any) -> float:
    """The degree of function(x, …) in x, at most; infinite where the program does not show one."""
    program = jax.make_jaxpr(function)(*arguments)
    first = len(jax.tree.leaves(arguments[0]))
    operands = [Degree(1) if i < first else NUMBER for i in range(len(program.jaxpr.invars))]
    return max(UNKNOWN.degree if d.root else d.degree for d in _read(program, operands))


def _read(program: Any, operands: Sequence[Degree]) -> list[Degree]:
    """The degrees of the results of a jaxpr, closed or open."""
    jaxpr = getattr(program, "jaxpr", program)
    known = dict(zip(jaxpr.invars, operands, strict=True))
    known.update((x, NUMBER) for x in jaxpr.constvars)
    look = lambda x: NUMBER if isinstance(x, Literal) else known[x]
    for equation in jaxpr.eqns:
        known.update(zip(equation.outvars, _equation(equation, [look(x) for x in equation.invars]), strict=True))
    return [look(x) for x in jaxpr.outvars]


def _equation(equation: Any, operands: list[Degree]) -> list[Degree]:
    name, results = equation.primitive.name, len(equation.outvars)
    if all(d == NUMBER for d in operands):
        return [NUMBER] * results
    program = inside(equation)
    if program is not None:
        return _read(program, operands)
    if name == "cond":
        if operands[0] != NUMBER:
            return [UNKNOWN] * results
        return [_largest(d) for d in zip(*(_read(b, operands[1:]) for b in equation.params["branches"]), strict=True)]
    if name == "scan":
        return _scan(equation, operands)
    return [_operation(name, equation, operands)] * results


def _operation(name: str, equation: Any, operands: list[Degree]) -> Degree:
    first = operands[0]
    if name in MOVED:
        return first
    if name == "convert_element_type":  # to integers it cuts
        return first if jnp.issubdtype(equation.params["new_dtype"], jnp.floating) else UNKNOWN
    if name in SUMS:
        return _largest(operands)
    if name in PLACED:
        data = PLACED[name] or range(1, len(operands))
        placed = [d for i, d in enumerate(operands) if i not in data]
        return _largest([operands[i] for i in data]) if all(d == NUMBER for d in placed) else UNKNOWN
    if name in PRODUCTS:
        if equation.invars[0] is equation.invars[1] and name == "mul":
            return _power(first, 2)
        return _product(*operands)
    if name == "div":
        return first if operands[1] == NUMBER else UNKNOWN
    if name in ("integer_pow", "square"):
        return _power(first, equation.params.get("y", 2))
    if name == "pow" and isinstance(equation.invars[1], Literal):
        return _power(first, float(np.asarray(equation.invars[1].val)))
    if name == "sqrt" and not first.root:
        return Degree(first.degree, root=True)
    if name == "abs" and not first.root:  # |x| = √x²
        return Degree(2 * first.degree, root=True)
    return UNKNOWN


def _largest(degrees: Sequence[Degree]) -> Degree:
    return UNKNOWN if any(d.root for d in degrees) else max(degrees)


def _product(a: Degree, b: Degree) -> Degree:
    if a == NUMBER or b == NUMBER:
        return max(a, b)
    return UNKNOWN if a.root or b.root else Degree(a.degree + b.degree)


def _power(x: Degree, exponent: float) -> Degree:
    if exponent == 0:  # 1 for any x, also in JAX; and ∞·0 would be nan, which max() may drop
        return NUMBER
    if not (0 < exponent < math.inf) or exponent != int(exponent):
        return UNKNOWN
    if not x.root:
        return Degree(x.degree * exponent)
    return Degree(x.degree * exponent / 2) if exponent % 2 == 0 else UNKNOWN


def _scan(equation: Any, operands: list[Degree]) -> list[Degree]:
    """The degrees of what is carried grow until they stay; those that still grow after a few rounds have no bound
    here."""
    constants, carried = scan_sizes(equation)
    carry = operands[constants : constants + carried]
    for _ in range(4):
        results = _read(equation.params["jaxpr"], [*operands[:constants], *carry, *operands[constants + carried :]])
        grown = [_largest([a, b]) for a, b in zip(carry, results[:carried], strict=True)]
        if grown == carry:
            return results
        carry = grown
    return [UNKNOWN] * len(equation.outvars)
