"""Indices out of range in the user's functions, found before a run.

JAX clamps an index that is out of range, or drops what is written there, and says nothing. This module walks the jaxprs
of potential, fast, constraint, lagrangian, force, watch and overrides at the initial state, and computes only what
indices depend on, in numpy: `Needs` marks, from the last equation backwards, the equations on which indices depend, and
`Walk` evaluates these forwards. An index that follows from q is therefore checked at q0 alone.

Some indices out of range are meant: those of gathers with mode="clip" or mode="fill" and those inside functions of JAX
itself are left alone. A scatter with mode="drop" looks like any other one in a jaxpr, and is refused. jnp.take fills
with NaN without being asked to, which looks like mode="fill": such gathers are checked by check_filled only, where the
energy at the start is not finite.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import Literal
from jax.lax import GatherScatterMode

from ..errors import InputError
from ..numerics.jaxprs import inside, scan_sizes
from .system import Stated

BUDGET = 40_000  # equations that are evaluated inside the loops of one function, about 120 ms
LEAST = 100  # equations that are evaluated of every loop


class _Unknown:
    """A value that is traced, or follows from one."""


UNKNOWN = _Unknown()
Values = list[Any]


class OutOfRange(Exception):
    """An index that does not fit its axis."""


class OverBudget(Exception):
    """The rest of a loop is not evaluated."""


# --- which equations matter ---
LOOPS = ("scan", "while", "cond")


def _plain(program: Any) -> Any:
    return getattr(program, "jaxpr", program)


def _is_site(equation: Any, filled: bool) -> bool:
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


class Need(NamedTuple):
    """Of a jaxpr: for each equation the outputs that are wanted, or None where it need not be evaluated; and the inputs
    that are needed."""

    jaxpr: Any
    equations: list[list[bool] | None]
    inputs: list[bool]


class Needs:
    """What indices and wanted outputs depend on, found once for each jaxpr."""

    def __init__(self, filled: bool = False) -> None:
        self.filled = filled
        self.found: dict[Any, Need] = {}
        self.programs: dict[int, tuple[Any, list[Any]]] = {}  # by the equation, which is kept alive

    def inside(self, equation: Any) -> list[Any]:
        """The jaxprs inside an equation: of calls, loops and branches."""
        if id(equation) not in self.programs:
            name, params = equation.primitive.name, equation.params
            lone = inside(equation) if name not in LOOPS else None
            known = {"scan": ("jaxpr",), "while": ("cond_jaxpr", "body_jaxpr")}.get(name, ())
            found = (
                list(params["branches"])
                if name == "cond"
                else [params[k] for k in known] or [lone] * (lone is not None)
            )
            self.programs[id(equation)] = equation, found
        return self.programs[id(equation)][1]

    def has_sites(self, equation: Any) -> bool:
        return any(
            any(e is not None for e in self.of(p, [False] * len(_plain(p).outvars)).equations)
            for p in self.inside(equation)
        )

    def of(self, program: Any, wanted: Sequence[bool]) -> Need:
        jaxpr = _plain(program)
        key = id(jaxpr), tuple(wanted)
        if key not in self.found:
            needed = {v for v, w in zip(jaxpr.outvars, wanted, strict=True) if w and not isinstance(v, Literal)}
            equations: list[list[bool] | None] = []
            for equation in reversed(jaxpr.eqns):
                outputs = [v in needed for v in equation.outvars]
                matters = any(outputs) or _is_site(equation, self.filled) or self.has_sites(equation)
                equations.append(outputs if matters else None)
                if matters:
                    flags = self.operands(equation, outputs)
                    needed.update(
                        v for v, f in zip(equation.invars, flags, strict=True) if f and not isinstance(v, Literal)
                    )
            self.found[key] = Need(jaxpr, equations[::-1], [v in needed for v in jaxpr.invars])
        return self.found[key]

    def operands(self, equation: Any, outputs: list[bool]) -> list[bool]:
        """Which operands of an equation are needed for its indices and for the wanted outputs."""
        name, count = equation.primitive.name, len(equation.invars)
        if not self.inside(equation):
            first = {"dynamic_slice": 1, "dynamic_update_slice": 2}.get(name)
            at_index = lambda k: k == 1 if first is None else k >= first
            return [any(outputs) or at_index(k) for k in range(count)]
        if name in LOOPS and not self.has_sites(equation):
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


# --- evaluation ---
class Walk:
    """Evaluates what indices depend on, and checks every index on its way. `complete` says whether all that were met
    were known: other inputs then give nothing new.

    A loop is evaluated until it has used half of the budget that is left to what is around it. What follows from a loop
    that was cut short is UNKNOWN, and the walk goes on behind it. Equations outside loops do not count."""

    def __init__(self, needs: Needs) -> None:
        self.complete, self.left, self.depth, self.needs = True, BUDGET, 0, needs

    def run(self, program: Any, inputs: Values, wanted: Sequence[bool], consts: Sequence[Any] | None = None) -> Values:
        """The outputs of a jaxpr; those that are not wanted may be UNKNOWN."""
        jaxpr, consts = _plain(program), getattr(program, "consts", ()) if consts is None else consts
        values: dict[Any, Any] = dict(
            zip((*jaxpr.constvars, *jaxpr.invars), (*map(_known, consts), *inputs), strict=True)
        )
        read = lambda v: _known(v.val) if isinstance(v, Literal) else values.get(v, UNKNOWN)
        for equation, outputs in zip(jaxpr.eqns, self.needs.of(jaxpr, wanted).equations, strict=True):
            if outputs is None:
                continue
            self.left -= self.depth > 0
            if self.depth and self.left < 0:
                raise OverBudget
            found = self.evaluate(equation, [read(v) for v in equation.invars], outputs)
            values.update(zip(equation.outvars, found, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def evaluate(self, equation: Any, operands: Values, outputs: list[bool]) -> Values:
        name, programs = equation.primitive.name, self.needs.inside(equation)
        if _is_site(equation, self.needs.filled):
            self.check(equation, operands)
        if not any(outputs) and not programs:
            return [UNKNOWN] * len(outputs)
        if programs and (name not in LOOPS or self.needs.has_sites(equation)):
            if name in ("scan", "while"):
                return self.repeated(equation, operands, outputs)
            if name == "cond":
                return self.branch(equation, operands, outputs)
            return self.run(programs[0], operands, outputs)
        if any(x is UNKNOWN for x in operands):
            return [UNKNOWN] * len(outputs)
        if name in OPERATIONS:
            with np.errstate(all="ignore"):
                return [np.asarray(OPERATIONS[name](equation.params, *operands))]
        with jax.ensure_compile_time_eval():
            bound = equation.primitive.get_bind_params(equation.params)
            functions, params = bound if isinstance(bound, tuple) else ((), bound)  # the second form from JAX 0.10 on
            found = equation.primitive.bind(*functions, *operands, **params)
        return [np.asarray(x) for x in (found if equation.primitive.multiple_results else [found])]

    def branch(self, equation: Any, operands: Values, outputs: list[bool]) -> Values:
        if operands[0] is UNKNOWN:
            return self.unknown(outputs)
        branches = self.needs.inside(equation)
        return self.run(branches[int(np.clip(operands[0], 0, len(branches) - 1))], operands[1:], outputs)

    def repeated(self, equation: Any, operands: Values, outputs: list[bool]) -> Values:
        """A loop, within its share of the budget."""
        around, share = self.left, max(self.left // 2, LEAST)
        self.left, self.depth = share, self.depth + 1
        try:
            return (self.scan if equation.primitive.name == "scan" else self.loop)(equation, operands, outputs)
        except OverBudget:
            return [UNKNOWN] * len(outputs)
        finally:
            self.left, self.depth = around - (share - self.left), self.depth - 1

    def scan(self, equation: Any, operands: Values, outputs: list[bool]) -> Values:
        body, (fixed, carried) = equation.params["jaxpr"], scan_sizes(equation)
        consts, carry, rows = operands[:fixed], operands[fixed : fixed + carried], operands[fixed + carried :]
        wanted, stacked = self.needs.carried(equation, outputs), []
        for k in range(equation.params["length"])[:: -1 if equation.params["reverse"] else 1]:
            row = [x if x is UNKNOWN else x[k] for x in rows]
            found = self.run(body, [*consts, *carry, *row], wanted)
            carry = found[:carried]
            stacked.append(found[carried:])
        stacked = stacked[::-1] if equation.params["reverse"] else stacked
        join = lambda xs: UNKNOWN if any(x is UNKNOWN for x in xs) else np.stack(xs)
        return [*carry, *([join(xs) for xs in zip(*stacked, strict=True)] or [UNKNOWN] * (len(outputs) - carried))]

    def loop(self, equation: Any, operands: Values, outputs: list[bool]) -> Values:
        (test, body), n, m = (
            self.needs.inside(equation),
            equation.params["cond_nconsts"],
            equation.params["body_nconsts"],
        )
        carry, wanted = operands[n + m :], self.needs.carried(equation, outputs)
        while True:
            goes_on = self.run(test, [*operands[:n], *carry], [True])[0]
            if goes_on is UNKNOWN:
                return self.unknown(outputs)
            if not goes_on:
                return carry
            carry = self.run(body, [*operands[n : n + m], *carry], wanted)

    def unknown(self, outputs: list[bool]) -> Values:
        self.complete = False
        return [UNKNOWN] * len(outputs)

    def check(self, equation: Any, operands: Values) -> None:
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


INDEXING = (
    "indexing.py",
    "array_methods.py",
    "slicing.py",
    "scatter.py",
)  # of JAX: where its users' indices are handled
MACHINERY = ("core.py", "source_info_util.py", "traceback_util.py", "linear_util.py", "profiler.py", "interpreters")


def _by_library(equation: Any) -> bool:
    """Whether a function of JAX made this equation for itself (jnp.nonzero, map_coordinates, …): what is out of range
    there is masked or dropped on purpose."""
    traceback = getattr(equation.source_info, "traceback", None)
    for frame in () if traceback is None else traceback.frames:
        path = Path(frame.file_name)
        if path.name not in INDEXING and not {path.name, path.parent.name} & {*MACHINERY}:
            return path.is_relative_to(Path(jax.__file__).parent)
    return False


def _known(x: Any) -> Any:
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


def _broadcast_in_dim(params: Any, x: np.ndarray) -> np.ndarray:
    shape = [1] * len(params["shape"])
    for d, size in zip(params["broadcast_dimensions"], x.shape, strict=True):
        shape[d] = size
    return np.broadcast_to(x.reshape(shape), params["shape"])


def _iota(params: Any) -> np.ndarray:
    shape, d = params["shape"], params["dimension"]
    along = np.arange(shape[d], dtype=params["dtype"]).reshape([-1 if k == d else 1 for k in range(len(shape))])
    return np.broadcast_to(along, shape)


def _slice(params: Any, x: np.ndarray) -> np.ndarray:
    strides = params["strides"] or (1,) * x.ndim
    return x[tuple(slice(*s) for s in zip(params["start_indices"], params["limit_indices"], strides, strict=True))]


# What indices are usually made of. Other operations are evaluated by JAX, which compiles each of them.
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: (lambda params, *x, f=f: f(*x)) for name, f in {
        "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs, "sign": np.sign,
        "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert,
        "floor": np.floor, "ceil": np.ceil, "rem": np.fmod,
    }.items()},
    "select_n": lambda params, which, *x: np.where(which, x[1], x[0]) if len(x) == 2 else np.choose(which, x),
    "convert_element_type": lambda params, x: x.astype(params["new_dtype"]),
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": lambda params, x: x.reshape(params["new_sizes"]),
    "squeeze": lambda params, x: np.squeeze(x, params["dimensions"]),
    "concatenate": lambda params, *x: np.concatenate(x, params["dimension"]),
    "transpose": lambda params, x: np.transpose(x, params["permutation"]),
    "slice": _slice,
    "iota": _iota,
    "clamp": lambda params, low, x, high: np.minimum(np.maximum(x, low), high),
    "copy": lambda params, x: x,
}  # fmt: skip


# --- the functions of a system ---
class Pending(NamedTuple):
    """A function with indices that depend on numbers of the call."""

    name: str
    program: Any
    needs: Needs


class Known(NamedTuple):
    """A system met before: the functions to check at each call; the numbers of the system for which they were checked
    last; and, for these numbers, which functions also have indices that depend on q or p."""

    pending: list[Pending]
    leaves: list[Any]
    by_state: list[bool]


_met: dict[Any, Known] = {}


def check_indices(system: Stated, q: Any, p: Any) -> None:
    """An error where a function of the system reads or writes out of range at (q, p). Indices that follow from traced
    values, from the velocity or from the time are left out."""
    leaves, structure = jax.tree.flatten(system)
    key = structure, np.shape(q), *((np.shape(x), getattr(x, "dtype", type(x))) for x in leaves)
    known = _met.get(key)
    if known is not None and all(x is y for x, y in zip(leaves, known.leaves, strict=True)):
        pending, by_state = known.pending, known.by_state
    else:
        pending = _meet(system, structure, leaves, q, p) if known is None else known.pending
        # All are checked before anything is stored: a refusal leaves what is known of earlier numbers as it was.
        by_state = [not _checked(each, [*map(_known, leaves), UNKNOWN, UNKNOWN]) for each in pending]
        if not any(isinstance(x, Tracer) for x in (*leaves, *(c for each in pending for c in each.program.consts))):
            while len(_met) >= 256:
                _met.pop(next(iter(_met)))
            _met[key] = Known(pending, leaves, by_state)
    for each, again in zip(pending, by_state, strict=True):
        if again:
            _checked(each, [*map(_known, leaves), _known(q), _known(p) if each.name.startswith("watch") else UNKNOWN])


def check_filled(system: Stated, q: Any, p: Any) -> None:
    """The same for gathers that fill with NaN, as jnp.take does. To be called where something is not finite: what they
    fill may be masked otherwise."""
    leaves, structure = jax.tree.flatten(system)
    for name, f in _functions(system, structure).items():
        pending = Pending(name, jax.make_jaxpr(f)(*leaves, q, p, 0.0), Needs(filled=True))
        known_p = _known(p) if name.startswith("watch") else UNKNOWN
        _checked(pending, [*map(_known, leaves), _known(q), known_p], "JAX reads NaN there; correct the index.")


def _meet(system: Stated, structure: Any, leaves: list[Any], q: Any, p: Any) -> list[Pending]:
    """The functions of a system, without those whose indices are constants and in range."""
    traced = [
        Pending(name, jax.make_jaxpr(f)(*leaves, q, p, 0.0), Needs())
        for name, f in _functions(system, structure).items()
    ]
    return [each for each in traced if not _checked(each, [UNKNOWN] * (len(leaves) + 2))]


CLAMPED = "JAX would clamp it, or drop what is written there; correct the index."


def _checked(pending: Pending, inputs: Values, what: str = CLAMPED) -> bool:
    """Whether nothing is left to check at other values of the inputs; an error where an index is out of range."""
    walk, program = Walk(pending.needs), pending.program
    try:
        walk.run(program, [*inputs, UNKNOWN], [False] * len(program.jaxpr.outvars))
    except OutOfRange as found:
        raise InputError(f"{pending.name} uses {found}. {what}") from None
    return walk.complete


def _functions(system: Stated, structure: Any) -> dict[str, Callable]:
    """The user's functions by name, each as a function of the leaves of the system, q, p and t. Velocities have the
    shape of p."""
    stated = {name: getattr(system, name, None) for name in ("potential", "fast", "constraint", "lagrangian", "force")}
    pick: dict[str, Callable] = {
        name: operator.attrgetter(name) for name, function in stated.items() if function is not None
    }
    for group in ("overrides", "watch"):
        for name in getattr(system, group, {}):
            pick[f"{group}[{name!r}]"] = lambda s, group=group, name=name: getattr(s, group)[name]

    def called(name: str, find: Callable) -> Callable:
        count = {"lagrangian": 2, "watch": 2, "force": 3}.get(name.split("[")[0], 1)

        def function(*inputs: Any) -> Any:
            whole = jax.tree.unflatten(structure, inputs[:-3])
            found = jax.tree.leaves(whole.call(find(whole), *inputs[-3:][:count]))
            return [x for x in found if hasattr(x, "dtype")]  # anything else is refused when the run begins

        return function

    return {name: called(name, find) for name, find in pick.items()}
