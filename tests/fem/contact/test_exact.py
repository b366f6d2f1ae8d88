"""Exact contact: the time of impact against a search in small steps, and a collision that conserves everything."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint import fem
from geomint.fem.contact import intersections
from geomint.methods import energy_stepping

TETRAHEDRON = fem.Mesh(np.vstack([np.zeros(3), np.eye(3)]), [[0, 1, 2, 3]])
PLATE = fem.box((4.0, 4.0, 0.5), (2, 2, 1)).moved((-2.0, -2.0, -0.5))  # its upper side is z = 0


def turned(mesh, seed, at):
    q = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    q *= np.sign(np.linalg.det(q))
    return mesh.mapped(lambda x: (x - x.mean(axis=0)) @ q.T + np.asarray(at))


CUBE = fem.cube(2)


def pierced_by_ipctk(contact, q):
    """Whether faces intersect, by exact arithmetic."""
    ipctk = pytest.importorskip("ipctk")
    surface = contact.scene.surface
    mesh = ipctk.CollisionMesh(contact.scene.rest, surface.edges, surface.faces)
    return ipctk.has_intersections(mesh, np.asarray(contact.scene.points(q)))


def pierced(x):
    """Whether an edge of one of two tetrahedra (8, 3) crosses a face of the other, by barycentric coordinates."""
    for a, b in ((x[:4], x[4:]), (x[4:], x[:4])):
        for (i, j), face in itertools.product(itertools.combinations(range(4), 2), itertools.combinations(range(4), 3)):
            o, u, v = b[face[0]], b[face[1]] - b[face[0]], b[face[2]] - b[face[0]]
            s, t, w = np.linalg.solve(np.stack([u, v, a[i] - a[j]], axis=1), a[i] - o)
            if s > 0 and t > 0 and s + t < 1 and 0 < w < 1:
                return True
    return False


def test_nothing_intersects_before_the_first_impact_and_something_does_after_it():
    contact = fem.ExactContact(fem.Mesh.union([TETRAHEDRON, TETRAHEDRON.moved((2.0, 0.0, 0.0))]))
    search, kinds = jax.jit(contact.first_impact), []
    for seed in range(40):  # deforming, but never inverted; not all hit
        x = np.concatenate(
            [turned(TETRAHEDRON, seed, (0, 0, 0)).nodes, turned(TETRAHEDRON, seed + 41, (2, 0.7, 0)).nodes]
        )
        v = 0.15 * np.random.default_rng(seed).normal(size=x.shape)
        v[4:, 0] -= 1.5
        time, nodes = search(jnp.asarray(x), jnp.asarray(v), 0.0, 2.0)
        end = min(float(time), 2.0)
        assert not any(pierced(x + s * v) for s in np.linspace(0, end, 25))
        if end < 2.0:
            assert pierced(x + (end + 1e-5) * v)
            assert abs(contact.gap(jnp.asarray(x + end * v), nodes)) < 1e-9
            kinds.append(int(np.sum(np.asarray(nodes) < 4)))
    assert {1, 2, 3} == set(kinds)  # edges meet edges, and vertices of either meet faces
    assert 20 < len(kinds) < 40


def test_an_impact_on_an_obstacle_and_on_fixed_nodes():
    body = turned(TETRAHEDRON, 3, (0.1, 0.2, 2.0))
    v = np.broadcast_to([0.3, -0.2, -1.0], (4, 3))
    expected = body.nodes[:, 2].min()
    with_obstacle = fem.ExactContact(body, obstacle=PLATE)
    found = with_obstacle.first_impact(jnp.asarray(body.nodes), jnp.asarray(v), 0.0, 5.0)
    assert found.time == pytest.approx(expected, abs=1e-9)
    assert found.time < expected  # early by a gap far below any length, so that rounding never lets a node through
    both = fem.Mesh.union([PLATE, body])
    held = fem.ExactContact(both, fixed=np.arange(len(PLATE.nodes)))
    same = held.first_impact(jnp.asarray(body.nodes), jnp.asarray(v), 0.0, 5.0)
    assert same.time == pytest.approx(expected, abs=1e-9)
    touching = body.nodes + float(found.time) * v
    again = lambda w: float(with_obstacle.first_impact(jnp.asarray(touching), jnp.asarray(w), 0.0, 5.0).time)
    assert again(v * [1, 1, -1]) == np.inf  # it separates
    assert again(v) == 0.0  # it approaches
    assert intersections(with_obstacle, touching) == 0
    assert intersections(with_obstacle, touching + 0.01 * v) > 0


ALIGNED = {
    "face on face": (CUBE, CUBE.moved((1.1, 0, 0)), (-1, 0, 0)),
    "face on face, sliding": (CUBE, CUBE.moved((1.1, 0, 0)), (-1, 0, -0.2)),
    "edge on edge": (CUBE, CUBE.moved((1.1, 1.0, 0)), (-1, 0, 0)),
    "corner on corner": (CUBE, CUBE.moved((1.1, 1.0, 1.0)), (-1, 0, 0)),
    "flat on a plate": (PLATE.moved((0, 0, -0.1)), CUBE.moved((-0.5, -0.5, 0)), (0, 0, -1)),
}


@pytest.mark.parametrize("name", ALIGNED)
def test_aligned_bodies_meet_at_many_points_at_once(name, monkeypatch):
    """Vertices meet vertices and edges, faces that lie in one plane do not touch, and the bodies separate; bodies
    without stress do not start on an edge of a terrace."""
    monkeypatch.setattr(energy_stepping, "IDLE", 5)  # fewer than the points that meet at a time
    one, other, direction = ALIGNED[name]
    mesh = fem.Mesh.union([one, other])
    contact, material = fem.ExactContact(mesh), fem.NeoHookean(*fem.lame_constants(10.0, 0.3))
    v = np.where(mesh.bodies[:, None] == 1, 0.5, -0.5) * np.array(direction, float)
    system = fem.solid(mesh, material, watch=fem.watch_bodies(mesh))
    run = gm.simulate(system, mesh.nodes, v, method=gm.EnergyStepping(0.01, inside=contact), dt=0.05, t_end=1.0)
    assert not any(pierced_by_ipctk(contact, q) for q in run.q)
    np.testing.assert_allclose(run.energy, run.energy[0], rtol=1e-13)
    for values in run.momentum_maps.values():
        np.testing.assert_allclose(values, np.broadcast_to(values[0], values.shape), atol=1e-13 * len(v))
    along = np.diff(run.watched["velocity"], axis=1)[:, 0] @ direction
    assert run.events["contact"] > 0
    assert along[0] == pytest.approx(np.dot(direction, direction))
    if name.startswith(("face", "flat")):
        assert along[-1] < 0
    else:  # these only just meet
        assert along[-1] < along[0]


def clamp():
    """A body with two arms, which move towards each other, and a cube that hits it from above."""
    whole = fem.box((3.0, 1.0, 2.0), (3, 1, 2))
    x = whole.nodes[whole.cells].mean(axis=1)
    used, cells = np.unique(whole.cells[~((np.abs(x[:, 0] - 1.5) < 0.5) & (x[:, 2] > 1))], return_inverse=True)
    body, cube = fem.Mesh(whole.nodes[used], cells.reshape(-1, 4)), turned(fem.cube(1), 5, (0.3, 0.4, 3.2))
    mesh = fem.Mesh.union([body, cube])
    v = np.zeros_like(mesh.nodes)
    arms = body.nodes[:, 2] > 1.0
    v[: len(used)][arms, 0] = np.sign(1.5 - body.nodes[arms, 0]) * (body.nodes[arms, 2] - 1.0) * 2.0
    v[len(used) :] = np.array([0.1, 0.0, -1.0]) + np.cross([0.3, -0.5, 0.8], cube.nodes - cube.nodes.mean(axis=0))
    return mesh, v


def test_bodies_that_touch_themselves_and_each_other_conserve_everything(tmp_path):
    mesh, v = clamp()
    contact = fem.ExactContact(mesh)
    assert intersections(contact, mesh.nodes) == 0
    assert intersections(contact, mesh.nodes + 0.8 * v) > 0  # without forces, the arms pass through each other
    system = fem.solid(mesh, fem.NeoHookean(1.0, 1.0), watch=fem.watch_bodies(mesh))
    method, path = gm.EnergyStepping(0.02, offset=-0.01, inside=contact), tmp_path / "half.h5"
    run = gm.simulate(system, mesh.nodes, v, method=method, dt=0.05, t_end=2.0)
    assert max(intersections(contact, q) for q in run.q) == 0
    assert not any(pierced_by_ipctk(contact, q) for q in run.q)
    assert pierced_by_ipctk(contact, mesh.nodes + 0.8 * v)
    np.testing.assert_allclose(run.energy, run.energy[0], rtol=1e-13)
    for name, values in run.momentum_maps.items():
        scale = np.max(np.abs(np.cross(mesh.nodes, run.p[0]))) if name == "rotation" else np.max(np.abs(run.p[0]))
        np.testing.assert_allclose(values, values[:1] * np.ones_like(values), atol=1e-13 * scale * len(v), rtol=0)
    contacts = run.events.times[run.events.kinds == "contact"]
    assert len(contacts) == run.events["contact"] > 10
    # The cube meets the body once its lowest corner has fallen that far.
    speeds = np.asarray(run.watched["velocity"])[:, 1, 2]
    changed = np.flatnonzero(np.abs(speeds - speeds[0]) > 1e-9)
    assert run.t[changed[0]] > contacts[0]
    gm.simulate(system, mesh.nodes, v, method=method, dt=0.05, t_end=1.0, output=path)
    again = gm.resume(path, system=system, method=method, t_end=2.0)
    np.testing.assert_array_equal(again.q, run.q)
    np.testing.assert_array_equal(again.events.times, run.events.times)


def test_a_start_with_intersecting_faces_is_refused():
    mesh = fem.Mesh.union([turned(TETRAHEDRON, 1, (0, 0, 0)), turned(TETRAHEDRON, 2, (0.1, 0, 0))])
    method = gm.EnergyStepping(0.1, inside=fem.ExactContact(mesh))
    system = fem.solid(mesh, fem.NeoHookean(1.0, 1.0))
    with pytest.raises(gm.InputError, match="the faces of nodes .* intersect.*apart"):
        gm.simulate(system, mesh.nodes, np.ones((8, 3)), method=method, dt=0.1, t_end=0.1)


@pytest.mark.parametrize(
    ("faces", "message"),
    [
        ([[0, 1, 2], [0, 1, 3]], "opposite orientations"),
        ([[0, 1, 2], [1, 0, 3], [0, 1, 4]], "more than two faces"),
        ([[0, 1, 9]], "nodes 0 to 9"),
        ([[0, 1]], "shape"),
    ],
)
def test_bad_surfaces_are_named(faces, message):
    from geomint.fem.contact.surface import surface

    with pytest.raises(gm.InputError, match=message):
        surface(np.random.default_rng(0).normal(size=(5, 3)), faces)
