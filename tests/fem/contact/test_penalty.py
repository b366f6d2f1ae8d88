"""The penalty for intersecting faces: its value against a sum over all pairs, its derivatives, its invariances."""

import itertools

import jax
import numpy as np
import pytest

import geomint as gm
from geomint import fem
from geomint.fem.contact import intersections

BALL = fem.ball(1.0, layers=1)
# Turned, so that no edges are parallel, and overlapping.
_TURN = np.linalg.qr(np.random.default_rng(4).normal(size=(3, 3)))[0]
OTHER = fem.Mesh(BALL.nodes @ _TURN.T + [1.5, 0.1, 0.05], BALL.cells, orient=True)


def ends(one, other):
    """Where the edges of one triangle pierce another."""
    n = np.cross(other[1] - other[0], other[2] - other[0])
    for p, q in ((one[k], one[(k + 1) % 3]) for k in range(3)):
        a, b = n @ (p - other[0]), n @ (q - other[0])
        if a * b < 0:
            x = p + (q - p) * a / (a - b)
            s, t, _ = np.linalg.solve(np.stack([other[1] - other[0], other[2] - other[0], n], axis=1), x - other[0])
            if min(s, t, 1 - s - t) >= 0:
                yield x


def test_energy_and_its_derivatives():
    mesh = fem.Mesh.union([BALL, OTHER])
    contact, x = fem.PenaltyContact(mesh, 0.1), mesh.nodes
    total, pairs = 0.0, 0
    for f, g in itertools.combinations(mesh.boundary_faces, 2):
        found = [*ends(x[f], x[g]), *ends(x[g], x[f])] if not set(f) & set(g) else []
        if found:
            a, b = found
            total, pairs = total + np.sum((a - b) ** 2) / 0.2, pairs + 1
    assert pairs > 4
    both = jax.jit(jax.value_and_grad(contact))
    value, force = both(x)
    assert value == pytest.approx(total, rel=1e-12)
    along = np.random.default_rng(1).normal(size=x.shape)
    step = 1e-5
    rate = float(both(x + step * along)[0] - both(x - step * along)[0]) / (2 * step)
    assert rate == pytest.approx(float(np.sum(force * along)), rel=1e-7)
    # Invariant under translations and rotations.
    np.testing.assert_allclose(np.sum(force, axis=0), 0, atol=1e-12 * np.max(np.abs(force)))
    np.testing.assert_allclose(np.sum(np.cross(x, force), axis=0), 0, atol=1e-12 * np.max(np.abs(force)))
    # With less room than pairs there is no number.
    assert np.isnan(fem.PenaltyContact(mesh, 0.1, room=pairs - 1)(x))
    # Bodies that do not touch themselves; an obstacle.
    alone = fem.PenaltyContact(mesh, 0.1, self_contact=False), fem.PenaltyContact(BALL, 0.1, obstacle=OTHER)
    assert [intersections(alone[0], x), intersections(alone[1], BALL.nodes)] == [pairs, pairs]
    assert intersections(contact, np.where(mesh.bodies[:, None] == 1, x + 1.0, x)) == 0


def test_energy_stepping_collides_without_gaining_energy():
    """Fixed steps do: the stiffness of nearly parallel faces has no bound. Before the collision V does not change at
    all, so that nothing but `reach` keeps the search from passing over it."""
    mesh = fem.Mesh.union([BALL, OTHER.moved((1.0, 0.0, 0.0))])
    solid = fem.solid(mesh, fem.NeoHookean(1.0, 1.0), watch=fem.watch_bodies(mesh))
    system = fem.with_contact(solid, fem.PenaltyContact(mesh, 0.05))
    v = np.where(mesh.bodies[:, None] == 1, [-0.5, 0.0, 0.0], 0.0)
    method = gm.EnergyStepping(0.01, offset=-0.005)
    run = gm.simulate(system, mesh.nodes, v, method=method, dt=0.02, t_end=6.0)
    np.testing.assert_allclose(run.energy, run.energy[0], rtol=1e-13)
    momentum = run.momentum_maps["translation"]
    np.testing.assert_allclose(momentum, np.broadcast_to(momentum[0], momentum.shape), atol=1e-12)
    found = fem.collision(run)
    assert 1.0 < found.start < found.end < 5.5
    assert found.impacts == 0
    assert 0.3 < found.restitution <= 1
    touching = run.t[run.watched["contact_energy"] > 0]
    assert found.start < touching[0]
    assert touching[-1] < found.end + 0.02


def test_errors():
    cube = fem.cube(1)
    solid, barrier = fem.solid(cube, fem.NeoHookean(1.0, 1.0)), fem.BarrierContact(cube, 0.1, 1.0)
    wrong = {
        "plane": lambda: fem.PenaltyContact(fem.box((1.0, 1.0), (1, 1)), 1.0),
        "PenaltyContact or BarrierContact": lambda: fem.with_contact(solid, lambda q: 0.0),
        r"EnergyStepping\(inside=...\)": lambda: fem.with_contact(solid, fem.ExactContact(cube)),
        "of the mesh that the contact": lambda: fem.with_contact(solid, fem.BarrierContact(BALL, 0.1, 1.0)),
        "15 nodes of the body are free, and 14": lambda: fem.with_contact(
            solid, fem.BarrierContact(cube, 0.1, 1.0, fixed=[0])
        ),
        "is an energy": lambda: gm.EnergyStepping(0.1, inside=barrier),
        "numbers of nodes, from 0 to 14": lambda: fem.ExactContact(cube, fixed=[99]),
        "np.flatnonzero": lambda: fem.ExactContact(cube, fixed=np.ones(15, bool)),
        "nothing moves": lambda: fem.ExactContact(cube, fixed=range(15)),
        "obstacle=...": lambda: fem.ExactContact(cube, obstacle=fem.box((1.0, 1.0), (1, 1))),
    }
    for named, call in wrong.items():
        with pytest.raises(gm.InputError, match=named):
            call()
