"""The arguments of a `PairPotential`, checked."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import InputError
from ..system.checks import as_array, shown
from .box import Box
from .pair_terms import Frozen, Term

# Of the mean distance between neighbours. Of a run that can't start or has failed, pairs that touch are named, and
# close pairs that have nearly all of the energy of the pairs of neighbours.
TOUCHING, CLOSE, NEIGHBOURS = 1e-6, 0.3, 1.5
NEARLY_ALL = 0.999


def check_arguments(phi: Any, sites: Any) -> None:
    """Raise an InputError where φ can't be called with a distance, and the two particles where there are sites."""
    try:
        inspect.signature(phi).bind(*[None] * (3 if sites else 1))
    except TypeError:
        must = "(r, a, b): sites are given" if sites else "(r): no sites are given"
        raise InputError(f"PairPotential: phi must be a function of {must}.") from None
    except ValueError:  # a function that has no signature, as some of numpy
        return


def checked_sites(sites: Any) -> dict[str, Any]:
    """Arrays by name, each of one number for each particle."""
    if sites is None:
        return {}
    if not isinstance(sites, Mapping) or not all(isinstance(name, str) for name in sites):
        raise InputError(
            f'PairPotential(sites=...) must be numbers by name, such as {{"charge": charges}}, not {shown(sites)}.'
        )
    out = {}
    for name, x in sorted(sites.items()):
        x = as_array(x, f"sites[{name!r}]", "PairPotential")
        if x.ndim != 1:
            raise InputError(
                f"PairPotential(sites=...): {name!r} must be one number for each particle, an array (n,), not "
                f"{x.shape}."
            )
        out[name] = jnp.asarray(x) if isinstance(x, Tracer) else x
    return out


def checked_indices(on: Any) -> Frozen | None:
    if on is None:
        return None
    array = _whole_numbers(on, "on", "the numbers of particles, such as range(0, n, 3)")
    if array.ndim != 1 or not len(array) or len(np.unique(array)) < len(array):
        raise InputError(f"PairPotential(on=...) must be the numbers of particles, each once, not {shown(on)}.")
    return Frozen(array)


def checked_pairs(exclude: Any) -> Frozen | None:
    if exclude is None or (hasattr(exclude, "__len__") and not len(exclude)):
        return None
    array = _whole_numbers(exclude, "exclude", "pairs of particles, such as [(0, 1), (0, 2)]")
    if array.ndim != 2 or array.shape[1] != 2 or np.any(array[:, 0] == array[:, 1]):
        raise InputError(
            f"PairPotential(exclude=...) must be pairs of different particles, such as [(0, 1), (0, 2)], not "
            f"{shown(exclude)}."
        )
    return Frozen(array)


def _whole_numbers(x: Any, name: str, must: str) -> np.ndarray:
    refusal = InputError(f"PairPotential({name}=...) must be {must}, not {shown(x)}.")
    if isinstance(x, Tracer):
        raise refusal
    try:
        array = np.asarray(x if isinstance(x, np.ndarray) else list(x))
    except (TypeError, ValueError):
        raise refusal from None
    if array.dtype.kind not in "iu" or np.any(array < 0):
        raise refusal
    return array


def nearest_pair(term: Term, box: Box | None, q: Any, sites: Sequence[Any] = ()) -> str:
    """The closest pair that interacts, if φ may be singular there or the pairs that are about as close have nearly all
    of the energy, else "".

    sites: the parameters of the particles, (n,) each, in the order of term.names
    """
    q = np.asarray(q, float)
    which, excluded = term.chosen(len(q))
    if len(which) < 2 or not np.all(np.isfinite(q)):
        return ""
    at = q[which] if box is None else np.mod(q[which], box.lengths)
    apart = np.max(np.ptp(at, axis=0), initial=0.0) / len(which) ** (1 / q.shape[1])  # of neighbours, on average
    i, j, r = _closer_than(CLOSE * apart, at, box, excluded)
    count = int(np.sum(r < TOUCHING * apart))
    if not count and len(r):
        i2, j2, r2 = _closer_than(NEIGHBOURS * apart, at, box, excluded)
        parameters = [jnp.asarray(x)[which] for x in sites]
        energy = np.asarray(term.energy(jnp.asarray(r2**2), *([x[k] for x in parameters] for k in (i2, j2))))
        energy, close = np.where(np.isnan(energy), np.inf, np.abs(energy)), r2 < CLOSE * apart
        count = len(r) if np.sum(energy[~close]) < (1 - NEARLY_ALL) * np.sum(energy[close]) else 0
    if not count:
        return ""
    first = int(np.argmin(r))
    more = "" if count == 1 else f", and {count - 1} more pairs are as close"
    return (
        f"particles {which[i[first]]} and {which[j[first]]} are at the distance {r[first]:.3g}{more}; move them apart"
    )


def _closer_than(reach: float, at: np.ndarray, box: Box | None, excluded: np.ndarray) -> tuple[np.ndarray, ...]:
    """The pairs that are closer, but for the excluded ones, and their distances."""
    from scipy.spatial import KDTree  # takes a while to load

    tree = KDTree(at, boxsize=None if box is None else box.lengths)
    found = np.sort(tree.query_pairs(reach, output_type="ndarray"), axis=1)
    left_out = set(map(tuple, excluded.tolist()))
    i, j = found[[pair not in left_out for pair in map(tuple, found.tolist())]].T if len(found) else found.T
    d = at[i] - at[j]
    d = d if box is None else d - np.array(box.lengths) * np.rint(d / np.array(box.lengths))
    return i, j, np.sqrt(np.sum(d**2, axis=1))
