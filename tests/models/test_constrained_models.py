"""The constrained models: they start where they may, with the energies, momenta and symmetries that a hand computes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation as Turn

import geomint as gm
from geomint.analysis.measure import Point, independent_reference
from geomint.models.sphere import from_spherical
from geomint.system.lagrangian import derive

MODELS = [
    "double_pendulum",
    "triple_pendulum",
    "chain",
    "chain(n=1, dimension=3)",
    "chain(dimension=3)",
    "sphere_bodies",
    "sphere_bodies(n=7)",
    "sphere_bodies(n=3, pair_potential='gravity', seed=2)",
    "heavy_top",
    "heavy_top(inertia=[1, 1, 0.5], momentum=[0.2, 0.1, 2])",
    "water",
    "water(n=2)",
    "water(n=3, kind='tip4p', units='kcal/mol')",
    "water(n=8, temperature=300, seed=1)",
    "slider_crank",
    "slider_crank(crank=1.3, rod=0.7, speed=0.5)",
    "slider_crank(rod=1)",
    "rigid_chain(n=2)",
    "gyroscope",
]
DRIVEN = ["driven_slider_crank", "driven_slider_crank_angles", "kapitza_pendulum", "turning_cat"]
each = pytest.mark.parametrize("text", MODELS)
random = np.random.default_rng(5)


@functools.cache
def start(text):
    """A model, its mechanics and its first momenta."""
    model = gm.models.named(text)
    mech = gm.Mechanics(model.system, model.q0.shape)
    return model, mech, np.asarray(mech.momentum(model.v0))


def energy(text):
    model, mech, p = start(text)
    return float(mech.energy(model.q0, p))


def test_every_constrained_model_is_here():
    constrained = {name for name in gm.models.all() if gm.models.named(name).system.constraint is not None}
    elsewhere = {"bricard", "spherical_pendulum"}  # which have tests of their own: one has a redundant equation
    assert constrained == {text.partition("(")[0] for text in MODELS} | set(DRIVEN) | elsewhere


@pytest.mark.parametrize("name", DRIVEN)
def test_driven_models_start_on_their_moving_manifold(name):
    """g(q, 0) = 0 and G v + ∂g/∂t = 0."""
    model = gm.models.named(name)
    mech = derive(model.system, model.q0.shape, 0.0)
    assert model.system.driven
    assert np.max(np.abs(mech.constraint(model.q0))) < 1e-14
    assert np.max(np.abs(mech.velocity_constraint(model.q0, model.v0))) < 1e-14


@each
def test_the_start_is_on_the_manifold_and_tangent_to_it(text):
    model, mech, _ = start(text)
    seen = lambda q, v: (mech.constraint(q), mech.constraint_rate(q, v), mech.constraint_jacobian(q))
    value, rate, jacobian = jax.jit(seen)(model.q0, model.v0)
    assert np.max(np.abs(value)) < 1e-14
    assert np.max(np.abs(rate)) < 1e-14
    singular = np.linalg.svd(jacobian, compute_uv=False)
    assert len(singular) <= model.q0.size
    assert singular[-1] > 0.3


@each
def test_the_same_start_every_time(text):
    one, other = gm.models.named(text), gm.models.named(text)
    np.testing.assert_array_equal(one.q0, other.q0)
    np.testing.assert_array_equal(one.v0, other.v0)
    again = gm.models.named(one.system.origin)
    np.testing.assert_array_equal(one.v0, again.v0)


@each
def test_stated_symmetries_leave_energy_and_constraint_alone(text):
    model, mech, _ = start(text)
    q, v = model.q0 + 0.05 * random.normal(size=model.q0.shape), random.normal(size=model.q0.shape)
    gradient, rate = (
        np.asarray(jax.jit(lambda q: mech.gradient(q))(q)),
        jax.jit(lambda q, v: mech.constraint_rate(q, v)),
    )
    for symmetry in model.system.symmetries:
        for direction in symmetry.generators(jnp.asarray(q)):
            assert abs(np.sum(gradient * direction)) < 1e-13 * max(1, np.max(np.abs(gradient)))
        for direction in symmetry.generators(jnp.asarray(model.q0)):  # on the manifold, which moves into itself
            np.testing.assert_allclose(rate(model.q0, direction), 0, atol=1e-13)
        if symmetry.degree == 1:  # the kinetic energy of a velocity that is turned along
            np.testing.assert_allclose(symmetry.momentum_map(jnp.asarray(v), mech.momentum(v)), 0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [text for text in MODELS if not any(part in text for part in ("1.3", "n=7", "n=8", "rod=1"))]
)
def test_the_motion_keeps_energy_momenta_and_constraint(text):
    model, mech, p = start(text)
    spans = {"water": 10.0, "slider_crank": 5.0}  # a tenth of a picosecond, and once round
    times = np.linspace(0, spans.get(model.name, 2.0), 5)[1:]
    path = independent_reference(model.system, Point(model.q0, p), times)
    np.testing.assert_allclose(jax.vmap(mech.energy)(path.q, path.p), mech.energy(model.q0, p), rtol=0, atol=1e-10)
    np.testing.assert_allclose(jax.vmap(mech.constraint)(path.q), 0, atol=1e-10)
    for name, values in jax.vmap(mech.momentum_maps)(path.q, path.p).items():
        np.testing.assert_allclose(values, np.tile(mech.momentum_maps(model.q0, p)[name], (4, 1)), rtol=0, atol=1e-10)


# --- pendula --------------------------------------------------------------------------------------------------------
def test_triple_pendulum_as_printed():
    model = gm.models.triple_pendulum()
    a, b, c = np.sqrt(3) / 2, np.sqrt(2) / 2, 0.5
    np.testing.assert_allclose(model.q0.ravel(), [c, -a, c + b, -a - b, c + b + 1, -a - b], rtol=1e-15)
    assert energy("triple_pendulum") == pytest.approx(-(1.5 * np.sqrt(3) + np.sqrt(2)), abs=1e-14)
    assert energy("double_pendulum") == -3


def test_chain_in_the_plane_is_what_it_was():
    model = gm.models.chain(4)
    np.testing.assert_array_equal(model.q0, [[1, -2], [2, -4], [3, -6], [4, -8]])
    np.testing.assert_array_equal(model.v0, np.zeros((4, 2)))
    assert (model.name, model.description, model.system.origin, model.system.symmetries) == (
        "chain",
        "a rope of 4 links",
        "chain(n=4)",
        (),
    )
    assert energy("chain") == -110


def test_chain_in_space():
    model, mech, p = start("chain(dimension=3)")
    np.testing.assert_allclose(model.v0, np.cross([0, 0.1, 0], model.q0))
    assert energy("chain(dimension=3)") == pytest.approx(-110 + 0.5 * 0.01 * 385, abs=1e-12)
    np.testing.assert_allclose(mech.momentum_maps(model.q0, p)["rotation[0.0, 1.0, 0.0]"], 38.5, rtol=1e-14)
    turn = Turn.from_rotvec([0, 1.1, 0]).as_matrix()
    assert mech.potential(model.q0 @ turn.T) == pytest.approx(float(mech.potential(model.q0)), rel=1e-14)
    # Out of the plane it starts in: the binormal of the path of the last link does not vanish.
    acceleration = np.asarray(mech.acceleration(model.q0, model.v0))
    assert np.linalg.norm(np.cross(model.v0[-1], acceleration[-1])) > 0.1


@pytest.mark.parametrize("dimension", [1, 4, 2.5, "3"])
def test_chain_elsewhere(dimension):
    with pytest.raises(gm.InputError, match="dimension"):
        gm.models.chain(3, dimension=dimension)


# --- sphere ---------------------------------------------------------------------------------------------------------
def test_two_bodies_on_the_sphere_as_printed():
    model, mech, p = start("sphere_bodies")

    def point(t):
        phi, theta = np.array([0.8, 0.5]) + t * np.array([1.1, -0.8]), np.array([0.6, 1.5]) + t * np.array([-0.2, 0.0])
        return np.stack([np.cos(phi) * np.sin(theta), np.sin(phi) * np.sin(theta), np.cos(theta)], axis=1)

    np.testing.assert_allclose(model.q0, point(0), rtol=1e-15)
    np.testing.assert_allclose(model.v0, (point(1e-5) - point(-1e-5)) / 2e-5, atol=1e-9)
    # The law of cosines on the sphere gives the distance without the points.
    cosine = np.cos(0.6) * np.cos(1.5) + np.sin(0.6) * np.sin(1.5) * np.cos(0.8 - 0.5)
    kinetic = 0.5 * (1.1**2 * np.sin(0.6) ** 2 + 0.2**2) + 0.5 * 0.8**2 * np.sin(1.5) ** 2
    assert energy("sphere_bodies") == pytest.approx(kinetic - 1 / np.tan(np.arccos(cosine)), abs=1e-14)
    assert energy("sphere_bodies") == pytest.approx(-0.2118233569098, abs=1e-12)
    momentum = np.asarray(mech.momentum_maps(model.q0, p)["rotation"])
    np.testing.assert_allclose(momentum, np.cross(model.q0, model.v0).sum(0), rtol=1e-13)
    # About the polar axis: Σ φ̇ sin²θ.
    assert momentum[2] == pytest.approx(1.1 * np.sin(0.6) ** 2 - 0.8 * np.sin(1.5) ** 2, abs=1e-14)


@pytest.mark.parametrize("text", ["sphere_bodies", "sphere_bodies(n=7)"])
def test_rotations_of_the_sphere(text):
    model, mech, _ = start(text)
    turn = Turn.from_rotvec([0.3, -1.2, 0.7]).as_matrix()
    assert mech.potential(model.q0 @ turn.T) == pytest.approx(float(mech.potential(model.q0)), rel=1e-13)


def test_many_bodies_on_the_sphere():
    model, mech, _ = start("sphere_bodies(n=7)")
    pairs = [np.linalg.norm(model.q0[i] - model.q0[j]) for i in range(7) for j in range(i)]
    assert mech.potential(model.q0) == pytest.approx(sum(1 / r for r in pairs), rel=1e-14)
    # Nearly as far apart as they can be: Thomson's seven electrons have the energy 14.452977.
    assert 14.452977 < sum(1 / r for r in pairs) < 15.2
    assert np.any(gm.models.sphere_bodies(7, seed=1).v0 != model.v0)


def test_any_pair_potential():
    square = gm.models.sphere_bodies(4, pair_potential=lambda c: (1 - c) ** 2)
    mech = gm.Mechanics(square.system, square.q0.shape)
    cosines = [square.q0[i] @ square.q0[j] for i in range(4) for j in range(i)]
    assert mech.potential(square.q0) == pytest.approx(sum((1 - c) ** 2 for c in cosines), rel=1e-14)
    assert square.system.origin is None
    repelled = gm.models.sphere_bodies(2, "coulomb")
    apart = np.linalg.norm(repelled.q0[0] - repelled.q0[1])
    assert gm.Mechanics(repelled.system).potential(repelled.q0) == pytest.approx(1 / apart, rel=1e-14)
    with pytest.raises(gm.InputError, match="coulomb"):
        gm.models.sphere_bodies(2, "columb")
    with pytest.raises(gm.InputError, match="function of the cosine"):
        gm.models.sphere_bodies(2, 3.0)


def test_spherical_coordinates_of_one_point():
    q, v = from_spherical(0.0, np.pi / 2, 2.0, 3.0)
    np.testing.assert_allclose(q, [1, 0, 0], atol=1e-16)
    np.testing.assert_allclose(v, [0, 2, -3], atol=1e-15)


# --- top ------------------------------------------------------------------------------------------------------------
INERTIA, MOMENTUM = np.array([0.6, 0.8, 1.0]), np.array([1.8, 0.4, -0.9])


def test_heavy_top():
    model, mech, p = start("heavy_top")
    np.testing.assert_allclose(model.system.mass, [[0.6, 0.4, 0.2]], rtol=1e-15)
    omega = MOMENTUM / INERTIA
    assert energy("heavy_top") == pytest.approx(0.5 * MOMENTUM @ omega + 1, abs=1e-14)
    assert energy("heavy_top") == pytest.approx(4.205, abs=1e-14)
    np.testing.assert_allclose(model.v0 @ [1, 2, 3], np.cross(omega, [1, 2, 3]), rtol=1e-15)
    np.testing.assert_allclose(p, model.v0 @ np.diag([0.6, 0.4, 0.2]), rtol=1e-15)
    np.testing.assert_allclose(mech.momentum_maps(model.q0, p)["generator"], -0.9, rtol=1e-14)
    # Anywhere else: the vertical component of Q m.
    q = Turn.from_rotvec([0.4, -0.8, 1.5]).as_matrix()
    np.testing.assert_allclose(
        mech.momentum_maps(q, mech.momentum(q @ model.v0))["generator"], (q @ MOMENTUM)[2], rtol=1e-13
    )
    assert mech.energy(q, mech.momentum(q @ model.v0)) == pytest.approx(0.5 * MOMENTUM @ omega + q[2, 2], abs=1e-14)
    # Space may be turned about the vertical, not about another axis.
    turned = lambda axis: float(mech.potential(Turn.from_rotvec(axis).as_matrix() @ q))
    assert turned([0, 0, 1.1]) == pytest.approx(q[2, 2], abs=1e-15)
    assert abs(turned([1.1, 0, 0]) - q[2, 2]) > 0.1


def test_the_top_moves_by_the_equations_of_euler_and_poisson():
    model, _, p = start("heavy_top")
    path = independent_reference(model.system, Point(model.q0, p), np.array([1.0, 2.0]))
    # ṁ = m × Ω + γ × e₃ and γ̇ = γ × Ω, with γ = Qᵀe₃ the vertical seen from the body.
    right = lambda t, y: np.concatenate(
        [np.cross(y[:3], y[:3] / INERTIA) + np.cross(y[3:], [0, 0, 1]), np.cross(y[3:], y[:3] / INERTIA)]
    )
    body = solve_ivp(
        right, (0, 2), [*MOMENTUM, 0, 0, 1], method="DOP853", t_eval=[1.0, 2.0], rtol=1e-13, atol=1e-14
    ).y.T
    skew = np.einsum("tki,tkj->tij", path.q, path.p / model.system.mass)
    omega = np.stack([skew[:, 2, 1], skew[:, 0, 2], skew[:, 1, 0]], axis=1)
    np.testing.assert_allclose(INERTIA * omega, body[:, :3], atol=1e-10)
    np.testing.assert_allclose(path.q[:, 2], body[:, 3:], atol=1e-10)


def test_lagranges_top_has_a_second_symmetry():
    model, mech, _ = start("heavy_top(inertia=[1, 1, 0.5], momentum=[0.2, 0.1, 2])")
    q = Turn.from_rotvec([0.4, -0.8, 1.5]).as_matrix()
    maps = mech.momentum_maps(q, mech.momentum(q @ model.v0))
    np.testing.assert_allclose(maps["generator"], (q @ [0.2, 0.1, 2])[2], rtol=1e-13)
    np.testing.assert_allclose(maps["rotation[0, 1]"], -2, rtol=1e-13)
    assert len(gm.models.heavy_top().system.symmetries) == 1


@pytest.mark.parametrize("inertia", [(1, 1, 2), (1, 1, 3), (-1, 1, 1), (1, 1)])
def test_no_body_has_these_moments_of_inertia(inertia):
    with pytest.raises(gm.InputError, match="inertia"):
        gm.models.heavy_top(inertia)


# --- slider crank ---------------------------------------------------------------------------------------------------
def test_slider_crank():
    model, _, p = start("slider_crank")
    assert energy("slider_crank") == 2
    # By its one angle: x_s = cos α + √(4 − sin²α), H = ½(1 + x_s'²)α̇² + sin α.
    path = independent_reference(model.system, Point(model.q0, p), np.linspace(0, 5, 41)[1:])
    angle = np.unwrap(np.arctan2(path.q[:, 0, 1], path.q[:, 0, 0]))
    slope = -np.sin(angle) - np.sin(angle) * np.cos(angle) / np.sqrt(4 - np.sin(angle) ** 2)
    rate = np.einsum("ti,ti->t", path.p[:, 0], np.stack([-np.sin(angle), np.cos(angle)], 1))
    np.testing.assert_allclose(0.5 * (1 + slope**2) * rate**2 + np.sin(angle), 2, atol=1e-10)
    np.testing.assert_allclose(
        path.q[:, 1], np.stack([np.cos(angle) + np.sqrt(4 - np.sin(angle) ** 2), 0 * angle], 1), atol=1e-10
    )
    assert angle[-1] > 2 * np.pi  # once round, over the top


def test_equal_lengths_have_a_singular_position():
    _, mech, _ = start("slider_crank(rod=1)")
    assert np.linalg.matrix_rank(mech.constraint_jacobian(np.array([[0.0, 1.0], [0.0, 0.0]]))) == 2
    with pytest.raises(gm.InputError, match="rod"):
        gm.models.slider_crank(rod=0.0)
