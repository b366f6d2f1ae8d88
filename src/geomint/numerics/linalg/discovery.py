"""The solver for an operator of a system: its sparsity is probed once before the run, and the plan is cached."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..cache import BoundedCache
from ..compilation import concrete_evaluation, jit
from . import Plan, find
from .structure import TINY

# product(system, x, v) = K(x) v on flat v, a function of the module (it is part of a key).
Product = Callable[[Any, Array, Array], Array]
_plans: BoundedCache[Plan] = BoundedCache(64)
TOGETHER = 2**15  # entries of vectors that are multiplied at the same time


def plan_for(product: Product, starts: Sequence[tuple[Any, Any]], n: int, kind: str, tiny: int = TINY) -> Plan:
    """The plan for K(x), of n unknowns, near the starts (system, q); `tiny` as for `structure.find`."""
    key = (product, kind, n, tiny, *(start_key(system, q) for system, q in starts))
    return _plans.get_or_make(key, lambda: _find(product, starts, n, kind, tiny))


BATCH = 1024  # members examined in one call


@functools.partial(jit, static_argnums=(0, 1))
def over_members(examine: Callable[[Any, Array], Array], own_params: bool, system: Any, q: Array) -> Array:
    """examine(system, q) for every member of an ensemble. With `own_params`, the first axis of the params is that of
    the members."""
    if not own_params:
        return jax.lax.map(lambda x: examine(system, x), q, batch_size=BATCH)
    with_own = lambda member: examine(system.with_params(member[0]), member[1])
    return jax.lax.map(with_own, (system.params, q), batch_size=BATCH)


@functools.lru_cache(64)
def _has_entries_outside(product: Product, plan: Plan) -> Callable[[Any, Array], Array]:
    v = np.random.default_rng(23).uniform(0.5, 1.5, plan.n)

    def examine(system: Any, x: Array) -> Array:
        apply = lambda v: product(system, x, v)
        whole = apply(jnp.asarray(v, x.dtype))
        return jnp.max(jnp.abs(whole - plan.product(apply, jnp.asarray(v, x.dtype)))) > 1e-12 * jnp.max(jnp.abs(whole))

    return examine


def not_covered(product: Product, plan: Plan | None, system: Any, q: Any, own_params: bool) -> np.ndarray:
    """Which members of an ensemble have entries of K at their start that a plan found from a sample of the members
    leaves out."""
    if plan is None or not plan.assembled:
        return np.zeros(len(q), bool)
    return np.asarray(over_members(_has_entries_outside(product, plan), own_params, system, q))


def start_key(system: Any, q: Any) -> Any:
    """A cache key of all that a pattern may depend on: the functions of the system, its numbers, and the point. Of
    traced numbers only shape and type are known, and only these are used (see `concrete`)."""
    known = lambda x: None if isinstance(x, Tracer) else np.asarray(x).tobytes()
    numbers = tuple((np.shape(x), jnp.result_type(x), known(x)) for x in (*jax.tree.leaves(system), q))
    return jax.tree.structure(system), numbers


@functools.partial(jit, static_argnums=0)
def _probe(product: Product, system: Any, points: Array, vectors: Array) -> Array:
    """(vector, row): whether K(x) v is nonzero in that row at any of the points. Long vectors are multiplied one by
    one: for 60,000 unknowns five times faster than all at once, whose intermediate results exceed the cache."""
    at_once = max(1, TOGETHER // vectors.shape[1])
    apply = functools.partial(product, system)

    def probe(v: Array) -> Array:
        return jnp.any(jax.lax.map(lambda x: apply(x, v) != 0, points, batch_size=min(at_once, len(points))), axis=0)

    return jax.lax.map(probe, vectors, batch_size=min(at_once, len(vectors)))


def concrete(system: Any, q: Any, random: np.random.Generator) -> tuple[Any, np.ndarray]:
    """The start with random numbers in place of traced ones (a gradient is being taken)."""
    known = lambda x: random.uniform(0.5, 1.5, np.shape(x)) if isinstance(x, Tracer) else x
    return jax.tree.map(known, system), random.normal(size=np.shape(q)) if isinstance(q, Tracer) else np.asarray(q)


def _find(product: Product, starts: Sequence[tuple[Any, Any]], n: int, kind: str, tiny: int) -> Plan:
    """The plan for K. It is probed at three points near each start, because an entry may vanish by chance at one."""
    random = np.random.default_rng(7)
    places = []
    for start in starts:
        system, q = concrete(*start, random)
        size = 1e-3 * max(1.0, float(np.max(np.abs(q), initial=0.0)))
        places.append((system, np.stack([q, *(q + size * random.normal(size=q.shape) for _ in range(2))])))

    def products(vectors: np.ndarray) -> np.ndarray:
        with concrete_evaluation():
            return np.any([np.asarray(_probe(product, system, points, vectors)) for system, points in places], axis=0)

    return find(products, n, kind, tiny)
