"""Rigid bodies without angles: a top by its rotation matrix, water by its atoms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..md.atoms import Atoms
from ..system.checks import bounded, vector
from ..system.constraints import Distances, Orthogonal
from ..system.symmetries import Generator, Rotation, Symmetry, Translation
from ..system.system import System
from .base import PAIRS, Model, NotNegative, Seed, count, model

Three = Annotated[Sequence[float], bounded(vector, size=3)]


def hat(omega: np.ndarray) -> np.ndarray:
    """The skew matrix Ω̂ with Ω̂ x = Ω × x."""
    return np.cross(omega, np.eye(3)).T


@model
def heavy_top(inertia: Three = (0.6, 0.8, 1.0), momentum: Three = (1.8, 0.4, -0.9)) -> Model:
    """A rigid body with one point fixed, by its rotation matrix Q from body to space (Console, Hairer and Lubich
    2013, example 3; Hairer, Lubich, Wanner, section VII.5):

    H = ½ tr(P D⁻¹Pᵀ) + q₃₃,   QᵀQ = I,   P = Q̇D,   d_i = ½(I_j + I_k − I_i).

    inertia:   the principal moments I; each must be smaller than the sum of the others.
    momentum:  angular momentum m in the body at the start, where Q = I: Q̇ = QΩ̂ with Ω_i = m_i/I_i, so H = ½ m·Ω + 1.

    The system is symmetric under rotations of space about the vertical: (Qm)₃ is conserved. Where I₁ = I₂ (Lagrange's
    top) it is symmetric under rotations of the body about its axis too: m₃ is conserved, up to its sign the momentum
    map of the second symmetry.
    """
    moments, m = np.array(inertia), np.array(momentum)
    d = 0.5 * moments.sum() - moments
    if not np.all(d > 0):
        raise InputError(
            f"heavy_top(inertia={moments.tolist()}): each moment of inertia of a body is smaller than the sum of the "
            "other two."
        )
    # δQ = ê₃Q mixes the rows of Q, and symmetries act on the last axis; on the flattened Q, row by row, it is ê₃ ⊗ I.
    symmetries: tuple[Symmetry, ...] = (Generator(jnp.kron(hat(np.eye(3)[2]), np.eye(3))),)
    if moments[0] == moments[1]:
        symmetries += (Rotation((0, 1)),)  # δQ = −Qê₃
    system = System(lambda q: q[2, 2], mass=d[None, :], constraint=Orthogonal(), symmetries=symmetries)
    return Model(
        system, np.eye(3), hat(m / moments), "heavy_top", "a spinning top as a rotation matrix", dt=0.01, t_end=20.0
    )


# TIP3P (Jorgensen and others 1983), in electronvolts, ångströms and atomic mass units, with which the unit of time is
# 10.1805 fs.
KILOCALORIE = 0.0433641042418  # one kcal/mol
BOLTZMANN = 8.617333262e-5  # one kelvin
OXYGEN_HYDROGEN = 0.9572
ANGLE = np.deg2rad(104.52)
MASSES = np.array([15.999, 1.008, 1.008])
CHARGES = np.array([-0.834, 0.417, 0.417])
COULOMB, REPULSION, ATTRACTION = 332.064 * KILOCALORIE, 582e3 * KILOCALORIE, 595 * KILOCALORIE
SPACING = 2.9  # between neighbours at the start, near the lowest energy


def tip3p(n: int):
    """U = Σ_{a<b} (Σ_ij K e_i e_j / r_{ai,bj} + A/r_OO¹² − C/r_OO⁶) over pairs of molecules; q of shape (3n, 3), the
    oxygen first in each."""
    a, b = np.triu_indices(n, 1)
    charges = COULOMB * np.outer(CHARGES, CHARGES)

    def potential(q):
        atoms = q.reshape(n, 3, 3)
        squares = jnp.sum((atoms[a][:, :, None] - atoms[b][:, None, :]) ** 2, axis=-1)
        sixth = 1 / squares[:, 0, 0] ** 3
        return jnp.sum(charges / jnp.sqrt(squares)) + jnp.sum(REPULSION * sixth**2 - ATTRACTION * sixth)

    return potential


@model
def rigid_water(n: Annotated[int, count(1, PAIRS // 3)] = 1, temperature: NotNegative = 200.0, seed: Seed = 0) -> Model:
    """n rigid water molecules in free space, each of three atoms (oxygen, hydrogen, hydrogen) held by their three
    distances. TIP3P between them:

    U = Σ_{a<b} (Σ_ij K e_i e_j / r_{ai,bj} + A/r_OO¹² − C/r_OO⁶)

    in electronvolts, ångströms and atomic mass units; the unit of time is then 10.18 fs. One molecule tumbles and
    flies freely. More form a cluster with no momentum, which starts as a piece of square ice: the hydrogens of a
    molecule point at two neighbours. Velocities are those of rigid bodies, v + ω × r, drawn for a temperature in
    kelvin; a cluster warms up by some 150 K as it settles.
    """
    atoms, centres = _square_ice(n)
    v0 = np.sqrt(BOLTZMANN * temperature) * _thermal(atoms, np.random.default_rng(seed))
    pairs = [(3 * a + i, 3 * a + j) for a in range(n) for i, j in ((0, 1), (0, 2), (1, 2))]
    lengths = [OXYGEN_HYDROGEN, OXYGEN_HYDROGEN, 2 * OXYGEN_HYDROGEN * np.sin(ANGLE / 2)] * n
    system = System(
        tip3p(n) if n > 1 else None,
        mass=np.tile(MASSES, n)[:, None],
        constraint=Distances(pairs, lengths),
        symmetries=(Translation(), Rotation()),
        atoms=Atoms("OHH", molecule="HOH", units="eV"),
    )
    description = "a rigid water molecule tumbling in space" if n == 1 else f"a cluster of {n} rigid water molecules"
    return Model(
        system,
        (centres[:, None] + atoms).reshape(-1, 3),
        v0.reshape(-1, 3),
        "rigid_water",
        description,
        dt=0.1,
        t_end=200.0,
    )


def _square_ice(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Atoms (n, 3, 3) about the centres of mass, and these (n, 3), about their mean: a cubic grid filled row by row
    and layer by layer. In a layer hydrogens point nearly along x and y; every other layer is turned by half a turn,
    so that their dipoles cancel."""
    direction = np.pi / 4 + 0.5 * ANGLE * np.array([-1, 1])
    hydrogens = OXYGEN_HYDROGEN * np.stack([np.cos(direction), np.sin(direction), np.zeros(2)], axis=1)
    molecule = np.concatenate([np.zeros((1, 3)), hydrogens])
    molecule -= MASSES @ molecule / MASSES.sum()
    side = next(k for k in range(1, n + 1) if k**3 >= n)
    z, y, x = np.indices((side, side, side)).reshape(3, -1)[:, :n]
    centres = SPACING * np.stack([x, y, z], axis=1)
    return (-1.0) ** z[:, None, None] * molecule, centres - centres.mean(axis=0)


def _thermal(atoms: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Velocities v + ω × r of atoms (n, 3, 3) for kT = 1, v of covariance 1/Σm and ω of covariance I⁻¹; the
    total momentum of several molecules is zero."""
    n = len(atoms)
    v, omega = random.standard_normal((2, n, 3))
    v = v / np.sqrt(MASSES.sum())
    v -= v.mean(axis=0) if n > 1 else 0.0
    spread = np.einsum("i,aij,aik->ajk", MASSES, atoms, atoms)
    inertia = np.trace(spread, axis1=1, axis2=2)[:, None, None] * np.eye(3) - spread
    omega = np.einsum("ai,aij->aj", omega, np.linalg.inv(np.linalg.cholesky(inertia)))
    return v[:, None] + np.cross(omega[:, None], atoms)
