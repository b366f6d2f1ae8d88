"""An interpreter of jaxprs, the programs that JAX traces, with exchangeable rules.

`Interpreter.evaluate` walks a jaxpr from its first equation to its last. A subclass chooses the kind of value that
stands for an array (a truncated Taylor series, an interval, an array of machine registers, a polynomial degree) and
supplies one rule for each primitive, that is for each elementary operation of JAX:

    def rule_<primitive>(self, equation, *operands) -> value, or a list of values if the primitive has several results

(a "-" in the name of a primitive is written "_"), or an entry of the dictionary `table`, a function of (equation,
*operands), for rules that do not need the interpreter. A rule set to None counts as absent.

Programs inside equations have default rules here. Calls (jit, checkpoint, custom_jvp, custom_vjp) evaluate the program
that is called; scan is unrolled; while and cond follow the value of their condition where it is known; a
custom_linear_solve evaluates its own solver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax
from jax.extend.core import Literal

# Primitives that call one program, and the parameter that holds it.
CALLS = {
    "pjit": "jaxpr",
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}


def open_jaxpr(program: Any) -> Any:
    """The jaxpr of a program that may be closed, that is, stored together with the values of its constants."""
    return getattr(program, "jaxpr", program)


def called_program(equation: Any) -> Any:
    """The program that an equation calls, such as a function under jit; None for all other equations. A primitive of
    geomint that has an attribute `expanded` is a call of the program that this returns."""
    name = equation.primitive.name
    if name in CALLS:
        return equation.params[CALLS[name]]
    if (expanded := getattr(equation.primitive, "expanded", None)) is not None:
        return expanded(equation)
    if name == "call_hi_primitive":  # from JAX 0.11 on: custom_root and others, which can be expanded
        primitive = equation.params["_prim"]
        expanded = lambda *flat: jax.tree.leaves(primitive.expand(*jax.tree.unflatten(primitive.in_tree, flat)))
        return jax.make_jaxpr(expanded)(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in primitive.in_avals_flat))
    return None


def scan_sizes(equation: Any) -> tuple[int, int]:
    """How many operands of a scan are constants, and how many are carried from one iteration to the next.

    The sequences it runs over, and the results it stacks, have one axis more outside the scan than inside; the counts
    follow from that. (The parameters that hold them have different names in different versions of JAX.)
    """
    body = equation.params["jaxpr"].jaxpr
    differing = lambda outer, inner: sum(x.aval.ndim != y.aval.ndim for x, y in zip(outer, inner, strict=True))
    carried = len(body.outvars) - differing(equation.outvars, body.outvars)
    return len(body.invars) - differing(equation.invars, body.invars) - carried, carried


class RuleTable(dict[str, Callable[..., Any]]):
    """Rules by the names of their primitives."""

    def enter(self, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: enters a function as the rule for these primitives."""

        def enter_rule(rule: Callable[..., Any]) -> Callable[..., Any]:
            self.update(dict.fromkeys(names, rule))
            return rule

        return enter_rule


