"""Rotations in closed form, against scipy and against derivatives of the maps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation as Turn

from geomint.numerics import rotations

AXIS = np.array([0.36, -0.48, 0.8])
MAPS = {
    "cayley": (rotations.cayley_minus_one, rotations.cayley_cotangent),
    "exponential": (rotations.exponential_minus_one, rotations.exponential_cotangent),
}


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-3, 0.9, 1.1, 3.0])
def test_maps_and_quaternions(angle):
    w = angle * AXIS
    exact = Turn.from_rotvec(w).as_matrix()
    np.testing.assert_allclose(np.eye(3) + rotations.exponential_minus_one(w), exact, atol=4e-16)
    # The Cayley map turns by 2 atan(|w|/2).
    turned = Turn.from_rotvec(2 * np.arctan(0.5 * angle) * AXIS).as_matrix()
    np.testing.assert_allclose(np.eye(3) + rotations.cayley_minus_one(w), turned, atol=4e-16)
    np.testing.assert_allclose(rotations.logarithm(jnp.asarray(exact)), w, atol=1e-15)
    e = rotations.to_quaternion(jnp.asarray(exact))
    np.testing.assert_allclose(e, np.roll(Turn.from_matrix(exact).as_quat(canonical=True), 1), atol=3e-16)
    np.testing.assert_allclose(rotations.from_quaternion(1.7 * e), exact, atol=6e-16)


def test_quaternions_at_half_turns():
    for axis in (*np.eye(3), AXIS):
        half = Turn.from_rotvec(np.pi * axis).as_matrix()
        np.testing.assert_allclose(rotations.from_quaternion(rotations.to_quaternion(half)), half, atol=4e-16)
        assert np.linalg.norm(rotations.logarithm(jnp.asarray(half))) == pytest.approx(np.pi, abs=1e-15)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("angle", [1e-8, 0.5, 0.99, 1.01, 2.5])
def test_cotangents_are_those_of_the_maps(name, angle):
    """With dτ_w(y) = (d/dε τ(w + εy)) τ(w)ᵀ:  ⟨(dτ_w⁻¹)ᵀμ, dτ_w(y)⟩ = ⟨μ, y⟩."""
    (minus_one, cotangent), w, mu = MAPS[name], angle * AXIS, np.array([0.7, -0.2, 0.4])
    rates = np.moveaxis(np.asarray(jax.jacfwd(minus_one)(jnp.asarray(w))), -1, 0)
    columns = [0.5 * rotations.twice_vee(rate @ (np.eye(3) + minus_one(w)).T) for rate in rates]
    np.testing.assert_allclose(np.stack(columns) @ cotangent(w, mu), mu, atol=1e-14)


def test_small_helpers():
    rng = np.random.default_rng(0)
    a, b, m = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), rng.normal(size=(4, 3, 3))
    np.testing.assert_allclose(np.einsum("...ij,...j->...i", rotations.hat(a), b), np.cross(a, b), atol=1e-15)
    np.testing.assert_allclose(rotations.cross(a, b), np.cross(a, b), atol=1e-15)
    np.testing.assert_allclose(0.5 * rotations.twice_vee(rotations.hat(a)), a, atol=1e-16)
    np.testing.assert_allclose(rotations.solve3(m, b), np.linalg.solve(m, b[..., None])[..., 0], rtol=1e-12)
    near = Turn.from_rotvec(AXIS).as_matrix() + 1e-6 * m[0]
    once = near + rotations.polish(jnp.asarray(near))
    assert np.abs(once.T @ once - np.eye(3)).max() < 1e-10
