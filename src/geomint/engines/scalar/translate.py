"""A program of JAX on arrays becomes straight-line code on single numbers.

A small system is limited by what surrounds its few hundred floating-point operations. Here the jaxpr of a step is read on *arrays
of single values*: operations that only move entries (slices, gathers with known indices, transposes) move values and cost nothing;
element-wise ones become one operation for each entry; known numbers, zeros and ones fold away. Loops and branches stay loops and
branches.

What a value is, and how operations on it are carried out, is the affair of a `Code`: an instruction of a machine, say. What there is no
rule for raises `NotCovered` with its name: the caller then does without.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from ...numerics.jaxprs import inside, scan_sizes
from .number_types import MOVES, WRAPPING, check_types
from .random_numbers import WORD, RandomNumbers
from .small_matrices import SmallMatrices
from .values import ELEMENTWISE, Code, NotCovered, Values, add, constant, filled, known, multiply, power, select

UNROLLED = 64  # longest scan that is written out


class Reader(SmallMatrices, RandomNumbers):
    """Reads jaxprs on arrays of single values."""

    def __init__(self, code: Code):
        self.code = code

    def read(self, program: Any, arguments: Sequence[Values]) -> list[Values]:
        """The results of a jaxpr, closed or open."""
        jaxpr, values = getattr(program, "jaxpr", program), {}
        look = lambda x: known(x.val) if isinstance(x, Literal) else values[x]
        values.update(zip(jaxpr.constvars, map(known, getattr(program, "consts", ())), strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            results = self.equation(equation, [look(x) for x in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [look(x) for x in jaxpr.outvars]

    def equation(self, equation: Any, operands: list[Values]) -> list[Values]:
        name = equation.primitive.name
        if (program := inside(equation)) is not None:
            return self.read(program, operands)
        if all(constant(x) for operand in operands for x in operand.ravel()) and name not in ("while", "cond", "scan"):
            return self.at_once(equation, operands)
        if name == "optimization_barrier":
            return operands
        check_types(equation, operands)
        results = self.applied(equation, operands)
        return (
            [self.words(equation, x, v.aval.dtype) for x, v in zip(results, equation.outvars, strict=True)]
            if name in WRAPPING
            else results
        )

    def applied(self, equation: Any, operands: list[Values]) -> list[Values]:
        name = equation.primitive.name
        if name == "select_n" and equation.invars[0].aval.dtype != bool:
            return [self.one_of(*operands)]
        if name in ELEMENTWISE:
            return [self.each(ELEMENTWISE[name], operands)]
        if name in MOVES and not (name == "gather" and any(not constant(x) for x in operands[1].ravel())):
            return [self.moved(equation, operands)]
        rule = getattr(self, f"rule_{name.replace('-', '_')}", None)
        if rule is None:
            raise NotCovered(f"the operation {name}")
        results = rule(equation, *operands)
        return results if isinstance(results, list) else [results]

    @staticmethod
    def at_once(equation: Any, operands: list[Values]) -> list[Values]:
        """Known numbers: the operation itself."""
        with jax.ensure_compile_time_eval():
            arrays = [
                jnp.asarray(np.array(x.tolist(), v.aval.dtype).reshape(x.shape))
                for x, v in zip(operands, equation.invars, strict=True)
            ]
            results = equation.primitive.bind(*arrays, **equation.params)
        return [known(x) for x in (results if equation.primitive.multiple_results else [results])]

    def each(self, rule: Callable[..., Any], operands: Sequence[Values]) -> Values:
        arrays = np.broadcast_arrays(*operands)
        return filled(
            arrays[0].shape, [rule(self.code, *entries) for entries in zip(*(x.ravel() for x in arrays), strict=True)]
        )

    def one_of(self, which: Values, *cases: Values) -> Values:
        """The case of that number."""
        out = cases[0]
        for k, case in enumerate(cases[1:], start=1):
            out = self.each(
                lambda code, w, old, new, k=k: select(
                    code, w == k if constant(w) else code.value("eq", w, k), old, new
                ),
                [which, out, case],
            )
        return out

    def words(self, equation: Any, x: Values, dtype: Any) -> Values:
        """Numbers of 32 bits are kept in 64: what an operation carried beyond them is cut off."""
        if dtype == np.uint32:
            return self.each(
                lambda code, entry: entry & WORD if constant(entry) else code.value("and", entry, WORD), [x]
            )
        if dtype == np.int32:
            return self.each(
                lambda code, entry: code.value("shift_right_arithmetic", code.value("shift_left", entry, 32), 32), [x]
            )
        return x

    @staticmethod
    def moved(equation: Any, operands: list[Values]) -> Values:
        """An operation that moves entries is done on their numbers."""
        name = equation.primitive.name
        known = operands[1:] if name == "gather" else []
        moving = operands[: len(operands) - len(known)]
        shapes = [v.aval.shape for v in equation.invars[: len(moving)]]
        more = moving[0].shape[len(shapes[0]) :]  # a random key is one entry of two words
        pool = np.concatenate([x.reshape(-1, *more) for x in moving])
        starts = np.cumsum([0, *map(math.prod, shapes)])
        places = [np.arange(a, b).reshape(shape) for a, b, shape in zip(starts, starts[1:], shapes, strict=False)]
        indices = [
            np.array(x.tolist(), v.aval.dtype).reshape(x.shape)
            for x, v in zip(known, equation.invars[len(moving) :], strict=True)
        ]
        with jax.ensure_compile_time_eval():
            found = np.asarray(
                equation.primitive.bind(*map(jnp.asarray, places), *map(jnp.asarray, indices), **equation.params)
            )
        if found.size and (found.min() < 0 or found.max() >= len(pool)):
            raise NotCovered(f"{name} out of bounds")
        return pool[found.ravel()].reshape((*found.shape, *more))

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

    def _arg(self, equation: Any, x: Values, better: str) -> Values:
        """The first place of the largest or smallest."""
        (axis,) = equation.params["axes"]
        rows = np.moveaxis(x, axis, -1)
        out = np.empty(rows.shape[:-1], object)
        for place in np.ndindex(*out.shape):
            best, where = rows[place][0], 0
            for i, candidate in enumerate(rows[place][1:], start=1):
                # The first that is no number wins over all that are.
                none = self.code.value(
                    "and", self.code.value("ne", candidate, candidate), self.code.value("eq", best, best)
                )
                wins = self.code.value("or", self.code.value(better, candidate, best), none)
                best, where = select(self.code, wins, best, candidate), select(self.code, wins, where, i)
            out[place] = where
        return out

    def rule_argmin(self, equation: Any, x: Values) -> Values:
        return self._arg(equation, x, "lt")

    def rule_argmax(self, equation: Any, x: Values) -> Values:
        return self._arg(equation, x, "gt")

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

    def rule_scatter_add(self, equation: Any, operand: Values, indices: Values, updates: Values) -> Values:
        return self._scattered(equation, operand, indices, updates, add)

    def rule_scatter_mul(self, equation: Any, operand: Values, indices: Values, updates: Values) -> Values:
        return self._scattered(equation, operand, indices, updates, multiply)

    def rule_scatter(self, equation: Any, operand: Values, indices: Values, updates: Values) -> Values:
        return self._scattered(equation, operand, indices, updates, lambda _, old, new: new)

    def _scattered(
        self, equation: Any, operand: Values, indices: Values, updates: Values, rule: Callable[..., Any]
    ) -> Values:
        """With known indices: where each update goes is found by sending a one there."""
        if any(not constant(x) for x in indices.ravel()):
            raise NotCovered("scatter with indices that are computed")
        settings = {
            k: v
            for k, v in equation.params.items()
            if k in ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        }
        with jax.ensure_compile_time_eval():
            where = jnp.asarray(np.array(indices.tolist(), equation.invars[1].aval.dtype).reshape(indices.shape))
            ones = jnp.eye(updates.size).reshape(updates.size, *updates.shape)
            reached = np.asarray(
                jax.vmap(lambda u: jax.lax.scatter_add(jnp.zeros(operand.shape), where, u, **settings))(ones)
            )
        out = operand.copy().ravel()
        for update, row in zip(updates.ravel(), reached.reshape(updates.size, -1), strict=True):
            for place in np.nonzero(row)[0]:
                out[place] = rule(self.code, out[place], update)
        return out.reshape(operand.shape)

    # --- other things -----------------------------------------------------------------------------------------------
    def rule_integer_pow(self, equation: Any, x: Values) -> Values:
        return self.each(lambda code, entry: power(code, entry, equation.params["y"]), [x])

    def rule_convert_element_type(self, equation: Any, x: Values) -> Values:
        before, after = (np.dtype(v.aval.dtype) for v in (equation.invars[0], equation.outvars[0]))
        old, new = before.kind.replace("u", "i"), after.kind.replace("u", "i")
        if old == new:
            return (
                x
                if old != "i" or (after.itemsize >= before.itemsize and after.kind == before.kind)
                else self.words(equation, x, after)
            )
        if new == "f":
            return self.each(lambda code, entry: float(entry) if constant(entry) else code.value("to f", entry), [x])
        if new == "i" and old == "f" and after != jax.dtypes.canonicalize_dtype(int):
            raise NotCovered(f"real numbers made {after}")
        if any(constant(entry) for entry in x.ravel()) and old == "f":
            raise NotCovered("known real numbers made whole, beside others")
        return self.each(
            lambda code, entry: (
                {"i": int, "b": bool}[new](entry) if constant(entry) else code.value(f"to {new}", entry)
            ),
            [x],
        )

    def rule_clamp(self, equation: Any, low: Values, x: Values, high: Values) -> Values:
        return self.each(ELEMENTWISE["min"], [self.each(ELEMENTWISE["max"], [low, x]), high])

    def rule_unstack(self, equation: Any, x: Values) -> list[Values]:
        return _rows(np.moveaxis(x, equation.params.get("axis", 0), 0))

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

    def rule_dynamic_slice(self, equation: Any, x: Values, *start: Values) -> Values:
        """A choice among all places where the slice may begin."""
        sizes = equation.params["slice_sizes"]
        return self._chosen(
            [n - size for n, size in zip(x.shape, sizes, strict=True)],
            start,
            lambda place: x[tuple(slice(p, p + size) for p, size in zip(place, sizes, strict=True))],
        )

    def rule_dynamic_update_slice(self, equation: Any, x: Values, update: Values, *start: Values) -> Values:
        def put(place: tuple[int, ...]) -> Values:
            out = x.copy()
            out[tuple(slice(p, p + size) for p, size in zip(place, update.shape, strict=True))] = update
            return out

        return self._chosen([n - size for n, size in zip(x.shape, update.shape, strict=True)], start, put)

    def rule_gather(self, equation: Any, x: Values, indices: Values) -> Values:
        """With indices that are computed: each slice a choice among all places where it may begin; none beyond the ends but NaN."""
        p, numbers = equation.params, equation.params["dimension_numbers"]
        if getattr(numbers, "operand_batching_dims", ()):
            raise NotCovered("gather with indices that are computed, in batches")
        sizes, gone = p["slice_sizes"], numbers.collapsed_slice_dims
        last = [n - size for n, size in zip(x.shape, sizes, strict=True)]
        fills = str(p["mode"]).endswith("FILL_OR_DROP")

        def slice_at(index: Values) -> Values:
            start = [filled((), [0]) for _ in x.shape]
            for axis, i in zip(numbers.start_index_map, index, strict=True):
                start[axis] = filled((), [i])
            cut = lambda place: np.squeeze(
                x[tuple(slice(k, k + size) for k, size in zip(place, sizes, strict=True))], axis=tuple(gone)
            )
            found = self._chosen(last, start, cut)
            if fills and any(
                constant(i) and not 0 <= i <= last[axis] for axis, i in zip(numbers.start_index_map, index, strict=True)
            ):
                raise NotCovered("gather out of bounds")
            beyond = [
                self.code.value("gt" if high else "lt", i, last[axis] if high else 0)
                for axis, i in zip(numbers.start_index_map, index, strict=True)
                if not constant(i)
                for high in (0, 1)
            ]
            if not fills or not beyond:
                return found
            if equation.outvars[0].aval.dtype.kind != "f" or p.get("fill_value") is not None:
                raise NotCovered("gather with indices that may be out of bounds")
            outside = functools.reduce(lambda a, b: self.code.value("or", a, b), beyond)
            return self.each(lambda code, entry: select(code, outside, entry, math.nan), [found])

        batch = indices.shape[:-1]
        parts = [slice_at(indices[place]) for place in np.ndindex(*batch)]
        stacked = np.stack(parts).reshape(*batch, *parts[0].shape)
        # The axes of the slices go where the result has them.
        rank, offsets = stacked.ndim, list(numbers.offset_dims)
        batches = [k for k in range(rank) if k not in offsets]
        order = np.empty(rank, int)
        order[[*batches, *offsets]] = range(rank)
        return stacked.transpose(*order)

    def _chosen(
        self, last: Sequence[int], start: Sequence[Values], make: Callable[[tuple[int, ...]], Values]
    ) -> Values:
        """make(place) at the place that is computed; indices beyond the ends are those at the ends."""
        firsts = [s.item() for s in start]
        ranges = [
            [min(max(int(first), 0), most)] if constant(first) else range(most + 1)
            for first, most in zip(firsts, last, strict=True)
        ]
        places = list(itertools.product(*ranges))
        at_least = lambda first, p: self.code.value("ge", first, p)
        # From the first place on, each later one takes over where the index has reached it.
        out = make(places[0])
        for place in places[1:]:
            reached = [
                at_least(first, p) for first, p in zip(firsts, place, strict=True) if not constant(first) and p > 0
            ]
            which = functools.reduce(lambda a, b: self.code.value("and", a, b), reached)
            out = self.each(lambda code, old, new, w=which: select(code, w, old, new), [out, make(place)])
        return out

    # --- loops and branches -----------------------------------------------------------------------------------------
    def rule_while(self, equation: Any, *operands: Values) -> list[Values]:
        p = equation.params
        tests, rest = operands[: p["cond_nconsts"]], operands[p["cond_nconsts"] :]
        body, begin = rest[: p["body_nconsts"]], rest[p["body_nconsts"] :]
        shapes = [x.shape for x in begin]
        test = lambda flat: self.read(p["cond_jaxpr"], [*tests, *arrays(flat, shapes)])[0].item()
        step = lambda flat: _flat(self.read(p["body_jaxpr"], [*body, *arrays(flat, shapes)]))
        flat = _flat(begin)
        begins = test(flat)
        if begins is False:
            return list(begin)
        if begins is True:
            # The first round stands before the loop: all lanes take it, and what is known at the start folds away.
            flat = step(flat)
        return arrays(self.code.loop(flat, test, step), shapes)

    def rule_cond(self, equation: Any, which: Values, *operands: Values) -> list[Values]:
        branches = equation.params["branches"]
        if constant(which.item()):
            return self.read(branches[int(which.item())], operands)
        cases = [lambda branch=branch: _flat(self.read(branch, operands)) for branch in branches]
        return arrays(self.code.branch(which.item(), cases), [v.aval.shape for v in equation.outvars])

    def rule_scan(self, equation: Any, *operands: Values) -> list[Values]:
        p = equation.params
        if p["length"] > UNROLLED:
            raise NotCovered(f"a scan of {p['length']} steps")
        constants, carried = scan_sizes(equation)
        fixed, carry, xs = (
            operands[:constants],
            list(operands[constants : constants + carried]),
            operands[constants + carried :],
        )
        each, kept = [_rows(x) for x in xs], []
        for i in reversed(range(p["length"])) if p["reverse"] else range(p["length"]):
            results = self.read(p["jaxpr"], [*fixed, *carry, *(rows[i] for rows in each)])
            carry = results[:carried]
            kept.append(results[carried:])
        kept = kept[::-1] if p["reverse"] else kept
        ys = [
            np.stack(y) if p["length"] else np.empty(v.aval.shape, object)
            for y, v in zip(zip(*kept, strict=True), equation.outvars[carried:], strict=True)
        ]
        return [*carry, *ys]

    def rule_custom_linear_solve(self, equation: Any, *operands: Values) -> list[Values]:
        """By its own solver."""
        lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
        before = lengths.matvec + lengths.vecmat
        right = operands[sum(lengths) :]
        return self.read(jaxprs.solve, [*operands[before : before + lengths.solve], *right])


def _parts(equation: Any) -> list[tuple[int, Any]]:
    """The programs inside an equation, and how often each is written."""
    p = equation.params
    if equation.primitive.name == "scan":
        return [(min(p["length"], UNROLLED), p["jaxpr"])]
    return [(1, x) for x in (p.get("body_jaxpr"), *p.get("branches", ()), inside(equation)) if x is not None]


def operations(program: Any) -> int:
    """About how many operations on single values a program takes: a look at the shapes, before any of them is written."""
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
    """The names of all operations of a program."""
    equations = getattr(program, "jaxpr", program).eqns
    return {e.primitive.name for e in equations}.union(*(primitives(part) for e in equations for _, part in _parts(e)))


def _rows(x: Values) -> list[Values]:
    """x[0], x[1], … as arrays, where a single value is one too: x[i] itself would be the value."""
    return [x[i : i + 1].reshape(x.shape[1:]) for i in range(len(x))]


def _flat(arrays: Sequence[Values]) -> list[Any]:
    return [x for array in arrays for x in array.ravel()]


def arrays(flat: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> list[Values]:
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [filled(shape, flat[end - math.prod(shape) : end]) for shape, end in zip(shapes, ends, strict=True)]
