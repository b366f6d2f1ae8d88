"""The elastic energy of a mesh as a potential, with nodes that are held or moved by the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..numerics.module import Module
from ..system.lines import Line
from .element_sums import Geometry, element_sum
from .element_terms import ElementTerm
from .lines import elastic_line
from .materials import Material
from .mesh import Mesh
from .mesh_checks import signed_volumes

NAMED = 3  # inverted elements that an error names


class Held(NamedTuple):
    """Nodes whose positions are given."""

    free: Any  # the other nodes, those of q
    nodes: Any
    at: Any  # (k, d), where they do not move


class Elastic(Module):
    """V(q) = Σ_e w_e W(F_e) − Σ f·q, where q (n, d) are the positions of the nodes, or of those that are not held.

    Made by `gm.fem.solid`, as system.potential. `positions(q)` has all nodes, in the order of the mesh.
    """

    mesh: Mesh = eqx.field(static=True)
    elements: tuple[int, ...] | None = eqx.field(static=True)  # those that count; None for all
    material: Material
    geometry: Geometry
    held: Held | None
    load: Any  # f, like q, or None

    def __call__(self, q: Array) -> Array:
        return self.energy(q)

    def __hash__(self) -> int:
        return hash((self.mesh, self.elements, jax.tree.structure(self.material)))  # so that jax.jit takes it

    def positions(self, q: Any, t: Any = 0.0) -> Array:
        """The positions of all nodes (n, d), in the order of the mesh.

        q: the positions of the nodes that are not held.
        t: the time, where held nodes move.
        """
        if self.held is None:
            return jnp.asarray(q)
        every = jnp.zeros(self.mesh.nodes.shape, jnp.result_type(q, float))
        return every.at[self.held.free].set(q).at[self.held.nodes].set(self.held_at(t))

    def held_at(self, t: Any) -> Array:
        """The positions of the held nodes (k, d).

        t: the time.
        """
        assert self.held is not None
        return self.held.at

    def energy(self, q: Array, t: Any = 0.0) -> Array:
        """V at time t."""
        term, numbers = ElementTerm.of(self.material, self.mesh.dim)
        total = element_sum(term, 0, [self._ordered(q, t)], numbers, self.geometry)
        return total if self.load is None else total - jnp.sum(self.load * q)

    def on_line(self, q: Array, v: Array) -> Line:
        """V(q + t v) as a function of t, see system/lines.py."""
        term, numbers = ElementTerm.of(self.material, self.mesh.dim)
        x, u = self._ordered(q, 0.0), v
        if self.held is not None:
            u = jnp.concatenate([v, jnp.zeros_like(self.held.at, v.dtype)])
        work = None if self.load is None else (-jnp.sum(self.load * q), -jnp.sum(self.load * v))
        return elastic_line(term, numbers, self.geometry, x, u, work)

    def _ordered(self, q: Array, t: Any) -> Array:
        """The positions of all nodes in the order of `geometry`: those of q first."""
        return q if self.held is None else jnp.concatenate([q, self.held_at(t).astype(q.dtype)])

    def explain(self, q: Any, t: Any = 0.0) -> str:
        """Which elements are inverted, for the error where the energy is not finite; "" where none is."""
        x = np.asarray(self.positions(q, t))
        if not np.all(np.isfinite(x)):
            return ""
        which = np.arange(len(self.mesh.cells)) if self.elements is None else np.array(self.elements)
        ratio = signed_volumes(x, self.mesh.cells[which]) / self.mesh.volumes[which]
        places = np.argsort(ratio, kind="stable")[: np.count_nonzero(ratio <= 0)]
        if not len(places):
            return ""
        first = places[0]
        others = ", ".join(str(which[k]) for k in places[1:NAMED])
        more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
        also = f" (so are {others}{more})" if others else ""
        centre = ", ".join(f"{y:.3g}" for y in x[self.mesh.cells[which[first]]].mean(axis=0))
        return (
            f"element {which[first]} at ({centre}) is inverted, with {ratio[first]:.2g} times its volume at rest{also}"
        )


class MovedElastic(Elastic):
    """An `Elastic` with held nodes that move in a given way.

    The consistent mass couples them to their neighbours, which feel the force −M_fh ẍ_h(t).
    """

    path: Callable[[Any], Any] = eqx.field(static=True)  # their positions at time t
    coupling: Any  # M_fh, a function of (k, d) that returns an array like q; None for a lumped mass

    def __call__(self, q: Array, t: Any) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.energy(q, t)

    def held_at(self, t: Any) -> Array:
        assert self.held is not None
        moved = jnp.asarray(self.path(t), float)
        still = self.held.at
        shape = (len(still) - moved.shape[0], still.shape[1]) if moved.ndim == 2 else None
        if shape is None or shape[0] < 0 or moved.shape[1] != still.shape[1]:
            raise InputError(
                f"solid(prescribed=(nodes, path)): path(t) must return the positions of the nodes, of shape "
                f"(k, {still.shape[1]}), not {moved.shape}."
            )
        return jnp.concatenate([still[: shape[0]], moved])

    def energy(self, q: Array, t: Any = 0.0) -> Array:
        total = super().energy(q, t)
        if self.coupling is None:
            return total
        rate = lambda s: jax.jvp(self.held_at, (s,), (jnp.ones_like(s),))[1]
        t = jnp.asarray(t, float)
        acceleration = jax.jvp(rate, (t,), (jnp.ones_like(t),))[1]
        return total + jnp.sum(q * self.coupling.product(acceleration))


def elastic_body(system: Any) -> Any:
    """The part of the system's energy that has a mesh; None without one."""
    parts = (getattr(system, name, None) for name in ("potential", "fast"))
    return next((x for x in parts if hasattr(x, "mesh") and hasattr(x, "positions")), None)


def elements_of(mesh: Mesh, chosen: np.ndarray | None, place: np.ndarray | None) -> Geometry:
    """The elements of a mesh, or some of them. place: the new numbers of the nodes, where held ones come last."""
    pick = slice(None) if chosen is None else chosen
    cells = mesh.cells if place is None else place[mesh.cells]
    return Geometry.of(len(mesh.nodes), cells[pick], mesh.shape_gradients[pick], mesh.volumes[pick])


def part(x: Any, chosen: Sequence[int] | np.ndarray) -> Any:
    """The numbers of some elements, of a number of a material."""
    return x[np.asarray(chosen)] if jnp.ndim(x) else x
