"""The energy of all pairs of particles, V(q) = ½ Σ_{i≠j} φ(|q_i − q_j|), with a smooth cut-off.

With a neighbour list the sums run over the pairs of the list, each pair from both sides, so that every particle adds up
its own force and no sum depends on an order of writing. The gradient is written out,

    ∂V/∂q_i = Σ_j 2 φ'(s_ij) (q_i − q_j),      s = |q_i − q_j|²,      φ' = dφ/ds,

since automatic differentiation would scatter the forces of the neighbours. Higher derivatives are automatic. On the CPU
XLA evaluates φ' for all entries of the list in one vectorised loop, and a loop compiled by numba (loops.py) adds up:
0.9 times the time of a hand-written loop over half of the pairs, for 4096 Lennard-Jones atoms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..errors import InputError
from ..numerics.keywords import checked_keywords
from ..system.checks import function, positive
from . import cells
from .box import Box, check_positions, checked_box
from .neighbours import NeighbourList, Neighbours

ROWS = 2**20  # pairs at a time where all pairs are compared


class PairPotential(eqx.Module):
    """V(q) = ½ Σ_{i≠j} S(s) φ(s), s = |q_i − q_j|², to be used as System(potential=…, auxiliary=pair.neighbours(skin)).

    phi:      φ(r) for one pair, written with jax.numpy; with squared=True φ(s), which saves a square root.
    cutoff:   pairs at larger distances have no energy.
    onset:    where the energy begins to be smoothed: from there to the cut-off it is multiplied by
              S = 1 − 10x³ + 15x⁴ − 6x⁵ with x from 0 to 1 in s, so that the force and its derivative are continuous.
              Default 0.9 cutoff.
    box:      differences are taken to the nearest image in this box.
    """

    phi: Callable = eqx.field(static=True)
    cutoff: float = eqx.field(static=True)
    onset: float = eqx.field(static=True)
    box: Box | None
    squared: bool = eqx.field(static=True)

    @checked_keywords
    def __init__(
        self,
        phi: Callable,
        *,
        cutoff: float,
        box: Box | None = None,
        onset: float | None = None,
        squared: bool = False,
    ):
        function(phi, "phi", of="(r)")
        self.phi, self.squared, self.box = phi, bool(squared), checked_box(box, "PairPotential")
        self.cutoff = positive(cutoff, "cutoff", "PairPotential")
        self.onset = 0.9 * self.cutoff if onset is None else positive(onset, "onset", "PairPotential")
        if self.onset >= self.cutoff:
            raise InputError(f"PairPotential: onset must be smaller than the cut-off {cutoff:g}, not {onset:g}.")
        if box is not None and 2 * self.cutoff > min(box.lengths):
            raise InputError(
                f"PairPotential(cutoff={self.cutoff:g}): the box {box.lengths} is smaller than twice the cut-off, so "
                "that a pair could meet by two images. Take a larger box or a smaller cut-off."
            )

    def neighbours(self, skin: float) -> Neighbours:
        """The neighbour lists for this potential: System(potential=pair, auxiliary=pair.neighbours(skin))."""
        return Neighbours(self.cutoff, skin, self.box)

    def __call__(self, q: Array, auxiliary: NeighbourList | None = None) -> Array:
        check_positions(q, self.box, "a PairPotential")
        if auxiliary is None:
            return self._of_all_pairs(q)
        if auxiliary.cutoff < self.cutoff or auxiliary.box != self.box:
            raise InputError(
                f"the neighbour lists are for a cut-off of {auxiliary.cutoff:g} in {_named(auxiliary.box)}, and the "
                f"PairPotential has a cut-off of {self.cutoff:g} in {_named(self.box)}: lists made with "
                "pair.neighbours(skin) have all pairs of the potential `pair`."
            )
        return _energy(self, auxiliary, q)

    # --- one pair ---------------------------------------------------------------------------------------------------
    def of(self, s: Array) -> Array:
        """S φ at squared distances s, element by element; 0 from the cut-off on."""
        on, end = self.onset**2, self.cutoff**2
        inside = s < end
        s = jnp.where(inside, s, on)
        x = jnp.clip((s - on) / (end - on), 0.0, 1.0)
        smooth = 1.0 - x * x * x * (10.0 - x * (15.0 - 6.0 * x))
        energy = self.phi(s if self.squared else jnp.sqrt(s))
        if jnp.shape(energy) != s.shape and not isinstance(energy, int | float):
            raise InputError(
                f"PairPotential: phi must return the energy of each distance in its argument, an array of shape "
                f"{s.shape}; it returns shape {jnp.shape(energy)}."
            )
        return jnp.where(inside, smooth * energy, 0.0)

    def slope(self, s: Array) -> Array:
        """d(Sφ)/ds, element by element."""
        return jax.jvp(self.of, (s,), (jnp.ones_like(s),))[1]

    # --- all pairs --------------------------------------------------------------------------------------------------
    def _of_all_pairs(self, q: Array) -> Array:
        """Without a list: rows of pairs, some at a time."""
        n = len(q)
        size = max(1, min(n, ROWS // n))

        @jax.checkpoint
        def rows(i: Array) -> Array:
            here = q[jnp.minimum(i, n - 1)]
            s = _squares([self._difference(here[:, k, None] - q[None, :, k], k) for k in range(q.shape[1])])
            pair = (jnp.arange(n)[None] != i[:, None]) & (i[:, None] < n)
            return jnp.sum(jnp.where(pair, self.of(jnp.where(pair, s, self.cutoff**2)), 0.0))

        return 0.5 * jnp.sum(jax.lax.map(rows, jnp.arange(-(-n // size) * size).reshape(-1, size)))

    # --- pairs of a list --------------------------------------------------------------------------------------------
    def _difference(self, d: Array, k: int) -> Array:
        if self.box is None:
            return d
        edge = self.box.lengths[k]
        return d - edge * jnp.round(d * (1.0 / edge))

    def squares(self, lists: NeighbourList, q: Array) -> Array:
        """|q_i − q_j|² (n, room), at the cut-off where a row has no further neighbour."""
        s = _squares([self._difference(q[:, k, None] - q[:, k][lists.index], k) for k in range(q.shape[1])])
        return jnp.where(jnp.arange(lists.room)[None] < lists.count[:, None], s, self.cutoff**2)

    def gradient_by_arrays(self, lists: NeighbourList, q: Array) -> Array:
        """∂V/∂q by array operations."""
        weight = 2.0 * self.slope(self.squares(lists, q))
        along = lambda k: self._difference(q[:, k, None] - q[:, k][lists.index], k)
        return jnp.stack([jnp.sum(weight * along(k), axis=1) for k in range(q.shape[1])], axis=1)

    def gradient_by_loops(self, lists: NeighbourList, q: Array) -> Array:
        """∂V/∂q, added up by the compiled loop."""
        from . import loops

        loops.register()
        # Fused into one loop, the gathers would keep XLA from vectorising φ'.
        weight = 2.0 * self.slope(jax.lax.optimization_barrier(self.squares(lists, q)))
        edges = jnp.asarray(self.box.lengths if self.box else (0.0,) * 3, q.dtype)
        out = jax.ShapeDtypeStruct(q.shape, q.dtype)
        # Implicit methods evaluate the force at all their stages by vmap.
        add_up = jax.ffi.ffi_call("geomint_pair_forces", out, vmap_method="sequential")
        return add_up(q, lists.index, lists.count, weight, edges)


def _named(box: Box | None) -> str:
    return "free space" if box is None else f"the box {box.lengths}"


def _squares(components: list[Array]) -> Array:
    total = components[0] * components[0]
    for d in components[1:]:
        total = total + d * d
    return total


@jax.custom_jvp
def _energy(pair: PairPotential, lists: NeighbourList, q: Array) -> Array:
    """V by a list; NaN where the list may lack a pair."""
    return jnp.where(lists.usable(q), 0.5 * jnp.sum(pair.of(pair.squares(lists, q))), jnp.nan)


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
