"""Evaluation of the indices of a jaxpr, as far as they follow from known inputs, and their comparison with the axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from ..interpreter import Interpreter
from .dependence import LOOPS, IndexDependence, is_index_access
from .numpy_rules import OPERATIONS

BUDGET = 40_000  # equations that are evaluated inside the loops of one function, about 120 ms
LEAST = 100  # equations that are evaluated of every loop


class _Unknown:
    """A value that is traced, or follows from one."""


UNKNOWN = _Unknown()
Values = list[Any]


class OutOfRange(Exception):
    """An index that does not fit its axis."""


class _OverBudget(Exception):
    """The rest of a loop is not evaluated."""


class IndexInterpreter(Interpreter):
    """Evaluates the equations on which indices depend, in numpy, and checks every index. `complete`: whether all
    indices were known, so that other inputs need no further check.

    A loop is evaluated until it has used half of the budget left to the program around it. What follows from a loop
    that was cut short is UNKNOWN, and evaluation continues after the loop. Equations outside loops do not count.
    """

    def __init__(self, dependence: IndexDependence) -> None:
        self.complete, self.left, self.depth, self.dependence = True, BUDGET, 0, dependence
        self.wanted: Sequence[bool] = ()  # the results that are needed of the program evaluated next
        self.outputs: dict[int, list[bool]] = {}  # by the identity of an equation: its results that are needed

    def check_program(self, program: Any, inputs: Values) -> None:
        """Check all indices of a program; OutOfRange for the first that does not fit."""
        self.wanted = [False] * len(program.jaxpr.outvars)
        self.evaluate(program, inputs)

    # --- kinds of values --------------------------------------------------------------------------------------------
    def constant(self, x: Any) -> Any:
        return as_known(x)

    def unbound(self, variable: Any) -> Any:
        return UNKNOWN

    def decided(self, x: Any) -> int | None:
        return None if x is UNKNOWN else int(x)

    def row(self, x: Any, k: int) -> Any:
        return x if x is UNKNOWN else x[k]

    def stack(self, rows: Sequence[Any], aval: Any) -> Any:
        return UNKNOWN if not rows or any(x is UNKNOWN for x in rows) else np.stack(rows)

    # --- the walk ---------------------------------------------------------------------------------------------------
    def equations(self, jaxpr: Any) -> Iterable[Any]:
        needed = self.dependence.of(jaxpr, self.wanted).equations
        for equation, outputs in zip(jaxpr.eqns, needed, strict=True):
            if outputs is None:
                continue
            self.left -= self.depth > 0
            if self.depth and self.left < 0:
                raise _OverBudget
            self.outputs[id(equation)] = outputs
            yield equation

    def called(self, equation: Any) -> Any:
        programs = self.dependence.inside(equation)
        return programs[0] if programs and equation.primitive.name not in LOOPS else None

    def inner(self, equation: Any, program: Any, arguments: Sequence[Any]) -> Values:
        name, outputs = equation.primitive.name, self.outputs[id(equation)]
        if name == "while" and program is equation.params["cond_jaxpr"]:
            self.wanted = [True]
        else:
            self.wanted = self.dependence.carried(equation, outputs) if name in ("scan", "while") else outputs
        return self.evaluate(program, arguments)

    def equation(self, equation: Any, operands: Values) -> Values:
        if is_index_access(equation, self.dependence.filled):
            self.check(equation, operands)
        if not any(self.outputs[id(equation)]) and not self.dependence.inside(equation):
            return self.unknown(equation)
        return super().equation(equation, operands)

    def operation(self, equation: Any, operands: Values) -> Values:
        name = equation.primitive.name
        if name in LOOPS and self.dependence.has_index_accesses(equation):
            return super().operation(equation, operands) if name == "cond" else self.loop(equation, operands)
        if any(x is UNKNOWN for x in operands):
            return self.unknown(equation)
        if name in OPERATIONS:
            with np.errstate(all="ignore"):
                return [np.asarray(OPERATIONS[name](equation.params, *operands))]
        with jax.ensure_compile_time_eval():
            bound = equation.primitive.get_bind_params(equation.params)
            functions, params = bound if isinstance(bound, tuple) else ((), bound)  # the second form from JAX 0.10 on
            found = equation.primitive.bind(*functions, *operands, **params)
        return [np.asarray(x) for x in (found if equation.primitive.multiple_results else [found])]

    def loop(self, equation: Any, operands: Values) -> Values:
        """A scan or while loop, within its share of the budget."""
        around, share = self.left, max(self.left // 2, LEAST)
        self.left, self.depth = share, self.depth + 1
        try:
            return super().operation(equation, operands)
        except _OverBudget:
            return self.unknown(equation)
        finally:
            self.left, self.depth = around - (share - self.left), self.depth - 1

    def undecided(self, equation: Any, operands: Values) -> Values:
        self.complete = False
        return self.unknown(equation)

    @staticmethod
    def unknown(equation: Any) -> Values:
        return [UNKNOWN] * len(equation.outvars)

    def check(self, equation: Any, operands: Values) -> None:
        """Compare the indices of an equation with the axes of its operand."""
        shape = equation.invars[0].aval.shape
        for axis, size, index in _indices(equation, operands, shape):
            if index is UNKNOWN:
                self.complete = False
                continue
            bad = (index < 0) | (index > shape[axis] - size)
            if np.any(bad) and not _by_library(equation):
                first = int(index[bad].flat[0])
                # jnp has added the length of the axis to a negative index.
                what = f"index {first}" if first >= 0 else f"index {first - shape[axis]}"
                what = what if size == 1 else f"{size} elements from {what} on"
                raise OutOfRange(
                    f"{what} of an axis of length {shape[axis]} (axis {axis} of an array of shape {shape})"
                )


def as_known(x: Any) -> Any:
    """x as a numpy array, or UNKNOWN where it is traced."""
    return x if x is UNKNOWN else UNKNOWN if isinstance(x, Tracer) else np.asarray(x)


def _indices(equation: Any, operands: Values, shape: tuple[int, ...]) -> list[tuple[int, int, Any]]:
    """For each indexed axis of the operand: the axis, how many elements are taken from there on, and the indices."""
    name, params = equation.primitive.name, equation.params
    if name == "dynamic_slice":
        return list(zip(range(len(shape)), params["slice_sizes"], operands[1:], strict=True))
    if name == "dynamic_update_slice":
        return list(zip(range(len(shape)), equation.invars[1].aval.shape, operands[2:], strict=True))
    numbers = params["dimension_numbers"]
    if name == "gather":
        axes, sizes = numbers.start_index_map, params["slice_sizes"]
    else:
        axes, update = numbers.scatter_dims_to_operand_dims, equation.invars[2].aval.shape
        window = iter([update[d] for d in numbers.update_window_dims])
        single = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        sizes = [1 if d in single else next(window) for d in range(len(shape))]
    return [
        (axis, sizes[axis], UNKNOWN if operands[1] is UNKNOWN else operands[1][..., k]) for k, axis in enumerate(axes)
    ]


# Files of JAX: those that handle the indices of its users, and those that belong to tracing itself.
INDEXING = ("indexing.py", "array_methods.py", "slicing.py", "scatter.py")
MACHINERY = ("core.py", "source_info_util.py", "traceback_util.py", "linear_util.py", "profiler.py", "interpreters")


def _by_library(equation: Any) -> bool:
    """Whether the indices come from a function of JAX itself (jnp.nonzero, map_coordinates, …), which masks or drops
    those out of range on purpose."""
    traceback = getattr(equation.source_info, "traceback", None)
    for frame in () if traceback is None else traceback.frames:
        path = Path(frame.file_name)
        if path.name not in INDEXING and not {path.name, path.parent.name} & {*MACHINERY}:
            return path.is_relative_to(Path(jax.__file__).parent)
    return False
