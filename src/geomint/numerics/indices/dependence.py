"""Which equations of a jaxpr determine the indices at which it reads and writes.

They are found from the last equation backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import Literal
from jax.lax import GatherScatterMode

from ..interpreter import called_program, open_jaxpr, scan_sizes

LOOPS = ("scan", "while", "cond")


def is_index_access(equation: Any, filled: bool) -> bool:
    """Whether an equation reads or writes at an index that must be in range; with `filled`, also where NaN is read
    otherwise."""
    name, params = equation.primitive.name, equation.params
    if name in ("dynamic_slice", "dynamic_update_slice"):
        return True
    if name == "gather":
        # vmap turns dynamic_slice into a gather in clip mode that collapses no axis; with collapsed axes the user
        # asked for "clip".
        by_vmap = params["mode"] == GatherScatterMode.CLIP and not params["dimension_numbers"].collapsed_slice_dims
        fills = params["mode"] == GatherScatterMode.FILL_OR_DROP and not np.isfinite(params["fill_value"] or 0.0)
        return by_vmap or (filled and fills) or params["mode"] == GatherScatterMode.PROMISE_IN_BOUNDS
    if name.startswith("scatter"):
        return params["mode"] != GatherScatterMode.CLIP or not params["dimension_numbers"].inserted_window_dims
    return False


class Needed(NamedTuple):
    """The parts of a jaxpr on which its indices and wanted outputs depend."""

    jaxpr: Any  # kept alive, because its identity is a key
    equations: list[list[bool] | None]  # for each its outputs that are needed, or None if it need not be evaluated
    inputs: list[bool]  # whether they are needed


class IndexDependence:
    """What indices and wanted outputs depend on, found once for each jaxpr."""

    def __init__(self, filled: bool = False) -> None:
        self.filled = filled
        self.found: dict[Any, Needed] = {}
        self.programs: dict[int, tuple[Any, list[Any]]] = {}  # by the identity of the equation, which is kept alive

    def inside(self, equation: Any) -> list[Any]:
        """The jaxprs inside an equation: of calls, loops and branches."""
        if id(equation) not in self.programs:
            name, params = equation.primitive.name, equation.params
            called = called_program(equation) if name not in LOOPS else None
            known = {"scan": ("jaxpr",), "while": ("cond_jaxpr", "body_jaxpr")}.get(name, ())
            found = (
                list(params["branches"])
                if name == "cond"
                else [params[k] for k in known] or [called] * (called is not None)
            )
            self.programs[id(equation)] = equation, found
        return self.programs[id(equation)][1]

    def has_index_accesses(self, equation: Any) -> bool:
        """Whether a program inside an equation reads or writes at indices that must be in range."""
        return any(
            any(e is not None for e in self.of(p, [False] * len(open_jaxpr(p).outvars)).equations)
            for p in self.inside(equation)
        )

    def of(self, program: Any, wanted: Sequence[bool]) -> Needed:
        """What the indices of a program and its wanted outputs depend on."""
        jaxpr = open_jaxpr(program)
        key = id(jaxpr), tuple(wanted)
        if key not in self.found:
            needed = {v for v, w in zip(jaxpr.outvars, wanted, strict=True) if w and not isinstance(v, Literal)}
            equations: list[list[bool] | None] = []
            for equation in reversed(jaxpr.eqns):
                outputs = [v in needed for v in equation.outvars]
                matters = any(outputs) or is_index_access(equation, self.filled) or self.has_index_accesses(equation)
                equations.append(outputs if matters else None)
                if matters:
                    flags = self.operands(equation, outputs)
                    needed.update(
                        v for v, f in zip(equation.invars, flags, strict=True) if f and not isinstance(v, Literal)
                    )
            self.found[key] = Needed(jaxpr, equations[::-1], [v in needed for v in jaxpr.invars])
        return self.found[key]

    def operands(self, equation: Any, outputs: list[bool]) -> list[bool]:
        """Which operands of an equation are needed for its indices and for the wanted outputs."""
        name, count = equation.primitive.name, len(equation.invars)
        if not self.inside(equation):
            first = {"dynamic_slice": 1, "dynamic_update_slice": 2}.get(name)
            at_index = lambda k: k == 1 if first is None else k >= first
            return [any(outputs) or at_index(k) for k in range(count)]
        if name in LOOPS and not self.has_index_accesses(equation):
            return [True] * count
        if name == "cond":
            each = [self.of(p, outputs).inputs for p in self.inside(equation)]
            return [True, *map(any, zip(*each, strict=True))]
        if name == "while":
            n, m = equation.params["cond_nconsts"], equation.params["body_nconsts"]
            test, body = self.inside(equation)
            wanted = self.carried(equation, outputs)
            at_test, at_body = self.of(test, [True]).inputs, self.of(body, wanted).inputs
            return [*at_test[:n], *at_body[:m], *wanted]
        wanted = self.carried(equation, outputs) if name == "scan" else outputs
        return self.of(self.inside(equation)[0], wanted).inputs

    def carried(self, equation: Any, outputs: list[bool]) -> list[bool]:
        """The outputs of the body of a loop that are wanted, given those of the loop: also what the next iteration
        needs."""
        is_scan, programs = equation.primitive.name == "scan", self.inside(equation)
        fixed, count = scan_sizes(equation) if is_scan else (equation.params["body_nconsts"], len(outputs))
        tested = [False] * count if is_scan else self.of(programs[0], [True]).inputs[equation.params["cond_nconsts"] :]
        wanted = [a or b for a, b in zip(outputs[:count], tested, strict=True)]
        while True:
            inputs = self.of(programs[-1], [*wanted, *outputs[count:]]).inputs[fixed : fixed + count]
            wider = [a or b for a, b in zip(wanted, inputs, strict=True)]
            if wider == wanted:
                return [*wanted, *outputs[count:]]
            wanted = wider
