"""Neighbour lists: for every particle the others within cut-off + skin, made again before a pair outside the list can
come within the cut-off.

A list made at the positions `reference` is complete as long as no particle has moved by more than half the skin since.
It is made again before a step if twice the last step could lead beyond (for multistep methods, which take forces some
steps ahead of the positions they show, that many steps and one more). Where a force is evaluated beyond all the same,
because a particle moved much farther in this step than in the last one, the energy is NaN and the run stops with an
explanation: an incomplete list never gives a number.
"""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..errors import InputError
from ..numerics.compilation import jit
from ..numerics.keywords import checked_keywords
from ..numerics.module import Module
from ..system.auxiliary import Auxiliary
from ..system.checks import positive
from . import cells
from .box import Box, check_positions, checked_box

SPARE = 1.1  # room for so many times the neighbours that were found


class NeighbourList(Module):
    """The neighbours of every particle at the positions `reference`."""

    reference: Array  # (n, d)
    last: Array  # (n, d): positions before the last step
    index: Array  # (n, room): in row i the neighbours of i; entries from count[i] on mean nothing
    count: Array  # (n,): how many there are, which may be more than there is room for
    fullest: Array  # particles in the fullest cell
    cell_room: Array  # (particles in a cell,): its length is the room in a cell, and its entries mean nothing
    slack: Array  # by how much a particle may have moved since: half the skin
    cutoff: float = eqx.field(static=True)
    box: Box | None

    @property
    def room(self) -> int:
        return self.index.shape[1]

    @property
    def complete(self) -> Array:
        """Whether there was room for all."""
        return (jnp.max(self.count) <= self.room) & (self.fullest <= self.cell_room.shape[0])

    def usable(self, q: Array) -> Array:
        """Whether the list has all pairs within the cut-off at q."""
        return self.complete & (_longest(q - self.reference) <= self.slack)


class Neighbours(Auxiliary):
    """Neighbour lists of a system, as `System(auxiliary=Neighbours(...))`.

    cutoff:  the range of the forces
    skin:    by how much the distance of listed pairs exceeds the cut-off. A larger skin makes lists longer, and they
             are made less often.
    box:     the periodic box; None for particles in free space, where lists are made by comparing all pairs
    """

    cutoff: float = eqx.field(static=True)
    skin: float = eqx.field(static=True)
    box: Box | None

    @checked_keywords
    def __init__(self, cutoff: float, skin: float, box: Box | None = None):
        self.cutoff = positive(cutoff, "cutoff", "Neighbours")
        self.skin = positive(skin, "skin", "Neighbours")
        self.box = box = checked_box(box, "Neighbours")
        if box is not None and 2 * self.distance > min(box.lengths):
            raise InputError(
                f"Neighbours(cutoff={self.cutoff:g}, skin={self.skin:g}): the box {box.lengths} is smaller than twice "
                "their sum, so that a pair could meet by two images. Take a larger box, or a smaller cut-off or skin."
            )

    @property
    def distance(self) -> float:
        """Of listed pairs."""
        return self.cutoff + self.skin

    def build(self, q: Array) -> NeighbourList:
        q = jnp.asarray(q)
        check_positions(q, self.box, "a system with neighbour lists")
        cell_room = self._fullest_cell(q)
        found = _made(self, q, q, 1, cell_room)  # counts all neighbours, also those without room
        room = _roomy(int(jnp.max(found.count)), len(q))
        return _made(self, q, q, room, cell_room)

    def _fullest_cell(self, q: Array) -> int:
        divided = cells.divisions(self.box, self.distance)
        if divided is None or self.box is None or cells.by_loops(q) or cells.by_kernel(q):
            return 0
        at = np.ravel_multi_index(tuple(np.asarray(cells.cell_of(q, self.box, divided)).T), divided)
        return _roomy(int(np.bincount(at).max()), len(q))

    def refreshed(self, state: NeighbourList, q: Array, ahead: int = 1) -> NeighbourList:
        beyond = _longest(q - state.reference) + (1 + ahead) * _longest(q - state.last) > state.slack
        made = lambda: self._list(q, q, state.room, state.cell_room.shape[0])
        kept = lambda: eqx.tree_at(lambda s: s.last, state, q)
        # A list without room for all is kept, so that the host loop finds it.
        return jax.lax.cond(beyond & state.complete, made, kept)

    def _list(self, q: Array, last: Array, room: int, cell_room: int) -> NeighbourList:
        index, count, fullest = cells.find(q, self.box, self.distance, room, cell_room)
        spare, slack = jnp.zeros(cell_room, jnp.int8), jnp.asarray(self.skin / 2, q.dtype)
        return NeighbourList(q, last, index, count, fullest, spare, slack, self.cutoff, self.box)

    def kept(self, state: NeighbourList) -> PyTree:
        rooms = np.asarray([state.room, state.cell_room.shape[0]])
        return {"reference": state.reference, "last": state.last, "rooms": rooms}

    def restored(self, kept: PyTree) -> NeighbourList:
        room, cell_room = (int(x) for x in kept["rooms"])
        return _made(self, jnp.asarray(kept["reference"]), jnp.asarray(kept["last"]), room, cell_room)

    def overflowed(self, state: NeighbourList) -> bool:
        return not bool(state.complete)

    def grown(self, state: NeighbourList, overflowed: NeighbourList) -> NeighbourList:
        n, full = len(state.reference), state.cell_room.shape[0]
        room = max(state.room, _roomy(int(jnp.max(overflowed.count)), n))
        cell_room = max(full, _roomy(int(overflowed.fullest), n)) if int(overflowed.fullest) > full else full
        return _made(self, state.reference, state.last, room, cell_room)

    def explain(self, q: Any, step: Any) -> str:
        length = float(np.max(np.linalg.norm(np.asarray(step), axis=-1), initial=0.0))
        if length <= self.skin / 8:  # too short a step to outrun a list: something else is not finite
            return ""
        return (
            f"A particle moves by about {length:.3g} in one step, and the neighbour list allows half its skin of "
            f"{self.skin:g}: take a smaller dt or a larger skin."
        )


def _roomy(found: int, n: int) -> int:
    """A multiple of 8 with some room to spare."""
    return min(-(-int(SPARE * found + 4) // 8) * 8, max(8, -(-n // 8) * 8))


def _longest(differences: Array) -> Array:
    return jnp.sqrt(jnp.max(jnp.sum(differences**2, axis=-1)))


@functools.partial(jit, static_argnums=(3, 4))
def _made(lists: Neighbours, q: Array, last: Array, room: int, cell_room: int) -> NeighbourList:
    return lists._list(q, last, room, cell_room)
