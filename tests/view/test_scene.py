"""Animations: what the page holds is what the run saved, joined by its rods, in one file that needs nothing else."""

import base64
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import geomint as gm
from geomint.view import Scene
from geomint.view.of_run import scene_of


@pytest.fixture(scope="module")
def pendulum():
    return gm.simulate(gm.models.double_pendulum(), t_end=3.0)


def held(page):
    """The scene in a page, and its positions as viewer.js decodes them."""
    scene = json.loads(re.search(r"const scene = (\{.*\});\n", page.html)[1])
    shares = np.frombuffer(base64.b64decode(scene["positions"]), "<u2")
    low, high = np.array(scene["low"]), np.array(scene["high"])
    return scene, low + (high - low) * shares.reshape(scene["frames"], scene["points"], -1) / 65535


def test_a_page_holds_the_motion_and_the_rods(pendulum, tmp_path):
    page = pendulum.view(tmp_path / "pendulum")
    assert page.path == tmp_path / "pendulum.html"
    scene, positions = held(page)
    np.testing.assert_allclose(positions, pendulum.q, atol=1e-4)
    assert (scene["frames"], scene["points"], scene["dimension"]) == (301, 2, 2)
    assert scene["fixed"] == [[0.0, 0.0]]
    assert sorted(map(sorted, scene["bonds"])) == [[0, 1], [0, 2]]  # 2 is the hinge
    series = {s["name"]: s for s in scene["series"]}
    np.testing.assert_array_equal(series["energy error"]["y"], pendulum.energy_error)
    assert {"kinetic energy", "max |g(q)|"} <= series.keys()
    text = page.path.read_text()
    assert not re.search(r"(src|href)=.?(https?:|//)", text)  # nothing is fetched
    assert "</script>" in text.lower()
    assert "<iframe" in page._repr_html_()


def test_what_a_title_holds_ends_no_script():
    scene = Scene([0.0, 1.0], np.zeros((2, 1, 2)), names={"</script><b>": 0}, title="<b>")
    text = scene.page().html
    assert text.count("</script>") == 1  # the end of the page's own
    assert "<title>&lt;b&gt;</title>" in text


def test_long_runs_are_shown_so_that_they_can_be_followed():
    oscillator = gm.models.harmonic_bowl()
    run = gm.simulate(oscillator, t_end=5000.0, dt=0.05)  # 800 periods
    scene = scene_of(run)
    assert len(scene.times) <= 600
    steps = np.linalg.norm(np.diff(scene.positions[:, 0], axis=0), axis=1)
    assert np.quantile(steps, 0.9) < 0.2 * np.ptp(scene.positions)
    assert "shown up to" in scene.subtitle
    np.testing.assert_array_equal(scene.positions[0, 0], run.q[0])
    assert len(scene_of(run[:100]).times) == 100


def test_angles_molecules_bodies_and_ensembles():
    angles = gm.simulate(gm.models.pendulum(), t_end=1.0)
    scene = scene_of(angles)
    np.testing.assert_allclose(scene.positions[:, 0, 0], np.sin(angles.q[:, 0]))
    assert scene.bonds == ((0, 1),)
    own = scene_of(angles, positions=lambda q: np.array([q[0], 0.0]), labels=["θ"])
    np.testing.assert_array_equal(own.positions[:, 0, 0], angles.q[:, 0])
    assert own.names == {"θ": 0}
    water = scene_of(gm.simulate(gm.models.water(2), t_end=1.0))
    assert water.positions.shape[1:] == (6, 3)
    assert len(water.bonds) == 4  # O–H only
    assert set(water.names) == {"H", "O"}
    top = gm.simulate(gm.models.heavy_top(), t_end=0.1)
    axes = scene_of(top)
    np.testing.assert_array_equal(axes.positions[:, 2], top.q[:, :, 2])  # the image of the third axis of the body
    assert axes.bonds == ((0, 3), (1, 3), (2, 3))
    many = gm.ensemble(gm.models.pendulum().system, [[0.1], [0.2]], method=gm.Verlet(), dt=0.05, t_end=1.0)
    plane = scene_of(many)
    np.testing.assert_array_equal(plane.positions[:, 1, 0], many.q[1, :, 0])
    np.testing.assert_array_equal(plane.positions[:, 1, 1], many.p[1, :, 0])


def test_faces_of_a_solid_and_values_at_its_points():
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    faces = [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)]
    scene = Scene([0.0, 1.0], np.stack([corners, 2 * corners]), triangles=faces, values=[[0, 0, 0, 1], [0, 0, 1, 2.0]])
    data = scene.to_dict()
    assert data["triangles"] == [list(face) for face in faces]
    shades = np.frombuffer(base64.b64decode(data["values"]), "<u2").reshape(2, 4)
    np.testing.assert_array_equal(shades, np.round(65535 * np.array([[0, 0, 0, 0.5], [0, 0, 0.5, 1]])))
    assert data["valueRange"] == [0.0, 2.0]
    with pytest.raises(gm.InputError, match="by their numbers"):
        Scene([0.0], corners[None], bonds=[(0, 4)])
    with pytest.raises(gm.InputError, match="frames, points"):
        Scene([0.0], corners)


