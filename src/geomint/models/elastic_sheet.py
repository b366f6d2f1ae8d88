"""An elastic sheet of linear triangles with a consistent mass matrix."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..system.checks import bounded, number
from ..system.system import System
from .base import Model, Positive, count, model


def triangles(rows: int, columns: int) -> np.ndarray:
    """(t, 3): the nodes of the triangles of a grid, two for each square; the first has the right angle."""
    node = np.arange(rows * columns).reshape(rows, columns)
    upper = node[:-1, :-1], node[:-1, 1:], node[1:, :-1]
    lower = node[1:, 1:], node[1:, :-1], node[:-1, 1:]
    return np.concatenate([np.stack(corners, axis=-1).reshape(-1, 3) for corners in (upper, lower)])


def consistent_mass(nodes: int, corners: np.ndarray, masses: np.ndarray | float):
    """The mass matrix of linear triangles, ∫ρ φ_i φ_j: m/6 on the diagonal and m/12 off it for a triangle of mass m."""
    from scipy import sparse

    element = (np.ones((3, 3)) + np.eye(3)) / 12
    entries = np.broadcast_to(masses, len(corners))[:, None, None] * element
    i, j = np.broadcast_arrays(corners[:, :, None], corners[:, None, :])
    return sparse.coo_matrix((entries.ravel(), (i.ravel(), j.ravel())), shape=(nodes, nodes)).tocsr()


@model
def elastic_sheet(
    nodes: Annotated[int, count(4)] = 400,
    stiffness: Positive = 100.0,
    poisson: Annotated[float, bounded(number, least=0.0, most=0.49)] = 0.3,
    density: Positive = 1.0,
    stretch: Annotated[float, bounded(number, least=1.0, most=2.0)] = 1.1,
    amplitude: float = 0.5,
) -> Model:
    """A square drum of side 1 in space with about `nodes` moving nodes, clamped at its rim: a membrane of St.
    Venant–Kirchhoff material that is stretched by the factor `stretch`,

        U = Σ A (λ/2 (tr E)² + μ tr E²),    E = ½(FᵀF − 1),

    summed over linear triangles, with the plane-stress constants of Young's modulus `stiffness` (per unit of thickness)
    and Poisson's ratio, and the consistent mass matrix of linear triangles, which is sparse. q (nodes, 3) are the
    positions of the moving nodes; it starts flat, with a velocity of size `amplitude` out of the plane.
    """
    side = max(2, round(nodes**0.5))
    spacing = 1 / (side + 1)
    rest = spacing / stretch  # of the edges
    first = stiffness * poisson / (1 - poisson**2)  # λ of plane stress
    second = stiffness / (2 * (1 + poisson))  # μ
    i, j = (x * spacing for x in np.meshgrid(np.arange(side + 2), np.arange(side + 2), indexing="ij"))
    flat = np.stack([i, j, np.zeros_like(i)], axis=-1)
    inside = np.zeros(i.shape, bool)
    inside[1:-1, 1:-1] = True
    rim = np.where(inside[..., None], 0.0, flat)

    def of_triangles(a: Array, b: Array) -> Array:
        """From the edges at the right angles."""
        aa, bb, ab = (jnp.sum(x * y, axis=-1) / rest**2 for x, y in ((a, a), (b, b), (a, b)))
        e1, e2, shear = 0.5 * (aa - 1), 0.5 * (bb - 1), 0.5 * ab
        return 0.5 * rest**2 * jnp.sum(0.5 * first * (e1 + e2) ** 2 + second * (e1**2 + e2**2 + 2 * shear**2))

    def potential(q: Array) -> Array:
        # Slices of the grid, whose derivatives are sums; a gather by triangles would have a scatter for a derivative.
        x = jnp.asarray(rim) + jnp.pad(q.reshape(side, side, 3), ((1, 1), (1, 1), (0, 0)))
        corner, right, below, opposite = x[:-1, :-1], x[:-1, 1:], x[1:, :-1], x[1:, 1:]
        return of_triangles(right - corner, below - corner) + of_triangles(below - opposite, right - opposite)

    mass = consistent_mass(i.size, triangles(*i.shape), 0.5 * density * rest**2)
    moving = np.flatnonzero(inside.ravel())
    wave = amplitude * np.sin(np.pi * i) * np.sin(2 * np.pi * j)
    dt = rest * (density / stiffness) ** 0.5 / 10
    return Model(
        System(potential, mass=mass[moving][:, moving]),
        flat[inside],
        np.stack([0 * wave, 0 * wave, wave], axis=-1)[inside],
        "elastic_sheet",
        f"a stretched elastic sheet, clamped at its rim, with {side} × {side} nodes and a consistent mass matrix",
        dt=dt,
        t_end=round(2 / (dt * (stiffness / density) ** 0.5)) * dt,
    )
