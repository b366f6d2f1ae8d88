"""What one pair of particles contributes: its energy S(s) φ and the derivatives of it, and which pairs there are.

Everything here is static, that is, part of what is compiled. Functions of one pair are written element by element, so
that the same function serves arrays (pair_sums.py), machine code (pair_code.py) and GPU kernels (pair_gpu.py).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from jaxtyping import Array

from ..errors import InputError
from ..numerics.hints import materialize


class Frozen:
    """An array of integers that is compared and hashed by its entries."""

    def __init__(self, array: Any):
        self.array = np.ascontiguousarray(array, np.int64)
        self.array.setflags(write=False)
        self._key = (self.array.shape, self.array.tobytes())
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Frozen) and self._hash == other._hash and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> Any:
        return self.array

    def __setstate__(self, array: Any) -> None:
        Frozen.__init__(self, array)

    def __repr__(self) -> str:
        return f"Frozen{self.array.shape}"


class Chosen(NamedTuple):
    """The particles of a sum, and the pairs among them that are left out, by their places among these particles."""

    which: np.ndarray  # (m,)
    excluded: np.ndarray  # (k, 2), the smaller place first, sorted, each once


@dataclasses.dataclass(frozen=True)
class Term:
    """The energy S(s) φ of a pair and the pairs that have it.

    names:      of the parameters of a site; φ then has two more arguments, the parameters of the two sites by name
    on:         the particles that have it, None for all
    exclude:    pairs that do not, (k, 2)
    molecules:  pairs inside each group of so many particles do not
    """

    phi: Callable
    squared: bool
    cutoff: float | None = None
    onset: float | None = None
    edges: tuple[float, ...] | None = None
    names: tuple[str, ...] = ()
    on: Frozen | None = None
    exclude: Frozen | None = None
    molecules: int | None = None

    # --- one pair ---------------------------------------------------------------------------------------------------
    def energy(self, s: Array, here: Sequence[Array] = (), there: Sequence[Array] = ()) -> Array:
        """S φ at squared distances s, element by element; 0 from the cut-off on."""
        if self.cutoff is None or self.onset is None:
            return self._phi(s, here, there)
        on, end = self.onset**2, self.cutoff**2
        inside = s < end
        s = jnp.where(inside, s, on)
        x = jnp.clip((s - on) / (end - on), 0.0, 1.0)
        smooth = 1.0 - x * x * x * (10.0 - x * (15.0 - 6.0 * x))
        return jnp.where(inside, smooth * self._phi(s, here, there), 0.0)

    def _phi(self, s: Array, here: Sequence[Array], there: Sequence[Array]) -> Array:
        sites = [dict(zip(self.names, x, strict=True)) for x in (here, there)] if self.names else []
        try:
            energy = self.phi(s if self.squared else jnp.sqrt(s), *sites)
        except KeyError as error:
            if not sites or error.args[:1] in [(name,) for name in self.names]:
                raise
            raise InputError(
                f"PairPotential: phi asks for the parameter {error} of a particle; sites has "
                f"{', '.join(map(repr, self.names))}."
            ) from error
        shape = jnp.broadcast_shapes(s.shape, *(jnp.shape(x) for x in (*here, *there)))
        if jnp.shape(energy) != shape and not isinstance(energy, int | float):
            raise InputError(
                f"PairPotential: phi must return the energy of each distance in its argument, an array of shape "
                f"{shape}; it returns shape {jnp.shape(energy)}."
            )
        return jnp.broadcast_to(jnp.asarray(energy, s.dtype), shape)

    def slope(self, s: Array, here: Sequence[Array] = (), there: Sequence[Array] = ()) -> Array:
        """d(Sφ)/ds, element by element."""
        return jax.jvp(lambda x: self.energy(x, here, there), (s,), (jnp.ones_like(s),))[1]

    def derivative(self, d: Sequence[Array], along: Sequence[Sequence[Array]], here: Any, there: Any) -> list[Array]:
        """The gradient 2 φ'(s) d of the energy of a pair at the distance d, or its derivative along the directions u₁,
        u₂, …, each a list of components. It changes its sign where the two particles are exchanged."""
        if not along:
            weight = materialize(2.0 * self.slope(squared(d), here, there))
            return [weight * x for x in d]
        *before, last = along
        return jax.jvp(lambda x: self.derivative(x, before, here, there), (list(d),), (list(last),))[1]

    def nearest(self, d: Array, k: int) -> Array:
        """The component k of a difference, to the nearest image."""
        if self.edges is None:
            return d
        return d - self.edges[k] * jnp.round(d * (1.0 / self.edges[k]))

    # --- which pairs ------------------------------------------------------------------------------------------------
    def chosen(self, n: int) -> Chosen:
        """The particles and excluded pairs among n particles."""
        return _chosen(self.on, self.exclude, self.molecules, n)

    def pairs(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """All pairs (i, j) with i < j, by the numbers of the particles."""
        return _pairs(self.on, self.exclude, self.molecules, n)

    def number_of_pairs(self, n: int) -> int:
        which, excluded = self.chosen(n)
        return len(which) * (len(which) - 1) // 2 - len(excluded)


def squared(components: Sequence[Array]) -> Array:
    total = components[0] * components[0]
    for d in components[1:]:
        total = total + d * d
    return total


@functools.lru_cache(64)
def _chosen(on: Frozen | None, exclude: Frozen | None, molecules: int | None, n: int) -> Chosen:
    which = np.arange(n) if on is None else on.array
    place = np.full(n, -1)
    place[which] = np.arange(len(which))
    found = [np.empty((0, 2), np.int64)]
    if exclude is not None:
        found.append(place[exclude.array])
    if molecules is not None and molecules > 1:
        first, second = np.triu_indices(molecules, 1)
        inside = molecules * np.arange(n // molecules)[:, None]
        found.append(place[np.stack([inside + first, inside + second], axis=-1).reshape(-1, 2)])
    pairs = np.sort(np.concatenate(found), axis=1)
    return Chosen(which, np.unique(pairs[pairs[:, 0] >= 0], axis=0))


@functools.lru_cache(16)
def _pairs(on: Frozen | None, exclude: Frozen | None, molecules: int | None, n: int) -> tuple[np.ndarray, np.ndarray]:
    which, excluded = _chosen(on, exclude, molecules, n)
    i, j = np.triu_indices(len(which), 1)
    left_out = np.isin(i * len(which) + j, excluded[:, 0] * len(which) + excluded[:, 1])
    return which[i[~left_out]], which[j[~left_out]]


@functools.lru_cache(256)
def pair_program(term: Term, order: int, dimension: int) -> Any:
    """The jaxpr of one pair, on single numbers: the components of q_i − q_j (to the nearest image), those of the
    differences of the directions, the parameters of i and those of j, to the energy or to the components of its
    derivative."""
    vectors, sites = max(order, 1), len(term.names)

    def one(*x: Any) -> Any:
        parts = [list(x[k * dimension : (k + 1) * dimension]) for k in range(vectors)]
        rest = x[vectors * dimension :]
        here, there = rest[:sites], rest[sites:]
        if order == 0:
            return [term.energy(squared(parts[0]), here, there)]
        return term.derivative(parts[0], parts[1:], here, there)

    count = vectors * dimension + 2 * sites
    closed = jax.make_jaxpr(one)(*[jax.ShapeDtypeStruct((), jnp.result_type(float))] * count)
    jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    return closed.replace(jaxpr=jaxpr)
