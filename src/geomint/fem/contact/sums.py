"""An elastic body with contact as one potential."""

from __future__ import annotations

from typing import Any

import equinox as eqx
from jaxtyping import Array

from ...errors import InputError
from ...methods.walls import Collisions
from ...numerics.module import Module
from ...system.checks import shown
from ...system.system import System, checked_watch
from ..elastic import elastic_body
from .barrier import BarrierContact
from .penalty import PenaltyContact


class ElasticWithContact(Module):
    """V(q) = elastic energy + contact; made by `gm.fem.with_contact`."""

    elastic: Any
    contact: Any = eqx.field(static=True)

    def __call__(self, q: Array) -> Array:
        return self.elastic(q) + self.contact(q)

    @property
    def reach(self) -> float:
        """How far energy-stepping may go in a trial: contact begins abruptly, where derivatives do not announce it."""
        return self.contact.reach

    @property
    def mesh(self) -> Any:
        """That of the body."""
        return self.elastic.mesh

    @property
    def held(self) -> Any:
        """The nodes that are not in q."""
        return self.elastic.held

    def positions(self, q: Any, t: Any = 0.0) -> Array:
        """The positions of all nodes (n, 3), in the order of the mesh."""
        return self.elastic.positions(q, t)

    def explain(self, q: Any, t: Any = 0.0) -> str:
        """Which elements are inverted; "" where none is."""
        return self.elastic.explain(q, t)


def with_contact(system: System, contact: Any) -> System:
    """The system with a contact energy added to its potential, and watched as "contact_energy".

    system:   an elastic body, of gm.fem.solid, whose nodes do not depend on time.
    contact:  gm.fem.PenaltyContact or gm.fem.BarrierContact.
    """
    if not isinstance(contact, PenaltyContact | BarrierContact):
        also = " Exact contact belongs into EnergyStepping(inside=...)." if isinstance(contact, Collisions) else ""
        raise InputError(
            f"with_contact(contact=...) must be a PenaltyContact or BarrierContact, not {shown(contact)}.{also}"
        )
    body = elastic_body(system)
    if body is None or body.mesh != contact.scene.mesh:
        raise InputError(
            "with_contact(system, contact): the system must be a gm.fem.solid of the mesh that the contact was made of."
        )
    free = len(body.mesh.nodes) if body.held is None else len(body.held.free)
    if free != contact.scene.free:
        raise InputError(
            f"with_contact(system, contact): {free} nodes of the body are free, and {contact.scene.free} of the "
            "contact; give fixed=... to both."
        )
    if system.takes("potential", "t"):
        raise InputError("with_contact: this body has prescribed nodes; contact needs nodes that are free or fixed.")
    watch = checked_watch({**system.watch, "contact_energy": contact})
    return system._replaced(potential=ElasticWithContact(system.potential, contact), watch=watch)
