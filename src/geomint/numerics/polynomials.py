"""Bounds on the degree of a function as a polynomial, read from its JAX program.

A quadratic fast part allows methods that are wrong for any other. Sampling its gradient near the start can't exclude
that it is another function elsewhere (`jnp.where`, a spring with a limit); the program of the function can. Every
operation is replaced by a rule on degrees: a sum has the largest degree of its terms, a product the sum of them. What
has no rule gets an infinite degree: a finite result is a proof, an infinite one only means that no bound was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from .interpreter import Interpreter, RuleTable, scan_sizes


class Degree(NamedTuple):
    """A polynomial of at most this degree; if `root`, the square root of one that is nowhere negative (a norm)."""

    degree: float
    root: bool = False


NUMBER = Degree(0)
UNKNOWN = Degree(math.inf)

RULES = RuleTable()


def degree(function: Callable[..., Any], *arguments: Any) -> float:
    """The degree of function(x, …) in x, at most; infinite where the program does not show one."""
    program = jax.make_jaxpr(function)(*arguments)
    first = len(jax.tree.leaves(arguments[0]))
    operands = [Degree(1) if i < first else NUMBER for i in range(len(program.jaxpr.invars))]
    return max(UNKNOWN.degree if d.root else d.degree for d in DegreeInterpreter().evaluate(program, operands))


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


@RULES.enter("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "rev", "copy", "copy_p")
@RULES.enter("name", "neg")
def _same(equation: Any, x: Degree, *_: Degree) -> Degree:
    return x


@RULES.enter("optimization_barrier")
def _each(equation: Any, *operands: Degree) -> list[Degree]:
    return list(operands)


@RULES.enter("convert_element_type")
def _convert(equation: Any, x: Degree) -> Degree:
    """Conversion to integers rounds, which no polynomial does."""
    return x if jnp.issubdtype(equation.params["new_dtype"], jnp.floating) else UNKNOWN


@RULES.enter("add", "add_any", "sub", "reduce_sum", "cumsum", "concatenate", "pad", "stack", "split")
def _sum(equation: Any, *operands: Degree) -> Degree:
    return _largest(operands)


# Which operands are data; all others are indices, which must not depend on x. Of select_n, all but the first are data.
DATA = {"gather": (0,), "dynamic_slice": (0,), "dynamic_update_slice": (0, 1), "scatter": (0, 2), "scatter-add": (0, 2)}


@RULES.enter("select_n", *DATA)
def _indexed(equation: Any, *operands: Degree) -> Degree:
    data = DATA.get(equation.primitive.name, range(1, len(operands)))
    indices = [d for i, d in enumerate(operands) if i not in data]
    return _largest([operands[i] for i in data]) if all(d == NUMBER for d in indices) else UNKNOWN


@RULES.enter("mul", "dot_general", "conv_general_dilated")
def _multiply(equation: Any, x: Degree, y: Degree) -> Degree:
    is_square = equation.invars[0] is equation.invars[1] and equation.primitive.name == "mul"
    return _power(x, 2) if is_square else _product(x, y)


@RULES.enter("div")
def _divide(equation: Any, x: Degree, y: Degree) -> Degree:
    return x if y == NUMBER else UNKNOWN


@RULES.enter("integer_pow", "square")
def _integer_power(equation: Any, x: Degree) -> Degree:
    return _power(x, equation.params.get("y", 2))


@RULES.enter("pow")
def _real_power(equation: Any, x: Degree, y: Degree) -> Degree:
    exponent = equation.invars[1]
    return _power(x, float(np.asarray(exponent.val))) if isinstance(exponent, Literal) else UNKNOWN


@RULES.enter("sqrt")
def _square_root(equation: Any, x: Degree) -> Degree:
    return UNKNOWN if x.root else Degree(x.degree, root=True)


@RULES.enter("abs")
def _absolute_value(equation: Any, x: Degree) -> Degree:
    """|x| = √x²."""
    return UNKNOWN if x.root else Degree(2 * x.degree, root=True)


class DegreeInterpreter(Interpreter):
    """Evaluates a jaxpr on degrees of polynomials."""

    table = RULES
    rule_while = rule_custom_linear_solve = None  # type: ignore[assignment]

    def constant(self, x: Any) -> Degree:
        return NUMBER

    def equation(self, equation: Any, operands: list[Degree]) -> list[Degree]:
        if all(d == NUMBER for d in operands):
            return [NUMBER] * len(equation.outvars)
        return super().equation(equation, operands)

    def operation(self, equation: Any, operands: list[Degree]) -> list[Degree]:
        """The results; a rule that returns one degree means it for all of them."""
        results, count = super().operation(equation, operands), len(equation.outvars)
        return results if len(results) == count else results * count

    def without_rule(self, equation: Any, operands: list[Degree]) -> Degree:
        return UNKNOWN

    def rule_cond(self, equation: Any, which: Degree, *operands: Degree) -> Any:
        if which != NUMBER:
            return UNKNOWN
        branches = [self.inner(equation, branch, operands) for branch in equation.params["branches"]]
        return [_largest(degrees) for degrees in zip(*branches, strict=True)]

    def rule_scan(self, equation: Any, *operands: Degree) -> Any:
        """The degrees of the carried values are iterated until they no longer grow. Those that still grow after a few
        iterations have no known bound."""
        constants, carried = scan_sizes(equation)
        carry, rows = list(operands[constants : constants + carried]), operands[constants + carried :]
        for _ in range(4):
            results = self.inner(equation, equation.params["jaxpr"], [*operands[:constants], *carry, *rows])
            grown = [_largest([a, b]) for a, b in zip(carry, results[:carried], strict=True)]
            if grown == carry:
                return results
            carry = grown
        return UNKNOWN
