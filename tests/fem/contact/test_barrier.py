"""The smooth barrier against ipctk: energies and gradients, for all kinds of closest parts, parallel edges included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint import fem
from geomint.fem.contact import barrier

BALL = fem.ball(1.0, layers=1)
TURN = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
TURN = TURN * np.sign(np.linalg.det(TURN))
MESH = fem.Mesh.union([BALL, BALL.mapped(lambda x: x @ TURN.T + [3.0, 0.0, 0.0])])
# Where the second ball is put, turned (1) or parallel to the first (0).
PLACES = [
    (1, (1.95, 0.1, 0.05)),
    (0, (0.0, 0.0, 2.05)),
    (0, (1.9, 0.35, 0.0)),
    (1, (-1.2, 1.2, 1.2)),
    (1, (1.3, 1.3, 0.9)),
]
DISTANCE = 0.5


def energy_and_gradient(x):
    """By ipctk, as it is stated there."""
    ipctk = pytest.importorskip("ipctk")
    surface = fem.BarrierContact(MESH, DISTANCE, 1.0).scene.surface
    mesh = ipctk.CollisionMesh(MESH.nodes, surface.edges, surface.faces)
    near, potential = ipctk.NormalCollisions(), ipctk.BarrierPotential(DISTANCE, 3.0)
    near.build(mesh, x, DISTANCE)
    return potential(near, mesh, x), potential.gradient(near, mesh, x).reshape(-1, 3)


def test_energies_and_gradients_are_those_of_ipctk():
    contact, kinds, energies = fem.BarrierContact(MESH, DISTANCE, 3.0), set(), []
    both = jax.jit(jax.value_and_grad(contact))
    for turned, by in PLACES:
        x = np.concatenate([BALL.nodes, BALL.nodes @ (TURN.T if turned else np.eye(3)) + by])
        energy, force = both(x)
        expected, gradient = energy_and_gradient(x)
        assert float(energy) == pytest.approx(expected, rel=1e-10)
        np.testing.assert_allclose(force, gradient, atol=1e-10 * np.max(np.abs(gradient)))
        counts, rows = contact._near(jnp.asarray(x))
        kinds |= set(np.asarray(rows)[: int(counts[0]), 0].tolist())
        energies.append(float(energy))
    assert kinds == {0, 1, 2, 3}
    assert min(energies) > 0
    # Faces that intersect.
    assert np.isnan(both(np.concatenate([BALL.nodes, BALL.nodes @ TURN.T + [0.9, 0.1, 0.2]]))[0])


def test_a_collision_by_verlet_keeps_energy_and_momenta():
    system = fem.with_contact(
        fem.solid(MESH, fem.NeoHookean(1.0, 1.0), watch=fem.watch_bodies(MESH)), fem.BarrierContact(MESH, 0.2, 30.0)
    )
    v = np.where(MESH.bodies[:, None] == 1, [-0.5, 0.05, 0.0], 0.0)
    run = gm.simulate(system, MESH.nodes, v, method=gm.Verlet(), dt=4e-3, t_end=6.0, save_every=10)
    found = fem.collision(run)
    assert 1.0 < found.start < found.end < 5.9
    assert 0.5 < found.restitution < 1.0
    kinetic = 0.5 * np.sum(run.p * run.v, axis=(1, 2))
    assert np.max(np.abs(run.energy_error)) < 1e-3 * kinetic[0]
    for values in run.momentum_maps.values():
        np.testing.assert_allclose(values, np.broadcast_to(values[0], values.shape), atol=1e-12)
    assert run.watched["contact_energy"].max() > 0.01 * kinetic[0]


def test_the_numbers_of_kinds_are_those_of_the_loops():
    from geomint.fem.contact import near_loops

    names = ("VERTEX_VERTEX", "VERTEX_EDGE", "VERTEX_FACE", "EDGE_EDGE", "COLUMNS")
    assert [getattr(barrier, name) for name in names] == [getattr(near_loops, name) for name in names]