def test_elastic_bodies_with_held_nodes():
    """All faces are shown, each body in its own colour; nodes that are held belong to them, moved ones where they are.
    In the plane, with a stiff part and nothing that is conserved, it is still a body."""
    mesh = gm.fem.Mesh.union([gm.fem.cube(1), gm.fem.cube(1).moved((2.0, 0.0, 0.0))])
    side = mesh.where(lambda x: x[:, 2] == 0)
    path = lambda t: jnp.asarray(mesh.nodes[side]) + jnp.array([0.1, 0.0, 0.0]) * jnp.sin(3 * t)
    system = gm.fem.solid(mesh, gm.fem.NeoHookean(1.0, 1.0), prescribed=(side, path))
    q0 = np.delete(mesh.nodes, side, axis=0)
    run = gm.simulate(system, q0, 0 * q0, method=gm.Verlet(), dt=0.02, t_end=0.2, save_every=2)
    scene = scene_of(run)
    np.testing.assert_array_equal(scene.triangles, mesh.boundary_faces)
    for k in (0, 3):
        np.testing.assert_allclose(scene.positions[k], system.potential.positions(run.q[k], run.t[k]), atol=1e-15)
    assert np.ptp(scene.positions[:, side[0], 0]) > 0.02
    assert scene.colors == tuple(mesh.bodies)
    assert not scene.dots
    beam = gm.fem.box((2.0, 1.0), (2, 1))
    wall = beam.where(lambda x: x[:, 0] == 0)
    system = gm.fem.solid(beam, gm.fem.NeoHookean(1.0, 1.0), fixed=wall, stiff=[0])
    q0 = np.delete(beam.nodes, wall, axis=0)
    flat = gm.simulate(system, q0, 0.01 + 0 * q0, method=gm.IMEX(), dt=0.02, t_end=0.1)
    scene = scene_of(flat)
    np.testing.assert_array_equal(scene.positions[0], beam.nodes)
    np.testing.assert_array_equal(scene.triangles, beam.cells)
    assert len(scene.bonds) == len(beam.nodes) + len(beam.cells) - 1  # Euler: edges of a disc
    assert "Paths" in flat.plot().axes[0].get_title()


def test_rigid_bodies_are_boxes_of_their_inertia(tmp_path):
    """Of boxes with a joint: their corners, in space. Of a free body with a tensor: a box with that tensor."""
    box = gm.rigid.inertia.box((1.0, 0.2, 0.4), mass=2.0)
    arm = gm.rigid.Assembly([box, box], [gm.rigid.Ball(0, 1, (0.5, 0, 0))], positions=[(0, 0, 0), (1.0, 0, 0)])
    run = gm.simulate(arm, arm.q(), arm.v(arm.q(), angular_velocities=[(0, 0, 1), (0, 0, 1)],
                      velocities=[(0, -0.5, 0), (0, 0.5, 0)]), method=gm.Rattle(), dt=0.1, t_end=0.5)  # fmt: skip
    scene, local = scene_of(run), np.array([0.5, 0.1, 0.2])
    for k in (0, 5):
        for body in (0, 1):
            corners = scene.positions[k, 8 * body : 8 * body + 8] - arm.positions(run.q)[k, body]
            np.testing.assert_allclose(np.abs(corners @ arm.rotations(run.q)[k, body]), np.tile(local, (8, 1)))
    assert scene.triangles.shape == (24, 3)
    assert "centres of mass" in run.plot().axes[0].get_title()
    tensor = np.diag([1.0, 2.0, 2.5]) + 0.1
    body = gm.rigid.RigidBody(tensor, mass=3.0)
    free = gm.simulate(body.system(), *body.state(None, (0, 0, 1)), method=gm.LieVerlet(), dt=0.1, t_end=0.2)
    x = scene_of(free).positions[2]
    second = 3.0 * x.T @ x / 24  # of a box with these corners: ∫ x xᵀ dm = m Σ x xᵀ / (3 · 8)
    turned = free.q[2, 1:] @ tensor @ free.q[2, 1:].T
    np.testing.assert_allclose(np.trace(second) * np.eye(3) - second, turned, atol=1e-12)
    for other in (run, free):
        with pytest.raises(gm.InputError, match="axes of rigid bodies"):
            other.save(tmp_path / "run.vtkhdf")


def test_a_film_shows_faces(tmp_path):
    run = gm.simulate(gm.models.elastic_cube(cells=1), dt=0.02, t_end=0.2)
    with Image.open(run.movie(tmp_path / "cube.gif", seconds=0.3, fps=10)) as film:
        pixels = np.asarray(film.convert("RGB"), float)
    blue = (pixels[..., 2] - pixels[..., 0] > 40) & (pixels[..., 2] > pixels[..., 1])
    assert blue.mean() > 0.05  # points and lines alone cover a hundredth


def test_a_film(pendulum, tmp_path):
    path = pendulum.movie(tmp_path / "pendulum.gif", seconds=0.4, fps=10)
    with Image.open(path) as film:
        assert film.n_frames == 4
    with pytest.raises(gm.InputError, match="ends in"):
        pendulum.movie(tmp_path / "x.png")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"positions": lambda q: q[0, 0]}, r"must return points \(n, 2\) or \(n, 3\), or one point, not .* shape \(\)"),
        ({"positions": lambda q: [[q[0], q[7]]]}, r"view\(positions=...\): the function raised IndexError"),
        ({"positions": "q"}, "positions must be a function of q, not str"),
        ({"bonds": [(0, 1.5)]}, "bonds must be pairs of numbers of points"),
        ({"bonds": "01"}, "bonds must be pairs"),
        ({"bonds": [(0, 1), (1,)]}, "bonds must be pairs"),
        ({"bonds": [(0, 9)]}, "one of them has none"),
    ],
)
def test_wrong_settings_are_named(pendulum, settings, match):
    with pytest.raises(gm.InputError, match=match):
        pendulum.view(**settings)


def test_unknown_settings_and_other_files(pendulum, tmp_path):
    with pytest.raises(TypeError, match=r"view\(\) has no argument 'bond'. Did you mean bonds"):
        pendulum.view(bond=[(0, 1)])
    with pytest.raises(gm.InputError, match=r"HTML page, x.html, not .*x.png"):
        pendulum.view(tmp_path / "x.png")
