"""Reading and writing at indices, on arrays of single values: gather, scatter, dynamic slices."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...numerics.compilation import jit
from ...numerics.known_arrays import on_known
from .values import Code, NotCovered, Values, add, constant, filled, multiply, select


@functools.partial(jit, static_argnums=(0, 1))
def _scattered_rows(shape: tuple[int, ...], settings: tuple[tuple[str, Any], ...], where: Any, rows: Any) -> Any:
    put = lambda row: jax.lax.scatter_add(jnp.zeros(shape), where, row, **dict(settings))
    return jax.vmap(put)(rows)


class Indexing:
    """Rules of a `ScalarInterpreter`. An index that is only known when the program runs becomes a selection among all
    positions."""

    code: Code
    each: Callable[..., Values]

    @staticmethod
    def move_entries(equation: Any, *operands: Values) -> Values:
        """An operation that only moves entries. It is evaluated on the positions of the entries, which shows where each
        entry goes."""
        name = equation.primitive.name
        known = operands[1:] if name == "gather" else ()
        moving = operands[: len(operands) - len(known)]
        shapes = [v.aval.shape for v in equation.invars[: len(moving)]]
        more = moving[0].shape[len(shapes[0]) :]  # a random key is one entry and has two words
        pool = np.concatenate([x.reshape(-1, *more) for x in moving])
        starts = np.cumsum([0, *map(math.prod, shapes)])
        places = [np.arange(a, b).reshape(shape) for a, b, shape in zip(starts, starts[1:], shapes, strict=False)]
        indices = [
            np.array(x.tolist(), v.aval.dtype).reshape(x.shape)
            for x, v in zip(known, equation.invars[len(moving) :], strict=True)
        ]
        (found,) = on_known(equation, *places, *indices)
        if found.size and (found.min() < 0 or found.max() >= len(pool)):
            raise NotCovered(f"{name} out of bounds")
        return pool[found.ravel()].reshape((*found.shape, *more))

    def rule_scatter_add(self, equation: Any, operand: Values, indices: Values, updates: Values) -> Values:
        return self._scattered(equation, operand, indices, updates, add)

    def rule_scatter_mul(self, equation: Any, operand: Values, indices: Values, updates: Values) -> Values:
        return self._scattered(equation, operand, indices, updates, multiply)

    def rule_scatter(self, equation: Any, operand: Values, indices: Values, updates: Values) -> Values:
        return self._scattered(equation, operand, indices, updates, lambda _, old, new: new)

    def _scattered(
        self, equation: Any, operand: Values, indices: Values, updates: Values, rule: Callable[..., Any]
    ) -> Values:
        """Scatter with known indices. The positions of each update follow from scattering the rows of a unit matrix."""
        if any(not constant(x) for x in indices.ravel()):
            raise NotCovered("scatter with indices that are known only at run time")
        settings = tuple(
            (k, v)
            for k, v in equation.params.items()
            if k in ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        )
        where = np.array(indices.tolist(), equation.invars[1].aval.dtype).reshape(indices.shape)
        ones = np.eye(updates.size).reshape(updates.size, *updates.shape)
        with jax.ensure_compile_time_eval():
            reached = np.asarray(_scattered_rows(operand.shape, settings, where, ones))
        out = operand.copy().ravel()
        for update, row in zip(updates.ravel(), reached.reshape(updates.size, -1), strict=True):
            for place in np.nonzero(row)[0]:
                out[place] = rule(self.code, out[place], update)
        return out.reshape(operand.shape)

    def rule_dynamic_slice(self, equation: Any, x: Values, *start: Values) -> Values:
        """A selection among all positions where the slice may begin."""
        sizes = equation.params["slice_sizes"]
        return self._select_position(
            [n - size for n, size in zip(x.shape, sizes, strict=True)],
            start,
            lambda place: x[tuple(slice(p, p + size) for p, size in zip(place, sizes, strict=True))],
        )

    def rule_dynamic_update_slice(self, equation: Any, x: Values, update: Values, *start: Values) -> Values:
        def put(place: tuple[int, ...]) -> Values:
            out = x.copy()
            out[tuple(slice(p, p + size) for p, size in zip(place, update.shape, strict=True))] = update
            return out

        return self._select_position([n - size for n, size in zip(x.shape, update.shape, strict=True)], start, put)

    def rule_gather(self, equation: Any, x: Values, indices: Values) -> Values:
        """With computed indices, each slice is a selection among all positions where it may begin. In mode "fill",
        slices beyond the ends are NaN."""
        if all(constant(x) for x in indices.ravel()):
            # A slice beyond the ends gets the place −1, which is refused there; NaN would become the place 0.
            return self.move_entries(equation.replace(params={**equation.params, "fill_value": -1}), x, indices)
        p, numbers = equation.params, equation.params["dimension_numbers"]
        if getattr(numbers, "operand_batching_dims", ()):
            raise NotCovered("gather in batches with indices that are known only at run time")
        sizes, collapsed = p["slice_sizes"], numbers.collapsed_slice_dims
        last = [n - size for n, size in zip(x.shape, sizes, strict=True)]
        fills = str(p["mode"]).endswith("FILL_OR_DROP")

        def slice_at(index: Values) -> Values:
            start = [filled((), [0]) for _ in x.shape]
            for axis, i in zip(numbers.start_index_map, index, strict=True):
                start[axis] = filled((), [i])
            cut = lambda place: np.squeeze(
                x[tuple(slice(k, k + size) for k, size in zip(place, sizes, strict=True))], axis=tuple(collapsed)
            )
            found = self._select_position(last, start, cut)
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
        # Move the axes of the slices to their positions in the result.
        rank, offsets = stacked.ndim, list(numbers.offset_dims)
        batches = [k for k in range(rank) if k not in offsets]
        order = np.empty(rank, int)
        order[[*batches, *offsets]] = range(rank)
        return stacked.transpose(*order)

    def _select_position(
        self, last: Sequence[int], start: Sequence[Values], make: Callable[[tuple[int, ...]], Values]
    ) -> Values:
        """make(place) at a computed position, clamped to the ends."""
        firsts = [s.item() for s in start]
        ranges = [
            [min(max(int(first), 0), most)] if constant(first) else range(most + 1)
            for first, most in zip(firsts, last, strict=True)
        ]
        places = list(itertools.product(*ranges))
        at_least = lambda first, p: self.code.value("ge", first, p)
        # Begin with the first position; each later one replaces the result where the index is at least as large.
        out = make(places[0])
        for place in places[1:]:
            reached = [
                at_least(first, p) for first, p in zip(firsts, place, strict=True) if not constant(first) and p > 0
            ]
            which = functools.reduce(lambda a, b: self.code.value("and", a, b), reached)
            out = self.each(lambda code, old, new, w=which: select(code, w, old, new), [out, make(place)])
        return out
