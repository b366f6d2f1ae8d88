"""The structure of an operator that a method will solve with, looked at once before the run and remembered."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..compilation import jit
from ..linalg import Plan, find
from ..linalg.structure import TINY

# product(system, x, v) = K(x) v on flat v, a function of the module (it is part of a key).
Product = Callable[[Any, Array, Array], Array]
_plans: dict[Any, Plan] = {}


def plan_for(product: Product, starts: Sequence[tuple[Any, Any]], n: int, kind: str, tiny: int = TINY) -> Plan:
    """The plan for K(x), of n unknowns, near the starts (system, q)."""
    key = (product, kind, n, *(start_key(system, q) for system, q in starts))
    if key not in _plans:
        while len(_plans) >= 64:
            _plans.pop(next(iter(_plans)))
        _plans[key] = _find(product, starts, n, kind, tiny)
    return _plans[key]


def start_key(system: Any, q: Any) -> Any:
    """What a pattern may depend on: the program, the numbers in it, the point."""
    numbers = tuple(None if isinstance(x, Tracer) else np.asarray(x).tobytes() for x in (*jax.tree.leaves(system), q))
    return jax.tree.structure(system), numbers, np.shape(q)


@functools.partial(jit, static_argnums=0)
def _probe(product: Product, system: Any, points: Array, vectors: Array) -> Array:
    """(vector, row): whether K(x) v is nonzero in that row at any of the points."""
    over = jax.vmap(jax.vmap(functools.partial(product, system), (0, None)), (None, 0))
    return jnp.any(over(points, vectors) != 0, axis=1)


def concrete(system: Any, q: Any, random: np.random.Generator) -> tuple[Any, np.ndarray]:
    """The start with numbers in place of what is traced (a gradient is being taken)."""
    known = lambda x: random.uniform(0.5, 1.5, np.shape(x)) if isinstance(x, Tracer) else x
    return jax.tree.map(known, system), random.normal(size=np.shape(q)) if isinstance(q, Tracer) else np.asarray(q)


def _find(product: Product, starts: Sequence[tuple[Any, Any]], n: int, kind: str, tiny: int) -> Plan:
    """K is probed at three points near each start, lest an entry vanish by chance."""
    random = np.random.default_rng(7)
    places = []
    for start in starts:
        system, q = concrete(*start, random)
        size = 1e-3 * max(1.0, float(np.max(np.abs(q), initial=0.0)))
        places.append((system, np.stack([q, *(q + size * random.normal(size=q.shape) for _ in range(2))])))

    def products(vectors: np.ndarray) -> np.ndarray:
        with jax.ensure_compile_time_eval():
            return np.any([np.asarray(_probe(product, system, points, vectors)) for system, points in places], axis=0)

    return find(products, n, kind, tiny)
