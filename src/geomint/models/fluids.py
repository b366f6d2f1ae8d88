"""Fluids: many particles in a periodic box, with neighbour lists."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from jaxtyping import Array

from ..errors import InputError
from ..md import Atoms, Box, PairPotential
from ..system.symmetries import Translation
from ..system.system import System
from .base import Model, NotNegative, Positive, Seed, count, model


@model
def lennard_jones_fluid(
    atoms: Annotated[int, count(32)] = 500,
    density: Positive = 0.8442,
    temperature: NotNegative = 0.722,
    cutoff: Positive = 2.5,
    skin: Positive = 0.3,
    seed: Seed = 0,
) -> Model:
    """A Lennard-Jones fluid in a periodic cube, in reduced units (σ = ε = m = 1); by default near the triple point.

    V = ½ Σ S φ(r), φ = 4 (r⁻¹² − r⁻⁶), smoothed by S from 0.9 cutoff to the cut-off. Atoms start on a face-centred
    cubic lattice with random velocities of that temperature and no total momentum; about half of the kinetic energy
    goes into the potential while the lattice melts.
    """
    edge = (atoms / density) ** (1 / 3)
    if edge < 2 * (cutoff + skin):
        least = int(np.ceil(density * (2 * (cutoff + skin)) ** 3))
        raise InputError(
            f"the box of {atoms} atoms has edges of {edge:.3g}, less than twice cutoff + skin = {cutoff + skin:g}; "
            f"take at least {least} atoms, or a smaller cut-off."
        )
    box = Box((edge,) * 3)
    pair = PairPotential(lennard_jones, cutoff=cutoff, box=box, squared=True)
    lists = pair.neighbours(skin)
    system = System(potential=pair, auxiliary=lists, symmetries=(Translation(),), atoms=Atoms("Ar", box))
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(atoms, 3))
    v -= v.mean(axis=0)
    v *= np.sqrt(3 * (atoms - 1) * temperature / np.sum(v**2))
    q = face_centred(atoms, edge)
    return Model(system, q, v, "lennard_jones_fluid", f"{atoms} atoms in a periodic box", dt=0.004, t_end=2.0)


def lennard_jones(s: Array) -> Array:
    """φ of the squared distance."""
    inverse = 1.0 / s
    sixth = inverse * inverse * inverse
    return 4.0 * (sixth * sixth - sixth)


def face_centred(atoms: int, edge: float) -> np.ndarray:
    """The first positions of a face-centred cubic lattice that fills the cube."""
    cells = int(np.ceil((atoms / 4) ** (1 / 3)))
    corners = np.stack(np.meshgrid(*[np.arange(cells)] * 3, indexing="ij"), axis=-1).reshape(-1, 1, 3)
    basis = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]]) + 0.25
    sites = (corners + basis).reshape(-1, 3)
    # Sites left over are spread evenly.
    return sites[np.round(np.linspace(0, len(sites) - 1, atoms)).astype(int)] * edge / cells
