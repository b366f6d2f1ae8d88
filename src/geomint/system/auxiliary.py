"""Auxiliary state: what functions of a system need besides q, and what changes along a run (a neighbour list).

A system states how it is made and kept up to date: `System(auxiliary=A)`. A function that takes the argument
`auxiliary` receives the state; outside a run, where there is none, it receives None and must return the same energy
without it. The integration loop builds the state at the start, refreshes it before every step, and saves in checkpoints
what it can be made from again. Chunks and restarts do not change results, since the state depends on the motion alone.

A state has room for a certain number of entries, given by the shapes of its arrays. Where that does not suffice, the
energy must not be finite; the host loop then repeats the step from a state with more room.
"""

from __future__ import annotations

import abc
from typing import Any

from jaxtyping import Array, PyTree

from ..numerics.module import Module


class Auxiliary(Module):
    """How the auxiliary state of a system is made and kept up to date."""

    @abc.abstractmethod
    def build(self, q: Array) -> PyTree:
        """The state at the start of a run. q has numbers, so that the room can depend on them."""

    @abc.abstractmethod
    def refreshed(self, state: PyTree, q: Array, ahead: int = 1) -> PyTree:
        """The state before a step from q, which evaluates forces up to `ahead` steps ahead of q; traced."""

    @abc.abstractmethod
    def kept(self, state: PyTree) -> PyTree:
        """What a checkpoint has of the state: arrays whose shapes do not depend on the room."""

    @abc.abstractmethod
    def restored(self, kept: PyTree) -> PyTree:
        """The state that `kept` was made from."""

    @abc.abstractmethod
    def overflowed(self, state: PyTree) -> bool:
        """Whether the room was not sufficient."""

    @abc.abstractmethod
    def grown(self, state: PyTree, overflowed: PyTree) -> PyTree:
        """The same state with room for what the overflowed one needed."""

    def explain(self, q: Any, step: Any) -> str:
        """Why the energy may not be finite after a step (the displacement) from q; "" where it is not because of the
        auxiliary state."""
        return ""
