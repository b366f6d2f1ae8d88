"""RadialDistribution: the distances of pairs of particles, counted over the members of an ensemble at every save."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..md.atoms import Atoms
from ..md.box import Box, checked_box
from ..md.distances import PAIRS, number_of_pairs, pair_counts, shells
from ..system.checks import flag, instance, shown, whole
from .reductions import Histogram, Reduction, TileResult, stated_quantity

Sites = tuple[int, ...]


class RadialDistribution(Reduction):
    """How the distances of pairs are distributed: `counts`, (saved, bins), of all members together, `distribution`,
    (saved, bins), and `edges`.

    In a periodic box the distribution is the radial distribution function g(r) = counts / (pairs · shell / volume),
    which is 1 where particles do not know of each other; in free space it is the density of the distances, counts /
    (pairs · width of the bin), whose integral over all distances is 1. `pairs` are those of all members that count.

    of:        the positions: "q", or a function of (q, p) that returns points (n, 3), such as centres of mass.
    bins, range: as for gm.Histogram; in a box up to half its shortest edge.
    atoms:     gm.md.Atoms, whose symbols `between` may use; system.atoms where the system has them.
    between:   two groups of particles, the same one or disjoint ones: symbols such as ("O", "H"), or two lists of
               numbers, which count within a molecule where `molecule` is given. None: all pairs.
    box:       the periodic box; that of `atoms` by default.
    molecule:  the number of particles in a molecule, where `atoms` does not say it.
    intramolecular:  whether pairs inside a molecule count.
    """

    of: Any
    edges: Any
    box: Box | None
    between: tuple[Sites, Sites] | None = eqx.field(static=True)  # numbers within a molecule, where there are molecules
    molecule: int = eqx.field(static=True)  # particles in a molecule; 0 without molecules
    intramolecular: bool = eqx.field(static=True)

    def __init__(
        self,
        of: str | Callable = "q",
        bins: Any = 100,
        range: tuple[float, float] | None = None,
        *,
        atoms: Atoms | None = None,
        between: tuple[Any, Any] | None = None,
        box: Box | None = None,
        molecule: int | None = None,
        intramolecular: bool = True,
    ):
        callee = "RadialDistribution"
        self.of = stated_quantity(of, callee)
        if atoms is not None:
            instance(atoms, "atoms", callee, kinds=Atoms, must='gm.md.Atoms("OHH"), or None')
        self.box = checked_box(box, callee) or (None if atoms is None else atoms.box)
        if range is None and self.box is not None and np.ndim(bins) == 0:
            range = (0.0, min(self.box.lengths) / 2)
        self.edges = Histogram("q", bins, range).edges
        self._check_edges()
        size = 0 if atoms is None else len(atoms.symbols)
        self.molecule = size if molecule is None else whole(molecule, "molecule", callee, least=0)
        self.between = _groups(between, atoms, self.molecule)
        self.intramolecular = flag(intramolecular, "intramolecular", callee)
        if not self.intramolecular and self.molecule < 2:
            raise InputError(f"{callee}(intramolecular=False): give the size of a molecule, molecule=3, or atoms=...")

    def _check_edges(self) -> None:
        if self.edges[0] < 0:
            raise InputError(f"RadialDistribution: distances begin at 0, and the first edge is {self.edges[0]:g}.")
        if self.box is not None and self.edges[-1] > (1 + 1e-12) * min(self.box.lengths) / 2:
            raise InputError(
                f"RadialDistribution: in the box {self.box.lengths} distances are known up to half its shortest edge, "
                f"{min(self.box.lengths) / 2:g}, and the last edge of the bins is {self.edges[-1]:g}."
            )

    def _pairs(self, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Both groups among n particles, and the molecule of each particle where pairs inside one do not count."""
        size = self.molecule or n
        if n % size:
            raise InputError(f"RadialDistribution: {n} particles are not molecules of {size}.")
        molecule = None if self.intramolecular else np.arange(n) // size
        if self.between is None:
            return np.arange(n), np.arange(n), molecule
        if max(max(sites) for sites in self.between) >= size:
            raise InputError(f"RadialDistribution(between=...): there are {size} particles, numbered from 0.")
        starts = np.arange(0, n, size)[:, None]
        first, second = ((starts + np.array(sites)[None]).ravel() for sites in self.between)
        return first, second, molecule

    def of_tile(self, x: Array, valid: Array) -> TileResult:
        if x.ndim < 3 or x.shape[-1] not in (2, 3):
            raise InputError(f"RadialDistribution: positions have shape (n, 3) or (n, 2), not {x.shape[1:]}.")
        points = x.reshape(len(x), -1, x.shape[-1])
        if self.box is not None and len(self.box.lengths) != x.shape[-1]:
            raise InputError(f"RadialDistribution: the box {self.box.lengths} does not fit positions {x.shape[1:]}.")
        first, second, molecule = self._pairs(points.shape[1])
        edges = jnp.asarray(self.edges)
        count = lambda member: jnp.where(member[1], pair_counts(member[0], edges, self.box, first, second, molecule), 0)
        batch = max(1, min(len(x), PAIRS // max(1, len(first) * len(second))))
        counts = jax.lax.map(count, (points, valid), batch_size=batch)
        pairs = jnp.sum(valid) * number_of_pairs(first, second, molecule)
        return {"counts": jnp.sum(counts, axis=0), "pairs": pairs}

    def joined(self, tiles: Sequence[TileResult], members: np.ndarray) -> dict[str, Any]:
        counts = np.asarray(sum(t["counts"] for t in tiles))
        pairs = np.asarray(sum(np.asarray(t["pairs"]) for t in tiles), float)[:, None]
        edges = np.asarray(self.edges)
        width = np.diff(edges) if self.box is None else shells(edges, len(self.box.lengths)) / self.box.volume
        return {"counts": counts, "distribution": counts / np.where(pairs > 0, pairs, np.nan) / width}

    @property
    def settings(self) -> dict[str, np.ndarray]:
        first, second = self.between or ((), ())
        return {
            "edges": np.asarray(self.edges),
            "box": np.array([] if self.box is None else self.box.lengths, float),
            "first": np.array(first, float),
            "second": np.array(second, float),
            "molecules": np.array([self.molecule, self.intramolecular], float),
        }

    @classmethod
    def restored(cls, of: Any, settings: dict[str, np.ndarray]) -> Self:
        numbers = {name: np.asarray(x) for name, x in settings.items()}
        size, intramolecular = numbers["molecules"].astype(int).tolist()
        groups = tuple(numbers[name].astype(int).tolist() for name in ("first", "second"))
        return cls(
            of,
            numbers["edges"],
            between=groups if groups[0] else None,
            box=Box(numbers["box"]) if len(numbers["box"]) else None,
            molecule=size,
            intramolecular=bool(intramolecular),
        )


def _groups(between: Any, atoms: Atoms | None, size: int) -> tuple[Sites, Sites] | None:
    """The numbers of both groups, within a molecule where there are molecules."""
    if between is None:
        return None
    if isinstance(between, str) or not hasattr(between, "__len__") or len(between) != 2:
        raise InputError(
            f'RadialDistribution(between=...) is two groups, such as ("O", "H") or ([0], [1, 2]), not {shown(between)}.'
        )
    first, second = (_sites(group, atoms) for group in between)
    if first != second and set(first) & set(second):
        raise InputError(f"RadialDistribution(between={shown(between)}): give equal or disjoint groups.")
    if size and max(*first, *second) >= size:
        raise InputError(
            f"RadialDistribution(between={shown(between)}): a molecule has {size} particles, numbered from 0."
        )
    return first, second


def _sites(group: Any, atoms: Atoms | None) -> Sites:
    if isinstance(group, str):
        if atoms is None:
            raise InputError(f"RadialDistribution(between=...): give atoms=gm.md.Atoms(...) to name {shown(group)}.")
        found = tuple(i for i, name in enumerate(atoms.symbols) if name == group)
        if not found:
            raise InputError(f"RadialDistribution(between=...): {atoms} has no {shown(group)}.")
        return found
    numbers = np.asarray(group)
    if numbers.ndim != 1 or not numbers.size or numbers.dtype.kind not in "iu" or numbers.min() < 0:
        raise InputError(
            f"RadialDistribution(between=...): a group is a symbol or a list of numbers from 0, not {shown(group)}."
        )
    return tuple(sorted(set(numbers.tolist())))
