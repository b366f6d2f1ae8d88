"""Taylor series: the derivatives of a function of time, many at once.

The program that JAX makes of a function is read once more, in the arithmetic of truncated power series (Griewank and Walther,
Evaluating Derivatives, 2nd ed., chapter 13): a value is f₀ + f₁τ + f₂τ² + …, and every operation is replaced by one on coefficients,

    (fg)_k = Σ f_j g_{k−j},    (f/g)_k = (f_k − Σ_{j>0} g_j (f/g)_{k−j}) / g₀,    (√f)_k = (f_k − Σ_{0<j<k} (√f)_j (√f)_{k−j}) / 2√f₀,
    (eᶠ)_k = (1/k) Σ_{j>0} j f_j (eᶠ)_{k−j}.

Forward differentiation inside forward differentiation returns the same numbers, but carries 2ⁿ values where these are n + 1, and
divides anew at each: four derivatives of a Lennard-Jones potential along a line take a third of the operations. What has no rule
here is differentiated that way, operation by operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jaxtyping import Array

from .jaxprs import inside

Series = tuple[Array, ...]  # coefficients; those behind the last are zero

# Linear in the first operand, the others being numbers of places.
LINEAR = (
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
)
JOINED = ("add", "add_any", "sub", "concatenate", "pad", "stack", "scatter-add")  # linear in all operands together
CUSTOM = (
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "call_hi_primitive",
)  # know their derivatives better than their insides do


class _Opaque(Exception):
    """An operation that can't be bound anew from a jaxpr."""


def derivatives(function: Callable[[Array], Array], t: Array, order: int) -> list[Array]:
    """f(t), f'(t), …, up to the order asked for. It may be called while JAX traces."""
    t = jnp.asarray(t)
    program = jax.make_jaxpr(function)(t)
    try:
        (series,) = _Reader(order).read(program, [(t, jnp.ones_like(t))])
    except _Opaque:
        return _nested(function, [[t, jnp.ones_like(t), *[jnp.zeros_like(t)] * (order - 1)]], order)
    return [math.factorial(k) * x if k > 1 else x for k, x in enumerate(series)] + [jnp.zeros_like(series[0])] * (
        order + 1 - len(series)
    )


def _nested(function: Callable[..., Any], operands: Sequence[Sequence[Array]], order: int) -> list[Any]:
    """The derivatives of f(x(t), y(t), …) from those of x, y, … by forward differentiation of forward differentiation: the n-th is a
    function F_n(x, x', …, x⁽ⁿ⁾, y, …), and F_{n+1} its derivative along (x', x'', …)."""
    deeper = lambda f: lambda rows: jax.jvp(f, ([row[:-1] for row in rows],), ([row[1:] for row in rows],))[1]
    whole: Callable[[Any], Any] = lambda rows: function(*(row[0] for row in rows))
    results = []
    for k in range(order + 1):
        results.append(whole([list(row[: k + 1]) for row in operands]))
        whole = deeper(whole)
    return results


