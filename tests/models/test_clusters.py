"""Clusters of atoms, harmonic examples and hard spheres: energies, forces, momenta, starts."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm

CLUSTERS = [
    "argon_cluster",
    "lennard_jones_cluster",
    "lennard_jones_cluster(n=7, dimension=2)",
    "lennard_jones_cluster(n=5, epsilon=24932.6, sigma=0.341)",
    "morse_cluster",
    "morse_cluster(n=9, dimension=2, epsilon=2.0, distance=1.5, steepness=3.0)",
]
RELAXED = CLUSTERS[1:]


def start(text):
    model = gm.models.named(text)
    mech = gm.Mechanics(model.system, model.q0.shape)
    return model, mech, np.asarray(mech.momentum(model.v0))


def by_hand(model):
    """V and −∇V pair by pair, from φ and φ′ written out."""
    k = {name: float(x) for name, x in model.system.params.items()}
    energy, force = 0.0, np.zeros_like(model.q0)
    for i, j in itertools.combinations(range(len(model.q0)), 2):
        apart = model.q0[i] - model.q0[j]
        r = np.linalg.norm(apart)
        if "sigma" in k:
            ratio = k["sigma"] / r
            phi, slope = 4 * k["epsilon"] * (ratio**12 - ratio**6), -24 * k["epsilon"] / r * (2 * ratio**12 - ratio**6)
        else:
            x = np.exp(-k["steepness"] * (r - k["distance"]))
            phi, slope = k["epsilon"] * ((1 - x) ** 2 - 1), 2 * k["epsilon"] * k["steepness"] * x * (1 - x)
        energy += phi
        force[i] -= slope * apart / r
        force[j] += slope * apart / r
    return energy, force


@pytest.mark.parametrize("text", CLUSTERS)
def test_potential_and_force_are_those_of_the_pairs(text):
    model, mech, _ = start(text)
    random = np.random.default_rng(1)
    scale = np.min([np.linalg.norm(a - b) for a, b in itertools.combinations(model.q0, 2)])
    potential, force_of = jax.jit(lambda q: mech.potential(q)), jax.jit(lambda q: mech.force(q))
    energy, force = by_hand(model)
    assert float(potential(model.q0)) == pytest.approx(energy, rel=1e-13)
    np.testing.assert_allclose(force_of(model.q0), force, atol=1e-11 * float(model.system.params["epsilon"]) / scale)
    moved = gm.models.Model(
        model.system, model.q0 + 0.05 * scale * random.normal(size=model.q0.shape), model.v0, "", ""
    )
    energy, force = by_hand(moved)
    assert float(potential(moved.q0)) == pytest.approx(energy, rel=1e-12)
    np.testing.assert_allclose(force_of(moved.q0), force, rtol=1e-11, atol=1e-11 * np.abs(force).max())


@pytest.mark.parametrize("text", CLUSTERS)
def test_hessian_is_finite_symmetric_and_blind_to_rigid_motions(text):
    model, mech, _ = start(text)
    hessian = np.asarray(jax.jit(jax.hessian(lambda q: mech.potential(q)))(jnp.asarray(model.q0))).reshape(
        model.q0.size, model.q0.size
    )
    assert np.isfinite(hessian).all()
    size = np.abs(hessian).max()
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-13 * size)
    for everyone in np.eye(model.q0.shape[1]):
        shift = np.tile(everyone, len(model.q0))
        np.testing.assert_allclose(hessian @ shift, 0, atol=1e-12 * size)


def test_argon_has_the_energy_of_the_paper():
    model, mech, p = start("argon_cluster")
    epsilon = float(model.system.params["epsilon"])
    assert epsilon == pytest.approx(24932.594, abs=5e-4)
    assert float(mech.energy(model.q0, p)) / epsilon == pytest.approx(-10.519254, abs=1e-6)
    maps = mech.momentum_maps(model.q0, p)
    np.testing.assert_array_equal(maps["translation"], 0.0)
    assert float(maps["rotation"][0]) == pytest.approx(
        sum(q[0] * v[1] - q[1] * v[0] for q, v in zip(model.q0, model.v0, strict=True)), rel=1e-13
    )


def test_argon_moves_in_femtoseconds():
    """At 10 fs Verlet keeps the energy; the centre stays and the angular momentum too."""
    model = gm.models.argon_cluster()
    run = gm.simulate(model.system, model.q0, model.v0, method=gm.Verlet(), dt=model.dt, t_end=0.01, save_every=10)
    assert np.max(np.abs(run.energy_error / run.energy[0])) < 1e-3
    assert np.max(np.abs(run.momentum_maps["translation"])) < 1e-9
    assert np.ptp(run.momentum_maps["rotation"]) < 1e-10 * 27.7


@pytest.mark.parametrize("text", RELAXED)
def test_a_cluster_starts_at_a_minimum_without_momentum(text):
    model, mech, p = start(text)
    epsilon = float(model.system.params["epsilon"])
    scale = np.min([np.linalg.norm(a - b) for a, b in itertools.combinations(model.q0, 2)])
    assert np.abs(jax.jit(lambda q: mech.force(q))(model.q0)).max() < 1e-5 * epsilon / scale
    curvatures = np.linalg.eigvalsh(
        np.asarray(jax.jit(jax.hessian(lambda q: mech.potential(q)))(jnp.asarray(model.q0))).reshape(model.q0.size, -1)
    )
    d = model.q0.shape[1]
    rigid = d + d * (d - 1) // 2
    assert np.abs(curvatures[:rigid]).max() < 1e-4 * curvatures[-1]
    assert curvatures[rigid] > 1e-3 * curvatures[-1]
    for momentum in mech.momentum_maps(model.q0, p).values():
        assert np.abs(momentum).max() < 1e-13 * np.abs(p).sum() * max(1.0, scale)
    assert float(mech.kinetic(p)) == pytest.approx(0.5 * 0.1 * epsilon * (model.q0.size - rigid), rel=1e-12)
    assert np.abs(model.q0.mean(axis=0)).max() < 1e-13


@pytest.mark.parametrize(
    ("text", "energy"),
    [
        ("lennard_jones_cluster(n=2, dimension=2)", -1.0),
        ("lennard_jones_cluster(n=3, dimension=2)", -3.0),
        ("lennard_jones_cluster(n=7, dimension=2)", -12.534867),
        ("lennard_jones_cluster(n=2)", -1.0),
        ("lennard_jones_cluster(n=3)", -3.0),
        ("lennard_jones_cluster(n=4)", -6.0),
        ("lennard_jones_cluster", -44.326801),
        ("lennard_jones_cluster(n=55)", -279.248470),
        ("lennard_jones_cluster(sigma=0.5)", -44.326801),
        ("morse_cluster(n=4)", -6.0),
        ("morse_cluster", -42.439863),
        ("morse_cluster(epsilon=3.0, distance=2.0, steepness=3.0)", -3 * 42.439863),
    ],
)
def test_known_least_energies(text, energy):
    """Of the Cambridge cluster database: the icosahedra of 13 and 55 atoms; pairs, triangles and tetrahedra by
    counting."""
    model, mech, _ = start(text)
    assert float(jax.jit(lambda q: mech.potential(q))(model.q0)) == pytest.approx(
        energy, abs=2e-6 * max(1.0, abs(energy) / 10)
    )


def test_a_cluster_is_the_same_every_time_but_for_its_seed():
    one, same, other = (gm.models.named(f"lennard_jones_cluster(n=6, seed={seed})") for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.q0, same.q0)
    np.testing.assert_array_equal(one.v0, same.v0)
    assert np.abs(one.v0 - other.v0).max() > 0.1
    cold = gm.models.lennard_jones_cluster(n=6, temperature=0.0)
    assert not cold.v0.any()


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("harmonic_oscillator", lambda t: [np.sin(t)]),
        ("harmonic_trough", lambda t: [np.cos(t), t]),
        ("harmonic_bowl(speed=0.7)", lambda t: [np.cos(t), 0.7 * np.sin(t)]),
    ],
)
def test_harmonic_motions_are_those_of_their_docstrings(text, exact):
    model = gm.models.named(text)
    run = gm.simulate(
        model.system,
        model.q0,
        model.v0,
        method=gm.Composition(gm.Verlet(), order=6),
        dt=0.02,
        t_end=10.0,
        save_every=10,
    )
    np.testing.assert_allclose(run.q, np.stack(exact(np.asarray(run.t)), axis=1), atol=1e-8)
    for momentum in run.momentum_maps.values():
        assert np.ptp(momentum) < 1e-13
    assert len(run.momentum_maps) == len(model.system.symmetries)


@pytest.mark.parametrize(
    "text",
    [
        "hard_spheres",
        "hard_spheres(n=1)",
        "hard_spheres(n=20, dimension=3, radius=0.9)",
        "hard_spheres(n=100, box=10.01)",
    ],
)
def test_hard_spheres_start_inside(text):
    model, mech, _ = start(text)
    pairs, walls = model.inside
    n, d = model.q0.shape
    assert pairs(model.q0).shape == (n * (n - 1) // 2,)
    assert walls(model.q0).shape == (2 * n * d,)
    assert all(np.all(np.asarray(c(model.q0)) > 0) for c in model.inside)
    assert float(mech.potential(model.q0)) == 0.0


def test_hard_spheres_are_as_large_as_stated():
    """c vanishes where two spheres touch and where one touches a wall, and is quadratic, or linear, along a straight
    flight."""
    model = gm.models.hard_spheres(n=3, box=5.0, radius=0.6)
    pairs, walls = model.inside
    q = np.array([[0.6, 2.0], [1.8, 2.0], [4.4, 4.0]])
    np.testing.assert_allclose(pairs(q), [0.0, 3.8**2 + 2.0**2 - 1.44, 2.6**2 + 2.0**2 - 1.44], atol=1e-14)
    assert float(walls(q)[0]) == 0.0
    assert float(walls(q)[6 + 4]) == pytest.approx(0.0, abs=1e-15)
    t = np.arange(4.0)
    along = np.stack([np.concatenate([pairs(q + s * model.v0), walls(q + s * model.v0)]) for s in t])
    np.testing.assert_allclose(np.diff(along, 3, axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.diff(along, 2, axis=0)[:, 3:], 0, atol=1e-13)


def test_hard_spheres_have_maxwells_velocities():
    v = gm.models.hard_spheres(n=2000, box=60.0, radius=0.5, temperature=2.5).v0
    assert np.mean(v**2) == pytest.approx(2.5, rel=0.05)
    assert np.mean(v**4) / np.mean(v**2) ** 2 == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lennard_jones_cluster(n=1)", "at least 2"),
        ("morse_cluster(dimension=4)", "dimension must be 2 or 3"),
        ("lennard_jones_cluster(sigma=-1.0)", "sigma=-1.*positive"),
        ("morse_cluster(temperature=-1.0)", "temperature must be a number of at least 0"),
        ("harmonic_bowl(speed=0.0)", "positive"),
        ("hard_spheres(n=17, box=5.0)", "5 rows .* larger than 5"),
        ("hard_spheres(dimension=1)", "dimension must be 2 or 3"),
        ("hard_spheres(radius=0.0)", "radius must be positive"),
    ],
)
def test_nonsense_is_refused(text, message):
    with pytest.raises(gm.InputError, match=message):
        gm.models.named(text)


def test_a_model_made_again_is_the_same_program():
    first, second = gm.models.lennard_jones_cluster(5), gm.models.lennard_jones_cluster(5)
    assert first.system is second.system
    assert gm.models.lennard_jones_cluster(6).system is not first.system
    assert first.q0 is not second.q0
    assert gm.models.hard_spheres(4).inside == gm.models.hard_spheres(4).inside


def test_overlapping_atoms_are_named():
    model = gm.models.argon_cluster()
    q0 = np.concatenate([model.q0[:-1], model.q0[:1]])
    with pytest.raises(gm.InputError, match=r"particles 0 and 6 are at the distance 0; move them apart"):
        gm.simulate(model, q0)