class Interpreter:
    """Evaluates jaxprs on values of another kind than arrays; a subclass supplies `constant` and the rules."""

    table: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    # --- kinds of values --------------------------------------------------------------------------------------------
    def constant(self, x: Any) -> Any:
        """The value of a constant array of a closed jaxpr."""
        raise NotImplementedError

    def literal(self, x: Any) -> Any:
        """The value of a number that is written in an equation."""
        return self.constant(x.val)

    def unbound(self, variable: Any) -> Any:
        """The value of a variable whose equation was left out by `equations`."""
        raise KeyError(variable)

    def decided(self, x: Any) -> int | None:
        """The condition of a loop or branch as a number, or None where it is not known during interpretation."""
        raise NotImplementedError

    def row(self, x: Any, k: int) -> Any:
        """x[k] of a sequence that a scan runs over."""
        raise NotImplementedError

    def stack(self, rows: Sequence[Any], aval: Any) -> Any:
        """One value of shape and type `aval` from its rows, the results of the iterations of a scan."""
        raise NotImplementedError

    # --- the walk ---------------------------------------------------------------------------------------------------
    def evaluate(self, program: Any, arguments: Iterable[Any]) -> list[Any]:
        """The results of a jaxpr, closed or open."""
        jaxpr = open_jaxpr(program)
        values = dict(zip(jaxpr.constvars, map(self.constant, getattr(program, "consts", ())), strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(x: Any) -> Any:
            if isinstance(x, Literal):
                return self.literal(x)
            return values[x] if x in values else self.unbound(x)

        for equation in self.equations(jaxpr):
            results = self.equation(equation, [read(x) for x in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [read(x) for x in jaxpr.outvars]

    def equations(self, jaxpr: Any) -> Iterable[Any]:
        """The equations of a jaxpr that are evaluated, in this order."""
        return jaxpr.eqns

    def equation(self, equation: Any, operands: list[Any]) -> list[Any]:
        """The results of an equation: by evaluating the program that it calls, or else by `operation`."""
        program = self.called(equation)
        return self.operation(equation, operands) if program is None else self.inner(equation, program, operands)

    def called(self, equation: Any) -> Any:
        """The program that an equation calls, or None."""
        return called_program(equation)

    def inner(self, equation: Any, program: Any, arguments: Sequence[Any]) -> list[Any]:
        """The results of a program inside an equation."""
        return self.evaluate(program, arguments)

    def operation(self, equation: Any, operands: list[Any]) -> list[Any]:
        """The results of an equation by the rule for its primitive."""
        rule = self.rule(equation.primitive.name)
        results = self.without_rule(equation, operands) if rule is None else rule(equation, *operands)
        return results if isinstance(results, list) else [results]

    def rule(self, name: str) -> Callable[..., Any] | None:
        """The rule for a primitive: a method of this object or an entry of its table."""
        method = f"rule_{name.replace('-', '_')}"
        return getattr(self, method) if hasattr(self, method) else self.table.get(name)

    def without_rule(self, equation: Any, operands: list[Any]) -> Any:
        """The results of a primitive that has no rule."""
        raise NotImplementedError(equation.primitive.name)

    # --- loops, branches and linear solves --------------------------------------------------------------------------
    def undecided(self, equation: Any, operands: list[Any]) -> list[Any]:
        """The results of a loop or branch whose condition is not known during interpretation."""
        raise NotImplementedError(equation.primitive.name)

    def rule_scan(self, equation: Any, *operands: Any) -> list[Any]:
        """All iterations, one after another."""
        body, length, reverse = (equation.params[name] for name in ("jaxpr", "length", "reverse"))
        fixed, carried = scan_sizes(equation)
        constants, carry, sequences = operands[:fixed], operands[fixed : fixed + carried], operands[fixed + carried :]
        kept: list[list[Any]] = []
        for k in range(length)[:: -1 if reverse else 1]:
            results = self.inner(equation, body, [*constants, *carry, *(self.row(x, k) for x in sequences)])
            carry = results[:carried]
            kept.append(results[carried:])
        kept = kept[::-1] if reverse else kept
        stacked = equation.outvars[carried:]
        return [*carry, *(self.stack([rows[i] for rows in kept], x.aval) for i, x in enumerate(stacked))]

    def rule_while(self, equation: Any, *operands: Any) -> list[Any]:
        """Iterations as long as the condition is known and true."""
        p, first = equation.params, equation.params["cond_nconsts"]
        last = first + p["body_nconsts"]
        carry = list(operands[last:])
        while True:
            goes_on = self.decided(self.inner(equation, p["cond_jaxpr"], [*operands[:first], *carry])[0])
            if goes_on is None:
                return self.undecided(equation, list(operands))
            if not goes_on:
                return carry
            carry = self.inner(equation, p["body_jaxpr"], [*operands[first:last], *carry])

    def rule_cond(self, equation: Any, which: Any, *operands: Any) -> list[Any]:
        """The branch that the index selects; JAX clamps the index to the number of branches."""
        branches, index = equation.params["branches"], self.decided(which)
        if index is None:
            return self.undecided(equation, [which, *operands])
        return self.inner(equation, branches[min(max(index, 0), len(branches) - 1)], operands)

    def rule_custom_linear_solve(self, equation: Any, *operands: Any) -> list[Any]:
        """The solver that was given with the linear operator, applied to the right-hand sides."""
        lengths, programs = equation.params["const_lengths"], equation.params["jaxprs"]
        before = lengths.matvec + lengths.vecmat
        constants, right = operands[before : before + lengths.solve], operands[sum(lengths) :]
        return self.inner(equation, programs.solve, [*constants, *right])
