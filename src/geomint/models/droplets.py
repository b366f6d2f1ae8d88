"""Initial data of water droplets: a piece of cubic ice, relaxed where it is small, and thermal velocities.

In cubic ice the oxygens are the sites of diamond. Between two neighbouring layers run parallel zigzag chains of
hydrogen bonds; a molecule belongs to one chain above and to one below it, and donates one hydrogen to each. All protons
of a chain point along it one way, so that every bond has one proton (the ice rules), and neighbouring chains point
opposite ways, so that their dipoles cancel.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..system import units
from .water_kinds import MASSES, Kind

NEIGHBOUR = 2.75  # ångströms between oxygens
COMPACT = 300  # molecules up to which a piece with many bonds is grown; larger ones are spheres
RELAXED = 30  # molecules up to which a droplet is relaxed
STEPS = 600  # of the relaxation


@functools.cache
def droplet(n: int, kind: Kind) -> np.ndarray:
    """Positions (n, 3, 3) of the atoms in ångströms, about their centre of mass."""
    sites = _grown(n) if n <= COMPACT else _sphere(n)
    turns = _orientations(sites)
    centres = sites * (NEIGHBOUR / np.sqrt(3))
    if 1 < n <= RELAXED:
        centres, turns = _relaxed(centres, turns, kind)
    q = centres[:, None] + np.einsum("aij,kj->aki", turns, kind.atoms)
    q -= np.einsum("k,aki->i", MASSES, q) / (n * MASSES.sum())
    q.setflags(write=False)
    return q


# --- ice --------------------------------------------------------------------------------------------------------------
def _bonds(site: np.ndarray) -> np.ndarray:
    """The neighbours of a site, up, up, down, down; sites with even coordinates and those with odd ones have opposite
    bonds."""
    up_and_down = np.array([[1, 1, 1], [-1, -1, 1], [1, -1, -1], [-1, 1, -1]])
    return site + (up_and_down if site[2] % 2 == 0 else -up_and_down)


def _grown(n: int) -> np.ndarray:
    """n sites: at each time one of those with the most bonds to the piece, and of these the one closest to the middle
    of a ring of six."""
    middle = np.array([1.0, -0.1, 0.9])
    start = (0, 0, 0)
    piece, border = {start: None}, {}
    newest = start
    while len(piece) < n:
        for neighbour in map(tuple, _bonds(np.array(newest)).tolist()):
            if neighbour not in piece:
                border[neighbour] = border.get(neighbour, 0) + 1
        off = lambda x: sum((a - b) ** 2 for a, b in zip(x, middle, strict=True))
        newest = min(border, key=lambda x: (-border[x], off(x)))
        del border[newest]
        piece[newest] = None
    return np.array(list(piece))


def _sphere(n: int) -> np.ndarray:
    """The n sites that are closest to a point that is none of symmetry."""
    reach = int(np.ceil((n / 8 * 64 / (4 * np.pi / 3)) ** (1 / 3))) + 4
    x, y, z = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * 3, indexing="ij")).reshape(3, -1)
    even, odd = (x % 2 == 0) & (y % 2 == 0) & (z % 2 == 0), (x % 2 == 1) & (y % 2 == 1) & (z % 2 == 1)
    on = (even & ((x + y + z) % 4 == 0)) | (odd & ((x + y + z) % 4 == 3))
    sites = np.stack([x, y, z], axis=1)[on]
    return sites[np.argsort(np.sum((sites - [0.1, 0.2, 0.3]) ** 2, axis=1), kind="stable")[:n]]


def _orientations(sites: np.ndarray) -> np.ndarray:
    """Matrices (n, 3, 3) that turn a molecule with its hydrogens about x in the x–y plane to its donated bonds."""
    x, y, z = sites.T
    even = z % 2 == 0
    # Chains between z and z + 1 run along (1, 1) where z is even, along (1, −1) where it is odd.
    sign = lambda even, z: 1 - 2 * (np.where(even, (x - y + z) // 4, (x + y + z - 3) // 4) % 2)
    along = lambda even, s: np.stack([s, np.where(even, s, -s)], axis=1)
    up = np.concatenate([along(even, sign(even, z)), np.ones((len(z), 1))], axis=1)
    down = np.concatenate([along(~even, sign(~even, z - 1)), -np.ones((len(z), 1))], axis=1)
    axis, across = up + down, up - down
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    return np.stack([axis, across, np.cross(axis, across)], axis=2)


# --- relaxation -------------------------------------------------------------------------------------------------------
def _relaxed(centres: np.ndarray, turns: np.ndarray, kind: Kind) -> tuple[np.ndarray, np.ndarray]:
    """Steps of rigid molecules along the forces and torques, with a length that grows while the energy falls and is
    halved where it does not."""
    step, energy = 0.02, np.inf
    state, trial = (centres, turns), (centres, turns)
    direction: Any = None
    for _ in range(STEPS):
        found, force, torque = _forces(*trial, kind)
        if found < energy:
            state, energy, step = trial, found, 1.3 * step
            largest = max(np.max(np.abs(force)), np.max(np.abs(torque)))
            direction = force / largest, torque / largest
        else:
            step *= 0.4
        trial = state[0] + step * direction[0], _turned(step * direction[1]) @ state[1]
    left, _, right = np.linalg.svd(state[1])  # without the rounding of many products
    return state[0], left @ right


def _forces(centres: np.ndarray, turns: np.ndarray, kind: Kind) -> tuple[float, np.ndarray, np.ndarray]:
    """Energy in kcal/mol, forces and torques of rigid molecules."""
    n = len(centres)
    atoms = np.einsum("aij,kj->aki", turns, kind.atoms)
    share = np.array([[1 - 2 * kind.share, kind.share, kind.share], [0, 1, 0], [0, 0, 1]])
    arms = np.einsum("sk,aki->asi", share, atoms)
    charge = np.array([-2 * kind.charge, kind.charge, kind.charge])
    a, b = np.triu_indices(n, 1)
    # Charges
    apart = (centres[:, None] + arms)[a][:, :, None] - (centres[:, None] + arms)[b][:, None]
    r = np.linalg.norm(apart, axis=-1)
    each = units.KCAL.coulomb * np.outer(charge, charge) / r
    push = (each / r**2)[..., None] * apart
    on_sites = np.zeros((n, 3, 3))
    np.add.at(on_sites, a, push.sum(axis=2))
    np.add.at(on_sites, b, -push.sum(axis=1))
    # Oxygens
    oxygen = centres + atoms[:, 0]
    apart = oxygen[a] - oxygen[b]
    square = np.sum(apart**2, axis=-1)
    sixth = square**-3
    energy = np.sum(each) + np.sum(kind.repulsion * sixth**2 - kind.attraction * sixth)
    push = ((12 * kind.repulsion * sixth - 6 * kind.attraction) * sixth / square)[:, None] * apart
    on_oxygens = np.zeros((n, 3))
    np.add.at(on_oxygens, a, push)
    np.add.at(on_oxygens, b, -push)
    torque = np.sum(np.cross(arms, on_sites), axis=1) + np.cross(atoms[:, 0], on_oxygens)
    return float(energy), on_sites.sum(axis=1) + on_oxygens, torque


def _turned(angles: np.ndarray) -> np.ndarray:
    """Rotation matrices of small rotation vectors, by the Cayley transform."""
    x, y, z = 0.5 * angles.T
    zero = np.zeros_like(x)
    hat = np.stack([np.stack(row, -1) for row in ((zero, -z, y), (z, zero, -x), (-y, x, zero))], -2)
    return np.linalg.solve(np.eye(3) - hat, np.eye(3) + hat)


# --- velocities -------------------------------------------------------------------------------------------------------
def thermal(q: np.ndarray, kT: float, random: np.random.Generator) -> np.ndarray:
    """Velocities v + ω × r of rigid molecules (n, atoms, 3) at a temperature. The total momentum and angular momentum
    of several molecules are zero, and their kinetic energy is (6n − 6) kT/2."""
    n, masses, total = len(q), MASSES, MASSES.sum()
    v, omega = random.standard_normal((2, n, 3))
    centres = np.einsum("k,aki->ai", masses, q) / total
    arms = q - centres[:, None]
    inertia = _inertia(arms, masses)
    omega = np.einsum("ai,aij->aj", omega, np.linalg.inv(np.linalg.cholesky(inertia)))
    v = (v / np.sqrt(total))[:, None] + np.cross(omega[:, None], arms)
    if n == 1:
        return np.sqrt(kT) * v
    flat, m = q.reshape(1, -1, 3), np.tile(masses, n)
    momentum = lambda: np.einsum("k,aki->i", masses, v)
    v -= momentum() / (n * total)
    angular = np.einsum("k,aki->i", masses, np.cross(q, v))
    v -= np.cross(np.linalg.solve(_inertia(flat, m)[0], angular), q)
    v -= momentum() / (n * total)  # the rounding of the line above
    return v * np.sqrt((6 * n - 6) * kT / np.einsum("k,aki,aki->", masses, v, v))


def _inertia(arms: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Σ m (r² I − r rᵀ) of every molecule."""
    spread = np.einsum("k,aki,akj->aij", masses, arms, arms)
    return np.trace(spread, axis1=1, axis2=2)[:, None, None] * np.eye(3) - spread