class _Reader:
    """Reads a jaxpr on series."""

    def __init__(self, order: int):
        self.order = order

    def read(self, program: Any, arguments: Sequence[Series]) -> list[Series]:
        """The results of a jaxpr, closed or open."""
        jaxpr, values = getattr(program, "jaxpr", program), {}

        def look(x: Any) -> Series:
            return self.literal(x) if isinstance(x, Literal) else values[x]

        values.update(zip(jaxpr.constvars, ((x,) for x in getattr(program, "consts", ())), strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            values.update(
                zip(equation.outvars, self.equation(equation, [look(x) for x in equation.invars]), strict=True)
            )
        return [look(x) for x in jaxpr.outvars]

    @staticmethod
    def literal(x: Any) -> Series:
        return (jnp.asarray(x.val, x.aval.dtype),)

    def equation(self, equation: Any, operands: list[Series]) -> list[Series]:
        name, fixed = equation.primitive.name, all(len(x) == 1 for x in operands)
        if name in CUSTOM and not fixed:
            raise _Opaque
        if (program := inside(equation)) is not None:
            return self.read(program, operands)
        if fixed or not any(jnp.issubdtype(x.aval.dtype, jnp.inexact) for x in equation.outvars):
            results = self.bind(equation, *(x[0] for x in operands))
            return [(x,) for x in (results if equation.primitive.multiple_results else [results])]
        rule = getattr(self, f"rule_{name}", None)
        if name in LINEAR and all(len(x) == 1 for x in operands[1:]):
            return [tuple(self.bind(equation, x, *(y[0] for y in operands[1:])) for x in operands[0])]
        if name in JOINED:
            return [self.joined(equation, operands)]
        return self.otherwise(equation, operands) if rule is None else [rule(equation, *operands)]

    @staticmethod
    def bind(equation: Any, *operands: Array) -> Any:
        return equation.primitive.bind(*operands, **equation.params)

    def otherwise(self, equation: Any, operands: list[Series]) -> list[Series]:
        """Without a rule: by its own derivatives. Numbers of places and decisions stay as they are."""
        moving = [k for k, x in enumerate(operands) if jnp.issubdtype(x[0].dtype, jnp.inexact)]

        def function(*x: Array) -> list[Array]:
            given = dict(zip(moving, x, strict=True))
            results = self.bind(equation, *(given.get(k, operand[0]) for k, operand in enumerate(operands)))
            return list(results) if equation.primitive.multiple_results else [results]

        zeros = lambda x: [jnp.zeros_like(x[0])] * (self.order + 1 - len(x))
        rows = [[math.factorial(k) * x for k, x in enumerate(operands[i])] + zeros(operands[i]) for i in moving]
        found = _nested(function, rows, self.order)
        exact = [jnp.issubdtype(x.aval.dtype, jnp.inexact) for x in equation.outvars]
        return [
            tuple(x[i] / math.factorial(k) for k, x in enumerate(found)) if smooth else (found[0][i],)
            for i, smooth in enumerate(exact)
        ]

    def joined(self, equation: Any, operands: list[Series]) -> Series:
        """Each coefficient of the result from those of the operands; numbers of places have but one."""
        places = [not jnp.issubdtype(x[0].dtype, jnp.inexact) for x in operands]
        name, out = equation.primitive.name, []
        for k in range(max(map(len, operands))):
            there = [x for x in operands if len(x) > k]
            if name in ("add", "add_any", "sub") and len(there) == 1:
                x = there[0][k] if name != "sub" or there[0] is operands[0] else -there[0][k]
                out.append(jnp.broadcast_to(x, equation.outvars[0].aval.shape))
            else:
                out.append(
                    self.bind(
                        equation,
                        *(
                            x[0] if fixed else x[k] if len(x) > k else jnp.zeros_like(x[0])
                            for x, fixed in zip(operands, places, strict=True)
                        ),
                    )
                )
        return tuple(out)

    # --- products, quotients and powers -----------------------------------------------------------------------------
    def product(self, x: Series, y: Series) -> Series:
        """Σ x_j y_{k−j}. Products that are equal, as in x² and x (x − 1), are formed once."""
        out = []
        for k in range(min(len(x) + len(y) - 1, self.order + 1)):
            pairs = [(x[j], y[k - j]) for j in range(max(0, k + 1 - len(y)), min(k + 1, len(x)))]
            equal: dict[Any, list[tuple[Array, Array]]] = {}
            for pair in pairs:
                equal.setdefault(frozenset(map(id, pair)), []).append(pair)
            terms = [(same[0][0] * same[0][1], len(same)) for same in equal.values()]
            out.append(_sum([x if often == 1 else often * x for x, often in terms]))
        return tuple(out)

    def rule_mul(self, equation: Any, x: Series, y: Series) -> Series:
        return self.product(x, y)

    def rule_square(self, equation: Any, x: Series) -> Series:
        return self.product(x, x)

    def rule_dot_general(self, equation: Any, x: Series, y: Series) -> Series:
        ends = range(min(len(x) + len(y) - 1, self.order + 1))
        return tuple(
            _sum([self.bind(equation, x[j], y[k - j]) for j in range(max(0, k + 1 - len(y)), min(k + 1, len(x)))])
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
        out = [self.bind(equation, x[0])]
        for k in range(1, self.order + 1):
            out.append(_sum([(j / k) * x[j] * out[k - j] for j in range(1, min(k, len(x) - 1) + 1)]))
        return tuple(out)

    def rule_select_n(self, equation: Any, which: Series, *cases: Series) -> Series:
        at = lambda case, k: case[k] if k < len(case) else jnp.zeros_like(case[0])
        return tuple(
            self.bind(equation, which[0], *(at(case, k) for case in cases)) for k in range(max(map(len, cases)))
        )


def _sum(terms: Sequence[Array]) -> Array:
    """Without the zero that `sum` begins with."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
