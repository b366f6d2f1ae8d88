"""Taylor series: several derivatives of a function of time at once.

The program that JAX traces from a function is interpreted on truncated power series (Griewank and Walther, Evaluating
Derivatives, 2nd ed., chapter 13): a value is f₀ + f₁τ + f₂τ² + …, and every operation is replaced by one on
coefficients,

    (fg)_k = Σ f_j g_{k−j},
    (f/g)_k = (f_k − Σ_{j>0} g_j (f/g)_{k−j}) / g₀,
    (√f)_k = (f_k − Σ_{0<j<k} (√f)_j (√f)_{k−j}) / 2√f₀,
    (eᶠ)_k = (1/k) Σ_{j>0} j f_j (eᶠ)_{k−j}.

Nested forward differentiation returns the same numbers, but carries 2ⁿ values where these are n + 1, and repeats the
divisions: four derivatives of a Lennard-Jones potential along a line take a third of the operations. Operations without
a rule here are differentiated by nested forward differentiation, one operation at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .interpreter import Interpreter

Series = tuple[Array, ...]  # coefficients; those after the last are zero

# Linear in the first operand; the others are indices.
LINEAR = {
    "neg",
    "reduce_sum",
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "expand_dims",
    "transpose",
    "slice",
    "rev",
    "gather",
    "dynamic_slice",
    "cumsum",
    "copy",
    "copy_p",
    "convert_element_type",
}
JOINTLY_LINEAR = {"add", "add_any", "sub", "concatenate", "pad", "stack", "scatter-add"}  # in all operands together
# Functions with derivatives of their own, which may differ from those of the program that they call.
CUSTOM = {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "call_hi_primitive"}


class _NotBindable(Exception):
    """An operation that can't be called again from a jaxpr."""


def derivatives(function: Callable[[Array], Array], t: Array, order: int) -> list[Array]:
    """f(t), f'(t), …, up to the given order. It may be called while JAX traces."""
    t = jnp.asarray(t)
    program = jax.make_jaxpr(function)(t)
    try:
        (series,) = TaylorInterpreter(order).evaluate(program, [(t, jnp.ones_like(t))])
    except _NotBindable:
        return _nested(function, [[t, jnp.ones_like(t), *[jnp.zeros_like(t)] * (order - 1)]], order)
    found = [math.factorial(k) * x if k > 1 else x for k, x in enumerate(series)]
    return found + [jnp.zeros_like(series[0])] * (order + 1 - len(series))


def _nested(function: Callable[..., Any], operands: Sequence[Sequence[Array]], order: int) -> list[Any]:
    """The derivatives of f(x(t), y(t), …) from those of x, y, … by nested forward differentiation.

    The n-th derivative is a function F_n(x, x', …, x⁽ⁿ⁾, y, …), and F_{n+1} is its derivative along (x', x'', …).
    """
    derivative = lambda f: lambda rows: jax.jvp(f, ([row[:-1] for row in rows],), ([row[1:] for row in rows],))[1]
    current: Callable[[Any], Any] = lambda rows: function(*(row[0] for row in rows))
    results = []
    for k in range(order + 1):
        results.append(current([list(row[: k + 1]) for row in operands]))
        current = derivative(current)
    return results


