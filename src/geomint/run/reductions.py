"""Reductions over the members of an ensemble: what the user states. Mean, Quantiles, Histogram.

A reduction has two stages. `of_tile` reduces the members of one tile (see engines/tiles.py) inside a compiled program
(tile_reduction.py), on the device that has their rows. `joined` combines the results of all tiles on the host, one tile
after another in their order. Tiles depend on the number of members alone, so that no number of a result depends on the
devices or processes. Quantiles of tiles can't be combined: there `of_tile` returns the values, and `joined` sorts all.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engines.xla import Spread, spread_over
from ..errors import InputError, nearest
from ..numerics.compilation import jit
from ..numerics.module import Module
from ..system.checks import as_array, plain_scalar, refused, shown, vector, whole
from ..system.mechanics import real_array
from ..system.system import Stated, as_function

TileResult = dict[str, Any]  # the result of a reduction for one tile, by name; on the host with a leading axis of rows
GROUPS = ("momentum_maps", "watched")  # groups of saved quantities


class Column(Module):
    """A saved quantity, by its name."""

    name: str = eqx.field(static=True)

    def among(self, seen: dict[str, Any]) -> Any:
        named = {name: x for group in GROUPS for name, x in seen.get(group, {}).items()} | {
            name: x for name, x in seen.items() if name not in GROUPS
        }
        if self.name not in named:
            raise InputError(
                f"reduce: no quantity {self.name!r} is saved in this run."
                + nearest(self.name, named)
                + " A function of (q, p) can be given as well."
            )
        return named[self.name]


class Reduction(Module):
    """The base of all reductions: a quantity, and the statistics of its values."""

    of: eqx.AbstractVar[Any]

    def values(self, spread: Spread, system: Stated, seen: dict[str, Any]) -> Array:
        """The quantity of each member, (members, *shape)."""
        if isinstance(self.of, Column):
            x = self.of.among(seen)
        else:
            name = f"reduce: the function {type(self).__name__}(of=...)"
            look = lambda stated, q, p: _one_array(name, stated.call(self.of, q, p, name=name))
            x = spread_over(look, spread, system, seen["q"], seen["p"])
        return jnp.asarray(x, seen["q"].dtype)

    @abc.abstractmethod
    def of_tile(self, x: Array, valid: Array) -> TileResult:
        """Reduce the values (members, *shape) of a tile; `valid` is the mask of members that count."""

    @abc.abstractmethod
    def joined(self, tiles: Sequence[TileResult], members: np.ndarray) -> dict[str, Any]:
        """The result in each row, from the parts of all tiles and the number of members that count."""

    @property
    def settings(self) -> dict[str, np.ndarray]:
        """Arrays that define the reduction besides the quantity; an archive has them."""
        return {}

    @classmethod
    def restored(cls, of: Any, settings: dict[str, np.ndarray]) -> Self:
        """The reduction of a quantity with these settings."""
        make: Any = cls  # the arguments of the kinds differ
        return make(of, *settings.values())

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.of.name!r})"
            if isinstance(self.of, Column)
            else f"{type(self).__name__}(a function)"
        )


def stated_quantity(of: Any, callee: str) -> Any:
    if isinstance(of, Column):
        return of
    if isinstance(of, type) or not (isinstance(of, str) or callable(of)):
        raise refused(of, "the name of a saved quantity or a function of (q, p)", "of", callee)
    return Column(str(of)) if isinstance(of, str) else as_function("of", of)


def _one_array(name: str, x: Any) -> Array:
    """The result of the user's function; a list of arrays is refused, not stacked."""
    if isinstance(x, (tuple, list)):
        raise InputError(f"{name} must return a number or an array of real numbers, not a {type(x).__name__}.")
    return real_array(name, x)


def _over_values(valid: Array, x: Array) -> Array:
    """The mask of members, broadcastable to values (members, *shape)."""
    return valid.reshape(valid.shape + (1,) * (x.ndim - 1))


def _over_rows(n: np.ndarray, x: np.ndarray) -> np.ndarray:
    """One number for each row, broadcastable to (rows, …)."""
    return n.reshape(n.shape + (1,) * (x.ndim - 1))


