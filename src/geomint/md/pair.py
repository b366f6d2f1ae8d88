"""The energy of all pairs of particles, V(q) = ½ Σ_{i≠j} φ(|q_i − q_j|), with or without a cut-off.

Without a neighbour list the sum over all pairs is one operation with derivatives of its own (pair_sums.py).

With a neighbour list the sums run over the pairs of the list, each pair from both sides, so that every particle adds up
its own force and no sum depends on an order of writing. The gradient is written out,

    ∂V/∂q_i = Σ_j 2 φ'(s_ij) (q_i − q_j),      s = |q_i − q_j|²,      φ' = dφ/ds,

since automatic differentiation would scatter the forces of the neighbours. Higher derivatives are automatic. On the CPU
XLA evaluates φ' for all entries of the list in one vectorised loop, and a loop compiled by numba (loops.py) adds up:
0.9 times the time of a hand-written loop over half of the pairs, for 4096 Lennard-Jones atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.keywords import checked_keywords
from ..numerics.module import Module
from ..system.checks import function, positive, shown, whole
from . import cells, pair_sums
from .box import Box, check_positions, checked_box
from .neighbours import NeighbourList, Neighbours
from .pair_checks import check_arguments, checked_indices, checked_pairs, checked_sites, nearest_pair
from .pair_terms import Frozen, Term, squared


class PairPotential(Module):
    """V(q) = Σ S(s) φ(s) over pairs, s = |q_i − q_j|²; with a cut-off to be used as
    System(potential=…, auxiliary=pair.neighbours(skin)). Two of them can be added: coulomb + lennard_jones.

    phi:       φ(r) for one pair, written with jax.numpy; with squared=True φ(s), which saves a square root. With
               `sites` it is φ(r, a, b), where a and b are the parameters of the two particles by name:
               lambda r, a, b: a["charge"] * b["charge"] / r. Exchanging a and b must not change it.
    cutoff:    pairs at larger distances have no energy. None: all pairs have.
    onset:     where the energy begins to be smoothed: from there to the cut-off it is multiplied by
               S = 1 − 10x³ + 15x⁴ − 6x⁵ with x from 0 to 1 in s, so that the force and its derivative are continuous.
               Default 0.9 cutoff.
    box:       differences are taken to the nearest image in this box; it needs a cut-off.
    sites:     {name: numbers}, one number for each particle, such as charges. They are traced: params may be among
               them, and gradients reach them.
    on:        the numbers of the particles that interact, each once; None: all. Pairs with others cost nothing.
    exclude:   pairs (i, j) without this interaction, such as bonded atoms, in any order.
    molecules: pairs inside each group of so many consecutive particles are excluded: 3 for water.
    """

    phi: Callable = eqx.field(static=True)
    cutoff: float | None = eqx.field(static=True)
    onset: float | None = eqx.field(static=True)
    box: Box | None
    squared: bool = eqx.field(static=True)
    sites: dict[str, Array]
    on: Frozen | None = eqx.field(static=True)
    exclude: Frozen | None = eqx.field(static=True)
    molecules: int | None = eqx.field(static=True)

    @checked_keywords
    def __init__(
        self,
        phi: Callable,
        *,
        cutoff: float | None = None,
        box: Box | None = None,
        onset: float | None = None,
        squared: bool = False,
        sites: Mapping[str, Any] | None = None,
        on: Sequence[int] | None = None,
        exclude: Any = None,
        molecules: int | None = None,
    ):
        function(phi, "phi", of="(r, a, b)" if sites else "(r)")
        self.phi, self.squared, self.box = phi, bool(squared), checked_box(box, "PairPotential")
        self.cutoff = positive(cutoff, "cutoff", "PairPotential", none=True)
        self.onset = positive(onset, "onset", "PairPotential", none=True)
        self.sites = checked_sites(sites)
        self.on, self.exclude = checked_indices(on), checked_pairs(exclude)
        self.molecules = whole(molecules, "molecules", "PairPotential", least=1, none=True)
        if self.cutoff is None:
            self._check_without_cutoff()
            return
        self.onset = 0.9 * self.cutoff if self.onset is None else self.onset
        if self.onset >= self.cutoff:
            raise InputError(f"PairPotential: onset must be smaller than the cut-off {cutoff:g}, not {onset:g}.")
        if box is not None and 2 * self.cutoff > min(box.lengths):
            raise InputError(
                f"PairPotential(cutoff={self.cutoff:g}): the box {box.lengths} is smaller than twice the cut-off, so "
                "that a pair could meet by two images. Take a larger box or a smaller cut-off."
            )

    def _check_without_cutoff(self) -> None:
        if self.onset is not None:
            raise InputError(
                "PairPotential(onset=...) is where the smoothing before a cut-off begins: give cutoff too."
            )
        if self.box is not None:
            raise InputError(
                "PairPotential(box=...) needs a cutoff of at most half the shortest edge: without one the force jumps "
                "where another image of a particle becomes the nearest."
            )

    def __hash__(self) -> int:
        return hash(self.term)  # so that jax.jit takes it; the sites are compared, not hashed

    def neighbours(self, skin: float) -> Neighbours:
        """The neighbour lists for this potential: System(potential=pair, auxiliary=pair.neighbours(skin))."""
        if self.cutoff is None:
            raise InputError("neighbours(skin): a PairPotential without a cut-off has no neighbour lists; give cutoff.")
        return Neighbours(self.cutoff, skin, self.box)

    def __add__(self, other: Any) -> PairSum:
        return _parts(self, other)

    def __call__(self, q: Array, auxiliary: NeighbourList | None = None) -> Array:
        self.check(q)
        if auxiliary is None or self.cutoff is None:
            return self._of_all_pairs(q)
        if auxiliary.cutoff < self.cutoff or auxiliary.box != self.box:
            raise InputError(
                f"the neighbour lists are for a cut-off of {auxiliary.cutoff:g} in {_named(auxiliary.box)}, and the "
                f"PairPotential has a cut-off of {self.cutoff:g} in {_named(self.box)}: lists made with "
                "pair.neighbours(skin) have all pairs of the potential `pair`."
            )
        return _energy(self, auxiliary, q)

    def check(self, q: Any) -> None:
        """Raise an InputError where the particles of q are not those that the potential is stated for."""
        check_positions(q, self.box, "a PairPotential")
        n = len(q)
        for name, x in self.sites.items():
            if x.shape != (n,):
                raise InputError(
                    f"PairPotential(sites=...): {name!r} has shape {x.shape}, and q has {n} particles: give one number "
                    "for each."
                )
        for name, x in (("on", self.on), ("exclude", self.exclude)):
            if x is not None and x.array.size and x.array.max() >= n:
                raise InputError(f"PairPotential({name}=...) has particle {x.array.max()}, and q has {n}, from 0 on.")
        if self.molecules is not None and n % self.molecules:
            raise InputError(f"PairPotential(molecules={self.molecules}): q has {n} particles, not a multiple of that.")
        check_arguments(self.phi, self.sites)

    @property
    def term(self) -> Term:
        edges = None if self.box is None else self.box.lengths
        names = tuple(self.sites)
        return Term(
            self.phi, self.squared, self.cutoff, self.onset, edges, names, self.on, self.exclude, self.molecules
        )

    def explain(self, q: Any) -> str:
        """Which pair is too close, for the error where the energy at q is not finite or a run has failed after q."""
        return nearest_pair(self.term, self.box, q, list(self.sites.values()))

    def of(self, s: Array) -> Array:
        """S φ at squared distances s, element by element, of particles without parameters."""
        return self.term.energy(s)

    # --- all pairs --------------------------------------------------------------------------------------------------
    def _of_all_pairs(self, q: Array) -> Array:
        term, sites = self.term, [jnp.asarray(x, q.dtype) for x in self.sites.values()]
        return pair_sums.pair_sum(term, 0, q, *sites)

    # --- pairs of a list --------------------------------------------------------------------------------------------
    def pairs_of(self, lists: NeighbourList, q: Array) -> tuple[Array, list[Array], list[Array]]:
        """|q_i − q_j|² (n, room), at the cut-off where a row has no further neighbour; the parameters of i and of j."""
        assert self.cutoff is not None
        term, index = self.term, lists.index
        s = squared([term.nearest(q[:, k, None] - q[:, k][index], k) for k in range(q.shape[1])])
        listed = jnp.arange(lists.room)[None] < lists.count[:, None]
        if self.on is not None:
            member = jnp.asarray(np.isin(np.arange(len(q)), self.on.array))
            listed &= member[:, None] & member[index]
        left_out = pair_sums.left_out(term, len(q))
        if left_out is not None:
            listed &= ~jnp.any(jnp.asarray(left_out)[:, None, :] == index[:, :, None], axis=-1)
        sites = [jnp.asarray(x, q.dtype) for x in self.sites.values()]
        return jnp.where(listed, s, self.cutoff**2), [x[:, None] for x in sites], [x[index] for x in sites]

    def gradient_by_arrays(self, lists: NeighbourList, q: Array) -> Array:
        """∂V/∂q by array operations."""
        s, *sites = self.pairs_of(lists, q)
        weight = 2.0 * self.term.slope(s, *sites)
        along = lambda k: self.term.nearest(q[:, k, None] - q[:, k][lists.index], k)
        return jnp.stack([jnp.sum(weight * along(k), axis=1) for k in range(q.shape[1])], axis=1)

    def gradient_by_loops(self, lists: NeighbourList, q: Array) -> Array:
        """∂V/∂q, added up by the compiled loop."""
        from . import loops

        loops.register()
        # Fused into one loop, the gathers would keep XLA from vectorising φ'.
        s, *sites = jax.lax.optimization_barrier(self.pairs_of(lists, q))
        weight = 2.0 * self.term.slope(s, *sites)
        edges = jnp.asarray(self.box.lengths if self.box else (0.0,) * 3, q.dtype)
        out = jax.ShapeDtypeStruct(q.shape, q.dtype)
        # Implicit methods evaluate the force at all their stages by vmap.
        add_up = jax.ffi.ffi_call("geomint_pair_forces", out, vmap_method="sequential")
        return add_up(q, lists.index, lists.count, weight, edges)


class PairSum(Module):
    """The sum of several pair potentials, as one potential."""

    parts: tuple[PairPotential, ...]

    @property
    def box(self) -> Box | None:
        """The periodic box of the parts that have one."""
        return next((part.box for part in self.parts if part.box is not None), None)

    def __call__(self, q: Array, auxiliary: NeighbourList | None = None) -> Array:
        total = self.parts[0](q, auxiliary)
        for part in self.parts[1:]:
            total = total + part(q, auxiliary)
        return total

    def __add__(self, other: Any) -> PairSum:
        return _parts(self, other)

    def __hash__(self) -> int:
        return hash(tuple(part.term for part in self.parts))

    def neighbours(self, skin: float) -> Neighbours:
        """The neighbour lists for all parts: those of the longest cut-off."""
        cut = [part for part in self.parts if part.cutoff is not None]
        return max(cut or self.parts, key=lambda part: part.cutoff or 0.0).neighbours(skin)

    def explain(self, q: Any) -> str:
        return next((text for text in (part.explain(q) for part in self.parts) if text), "")


def _parts(one: Any, other: Any) -> Any:
    if not isinstance(other, PairPotential | PairSum):
        raise InputError(
            f"a PairPotential can be added to another one, not to {shown(other)}: for other parts of the energy write "
            "potential=lambda q: pair(q) + external(q)."
        )
    listed = [x.parts if isinstance(x, PairSum) else (x,) for x in (one, other)]
    return PairSum((*listed[0], *listed[1]))


def _named(box: Box | None) -> str:
    return "free space" if box is None else f"the box {box.lengths}"


@jax.custom_jvp
def _energy(pair: PairPotential, lists: NeighbourList, q: Array) -> Array:
    """V by a list; NaN where the list may lack a pair."""
    s, *sites = pair.pairs_of(lists, q)
    return jnp.where(lists.usable(q), 0.5 * jnp.sum(pair.term.energy(s, *sites)), jnp.nan)


@_energy.defjvp
def _energy_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    return _energy(*primals), jnp.vdot(_gradient(*primals), tangents[2])


@jax.custom_jvp
def _gradient(pair: PairPotential, lists: NeighbourList, q: Array) -> Array:
    sums = pair.gradient_by_loops if cells.by_loops(q) else pair.gradient_by_arrays
    return jnp.where(lists.usable(q), sums(lists, q), jnp.nan)


@_gradient.defjvp
def _gradient_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    pair, lists, q = primals
    along = jax.jvp(lambda x: pair.gradient_by_arrays(lists, x), (q,), (tangents[2],))[1]
    return _gradient(*primals), along