def _inexact(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _bind(equation: Any, *operands: Array) -> Any:
    """The operation of an equation, on arrays."""
    return equation.primitive.bind(*operands, **equation.params)


class TaylorInterpreter(Interpreter):
    """Evaluates a jaxpr on series. A value that does not depend on time is a series of one coefficient."""

    # Loops, branches and linear solves are differentiated as a whole, by JAX.
    rule_scan = rule_while = rule_cond = rule_custom_linear_solve = None  # type: ignore[assignment]

    def __init__(self, order: int):
        self.order = order

    def constant(self, x: Any) -> Series:
        return (x,)

    def literal(self, x: Any) -> Series:
        return (jnp.asarray(x.val, x.aval.dtype),)

    def equation(self, equation: Any, operands: list[Series]) -> list[Series]:
        if equation.primitive.name in CUSTOM and any(len(x) > 1 for x in operands):
            raise _NotBindable
        return super().equation(equation, operands)

    def operation(self, equation: Any, operands: list[Series]) -> list[Series]:
        independent_of_time = all(len(x) == 1 for x in operands)
        if independent_of_time or not any(_inexact(x.aval) for x in equation.outvars):
            results = _bind(equation, *(x[0] for x in operands))
            return [(x,) for x in (results if equation.primitive.multiple_results else [results])]
        return super().operation(equation, operands)

    def rule(self, name: str) -> Callable[..., Any] | None:
        return self.linear if name in LINEAR else self.jointly_linear if name in JOINTLY_LINEAR else super().rule(name)

    def without_rule(self, equation: Any, operands: list[Series]) -> list[Series]:
        """By nested forward differentiation of this operation. Indices and truth values are constants."""
        moving = [k for k, x in enumerate(operands) if _inexact(x[0])]

        def function(*x: Array) -> list[Array]:
            given = dict(zip(moving, x, strict=True))
            results = _bind(equation, *(given.get(k, operand[0]) for k, operand in enumerate(operands)))
            return list(results) if equation.primitive.multiple_results else [results]

        zeros = lambda x: [jnp.zeros_like(x[0])] * (self.order + 1 - len(x))
        rows = [[math.factorial(k) * x for k, x in enumerate(operands[i])] + zeros(operands[i]) for i in moving]
        found = _nested(function, rows, self.order)
        return [
            tuple(x[i] / math.factorial(k) for k, x in enumerate(found)) if _inexact(result.aval) else (found[0][i],)
            for i, result in enumerate(equation.outvars)
        ]

    def linear(self, equation: Any, x: Series, *indices: Series) -> Any:
        if any(len(y) > 1 for y in indices):
            return self.without_rule(equation, [x, *indices])
        return tuple(_bind(equation, coefficient, *(y[0] for y in indices)) for coefficient in x)

    def jointly_linear(self, equation: Any, *operands: Series) -> Series:
        """Each coefficient of the result from those of the operands; indices have only one."""
        name, out = equation.primitive.name, []
        for k in range(max(map(len, operands))):
            present = [x for x in operands if len(x) > k]
            if name in ("add", "add_any", "sub") and len(present) == 1:
                x = present[0][k] if name != "sub" or present[0] is operands[0] else -present[0][k]
                out.append(jnp.broadcast_to(x, equation.outvars[0].aval.shape))
                continue
            coefficient = lambda x, k=k: x[k] if len(x) > k else jnp.zeros_like(x[0])
            out.append(_bind(equation, *(coefficient(x) if _inexact(x[0]) else x[0] for x in operands)))
        return tuple(out)

    # --- products, quotients and powers -----------------------------------------------------------------------------
    def product(self, x: Series, y: Series) -> Series:
        """Σ x_j y_{k−j}. Equal products, which occur in x² and in x (x − 1), are formed once."""
        out = []
        for k in range(min(len(x) + len(y) - 1, self.order + 1)):
            pairs = [(x[j], y[k - j]) for j in range(max(0, k + 1 - len(y)), min(k + 1, len(x)))]
            equal: dict[Any, list[tuple[Array, Array]]] = {}
            for pair in pairs:
                equal.setdefault(frozenset(map(id, pair)), []).append(pair)
            terms = [(same[0][0] * same[0][1], len(same)) for same in equal.values()]
            out.append(_sum([x if count == 1 else count * x for x, count in terms]))
        return tuple(out)

    def rule_mul(self, equation: Any, x: Series, y: Series) -> Series:
        return self.product(x, y)

    def rule_square(self, equation: Any, x: Series) -> Series:
        return self.product(x, x)

    def rule_dot_general(self, equation: Any, x: Series, y: Series) -> Series:
        ends = range(min(len(x) + len(y) - 1, self.order + 1))
        return tuple(
            _sum([_bind(equation, x[j], y[k - j]) for j in range(max(0, k + 1 - len(y)), min(k + 1, len(x)))])
            for k in ends
        )

    def rule_div(self, equation: Any, x: Series, y: Series) -> Series:
        if len(y) == 1:
            return tuple(a / y[0] for a in x)
        inverse, out = 1 / y[0], [x[0] / y[0]]
        for k in range(1, self.order + 1):
            known = _sum([y[j] * out[k - j] for j in range(1, min(k, len(y) - 1) + 1)])
            out.append((x[k] - known if k < len(x) else -known) * inverse)
        return tuple(out)

    def rule_integer_pow(self, equation: Any, x: Series) -> Series:
        n = equation.params["y"]
        powers = self.power(x, abs(n))
        return powers if n >= 0 else self.rule_div(equation, (jnp.ones_like(x[0]),), powers)

    def power(self, x: Series, n: int) -> Series:
        if n < 2:
            return x if n else (jnp.ones_like(x[0]),)
        half = self.power(x, n // 2)
        square = self.product(half, half)
        return self.product(square, x) if n % 2 else square

    def rule_sqrt(self, equation: Any, x: Series) -> Series:
        out = [jnp.sqrt(x[0])]
        inverse = 0.5 / out[0]
        for k in range(1, self.order + 1):
            terms = [-out[j] * out[k - j] for j in range(1, k)] + ([x[k]] if k < len(x) else [])
            out.append(_sum(terms) * inverse)
        return tuple(out)

    def rule_exp(self, equation: Any, x: Series) -> Series:
        out = [_bind(equation, x[0])]
        for k in range(1, self.order + 1):
            out.append(_sum([(j / k) * x[j] * out[k - j] for j in range(1, min(k, len(x) - 1) + 1)]))
        return tuple(out)

    def rule_stop_gradient(self, equation: Any, x: Series) -> Series:
        """By definition constant."""
        return (x[0],)

    def rule_select_n(self, equation: Any, which: Series, *cases: Series) -> Series:
        at = lambda case, k: case[k] if k < len(case) else jnp.zeros_like(case[0])
        return tuple(_bind(equation, which[0], *(at(case, k) for case in cases)) for k in range(max(map(len, cases))))


def _sum(terms: Sequence[Array]) -> Array:
    """The sum of the terms; unlike `sum`, without adding a zero first."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