class Mean(Reduction):
    """The mean over members and their standard deviation, √(Σ(x − mean)²/n): `mean` and `standard_deviation`, both
    (saved, *shape)."""

    of: Any

    def __init__(self, of: str | Callable):
        self.of = stated_quantity(of, "Mean")

    def of_tile(self, x: Array, valid: Array) -> TileResult:
        mask, n = _over_values(valid, x), jnp.maximum(jnp.sum(valid), 1)
        mean = jnp.sum(jnp.where(mask, x, 0), axis=0) / n
        return {"mean": mean, "squares": jnp.sum(jnp.where(mask, (x - mean) ** 2, 0), axis=0), "number": jnp.sum(valid)}

    def joined(self, tiles: Sequence[TileResult], members: np.ndarray) -> dict[str, Any]:
        """Σ nₖ meanₖ / n, and Σ(x − mean)² = Σ (squaresₖ + nₖ (meanₖ − mean)²)."""
        n = _over_rows(np.where(members > 0, members, np.nan), tiles[0]["mean"])
        weights = [_over_rows(t["number"], t["mean"]) for t in tiles]
        # Summed one tile after another: the order in which numpy.sum adds depends on the shape, and so on the chunk.
        mean = sum(w * t["mean"] for w, t in zip(weights, tiles, strict=True)) / n
        squares = sum(t["squares"] + w * (t["mean"] - mean) ** 2 for w, t in zip(weights, tiles, strict=True))
        return {"mean": mean, "standard_deviation": np.sqrt(squares / n)}


class Histogram(Reduction):
    """How many members are in each bin: `counts`, (saved, bins, *shape), and `edges`.

    bins:   the edges, increasing; or a number of equal bins, with range=(low, high). A bin includes its lower edge,
            the last bin both edges; values outside are not counted (as in numpy.histogram).
    """

    of: Any
    edges: Any

    def __init__(self, of: str | Callable, bins: Any, range: tuple[float, float] | None = None):
        self.of = stated_quantity(of, "Histogram")
        if range is None and plain_scalar(bins) is not None:
            raise InputError(
                "Histogram: give bins= as edges, or their number and range=(low, high); the range can't be known "
                "before the run."
            )
        if range is None:
            edges = as_array(bins, "bins", "Histogram")
        else:
            low, high = vector(range, "range", "Histogram", size=2)
            count = whole(bins, "bins", "Histogram", least=1, most=10**6)
            edges = np.linspace(low, high, count + 1, dtype=jnp.result_type(float))
        if edges.ndim != 1 or len(edges) < 2 or not np.all(np.isfinite(edges)) or not np.all(np.diff(edges) > 0):
            raise InputError(
                "Histogram(bins=..., range=...): the edges must be at least two numbers, in increasing order."
            )
        self.edges = edges

    def of_tile(self, x: Array, valid: Array) -> TileResult:
        bins = len(self.edges) - 1
        place = jnp.searchsorted(self.edges, x, side="right") - 1
        place = jnp.where(x == self.edges[-1], bins - 1, place)
        # Values that do not count go into an extra bin behind the last one.
        place = jnp.where(_over_values(valid, x) & (place >= 0), place, bins).reshape(len(x), -1)
        count = lambda p: jnp.zeros(bins + 1, int).at[p].add(1)[:bins]
        return {"counts": jax.vmap(count, in_axes=1, out_axes=1)(place).reshape(bins, *x.shape[1:])}

    def joined(self, tiles: Sequence[TileResult], members: np.ndarray) -> dict[str, Any]:
        return {"counts": sum(t["counts"] for t in tiles)}

    @property
    def settings(self) -> dict[str, np.ndarray]:
        return {"edges": np.asarray(self.edges)}


