"""Translates a jaxpr on arrays to operations on single numbers.

For a small system the overhead around its few hundred floating-point operations dominates. Here the jaxpr of a step is
interpreted on arrays of single values. Operations that only move entries (slices, gathers with known indices,
transposes) move values and cost nothing; element-wise ones become one operation for each entry; operations on known
numbers, zeros and ones are folded. Loops and branches remain loops and branches.

A `Code` defines what a value is and how operations on it are executed; a value may be an instruction of LLVM, for
example. An operation without a rule raises `NotCovered` with its name, and the caller uses another engine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np

from ...numerics.interpreter import Interpreter, called_program
from ...numerics.known_arrays import on_known
from .indexing import Indexing
from .number_types import MOVES, WRAPPING, check_types
from .random_numbers import WORD, RandomNumbers
from .small_matrices import SmallMatrices
from .values import ELEMENTWISE, Code, NotCovered, Values, add, as_constants, constant, filled, multiply, power, select

UNROLLED = 64  # iterations of the longest scan that is unrolled


class ScalarInterpreter(Indexing, SmallMatrices, RandomNumbers, Interpreter):
    """Evaluates jaxprs on arrays of single values."""

    def __init__(self, code: Code):
        self.code = code

    # --- kinds of values --------------------------------------------------------------------------------------------
    def constant(self, x: Any) -> Values:
        return as_constants(x)

    def decided(self, x: Values) -> int | None:
        return int(x.item()) if constant(x.item()) else None

    def row(self, x: Values, k: int) -> Values:
        return x[k : k + 1].reshape(x.shape[1:])  # an array also where x[k] would be a single value

    def stack(self, rows: Sequence[Values], aval: Any) -> Values:
        return np.stack(rows) if rows else np.empty(aval.shape, object)

    def equation(self, equation: Any, operands: list[Values]) -> list[Values]:
        with self.code.reciprocals() if getattr(equation.primitive, "by_reciprocals", False) else nullcontext():
            return super().equation(equation, operands)

    # --- all operations ---------------------------------------------------------------------------------------------
    def operation(self, equation: Any, operands: list[Values]) -> list[Values]:
        name = equation.primitive.name
        if all(constant(x) for operand in operands for x in operand.ravel()) and name not in ("while", "cond", "scan"):
            return self.on_constants(equation, operands)
        if name == "optimization_barrier":
            return operands
        check_types(equation, operands)
        results = super().operation(equation, operands)
        if name not in WRAPPING:
            return results
        return [self.wrap_to_32_bits(equation, x, v.aval.dtype) for x, v in zip(results, equation.outvars, strict=True)]

    def rule(self, name: str) -> Callable[..., Any] | None:
        if name in ELEMENTWISE and name != "select_n":
            return lambda equation, *operands: self.each(ELEMENTWISE[name], operands)
        return self.move_entries if name in MOVES and name != "gather" else super().rule(name)

    def without_rule(self, equation: Any, operands: list[Values]) -> Any:
        raise NotCovered(f"the operation {equation.primitive.name}")

    @staticmethod
    def on_constants(equation: Any, operands: list[Values]) -> list[Values]:
        """The operation itself, on known numbers."""
        arrays = [
            np.array(x.tolist(), v.aval.dtype).reshape(x.shape) for x, v in zip(operands, equation.invars, strict=True)
        ]
        return [as_constants(x) for x in on_known(equation, *arrays)]

    def each(self, rule: Callable[..., Any], operands: Sequence[Values]) -> Values:
        arrays = np.broadcast_arrays(*operands)
        return filled(
            arrays[0].shape, [rule(self.code, *entries) for entries in zip(*(x.ravel() for x in arrays), strict=True)]
        )

    def wrap_to_32_bits(self, equation: Any, x: Values, dtype: Any) -> Values:
        """32-bit integers are kept in 64 bits: truncate the result of an operation to 32."""
        if dtype == np.uint32:
            return self.each(
                lambda code, entry: entry & WORD if constant(entry) else code.value("and", entry, WORD), [x]
            )
        if dtype == np.int32:
            return self.each(
                lambda code, entry: code.value("shift_right_arithmetic", code.value("shift_left", entry, 32), 32), [x]
            )
        return x

    # --- sums -------------------------------------------------------------------------------------------------------
    def folded(self, rule: Callable[..., Any], operand: Values, axes: Sequence[int], empty: Any) -> Values:
        kept = [k for k in range(operand.ndim) if k not in axes]
        rows = operand.transpose(*kept, *axes).reshape(*(operand.shape[k] for k in kept), -1)
        out = np.empty(rows.shape[:-1], object)
        for place in np.ndindex(*out.shape):
            total: Any = empty
            for i, x in enumerate(rows[place]):
                total = x if i == 0 else rule(self.code, total, x)
            out[place] = total
        return out

    def rule_reduce_sum(self, equation: Any, x: Values) -> Values:
        return self.folded(add, x, equation.params["axes"], 0.0)

    def rule_reduce_max(self, equation: Any, x: Values) -> Values:
        return self.folded(ELEMENTWISE["max"], x, equation.params["axes"], -math.inf)

    def rule_reduce_min(self, equation: Any, x: Values) -> Values:
        return self.folded(ELEMENTWISE["min"], x, equation.params["axes"], math.inf)

    def rule_reduce_and(self, equation: Any, x: Values) -> Values:
        return self.folded(ELEMENTWISE["and"], x, equation.params["axes"], True)

    def rule_reduce_or(self, equation: Any, x: Values) -> Values:
        return self.folded(ELEMENTWISE["or"], x, equation.params["axes"], False)

    def _arg_extreme(self, equation: Any, x: Values, better: str) -> Values:
        """The index of the largest or smallest entry; of the first, where several are equal."""
        (axis,) = equation.params["axes"]
        rows = np.moveaxis(x, axis, -1)
        out = np.empty(rows.shape[:-1], object)
        for place in np.ndindex(*out.shape):
            best, where = rows[place][0], 0
            for i, candidate in enumerate(rows[place][1:], start=1):
                # As in JAX, the first NaN wins over all numbers.
                none = self.code.value(
                    "and", self.code.value("ne", candidate, candidate), self.code.value("eq", best, best)
                )
                wins = self.code.value("or", self.code.value(better, candidate, best), none)
                best, where = select(self.code, wins, best, candidate), select(self.code, wins, where, i)
            out[place] = where
        return out

    def rule_argmin(self, equation: Any, x: Values) -> Values:
        return self._arg_extreme(equation, x, "lt")

    def rule_argmax(self, equation: Any, x: Values) -> Values:
        return self._arg_extreme(equation, x, "gt")

    def rule_dot_general(self, equation: Any, x: Values, y: Values) -> Values:
        (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
        rest = lambda a, *used: [k for k in range(a.ndim) if k not in {*itertools.chain(*used)}]
        left_kept, right_kept = rest(x, left, left_batch), rest(y, right, right_batch)
        x = x.transpose(*left_batch, *left_kept, *left).reshape(
            *(x.shape[k] for k in left_batch), math.prod(x.shape[k] for k in left_kept), -1
        )
        y = y.transpose(*right_batch, *right_kept, *right).reshape(
            *(y.shape[k] for k in right_batch), math.prod(y.shape[k] for k in right_kept), -1
        )
        products = self.each(multiply, [x[..., :, None, :], y[..., None, :, :]])
        return self.folded(add, products, [products.ndim - 1], 0.0).reshape(equation.outvars[0].aval.shape)

    # --- other operations -------------------------------------------------------------------------------------------
    def rule_integer_pow(self, equation: Any, x: Values) -> Values:
        return self.each(lambda code, entry: power(code, entry, equation.params["y"]), [x])

    def rule_convert_element_type(self, equation: Any, x: Values) -> Values:
        before, after = (np.dtype(v.aval.dtype) for v in (equation.invars[0], equation.outvars[0]))
        old, new = before.kind.replace("u", "i"), after.kind.replace("u", "i")
        if old == new:
            return (
                x
                if old != "i" or (after.itemsize >= before.itemsize and after.kind == before.kind)
                else self.wrap_to_32_bits(equation, x, after)
            )
        if new == "f":
            return self.each(lambda code, entry: float(entry) if constant(entry) else code.value("to f", entry), [x])
        if new == "i" and old == "f" and after != jax.dtypes.canonicalize_dtype(int):
            raise NotCovered(f"conversion of real numbers to {after}")
        if any(constant(entry) for entry in x.ravel()) and old == "f":
            raise NotCovered("conversion to integers or booleans of real arrays with some constant entries")
        return self.each(
            lambda code, entry: (
                {"i": int, "b": bool}[new](entry) if constant(entry) else code.value(f"to {new}", entry)
            ),
            [x],
        )

    def rule_clamp(self, equation: Any, low: Values, x: Values, high: Values) -> Values:
        return self.each(ELEMENTWISE["min"], [self.each(ELEMENTWISE["max"], [low, x]), high])

    def rule_unstack(self, equation: Any, x: Values) -> list[Values]:
        rows = np.moveaxis(x, equation.params.get("axis", 0), 0)
        return [self.row(rows, i) for i in range(len(rows))]

    def rule_cumsum(self, equation: Any, x: Values) -> Values:
        axis, back = equation.params["axis"], equation.params["reverse"]
        moved = np.moveaxis(x, axis, 0)
        rows = moved.reshape(len(moved), -1).copy()
        order = list(range(len(rows)))[:: -1 if back else 1]
        for before, here in itertools.pairwise(order):
            for k in range(rows.shape[1]):
                rows[here, k] = add(self.code, rows[before, k], rows[here, k])
        return np.moveaxis(rows.reshape(moved.shape), 0, axis)

    def rule_reduce_prod(self, equation: Any, x: Values) -> Values:
        return self.folded(multiply, x, equation.params["axes"], 1.0)

    def rule_split(self, equation: Any, x: Values) -> list[Values]:
        ends = np.cumsum(equation.params["sizes"])[:-1]
        return list(np.split(x, ends, axis=equation.params["axis"]))

    def rule_select_n(self, equation: Any, which: Values, *cases: Values) -> Values:
        """By a truth value, or by the number of the case."""
        if equation.invars[0].aval.dtype == bool:
            return self.each(select, [which, *cases])
        out = cases[0]
        for k, case in enumerate(cases[1:], start=1):
            out = self.each(
                lambda code, w, old, new, k=k: select(
                    code, w == k if constant(w) else code.value("eq", w, k), old, new
                ),
                [which, out, case],
            )
        return out

    # --- loops and branches -----------------------------------------------------------------------------------------
    def rule_while(self, equation: Any, *operands: Values) -> list[Values]:
        p = equation.params
        tests, rest = operands[: p["cond_nconsts"]], operands[p["cond_nconsts"] :]
        body, begin = rest[: p["body_nconsts"]], rest[p["body_nconsts"] :]
        shapes = [x.shape for x in begin]
        test = lambda flat: self.inner(equation, p["cond_jaxpr"], [*tests, *arrays(flat, shapes)])[0].item()
        step = lambda flat: _flat(self.inner(equation, p["body_jaxpr"], [*body, *arrays(flat, shapes)]))
        flat = _flat(begin)
        first_test = test(flat)
        if first_test is False:
            return list(begin)
        if first_test is True:
            # The first iteration is written before the loop: all lanes take it, and known initial values fold away.
            flat = step(flat)
        return arrays(self.code.loop(flat, test, step), shapes)

    def undecided(self, equation: Any, operands: list[Values]) -> list[Values]:
        """A branch that is chosen when the program runs."""
        which, *rest = operands
        branches = equation.params["branches"]
        cases = [lambda branch=branch: _flat(self.inner(equation, branch, rest)) for branch in branches]
        return arrays(self.code.branch(which.item(), cases), [v.aval.shape for v in equation.outvars])

    def rule_scan(self, equation: Any, *operands: Values) -> list[Values]:
        if (length := equation.params["length"]) > UNROLLED:
            raise NotCovered(f"a scan of {length} steps")
        return super().rule_scan(equation, *operands)


def _parts(equation: Any) -> list[tuple[int, Any]]:
    """The programs inside an equation, and how often each is translated."""
    p = equation.params
    if equation.primitive.name == "scan":
        return [(min(p["length"], UNROLLED), p["jaxpr"])]
    return [(1, x) for x in (p.get("body_jaxpr"), *p.get("branches", ()), called_program(equation)) if x is not None]


def operations(program: Any) -> int:
    """An estimate, from the shapes alone, of the number of operations on single values that a program takes."""
    total = 0
    for equation in getattr(program, "jaxpr", program).eqns:
        name = equation.primitive.name
        total += sum(times * operations(part) for times, part in _parts(equation))
        if name in ELEMENTWISE or name.startswith("reduce_"):
            total += max((math.prod(v.aval.shape) for v in (*equation.invars, *equation.outvars)), default=0)
        elif name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            total += math.prod(equation.outvars[0].aval.shape) * math.prod(
                equation.invars[0].aval.shape[k] for k in contracted
            )
    return total


def primitives(program: Any) -> set[str]:
    """The names of all operations of a program; a primitive that is expanded here only counts as itself."""
    equations = getattr(program, "jaxpr", program).eqns
    inside = [e for e in equations if not hasattr(e.primitive, "expanded")]
    return {e.primitive.name for e in equations}.union(*(primitives(part) for e in inside for _, part in _parts(e)))


def _flat(arrays: Sequence[Values]) -> list[Any]:
    return [x for array in arrays for x in array.ravel()]


def arrays(flat: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> list[Values]:
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [filled(shape, flat[end - math.prod(shape) : end]) for shape, end in zip(shapes, ends, strict=True)]
