"""Lyapunov exponents against exact and published ones, and the pairs of symplectic methods."""

import jax.numpy as jnp
import numpy as np
import pytest

import geomint as gm
from geomint.methods.tangent import orthogonal_symplectic, orthonormal


def test_a_saddle_is_exact():
    """V = −½ω²q² with ω = 0.7, whose exponents are ±ω; for Verlet cosh(λh) = 1 + ½(hω)² instead."""
    system = gm.System(lambda q: -0.5 * 0.49 * jnp.sum(q**2), mass=1.0)
    found = gm.lyapunov(system, [1e-9], [0.0], method=gm.Verlet(), dt=0.5, t_end=100.0)
    expected = np.arccosh(1 + 0.5 * (0.5 * 0.7) ** 2) / 0.5
    np.testing.assert_allclose(found.exponents, [expected, -expected], rtol=1e-6)


def test_the_standard_map_of_chirikov():
    """Symplectic Euler with h = 1 on V = K cos q is the standard map; λ = ln(K/2) for large K (Chirikov 1979)."""
    system = gm.System(lambda q: 100.0 * jnp.cos(q[0]), mass=1.0)
    with pytest.warns(gm.InstabilityWarning):
        found = gm.lyapunov(system, [0.3], [0.2], method=gm.SymplecticEuler(), dt=1.0, t_end=40_000.0)
    assert found.exponents[0] == pytest.approx(np.log(50.0), rel=3e-3)
    assert abs(np.sum(found.exponents)) < 1e-10
    assert found.uncertainty[0] < 0.02


def test_pairs_of_a_chaotic_orbit_and_of_several():
    """The orbit of Hénon and Heiles at H = 1/8 with y = −¼: λ₁ is near 0.047 (Skokos, Bountis, Antonopoulos, Physica D
    231 (2007) 30), within the scatter of so short a run."""
    model, px = gm.models.henon_heiles(), np.sqrt(0.25 - 0.0625 - 2 * 0.25**3 / 3)
    settings = {"method": gm.Composition(gm.Verlet(), order=4), "dt": 0.2, "t_end": 10_000.0}
    starts = np.array([[0.0, -0.25], [0.0, 0.3]])  # the second one is regular
    velocities = np.array([[px, 0.0], [np.sqrt(0.25 - 0.09 + 0.018), 0.0]])
    found = gm.lyapunov(model, starts, velocities, members=True, **settings)
    np.testing.assert_allclose(found.exponents + found.exponents[:, ::-1], 0, atol=1e-13)
    assert 0.03 < found.exponents[0, 0] < 0.06
    assert abs(found.exponents[1, 0]) < 2e-3
    assert found.running.shape == (2, len(found.t), 4)
    assert found.plot().axes[0].lines


def test_on_a_manifold_there_are_twice_its_dimension():
    found = gm.lyapunov(gm.models.double_pendulum(), t_end=4.0)
    assert found.exponents.shape == (4,)
    assert np.all(np.isfinite(found.exponents))
    with pytest.raises(gm.InputError, match="one-step"):
        gm.lyapunov(gm.models.henon_heiles(), method=gm.SymmetricMultistep(8))


def test_the_basis_is_symplectic_and_orthonormal():
    n = 3
    w = orthogonal_symplectic(n)
    form = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    anti = np.fliplr(np.diag([1.0] * n + [-1.0] * n))
    np.testing.assert_allclose(w @ w.T, np.eye(2 * n), atol=1e-15)
    np.testing.assert_allclose(w @ form @ w.T, anti, atol=1e-15)
    x = np.random.default_rng(0).normal(size=(13, 20))
    for rows in (x[:5], x):  # one by one, and by QR
        q, lengths = orthonormal(jnp.asarray(rows))
        np.testing.assert_allclose(q @ q.T, np.eye(len(rows)), atol=1e-14)
        np.testing.assert_allclose(np.prod(lengths), np.sqrt(np.linalg.det(rows @ rows.T)), rtol=1e-12)


def test_the_end_is_a_whole_number_of_steps():
    with pytest.raises(gm.InputError, match="not a whole number"):
        gm.lyapunov(gm.models.henon_heiles(), dt=0.3, t_end=100.0)
