"""Energies and forces of droplets of TIP3P water against OpenMM's reference platform (dependency group `bench`)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm

openmm = pytest.importorskip("openmm")

# Kilojoules a mole, nanometres: σ, ε and charges of TIP3P, and OpenMM's constant of Coulomb's law (CODATA 2018).
SIGMA, EPSILON, CHARGES = 0.315061, 0.6364, np.array([-0.834, 0.417, 0.417])
COULOMB = 138.935457644382
BOND, ANGLE = 0.09572, np.deg2rad(104.52)


def droplet(n):
    """Molecules with random orientations near a cubic grid, (3n, 3)."""
    random = np.random.default_rng(n)
    half = 0.5 * ANGLE
    molecule = BOND * np.array([[0, 0, 0], [np.cos(half), np.sin(half), 0], [np.cos(half), -np.sin(half), 0]])
    side = int(np.ceil(n ** (1 / 3)))
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)[:n]
    turned = np.linalg.qr(random.normal(size=(n, 3, 3)))[0]
    return (0.31 * grid[:, None] + molecule @ turned + random.uniform(-0.02, 0.02, (n, 1, 3))).reshape(-1, 3)


def by_openmm(q):
    """The energy and the forces."""
    system, force = openmm.System(), openmm.NonbondedForce()
    force.setNonbondedMethod(openmm.NonbondedForce.NoCutoff)
    for i in range(len(q)):
        system.addParticle(1.0)
        force.addParticle(float(CHARGES[i % 3]), SIGMA, 0.0 if i % 3 else EPSILON)
    for i in range(0, len(q), 3):
        for a, b in ((0, 1), (0, 2), (1, 2)):
            force.addException(i + a, i + b, 0.0, 1.0, 0.0)
    system.addForce(force)
    platform = openmm.Platform.getPlatformByName("Reference")
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform)
    context.setPositions(q)
    state = context.getState(energy=True, forces=True)
    unit = openmm.unit.kilojoule_per_mole
    energy = state.getPotentialEnergy().value_in_unit(unit)
    return energy, state.getForces(asNumpy=True).value_in_unit(unit / openmm.unit.nanometer)


def lennard_jones(s):
    sixth = (SIGMA**2 / s) ** 3
    return 4 * EPSILON * (sixth**2 - sixth)


@pytest.mark.parametrize("n", [7, 100, 1000])
def test_droplets_of_water(n):
    coulomb = lambda r, a, b: COULOMB * a["charge"] * b["charge"] / r
    water = gm.md.PairPotential(coulomb, sites={"charge": np.tile(CHARGES, n)}, molecules=3)
    water += gm.md.PairPotential(lennard_jones, squared=True, on=range(0, 3 * n, 3))
    q = droplet(n)
    energy, gradient = jax.jit(jax.value_and_grad(lambda x: water(x)))(jnp.asarray(q))
    expected, forces = by_openmm(q)
    assert abs(energy - expected) <= 1e-6 * abs(expected)
    assert np.abs(gradient + forces).max() <= 1e-6 * np.abs(forces).max()
