"""An elastic body as a system: `gm.fem.solid(mesh, material, density)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import InputError
from ..numerics.keywords import checked_keywords
from ..numerics.module import Module
from ..system.checks import as_array, choice, shown
from ..system.symmetries import Rotation, Symmetry, Translation
from ..system.system import System
from .elastic import Elastic, Held, MovedElastic, elements_of, part
from .materials import Material, checked_material
from .mesh import Mesh, checked_mesh
from .mesh_checks import checked_numbers


@checked_keywords
def solid(
    mesh: Mesh,
    material: Any,
    density: Any = 1.0,
    *,
    mass: str = "lumped",
    fixed: Sequence[int] | None = None,
    prescribed: tuple[Sequence[int], Callable[[Any], Any]] | None = None,
    load: Any = None,
    gravity: Sequence[float] | None = None,
    stiff: Sequence[int] | None = None,
    symmetries: Sequence[Symmetry] | Symmetry | None = None,
    watch: Mapping[str, Callable] | None = None,
    force: Callable | None = None,
    damping: Any = None,
) -> System:
    """An elastic body of linear elements, as a system with q = the positions of its nodes, (n, d).

    mesh:       gm.fem.cube(), gm.fem.box(…), gm.fem.ball(…), gm.fem.Mesh.from_meshio(file); at rest it is without
                stress.
    material:   gm.fem.NeoHookean(lame, shear), or another one, or a function W(F) of the deformation gradient.
    density:    mass per volume at rest, a number or one for each element.
    mass:       "lumped", a mass for each node, or "consistent", the sparse matrix ∫ρ φ_i φ_j.
    fixed:      nodes that are held where they are. They are left out of q, which has the others in their order;
                system.potential.positions(q) has all.
    prescribed: (nodes, path), nodes that are moved: path(t) returns their positions (k, d). They are left out too.
    load:       a constant force on each node of the mesh, (n, d).
    gravity:    the acceleration of free fall, d numbers.
    stiff:      elements whose energy is the fast part of the potential, for IMEX, RESPA and the like.
    symmetries: whose momentum maps are watched; by default translations and rotations of a free body.
    watch:      as for System.
    force:      as for System.
    damping:    as for System.
    """
    mesh = checked_mesh(mesh, "solid")
    material = checked_material(material, "solid", mesh.dim)
    _check_numbers(material, mesh)
    nodes = _nodes(mesh, fixed, prescribed)
    density = _per_element(density, "density", mesh)
    _check_watched(watch, mesh, density, nodes)
    matrices = mass_matrices(mesh, density, choice(mass, "mass", "solid", ("lumped", "consistent")), nodes)
    forces = _load(mesh, load, gravity, mesh_masses(mesh, density), nodes)
    make = lambda chosen, forces, coupling: _potential(mesh, material, chosen, nodes, forces, coupling)
    potential, fast = make(None, forces, matrices.coupling), None
    if stiff is not None:
        inside = checked_numbers(stiff, len(mesh.cells), "stiff", "elements", "solid")
        outside = np.setdiff1d(np.arange(len(mesh.cells)), inside)
        if not len(outside):
            raise InputError("solid(stiff=...): all elements are stiff; leave some to the slow part.")
        potential, fast = make(outside, forces, matrices.coupling), make(inside, None, None)
    if symmetries is None:
        symmetries = (Translation(), Rotation()) if nodes is None and forces is None else ()
    described: dict[str, Any] = {"symmetries": symmetries, "watch": watch, "force": force, "damping": damping}
    return System(potential, mass=matrices.free, fast=fast, **described)


class Nodes(NamedTuple):
    """The nodes of q and those that are held, fixed ones first."""

    free: np.ndarray
    held: np.ndarray
    path: Callable[[Any], Any] | None


def _nodes(mesh: Mesh, fixed: Any, prescribed: Any) -> Nodes | None:
    if fixed is None and prescribed is None:
        return None
    count = len(mesh.nodes)
    still = np.zeros(0, int) if fixed is None else checked_numbers(fixed, count, "fixed", "nodes", "solid")
    moved, path = np.zeros(0, int), None
    if prescribed is not None:
        if not isinstance(prescribed, tuple) or len(prescribed) != 2 or not callable(prescribed[1]):
            raise InputError(
                f"solid(prescribed=...) must be (nodes, path), path a function of t that returns the positions of "
                f"the nodes, not {shown(prescribed)}."
            )
        moved, path = checked_numbers(prescribed[0], count, "prescribed", "nodes", "solid"), prescribed[1]
        shape = np.shape(jax.eval_shape(lambda t: jnp.asarray(path(t), float), 0.0))
        if shape != (len(moved), mesh.dim):
            raise InputError(
                f"solid(prescribed=(nodes, path)): path(t) must return the positions of {len(moved)} nodes, of shape "
                f"{(len(moved), mesh.dim)}, not {shape}."
            )
    if len(np.intersect1d(still, moved)):
        raise InputError(f"solid: node {np.intersect1d(still, moved)[0]} is both fixed and prescribed.")
    held = np.concatenate([still, moved])
    free = np.setdiff1d(np.arange(count), held)
    if not len(free):
        raise InputError("solid: all nodes are fixed or prescribed; nothing is left to move.")
    return Nodes(free, held, path)


def _potential(
    mesh: Mesh, material: Material, chosen: np.ndarray | None, nodes: Nodes | None, load: Any, coupling: Any
) -> Elastic:
    place, held = None, None
    if nodes is not None:
        place = np.empty(len(mesh.nodes), int)
        place[np.concatenate([nodes.free, nodes.held])] = np.arange(len(mesh.nodes))
        held = Held(jnp.asarray(nodes.free), jnp.asarray(nodes.held), jnp.asarray(mesh.nodes[nodes.held]))
    if chosen is not None:
        material = jax.tree.map(lambda x: part(x, chosen), material)
    listed = None if chosen is None else tuple(chosen.tolist())
    parts = mesh, listed, material, elements_of(mesh, chosen, place), held, load
    return Elastic(*parts) if nodes is None or nodes.path is None else MovedElastic(*parts, nodes.path, coupling)


# --- the mass ---------------------------------------------------------------------------------------------------------
class Masses(NamedTuple):
    free: Any  # of the nodes of q
    coupling: Any  # with held nodes that move


class Coupling(Module):
    """The rows of the nodes of q and the columns of held nodes of a mass matrix."""

    values: Any
    rows: Any
    columns: Any
    count: int = eqx.field(static=True)

    def product(self, x: Any) -> Any:
        zero = jnp.zeros((self.count, x.shape[1]), x.dtype)
        return zero.at[self.rows].add(self.values[:, None] * x[self.columns])


def mesh_masses(mesh: Mesh, density: Any) -> np.ndarray:
    """The lumped mass of each node."""
    each = np.repeat(mesh.volumes * density / mesh.cells.shape[1], mesh.cells.shape[1])
    return np.bincount(mesh.cells.ravel(), weights=each, minlength=len(mesh.nodes))


def consistent_mass(mesh: Mesh, density: Any = 1.0) -> Any:
    """The mass matrix ∫ρ φ_i φ_j of linear elements as a scipy.sparse matrix: for a cell of mass m in d dimensions
    2m/((d + 1)(d + 2)) on the diagonal and half of it elsewhere.

    mesh:    the mesh.
    density: mass per volume, a number or one for each element.
    """
    from scipy import sparse

    corners = mesh.cells.shape[1]
    element = (np.ones((corners, corners)) + np.eye(corners)) / (corners * (corners + 1))
    entries = (mesh.volumes * density)[:, None, None] * element
    i, j = np.broadcast_arrays(mesh.cells[:, :, None], mesh.cells[:, None, :])
    return sparse.coo_matrix((entries.ravel(), (i.ravel(), j.ravel())), shape=(len(mesh.nodes),) * 2).tocsr()


def mass_matrices(mesh: Mesh, density: Any, kind: str, nodes: Nodes | None) -> Masses:
    free = np.arange(len(mesh.nodes)) if nodes is None else nodes.free
    if kind == "lumped":
        return Masses(mesh_masses(mesh, density)[free][:, None], None)
    whole = consistent_mass(mesh, density)
    if nodes is None or nodes.path is None:
        return Masses(whole[free][:, free], None)
    between = whole[free][:, nodes.held].tocoo()
    values, rows, columns = (jnp.asarray(x) for x in (between.data, between.row, between.col))
    return Masses(whole[free][:, free], Coupling(values, rows, columns, len(free)))


# --- arguments --------------------------------------------------------------------------------------------------------
def _load(mesh: Mesh, load: Any, gravity: Any, masses: np.ndarray, nodes: Nodes | None) -> Any:
    if load is None and gravity is None:
        return None
    total = np.zeros(mesh.nodes.shape)
    if load is not None:
        given = as_array(load, "load", "solid")
        if given.shape != mesh.nodes.shape:
            raise InputError(f"solid(load=...): give a force for each node, {mesh.nodes.shape}, not {given.shape}.")
        total = total + given
    if gravity is not None:
        given = as_array(gravity, "gravity", "solid")
        if given.shape != (mesh.dim,):
            raise InputError(f"solid(gravity=...): give {mesh.dim} numbers, not {shown(gravity)}.")
        total = total + masses[:, None] * given
    return jnp.asarray(total if nodes is None else total[nodes.free])


def _per_element(x: Any, name: str, mesh: Mesh) -> Any:
    x = as_array(x, name, "solid")
    if x.shape not in ((), (len(mesh.cells),)) or (not isinstance(x, Tracer) and not np.all(x > 0)):
        raise InputError(
            f"solid({name}=...) must be a positive number, or one for each of the {len(mesh.cells)} elements, not "
            f"{shown(x)}."
        )
    return x


def _check_watched(watch: Any, mesh: Mesh, density: Any, nodes: Nodes | None) -> None:
    """That watch_bodies was given the masses of this body."""
    if not isinstance(watch, Mapping) or isinstance(density, Tracer):
        return
    masses = mesh_masses(mesh, density)
    own = masses if nodes is None else masses[nodes.free]
    for masses in (f.masses for f in watch.values() if hasattr(f, "masses")):
        if masses.shape != own.shape or not np.allclose(masses, own, rtol=1e-9, atol=0):
            raise InputError(
                "solid(watch=...): watch_bodies was given another mesh, density or fixed nodes than this solid; its "
                "velocities would be wrong. Write watch_bodies(mesh, density, fixed) with those of the solid."
            )


def _check_numbers(material: Material, mesh: Mesh) -> None:
    for x in jax.tree.leaves(material):
        if jnp.ndim(x) and jnp.shape(x) != (len(mesh.cells),):
            raise InputError(
                f"solid(material={type(material).__name__}(...)): its numbers must be single ones, or one for each of "
                f"the {len(mesh.cells)} elements, not an array of shape {jnp.shape(x)}."
            )
