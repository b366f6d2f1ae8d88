"""Water: energies and forces by hand, droplets of any size, what rigid and stiff molecules conserve, and units."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation as Turn

import geomint as gm
from geomint.models.water import WaterEnergy
from geomint.models.water_kinds import KINDS, MASSES
from geomint.system.units import EV, KCAL

KILOCALORIES = 23.0605478  # of one electronvolt
# r_OH, angle, charge of H, A, C, distance of the negative charge from O: Jorgensen and others (1983), table I.
TABLE = {
    "tip3p": (0.9572, 104.52, 0.417, 582e3, 595.0, 0.0),
    "spce": (1.0, 109.47, 0.4238, 629.4e3, 625.5, 0.0),
    "tip4p": (0.9572, 104.52, 0.52, 600e3, 610.0, 0.15),
}


@functools.cache
def start(n, **settings):
    model = gm.models.water(n, **settings)
    mech = gm.Mechanics(model.system, model.q0.shape)
    return model, mech, np.asarray(mech.momentum(model.v0))


@functools.cache
def energy_and_gradient(kind, units=EV):
    return jax.jit(jax.value_and_grad(WaterEnergy(KINDS[kind], units)))


def by_loops(q, kind):
    """The energy in kcal/mol of molecules (n, 3, 3), site by site; the massless site is on the bisector."""
    _, _, charge, repulsion, attraction, offset = TABLE[kind]
    sites = []
    for oxygen, one, other in q:
        middle = (one + other) / 2 - oxygen
        negative = oxygen + (offset / np.linalg.norm(middle) * middle if offset else 0.0)
        sites.append([(negative, -2 * charge), (one, charge), (other, charge)])
    total = 0.0
    for a in range(len(q)):
        for b in range(a):
            total += sum(332.0637133 * e * f / np.linalg.norm(x - y) for x, e in sites[a] for y, f in sites[b])
            r = np.linalg.norm(q[a, 0] - q[b, 0])
            total += repulsion / r**12 - attraction / r**6
    return total


# --- one molecule ---------------------------------------------------------------------------------------------------
def test_one_molecule_is_a_free_rigid_body():
    model, mech, p = start(1)
    q, v, total = model.q0[0], model.v0[0], MASSES.sum()
    centre, drift = MASSES @ q / total, MASSES @ v / total
    r = q - centre
    to_velocity = np.concatenate([np.cross(np.eye(3), x).T for x in r])  # ω ↦ ω × r, each column a unit ω
    omega, _, _, _ = np.linalg.lstsq(to_velocity, (v - drift).ravel(), rcond=None)
    np.testing.assert_allclose(to_velocity @ omega, (v - drift).ravel(), atol=1e-15)
    inertia = sum(m * (x @ x * np.eye(3) - np.outer(x, x)) for m, x in zip(MASSES, r, strict=True))
    energy = 0.5 * total * drift @ drift + 0.5 * omega @ inertia @ omega
    assert mech.energy(model.q0, p) == pytest.approx(energy, rel=1e-13)
    assert np.min(np.abs(omega)) > 1e-3
    assert np.min(np.abs(drift)) > 1e-4


@pytest.mark.parametrize("kind", TABLE)
def test_the_shape_of_a_molecule(kind):
    q = gm.models.water(kind=kind).q0[0]
    bond, angle, *_, offset = TABLE[kind]
    oh, other, hh = (np.linalg.norm(q[i] - q[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert (oh, other) == (pytest.approx(bond, abs=1e-15), pytest.approx(bond, abs=1e-15))
    assert np.rad2deg(2 * np.arcsin(hh / 2 / oh)) == pytest.approx(angle, abs=1e-12)
    negative = WaterEnergy(KINDS[kind], EV).sites(jnp.asarray(q)[None])[0]
    assert np.linalg.norm(negative - q[0]) == pytest.approx(offset, abs=1e-15)


# --- interactions ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", TABLE)
def test_energies_and_forces_site_by_site(kind):
    """Also where the molecules are deformed: the massless site is a linear function of the atoms, so that its distance
    from the oxygen is 0.15 Å in rigid molecules only, and forces are compared along rigid motions."""
    n = 5
    model = gm.models.water(n, kind=kind)
    random = np.random.default_rng(1)
    energy, gradient = energy_and_gradient(kind)(model.q0)
    assert energy == pytest.approx(by_loops(model.q0, kind) / KILOCALORIES, rel=1e-8)
    centre = np.einsum("i,aij->aj", MASSES, model.q0) / MASSES.sum()
    for _ in range(4):
        shift, turn = random.normal(size=(2, n, 3))

        def moved(h, shift=shift, turn=turn):
            turns = Turn.from_rotvec(h * turn).as_matrix()
            arms = np.einsum("aij,akj->aki", turns, model.q0 - centre[:, None])
            return (centre + h * shift)[:, None] + arms

        h = 1e-3
        along = [by_loops(moved(x), kind) for x in (2 * h, h, -h, -2 * h)]
        slope = np.dot([-1, 8, -8, 1], along) / (12 * h * KILOCALORIES)
        direction = (moved(1e-5) - moved(-1e-5)) / 2e-5
        assert np.sum(gradient * direction) == pytest.approx(slope, rel=1e-7, abs=1e-8)


def test_the_force_on_a_massless_site_is_that_of_the_site():
    """The derivative of an energy with the site as a fourth particle, moved onto the atoms by hand."""
    kind, n = KINDS["tip4p"], 3
    q = jnp.asarray(gm.models.water(n, kind="tip4p").q0)
    charges = kind.charge * np.tile([-2.0, 1.0, 1.0], n)
    apart = np.arange(3 * n)[:, None] // 3 != np.arange(3 * n) // 3

    def explicit(sites, oxygens):
        s = sum((sites[:, None, k] - sites[None, :, k]) ** 2 for k in range(3))
        r = jnp.sqrt(jnp.where(apart, s, 1.0))
        t = jnp.stack([jnp.sum((oxygens[i] - oxygens[j]) ** 2) for i in range(n) for j in range(i)])
        coulomb = EV.coulomb * jnp.sum(jnp.where(apart, charges[:, None] * charges / r, 0.0)) / 2
        return coulomb + jnp.sum(600e3 / t**6 - 610.0 / t**3) / KILOCALORIES

    along = (q[:, 1] + q[:, 2]) / 2 - q[:, 0]
    reach = 0.9572 * np.cos(np.deg2rad(52.26))
    site = q[:, 0] + 0.15 / reach * along
    sites = jnp.stack([site, q[:, 1], q[:, 2]], axis=1).reshape(-1, 3)
    on_sites, on_oxygens = jax.jit(jax.grad(explicit, (0, 1)))(sites, q[:, 0])
    on_sites, share = on_sites.reshape(n, 3, 3), 0.15 / (2 * reach)
    on_atoms = [(1 - 2 * share) * on_sites[:, 0] + on_oxygens]
    on_atoms += [on_sites[:, k] + share * on_sites[:, 0] for k in (1, 2)]
    np.testing.assert_allclose(energy_and_gradient("tip4p")(q)[1], np.stack(on_atoms, axis=1), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("kind", "energy", "distance"), [("tip3p", -6.50, 2.74), ("tip4p", -6.24, 2.75)])
def test_dimers(kind, energy, distance):
    """Jorgensen and others (1983), table IV."""
    half = np.deg2rad(104.52 / 2)
    directions = lambda angle: 0.9572 * np.stack([np.cos(angle), np.sin(angle), np.zeros(2)], 1)
    donor = np.concatenate([np.zeros((1, 3)), directions(np.array([0.0, 2 * half]))])
    across = 0.9572 * np.array([[0, 0, 0], [np.cos(half), 0, np.sin(half)], [np.cos(half), 0, -np.sin(half)]])
    lean = lambda tilt: (
        across @ np.array([[np.cos(tilt), np.sin(tilt), 0], [-np.sin(tilt), np.cos(tilt), 0], [0, 0, 1]])
    )
    dimer = lambda x: np.stack([donor, lean(x[1]) + np.array([x[0], 0, 0])])
    settings = {"xatol": 1e-6, "fatol": 1e-12}
    best = minimize(
        lambda x: float(energy_and_gradient(kind, KCAL)(dimer(x))[0]),
        [2.9, -0.5],
        method="Nelder-Mead",
        options=settings,
    )
    assert best.fun == pytest.approx(energy, abs=0.05)
    assert best.x[0] == pytest.approx(distance, abs=0.015)


# --- droplets -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [2, 7, 30, 31, 100, 300, 301, 1000, 10_000])
def test_droplets_of_any_size(n):
    """No overlap, hydrogen bonds, no momentum, no angular momentum, the stated temperature, a round shape."""
    model = gm.models.water(n, temperature=250.0)
    q, v = model.q0, model.v0
    assert q.shape == v.shape == (n, 3, 3)
    oxygens, hydrogens = q[:, 0], q[:, 1:].reshape(-1, 3)
    nearest = cKDTree(oxygens).query(oxygens, 2)[0][:, 1]
    assert nearest.min() > 2.6
    assert nearest.max() < 3.1
    to_hydrogens = np.sort(cKDTree(hydrogens).query(oxygens, 3)[0], axis=1)
    assert to_hydrogens[:, 2].min() > 1.6  # of other molecules
    assert cKDTree(hydrogens).query(hydrogens, 3)[0][:, 2].min() > 1.9
    assert np.mean(to_hydrogens[:, 2] < 2.2) > 0.45  # accept a bond
    np.testing.assert_allclose(np.einsum("i,aij->j", MASSES, q) / n, 0, atol=1e-11)
    momenta = MASSES[:, None] * v
    scale = np.sum(np.abs(momenta))
    np.testing.assert_allclose(momenta.sum(axis=(0, 1)) / scale, 0, atol=1e-16 * np.sqrt(n) + 1e-16)
    angular = np.cross(q, momenta).sum(axis=(0, 1))
    np.testing.assert_allclose(angular / (scale * np.abs(q).max()), 0, atol=1e-15)
    assert np.sum(momenta * v) == pytest.approx((6 * n - 6) * 250.0 / 11604.518, rel=1e-7)
    assert np.max(np.linalg.norm(oxygens, axis=1)) < 2.2 * n ** (1 / 3) + 3


def test_droplets_are_near_low_energies():
    """In kcal/mol a molecule. The least energies of TIP4P: −58.2 for seven molecules (Wales and Hodges 1998)."""
    per_molecule = lambda n, kind: by_loops(gm.models.water(n, kind=kind).q0, kind) / n
    assert -8.35 < per_molecule(7, "tip4p") < -7.9
    assert -8.4 < per_molecule(7, "tip3p") < -7.8
    assert per_molecule(40, "tip3p") < -7.5


def test_temperatures_of_parts():
    model = gm.models.water(125, temperature=250.0)
    drift = np.einsum("i,aij->aj", MASSES, model.v0) / MASSES.sum()
    translation = 0.5 * MASSES.sum() * np.sum(drift**2)
    whole = 0.5 * np.sum(MASSES[:, None] * model.v0**2)
    # ½ kT for each of 3n translations; the spread of such a mean is 7 %.
    assert translation / 375 == pytest.approx(0.5 * 250.0 / 11604.518, rel=0.2)
    assert (whole - translation) / 375 == pytest.approx(0.5 * 250.0 / 11604.518, rel=0.2)
    assert not gm.models.water(3, temperature=0.0).v0.any()


# --- motion ---------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def rigid_run():
    return gm.simulate(gm.models.water(3), dt=0.1, t_end=100.0, save_every=10, engine="native")


def test_rigid_molecules_keep_constraints_and_momenta(rigid_run):
    assert rigid_run.engine == "native"
    assert "SETTLE" in rigid_run.solver
    assert np.max(np.abs(rigid_run.constraint_residual)) < 4e-15
    assert np.max(np.abs(rigid_run.momentum_maps["translation"])) < 1e-13
    assert np.max(np.abs(rigid_run.momentum_maps["rotation"])) < 1e-12
    assert np.max(np.abs(rigid_run.energy_error)) < 0.01 * rigid_run.kinetic[0]
    lengths = np.linalg.norm(rigid_run.q[:, :, 1] - rigid_run.q[:, :, 2], axis=-1)
    np.testing.assert_allclose(lengths, 2 * 0.9572 * np.sin(np.deg2rad(52.26)), rtol=4e-15)
    assert gm.degrees_of_freedom(rigid_run.system, rigid_run.q[0], centre_of_mass=True) == 6 * 3 - 3


def test_the_same_motion_in_other_units(rigid_run):
    """Twenty steps of 1.018 fs, in nm and ps."""
    units = gm.units.KJ
    dt = EV.convert(0.1, "time", to=units)
    run = gm.simulate(gm.models.water(3, units="kJ/mol"), dt=dt, t_end=20 * dt, save_every=10, engine="xla")
    np.testing.assert_allclose(units.convert(run.q, "length", to=EV), rigid_run.q[:3], rtol=0, atol=1e-9)
    np.testing.assert_allclose(units.convert(run.energy, "energy", to=EV), rigid_run.energy[:3], rtol=1e-9)
    assert run.system.atoms.units is units


def test_stiff_molecules():
    """What they conserve is measured by the experiment water-conservation of Tao and Owhadi."""
    model = gm.models.water(2, rigid=False)
    assert isinstance(model.method, gm.StiffZhangSkeel)
    assert model.system.constraint is None
    assert np.array_equal(model.q0, gm.models.water(2).q0)


def test_springs_in_any_units():
    """½·20²·Σ(r² − L²)², in eV and Å, of one molecule a tenth larger than at rest."""
    q = 1.1 * start(1)[0].q0
    expected = 200.0 * np.sum(
        ((1.1**2 - 1) * np.array([0.9572, 0.9572, 2 * 0.9572 * np.sin(np.deg2rad(52.26))]) ** 2) ** 2
    )
    for units in (EV, KCAL, gm.units.KJ):
        system = gm.models.water(1, rigid=False, units=units).system
        energy = float(gm.Mechanics(system, q.shape).fast_potential(EV.convert(q, "length", to=units)))
        assert units.convert(energy, "energy", to=EV) == pytest.approx(expected, rel=1e-12)


# --- what is wrong --------------------------------------------------------------------------------------------------
def test_wrong_input():
    with pytest.raises(gm.InputError, match=r"kind.*Did you mean tip3p"):
        gm.models.water(2, kind="tip3")
    with pytest.raises(gm.InputError, match=r"water\(units='metres'\): there are no such units.* Known: eV, kcal/mol"):
        gm.models.water(2, units="metres")
    with pytest.raises(gm.InputError, match=r"atoms need units with a size"):
        gm.models.water(2, units="reduced")
    with pytest.raises(gm.InputError, match="temperature"):
        gm.models.water(3, temperature=-1.0)
    with pytest.raises(gm.InputError, match="rigid"):
        gm.models.water(3, rigid="yes")
    model = gm.models.water(2)
    q0 = model.q0.copy()
    q0[1] = q0[0]
    overlap = r"the oxygen of molecule 0 and the oxygen of molecule 1 are at the distance 0 Å, and 2 more pairs overlap"
    with pytest.raises(gm.InputError, match=overlap):
        gm.simulate(model.system, q0, method=gm.Rattle(), dt=0.1, t_end=1.0)
    q0[1] += q0[0, 1] - q0[1, 0] + [0.0, 0.0, 1e-3]  # an oxygen near a hydrogen: the energy is finite
    with pytest.raises(gm.RunStopped, match=r"hydrogen 1 of molecule 0 and the oxygen of molecule 1 are at .* 0.001 Å"):
        gm.simulate(model.system, q0, method=gm.Rattle(), dt=0.1, t_end=1.0)
    with pytest.raises(gm.InputError, match=r"box .* is smaller than twice the cut-off"):
        gm.md.PairPotential(lambda r: 1 / r, cutoff=5.0, box=gm.md.Box([9.0, 12.0, 12.0]))
    with pytest.raises(gm.InputError, match=r"RigidMolecules holds molecules of at least 3 atoms"):
        model.system.constraint(model.q0.reshape(6, 3))
    with pytest.raises(gm.InputError, match=r"pairs are two atoms of a molecule"):
        gm.RigidMolecules([(0, None)], 1.0)


def test_the_call_is_kept_for_archives():
    assert gm.models.water(3, units="kJ/mol").system.origin == "water(n=3, units='kJ/mol')"
    assert gm.models.water(3, units=gm.units.KJ).system.origin == "water(n=3, units='kJ/mol')"
    mine = gm.units.UnitSystem("mine", 1e-10, 1e-26, 1e-20)
    assert gm.models.water(3, units=mine).system.origin is None
    again = gm.models.named(gm.models.water(4, kind="spce", rigid=False).system.origin or "water")
    assert np.array_equal(again.q0, gm.models.water(4, kind="spce").q0)