class Quantiles(Reduction):
    """Quantiles over members: `quantiles`, (saved, levels, *shape), and `levels`. They are exact, with linear
    interpolation between two members as in numpy.quantile; levels 0 and 1 are the smallest and the largest value."""

    of: Any
    levels: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, of: str | Callable, levels: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)):
        self.of = stated_quantity(of, "Quantiles")
        self.levels = vector([levels] if plain_scalar(levels) is not None else levels, "levels", "Quantiles")
        if not all(0 <= x <= 1 for x in self.levels):
            raise InputError(f"Quantiles: levels are numbers from 0 to 1, not {shown(levels)}.")

    def of_tile(self, x: Array, valid: Array) -> TileResult:
        return {"values": jnp.where(_over_values(valid, x), x, jnp.nan)}

    def joined(self, tiles: Sequence[TileResult], members: np.ndarray) -> dict[str, Any]:
        below, above, share = self._ranks(members)
        lower, upper = _order_statistics([t["values"] for t in tiles], np.stack([below, above]))
        share = share.reshape(share.shape + (1,) * (lower.ndim - 2))
        apart = upper - lower
        # As numpy interpolates: exact at both ends.
        found = np.where(share < 0.5, lower + apart * share, upper - apart * (1 - share))
        return {"quantiles": np.where(_over_rows(members, found) > 0, found, np.nan)}

    def _ranks(self, members: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The ranks of the two sorted members between which a quantile lies, and the fraction between them; each
        (rows, levels)."""
        last = np.maximum(members - 1, 0)[:, None]
        place = last * np.asarray(self.levels)
        below = np.floor(place).astype(int)
        return below, np.minimum(below + 1, last), place - below

    @property
    def settings(self) -> dict[str, np.ndarray]:
        return {"levels": np.asarray(self.levels)}


def _order_statistics(tiles: Sequence[Any], places: np.ndarray) -> np.ndarray:
    """Order statistics of values (rows, members, *shape), given in tiles: the values at the ranks `places`,
    (2, rows, levels), once the members are sorted; (2, rows, levels, *shape). Values that do not count are NaN, which
    sorts behind all others."""
    if all(isinstance(x, jax.Array) for x in tiles) and tiles[0].devices().pop().platform != "cpu":
        first, rows, room = tiles[0].devices().pop(), places.shape[1], tiles[0].shape[0]
        padded = np.pad(places, ((0, 0), (0, room - rows), (0, 0)))  # one compiled program for chunks of any length
        return np.asarray(_order_statistics_on_gpu([jax.device_put(x, first) for x in tiles], padded, rows))[:, :rows]
    # On a CPU numpy.partition takes a twentieth of the time of XLA's sort.
    values = np.moveaxis(np.concatenate([np.asarray(x) for x in tiles], axis=1), 1, -1)
    out = [
        np.partition(row, np.unique(places[:, i]), axis=-1)[..., places[:, i]]
        for i, row in enumerate(values[: places.shape[1]])
    ]
    return np.moveaxis(np.stack(out), (0, -2, -1), (1, 0, 2))


@jit
def _order_statistics_on_gpu(tiles: list[Array], places: Array, rows: Any) -> Array:
    """`_order_statistics` on a GPU, row by row: this needs memory for a sorted copy of one row only."""
    values = jnp.concatenate(tiles, axis=1)
    shape = (2, places.shape[1], places.shape[2], *values.shape[2:])
    take = lambda i, out: out.at[:, i].set(jnp.sort(values[i], axis=0)[places[:, i]])
    return jax.lax.fori_loop(0, rows, take, jnp.zeros(shape, values.dtype))


Reductions = dict[str, Reduction]  # by the names that the user gave


def checked(reduce: Any) -> Reductions:
    """Check the argument reduce=; the reductions in the order of their names."""
    if not isinstance(reduce, Mapping):
        raise InputError(
            f'reduce must be a mapping such as {{"energy": gm.Mean("energy")}}, not {type(reduce).__name__}.'
        )
    for name, reduction in reduce.items():
        if not isinstance(name, str) or "/" in name or not name:
            raise InputError(f"reduce: a name is a text without '/', not {shown(name)}.")
        if not isinstance(reduction, Reduction):
            raise InputError(
                f"reduce[{name!r}] must be gm.Mean(...), gm.Quantiles(...), gm.Histogram(...) or "
                f"gm.RadialDistribution(...), not {shown(reduction)}."
            )
    return dict(sorted(reduce.items()))
