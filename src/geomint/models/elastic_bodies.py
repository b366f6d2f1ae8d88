"""Elastic bodies of linear tetrahedra."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ..fem import NeoHookean, cube, solid
from .base import Model, Positive, count, model


@model
def elastic_cube(
    cells: Annotated[int, count(1, 100)] = 8,
    lame: Positive = 0.01,
    shear: Positive = 0.0066,
    density: Positive = 0.1,
    spin: float = 1.0,
) -> Model:
    """A free cube of side 1 of neo-Hookean material that spins about the axis through its centre, (½, ½, z), and
    vibrates strongly: cells³ small cubes of 24 tetrahedra each, with lumped masses. q (n, 3) are the positions of the
    nodes. By default that of Gonzalez, Schmidt, Ortiz (2010), section 5.2.1.

    cells:   along an edge; 8 of them have 12,288 tetrahedra.
    lame:    λ, Lamé's first constant.
    shear:   μ, the shear modulus.
    density: mass per volume at rest.
    spin:    the initial angular velocity.
    """
    mesh = cube(cells)
    v = spin * np.cross([0.0, 0.0, 1.0], mesh.nodes - 0.5)
    dt = 0.1 / cells * (density / (lame + 2 * shear)) ** 0.5  # a quarter of Verlet's limit
    what = f"a spinning elastic cube of {len(mesh.cells)} tetrahedra"
    system = solid(mesh, NeoHookean(lame, shear), density)
    return Model(system, np.array(mesh.nodes), v, "elastic_cube", what, dt=dt, t_end=round(10 / dt) * dt)
